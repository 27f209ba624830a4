"""Tiles of any pipeline come back, damage is a FormatError, and chunks are cut as the plain walk cuts."""

import itertools
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from terrazzo.errors import FormatError, InvalidRequestError
from terrazzo.format.chunks import cut_var_cells
from terrazzo.format.datatypes import Datatype
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
from terrazzo.format.filters.xor import Xor
from terrazzo.format.generic_tile import pack_generic_tile, unpack_generic_tile
from terrazzo.format.tile import TileCodec
from terrazzo.format.wire import Cursor, Writer

_counter = itertools.count()
CIPHER = Aes256Gcm(bytes(range(32)), lambda: next(_counter).to_bytes(12, "big"))
PLAIN = [NoOp(), Gzip(1), Zstd(), Lz4(), Bzip2(), Md5(), Sha256()]

ciphers = st.sampled_from([None, CIPHER])
plain_filters = st.lists(st.sampled_from(PLAIN), max_size=4)
words = st.sampled_from([b"", b"a", b"ab", b"x" * 300]) | st.binary(max_size=12)
cells = st.lists(words, max_size=60) | st.lists(words, max_size=6).map(lambda some: some * 50)


def damaged(draw, stored: bytes) -> bytes:
    kind = draw(st.sampled_from(["cut", "grow", "change"]))
    if kind == "cut":
        return stored[: draw(st.integers(0, len(stored) - 1))]
    if kind == "grow":
        return stored + draw(st.binary(min_size=1, max_size=9))
    changed = bytearray(stored)
    for _ in range(draw(st.integers(1, 4))):
        changed[draw(st.integers(0, len(changed) - 1))] = draw(st.sampled_from([0, 1, 2, 127, 128, 255]))
    return bytes(changed)


def fitting(datatype: Datatype, *, first: bool) -> list[Filter]:
    """Filters that take this datatype. Scaling keeps numbers, but not just any bytes."""
    filters = [*PLAIN, ByteShuffle(), BitShuffle(), Xor(), Rle()]
    if not datatype.is_float:
        return [*filters, Delta(), DoubleDelta(), BitWidthReduction(), BitWidthReduction(24), PositiveDelta()]
    scales = [ScaleFloat(0.5, 3.0, 2), ScaleFloat(1.0, 0.0, 8)] if first else []
    return [*filters, *scales, Delta(Datatype.UINT8)]


@st.composite
def pipelines(draw, datatype: Datatype) -> Pipeline:
    filters: list[Filter] = []
    for _ in range(draw(st.integers(0, 4))):
        filters.append(draw(st.sampled_from(fitting(datatype, first=not filters))))
        datatype = filters[-1].output_type(datatype)
    return Pipeline(tuple(filters))


@st.composite
def tiles(draw) -> tuple[TileCodec, bytes, bytes]:
    """A codec, bytes of whole cells, and their tile; what a filter refuses is not asked for."""
    datatype = draw(
        st.sampled_from([Datatype.INT8, Datatype.UINT16, Datatype.INT32, Datatype.UINT64, Datatype.FLOAT64])
    )
    n_values = draw(st.sampled_from([1, 1, 3]))
    codec = TileCodec(draw(pipelines(datatype)), datatype, n_values * datatype.size, cipher=draw(ciphers))
    n_values *= draw(st.sampled_from([0, 1, 2, 7, 100, 9000, 20_000]))
    few = draw(st.lists(st.integers(0, 100), min_size=1, max_size=20))
    values = np.resize(few, n_values)
    if draw(st.booleans()):
        values = np.sort(values)
    data = values.astype(datatype.dtype).tobytes()
    try:
        return codec, data, codec.encode(data)
    except InvalidRequestError:
        reject()


@given(tile=tiles())
@settings(deadline=None)
def test_a_tile_comes_back_whatever_the_pipeline(tile) -> None:
    codec, data, stored = tile

    assert codec.decode(stored, len(data)).tobytes() == data


@given(tile=tiles(), draw=st.data())
@settings(deadline=None, max_examples=300)
def test_a_damaged_tile_is_a_format_error_or_other_bytes(tile, draw) -> None:
    codec, data, stored = tile
    stored = damaged(draw.draw, stored)

    with suppress(FormatError):
        assert codec.decode(stored, len(data)).nbytes == len(data)


@given(
    some=cells,
    first=st.sampled_from([Rle(), Dictionary()]),
    rest=plain_filters,
    datatype=st.sampled_from([Datatype.STRING_ASCII, Datatype.STRING_UTF8]),
    cipher=ciphers,
    draw=st.data(),
)
@settings(deadline=None)
def test_strings_that_hold_their_offsets_come_back_or_are_a_format_error(
    some, first, rest, datatype, cipher, draw
) -> None:
    data, offsets = b"".join(some), np.cumsum([0, *map(len, some)][:-1], dtype=np.uint64)
    codec = TileCodec(Pipeline((first, *rest)), datatype, 1, var=True, cipher=cipher)
    stored = codec.encode(data, offsets)

    content, found = codec.decode_strings(stored, len(data), len(some))

    assert content.tobytes() == data
    assert found.tolist() == offsets.tolist()
    with suppress(FormatError):
        assert len(codec.decode_strings(damaged(draw.draw, stored), len(data), len(some))[1]) == len(some)


@given(body=st.binary(max_size=500), cipher=ciphers, draw=st.data())
@settings(deadline=None)
def test_a_generic_tile_comes_back_or_is_a_format_error(body, cipher, draw) -> None:
    stored = pack_generic_tile(body, cipher)

    assert unpack_generic_tile(stored, cipher) == body
    # The byte that says whether a tile is encrypted may be damaged: then a key is missing or unwanted.
    with suppress(FormatError, InvalidRequestError):
        unpack_generic_tile(damaged(draw.draw, stored), cipher)


@given(filters=plain_filters, draw=st.data())
@settings(deadline=None)
def test_a_damaged_pipeline_is_a_format_error_or_another_pipeline(filters, draw) -> None:
    writer = Writer()
    Pipeline(tuple(filters)).pack(writer)

    with suppress(FormatError):
        Pipeline.unpack(Cursor(damaged(draw.draw, bytes(writer))), 22)


def plain_walk(size: int, target: int, sizes: list[int]) -> list[int]:
    """Cell by cell, as the rules are told."""
    if size == target:
        return [size]
    ends, at, current = [], 0, 0
    for i, length in enumerate(sizes):
        if current + length <= target:
            current += length
        elif current <= target // 2 or current + length <= target + target // 2:
            ends.append(at + length)
            current = 0
        else:
            ends.append(at)
            current = length
            if length > target and i < len(sizes) - 1:
                ends.append(at + length)
                current = 0
        at += length
    return [*ends, size]


@given(
    st.lists(
        st.sampled_from([0, 1, 7, 32767, 32768, 32769, 65535, 65536, 65537, 98304, 98305])
        | st.integers(0, 120_000),
        min_size=1,
        max_size=40,
    ).filter(sum)
)
@settings(deadline=None)
def test_the_search_for_cuts_equals_the_walk_over_cells(sizes) -> None:
    offsets = np.cumsum([0, *sizes][:-1], dtype=np.uint64)
    size = sum(sizes)

    assert cut_var_cells(size, 1, offsets) == plain_walk(size, min(65536, size), sizes)


_LENGTHS = (0, 1, 255, 256, 257, 65_535, 65_536, 65_791, 65_792, 200_000)


@settings(deadline=None)
@given(st.data())
def test_a_run_of_tiles_decodes_as_each_of_them_does(data):
    """Or fails as one of them does, whatever was damaged."""
    draw = data.draw
    filters = draw(st.sampled_from([[Zstd()], [Zstd()], [Zstd(9)], [Zstd(), Md5()], [Lz4()], []]))
    chunk_size = draw(st.sampled_from([65_536, 0]))  # 0: one chunk a tile
    codec = TileCodec(Pipeline(tuple(filters), chunk_size), Datatype.UINT8, 1, cipher=draw(ciphers))
    sizes = draw(st.lists(st.sampled_from(_LENGTHS) | st.integers(0, 3000), max_size=5))
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    contents = [rng.integers(0, draw(st.sampled_from([2, 256])), n, np.uint8) for n in sizes]
    tiles = [codec.encode(content) for content in contents]
    if tiles and draw(st.booleans()):
        which = draw(st.integers(0, len(tiles) - 1))
        tiles[which] = damaged(draw, tiles[which])

    decodes_alike(codec, tiles, sizes)


def decodes_alike(codec: TileCodec, tiles: list[bytes], sizes: list[int]) -> None:
    """That a run gives what its tiles do one by one, or an error where one of them does."""

    def one_by_one() -> bytes | None:
        try:
            return b"".join(codec.decode(tile, n).tobytes() for tile, n in zip(tiles, sizes, strict=True))
        except FormatError:
            return None

    out = np.full(sum(sizes), 7, np.uint8)
    try:
        codec.decode_run(tiles, sizes, out)
        found = out.tobytes()
    except FormatError:
        found = None
    assert found == one_by_one()


_STACKABLE = [
    ByteShuffle(), BitShuffle(), Xor(), Delta(), Delta(Datatype.UINT16), DoubleDelta(), DoubleDelta(Datatype.INT16)
]  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_tiles_that_are_alike_decode_as_each_of_them_does(data):
    """Whatever was damaged, and where chunks are not of the usual kind."""
    draw = data.draw
    kinds = [
        Datatype.UINT8,
        Datatype.INT16,
        Datatype.INT32,
        Datatype.UINT64,
        Datatype.FLOAT32,
        Datatype.FLOAT64,
    ]
    kind, filter_ = draw(st.sampled_from(kinds)), draw(st.sampled_from(_STACKABLE))
    per_cell = draw(st.sampled_from([1, 1, 3]))
    codec = TileCodec(
        Pipeline((filter_, Zstd()), draw(st.sampled_from([65_536, 65_536, 0]))), kind, kind.size * per_cell
    )
    lengths = st.sampled_from([0, 1, 2, 7, 64, 1000, 20_001, 70_000])
    groups = draw(st.lists(st.tuples(lengths, st.integers(1, 4)), max_size=4))
    sizes = [n * codec.cell_size for n, times in groups for _ in range(times)]
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    contents = [rng.integers(0, draw(st.sampled_from([2, 256])), n, np.uint8) for n in sizes]
    try:
        tiles = [codec.encode(content) for content in contents]
    except InvalidRequestError:
        reject()
    if tiles and draw(st.booleans()):
        which = draw(st.integers(0, len(tiles) - 1))
        tiles[which] = damaged(draw, tiles[which])
    decodes_alike(codec, tiles, sizes)


@pytest.mark.parametrize("filter_", _STACKABLE[:-1], ids=lambda each: type(each).__name__)
def test_many_tiles_are_decoded_in_few_calls(filter_, monkeypatch):
    codec = TileCodec(Pipeline((filter_, Zstd()), 65_536), Datatype.INT64, 8)
    content = np.arange(10_000).view(np.uint8)  # two chunks
    tile, calls = codec.encode(content), []
    decompress = Zstd.decompress
    monkeypatch.setattr(Zstd, "decompress", staticmethod(lambda *a: calls.append(a) or decompress(*a)))
    out = np.empty(12 * len(content), np.uint8)
    codec.decode_run([tile] * 12, [len(content)] * 12, out)
    assert out.tobytes() == content.tobytes() * 12
    assert len(calls) == 2

    large, calls[:] = np.arange(100_000).view(np.uint8), []  # thirteen chunks in one tile
    out = np.empty(len(large), np.uint8)
    codec.decode_run([codec.encode(large)], [len(large)], out)
    assert out.tobytes() == large.tobytes()
    assert len(calls) <= 3


def test_double_deltas_of_other_widths_that_take_as_many_bytes_are_told_apart():
    codec = TileCodec(Pipeline((DoubleDelta(), Zstd()), 65_536), Datatype.INT64, 8)
    contents = [np.array(values).view(np.uint8) for values in ([0, 1, 3, 4, 9], [0, 100, 300, 350, 900])]
    out = np.empty(sum(map(len, contents)), np.uint8)
    codec.decode_run([codec.encode(content) for content in contents], [40, 40], out)
    assert out.tobytes() == b"".join(content.tobytes() for content in contents)


def in_a_stream(piece: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(piece)
    return sink.getvalue().to_pybytes()


def test_frames_that_do_not_state_their_size_are_decoded_one_by_one():
    codec = TileCodec(Pipeline((Zstd(),), 65_536), Datatype.UINT8, 1)
    content = np.arange(200_000, dtype=np.uint32).view(np.uint8)
    usual = codec.encode(content)
    pieces = [content[start : start + 65_536].tobytes() for start in range(0, len(content), 65_536)]
    streamed = [in_a_stream(piece) for piece in pieces]
    chunks = [
        np.array([len(p), len(s), 16, 0, 1, len(p), len(s)], "<u4").tobytes() + s
        for p, s in zip(pieces, streamed, strict=True)
    ]
    unusual = len(chunks).to_bytes(8, "little") + b"".join(chunks)

    out = np.empty(3 * len(content), np.uint8)
    codec.decode_run([usual, unusual, usual], [len(content)] * 3, out)

    assert out.tobytes() == content.tobytes() * 3


def test_a_frame_that_runs_into_the_next_chunk_is_damage():
    """Both chunks together are frames of the right sizes; each by itself is none."""
    codec = TileCodec(Pipeline((Zstd(),), 65_536), Datatype.UINT8, 1)
    start = b"\x28\xb5\x2f\xfd\x60" + (44).to_bytes(2, "little")  # 300 bytes
    first = (
        start + (300 << 3 | 1).to_bytes(3, "little") + bytes(200)
    )  # a raw block of 300, of which 200 are here
    second = start + bytes(100 - len(start)) + start + (300 << 3 | 1).to_bytes(3, "little") + bytes(300)

    def tile(frame: bytes) -> bytes:
        head = np.array([300, len(frame), 16, 0, 1, 300, len(frame)], "<u4").tobytes()
        return (1).to_bytes(8, "little") + head + frame

    with pytest.raises(FormatError):
        codec.decode_run([tile(first), tile(second)], [300, 300], np.empty(600, np.uint8))
