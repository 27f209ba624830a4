"""Files made to cost much: what stands in few bytes must not take time or memory for many."""

import struct
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from terrazzo.errors import CorruptionError, InvalidRequestError, UnsupportedFeatureError
from terrazzo.format.attribute import Attr
from terrazzo.format.commits import DeleteCommit, UpdateCommit
from terrazzo.format.condition import DEEPEST, Compare, Op
from terrazzo.format.datatypes import VAR, Datatype
from terrazzo.format.domain import Dim
from terrazzo.format.enumeration import Enumeration
from terrazzo.format.filters.base import Element, Filter, Parts
from terrazzo.format.filters.bit_width import BitWidthReduction
from terrazzo.format.filters.byteshuffle import ByteShuffle
from terrazzo.format.filters.checksum import Md5
from terrazzo.format.filters.compress import Lz4, Zstd
from terrazzo.format.filters.dictionary import Dictionary
from terrazzo.format.filters.noop import NoOp
from terrazzo.format.filters.pipeline import Pipeline
from terrazzo.format.filters.positive_delta import PositiveDelta
from terrazzo.format.filters.rle import Rle
from terrazzo.format.fragment import Footer, Section, Slots
from terrazzo.format.generic_tile import GenericTileHeader, pack_generic_tile, unpack_generic_tile
from terrazzo.format.group import GroupDetails
from terrazzo.format.ledgers import ConsolidatedFooters, unpack_con, unpack_ign, unpack_vac
from terrazzo.format.metadata import FLAT_PREFIX, SHAPE_PREFIX, MetadataValue, values
from terrazzo.format.rtree import RTree
from terrazzo.format.schema import Schema
from terrazzo.format.tile import TileCodec
from terrazzo.format.wire import Cursor, Writer

INT32 = Element(Datatype.INT32, 4)


@contextmanager
def cheap(size: int, *, seconds: float = 1.0) -> Iterator[None]:
    """At most `size` bytes and `seconds` of this thread."""
    tracemalloc.start()
    started = time.thread_time()
    try:
        yield
        spent, peak = time.thread_time() - started, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert spent < seconds
    assert peak < size


def schema_of(attrs: bytes, n_attrs: int, version: int) -> bytes:
    """A stored schema of one dimension and the attributes given."""
    plain = Schema([Dim("x", "int64", (0, 9), 5)], [], version=version).pack()
    end = {22: 4 + 4 + 4 + 5, 5: 4}[version]  # labels, enumerations and current domain stand behind
    return plain[:-end] + struct.pack("<I", n_attrs) + attrs + plain[len(plain) - end + 4 :]


def test_many_attributes_of_one_name_are_refused_in_no_time() -> None:
    writer = Writer()
    Attr("a", "int32").pack(writer)
    body = schema_of(bytes(writer) * 10_000, 10_000, 22)

    with cheap(1 << 30, seconds=10), pytest.raises(CorruptionError, match="more than one"):
        Schema.unpack(body)


def test_wide_cells_of_an_old_schema_do_not_multiply() -> None:
    writer = Writer()
    writer.str32("a")
    writer.u8(Datatype.FLOAT64)
    writer.u32((1 << 20) // 8)
    Pipeline().pack(writer)

    with cheap(100 << 20), pytest.raises(CorruptionError, match="cells of"):
        Schema.unpack(schema_of(bytes(writer) * 1000, 1000, 5))


def test_a_pipeline_of_a_thousand_filters_is_refused() -> None:
    stored = struct.pack("<II", 65536, 100_000) + (b"\0" * 5) * 100_000

    with cheap(1 << 20), pytest.raises(UnsupportedFeatureError, match="100000 filters"):
        Pipeline.unpack(Cursor(stored), 22)
    with pytest.raises(InvalidRequestError, match="33 filters"):
        Pipeline((NoOp(),) * 33).pack(Writer())


def test_many_assignments_are_read_in_linear_time() -> None:
    writer = Writer()
    writer.raw(DeleteCommit(Compare(Op.EQ, "a", b"1")).pack())
    writer.u64(20_000)
    for j in range(20_000):
        writer.str64(str(j))
        writer.bytes64(b"")

    with cheap(100 << 20, seconds=5):
        assert len(UpdateCommit.unpack(bytes(writer)).assignments) == 20_000


@pytest.mark.parametrize("depth", [DEEPEST - 1, DEEPEST, 50_000])
def test_a_deep_condition_is_read_or_refused_but_never_exhausts_the_stack(depth: int) -> None:
    level = b"\0\0" + struct.pack("<Q", 1)
    leaf = b"\1\4" + struct.pack("<I", 0) + struct.pack("<Q", 0)
    body = level * depth + leaf

    if depth < DEEPEST:
        commit = DeleteCommit.unpack(body)
        assert commit.matches.fields == {""}
        assert commit.pack() == body
    else:
        with cheap(4 << 20), pytest.raises(CorruptionError, match="levels"):
            DeleteCommit.unpack(body)


def test_a_set_of_many_nothings_is_cheap() -> None:
    n = 100_000
    body = b"\1\6" + struct.pack("<I", 0) + struct.pack("<Q", 0) + struct.pack("<Q", 8 * n) + bytes(8 * n)

    with cheap(64 << 20):
        assert DeleteCommit.unpack(body).condition.members == (b"",) * n


def test_many_names_of_one_footer_share_it() -> None:
    n, footer = 5_000, bytes(100_000)
    names = [f"{j:06}".encode() for j in range(n)]
    writer = Writer()
    writer.u32(n)
    for name in names:
        writer.bytes64(name)
        writer.u64(4 + n * 22)
    writer.raw(footer)

    with cheap(20 << 20):
        assert ConsolidatedFooters.unpack(bytes(writer)).footers[names[-1].decode()] == footer


@pytest.mark.parametrize("unpack", [unpack_con, unpack_ign, unpack_vac])
@pytest.mark.parametrize("stored", [b"\n" * 1_000_000, b"/" * 1_000_000, b"__fragments/" * 100_000])
def test_a_million_lines_of_nothing_are_an_error_at_the_first(unpack: object, stored: bytes) -> None:
    with cheap(20 << 20), pytest.raises(CorruptionError) as caught:
        unpack(stored)  # type: ignore[operator]

    assert caught.value.offset == 0


@pytest.mark.parametrize(
    "line", ["/__fragments", "/__fragments/", "/__meta/..", "/__fragments/../__schema", "/"]
)
def test_a_vacuum_line_that_names_a_folder_is_damage(line: str) -> None:
    with pytest.raises(CorruptionError, match="names no fragment"):
        unpack_vac(f"{line}\n".encode())


def test_names_that_contradict_themselves_say_where() -> None:
    line = f"__commits/__1_1_{'0' * 32}_22.wrt\n__commits/__2_1_{'0' * 32}_22.wrt\n".encode()

    with pytest.raises(CorruptionError, match="begins after") as caught:
        unpack_con(line)

    assert caught.value.offset == len(line) // 2


def test_a_group_of_more_members_than_bytes_is_refused() -> None:
    with cheap(1 << 20), pytest.raises(CorruptionError, match="do not fit"):
        GroupDetails.unpack(struct.pack("<IQ", 2, 1 << 60) + bytes(100))


@pytest.mark.parametrize(
    ("levels", "count", "problem"),
    [(1 << 31, 0, "levels"), (65, 0, "levels"), (1, 1 << 60, "do not fit"), (64, 0, None)],
)
def test_an_r_tree_of_absurd_counts_is_refused(levels: int, count: int, problem: str | None) -> None:
    dims = [Dim("x", "ascii"), Dim("y", "int64", (0, 9))]
    body = struct.pack("<II", 10, levels) + struct.pack("<Q", count) * 64

    with cheap(1 << 20):
        if problem is None:
            assert not len(RTree.unpack(body, dims, 22).leaves)
        else:
            with pytest.raises(CorruptionError, match=problem):
                RTree.unpack(body, dims, 22)


def _sizes(count: int, entry: bytes) -> bytes:
    return struct.pack("<I", count) + entry * (count // 2)


MANY = 40_000


@pytest.mark.parametrize(
    ("each", "metadata", "data"),
    [
        (ByteShuffle(), _sizes(MANY, struct.pack("<II", 1, 2)), bytes(3 * MANY // 2)),
        (PositiveDelta(), _sizes(MANY, struct.pack("<iIiI", 0, 4, 0, 8)), bytes(12 * MANY // 2)),
        (
            BitWidthReduction(),
            struct.pack("<I", 6 * MANY) + _sizes(MANY, struct.pack("<iBIiBI", 0, 32, 4, 0, 32, 8)),
            bytes(6 * MANY),
        ),
        (Lz4(), struct.pack("<II", MANY, 0) + bytes(8 * MANY), b""),
        (Rle(), struct.pack("<II", 0, MANY) + bytes(8 * MANY), b""),
        (Md5(), struct.pack("<II", MANY, 0) + bytes(24 * MANY), b""),
    ],
)
def test_a_chunk_of_more_parts_than_there_can_be_is_refused(
    each: Filter, metadata: bytes, data: bytes
) -> None:
    with cheap(8 << 20, seconds=0.3), pytest.raises(CorruptionError, match="at most"):
        each.decode(Parts((metadata,), (data,)), INT32, 1 << 20)


def test_runs_of_no_cells_may_claim_cells_of_any_size() -> None:
    header = GenericTileHeader(22, 44, 0, Datatype.CHAR, 1 << 63, False, 18)
    pipeline = Writer()
    Pipeline((Rle(),)).pack(pipeline)
    tile = struct.pack("<QIII", 1, 0, 0, 16) + struct.pack("<IIII", 0, 1, 0, 0)

    assert unpack_generic_tile(header.pack()[:4] + struct.pack("<Q", len(tile)) + header.pack()[12:]
                               + bytes(pipeline) + tile) == b""  # fmt: skip


@pytest.mark.parametrize("size", [1 << 33, (1 << 32) - 1])
def test_runs_and_dictionaries_cannot_claim_more_strings_than_the_tile_has(size: int) -> None:
    runs = struct.pack("<IIIIIBB", 0, 1, 0, 9, (8 * size) & 0xFFFF_FFFF, 8, 1)
    entry = (size).to_bytes(8, "big") + b"\0"

    with cheap(1 << 20), pytest.raises(CorruptionError):
        Rle().decode_strings(Parts((runs,), (entry,)), 10, 100)
    with cheap(1 << 20), pytest.raises(CorruptionError):
        Dictionary().decode_strings(Parts((runs + struct.pack("<I", 0),), (entry,)), 10, 100)


def test_a_tile_of_zeros_cannot_claim_more_than_its_codec_gives() -> None:
    stored = struct.pack("<QIII", 1, 1 << 31, 8, 16) + struct.pack("<IIII", 0, 1, 1 << 31, 8) + bytes(8)

    with cheap(1 << 20), pytest.raises(CorruptionError):
        TileCodec(Pipeline((Zstd(),)), Datatype.UINT8, 1).decode(stored, 1 << 31)


def test_a_flipped_encryption_flag_is_damage_and_not_a_question_of_keys() -> None:
    stored = bytearray(pack_generic_tile(b"body"))
    stored[29] ^= 1

    with pytest.raises(CorruptionError, match="disagree") as caught:
        unpack_generic_tile(bytes(stored))

    assert caught.value.offset == 29


def test_the_values_of_an_enumeration_of_absurdly_long_cells_are_refused_when_read() -> None:
    body = Enumeration("e", np.array([], np.int32), datatype="int32").pack("f")
    at = body.index(struct.pack("<I", 1), 4 + 5 + 5)
    damaged = body[:at] + struct.pack("<I", VAR - 1) + body[at + 4 :]

    with pytest.raises(CorruptionError, match="no cells"):
        Enumeration.unpack(damaged)


@pytest.mark.parametrize(
    "shape",
    [
        MetadataValue(Datatype.INT64, 2, np.array([-2, -3]).tobytes()),
        MetadataValue(Datatype.INT64, 1, np.array([-1]).tobytes()),
        MetadataValue(Datatype.FLOAT64, 1, np.array([6.0]).tobytes()),
        MetadataValue(Datatype.FLOAT64, 1, np.array([np.nan]).tobytes()),
        MetadataValue(Datatype.DATETIME_MS, 1, np.array([6]).tobytes()),
        MetadataValue(Datatype.INT64, 70, np.array([6] + [1] * 69).tobytes()),
        MetadataValue(Datatype.UINT64, 3, np.array([1 << 63, 2, 3], np.uint64).tobytes()),
    ],
)
def test_a_shape_that_no_array_has_leaves_the_values_flat(shape: MetadataValue) -> None:
    entries = {FLAT_PREFIX + "a": MetadataValue.of_array(np.arange(6)), SHAPE_PREFIX + "a": shape}

    assert values(entries)["a"].tolist() == list(range(6))


@pytest.mark.parametrize(
    ("domain", "tile"), [((-1e308, 1e308), 1.0), ((0.0, 1.0), 5e-324), ((0.0, np.inf), 1.0)]
)
def test_tiles_of_a_float_dimension_that_cannot_be_counted_are_one(domain: object, tile: float) -> None:
    dim = object.__new__(Dim)
    dim._fill("x", Datatype.FLOAT64, domain, tile, Pipeline())

    assert dim.n_tiles == 1


def footer(schema: Schema, **changes: object) -> Footer:
    slots = Slots(len(schema.attrs), len(schema.dims))
    none = (1000,) * slots.count
    single = {Section.RTREE, Section.FRAGMENT_STATISTICS, Section.PROCESSED_CONDITIONS}
    offsets = {section: (0,) if section in single else none for section in Section}
    fields = {
        "version": 22, "schema_name": "s", "dense": schema.dense, "domain": ((0, 9),), "n_sparse_tiles": 0,
        "last_tile_cells": 1, "slots": slots, "file_sizes": none, "var_file_sizes": none,
        "validity_file_sizes": none, "offsets": offsets, **changes,
    }  # fmt: skip
    return Footer(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sparse", "changes", "problem"),
    [
        (True, {"dense": True}, "dense fragment in a sparse array"),
        (True, {"n_sparse_tiles": 126}, "126 tiles cannot be stored in 1000 bytes"),
        (True, {"n_sparse_tiles": 2, "last_tile_cells": 1 << 40}, "cells"),
        (False, {"domain": ((0, 1 << 40),)}, "of which it has 100000"),
        (False, {"domain": ((-5, 5),)}, "tiles -1 to"),
        (False, {"domain": ((9, 0),)}, "from 9 to 0"),
        (False, {"domain": ((0, 99_999),)}, "10000 tiles cannot be stored"),
    ],
)
def test_a_footer_whose_counts_cannot_be_is_refused(
    sparse: bool, changes: dict[str, object], problem: str
) -> None:
    dim = Dim("x", "int64", (0, 999_999), 10)
    schema = Schema([dim], [Attr("a", "int32")], sparse=sparse, capacity=1 << 48)
    stored = footer(schema, **changes).pack(schema)

    with cheap(1 << 20), pytest.raises(CorruptionError, match=problem):
        Footer.unpack(stored, schema)
