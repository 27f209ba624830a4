"""The order of cells and the boxes of tiles, beside libtiledb: dimensions of every type, every order, and
R-trees of one to many levels."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import queries
from arrays import Pair, assert_same_cells, create, pair, read_ours
from fragments import Stored, only_fragment

from terrazzo.engine.columns import Column
from terrazzo.format.attribute import Attr
from terrazzo.format.bounds import BoundsTable
from terrazzo.format.datatypes import Datatype
from terrazzo.format.domain import Dim
from terrazzo.format.fragment import Section
from terrazzo.format.rtree import RTree
from terrazzo.format.schema import Schema
from terrazzo.format.wire import Cursor

NUMBERS = [each for each in Datatype if each.is_integer or each.is_float or each.is_datetime or each.is_time]


def dim_of(datatype: Datatype, name: str) -> Dim:
    if datatype is Datatype.STRING_ASCII:
        return Dim(name, datatype)
    if datatype.is_float:
        return Dim(name, datatype, (-10.0, 10.0), 2.5)
    low = 0 if datatype.is_unsigned else -100
    return Dim(name, datatype, (low, 100), 9)


def coordinates(dim: Dim, n: int, rng: np.random.Generator) -> Column:
    """Repeating, at the ends of the domain and at the borders of tiles too."""
    if dim.is_var:
        lengths = rng.integers(0, 5, n)
        values = rng.integers(97, 100, int(lengths.sum())).astype(np.uint8)
        return Column(values, np.append(0, np.cumsum(lengths)))
    low, high = dim.domain
    if dim.datatype.is_float:
        borders = np.arange(low, high, dim.tile)
        values = np.where(rng.random(n) < 0.3, rng.choice(borders, n), rng.uniform(low, high, n))
    else:
        values = rng.integers(low, high, n, dtype=dim.datatype.dtype, endpoint=True)
    values = values.astype(dim.datatype.dtype)
    values[:2] = low, high
    return Column(values)


def cells(schema: Schema, n: int) -> dict[str, Column]:
    """Cells at places that differ, each with its number."""
    rng = np.random.default_rng(n + len(schema.dims))
    columns = {dim.name: coordinates(dim, n, rng) for dim in schema.dims}
    seen: dict[tuple, int] = {}
    places = zip(*([bytes(c) for c in as_rows(columns[dim.name])] for dim in schema.dims), strict=True)
    for row, place in enumerate(places):
        seen.setdefault(place, row)
    keep = np.array(sorted(seen.values()))
    columns = {name: column.take(keep) for name, column in columns.items()}
    return columns | {"n": Column(np.arange(len(keep), dtype=np.int32))}


def as_rows(column: Column) -> list[bytes]:
    if column.offsets is None:
        return [value.tobytes() for value in column.values]
    return column.binary().to_pylist()


MIXES = [
    *[(each,) for each in (*NUMBERS, Datatype.STRING_ASCII)],
    (Datatype.INT32, Datatype.INT32),
    (Datatype.INT8, Datatype.UINT64),
    (Datatype.FLOAT32, Datatype.FLOAT64),
    (Datatype.INT16, Datatype.STRING_ASCII),
    (Datatype.STRING_ASCII, Datatype.STRING_ASCII),
    (Datatype.DATETIME_MS, Datatype.UINT8, Datatype.STRING_ASCII),
    (Datatype.STRING_ASCII, Datatype.TIME_NS, Datatype.FLOAT64),
    (Datatype.INT64, Datatype.UINT32, Datatype.INT16, Datatype.FLOAT32),
]
ORDERS = [("row-major", "row-major"), ("row-major", "col-major"), ("col-major", "row-major"),
          ("col-major", "col-major"), ("hilbert", "row-major")]  # fmt: skip


def ids(mix: tuple[Datatype, ...]) -> str:
    return " ".join(each.name for each in mix)


@pytest.mark.parametrize("mix", MIXES, ids=ids)
def test_cells_are_in_the_same_order_whatever_the_dimensions(
    mix: tuple[Datatype, ...], tmp_path: Path
) -> None:
    orders = ORDERS if len(mix) > 1 else [ORDERS[0], ORDERS[-1]]
    for cell_order, tile_order in orders:
        dims = [dim_of(datatype, f"d{index}") for index, datatype in enumerate(mix)]
        schema = Schema(dims, [Attr("n", "int32")], capacity=16, cell_order=cell_order, tile_order=tile_order)
        both = pair(tmp_path / f"{cell_order} {tile_order}", schema, cells(schema, 300))
        theirs, ours = both.stored("theirs"), both.stored("ours")

        assert ours.files == theirs.files
        assert ours.body(Section.RTREE) == theirs.body(Section.RTREE)
        assert ours.footer.domain == theirs.footer.domain
        assert_same_cells(read_ours(both.theirs), both.expected)
        assert_same_cells(queries.read(both.ours, schema), both.expected)


WIDE = {
    "INT64": Dim("d0", "int64", (-(2**63) + 1, 2**63 - 1002), 1000),
    "INT64 in one tile": Dim("d0", "int64", (-(2**63), 2**63 - 2)),
    "UINT64": Dim("d0", "uint64", (0, 2**64 - 1002), 2**40),
    "UINT32": Dim("d0", "uint32", (0, 2**32 - 12), 7),
    "INT8": Dim("d0", "int8", (-128, 126), 5),
    "DATETIME_NS": Dim("d0", "datetime_ns", (-(2**62), 2**62), 3_600_000_000_000),
    "FLOAT32": Dim("d0", "float32", (-1e30, 1e30), 1e27),
    "FLOAT64": Dim("d0", "float64", (-1e300, 1e300), 1e298),
}


@pytest.mark.parametrize("cell_order", ["row-major", "hilbert"])
@pytest.mark.parametrize("name", WIDE)
def test_wide_domains_are_cut_and_ordered_alike(name: str, cell_order: str, tmp_path: Path) -> None:
    schema = Schema(
        [WIDE[name], Dim("y", "int16", (-9, 9), 4)], [Attr("n", "int32")], capacity=16, cell_order=cell_order
    )
    both = pair(tmp_path, schema, cells(schema, 200))

    assert both.stored("ours").files == both.stored("theirs").files
    assert both.stored("ours").body(Section.RTREE) == both.stored("theirs").body(Section.RTREE)
    assert_same_cells(read_ours(both.theirs), both.expected)


def test_duplicates_are_all_kept(tmp_path: Path) -> None:
    schema = Schema([Dim("x", "int32", (0, 9), 3)], [Attr("n", "int32")], capacity=7, allows_duplicates=True)
    columns = {
        "x": Column(np.repeat(np.arange(10, dtype=np.int32), 5)),
        "n": Column(np.arange(50, dtype=np.int32)),
    }
    both = pair(tmp_path, schema, columns)

    assert sorted(queries.read(both.ours, schema)["n"].values) == list(range(50))
    assert sorted(read_ours(both.theirs)["n"].values) == list(range(50))
    assert both.stored("ours").body(Section.RTREE) == both.stored("theirs").body(Section.RTREE)


TREES = {1: [1], 2: [1, 2], 10: [1, 10], 11: [1, 2, 11], 101: [1, 2, 11, 101], 1001: [1, 2, 11, 101, 1001]}


@pytest.mark.parametrize("n_tiles", TREES)
@pytest.mark.parametrize(
    "kinds", [("INT32",), ("FLOAT64", "UINT16"), ("STRING_ASCII",), ("INT64", "STRING_ASCII")]
)
def test_an_r_tree_of_any_height_has_the_same_bytes(
    n_tiles: int, kinds: tuple[str, ...], tmp_path: Path
) -> None:
    dims = [
        Dim(f"d{index}", kind) if kind == "STRING_ASCII" else Dim(f"d{index}", kind, (0, 9999), 1000)
        for index, kind in enumerate(kinds)
    ]
    schema = Schema(dims, [Attr("n", "int32")], capacity=2)
    n = 2 * n_tiles - 1  # the last tile is short
    rng = np.random.default_rng(n)
    numbers = rng.permutation(9999)[:n]
    columns = {"n": Column(np.arange(n, dtype=np.int32))}
    for dim in dims:
        if dim.is_var:
            words = [b"%x" % number for number in numbers]
            columns[dim.name] = Column(
                np.frombuffer(b"".join(words), np.uint8), np.cumsum([0, *map(len, words)])
            )
        else:
            columns[dim.name] = Column(numbers.astype(dim.datatype.dtype))
    both = pair(tmp_path, schema, columns)
    theirs, ours = both.stored("theirs"), both.stored("ours")

    assert ours.body(Section.RTREE) == theirs.body(Section.RTREE)
    assert ours.footer.domain == theirs.footer.domain
    assert levels_of(both) == TREES[n_tiles]
    assert (
        queries.read(both.ours, schema)["n"].values.tolist()
        == queries.read(both.theirs, schema)["n"].values.tolist()
    )
    assert len(queries.read(both.ours, schema)["n"]) == n
    assert RTree(theirs.sections.rtree.leaves).pack(dims) == theirs.body(Section.RTREE)


def levels_of(both: Pair) -> list[int]:
    """Boxes per level, by taking the stored tree apart."""
    cursor = Cursor(both.stored("ours").body(Section.RTREE))
    assert cursor.u32() == 10
    counts = []
    for _ in range(cursor.u32()):
        counts.append(cursor.u64())
        BoundsTable.unpack(cursor, both.schema.dims, counts[-1])
    cursor.expect_end()
    return counts


@pytest.mark.parametrize("order", list(product(["row-major", "col-major"], repeat=2)), ids=str)
@pytest.mark.parametrize("layout", [queries.ROW_MAJOR, queries.COL_MAJOR])
def test_dense_tiles_and_cells_lie_where_libtiledb_puts_them(
    order: tuple[str, str], layout: int, tmp_path: Path
) -> None:
    """Three dimensions, overhanging tiles, a box that begins and ends inside tiles."""
    dims = [Dim("x", "int16", (-5, 9), 4), Dim("y", "int16", (1, 10), 10), Dim("z", "int16", (0, 7), 3)]
    schema = Schema(dims, [Attr("n", "int32")], sparse=False, cell_order=order[0], tile_order=order[1])
    box = ((-4, 8), (2, 9), (1, 7))
    values = np.arange(13 * 8 * 7, dtype=np.int32).reshape(13, 8, 7)
    both = pair(tmp_path, schema, {"n": Column(values.reshape(-1))}, box=box)
    turned = Column(
        np.ascontiguousarray(values.T).reshape(-1) if layout == queries.COL_MAJOR else values.reshape(-1)
    )
    again, name = create(tmp_path / "again", schema)
    queries.write(tmp_path / "again", again, {"n": turned}, 10, box=box, layout=layout)

    assert both.stored("ours").files == both.stored("theirs").files
    assert both.stored("ours").files == Stored(only_fragment(tmp_path / "again"), again, name).files
    assert_same_cells(read_ours(both.theirs), both.expected)
    assert_same_cells(queries.read(both.ours, schema), both.expected)
