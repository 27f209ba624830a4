"""Dense arrays as numpy users know them: slices, blocks, and reads beside libtiledb's."""

import itertools
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import tiledb

import terrazzo as tz

ORDERS = list(itertools.product(["row-major", "col-major"], repeat=2))


def matrix(uri: str, *attrs: tz.Attr, **options: Any) -> tz.Array:
    """-3 to 6 by 10 to 16, in tiles that do not divide it."""
    dims = [tz.Dim("x", "int32", (-3, 6), 4), tz.Dim("y", "int32", (10, 16), 3)]
    return tz.create(uri, tz.Schema(dims, attrs or [tz.Attr("v", "int64", fill=-1)], sparse=False, **options))


BLOCK = np.arange(70).reshape(10, 7)


@pytest.mark.parametrize(("cell_order", "tile_order"), ORDERS)
def test_slices_are_half_open_in_coordinates_of_the_domain(
    cell_order: str, tile_order: str, uri: str
) -> None:
    a = matrix(uri, cell_order=cell_order, tile_order=tile_order)
    a[...] = BLOCK

    for index, place in [
        (..., np.s_[:, :]),
        (np.s_[:], np.s_[:, :]),
        (np.s_[:, :], np.s_[:, :]),
        (np.s_[-3:7, 10:17], np.s_[:, :]),
        (np.s_[-1:2, 11:13], np.s_[2:5, 1:3]),
        (np.s_[:0], np.s_[:3]),
        (np.s_[..., 15:], np.s_[:, 5:]),
        (np.s_[0, ...], np.s_[3]),
        (0, np.s_[3]),
        (np.s_[:, 12], np.s_[:, 2]),
        (np.s_[np.int8(2) : np.int64(3), 10], np.s_[5:6, 0]),
        (np.s_[-3, 16], np.s_[0, 6]),
        (np.s_[-3, 16, ...], np.s_[0, 6]),
    ]:
        found = a[index]
        np.testing.assert_array_equal(found, BLOCK[place])
        assert np.shape(found) == np.shape(BLOCK[place]), index
    assert type(a[-3, 16]) is np.int64


@pytest.mark.parametrize(("cell_order", "tile_order"), ORDERS)
def test_boxes_written_anywhere_lie_over_one_another_for_both_readers(
    cell_order: str, tile_order: str, folder: str
) -> None:
    a = matrix(folder, cell_order=cell_order, tile_order=tile_order)
    expected = np.full((10, 7), -1)
    rng = np.random.default_rng(0)
    for _ in range(12):
        x, y = np.sort(rng.integers(0, 11, 2)), np.sort(rng.integers(0, 8, 2))
        if x[0] == x[1] or y[0] == y[1]:
            continue
        block = rng.integers(0, 1000, (x[1] - x[0], y[1] - y[0]))
        a[x[0] - 3 : x[1] - 3, y[0] + 10 : y[1] + 10] = block
        expected[x[0] : x[1], y[0] : y[1]] = block

    np.testing.assert_array_equal(a[...], expected)
    np.testing.assert_array_equal(tz.open(folder)[...], expected)
    with tiledb.open(folder) as other:
        np.testing.assert_array_equal(other[:]["v"], expected)


@pytest.mark.parametrize(("cell_order", "tile_order"), ORDERS)
def test_boxes_written_by_libtiledb_read_the_same(cell_order: str, tile_order: str, folder: str) -> None:
    dims = [tz.Dim("x", "int32", (0, 9), 4), tz.Dim("y", "int32", (0, 6), 3)]
    options = {"sparse": False, "cell_order": cell_order, "tile_order": tile_order}
    tz.create(folder, tz.Schema(dims, [tz.Attr("v", "int64")], **options))
    with tiledb.open(folder, "w") as other:
        other[2:8, 1:6] = BLOCK[2:8, 1:6]
    with tiledb.open(folder, "w") as other:
        other[:4, :] = -BLOCK[:4]
    with tiledb.open(folder) as other:
        expected = other[:]["v"]

    np.testing.assert_array_equal(tz.open(folder)[...], expected)


def every_attribute() -> list[tz.Attr]:
    return [
        tz.Attr("i", "int8"),
        tz.Attr("f", "float32", nullable=True),
        tz.Attr("s", "utf8", nullable=True),
        tz.Attr("l", "int16", var=True),
        tz.Attr("p", "float64", values_per_cell=2),
        tz.Attr("t", "datetime_ms"),
        tz.Attr("h", "datetime_hr"),
        tz.Attr("b", "bool", nullable=True),
        tz.Attr("k", "uint8", enum="kinds", nullable=True),
        tz.Attr("c", "char", values_per_cell=2),
        tz.Attr("r", "blob"),
    ]


def every_block(n: int) -> dict[str, Any]:
    """n by 2 cells of everything."""
    count = np.arange(2 * n)
    return {
        "i": count.reshape(n, 2),
        "f": np.ma.MaskedArray(count * 0.5, count % 3 == 0).reshape(n, 2),
        "s": np.array([None if c % 4 == 0 else "é" * c for c in count], object).reshape(n, 2),
        "l": [[[r] * r, []] for r in range(n)],
        "p": np.arange(4.0 * n).reshape(n, 2, 2),
        "t": (count + np.datetime64("2024-01-01", "ms")).reshape(n, 2),
        "h": (count + np.datetime64("2024-01-01", "h")).reshape(n, 2),
        "b": np.ma.MaskedArray(count % 2 == 0, count % 5 == 0).reshape(n, 2),
        "k": np.array(["a" if c % 2 else None for c in count], object).reshape(n, 2),
        "c": np.array([f"{c:02}" for c in count]).reshape(n, 2),
        "r": np.array([bytes([c]) * c for c in count], object).reshape(n, 2),
    }


@pytest.mark.parametrize("order", ["row-major", "col-major"])
def test_attributes_of_every_kind_come_back_by_slice_and_by_table(order: str, uri: str) -> None:
    dims = [tz.Dim("x", "int64", (0, 9), 3), tz.Dim("y", "int64", (0, 3), 3)]
    schema = tz.Schema(dims, every_attribute(), enums={"kinds": ["a", "b"]}, sparse=False, cell_order=order)
    a = tz.create(uri, schema)
    blocks = every_block(4)
    a[2:6, 1:3] = blocks
    found = a[2:6, 1:3]

    assert list(found) == [attr.name for attr in schema.attrs]
    np.testing.assert_array_equal(found["i"], blocks["i"])
    for name in ("f", "b"):
        np.testing.assert_array_equal(found[name].mask, blocks[name].mask)
        np.testing.assert_array_equal(found[name].compressed(), blocks[name].compressed())
    assert found["s"].mask.tolist() == [[True, False]] * 1 + [[False, False], [True, False], [False, False]]
    assert found["s"][1, 0] == "éé"
    assert found["l"].tolist() == [[[r] * r, []] for r in range(4)]
    np.testing.assert_array_equal(found["p"], blocks["p"])
    np.testing.assert_array_equal(found["t"], blocks["t"])
    np.testing.assert_array_equal(found["h"], blocks["h"])
    assert found["h"].dtype == np.dtype("M8[h]")
    assert found["k"].tolist() == [[None, "a"]] * 4
    assert found["c"].tolist() == [[c.encode() for c in row] for row in blocks["c"].tolist()]
    assert found["r"].tolist() == blocks["r"].tolist()

    table = a.read(region={"x": (2, 5), "y": (1, 2)})
    assert table.column("x").to_pylist() == [2, 2, 3, 3, 4, 4, 5, 5]
    assert table.column("s").to_pylist() == blocks["s"].ravel().tolist()
    assert table.column("l").to_pylist() == [[], [], [1], [], [2, 2], [], [3, 3, 3], []]
    assert table.column("f").to_pylist() == [None, 0.5, 1.0, None, 2.0, 2.5, None, 3.5]
    assert table.column("k").to_pylist() == [None, "a"] * 4
    untouched = a.read(region={"x": (9, 9), "y": (3, 3)}).to_pylist()[0]
    assert untouched["i"] == -128
    assert [untouched[name] for name in "fsbkt"] == [None] * 5
    assert untouched["l"] == [-32768]


def test_what_was_read_can_be_written(uri: str) -> None:
    a = matrix(uri)
    a[...] = BLOCK
    b = matrix(uri + "2")
    b.write(a.read(order="col-major"))
    c = matrix(uri + "3")
    c.write(a.read(region={"x": (0, 2), "y": (11, 12)}).to_pandas())

    np.testing.assert_array_equal(b[...], BLOCK)
    np.testing.assert_array_equal(c[0:3, 11:13], BLOCK[3:6, 1:3])
    assert (c[:0] == -1).all()
    with pytest.raises(tz.InvalidRequestError, match="2 cells do not fill the box of 2 × 2 that they span"):
        b.write({"x": [0, 1], "y": [10, 11], "v": [1, 2]})
    with pytest.raises(tz.InvalidRequestError, match="4 cells do not fill the box of 2 × 2 that they span"):
        b.write({"x": [0, 0, 1, 1], "y": [10, 10, 11, 11], "v": [1, 2, 3, 4]})
    with pytest.raises(tz.InvalidRequestError, match="'x' goes from -3 to 6; 7 lies outside"):
        b.write({"x": [7], "y": [10], "v": [1]})
    with pytest.raises(tz.InvalidRequestError, match="there are no cells to write"):
        b.write({"x": [], "y": [], "v": []})


ONE_VALUE = [5, 5.0, np.int8(5), np.array(5), [[5]], np.array([[5]])]


@pytest.mark.parametrize("value", ONE_VALUE)
def test_one_value_fills_a_box_or_a_cell(value: Any, uri: str) -> None:
    a = matrix(uri)
    a[0, 10] = value
    if np.ndim(value) == 0:
        a[2:4, 11:13] = value

        assert a.count("v = 5") == 5
    assert a[0, 10] == 5


def test_one_value_of_any_kind_fills_a_box(uri: str) -> None:
    a = matrix(
        uri,
        tz.Attr("s", "utf8", nullable=True),
        tz.Attr("t", "datetime_day"),
        tz.Attr("p", "int8", values_per_cell=2),
    )
    a[0:2, 10:12] = {"s": "a", "t": np.datetime64("2024-01-01"), "p": [1, 2]}
    a[3, 10] = {"s": None, "t": np.datetime64("2024-01-02"), "p": np.array([3, 4])}

    assert a[0:2, 10:12]["s"].tolist() == [["a", "a"], ["a", "a"]]
    assert a[0:2, 10:12]["p"].tolist() == [[[1, 2]] * 2] * 2
    assert (a[0:2, 10:12]["t"] == np.datetime64("2024-01-01")).all()
    assert a[3, 10]["s"] is np.ma.masked
    assert a[3, 10]["p"].tolist() == [3, 4]


def test_blocks_may_be_lists_arrow_arrays_and_tables(uri: str) -> None:
    a = matrix(uri, tz.Attr("v", "int64", nullable=True))
    box = {"x": (0, 1), "y": (10, 11)}

    for data in (
        [[1, 2], [3, 4]],
        {"v": [[1, 2], [3, 4]]},
        {"v": np.array([[1, 2], [3, 4]], ">i2")},
        {"v": pa.array([1, 2, 3, 4])},
        pa.table({"v": [1, 2, 3, 4]}),
        pa.table({"v": [1, 2, 3, 4]}).to_batches(max_chunksize=1),
        pa.table({"v": [1, 2, 3, 4]}).to_pandas(),
        pa.array([1, 2, 3, 4]),
        pd.Series([1, 2, 3, 4]),
        pl.Series([1, 2, 3, 4]),
        {"v": pd.Series([1, 2, 3, 4], dtype="Int64")},
    ):
        a.write(data, region=box)
        assert a[0:2, 10:12].tolist() == [[1, 2], [3, 4]]
        a[...] = 0
    for kind in (pa.array, pl.Series, lambda values: pd.Series(values, dtype="Int64")):
        a.write({"v": kind([1, None, 2**60 + 1, 4])}, region=box)
    assert a[0:2, 10:12].tolist() == [[1, None], [2**60 + 1, 4]]


def test_a_region_of_a_write_may_be_open(uri: str) -> None:
    a = matrix(uri)
    a.write({"v": np.arange(14)}, region={"x": (5, None)})
    a.write({"v": 7}, region={"x": (None, -3), "y": 16})

    assert a[5:].tolist() == np.arange(14).reshape(2, 7).tolist()
    assert a[-3, 16] == 7
    assert a[-3, 15] == -1


@pytest.mark.parametrize(
    ("index", "told"),
    [
        (np.s_[0:100], "'x' goes from -3 to 6; 0 to 99 lies outside"),
        (np.s_[-4], "'x' goes from -3 to 6; -4 lies outside"),
        (np.s_[:, 0:11], "'y' goes from 10 to 16; 0 to 10 lies outside"),
        (np.s_[2:2], "2:2 selects nothing of 'x'"),
        (np.s_[4:2], "4:2 selects nothing of 'x'"),
        (np.s_[::2], "slices of 'x' have no step"),
        (np.s_[0, 10, 3], "3 indices for an array of 2 dimensions"),
        (np.s_[..., ...], "indices for an array of 2 dimensions"),
        (np.s_[0.5], "a coordinate of 'x' is 0.5; INT32 takes whole numbers"),
        (np.s_["a"], "a coordinate of 'x' is 'a'"),
        (np.s_[[1, 2]], "a coordinate of 'x' is "),
        (None, "a coordinate of 'x' is None"),
    ],
)
def test_an_index_that_is_none_is_refused(index: Any, told: str, uri: str) -> None:
    a = matrix(uri)

    with pytest.raises(tz.InvalidRequestError, match=told):
        a[index]
    with pytest.raises(tz.InvalidRequestError, match=told):
        a[index] = 1
    assert not tz.open(uri).fragments


@pytest.mark.parametrize(
    ("data", "region", "told"),
    [
        (np.zeros((3, 3)), {"x": (0, 1), "y": (10, 11)}, r"'v': a block of \(3, 3\) for a box of \(2, 2\)"),
        ({"v": np.zeros(3)}, None, r"'v': a block of \(3,\) for a box of \(10, 7\)"),
        ({"w": np.zeros((10, 7))}, None, "the data lack 'v'; they have 'w'"),
        ({"v": BLOCK, "w": BLOCK.ravel()}, None, "the array has no 'w'; it has 'v'"),
        ({"v": BLOCK + 0.5}, None, "column 'v': double does not fit INT64"),
        ({"v": np.ma.MaskedArray(BLOCK, BLOCK == 3)}, None, "attribute 'v' is not nullable, but row 3 is null"),
        ({"v": pa.array([1, 2])}, {"x": 0, "y": (10, 12)}, "column 'v' has 2 cells; the region holds 3"),
        ({"v": 1}, {"x": [(0, 1), (3, 4)]}, "a dense write fills one box: give one range of 'x', not 2"),
        ({"v": 1}, {"x": []}, "a dense write fills one box: give one range of 'x', not 0"),
        ({"v": 1}, {"x": (5, 9)}, "'x' goes from -3 to 6; 5 to 9 lies outside"),
        ({"v": 1}, {"x": (None, 9)}, "'x' goes from -3 to 6; -3 to 9 lies outside"),
        ({"v": 1}, {"z": 1}, "no dimension 'z'"),
        ("a", None, "string does not fit INT64"),
    ],
)  # fmt: skip
def test_a_block_that_does_not_fit_is_refused(data: Any, region: Any, told: str, folder: str) -> None:
    a = matrix(folder)
    before = sorted(Path(folder).rglob("*"))

    with pytest.raises(tz.InvalidRequestError, match=told):
        a.write(data, region=region)
    assert sorted(Path(folder).rglob("*")) == before


def test_sparse_arrays_are_not_sliced_and_take_no_region(uri: str) -> None:
    a = tz.create(uri, tz.Schema([tz.Dim("x", "int8", (0, 9))], [tz.Attr("v", "int8")]))

    with pytest.raises(tz.InvalidRequestError, match="a sparse array is not sliced; use read"):
        a[1:2]
    with pytest.raises(tz.InvalidRequestError, match="region is for dense arrays"):
        a.write({"x": [1], "v": [1]}, region={"x": (1, 1)})
    with pytest.raises(tz.InvalidRequestError, match="a dense array has a value in every cell"):
        matrix(uri + "2").delete("v = 1")
    with pytest.raises(tz.InvalidRequestError, match="this one is dense: write"):
        matrix(uri + "3").upsert({"v": 1})


@pytest.mark.parametrize("order", ["row-major", "col-major", "global"])
@pytest.mark.parametrize("columns", [None, ["v"], ["y", "v"]])
@pytest.mark.parametrize("region", [None, {"x": [0, 3, 5], "y": [(10, 11), (15, 16)]}])
def test_tables_are_in_the_order_asked_for(order: str, columns: Any, region: Any, uri: str) -> None:
    a = matrix(uri, tile_order="col-major")
    a[...] = BLOCK
    found = a.read(columns, region=region, order=order, where="v != 8").column("v").to_pylist()
    x, y = (each.ravel() for each in np.mgrid[-3:7, 10:17])
    keys = {
        "row-major": (y, x),
        "col-major": (x, y),
        "global": (y, x, (x + 3) // 4, (y - 10) // 3),
    }[order]
    asked = np.ones(70, bool) if region is None else np.isin(x, [0, 3, 5]) & np.isin(y, [10, 11, 15, 16])
    cells = [c for c in np.lexsort(keys).tolist() if asked[c] and c != 8]

    assert found == cells
    assert a.read(columns, region=region, order=order).schema == a.read(columns).schema


def test_conditions_counts_and_scans_of_dense_arrays(uri: str) -> None:
    a = matrix(uri)
    a[0:4, 12:15] = np.arange(12).reshape(4, 3)

    assert a.count() == 70
    assert a.count("v >= 0") == 12
    assert a.count("v >= 0 AND x = 1") == 3
    assert a.count("y = 12") == 10
    assert a.count(region={"x": (0, 1)}) == 14
    assert a.count("v > 5", region={"x": (0, 2)}) == 3
    assert a.read(["v"], where="v > 9").column("v").to_pylist() == [10, 11]
    assert a.read(where="v > 1000").num_rows == 0
    assert a.read(where="v > 1000").schema == a.read().schema
    assert sum(batch.num_rows for batch in a.scan(where="v >= 0")) == 12
    assert a.nonempty_domain() == {"x": (0, 3), "y": (12, 14)}
    assert matrix(uri + "2").nonempty_domain() is None
    told = a.explain(region={"x": (0, 0)})
    assert told.fragments[0].n_read == 2
    assert told.n_cells == 7
    assert "__" in str(told)


def test_scans_keep_to_their_memory_however_wide_the_rows_are(uri: str) -> None:
    dims = [tz.Dim("x", "int64", (0, 3), 2), tz.Dim("y", "int64", (0, 399_999), 50_000)]
    a = tz.create(uri, tz.Schema(dims, [tz.Attr("v", "int64")], sparse=False))
    block = np.arange(1_600_000).reshape(4, 400_000)
    a[...] = block
    batches = list(a.scan(memory="8MiB"))  # of which a quarter is for columns
    found = pa.Table.from_batches(batches)

    assert max(batch.nbytes for batch in batches) <= 100_000 * 24
    assert found.num_rows == 1_600_000
    assert found.column("v").to_numpy().sum() == block.sum()
    assert (
        found.column("v").to_numpy() == found.column("x").to_numpy() * 400_000 + found.column("y").to_numpy()
    ).all()


@pytest.mark.parametrize(
    ("datatype", "low", "tile"),
    [
        ("uint64", 2**64 - 21, 5),
        ("int64", -(2**63), 7),
        ("int64", 2**63 - 21, 4),
        ("int8", 107, 7),
        ("uint8", 235, 3),
    ],
)
def test_domains_at_the_ends_of_their_types(datatype: str, low: int, tile: int, uri: str) -> None:
    high = low + 20 // tile * tile - 1
    a = tz.create(
        uri, tz.Schema([tz.Dim("x", datatype, (low, high), tile)], [tz.Attr("v", "int8")], sparse=False)
    )
    n = high - low + 1
    a[...] = np.arange(n)
    a[low + 1 : low + 3] = [100, 101]
    a[high] = 102

    expected = [0, 100, 101, *range(3, n - 1), 102]
    assert a[low : high + 1].tolist() == expected
    assert a.read().column("x").to_pylist() == list(range(low, high + 1))
    assert a.read(region={"x": (high - 1, high)}).column("v").to_pylist() == expected[-2:]
    assert a.count("v >= 100") == 3


def test_dates_index_dense_arrays(uri: str) -> None:
    days = np.arange(np.datetime64("2024-01-01"), np.datetime64("2024-03-01"))
    dim = tz.Dim("d", "datetime_day", (days[0], days[-1]), 7)
    a = tz.create(uri, tz.Schema([dim], [tz.Attr("v", "int64")], sparse=False))
    a[...] = np.arange(60)

    assert a["2024-01-02":"2024-01-04"].tolist() == [1, 2]
    assert a[np.datetime64("2024-02-01")] == 31
    assert a[days[58] :].tolist() == [58, 59]
    assert a.read(["v"], where="d >= '2024-02-28'").column("v").to_pylist() == [58, 59]
    assert a.read(["d"]).column("d").to_pylist()[0] == datetime(2024, 1, 1).date()


def test_updates_of_dense_arrays_change_just_what_matches(folder: str) -> None:
    a = matrix(folder)
    a[0:4, 12:15] = np.arange(12).reshape(4, 3)
    a.update({"v": 99}, "v > 5 AND y = 13")
    expected = np.arange(12).reshape(4, 3)
    expected[2:, 1] = 99

    np.testing.assert_array_equal(a[0:4, 12:15], expected)
    with tiledb.open(folder) as other:
        np.testing.assert_array_equal(other[0:4, 12:15]["v"], expected)
    n = len(a.fragments)
    a.update({"v": 1}, "v > 1000")
    assert len(a.fragments) == n


def test_the_current_domain_is_what_there_is(folder: str) -> None:
    dims = [tz.Dim("x", "int64", (0, 99), 10)]
    schema = tz.Schema(dims, [tz.Attr("v", "int64")], sparse=False, current_domain={"x": (5, 14)})
    a = tz.create(folder, schema)
    a[...] = np.arange(10)

    assert a[...].tolist() == list(range(10))
    assert a.count() == 10
    with pytest.raises(tz.InvalidRequestError, match="'x' goes from 5 to 14; 15 lies outside"):
        a[15]
    a.evolve(expand_domain={"x": (0, 19)})
    a[15:] = 7
    assert a[10:].tolist() == [5, 6, 7, 8, 9, 7, 7, 7, 7, 7]
    with tiledb.open(folder) as other:
        np.testing.assert_array_equal(other[10:20]["v"], a[10:])


def test_attributes_added_later_read_as_their_fill_value(uri: str) -> None:
    a = matrix(uri)
    a[0:2, 10:12] = [[1, 2], [3, 4]]
    a.evolve(add=[tz.Attr("s", "utf8", nullable=True), tz.Attr("w", "int8", fill=9)])
    a[1:3, 11:13] = {"v": 5, "s": "a", "w": 1}

    found = a[0:3, 10:13]
    assert found["v"].tolist() == [[1, 2, -1], [3, 5, 5], [-1, 5, 5]]
    assert found["w"].tolist() == [[9, 9, 9], [9, 1, 1], [9, 1, 1]]
    assert found["s"].tolist() == [[None] * 3, [None, "a", "a"], [None, "a", "a"]]
    assert a.read(["w"], region={"x": 0, "y": (10, 11)}).column("w").to_pylist() == [9, 9]
