import bz2
import zlib

import pytest

from terrazzo.errors import CorruptionError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.base import Element, Parts
from terrazzo.format.filters.compress import Bzip2, Compressor, Gzip, Lz4, Zstd
from terrazzo.format.wire import Cursor

ELEMENT = Element(Datatype.INT32, 4)
COMPRESSORS = [Gzip(), Zstd(), Lz4(), Bzip2()]
TEXT = b"tessera, tesserae; " * 500


@pytest.mark.parametrize(
    ("filter_", "stored"),
    [
        (Gzip(9), "01 09000000"),
        (Zstd(), "02 ffffffff"),
        (Lz4(), "03 ffffffff"),
        (Bzip2(3), "05 03000000"),
    ],
)
def test_options_are_the_compressor_number_and_the_level(filter_: Compressor, stored: str) -> None:
    assert filter_.pack_options() == bytes.fromhex(stored)
    assert type(filter_).unpack_options(Cursor(bytes.fromhex(stored)), 22) == filter_


def test_a_compressor_number_of_another_filter_is_corruption() -> None:
    with pytest.raises(CorruptionError, match="names compressor 1, not 2"):
        Zstd.unpack_options(Cursor(bytes.fromhex("01 ffffffff")), 22)


def test_a_zstd_frame_of_libtiledb_is_read() -> None:
    block = bytes.fromhex("00000000 01000000 0c000000 15000000")
    frame = bytes.fromhex("28b52ffd200c61000003000000 07000000 37000000")

    decoded = Zstd().decode(Parts((block,), (frame,)), ELEMENT, 12)

    assert decoded == Parts((), (bytes.fromhex("03000000 07000000 37000000"),))


@pytest.mark.parametrize(
    ("filter_", "stored"),
    [
        (Gzip(), "78 9c 03 00 00 00 00 01"),
        (Lz4(), "00"),
        (Zstd(), "28 b5 2f fd 20 00 01 00 00"),
        (Bzip2(), "425a6831 177245385090 00000000"),
    ],
)
def test_nothing_compresses_to_the_empty_stream_of_libtiledb(filter_: Compressor, stored: str) -> None:
    assert filter_.compress(b"") == bytes.fromhex(stored)
    assert filter_.decompress(bytes.fromhex(stored), 0) == b""


@pytest.mark.parametrize(
    ("filter_", "expected"),
    [
        (Gzip(-5), zlib.compress(TEXT)),
        (Gzip(1), zlib.compress(TEXT, 1)),
        (Gzip(99), zlib.compress(TEXT, 9)),
        (Bzip2(-1), bz2.compress(TEXT, 1)),
        (Bzip2(0), bz2.compress(TEXT, 1)),
        (Bzip2(9), bz2.compress(TEXT, 9)),
        (Zstd(-8), Zstd(3).compress(TEXT)),
        (Zstd(99), Zstd(22).compress(TEXT)),
        (Lz4(7), Lz4().compress(TEXT)),
    ],
)
def test_levels_mean_what_they_mean_to_libtiledb(filter_: Compressor, expected: bytes) -> None:
    assert filter_.compress(TEXT) == expected


@pytest.mark.parametrize("filter_", COMPRESSORS)
def test_metadata_parts_are_compressed_one_by_one_and_come_back_joined(filter_: Compressor) -> None:
    parts = Parts((b"newest", b"oldest"), (TEXT,))

    encoded = filter_.encode(parts, ELEMENT)

    assert bytes(encoded.metadata[0])[:8] == bytes.fromhex("02000000 01000000")
    assert filter_.decode(encoded, ELEMENT, parts.size) == Parts((b"newestoldest",), (TEXT,))
    assert encoded.size <= filter_.bound(parts.size, ELEMENT)


@pytest.mark.parametrize("filter_", COMPRESSORS)
@pytest.mark.parametrize("wrong", [-1, 1, 70])
def test_a_stream_of_another_size_than_claimed_is_corruption(filter_: Compressor, wrong: int) -> None:
    with pytest.raises(CorruptionError):
        filter_.decompress(filter_.compress(TEXT), len(TEXT) + wrong)


@pytest.mark.parametrize("filter_", COMPRESSORS)
def test_streams_cut_short_and_bytes_behind_them_are_corruption(filter_: Compressor) -> None:
    stored = filter_.compress(TEXT)
    for damaged in (stored[:-1], stored[: len(stored) // 2], b"", stored + b"x", b"junk" * 9):
        with pytest.raises(CorruptionError):
            filter_.decompress(damaged, len(TEXT))


@pytest.mark.parametrize("filter_", [Gzip(), Zstd(), Lz4()])
def test_a_claim_that_no_stream_can_meet_is_refused_before_memory_is_spent(filter_: Compressor) -> None:
    with pytest.raises(CorruptionError, match="at most"):
        filter_.decompress(filter_.compress(b"abc"), 1 << 60)


def test_a_stream_that_swells_stops_at_the_size_that_was_claimed() -> None:
    bomb = bz2.compress(bytes(50_000_000))

    with pytest.raises(CorruptionError, match="does not end at 1000 bytes"):
        Bzip2.decompress(bomb, 1000)
