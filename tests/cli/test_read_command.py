"""`info`, `schema`, `history`, `fragments`, `read` and `export`: for people, and for programs."""

import io
import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import terrazzo as tz
from terrazzo.cli import sinks
from terrazzo.cli.json_lines import json_lines
from terrazzo.cli.main import run


def test_info_tells_what_an_array_is(array, ask, ask_json) -> None:
    tz.open("a").meta["unit"] = "K"
    tz.open("a").delete("x = 1")

    report = ask_json("info", "a", "--count")
    assert report["array"] == "sparse"
    assert report["dimensions"] == ["x", "s"]
    assert (report["fragments"], report["cells_stored"], report["cells"]) == (1, 2, 1)
    assert report["pending_deletes"] == 1
    assert report["written"] == {"x": [1, 2], "s": ["a", "b"]}
    assert report["metadata"] == {"unit": "K"}
    assert "pending deletes" in ask("info", "a")


def test_a_schema_is_a_tree_for_people_and_fields_for_programs(array, ask, ask_json) -> None:
    tree, report = ask("schema", "a"), ask_json("schema", "a")

    assert "├── attributes" in tree
    assert "x  int64           [0, 99] tile 10" in tree
    assert "kinds: a, b" in tree
    assert [attr["name"] for attr in report["attributes"]] == ["v", "tag", "k"]
    assert report["enumerations"] == [{"name": "kinds", "ordered": False, "values": ["a", "b"]}]


def test_the_history_lists_every_commit(array, ask, ask_json) -> None:
    tz.open("a").update({"v": 9.0}, "x = 1")

    report = ask_json("history", "a")
    assert [event["kind"] for event in report["events"]] == ["create", "write", "update"]
    assert report["events"][1]["cells"] == 2
    assert "set v = 9.0 where x = 1" in ask("history", "a")


def test_fragments_are_listed_with_their_boxes(array, ask, ask_json) -> None:
    (fragment,) = ask_json("fragments", "a")["fragments"]

    assert fragment["cells"] == 2
    assert fragment["domain"] == {"x": [1, 2], "s": ["a", "b"]}
    assert fragment["name"] in ask("fragments", "a")


class TestRead:
    def test_a_table_tells_how_many_more_there_are(self, array, ask) -> None:
        shown = ask("read", "a", "--limit", 1)

        assert "1   a   1.5   t     a" in shown
        assert "… 1 more of 2 cells" in shown
        assert ask("read", "a").endswith("2 cells\n")

    def test_json_is_one_document(self, array, ask_json) -> None:
        report = ask_json("read", "a", "--where", "x = 2", "--columns", "v,tag")

        assert report["rows"] == [{"v": 2.5, "tag": None}]
        assert report["columns"] == [{"name": "v", "type": "double"}, {"name": "tag", "type": "string"}]
        assert report["cells"] == 1

    @pytest.mark.parametrize(
        ("region", "cells"),
        [
            (["x=1"], 1),
            (["x=1:2"], 2),
            (["x=2:"], 1),
            (["x=:1"], 1),
            (["x=1,2"], 2),
            (["x=0:1,50:60"], 1),
            (["x=1", "x=2"], 2),
            (["x=1:2", "s=b"], 1),
            (["s=a..b"], 2),
            (["s=a,zz"], 1),
        ],
    )
    def test_regions_are_ranges_and_points(self, array, ask, region, cells) -> None:
        given = [part for each in region for part in ("--region", each)]

        assert ask("read", "a", "--count", *given) == f"{cells}\n"

    @pytest.mark.parametrize(
        "region", ["t=2026-01-02", "t=2026-01-02:2026-01-03", "t=2026-01-01T12:00..2026-01-02T12:00:00"]
    )
    def test_regions_of_dates_are_dates(self, tmp_path, ask, region) -> None:
        days = np.array(["2026-01-01", "2026-01-02"], "M8[ms]")
        domain = (np.datetime64("2000-01-01", "ms"), np.datetime64("2100-01-01", "ms"))
        schema = tz.Schema([tz.Dim("t", "datetime_ms", domain, 86_400_000)], [tz.Attr("v", "int8")])
        tz.create(str(tmp_path / "t"), schema).write({"t": days, "v": [1, 2]})

        assert ask("read", tmp_path / "t", "--count", "--region", region) == "1\n"

    def test_an_earlier_instant_is_read(self, array, ask) -> None:
        then = tz.open("a").fragments[-1].name.end_ms
        tz.open("a").delete("x = 1")

        assert ask("read", "a", "--count") == "1\n"
        assert ask("read", "a", "--count", "--at", then) == "2\n"
        assert ask("read", "a", "--count", "--since", then + 1) == "0\n"

    def test_a_time_without_an_array_is_noted(self, array, capsys) -> None:
        assert run(["read", "a", "--count", "--at", "2020-01-01"]) == 0

        printed = capsys.readouterr()
        assert printed.out == "0\n"
        assert "note: at 2020-01-01 00:00:00.000 there was no array; it begins at" in printed.err

    def test_a_long_table_is_aligned(self, tmp_path, ask) -> None:
        schema = tz.Schema([tz.Dim("x", "int64", (0, 9999), 100)], [tz.Attr("name", "utf8")])
        made = tz.create(str(tmp_path / "long"), schema)
        made.write({"x": np.arange(600), "name": [f"name {n}" for n in range(600)]})

        lines = ask("read", tmp_path / "long", "--limit", 0).splitlines()
        assert lines[:3] == ["  x   name", "───   ────────", "  0   name 0"]
        assert lines[-2:] == ["599   name 599", "600 cells"]

    def test_a_file_takes_as_many_cells_as_are_asked_for(self, array, ask_json) -> None:
        assert ask_json("read", "a", "--to", "one.arrow", "--limit", 1)["cells"] == 1
        assert pa.ipc.open_file("one.arrow").read_all().num_rows == 1

    def test_an_order_is_kept(self, array, ask_json) -> None:
        tz.open("a").write({"x": [0], "s": ["c"], "v": [0.0], "tag": ["z"], "k": ["a"]})

        rows = ask_json("read", "a", "--order", "row-major")["rows"]
        assert [row["x"] for row in rows] == [0, 1, 2]

    def test_text_goes_to_a_pipe(self, array, ask) -> None:
        assert (
            ask("read", "a", "--format", "csv", "--limit", 1) == '"x","s","v","tag","k"\n1,"a",1.5,"t","a"\n'
        )
        lines = ask("read", "a", "--format", "json").splitlines()
        assert [json.loads(line)["tag"] for line in lines] == ["t", None]

    @pytest.mark.parametrize("kind", ["parquet", "arrow"])
    def test_bytes_go_to_a_pipe(self, array, capsysbinary, kind) -> None:
        assert run(["read", "a", "--format", kind]) == 0

        source = io.BytesIO(capsysbinary.readouterr().out)
        found = pq.read_table(source) if kind == "parquet" else pa.ipc.open_stream(source).read_all()
        assert found["x"].to_pylist() == [1, 2]


def read_back(file: Path) -> pa.Table:
    if file.name.endswith("parquet"):
        return pq.read_table(file)
    if file.name.endswith("arrow"):
        return pa.ipc.open_file(file).read_all()
    return pa.csv.read_csv(file)


class TestExport:
    @pytest.mark.parametrize("name", ["out.parquet", "out.arrow", "out.csv", "out.csv.gz"])
    def test_a_file_holds_the_cells(self, array, ask_json, name) -> None:
        report = ask_json("export", "a", name)

        assert (report["cells"], report["files"], report["to"]) == (2, 1, name)
        assert read_back(Path(name)).column("v").to_pylist() == [1.5, 2.5]

    def test_a_folder_holds_parquet_files_of_about_a_size(self, tmp_path, monkeypatch, ask_json) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sinks, "_ROW_GROUP", 1000)
        schema = tz.Schema([tz.Dim("x", "int64", (0, 99_999), 1000)], [tz.Attr("v", "float64")])
        numbers = np.random.default_rng(1).random(10_000)
        tz.create("big", schema).write({"x": np.arange(10_000), "v": numbers})

        report = ask_json("export", "big", "parts/", "--file-size", "20KiB", "--memory", "1")
        assert report["files"] == len(list(Path("parts").glob("part-*.parquet"))) >= 1
        assert sorted(pq.read_table("parts")["x"].to_pylist()) == list(range(10_000))

    def test_what_is_there_stays_unless_told_otherwise(self, array, refuse, ask) -> None:
        Path("out.csv").write_text("mine")

        assert "out.csv is there already; --overwrite replaces it" in refuse("export", "a", "out.csv")
        assert Path("out.csv").read_text() == "mine"
        ask("export", "a", "out.csv", "--overwrite")
        assert Path("out.csv").read_text().startswith('"x"')

    @pytest.mark.parametrize("target", ["out.parquet", "parts/"])
    def test_an_export_that_fails_leaves_nothing(self, array, refuse, target) -> None:
        (damaged,) = array.glob("__fragments/*/a0.tdb")
        damaged.write_bytes(damaged.read_bytes()[:-5])

        refuse("export", "a", target)
        assert sorted(path.name for path in array.parent.iterdir()) == ["a"]

    def test_a_dry_run_writes_nothing(self, array, ask_json) -> None:
        report = ask_json("export", "a", "out.csv", "--dry-run")

        assert report["dry_run"] is True
        assert report["cells_at_most"] == 2
        assert not Path("out.csv").exists()

    def test_a_file_in_an_object_store_appears_whole(self, array, ask) -> None:
        ask("export", "a", "memory://exports/out.json")

        from terrazzo.storage import open_store

        lines = open_store("memory://exports").get("out.json").splitlines()
        assert [json.loads(line)["x"] for line in lines] == [1, 2]


def test_json_lines_say_what_python_would_say() -> None:
    texts = [
        "plain",
        'a "quote"',
        "back\\slash",
        "line\nbreak\ttab\r",
        "\x00\x1f\x7f\b\f",
        "é 漢 \u2028",
        "",
        None,
    ]
    n = len(texts)
    batch = pa.record_batch(
        {
            "text": pa.array(texts),
            'na"me': pa.array(range(n), pa.uint64()),
            "float": pa.array([0.1, math.nan, math.inf, -0.0, 1e300, 1, None, 5e-324]),
            "bool": pa.array([True, False, None] + [True] * (n - 3)),
            "list": pa.array([[1, 2], [], None, [3]] + [[4]] * (n - 4), pa.list_(pa.int32())),
            "pair": pa.array([[1.5, 2.5]] * (n - 1) + [None], pa.list_(pa.float64(), 2)),
            "bytes": pa.array([b"\x00\xff", b"", None] + [b"abc"] * (n - 3)),
            "day": pa.array([0, 1, None] + [2] * (n - 3), pa.date32()),
            "time": pa.array([0, 1, None] + [2] * (n - 3), pa.timestamp("ms")),
            "kind": pa.array(["a", None] + ["b"] * (n - 2)).dictionary_encode(),
        }
    ).slice(1)

    rows = [json.loads(line) for line in json_lines(batch).decode().rstrip("\n").split("\n")]
    assert [row["text"] for row in rows] == texts[1:]
    assert [row["float"] for row in rows] == [None, None, 0.0, 1e300, 1, None, 5e-324]
    assert rows[0] == {
        "text": 'a "quote"', 'na"me': 1, "float": None, "bool": False, "list": [], "pair": [1.5, 2.5],
        "bytes": "", "day": "1970-01-02", "time": "1970-01-01T00:00:00.001", "kind": None,
    }  # fmt: skip
    assert rows[2]["list"] == [3]
    assert rows[1]["list"] is rows[-1]["pair"] is rows[1]["bytes"] is None
    assert rows[-1]["bytes"] == "616263"
    assert json_lines(batch.slice(0, 0)) == b""
