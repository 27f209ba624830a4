"""Sound files of every kind that the format has, small enough to be damaged many times."""

import itertools
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from damage import Kind

from terrazzo.engine.columns import Column
from terrazzo.engine.encode import EncodedFragment, encode_dense, encode_sparse
from terrazzo.engine.layout import DELETE_CONDITION, DELETE_TIMESTAMPS, TIMESTAMPS
from terrazzo.engine.tables import columns_of, table_of
from terrazzo.format import versions
from terrazzo.format.attribute import Attr
from terrazzo.format.bounds import pack_bound
from terrazzo.format.commits import Assignment, Commit, DeleteCommit, UpdateCommit
from terrazzo.format.condition import Combination, Combine, Compare, Op
from terrazzo.format.datatypes import VAR, Datatype
from terrazzo.format.domain import Dim
from terrazzo.format.enumeration import Enumeration
from terrazzo.format.filters.aes import Aes256Gcm
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
from terrazzo.format.filters.pipeline import Pipeline
from terrazzo.format.filters.positive_delta import PositiveDelta
from terrazzo.format.filters.rle import Rle
from terrazzo.format.filters.scale_float import ScaleFloat
from terrazzo.format.filters.webp import ColourFormat, WebP
from terrazzo.format.filters.xor import Xor
from terrazzo.format.fragment import Footer, Section, Slots, schema_name, split_footer
from terrazzo.format.fragment_file import SectionMap
from terrazzo.format.fragment_v1 import unpack_first
from terrazzo.format.generic_tile import pack_generic_tile, unpack_generic_tile
from terrazzo.format.group import GroupDetails, GroupMember, ObjectKind, live_members
from terrazzo.format.keys import CommitKind, TimestampedName
from terrazzo.format.label import DimensionLabel
from terrazzo.format.ledgers import (
    ConsolidatedFooters,
    DeleteRecord,
    UpdateRecord,
    WriteRecord,
    pack_con,
    pack_ign,
    pack_vac,
    unpack_con,
    unpack_ign,
    unpack_vac,
)
from terrazzo.format.metadata import Metadata, MetadataValue, put, values
from terrazzo.format.orders import DataOrder
from terrazzo.format.rtree import RTree
from terrazzo.format.schema import Schema
from terrazzo.format.sections import (
    FieldStatistics,
    has_extremes,
    pack_conditions,
    pack_extremes,
    pack_statistics,
    pack_sums,
    pack_u64s,
    pack_var_extremes,
    sum_dtype,
    unpack_conditions,
    unpack_extremes,
    unpack_statistics,
    unpack_sums,
    unpack_u64s,
)
from terrazzo.format.tile import TileCodec
from terrazzo.format.wire import U64, Writer

_counter = itertools.count()
CIPHER = Aes256Gcm(bytes(range(32)), lambda: next(_counter).to_bytes(12, "big"))
SCHEMA_NAME = "__1_1_" + "5" * 32
N_CELLS = 37


def name_of(time: int, version: int | None = 22) -> TimestampedName:
    return TimestampedName(time, time + 1, f"{time:032x}", version)


# -- schemas and enumerations ------------------------------------------------------------------------------

EVERY_FILTER: tuple[Filter, ...] = (
    NoOp(), Gzip(5), Zstd(3), Lz4(), Rle(-1), Bzip2(1), DoubleDelta(), DoubleDelta(Datatype.INT16),
    BitWidthReduction(64), BitShuffle(), ByteShuffle(), PositiveDelta(128), Md5(), Sha256(), Dictionary(-1),
    ScaleFloat(0.5, 1.0, 4), Xor(), WebP(80.0, ColourFormat.RGB, False, 3, 4), Delta(Datatype.INT8),
)  # fmt: skip


def sparse_schema(version: int = 22) -> Schema:
    """Text and numbers, nullable and not, an enumeration, a label, a current domain."""
    labels = [DimensionLabel(1, "l", "__labels/l0", "a", DataOrder.INCREASING, Datatype.STRING_ASCII, VAR)]
    recent = version >= versions.ENUMERATIONS
    return Schema(
        [
            Dim("x", "ascii", filters=[Rle(-1)]),
            Dim("y", "int64", (-1000, 1000), 10, filters=[DoubleDelta(), Zstd()]),
        ],
        [
            Attr("i", "int32", filters=[BitWidthReduction(), Lz4()], fill=7),
            Attr("u", "utf8", nullable=version >= versions.NULLABLE, filters=[Dictionary(), Zstd()]),
            Attr("f", "float64", nullable=version >= versions.NULLABLE),
            Attr("e", "uint8", enum="colours" if recent else None),
            Attr("v", "int16", var=True),
            Attr("c", "ascii", values_per_cell=3),
        ],
        capacity=5,
        allows_duplicates=True,
        cell_order="hilbert" if recent else "row-major",
        labels=labels if version >= versions.DIMENSION_LABELS else (),
        enum_files={"colours": "__" + "ab" * 16 + "_0"} if recent else {},
        current_domain={"x": (b"a", b"zz"), "y": (-500, 500)} if version >= 22 else None,
        version=version,
    )


def dense_schema(version: int = 22) -> Schema:
    return Schema(
        [Dim("x", "int32", (1, 40), 4), Dim("y", "int32", (1, 40), 3)],
        [Attr("a", "float32", filters=[ByteShuffle(), Zstd()]), Attr("b", "utf8", nullable=version >= 7)],
        sparse=False,
        tile_order="col-major",
        current_domain=[(1, 20), (1, 40)] if version >= 22 else None,
        version=version,
    )


def plain_schema(version: int = 22) -> Schema:
    """What the oldest formats have too: dimensions of one type, no nulls."""
    return Schema(
        [Dim("x", "uint64", (0, 1 << 40), 100), Dim("y", "uint64", (0, 1 << 40), 100)],
        [Attr("a", "int32"), Attr("s", "ascii")],
        coords_filters=[Zstd()],
        capacity=4,
        version=version,
    )


def dates_schema() -> Schema:
    every = [
        Attr(f"a{j}", "float32", filters=EVERY_FILTER[j : j + 2]) for j in range(0, len(EVERY_FILTER), 2)
    ]
    return Schema(
        [Dim("t", "datetime64[ms]", (-1000, 1 << 40), 1000), Dim("f", "float64", (-1.5, 7.25), 0.25)],
        every, version=22,
    )  # fmt: skip


def _use_schema(body: bytes) -> object:
    schema = Schema.unpack(body)
    str(schema)
    [dim.n_tiles for dim in schema.dims]
    [schema.filters_of(field) for field in schema.fields]
    return Schema.unpack(schema.pack())


ENUMERATIONS = (
    Enumeration("colours", ["red", "green", "blue", ""]),
    Enumeration("n", np.array([3, 1, 2], np.int32), ordered=True),
    Enumeration("t", np.array([0, 1], "M8[ms]")),
    Enumeration("none", [], datatype="utf8"),
)


def _fixed_cells() -> bytes:
    """An enumeration of three characters each, which only another writer makes."""
    writer = Writer()
    writer.u32(0)
    writer.str32("c")
    writer.str32("__00_0")
    writer.u8(Datatype.STRING_ASCII)
    writer.u32(3)
    writer.u8(0)
    writer.bytes64(b"abcdef")
    return bytes(writer)


def _use_enumeration(body: bytes) -> object:
    enumeration, _ = Enumeration.unpack(body)
    return len(enumeration), enumeration.values


# -- fragments ---------------------------------------------------------------------------------------------


def cells_of(schema: Schema, n: int = N_CELLS) -> dict[str, Column]:
    data = {
        "x": sorted(f"k{i % 9:02}" for i in range(n)),
        "y": np.arange(n) * 3,
        "i": np.arange(n, dtype=np.int32),
        "u": [None if i % 5 == 0 else "é" * (i % 4) for i in range(n)],
        "f": [None if i % 7 == 0 else float("nan") if i == 3 else i / 4 for i in range(n)],
        "e": [("red", "green", "blue")[i % 3] for i in range(n)],
        "v": [[i] * (i % 3) for i in range(n)],
        "c": ["abc" if i % 2 else "xyz" for i in range(n)],
    }
    return columns_of(table_of(data), schema, [field.name for field in schema.fields])


def _taken(encoded: EncodedFragment) -> EncodedFragment:
    """Without its bytes: only the metadata are wanted."""
    for file in encoded.files:
        list(file)
    return encoded


@cache
def sparse_fragment(*, timed: bool = False) -> EncodedFragment:
    schema = replace(sparse_schema(), enums={"colours": ENUMERATIONS[0]})
    columns = cells_of(schema)
    if timed:
        n = N_CELLS
        columns[TIMESTAMPS] = Column(np.arange(n, dtype=np.uint64))
        columns[DELETE_TIMESTAMPS] = Column(np.full(n, (1 << 64) - 1, np.uint64))
        columns[DELETE_CONDITION] = Column(np.full(n, (1 << 64) - 1, np.uint64))
    processed = [f"__commits/{name_of(9)}.del"] if timed else []
    return _taken(encode_sparse(name_of(2), schema, SCHEMA_NAME, columns, processed=processed))


@cache
def plain_fragment() -> EncodedFragment:
    schema = plain_schema()
    n = 23
    data = {"x": np.arange(n), "y": np.arange(n), "a": np.arange(n, dtype=np.int32), "s": ["s"] * n}
    columns = columns_of(table_of(data), schema, list(data))
    return _taken(encode_sparse(name_of(2), schema, SCHEMA_NAME, columns))


@cache
def dense_fragment() -> EncodedFragment:
    schema = dense_schema()
    n = 12 * 4
    data = {"a": np.arange(n, dtype=np.float32), "b": ["t" * (i % 3) if i % 4 else None for i in range(n)]}
    columns = columns_of(table_of(data), schema, ["a", "b"])
    return _taken(encode_dense(name_of(3), schema, SCHEMA_NAME, columns, ((1, 8), (1, 6)), 12, None))


def read_metadata_file(stored: bytes, schema: Schema) -> object:
    """Everything that a fragment's metadata file holds."""
    packed = split_footer(stored, 22, None)
    if isinstance(packed, int):
        return None  # a reader now asks for more bytes than there are
    schema_name(packed)
    footer = Footer.unpack(packed, schema)
    spans = SectionMap(footer, len(stored) - 8 - len(packed))
    fields = {**dict(enumerate(schema.attrs)), **{footer.slots.dim(j): d for j, d in enumerate(schema.dims)}}
    for section in Section:
        single = section in {Section.RTREE, Section.FRAGMENT_STATISTICS, Section.PROCESSED_CONDITIONS}
        for slot in range(1 if single else footer.slots.count):
            span = spans.span(section, slot)
            assert span is not None
            start, size = span
            assert size is not None
            body = unpack_generic_tile(memoryview(stored)[start : start + size])
            _read_section(section, body, footer, schema, fields.get(slot))
    return footer


def _read_section(section: Section, body: bytes, footer: Footer, schema: Schema, field: object) -> object:
    match section:
        case Section.RTREE:
            return RTree.unpack(body, schema.dims, footer.version)
        case Section.MINS | Section.MAXES:
            if isinstance(field, Attr) and has_extremes(field.datatype, field.cell_val_num):
                return unpack_extremes(body, field.datatype.dtype, field.cell_val_num)
            return unpack_extremes(body, np.dtype("<u8"), 1)
        case Section.SUMS:
            dtype = sum_dtype(field.datatype, field.cell_val_num) if isinstance(field, Attr) else None
            return unpack_sums(body, dtype or np.dtype("<u8"))
        case Section.FRAGMENT_STATISTICS:
            return unpack_statistics(body, footer.slots.count)
        case Section.PROCESSED_CONDITIONS:
            return unpack_conditions(body)
        case _:
            return unpack_u64s(body)


def pack_any_footer(footer: Footer, schema: Schema) -> bytes:
    """A footer as its own format version has it, from 3 to 23; the package itself writes 22 only."""
    version, out = footer.version, Writer()
    out.u32(version)
    if version >= versions.SCHEMA_FOLDER:
        out.str64(footer.schema_name or "")
    out.u8(footer.dense)
    out.u8(footer.domain is None)
    for bound, dim in zip(footer.domain or (), schema.dims, strict=footer.domain is not None):
        pack_bound(out, bound, dim)
    out.u64(footer.n_sparse_tiles)
    out.u64(footer.last_tile_cells)
    if version >= versions.TIMESTAMPS:
        out.u8(footer.slots.has_timestamps)
    if version >= versions.DELETE_METADATA:
        out.u8(footer.slots.has_delete_metadata)
    out.u64s(footer.file_sizes)
    out.u64s(footer.var_file_sizes)
    if version >= versions.VALIDITY:
        out.u64s(footer.validity_file_sizes)
    for offsets in footer.offsets.values():
        out.u64s(offsets)
    if footer.global_order_offsets is not None:
        out.u32(1)
        out.u64(0)
        out.u32(16 * len(schema.dims))
        for offsets in footer.global_order_offsets:
            out.u64s(offsets)
    return bytes(out)


_SINCE = {
    Section.VALIDITY_OFFSETS: 7, Section.MINS: 11, Section.MAXES: 11, Section.SUMS: 11, Section.NULL_COUNTS: 11,
    Section.FRAGMENT_STATISTICS: 12, Section.PROCESSED_CONDITIONS: 16,
}  # fmt: skip


def footer_of(version: int, schema: Schema, *, timed: bool = False) -> Footer:
    """A footer with a number of its own in every place."""
    recent = version >= versions.SPLIT_DIMENSIONS
    slots = Slots(
        len(schema.attrs), len(schema.dims), timed and version >= versions.TIMESTAMPS,
        timed and version >= versions.DELETE_METADATA,
    )  # fmt: skip
    n_files, n_var = (slots.count, slots.count) if recent else (slots.n_attrs + 1, slots.n_attrs)
    numbers = itertools.count(100)

    def some(n: int) -> tuple[int, ...]:
        return tuple(next(numbers) for _ in range(n))

    sizes, var_sizes = some(n_files), some(n_var)
    validity = some(n_files) if version >= versions.VALIDITY else (0,) * n_files
    offsets = {}
    for section in Section:
        if version >= _SINCE.get(section, 0):
            single = section in {Section.RTREE, Section.FRAGMENT_STATISTICS, Section.PROCESSED_CONDITIONS}
            per_var = section in {Section.VAR_OFFSETS, Section.VAR_SIZES}
            offsets[section] = some(1 if single else n_var if per_var else n_files)
    bounds: list[tuple[object, object]] = [
        (b"k00", b"k08") if dim.is_var else (dim.domain[0] + 1, dim.domain[0] + 5) for dim in schema.dims
    ]
    has_bounds = version >= versions.GLOBAL_ORDER_BOUNDS and schema.sparse
    return Footer(
        version, SCHEMA_NAME if version >= versions.SCHEMA_FOLDER else None, schema.dense, tuple(bounds),
        0 if schema.dense else 8, 12 if schema.dense else 2, slots, sizes, var_sizes, validity, offsets,
        (some(slots.n_dims), some(slots.n_dims)) if has_bounds else None,
    )  # fmt: skip


def pack_first(version: int, schema: Schema) -> bytes:
    """Fragment metadata of format 1 or 2."""
    out, n_tiles = Writer(), 3
    low_high = np.array([[1, 5], [2, 6]], "<u8").tobytes()
    out.u32(version)
    out.u64(len(low_high))
    out.raw(low_high)
    for _ in range(2):
        out.u64(n_tiles)
        out.raw(low_high * n_tiles)
    for _ in range(3 * len(schema.attrs) + 1):
        out.u64(n_tiles)
        out.u64s(np.arange(n_tiles) * 50)
    out.u64(2)
    out.u64s([150] * (2 * len(schema.attrs) + 1))
    return bytes(out)


def _footers(low: int, high: int) -> Kind:
    shapes = []
    for version in range(low, high + 1):
        schemas = [plain_schema(version), dense_schema(version)]
        schemas += [sparse_schema(version)] if version >= versions.SPLIT_DIMENSIONS else []
        for schema in schemas:
            both = version >= versions.TIMESTAMPS and schema.sparse
            shapes += [
                (schema, pack_any_footer(footer_of(version, schema, timed=timed), schema))
                for timed in ((False, True) if both else (False,))
            ]
    # The schema is told by the first byte here, and by the array elsewhere.
    known = [schema for schema, _ in shapes]

    def parse(stored: bytes) -> object:
        schema = known[stored[0] % len(known)] if stored else known[0]
        footer = Footer.unpack(stored[1:], schema)
        footer.n_tiles(schema), footer.n_cells(schema)
        return footer, schema_name(stored[1:]), SectionMap(footer, 5000)

    sound = tuple(bytes([j]) + stored for j, (_, stored) in enumerate(shapes))
    return Kind(f"footers of format {low} to {high}", sound, parse)


# -- tiles -------------------------------------------------------------------------------------------------

_N = 150


def _tile_kind(
    name: str,
    filters: tuple[Filter, ...],
    datatype: Datatype,
    *,
    cell: int = 1,
    cipher: Aes256Gcm | None = None,
) -> Kind:
    chance = np.random.default_rng(7)
    if datatype.is_float:
        numbers = np.round(chance.random(_N * cell) * 64)
    else:
        numbers = np.sort(chance.integers(0, 120, _N * cell))
    content = numbers.astype(datatype.dtype).tobytes()
    codec = TileCodec(Pipeline(filters), datatype, cell * datatype.size, cipher=cipher)
    out = np.empty(len(content), np.uint8)

    def parse(stored: bytes) -> object:
        if len(stored) % 2:
            return codec.decode(stored, len(content))
        return codec.decode(stored, len(content), out)

    tile = codec.encode(content)
    assert parse(tile).tobytes() == content
    return Kind(f"tile, {name}", (tile,), parse, justified=len(content))


def _string_kind(
    name: str, filters: tuple[Filter, ...], datatype: Datatype, cipher: Aes256Gcm | None = None
) -> Kind:
    tiles = []
    codec = TileCodec(Pipeline(filters), datatype, 1, var=True, cipher=cipher)
    for words in (["a", "a", "bc", "", "", "a", "xyz"] * 5, ["ab", "cd"] * 17 + ["e"], ["q" * 300] * 35):
        cells = [word.encode() for word in words]
        offsets = np.cumsum([0, *map(len, cells)])[:-1].astype(np.uint64)
        tiles.append((codec.encode(b"".join(cells), offsets), sum(map(len, cells)), len(cells)))

    def parse(stored: bytes) -> object:
        _, size, n_cells = tiles[stored[0] % 3] if stored else tiles[0]
        return codec.decode_strings(stored[1:], size, n_cells)

    sound = tuple(bytes([j]) + tile for j, (tile, _, _) in enumerate(tiles))
    return Kind(f"strings, {name}", sound, parse, justified=35 * 300)


def _tile_kinds() -> list[Kind]:
    i4, i8, u2, f8, u1 = (
        Datatype.INT32, Datatype.INT64, Datatype.UINT16, Datatype.FLOAT64, Datatype.UINT8,
    )  # fmt: skip
    kinds = [
        _tile_kind("no filter", (), i4),
        _tile_kind("no-op", (NoOp(),), i4),
        _tile_kind("gzip", (Gzip(5),), i4),
        _tile_kind("zstd", (Zstd(),), i4),
        _tile_kind("lz4", (Lz4(),), i4),
        _tile_kind("bzip2", (Bzip2(1),), i4),
        _tile_kind("rle", (Rle(),), u2),
        _tile_kind("rle of cells of 3", (Rle(),), u1, cell=3),
        _tile_kind("double delta", (DoubleDelta(),), i8),
        _tile_kind("double delta of bytes", (DoubleDelta(),), u1),
        _tile_kind("delta", (Delta(),), i4),
        _tile_kind("delta of floats", (Delta(Datatype.UINT8),), f8),
        _tile_kind("bit-width reduction", (BitWidthReduction(64),), i4),
        _tile_kind("positive delta", (PositiveDelta(64),), i4),
        _tile_kind("bit shuffle", (BitShuffle(),), i4),
        _tile_kind("byte shuffle", (ByteShuffle(),), i4),
        _tile_kind("xor", (Xor(),), i8),
        _tile_kind("float scaling", (ScaleFloat(0.5, 0.0, 2),), f8),
        _tile_kind("md5", (Md5(),), i4),
        _tile_kind("sha256", (Sha256(),), i4),
        _tile_kind("byte shuffle, zstd", (ByteShuffle(), Zstd()), i8),
        _tile_kind("positive delta, bit width, lz4, md5",
                   (PositiveDelta(), BitWidthReduction(), Lz4(), Md5()), i8),
        _tile_kind("scaling, double delta, bit shuffle",
                   (ScaleFloat(1.0, 0.0, 4), DoubleDelta(), BitShuffle()), f8),
        _tile_kind("md5, xor, byte shuffle", (Md5(), Xor(), ByteShuffle()), u2),
        _tile_kind("encrypted", (), i4, cipher=CIPHER),
        _tile_kind("zstd, encrypted", (Zstd(),), i4, cipher=CIPHER),
        _string_kind("rle", (Rle(),), Datatype.STRING_ASCII),
        _string_kind("rle, zstd, sha256", (Rle(), Zstd(), Sha256()), Datatype.STRING_UTF8),
        _string_kind("dictionary", (Dictionary(),), Datatype.STRING_ASCII),
        _string_kind("dictionary, lz4", (Dictionary(), Lz4()), Datatype.STRING_UTF8),
        _string_kind("dictionary, encrypted", (Dictionary(),), Datatype.STRING_ASCII, CIPHER),
    ]  # fmt: skip
    webp = _picture_kind()
    return [*kinds, webp] if webp is not None else kinds


def _picture_kind() -> Kind | None:
    try:
        from io import BytesIO

        from PIL import Image
    except ImportError:
        return None
    pixels = (np.arange(16 * 12 * 3) % 251).astype(np.uint8).reshape(16, 12, 3)
    stream = BytesIO()
    Image.fromarray(pixels).save(stream, "webp", lossless=True)
    picture = stream.getvalue()
    block = np.array([1, len(picture)], "<u4").tobytes()
    header = np.array([pixels.nbytes, len(picture), len(block)], "<u4").tobytes()
    codec = TileCodec(Pipeline((WebP(100.0, ColourFormat.RGB, True, 16, 12),)), Datatype.UINT8, 1)
    tile = U64.pack(1) + header + block + picture
    assert codec.decode(tile, pixels.nbytes).tobytes() == pixels.tobytes()
    return Kind(
        "tile, webp", (tile,), lambda stored: codec.decode(stored, pixels.nbytes), justified=1 << 20, cost=10
    )


# -- commits, ledgers, metadata, groups --------------------------------------------------------------------

CONDITION = Combine(
    Combination.OR,
    (
        Compare(Op.LT, "y", (5).to_bytes(8, "little")),
        Combine(
            Combination.AND,
            (
                Compare(Op.IN, "c", b"", (b"abc", b"", b"xyz")),
                Combine(Combination.NOT, (Compare(Op.EQ, "u", b""),)),
                Compare(Op.ALWAYS_TRUE, "i", b"\0\0\0\0"),
            ),
        ),
    ),
)


def _use_delete(body: bytes) -> object:
    commit = DeleteCommit.unpack(body)
    return commit.matches, commit.condition.fields, commit.pack()


def _use_update(body: bytes) -> object:
    commit = UpdateCommit.unpack(body)
    return commit.matches, commit.condition.fields, commit.pack()


def _con() -> bytes:
    delete = pack_generic_tile(DeleteCommit(CONDITION).pack())
    update = pack_generic_tile(UpdateCommit(CONDITION, (Assignment("i", b"abcd"),)).pack())
    return pack_con([
        WriteRecord(name_of(5)), DeleteRecord(name_of(6), delete), WriteRecord(name_of(7, 9)),
        UpdateRecord(name_of(8), update), UpdateRecord(name_of(9), update),
    ])  # fmt: skip


def _metadata_body() -> bytes:
    entries = {
        **put("text", "grün"), **put("n", 7), **put("list", (1.5, 2.5)), **put("blob", b"\0\1"),
        **put("array", np.arange(6).reshape(2, 3)), **put("dates", np.array([1, 2], "M8[D]")),
    }  # fmt: skip
    for j, datatype in enumerate(Datatype):
        entries[f"k{j}"] = MetadataValue(datatype, 2, bytes(2 * datatype.size))
    return Metadata(entries).pack()


def _group(version: int) -> bytes:
    members = (
        GroupMember("a", ObjectKind.ARRAY, name="first"),
        GroupMember("file:///b", ObjectKind.GROUP, relative=False),
        GroupMember("c", ObjectKind.ARRAY, deleted=version > 1),
    )
    return GroupDetails(members, version).pack()


def _ledger_kinds() -> list[Kind]:
    footers = ConsolidatedFooters({str(name_of(j)): bytes([j]) * (10 + j) for j in range(4)}).pack()
    commits = [Commit(name_of(j), CommitKind.WRITE) for j in range(3)]
    keys = [f"__fragments/{name_of(1)}", f"__meta/{name_of(2, None)}", str(name_of(3, 9))]
    update = UpdateCommit(CONDITION, (Assignment("i", b"abcd"), Assignment("u", b"")))
    return [
        Kind("delete commit", (DeleteCommit(CONDITION).pack(),), _use_delete, in_tile=True),
        Kind("update commit", (update.pack(),), _use_update, in_tile=True),
        Kind("consolidated commits", (_con(),), unpack_con),
        Kind("ignore file", (pack_ign(commits),), unpack_ign),
        Kind("vacuum file", (pack_vac(keys),), unpack_vac),
        Kind("consolidated footers", (footers,), ConsolidatedFooters.unpack, in_tile=True),
        Kind("metadata", (_metadata_body(), b""), lambda body: values(Metadata.unpack(body).entries),
             in_tile=True),
        Kind("group details", (_group(1), _group(2)), lambda body: live_members([GroupDetails.unpack(body)]),
             in_tile=True),
        Kind("generic tile", (pack_generic_tile(b"body" * 20), pack_generic_tile(b"")), unpack_generic_tile),
        Kind("encrypted generic tile", (pack_generic_tile(b"body" * 20, CIPHER),),
             lambda stored: unpack_generic_tile(stored, CIPHER)),
    ]  # fmt: skip


def _fragment_kinds() -> list[Kind]:
    sparse, timed, dense, plain = (
        sparse_fragment(), sparse_fragment(timed=True), dense_fragment(), plain_fragment(),
    )  # fmt: skip
    text_dims, number_dims = sparse_schema().dims, plain_schema().dims
    text_tree, number_tree = (_section(f, Section.RTREE) for f in (sparse, plain))
    first = plain_schema(2)
    extremes = [
        pack_var_extremes([b"a", b"", b"xyz"]), pack_extremes(np.arange(4).tobytes()), pack_extremes(b"xyz" * 3),
    ]  # fmt: skip
    return [
        Kind("metadata file, sparse", (sparse.metadata,),
             lambda stored: read_metadata_file(stored, sparse_schema()), cost=25),
        Kind("metadata file, with times and deletes", (timed.metadata,),
             lambda stored: read_metadata_file(stored, sparse_schema()), cost=25),
        Kind("metadata file, dense", (dense.metadata,),
             lambda stored: read_metadata_file(stored, dense_schema()), cost=25),
        _footers(3, 9), _footers(10, 15), _footers(16, 23),
        Kind("metadata of format 1 and 2", (pack_first(1, first), pack_first(2, first)),
             lambda body: unpack_first(body, first, dense=False), in_tile=True),
        Kind("r-tree of numbers", (number_tree,), lambda body: RTree.unpack(body, number_dims, 22),
             in_tile=True),
        Kind("r-tree of text", (text_tree,), lambda body: RTree.unpack(body, text_dims, 22), in_tile=True),
        Kind("r-tree of format 4", (_old_tree(number_tree),), lambda body: RTree.unpack(body, number_dims, 4),
             in_tile=True),
        Kind("offsets", (pack_u64s(range(9)), pack_sums(np.arange(3.0)), pack_u64s(())),
             lambda body: (unpack_u64s(body), unpack_sums(body, np.dtype("<f8"))), in_tile=True),
        Kind("extremes of text", (extremes[0],), lambda body: unpack_extremes(body, np.dtype("i1"), VAR),
             in_tile=True),
        Kind("extremes of cells", (*extremes[1:],), _use_extremes, in_tile=True),
        Kind("fragment statistics", (pack_statistics([FieldStatistics(b"a", b"bc"), FieldStatistics()]),),
             lambda body: unpack_statistics(body, 2), in_tile=True),
        Kind("processed conditions", (pack_conditions(["__commits/a.del", ""]),), unpack_conditions,
             in_tile=True),
    ]  # fmt: skip


def _use_extremes(body: bytes) -> object:
    return unpack_extremes(body, np.dtype("<i8"), 1) if len(body) % 2 == 0 else unpack_extremes(
        body, np.dtype("i1"), 3
    )  # fmt: skip


def _section(encoded: EncodedFragment, section: Section) -> bytes:
    footer = encoded.fragment.footer
    span = SectionMap(footer, None).span(section)
    assert span is not None
    start, size = span
    assert size is not None
    return unpack_generic_tile(encoded.metadata[start : start + size])


def _old_tree(tree: bytes) -> bytes:
    """Formats 3 and 4 have the number of dimensions in front, and a datatype behind the fanout."""
    return (2).to_bytes(4, "little") + tree[:4] + bytes([Datatype.UINT64]) + tree[4:]


def _schema_kinds() -> list[Kind]:
    return [
        Kind("schema, sparse", (sparse_schema().pack(), sparse_schema(23).pack()), _use_schema, in_tile=True),
        Kind("schema, dense", (dense_schema().pack(),), _use_schema, in_tile=True),
        Kind("schema, every filter", (dates_schema().pack(),), _use_schema, in_tile=True),
        Kind("schemas of format 1 to 4", tuple(plain_schema(v).pack() for v in range(1, 5)), _use_schema,
             in_tile=True),
        Kind("schemas of format 5 to 21",
             tuple(make(v).pack() for v in range(5, 22) for make in (sparse_schema, dense_schema)), _use_schema,
             in_tile=True),
        Kind("enumeration", (*(each.pack("__00_0") for each in ENUMERATIONS), _fixed_cells()),
             _use_enumeration, in_tile=True),
    ]  # fmt: skip


@cache
def all_kinds() -> dict[str, Kind]:
    kinds = [*_schema_kinds(), *_fragment_kinds(), *_tile_kinds(), *_ledger_kinds()]
    return {kind.name: kind for kind in kinds}


def kind_params() -> list[object]:
    return [
        pytest.param(kind, id=name.replace(", ", "-").replace(" ", "-")) for name, kind in all_kinds().items()
    ]
