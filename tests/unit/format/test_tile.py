import pickle
import tracemalloc

import numpy as np
import pytest

from terrazzo.errors import CorruptionError, FormatError, InvalidRequestError
from terrazzo.format.chunks import cut_cells, cut_var_cells
from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.checksum import Md5, Sha256
from terrazzo.format.filters.compress import Gzip, Zstd
from terrazzo.format.filters.dictionary import Dictionary
from terrazzo.format.filters.pipeline import Pipeline
from terrazzo.format.filters.rle import Rle
from terrazzo.format.tile import ChunkHeader, TileCodec
from terrazzo.format.wire import Cursor

ZSTD_TILE = bytes.fromhex(
    "0100000000000000 0c000000 15000000 10000000 00000000 01000000 0c000000 15000000"
    "28b52ffd200c61000003000000 07000000 37000000"
)


def codec(*filters, datatype=Datatype.INT32, cell_size=4, **more) -> TileCodec:
    return TileCodec(Pipeline(filters), datatype, cell_size, **more)


def test_chunk_header_is_three_little_endian_u32_in_the_order_of_the_spec() -> None:
    stored = bytes.fromhex("28000000 09000000 60000000")

    assert ChunkHeader.unpack(Cursor(stored)) == ChunkHeader(40, 9, 96)
    assert ChunkHeader(40, 9, 96).pack() == stored


def test_an_unfiltered_tile_is_count_header_and_data() -> None:
    stored = bytes.fromhex("0100000000000000 0c000000 0c000000 00000000 1e000000 46000000 26020000")
    values = np.array([30, 70, 550], np.int32)

    assert codec().encode(values) == stored
    assert codec().decode(stored, 12).view(np.int32).tolist() == [30, 70, 550]


def test_a_compressed_tile_of_libtiledb_is_read() -> None:
    assert codec(Zstd()).decode(ZSTD_TILE, 12).view(np.int32).tolist() == [3, 7, 55]


def test_a_buffer_of_the_caller_is_filled_in_place() -> None:
    column = np.zeros(5, np.int32)

    codec(Zstd()).decode(ZSTD_TILE, 12, column[1:4].view(np.uint8))

    assert column.tolist() == [0, 3, 7, 55, 0]
    with pytest.raises(InvalidRequestError, match="a buffer of 20 bytes"):
        codec(Zstd()).decode(ZSTD_TILE, 12, column.view(np.uint8))


def test_any_cut_is_read_empty_chunks_and_split_cells_included() -> None:
    stored = bytes.fromhex(
        "0400000000000000 05000000 05000000 00000000 0102030405"
        "00000000 00000000 00000000"
        "02000000 02000000 00000000 0607"
        "01000000 01000000 00000000 08"
    )

    assert codec().decode(stored, 8).tobytes() == bytes(range(1, 9))


def test_a_tile_without_chunks_is_a_tile_without_bytes() -> None:
    assert codec(Zstd()).decode(bytes(8), 0).tobytes() == b""
    with pytest.raises(CorruptionError, match="0 bytes; 4 expected"):
        codec(Zstd()).decode(bytes(8), 4)


@pytest.mark.parametrize(
    ("filters", "stored"),
    [
        ((), "0100000000000000 00000000 00000000 00000000"),
        (
            (Gzip(),),
            "0100000000000000 00000000 08000000 1000000000000000 01000000 00000000 08000000 789c030000000001",
        ),
    ],
)
def test_no_bytes_are_one_chunk_that_passes_the_filters(filters, stored: str) -> None:
    var = codec(*filters, var=True)

    assert var.encode(b"", np.zeros(3, np.uint64)) == bytes.fromhex(stored)
    assert var.decode(bytes.fromhex(stored), 0).tobytes() == b""


@pytest.mark.parametrize(
    ("size", "cell_size", "expected"),
    [
        (10, 4, [8, 10]),
        (65536, 1, [65536]),
        (65537, 1, [65536, 65537]),
        (131040, 24, [65520, 131040]),
        (140002, 70001, [70001, 140002]),
    ],
)
def test_chunks_are_64_kib_of_whole_cells(size: int, cell_size: int, expected: list[int]) -> None:
    assert cut_cells(size, cell_size) == expected


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([65536], [65536]),
        ([65537], [65537, 65537]),
        ([32768, 32769], [65537, 65537]),
        ([32769, 65536], [32769, 98305]),
        ([32769, 65537], [32769, 98306]),
        ([40000, 70000, 1], [40000, 110000, 110001]),
        ([60000, 60000, 60000], [60000, 120000, 180000]),
    ],
)
def test_var_cells_stay_whole(sizes: list[int], expected: list[int]) -> None:
    offsets = np.cumsum([0, *sizes][:-1], dtype=np.uint64)

    assert cut_var_cells(sum(sizes), 1, offsets) == expected


@pytest.mark.parametrize(
    ("datatype", "first", "version", "expected"),
    [
        (Datatype.STRING_ASCII, Rle(), 11, False),
        (Datatype.STRING_ASCII, Rle(), 12, True),
        (Datatype.STRING_ASCII, Dictionary(), 12, False),
        (Datatype.STRING_ASCII, Dictionary(), 13, True),
        (Datatype.STRING_UTF8, Rle(), 16, False),
        (Datatype.STRING_UTF8, Rle(), 17, True),
        (Datatype.STRING_UTF8, Dictionary(), 16, False),
        (Datatype.STRING_UTF8, Dictionary(), 17, True),
        (Datatype.CHAR, Rle(), 22, False),
        (Datatype.STRING_ASCII, Gzip(), 22, False),
    ],
)
def test_which_strings_hold_their_offsets_depends_on_type_and_version(
    datatype, first, version, expected
) -> None:
    strings = codec(first, Gzip(), datatype=datatype, cell_size=1, version=version, var=True)

    assert strings.holds_offsets is expected
    assert not codec(first, datatype=datatype, cell_size=1, version=version).holds_offsets


def test_strings_of_many_kilobytes_stay_one_chunk() -> None:
    data, offsets = b"abc" * 100_000, np.arange(0, 300_000, 3, dtype=np.uint64)
    strings = codec(Rle(), Zstd(), datatype=Datatype.STRING_ASCII, cell_size=1, var=True)

    stored = strings.encode(data, offsets)

    assert Cursor(stored).u64() == 1
    content, found = strings.decode_strings(stored, len(data), len(offsets))
    assert content.tobytes() == data
    assert found.tolist() == offsets.tolist()


def test_strings_without_chunks_are_empty_strings() -> None:
    strings = codec(Rle(), datatype=Datatype.STRING_ASCII, cell_size=1, var=True)

    assert strings.decode_strings(bytes(8), 0, 3)[1].tolist() == [0, 0, 0]


def test_an_error_says_at_which_chunk() -> None:
    stored = bytearray(codec(Md5()).encode(np.arange(30_000, dtype=np.int32)))
    stored[-1] ^= 1

    with pytest.raises(FormatError, match=r"MD5 does not match \(at byte 65588\)"):
        codec(Md5()).decode(stored, 120_000)


def test_what_is_behind_the_last_chunk_is_corruption() -> None:
    with pytest.raises(CorruptionError, match="the chunks end at byte 57 of a tile of 58"):
        codec(Zstd()).decode(ZSTD_TILE + b"x", 12)


@pytest.mark.parametrize("offsets", [None, [1, 2], [0, 5], [0, 3, 2], []])
def test_offsets_that_are_none_are_refused(offsets) -> None:
    given = None if offsets is None else np.array(offsets, np.uint64)

    with pytest.raises(InvalidRequestError):
        codec(var=True).encode(b"abcd", given)


@pytest.mark.parametrize("filters", [(Md5(), Rle()), (Zstd(), Dictionary()), (Rle(), Rle())])
def test_a_string_filter_that_is_not_first_is_refused(filters) -> None:
    strings = codec(*filters, datatype=Datatype.STRING_ASCII, cell_size=1, var=True)

    with pytest.raises(InvalidRequestError, match="must be the first filter"):
        strings.encode(b"abc", np.array([0], np.uint64))


def test_a_tile_that_claims_more_than_its_chunks_give_makes_no_room() -> None:
    n_chunks = 1 << 12
    stored = n_chunks.to_bytes(8, "little") + (b"\xff" * 4 + bytes(8)) * n_chunks
    tracemalloc.start()

    with pytest.raises(CorruptionError, match="8 at least"):
        TileCodec(Pipeline((Gzip(),)), Datatype.UINT8, 1).decode(stored, n_chunks * 0xFFFF_FFFF)

    assert tracemalloc.get_traced_memory()[1] < 64 * len(stored)
    tracemalloc.stop()


def test_a_codec_travels() -> None:
    sent = codec(Sha256(), Gzip(3))

    assert pickle.loads(pickle.dumps(sent)) == sent
    assert pickle.loads(pickle.dumps(sent)).encode(b"abcd") == sent.encode(b"abcd")


def test_whether_text_holds_its_offsets_is_decided_by_the_schema() -> None:
    """A fragment of format 22 may stand under a schema of any version."""
    for version in (11, 12):
        text = TileCodec(Pipeline((Rle(),)), Datatype.STRING_ASCII, 1, 22, var=True, schema_version=version)

        assert text.holds_offsets == (version >= 12)
