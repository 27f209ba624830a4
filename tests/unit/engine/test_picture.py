"""The picture of an array: well-formed, escaped, small, and with everything on it that happened."""

import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import terrazzo as tz
from terrazzo.engine import picture_data, picture_map, picture_timeline
from terrazzo.engine.axes import NumberAxis, TextAxis
from terrazzo.engine.axis_dates import date_ticks
from terrazzo.engine.events import Event
from terrazzo.engine.picture_timeline import duration_text, with_vacuums
from terrazzo.engine.svg import bytes_text, tag

NASTY = "<script>alert(\"1\")</script> & 'x'"
DAY = 86_400_000
START = 20_000 * DAY


def points(uri: str, n_writes: int = 3, **options) -> tz.Array:
    schema = tz.Schema(
        [tz.Dim("x", "int32", (0, 999), 100), tz.Dim("y", "int32", (0, 999), 100)],
        [tz.Attr("v", "int64"), tz.Attr("s", "utf8")],
        **{"capacity": 10, **options},
    )
    a = tz.create(uri, schema, at=START)
    for i in range(n_writes):
        x = (np.arange(30) * 7 + 40 * i) % 1000
        a.write({"x": x, "y": x[::-1].copy(), "v": x, "s": ["s"] * 30}, at=START + 1000 * (i + 1))
    return a


def drawings(page: str) -> list[ET.Element]:
    return [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def with_class(page: str, css: str) -> list[ET.Element]:
    return [each for svg in drawings(page) for each in svg.iter() if css in each.get("class", "").split()]


def marks(page: str, kind: str) -> list[str]:
    """What the tooltips of a kind of event say; its entry in the legend has none."""
    return [found for each in with_class(page, kind) if (found := each.findtext("title"))]


def test_the_whole_page_is_well_formed_and_so_is_what_a_notebook_gets(uri) -> None:
    a = points(uri)

    assert a.picture().startswith("<!DOCTYPE html>\n<html")
    assert (
        ET.fromstring(a.picture().removeprefix("<!DOCTYPE html>\n")).find("body/div/header/h1").text
        == "array"
    )
    part = a._repr_html_()
    assert ET.fromstring(part.replace("&#8203;", "")).get("class") == "terrazzo"
    assert "<html" not in part
    assert "<body" not in part


def test_every_rule_of_the_style_is_below_the_pictures_own_class(uri) -> None:
    style = re.search(r"<style>(.*?)</style>", points(uri)._repr_html_(), re.DOTALL)[1]

    selectors = [each.strip() for rule in re.findall(r"([^{}]+)\{", style) for each in rule.split(",")]
    assert [each for each in selectors if ".terrazzo" not in each] == ["@media (prefers-color-scheme:dark)"]


def test_fragments_and_their_tiles_are_boxes_with_tooltips(uri) -> None:
    page = points(uri).picture()

    boxes = with_class(page, "f")
    assert len(boxes) == 3
    assert "30 cells in 3 tiles" in boxes[0].findtext("title")
    assert len(with_class(page, "t")) == 9
    assert "tile 1 of 3, 10 cells" in with_class(page, "t")[0].findtext("title")


def test_boxes_lie_where_the_cells_are(uri) -> None:
    schema = tz.Schema(
        [tz.Dim("x", "int64", (0, 99), 10), tz.Dim("y", "int64", (0, 99), 10)], [tz.Attr("v", "int8")]
    )
    a = tz.create(uri, schema)
    a.write({"x": [0, 99], "y": [0, 99], "v": [1, 1]})
    a.write({"x": [50, 74], "y": [0, 24], "v": [1, 1]})

    (panel,) = with_class(a.picture(), "panel")
    whole, part = with_class(a.picture(), "f")
    left, top, width, height = (float(panel.get(name)) for name in ("x", "y", "width", "height"))
    assert float(whole.get("width")) == pytest.approx(width, abs=0.2)
    assert float(part.get("x")) == pytest.approx(left + width / 2, abs=0.2)
    assert float(part.get("width")) == pytest.approx(width / 4, abs=0.2)
    assert float(part.get("y")) == pytest.approx(top + height * 3 / 4, abs=0.2)  # y goes up


def test_names_conditions_and_labels_are_escaped(uri) -> None:
    schema = tz.Schema(
        [tz.Dim(f"d{NASTY}", "ascii"), tz.Dim("p", "int32", (0, 99), 10)], [tz.Attr(f"a{NASTY}", "utf8")]
    )
    a = tz.create(f"{uri}<b>&", schema)
    a.write({f"d{NASTY}": [NASTY, "b\x01"], "p": [1, 2], f"a{NASTY}": [NASTY, ""]})
    a.delete(f"`a{NASTY}` = 'q<i>&'")

    page = a.picture()
    assert "<script" not in page
    assert "<b>" not in page
    assert "<i>&" not in page
    assert "\x01" not in page
    body = ET.fromstring(page.removeprefix("<!DOCTYPE html>\n")).find("body")
    assert body.find("div/header/h1").text == "array<b>&"
    assert f"d{NASTY}" in "".join(body.itertext())
    assert "q<i>&" in marks(page, "delete")[0]


def test_every_kind_of_event_has_its_mark(uri) -> None:
    a = points(uri)
    a.update({"v": -1}, "x < 50", at=START + DAY)
    a.delete("s = 'old'", at=START + 2 * DAY)
    a.evolve(add=tz.Attr("w", "int32"), at=START + 3 * DAY)
    a.meta["note"] = "n"
    a.consolidate()

    page = a.picture()
    assert "set v = -1 where x < 50" in marks(page, "update")[0]
    assert "where s = 'old'" in marks(page, "delete")[0]
    assert "added w" in marks(page, "evolve")[0]
    assert "sparse array of x, y" in marks(page, "create")[0]
    assert len(marks(page, "metadata")) == 1
    assert len(marks(page, "consolidate")) == 1
    assert len(marks(page, "write")) == 3
    assert [
        "old" in each.get("class") for each in with_class(page, "write") if each.find("title") is not None
    ] == [True] * 3
    assert "3 fragments to vacuum" in page
    assert marks(page, "vacuum") == []

    a.vacuum(retain=0)
    page = a.picture()
    assert "vacuum, some time after" in marks(page, "vacuum")[0]
    assert marks(page, "write") == []
    assert "to vacuum" not in page


def test_what_came_after_the_instant_shown_is_pale(uri) -> None:
    points(uri)

    page = tz.open(uri, at=START + 1500).picture()
    assert len(with_class(page, "f")) == 1
    assert len(with_class(page, "later")) == 2
    assert "as of 2024-10-04 00:00:01.500" in page


def test_an_empty_array_has_a_picture(uri) -> None:
    page = points(uri, 0).picture()

    assert "nothing has been written yet" in page
    assert with_class(page, "f") == []
    assert len(marks(page, "create")) == 1


@pytest.mark.parametrize("domain", [(-(2**63), 2**63 - 1002), (0, 0), (5, 6)])
def test_an_axis_of_any_width_has_ticks(domain) -> None:
    axis = NumberAxis(tz.Dim("x", "int64", domain, 1), *domain)

    ticks = axis.ticks(8)
    assert 1 <= len(ticks) <= 12
    assert all(0 <= tick.at <= 1 for tick in ticks)


def test_nanoseconds_of_this_century_keep_their_places() -> None:
    base = 1_700_000_000_000_000_000
    axis = NumberAxis(tz.Dim("t", "datetime_ns", (base, base + 9), 1), base, base + 9)

    low, high = axis.places(np.array([base + 1]), np.array([base + 2]))
    assert (low[0], high[0]) == pytest.approx((0.1, 0.3))


def test_dates_have_ticks_that_people_use() -> None:
    day = int(np.datetime64("2024-01-30", "D").astype(int))
    ms = int(np.datetime64("2024-01-30T10:00", "ms").astype(int))

    assert [tick[1:] for tick in date_ticks(day, day + 3, "D", 4)] == [
        ("30 Jan", "2024"), ("31 Jan", "2024"), ("1 Feb", "2024"), ("2 Feb", "2024"),
    ]  # fmt: skip
    assert [tick[1] for tick in date_ticks(ms, ms + 3_600_000, "ms", 4)] == [
        "10:00",
        "10:15",
        "10:30",
        "10:45",
        "11:00",
    ]
    assert [tick[1] for tick in date_ticks(ms, ms + 3, "ms", 4)][:2] == ["10:00:00.000", "10:00:00.001"]
    assert date_ticks(day, day + 100, "D", 4)[0][1:] == ("Feb", "2024")
    assert [tick[1] for tick in date_ticks(day, day + 4000, "D", 6)] == [
        "2026",
        "2028",
        "2030",
        "2032",
        "2034",
    ]
    assert [tick[1] for tick in date_ticks(30, 50, "Y", 4)] == ["2000", "2005", "2010", "2015", "2020"]


def test_texts_stand_at_their_ranks() -> None:
    axis = TextAxis.of(tz.Dim("s", "ascii"), [b"chr1", b"chr1", b"chr2", b"chrX", b"chrY"])

    low, high = axis.places(np.array([b"chr2"], object), np.array([b"chrX"], object))
    assert (low[0], high[0]) == (0.25, 0.75)
    assert [tick.label for tick in axis.ticks(2)] == ["chr1", "chrX"]


def test_a_series_has_a_row_for_each_fragment_the_newest_on_top(uri) -> None:
    ends = (np.datetime64("2020-01-01", "s"), np.datetime64("2030-01-01", "s"))
    a = tz.create(uri, tz.Schema([tz.Dim("t", "datetime_sec", ends, 86400)], [tz.Attr("v", "int8")]))
    for i in range(3):
        a.write({"t": ends[0] + np.arange(10) + 10 * i, "v": np.zeros(10, "i1")}, at=START + i)

    page = a.picture()
    boxes = sorted(with_class(page, "f"), key=lambda each: float(each.get("x")))
    tops = [float(each.get("y")) for each in boxes]
    assert tops == sorted(tops, reverse=True)
    assert "2020-01-01" in [each.text for each in with_class(page, "context")]
    assert "t 2020-01-01T00:00:00 to 2020-01-01T00:00:09" in page


def test_rows_of_a_dense_array_go_down_and_its_tiles_are_a_grid(uri) -> None:
    dims = [tz.Dim("row", "int32", (0, 39), 10), tz.Dim("col", "int32", (0, 39), 10)]
    a = tz.create(uri, tz.Schema(dims, [tz.Attr("v", "int8")], sparse=False))
    a[0:10, 5:25] = np.ones((10, 20), "i1")

    page = a.picture()
    (box,), (panel,), (lines,) = (with_class(page, css) for css in ("f", "panel", "l"))
    assert box.get("y") == panel.get("y")
    assert lines.get("d").count("M") == 2  # at columns 10 and 20


def test_of_three_dimensions_two_are_chosen_and_the_caption_tells(uri) -> None:
    dims = [tz.Dim(name, "int32", (0, 99), 10) for name in ("fixed", "b", "c")]
    a = tz.create(uri, tz.Schema(dims, [tz.Attr("v", "int8")]))
    a.write({"fixed": [3, 3], "b": [1, 50], "c": [2, 60], "v": [1, 1]})

    assert [each.text for each in with_class(a.picture(), "axis")] == ["b", "c"]
    assert "Seen along fixed" in a.picture()
    assert [each.text for each in with_class(a.picture(dims=["c", "fixed"]), "axis")] == ["c", "fixed"]
    with pytest.raises(tz.InvalidRequestError, match="no dimension 'z'; there are fixed, b, c"):
        a.picture(dims=["z"])
    with pytest.raises(tz.InvalidRequestError, match="one or two dimensions"):
        a.picture(dims="fixed")


def test_too_many_tiles_become_a_density(uri, monkeypatch) -> None:
    monkeypatch.setattr(picture_map, "MOST_BOXES", 5)
    page = points(uri).picture()

    assert with_class(page, "t") == []
    assert len(with_class(page, "f")) == 3
    assert any(each.get("d") for each in with_class(page, "d"))
    assert "9 tiles are too many to draw" in page


def test_too_many_fragments_become_a_density_and_too_many_commits_share_marks(uri, monkeypatch) -> None:
    monkeypatch.setattr(picture_map, "MOST_FRAGMENTS", 5)
    monkeypatch.setattr(picture_timeline, "MOST_COLUMNS", 4)
    page = points(uri, 12).picture()

    assert with_class(page, "f") == []
    assert "12 fragments are too many to draw" in page
    assert len(marks(page, "write")) <= 5
    assert any("× write" in text for text in marks(page, "write"))


def test_the_page_of_many_fragments_and_long_texts_stays_small(uri) -> None:
    schema = tz.Schema(
        [tz.Dim("k", "ascii"), tz.Dim("y", "int32", (0, 999), 100)], [tz.Attr("v", "int8")], capacity=2
    )
    a = tz.create(uri, schema)
    for i in range(100):
        long = [f"{k:03}{i:03}" + "x" * 5000 for k in range(8)]
        a.write({"k": long, "y": np.arange(8), "v": np.zeros(8, "i1")}, at=START + i)
    a.delete(f"k = '{'y' * 100_000}'")

    assert len(a.picture()) < 500_000


def test_tooltips_end_where_they_would_make_the_page_large(uri, monkeypatch) -> None:
    monkeypatch.setattr(picture_map, "MOST_NOTES", 300)
    boxes = with_class(points(uri).picture(), "f")

    assert [each.find("title") is not None for each in boxes] == [True, False, False]


def test_r_trees_beyond_the_bound_are_left_alone(uri, monkeypatch) -> None:
    monkeypatch.setattr(picture_data, "MOST_TREES", 2)
    page = points(uri).picture()

    assert len(with_class(page, "t")) == 6
    assert "Tiles of 1 older fragments are left out" in page


def test_nothing_is_asked_of_the_network(uri) -> None:
    page = points(uri).picture()

    assert re.findall(r"https?:|//[a-z]+\.[a-z]|@import|url\(|<link|<script|<img|src=|href=", page) == []


def test_a_notebook_shows_words_where_no_picture_can_be_made(uri, monkeypatch) -> None:
    a = points(f"{uri}<b>")

    def broken(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("terrazzo.engine.picture.render_part", broken)
    assert a._repr_html_().startswith("<pre>&lt;Array ")
    assert "array&lt;b&gt;" in a._repr_html_()


def test_a_long_pause_is_told_and_bursts_keep_their_steps(uri) -> None:
    a = points(uri)
    a.write({"x": [1], "y": [1], "v": [1], "s": ["s"]}, at=START + 10 * DAY)

    page = a.picture()
    assert [each.findtext("title") for each in with_class(page, "pause")] == ["10 d without a commit"]
    xs = [
        float(each.find("circle").get("cx"))
        for each in with_class(page, "write")
        if each.find("title") is not None
    ]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)
    assert xs[3] - xs[2] > xs[1] - xs[0]


def test_a_consolidation_whose_sources_are_there_is_not_vacuumed() -> None:
    write = Event(1, 1, "write", "a", "", superseded=True)
    merged = Event(1, 5, "consolidate", "b", "")

    assert [event.kind for event in with_vacuums([write, merged])] == ["write", "consolidate"]
    assert [event.kind for event in with_vacuums([merged])] == ["consolidate", "vacuum"]


def test_sizes_and_durations_are_short() -> None:
    assert [bytes_text(size) for size in (0, 999, 1000, 12_345, 999_999, 5 * 10**9)] == [
        "0 B", "999 B", "1 kB", "12.3 kB", "1 MB", "5 GB",
    ]  # fmt: skip
    assert [duration_text(ms) for ms in (5, 1500, 90_000, 3 * DAY, 40 * DAY)] == [
        "5 ms",
        "1.5 s",
        "1.5 min",
        "3 d",
        "40 d",
    ]


def test_attributes_and_texts_of_markup_are_escaped() -> None:
    assert tag("a", "<&", class_='"') == '<a class="&quot;">&lt;&amp;</a>'
