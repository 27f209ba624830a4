"""What a check finds, and that it finds nothing where nothing is wrong."""

import random
from pathlib import Path

import numpy as np
import pytest
import tiledb

import terrazzo as tz
from terrazzo.engine.clock import new_name
from terrazzo.engine.columns import Column
from terrazzo.engine.commit import commit_fragments, put_fragment
from terrazzo.engine.deep import check_cells
from terrazzo.engine.encode import encode_sparse
from terrazzo.engine.survey import survey
from terrazzo.storage import open_store

CHECKED = [tz.filters.Zstd(1), tz.filters.Sha256()]
SCHEMA = tz.Schema(
    dims=[tz.Dim("x", "int64", domain=(0, 999), tile=100)],
    attrs=[
        tz.Attr("v", "int64", filters=CHECKED),
        tz.Attr("f", "float64", nullable=True),
        tz.Attr("t", "ascii"),
        tz.Attr("kind", "int8", enum="kinds"),
        tz.Attr("gl", "int32", var=True),
    ],
    enums={"kinds": ["a", "b"]},
    sparse=True,
    capacity=4,
)


def _data(n: int, start: int = 0) -> dict[str, list[object]]:
    return {
        "x": list(range(start, start + n)),
        "v": [i * 3 for i in range(n)],
        "f": [None if i % 3 == 0 else i / 2 for i in range(n)],
        "t": [f"text {i}" for i in range(n)],
        "kind": ["a" if i % 2 else "b" for i in range(n)],
        "gl": [list(range(i % 4)) for i in range(n)],
    }


def _array(uri: str) -> tz.Array:
    a = tz.create(uri, SCHEMA, at=1)
    a.write(_data(10), at=10)
    a.write(_data(7, 5), at=20)
    a.delete("v = 3", at=30)
    return a


def _problems(report: object) -> str:
    return str(report)


def test_a_sound_array_has_nothing_to_report_through_all_its_life(uri: str) -> None:
    a = _array(uri)
    a.meta["unit"] = "K"
    assert a.check(deep=True).findings == ()
    a.consolidate()
    assert a.check(deep=True).findings == ()
    a.consolidate_commits()
    a.consolidate_fragment_metadata()
    a.evolve(add=[tz.Attr("w", "int32")], extend_enum={"kinds": ["c"]})
    a.write({**_data(3, 500), "w": [1, 2, 3]})
    assert a.check(deep=True).findings == ()
    a.vacuum(retain=0)

    report = a.check(deep=True)
    assert report.ok
    assert report.findings == ()
    assert "nothing to report" in str(report)


def test_arrays_that_libtiledb_wrote_have_nothing_to_report(folder: str) -> None:
    dims = [tiledb.Dim("x", (0, 999), 100, dtype=np.int64), tiledb.Dim("s", dtype="ascii")]
    attrs = [
        tiledb.Attr("v", dtype=np.float32),
        tiledb.Attr("t", dtype="ascii", var=True),
        tiledb.Attr("i", dtype=np.int8),
    ]
    schema = tiledb.ArraySchema(tiledb.Domain(*dims), attrs, sparse=True, capacity=5, cell_order="hilbert")
    tiledb.Array.create(folder, schema)
    numbers = np.random.default_rng(1)
    for _ in range(3):
        n = 40
        with tiledb.open(folder, "w") as array:
            x, s = numbers.permutation(999)[:n], [f"s{i}" for i in numbers.integers(0, 99, n)]
            values = numbers.normal(size=n).astype(np.float32)
            values[3] = np.nan
            texts = np.array([f"t{i}" * (i % 5) for i in range(n)])
            array[x, s] = {"v": values, "t": texts, "i": numbers.integers(-128, 127, n).astype(np.int8)}
    with tiledb.open(folder, "d") as array:
        array.query(cond="i > 100").submit()
    assert tz.check(folder, deep=True).findings == ()
    tiledb.consolidate(folder)

    assert tz.check(folder, deep=True).findings == ()


def test_pending_updates_and_ties_are_told_because_libtiledb_reads_them_otherwise(uri: str) -> None:
    a = _array(uri)
    a.update({"v": 0}, "x = 7", at=40)
    a.write(_data(2, 6), at=20)
    report = a.check()

    assert report.ok
    assert [("deleted" in f.problem, "depends on the reader" in f.problem) for f in report.of("warning")] == [
        (True, False),
        (False, True),
    ]
    a.consolidate_commits()
    a.vacuum(retain=0)
    assert "holds updates" in _problems(a.check())


def test_a_dropped_attribute_that_a_delete_tests_is_told(uri: str) -> None:
    a = _array(uri)
    a.evolve(drop=["v"], force=True)

    assert "no longer has" in _problems(a.check())


def test_leftovers_are_notes(uri: str) -> None:
    _array(uri)
    store = open_store(uri)
    store.put("__fragments/__50_50_0123456789abcdef0123456789abcdef_22/a0.tdb", b"half")
    store.put("__commits/later.tmp", b"x")
    report = tz.check(uri)

    assert report.ok
    assert [f.severity for f in report.findings] == ["note", "note"]
    assert "never committed" in _problems(report)


def test_missing_and_short_data_files_are_told_by_name(folder: str) -> None:
    a = _array(folder)
    first, second = (Path(folder) / fragment.key for fragment in a.fragments)
    (first / "a0.tdb").unlink()
    whole = (second / "d0.tdb").read_bytes()
    (second / "d0.tdb").write_bytes(whole[:-1])

    told = {f.key: f.problem for f in tz.check(folder).of("error")}
    assert told == {
        f"{a.fragments[0].key}/a0.tdb": "is missing",
        f"{a.fragments[1].key}/d0.tdb": f"has {len(whole) - 1} bytes of {len(whole)}",
    }
    assert not tz.check(folder, deep=True).ok


def test_a_damaged_tile_is_found_by_the_deep_check_alone(folder: str) -> None:
    a = _array(folder)
    file = Path(folder) / a.fragments[0].key / "a0.tdb"
    stored = bytearray(file.read_bytes())
    stored[-3] ^= 1
    file.write_bytes(bytes(stored))

    assert tz.check(folder).ok
    (error,) = tz.check(folder, deep=True).of("error")
    assert error.key == f"{a.fragments[0].key}/a0.tdb"
    assert "tile 2 of 'v'" in error.problem


def test_an_enumeration_that_is_gone_or_another_is_told(folder: str) -> None:
    _array(folder)
    (file,) = Path(folder, "__schema", "__enumerations").iterdir()
    file.unlink()

    (error,) = tz.check(folder).of("error")
    assert error.key == f"__schema/__enumerations/{file.name}"


def _columns(x: list[int], v: list[int] | None = None, kind: list[int] | None = None) -> dict[str, Column]:
    n = len(x)
    return {
        "x": Column(np.array(x, np.int64)),
        "v": Column(np.array(range(n) if v is None else v, np.int64)),
        "f": Column(np.zeros(n), None, np.ones(n, bool)),
        "t": Column(np.full(n, 65, np.uint8), np.arange(n + 1)),
        "kind": Column(np.array([0] * n if kind is None else kind, np.int8)),
        "gl": Column(np.zeros(n * 4, np.uint8), np.arange(n + 1) * 4),
    }


def _write(a: tz.Array, columns: dict[str, Column]) -> str:
    snapshot = a._view.snapshot
    encoded = encode_sparse(new_name(50), a.schema, snapshot.schema_name, columns)
    put_fragment(a._store, encoded)
    commit_fragments(a._store, [encoded.fragment.name])
    return encoded.fragment.key


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (_columns([1, 2, 3, 9, 8]), "not in global order"),
        (_columns([1, 2, 3, 4, 4]), "two cells at the same coordinates"),
        (_columns([1, 2, 3, 4, 5], kind=[0, 1, 1, 0, 2]), "index 2 of an enumeration of 2 labels"),
    ],
)
def test_cells_that_break_the_rules_of_the_schema_are_found(
    uri: str, columns: dict[str, Column], problem: str
) -> None:
    a = tz.create(uri, SCHEMA, at=1)
    _write(a, columns)

    assert tz.check(uri).ok
    assert problem in _problems(tz.check(uri, deep=True))
    found: list[object] = []
    for size in (1, 1 << 30):  # a tile at a time, and all at once
        store = open_store(uri)
        told, n_cells = check_cells(store, None, survey(store, None), size)
        found.append(told)
        assert n_cells == 5
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("file", "problem"),
    [("a0.tdb", "minimum or maximum of 'v' in tile 1"), ("d0.tdb", "'x' leaves the box of tile 1")],
)
def test_statistics_and_boxes_that_are_not_those_of_the_cells_are_found(
    uri: str, file: str, problem: str
) -> None:
    a = tz.create(uri, SCHEMA, at=1)
    key = _write(a, _columns([1, 2, 3, 4, 5], v=[1, 2, 3, 4, 5]))
    other = _write(a, _columns([1, 2, 3, 4, 6], v=[1, 2, 3, 4, 6]))
    store = open_store(uri)
    store.put(f"{key}/{file}", store.get(f"{other}/{file}"))

    assert tz.check(uri).ok
    assert problem in _problems(tz.check(uri, deep=True))


def test_no_damage_makes_a_check_raise(uri: str) -> None:
    a = _array(uri)
    a.consolidate()
    a.meta["unit"] = "K"
    a.consolidate_fragment_metadata()
    store = open_store(uri)
    chance = random.Random(7)
    for entry in list(store.list_recursive()):
        whole = store.get(entry.key)
        for length in {0, len(whole) // 2, max(len(whole) - 1, 0)}:
            store.put(entry.key, whole[:length])
            tz.check(uri, deep=True)
        for _ in range(3 if whole else 0):
            flipped = bytearray(whole)
            flipped[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
            store.put(entry.key, bytes(flipped))
            tz.check(uri, deep=True)
        store.delete([entry.key])
        assert isinstance(str(tz.check(uri, deep=True)), str)
        store.put(entry.key, whole)

    assert tz.check(uri, deep=True).findings == ()


def test_where_there_is_no_array_the_check_says_so(uri: str) -> None:
    with pytest.raises(tz.ArrayNotFoundError):
        tz.check(uri)
