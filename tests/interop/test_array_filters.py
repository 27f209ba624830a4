"""Every filter on every datatype it fits, on offsets and on validity, beside libtiledb.

An array per filter: each datatype with one, three and any number of values per cell, five tiles.
"""

from pathlib import Path

import numpy as np
import pytest
import queries
from arrays import (
    DATATYPES,
    SHAPES,
    Pair,
    assert_same_cells,
    attr_of,
    cells_of,
    create,
    pair,
    read_ours,
    write_ours,
)

from terrazzo.engine.columns import Column
from terrazzo.errors import InvalidRequestError
from terrazzo.format.attribute import Attr
from terrazzo.format.datatypes import Datatype
from terrazzo.format.domain import Dim
from terrazzo.format.filters.base import Filter
from terrazzo.format.filters.bit_width import BitWidthReduction
from terrazzo.format.filters.bitshuffle import BitShuffle
from terrazzo.format.filters.byteshuffle import ByteShuffle
from terrazzo.format.filters.checksum import Md5, Sha256
from terrazzo.format.filters.compress import Bzip2, Gzip, Lz4, Zstd
from terrazzo.format.filters.delta import Delta
from terrazzo.format.filters.dictionary import Dictionary
from terrazzo.format.filters.double_delta import DoubleDelta
from terrazzo.format.filters.noop import NoOp
from terrazzo.format.filters.positive_delta import PositiveDelta
from terrazzo.format.filters.rle import Rle
from terrazzo.format.filters.scale_float import ScaleFloat
from terrazzo.format.filters.xor import Xor
from terrazzo.format.schema import Schema

N_CELLS = 230
DIMS = [Dim("x", "int64", (0, 9999), 100)]
PIPELINES: dict[str, tuple[Filter, ...]] = {
    "none": (),
    "no-op": (NoOp(),),
    "gzip": (Gzip(),),
    "zstd": (Zstd(),),
    "lz4": (Lz4(),),
    "rle": (Rle(),),
    "bzip2": (Bzip2(),),
    "double delta": (DoubleDelta(),),
    "double delta of bytes": (DoubleDelta(Datatype.UINT8),),
    "delta": (Delta(),),
    "delta of bytes": (Delta(Datatype.UINT8),),
    "bit width": (BitWidthReduction(),),
    "positive delta": (PositiveDelta(),),
    "bit shuffle": (BitShuffle(),),
    "byte shuffle": (ByteShuffle(),),
    "xor": (Xor(),),
    "md5": (Md5(),),
    "sha256": (Sha256(),),
    "dictionary": (Dictionary(),),
    "scale": (ScaleFloat(0.5, 1.0, 4),),
    "a chain": (ByteShuffle(), Md5(), Gzip(3), Sha256()),
    "strings, then a chain": (Dictionary(), Zstd(), Sha256()),
    "runs, then a chain": (Rle(), Bzip2(), Md5()),
    "another chain": (BitWidthReduction(), BitShuffle(), Lz4()),
    "scale, then a chain": (ScaleFloat(0.5, 0.0, 8), Delta(), BitShuffle(), Zstd(7)),
}


def fits(filters: tuple[Filter, ...], datatype: Datatype, shape: str) -> bool:
    """What neither engine refuses."""
    first = filters[0] if filters else None
    if isinstance(first, Dictionary):
        return shape == "var" and datatype in {Datatype.STRING_ASCII, Datatype.STRING_UTF8}
    if isinstance(first, ScaleFloat):
        return datatype.is_float
    if isinstance(first, (Delta, DoubleDelta)) and first.reinterpret is None:
        return not datatype.is_float
    # Runs count cells of the attribute, and what a filter before it put in front must be a multiple of that.
    return True


def cells(attr: Attr, filters: tuple[Filter, ...], rng: np.random.Generator) -> Column:
    """Cells that the filters take: double delta and bit width stay clear of overflow, positive delta rises."""
    column = cells_of(
        attr, N_CELLS, rng, extreme=not set(map(type, filters)) & {DoubleDelta, BitWidthReduction, ScaleFloat}
    )
    if not any(isinstance(each, PositiveDelta) for each in filters):
        return column
    values = np.sort(column.values.reshape(-1).view(attr.datatype.dtype))
    return Column(
        values.view(column.values.dtype).reshape(column.values.shape), column.offsets, column.validity
    )


@pytest.fixture(scope="module", params=PIPELINES)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    filters = PIPELINES[request.param]
    attrs = [
        attr_of(datatype, shape, filters=filters, nullable=shape == "one")
        for datatype in DATATYPES
        for shape in SHAPES
        if fits(filters, datatype, shape)
    ]
    # Neither are offsets and validity spared, where they can be so filtered.
    aside = filters if fits(filters, Datatype.UINT64, "one") else (Zstd(),)
    flags = () if any(isinstance(each, PositiveDelta) for each in filters) else aside
    schema = Schema(
        DIMS, attrs, capacity=50, coords_filters=aside, offsets_filters=aside, validity_filters=flags
    )
    rng = np.random.default_rng(len(filters))
    columns = {"x": Column(np.arange(N_CELLS) * 3)}
    columns |= {attr.name: cells(attr, filters, rng) for attr in attrs}
    return pair(tmp_path_factory.mktemp("pair"), schema, columns)


def test_each_reads_what_the_other_wrote(both: Pair) -> None:
    assert_same_cells(read_ours(both.theirs), both.expected)
    assert_same_cells(queries.read(both.ours, both.schema), both.expected)


def test_the_files_are_the_same_byte_for_byte(both: Pair) -> None:
    # So are those of zstd and lz4, as long as both libraries carry the same release of them.
    assert both.stored("ours").files == both.stored("theirs").files


@pytest.mark.parametrize(
    ("filters", "datatype", "shape"),
    [
        ((Dictionary(),), Datatype.STRING_ASCII, "one"),
        ((Dictionary(),), Datatype.CHAR, "var"),
        ((Delta(),), Datatype.FLOAT32, "one"),
        ((DoubleDelta(),), Datatype.FLOAT64, "var"),
        ((DoubleDelta(),), Datatype.INT64, "one"),  # extreme values: differences beyond 64 bits
        ((ScaleFloat(),), Datatype.UINT8, "one"),
    ],
    ids=str,
)
def test_both_refuse_to_write_what_does_not_fit(
    tmp_path: Path, filters: tuple[Filter, ...], datatype: Datatype, shape: str
) -> None:
    attr = attr_of(datatype, shape, filters=filters, name="a")
    schema, name = create(tmp_path, Schema(DIMS, [attr], capacity=50))
    columns = {"x": Column(np.arange(N_CELLS)), "a": cells_of(attr, N_CELLS, np.random.default_rng(1))}

    with pytest.raises(Exception, match=r"TileDB|Compressor|Filter"):
        queries.write(tmp_path, schema, columns, 10)
    with pytest.raises(InvalidRequestError):
        write_ours(tmp_path, schema, name, columns, 10)


def test_a_window_that_overflows_is_read_though_libtiledb_leaves_junk_in_it(tmp_path: Path) -> None:
    attr = attr_of(Datatype.INT32, "one", filters=(BitWidthReduction(),), name="a")
    values = np.array([np.iinfo(np.int32).min, np.iinfo(np.int32).max] * 40, np.int32)
    columns = {"x": Column(np.arange(80)), "a": Column(values)}
    both = pair(tmp_path, Schema(DIMS, [attr]), columns)

    assert_same_cells(read_ours(both.theirs), both.expected)
    assert_same_cells(queries.read(both.ours, both.schema), both.expected)


@pytest.mark.parametrize("size", [30_000, 70_000])
def test_tiles_of_several_chunks(tmp_path: Path, size: int) -> None:
    """Tiles that are larger than a chunk, of fixed and var fields, filtered and not."""
    attrs = [
        attr_of(datatype, shape, filters=filters, nullable=True, name=f"{datatype.name}-{shape}-{number}")
        for number, filters in enumerate(((), (ByteShuffle(), Gzip(1)), (Rle(),)))
        for datatype, shape in (
            (Datatype.INT64, "one"), (Datatype.UINT16, "three"), (Datatype.FLOAT32, "var"), (Datatype.STRING_UTF8, "var"),
        )
    ]  # fmt: skip
    rng = np.random.default_rng(size)
    schema = Schema([Dim("x", "int64", (0, 99_999), 100)], attrs, capacity=60_000)
    columns = {"x": Column(np.arange(size))} | {attr.name: cells_of(attr, size, rng) for attr in attrs}
    both = pair(tmp_path, schema, columns)

    assert both.stored("ours").files == both.stored("theirs").files
    assert_same_cells(read_ours(both.theirs), columns)
    assert_same_cells(queries.read(both.ours, both.schema, room=1 << 21), columns)
