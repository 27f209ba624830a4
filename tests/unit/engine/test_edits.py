"""What changes an array: deletes, updates, upserts, evolution; and what tells of it: history and the change feed."""

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiledb

import terrazzo as tz
from terrazzo.engine import consolidate


def table(uri: str, **options: Any) -> tz.Array:
    attrs = [
        tz.Attr("v", "float64", nullable=True),
        tz.Attr("n", "int32"),
        tz.Attr("s", "utf8", nullable=True),
        tz.Attr("k", "int8", enum="kinds", nullable=True),
        tz.Attr("l", "int16", var=True),
        tz.Attr("t", "datetime_ms"),
        tz.Attr("p", "int8", values_per_cell=2),
    ]
    schema = tz.Schema(
        [tz.Dim("x", "int64", (0, 999), 100)], attrs, enums={"kinds": ["a", "b"]}, capacity=3, **options
    )
    a = tz.create(uri, schema)
    a.write(
        {
            "x": range(6), "v": [0.0, 1.0, None, 3.0, float("nan"), 5.0], "n": range(6),
            "s": ["a", "b", None, "", "e", "f"], "k": ["a", "b", None, "a", "b", "a"], "l": [[i] * i for i in range(6)],
            "t": np.arange(6).astype("M8[ms]"), "p": np.arange(12).reshape(6, 2),
        },
        at=10,
    )  # fmt: skip
    return a


def column(a: tz.Array, name: str) -> list[Any]:
    return a.read([name], order="row-major").column(name).to_pylist()


def theirs(folder: str, name: str = "x") -> list[Any]:
    with tiledb.open(folder) as other:
        return other[:][name].tolist()


# -- delete --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("duplicates", [False, True])
@pytest.mark.parametrize(
    ("where", "left"),
    [
        ("x >= 4", [0, 1, 2, 3]),
        ("n = 3", [0, 1, 2, 4, 5]),
        ("v > 1", [0, 1, 2, 4]),
        ("v <= 1 OR s IS NULL", [3, 4, 5]),
        ("v IS NULL", [0, 1, 3, 4, 5]),
        ("v IS NOT NULL", [2]),
        ("NOT v > 1", [2, 3, 4, 5]),
        ("k = 'a'", [1, 2, 4]),
        ("k IN ('a', 'b')", [2]),
        ("s IN ('a', 'b', 'z')", [2, 3, 4, 5]),
        ("s = ''", [0, 1, 2, 4, 5]),
        ("t < TIMESTAMP '1970-01-01 00:00:00.003'", [3, 4, 5]),
        ("TRUE", []),
        ("FALSE", [0, 1, 2, 3, 4, 5]),
        ("n > 1000", [0, 1, 2, 3, 4, 5]),
    ],
)
def test_deletes_remove_what_sql_says_for_both_readers(
    where: str, left: list[int], duplicates: bool, folder: str
) -> None:
    a = table(folder, allows_duplicates=duplicates)
    a.delete(where)

    assert column(a, "x") == left
    assert column(tz.open(folder), "x") == left
    assert a.count() == len(left)
    assert sorted(theirs(folder)) == left
    assert column(tz.open(folder, at=10), "x") == [0, 1, 2, 3, 4, 5]


def test_deletes_touch_nothing_written_later(folder: str) -> None:
    a = table(folder)
    a.delete("n < 3")
    a.write({**a.read(where="x = 5").to_pydict(), "x": [0], "n": [0]})

    assert column(a, "x") == [0, 3, 4, 5]
    assert theirs(folder) == [0, 3, 4, 5]


# -- update --------------------------------------------------------------------------------------------

VALUES: dict[str, list[Any]] = {
    "v": [7.5, 7, None, float("inf"), np.float32(0.5), np.int64(3)],
    "n": [7, 7.0, np.int8(7), True],
    "s": ["new", "", None, b"bytes"],
    "k": ["b", None],
    "l": [[], [1, 2], (3,), np.array([4, 5])],
    "t": [datetime(2024, 1, 1), np.datetime64("2024-01-01", "D"), "2024-01-01T00:00:00"],
    "p": [[1, 2], (3, 4), np.array([5, 6])],
}


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in VALUES.items() for value in values]
)
def test_updates_set_what_matches(name: str, value: Any, portable: bool, uri: str) -> None:
    a = table(uri)
    before = column(a, name)
    a.update({name: value}, "n >= 4", portable=portable)
    expected = (
        {"bytes": "bytes", True: 1}.get(value, value) if isinstance(value, (str, bytes, bool)) else value
    )
    if name == "t":
        expected = datetime(2024, 1, 1)
    expected = value.decode() if isinstance(value, bytes) else expected
    expected = list(expected) if isinstance(expected, (tuple, np.ndarray)) else expected

    for each in (a, tz.open(uri)):
        assert column(each, name)[4:] == [expected, expected]
        assert column(each, name)[:4] == before[:4]
        assert column(each, "x") == [0, 1, 2, 3, 4, 5]
        assert each.count(f"{name} IS NULL") == before.count(None) + (2 if value is None else 0) - (
            before[4:].count(None)
        )
    assert column(tz.open(uri, at=10), name)[:4] == before[:4]


def test_portable_updates_are_seen_by_libtiledb(folder: str) -> None:
    a = table(folder)
    a.update({"n": 70, "s": None, "k": "b"}, "x = 2", portable=True)

    assert theirs(folder, "n") == [0, 1, 70, 3, 4, 5]
    assert column(a, "n") == [0, 1, 70, 3, 4, 5]


@pytest.mark.parametrize("duplicates", [False, True])
def test_updates_follow_one_another(duplicates: bool, uri: str) -> None:
    a = table(uri, allows_duplicates=duplicates)
    a.update({"n": 100}, "n < 2")
    a.update({"n": 200, "s": "x"}, "n = 100 AND x = 1")
    a.update({"v": -1.0}, "v IS NULL")
    a.update({"k": None})

    assert column(a, "n") == [100, 200, 2, 3, 4, 5]
    assert column(a, "s") == ["a", "x", None, "", "e", "f"]
    assert column(a, "v")[2] == -1.0
    assert column(a, "k") == [None] * 6
    assert a.read(["x"], where="n >= 100", order="row-major").column("x").to_pylist() == [0, 1]
    assert a.count("n = 0") == 0
    a.delete("n = 200")
    assert column(a, "x") == [0, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("values", "where", "told"),
    [
        ({}, "x = 1", "an update needs at least one value to set"),
        ({"nope": 1}, "x = 1", "no attribute 'nope'; the schema has 'v', 'n'"),
        ({"x": 1}, "x = 1", "'x' is a dimension: the place of a cell cannot be updated; delete and write"),
        ({"n": None}, "x = 1", "attribute 'n' is not nullable; set a value, not None"),
        ({"n": 1.5}, "x = 1", "'n'.*does not fit INT32"),
        ({"n": 2**40}, "x = 1", "'n'.*does not fit INT32"),
        ({"n": "5"}, "x = 1", "'n'.*does not fit INT32"),
        ({"s": 5}, "x = 1", "'s'.*does not fit STRING_UTF8"),
        ({"k": "zzz"}, "x = 1", "column 'k': 'zzz' is no label of its enumeration"),
        ({"p": [1, 2, 3]}, "x = 1", "'p'.*does not fit 2 INT8"),
        ({"v": 1.0}, "nope = 1", "there is no column 'nope'"),
        ({"v": 1.0}, "x = 'a'", "'x' is INT64 and does not compare with 'a'"),
    ],
)
def test_updates_that_make_no_sense_are_refused(values: Any, where: str, told: str, uri: str) -> None:
    a = table(uri)

    with pytest.raises(tz.InvalidRequestError, match=told) as error:
        a.update(values, where)
    assert "\n" not in str(error.value)
    assert [event.kind for event in a.history()] == ["write", "create"]


# -- upsert --------------------------------------------------------------------------------------------


def rows(a: tz.Array, x: list[int], n: list[int]) -> dict[str, Any]:
    whole = a.read(where="x = 5").to_pydict()
    return {name: values * len(x) for name, values in whole.items()} | {"x": x, "n": n}


def test_upserts_replace_and_add_and_the_last_of_equals_counts(folder: str) -> None:
    a = table(folder)
    a.upsert(rows(a, [7, 1, 7, 1, 7], [1, 2, 3, 4, 5]))

    assert dict(zip(column(a, "x"), column(a, "n"), strict=True)) == {
        0: 0,
        1: 4,
        2: 2,
        3: 3,
        4: 4,
        5: 5,
        7: 5,
    }
    assert theirs(folder, "n") == [0, 4, 2, 3, 4, 5, 5]
    n = len(a.fragments)
    a.upsert({name: [] for name in rows(a, [1], [1])})
    a.upsert(iter(()))
    assert len(a.fragments) == n
    a.upsert([rows(a, [1], [10]), rows(a, [1], [11])])
    assert column(a, "n")[1] == 11
    a.upsert(rows(a, [1], [12]), at=5)
    assert column(a, "n")[1] == 11


def test_an_upsert_of_many_pieces_is_one_commit_in_which_the_last_of_equals_counts(folder: str) -> None:
    a = table(folder)
    pieces = [rows(a, [7, 1, 7], [1, 2, 3]), rows(a, [8, 1, 1], [4, 5, 6]), rows(a, [7, 9], [8, 9])]
    a.upsert(iter(pieces), fragment_size=1)

    wanted = {0: 0, 1: 6, 2: 2, 3: 3, 4: 4, 5: 5, 7: 8, 8: 4, 9: 9}
    for opened in (a, tz.open(folder)):
        assert dict(zip(column(opened, "x"), column(opened, "n"), strict=True)) == wanted
    assert theirs(folder, "n") == list(wanted.values())
    a.consolidate()
    assert dict(zip(column(a, "x"), column(a, "n"), strict=True)) == wanted
    assert theirs(folder, "n") == list(wanted.values())


def test_pieces_of_an_upsert_that_share_no_cell_stay_as_they_are(folder: str) -> None:
    a = table(folder)
    before = len(a.fragments)
    a.upsert(iter([rows(a, [7, 1], [1, 2]), rows(a, [8, 2], [3, 4])]), fragment_size=1)
    made = a.fragments[before:]
    assert [fragment.footer.n_cells(a.schema) for fragment in made] == [2, 2]
    assert len({fragment.name.end_ms for fragment in made}) == 1
    assert theirs(folder, "n") == [0, 2, 4, 3, 4, 5, 1, 3]


@pytest.mark.parametrize("n", [2, 17, 40])
def test_libtiledb_shows_what_counts_however_many_pieces_an_upsert_had(n: int, folder: str) -> None:
    # Beyond 16 fragments it does not tell versions of one instant apart by their names.
    a = table(folder)
    a.upsert((rows(a, [1, 10 + i], [100 + i, i]) for i in range(n)), fragment_size=1)
    assert column(tz.open(folder), "n")[1] == 99 + n
    assert theirs(folder, "n") == [0, 99 + n, 2, 3, 4, 5, *range(n)]
    folders = [entry.name for entry in (Path(folder) / "__fragments").iterdir()]
    assert len(folders) == len(a.fragments)
    assert not a.check(deep=True).findings


def test_an_upsert_with_a_bad_piece_writes_none_of_them(folder: str) -> None:
    a = table(folder)
    before = [fragment.key for fragment in a.fragments]
    with pytest.raises(tz.InvalidRequestError, match="x = 5000 lies outside the domain"):
        a.upsert(iter([rows(a, [1], [9]), rows(a, [5000], [1])]), fragment_size=1)
    assert [fragment.key for fragment in tz.open(folder).fragments] == before
    assert column(a, "n")[1] == 1


def test_an_upsert_whose_pieces_cannot_be_merged_leaves_nothing(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = table(folder)
    before = sorted(entry.name for entry in (Path(folder) / "__fragments").iterdir())
    monkeypatch.setattr("terrazzo.engine.upsert._LEAST", 1)  # a box per tile
    put, calls = consolidate.put_fragment, []

    def failing(*given: Any) -> Any:
        calls.append(given)
        if len(calls) == 2:
            raise OSError("no space left")
        return put(*given)

    monkeypatch.setattr(consolidate, "put_fragment", failing)
    x = list(range(100, 140))
    with pytest.raises(OSError, match="no space left"):
        a.upsert(iter([rows(a, x, x), rows(a, x, x)]), fragment_size=1)
    assert len(calls) == 2
    assert sorted(entry.name for entry in (Path(folder) / "__fragments").iterdir()) == before
    assert column(a, "n") == column(tz.open(folder), "n") == [0, 1, 2, 3, 4, 5]


def test_a_torn_commit_does_not_hinder_an_upsert_of_many_pieces(folder: str) -> None:
    a = table(folder)
    pieces = [rows(a, [7, 1], [1, 2]), rows(a, [8, 1], [3, 4])]
    a.delete("x = 0", at=20)
    (torn,) = (Path(folder) / "__commits").glob("*.del")
    content = torn.read_bytes()
    torn.write_bytes(content[:-5])
    tz.open(folder).upsert(iter(pieces), fragment_size=1)
    torn.write_bytes(content)
    assert column(tz.open(folder), "n") == [4, 2, 3, 4, 5, 1, 3]


def test_upserts_need_coordinates_that_identify_a_cell(uri: str) -> None:
    a = table(uri, allows_duplicates=True)

    with pytest.raises(tz.InvalidRequestError, match="this one allows duplicates: nothing is replaced"):
        a.upsert(rows(a, [1], [1]))
    with pytest.raises(tz.InvalidRequestError, match="x = 5000 lies outside the domain"):
        table(uri + "2").upsert(rows(a, [5000], [1]))


# -- changes and history -------------------------------------------------------------------------------


def feed(found: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in ("_change", "x", "n")) for row in found.to_pylist())


def test_the_change_feed_tells_what_became_of_every_cell(uri: str) -> None:
    a = table(uri)
    a.upsert(rows(a, [1, 8], [100, 8]), at=20)
    a.delete("x = 2", at=30)
    a.update({"n": 300}, "x = 3", at=40)
    a.write(rows(a, [2], [200]), at=50)

    assert feed(a.changes(0, 10)) == [("insert", x, x) for x in range(6)]
    assert feed(a.changes(10, 20)) == [("insert", 8, 8), ("update_after", 1, 100), ("update_before", 1, 1)]
    assert feed(a.changes(20, 30)) == [("delete", 2, 2)]
    assert feed(a.changes(30, 40)) == [("update_after", 3, 300), ("update_before", 3, 3)]
    assert feed(a.changes(20)) == [
        ("update_after", 2, 200), ("update_after", 3, 300), ("update_before", 2, 2), ("update_before", 3, 3),
    ]  # fmt: skip
    assert a.changes(50, 50).num_rows == 0
    assert a.changes(50).schema == a.changes(0).schema
    assert a.changes("1970-01-01T00:00:00.030", datetime(1970, 1, 1, 0, 0, 0, 40_000)).num_rows == 2
    assert a.changes(0).column_names == ["_change", "x", "v", "n", "s", "k", "l", "t", "p"]
    with pytest.raises(tz.InvalidRequestError, match=r"since \(5\) is later than until \(4\)"):
        a.changes(5, 4)


def test_with_duplicates_an_update_is_a_delete_and_an_insert(uri: str) -> None:
    a = table(uri, allows_duplicates=True)
    a.write(rows(a, [1, 1], [1, 1]), at=20)
    a.update({"n": 9}, "x = 3", at=30)

    assert feed(a.changes(10, 20)) == [("insert", 1, 1), ("insert", 1, 1)]
    assert feed(a.changes(20, 30)) == [("delete", 3, 3), ("insert", 3, 9)]


def test_a_dense_array_has_no_change_feed(uri: str) -> None:
    a = tz.create(uri, tz.Schema([tz.Dim("x", "int8", (0, 9))], [tz.Attr("v", "int8")], sparse=False))

    with pytest.raises(tz.InvalidRequestError, match="a dense array has no change feed"):
        a.changes(0)


def test_history_tells_every_commit_in_words(uri: str) -> None:
    a = table(uri)
    a.delete("n > 4 AND s = 'it\\'s'", at=20)
    a.update({"s": None, "n": 5, "k": "b"}, "k = 'a' OR v <= 1.5", at=30)
    a.delete("t >= TIMESTAMP '2024-01-01 12:00:00'", at=40)
    a.meta["a"] = 1
    a.evolve(add=[tz.Attr("w", "int8")], drop=["p"], extend_enum={"kinds": ["c"]})
    told = {event.start_ms: event for event in a.history()}

    assert (told[10].kind, told[10].n_cells, told[10].text) == ("write", 6, "x 0 to 5")
    assert told[10].size > 0
    assert told[20].text == "where n > 4 AND s = 'it\\'s'"
    assert told[30].text == "set s = NULL, n = 5, k = 'b' where k = 'a' OR v <= 1.5"
    assert told[40].text == "where t >= TIMESTAMP '2024-01-01 12:00:00.000'"
    kinds = [event.kind for event in a.history()]
    assert kinds == ["write", "delete", "update", "delete", "create", "metadata", "evolve"]
    assert a.history()[-1].text == "added w, dropped p, extended enumeration kinds"
    assert "1970-01-01 00:00:00.010  write        6 cells" in str(told[10])
    for event in a.history():
        assert "\n" not in str(event)


# -- evolution -----------------------------------------------------------------------------------------


def test_evolution_adds_drops_and_extends_for_both_readers(folder: str) -> None:
    a = table(folder)
    a.evolve(
        add=[tz.Attr("w", "float32", fill=0.5), tz.Attr("c", "uint8", enum="colours", fill=0)],
        add_enum={"colours": ["red"]},
    )
    a.evolve(drop="p")
    a.evolve(drop=iter(["l"]))
    a.evolve(extend_enum={"kinds": ["c", "d"]})
    kept = {name: value for name, value in rows(a, [9], [9]).items() if name not in {"p", "l"}}
    a.write(kept | {"w": [1.5], "c": ["red"], "k": ["d"]})

    assert column(a, "w") == [0.5] * 6 + [1.5]
    assert column(a, "c") == ["red"] * 7
    assert column(a, "k")[-1] == "d"
    with tiledb.open(folder) as other:
        assert other[:]["w"].tolist() == [0.5] * 6 + [1.5]
        assert [other.schema.attr(i).name for i in range(other.schema.nattr)] == [
            "v",
            "n",
            "s",
            "k",
            "t",
            "w",
            "c",
        ]
    assert tz.open(folder, at=10).read(order="row-major").column("p").to_pylist()[0] == [0, 1]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, "nothing to change: give add, drop, extend_enum, add_enum or expand_domain"),
        ({"add": [tz.Attr("v", "int8")]}, "there is a field 'v' already"),
        ({"add": [tz.Attr("x", "int8")]}, "there is a field 'x' already"),
        ({"add": [tz.Attr("w", "int8", enum="nope")]}, "names enumeration 'nope', which is not there"),
        ({"drop": ["nope"]}, "no attribute 'nope'"),
        ({"drop": ["x"]}, "no attribute 'x'"),
        ({"drop": ["v", "n", "s", "k", "l", "t", "p"]}, "an array keeps at least one attribute"),
        ({"drop": ["n"]}, "tests 'n': without it libtiledb could not read the array any more"),
        ({"extend_enum": {"nope": ["a"]}}, "no enumeration 'nope'; the schema has 'kinds'"),
        ({"extend_enum": {"kinds": ["a"]}}, "enumeration 'kinds' has a value twice"),
        (
            {"add_enum": {"kinds": ["a"]}},
            "there is an enumeration 'kinds' already; extend it with extend_enum",
        ),
        ({"expand_domain": {"x": (0, 5)}}, "the array has no current domain"),
        ({"expand_domain": {"nope": (0, 5)}}, "no dimension 'nope'"),
    ],
)
def test_evolution_that_makes_no_sense_is_refused(change: Any, told: str, uri: str) -> None:
    a = table(uri)
    a.delete("n = 5")
    before = a.schema

    with pytest.raises(tz.InvalidRequestError, match=told):
        a.evolve(**change)
    assert tz.open(uri).schema.attrs == before.attrs


def test_the_current_domain_only_grows(uri: str) -> None:
    dims = [tz.Dim("t", "datetime_day", (0, 40_000), 10), tz.Dim("s", "ascii")]
    schema = tz.Schema(dims, [tz.Attr("v", "int8")], current_domain={"t": (10, 20), "s": ("b", "c")})
    a = tz.create(uri, schema)

    for smaller in ({"t": (11, 20)}, {"t": (10, 19)}, {"s": ("b", "bb")}):
        with pytest.raises(tz.InvalidRequestError, match="and can only grow"):
            a.evolve(expand_domain=smaller)
    a.evolve(expand_domain={"t": (np.datetime64("1970-01-05"), np.datetime64("2024-01-01")), "s": ("a", "z")})
    assert a.schema.current_domain == ((4, 19_723), (b"a", b"z"))
    with pytest.raises(tz.InvalidRequestError, match="its domain from 0 to 40000"):
        a.evolve(expand_domain={"t": (0, 50_000)})
