"""Reads of sparse arrays: types, orders, selections, budgets, counts, and what a read costs."""

import itertools
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import terrazzo as tz
from terrazzo.engine import sparse
from terrazzo.storage import open_store
from terrazzo.testing.stores import CountingStore

UNITS = ["YEAR", "MONTH", "WEEK", "DAY", "HR", "MIN", "SEC", "MS", "US", "NS", "PS", "FS", "AS"]
ARROW = {"SEC": "s", "MS": "ms", "US": "us", "NS": "ns"}


def line(uri: str, *attrs: tz.Attr, **options: Any) -> tz.Array:
    return tz.create(uri, tz.Schema([tz.Dim("x", "int64", (0, 10**6), 1000)], attrs, **options))


def test_every_datatype_has_its_arrow_type(uri: str) -> None:
    numbers = [
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float32",
        "float64",
        "bool",
    ]
    attrs = [tz.Attr(name, name) for name in numbers]
    attrs += [tz.Attr(f"dt{unit}", f"datetime_{unit}") for unit in UNITS]
    attrs += [tz.Attr(f"t{unit}", f"time_{unit}") for unit in UNITS[4:]]
    attrs += [tz.Attr("ascii", "ascii"), tz.Attr("utf8", "utf8"), tz.Attr("char", "char"), tz.Attr("blob", "blob"),
              tz.Attr("wkb", "geom_wkb"), tz.Attr("utf16", "string_utf16"), tz.Attr("char3", "char", values_per_cell=3),
              tz.Attr("list", "uint16", var=True), tz.Attr("pair", "float32", values_per_cell=2),
              tz.Attr("days", "datetime_day", var=True), tz.Attr("bits", "bool", values_per_cell=2),
              tz.Attr("label", "uint16", enum="e")]  # fmt: skip
    a = line(uri, *attrs, enums={"e": ["u", "v"]})
    rows: dict[str, Any] = {name: [0, 1] for name in numbers}
    rows |= {f"dt{unit}": [3, 4] for unit in UNITS} | {f"t{unit}": [5, 6] for unit in UNITS[4:]}
    rows |= {"ascii": ["", "a"], "utf8": ["é", ""], "char": ["c", "cc"], "blob": [b"\0", b""], "wkb": [b"w", b""],
             "utf16": [b"a\0", b""], "char3": ["abc", "de"], "list": [[1], []], "pair": [[0.5, 1], [2, 3]],
             "days": [[date(2024, 1, 1)], []], "bits": [[True, False], [False, True]], "label": ["v", "u"]}  # fmt: skip
    a.write({"x": [1, 2], **rows})
    found = a.read(order="row-major")

    for name in numbers:
        expected = pa.float64() if name == "float64" else pa.type_for_alias(name)
        assert found.schema.field(name) == pa.field(name, expected, nullable=False)
        assert found.column(name).to_pylist() == [0, 1]
    for unit in UNITS:
        field = found.schema.field(f"dt{unit}")
        if unit in ARROW:
            assert field.type == pa.timestamp(ARROW[unit])
        elif unit == "DAY":
            assert field.type == pa.date32()
        else:
            assert field.type == pa.int64()
            assert field.metadata == {b"tiledb.datatype": f"DATETIME_{unit}".encode()}
        kind = pa.int32() if unit == "DAY" else pa.int64()
        assert found.column(f"dt{unit}").cast(kind).to_pylist() == [3, 4]
    assert found.column("tSEC").to_pylist() == [timedelta(seconds=5), timedelta(seconds=6)]
    assert found.schema.field("tHR").metadata == {b"tiledb.datatype": b"TIME_HR"}
    kinds = {"ascii": pa.string(), "utf8": pa.string(), "char": pa.binary(), "blob": pa.binary(), "wkb": pa.binary(),
             "utf16": pa.binary(), "char3": pa.binary(3), "list": pa.list_(pa.uint16()),
             "pair": pa.list_(pa.float32(), 2), "days": pa.list_(pa.date32()), "bits": pa.list_(pa.bool_(), 2),
             "label": pa.dictionary(pa.uint16(), pa.string())}  # fmt: skip
    assert {name: found.schema.field(name).type for name in kinds} == kinds
    for name in kinds:
        expected = {"char": [b"c", b"cc"], "char3": [b"abc", b"de\0"]}.get(name, rows[name])
        assert found.column(name).to_pylist() == expected, name


def test_everything_may_be_null(uri: str) -> None:
    values: dict[str, Any] = {
        "int8": 1, "uint64": 2**64 - 1, "float32": 0.5, "bool": True, "datetime_ms": datetime(2024, 1, 1),
        "datetime_day": date(2024, 1, 1), "datetime_hr": 5, "time_us": timedelta(1), "utf8": "é", "ascii": "", "blob": b"\0",
    }  # fmt: skip
    attrs = [tz.Attr(name, name, nullable=True) for name in values]
    attrs += [tz.Attr("list", "int8", var=True, nullable=True), tz.Attr("pair", "int8", values_per_cell=2, nullable=True),
              tz.Attr("char", "char", values_per_cell=2, nullable=True), tz.Attr("label", "int8", enum="e", nullable=True)]  # fmt: skip
    values |= {"list": [1, 2], "pair": [3, 4], "char": b"ab", "label": "u"}
    a = line(uri, *attrs, enums={"e": ["u"]}, capacity=2)
    a.write(
        {"x": range(6), **{name: [None, value, None, value, value, None] for name, value in values.items()}}
    )
    found = a.read(order="row-major")

    for name, value in values.items():
        assert found.column(name).to_pylist() == [None, value, None, value, value, None], name
        assert found.schema.field(name).nullable
        assert a.count(f"`{name}` IS NULL") == 3
        assert a.count(f"`{name}` IS NOT NULL AND x > 2") == 2
    assert a.read(["utf8"], where="x = 0").column(0).to_pylist() == [None]


def cube(uri: str, **options: Any) -> tz.Array:
    dims = [tz.Dim("x", "int16", (-20, 19), 7), tz.Dim("s", "ascii"), tz.Dim("z", "float32", (-1, 1), 0.3)]
    a = tz.create(uri, tz.Schema(dims, [tz.Attr("v", "int32")], capacity=5, **options))
    rng = np.random.default_rng(4)
    cells = sorted({(int(rng.integers(-20, 20)), "ab"[rng.integers(2)] * int(rng.integers(3)),
                     float(np.float32(rng.uniform(-1, 1)))) for _ in range(150)})  # fmt: skip
    shuffled = [cells[i] for i in rng.permutation(len(cells))]
    for part in (shuffled[::2], shuffled[1::2]):
        x, s, z = zip(*part, strict=True)
        a.write({"x": x, "s": s, "z": np.array(z, np.float32), "v": [cells.index(cell) for cell in part]})
    return a


@pytest.mark.parametrize(
    ("cell_order", "tile_order"),
    [*itertools.product(["row-major", "col-major"], repeat=2), ("hilbert", "row-major")],
)
def test_rows_come_in_the_order_asked_for(cell_order: str, tile_order: str, uri: str) -> None:
    a = cube(uri, cell_order=cell_order, tile_order=tile_order)
    rows = [tuple(row.values()) for row in a.read(["x", "s", "z"]).to_pylist()]

    def in_order(order: str) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in a.read(["x", "s", "z"], order=order).to_pylist()]

    assert in_order("row-major") == sorted(rows)
    assert in_order("col-major") == sorted(rows, key=lambda row: row[::-1])
    assert sorted(in_order("global")) == sorted(rows)
    assert a.read(["v"], order="row-major").column("v").to_pylist() == list(range(len(rows)))
    if cell_order != "hilbert":
        tile = -1 if tile_order == "col-major" else 1
        cell = -1 if cell_order == "col-major" else 1
        tiles = {
            row: ((row[0] + 20) // 7, int(np.float32(row[2] + 1) / np.float32(0.3)))[::tile] for row in rows
        }
        assert in_order("global") == sorted(rows, key=lambda row: (tiles[row], row[::cell]))
    with pytest.raises(
        tz.InvalidRequestError, match="order='sideways'; there are row-major, col-major, global"
    ):
        a.read(order="sideways")


def test_columns_come_as_they_are_asked_for(uri: str) -> None:
    a = cube(uri)

    assert a.read(["v", "x"]).column_names == ["v", "x"]
    assert a.read(("s",)).column_names == ["s"]
    assert a.read().column_names == ["x", "s", "z", "v"]
    assert a.read(["v"], where="x > 0 AND s = 'a'").column_names == ["v"]
    for columns, told in [
        (["nope"], "no field 'nope'; the schema has 'x', 's', 'z', 'v'"),
        ("v", r"columns='v'; a list of names is expected: \['v'\]"),
        ([], r"columns=\[\] asks for nothing; use count\(\)"),
        (["v", "v"], r"columns=\['v', 'v'\] names a column twice"),
    ]:
        for ask in (a.read, a.scan, a.explain):
            with pytest.raises(tz.InvalidRequestError, match=told):
                ask(columns)


@pytest.mark.parametrize(
    "selection", [{"where": "v < 0"}, {"where": "FALSE"}, {"region": {"x": []}}, {"region": {"s": "nope"}}]
)
@pytest.mark.parametrize("order", [None, "row-major", "global"])
def test_results_of_no_rows_keep_their_schema(selection: Any, order: Any, uri: str) -> None:
    a = cube(uri)

    assert a.read(**selection, order=order).schema == a.read().schema
    assert a.read(**selection, order=order).num_rows == 0
    reader = a.scan(["v"], **selection)
    assert reader.schema == a.read(["v"]).schema
    assert list(reader) == []
    assert a.count(**selection) == 0


def test_an_array_without_cells_reads_as_nothing(uri: str) -> None:
    a = line(uri, tz.Attr("v", "int8"))

    assert a.read().num_rows == 0
    assert a.count() == a.count("v > 0") == a.count(region={"x": (1, 2)}) == 0
    assert a.nonempty_domain() is None
    assert a.fragments == ()
    assert list(a.scan()) == []
    assert a.explain().n_tasks == 0
    a.delete("v > 0")
    a.update({"v": 1}, "v > 0")
    assert a.read(order="global").num_rows == 0


def test_one_cell_is_enough(uri: str) -> None:
    a = line(uri, tz.Attr("v", "utf8", nullable=True))
    a.write({"x": [7], "v": [None]})

    assert a.read().to_pydict() == {"x": [7], "v": [None]}
    assert a.nonempty_domain() == {"x": (7, 7)}
    assert a.count() == 1


def test_cells_may_be_large(uri: str) -> None:
    text = "é" * 3_000_000
    a = line(uri, tz.Attr("v", "utf8"), tz.Attr("l", "int64", var=True), capacity=2)
    a.write(
        {"x": [1, 2, 3], "v": ["", text, "a"], "l": pa.array([[], range(500_000), [1]], pa.list_(pa.int64()))}
    )
    found = a.read(where="x >= 2", order="row-major")

    assert found.column("v").to_pylist() == [text, "a"]
    assert len(found.column("l")[0]) == 500_000


def test_results_too_large_for_one_batch_come_in_several(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    a = line(uri, tz.Attr("v", "utf8"), tz.Attr("n", "int8"))
    words = ["x" * (i % 50) for i in range(200)]
    a.write({"x": range(200), "v": words, "n": [1] * 200})
    monkeypatch.setattr(sparse, "_MOST", 300)

    for order in (None, "row-major"):
        table = a.read(order=order)
        assert table.column("v").to_pylist() == words
        assert table.column("v").num_chunks > 10
    assert pa.Table.from_batches(a.scan()).column("v").to_pylist() == words


def test_scans_are_readers_that_keep_to_their_memory(uri: str) -> None:
    a = line(uri, tz.Attr("v", "float64"), tz.Attr("s", "utf8"), capacity=1000)
    n = 300_000
    for part in range(3):
        x = np.arange(part, n, 3)
        a.write({"x": x, "v": x * 0.5, "s": [str(i) for i in x.tolist()]})
    reader = a.scan(["x", "v"], memory="8MiB")

    assert isinstance(reader, pa.RecordBatchReader)
    batches = list(reader)
    assert len(batches) > 3
    assert max(batch.nbytes for batch in batches) < 4 << 20
    table = pa.Table.from_batches(batches)
    assert table.num_rows == n
    assert (np.sort(table.column("x").to_numpy()) == np.arange(n)).all()
    assert sum(batch.num_rows for batch in a.scan(where="v < 50", memory=1 << 20)) == 100
    for memory in (0, "lots", None, -5):
        with pytest.raises(
            tz.InvalidRequestError, match=r"memory=.* is no size; write bytes, or text such as '256MiB'"
        ):
            a.scan(memory=memory)


def test_what_is_scanned_can_be_written(uri: str) -> None:
    a = cube(uri)
    b = tz.create(uri + "2", a.schema)
    b.write(a.scan(memory="1MiB"))

    assert b.read(order="row-major").equals(a.read(order="row-major"))


def test_newer_versions_hide_older_ones_and_duplicates_do_not(uri: str) -> None:
    a, b = line(uri, tz.Attr("v", "int8")), line(uri + "2", tz.Attr("v", "int8"), allows_duplicates=True)
    for each in (a, b):
        each.write({"x": [1, 2, 3], "v": [1, 1, 1]})
        each.write({"x": [2, 3, 4], "v": [2, 2, 2]})
        each.write({"x": [3], "v": [3]})
    b.write({"x": [9, 9], "v": [4, 4]})

    assert a.read(order="row-major").to_pydict() == {"x": [1, 2, 3, 4], "v": [1, 2, 3, 2]}
    assert a.count() == 4
    assert a.read(where="v = 1").column("x").to_pylist() == [1]
    assert a.read(["x"], region={"x": (2, 3)}, where="v = 2").column("x").to_pylist() == [2]
    assert sorted(b.read().column("x").to_pylist()) == [1, 2, 2, 3, 3, 3, 4, 9, 9]
    assert b.count() == 9


def counting(uri: str) -> tuple[tz.Array, CountingStore]:
    store = CountingStore(open_store(uri))
    return tz.Array(store, None), store


def test_counting_takes_nothing_but_footers(uri: str) -> None:
    a = line(uri, tz.Attr("v", "int8"), capacity=10)
    a.write({"x": range(100), "v": [1] * 100})
    a.write({"x": range(1000, 1100), "v": [1] * 100})
    a, store = counting(uri)
    store.reset()

    assert a.count() == 200
    assert not any(request.key.endswith(("a0.tdb", "d0.tdb")) for request in store.requests)


def test_statistics_and_regions_leave_tiles_out(uri: str) -> None:
    a = line(uri, tz.Attr("v", "int64"), tz.Attr("w", "int64"), capacity=100)
    a.write({"x": range(10_000), "v": range(10_000), "w": [1] * 10_000})
    told = a.explain(["v"], where="v >= 9950")

    assert (told.fragments[0].n_tiles, told.fragments[0].n_read, told.fragments[0].ruled_out) == (100, 1, 99)
    assert told.n_cells == 100
    assert "1 of 100 tiles (99 ruled out by statistics)" in str(told)
    told = a.explain(["v"], region={"x": (0, 150)})
    assert (told.fragments[0].n_read, told.fragments[0].outside_region) == (2, 98)
    assert "98 outside the region" in str(told)
    told = a.explain()
    assert told.columns == ("x", "v", "w")
    assert told.stored_bytes > 0
    assert a.explain(where="v < 0").n_tasks == 0
    a.delete("v = 3")
    assert "1 deletes or updates are applied" in str(a.explain())
    a.write({"x": [3], "v": [3], "w": [1]})
    assert "versions of a cell in several fragments are resolved" in str(a.explain())
    _, store = counting(uri)
    store.reset()
    tz.Array(store, None).explain(where="v > 5")
    assert not any(
        request.key.endswith(".tdb") and "__fragment_metadata" not in request.key
        for request in store.requests
    )


def test_fragments_that_lack_an_attribute_show_its_fill_value(uri: str) -> None:
    for duplicates in (False, True):
        a = line(f"{uri}{duplicates}", tz.Attr("v", "int8"), allows_duplicates=duplicates)
        a.write({"x": [1, 2], "v": [1, 2]})
        a.evolve(add=[tz.Attr("w", "int16", fill=-7), tz.Attr("s", "utf8", nullable=True)])
        a.write({"x": [3], "v": [3], "w": [3], "s": ["c"]})

        assert a.read(order="row-major").to_pydict() == {
            "x": [1, 2, 3], "v": [1, 2, 3], "w": [-7, -7, 3], "s": [None, None, "c"],
        }  # fmt: skip
        assert sorted(a.read(["w"]).column("w").to_pylist()) == [-7, -7, 3]
        assert sorted(a.read(["v"], where="w = -7").column("v").to_pylist()) == [1, 2]
        assert a.count("s IS NULL") == 2
        assert a.read(["s"], region={"x": (2, 3)}, order="row-major").column("s").to_pylist() == [None, "c"]
