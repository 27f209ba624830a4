import struct

import pytest

from terrazzo.errors import CorruptionError
from terrazzo.format.filters.absorb import absorb, release
from terrazzo.format.filters.base import Parts


def doubled(piece):
    return bytes(piece) * 2


def halved(stored, size):
    return bytes(stored[:size])


def test_each_part_is_compressed_by_itself_metadata_first() -> None:
    absorbed = absorb(Parts((b"ab", b"c"), (b"xyz",)), doubled)

    assert absorbed == Parts((struct.pack("<8I", 2, 1, 2, 4, 1, 2, 3, 6),), (b"ababccxyzxyz",))
    assert release(absorbed, halved, 6) == Parts((b"abc",), (b"xyz",))


@pytest.mark.parametrize("parts", [Parts((), (b"xyz",)), Parts((), (b"",)), Parts((b"",), (b"", b"xy"))])
def test_no_metadata_comes_back_as_no_piece_and_data_as_one(parts: Parts) -> None:
    released = release(absorb(parts, doubled), halved, 10)

    assert released == Parts((), (b"".join(parts.data),))


def never(stored, size):
    raise AssertionError("decompressed before all was checked")


@pytest.mark.parametrize(
    ("block", "data"),
    [
        (struct.pack("<4I", 0, 1, 3, 6), b"xyzxy"),
        (struct.pack("<4I", 0, 1, 3, 6), b"xyzxyzx"),
        (struct.pack("<4I", 0, 1, 11, 6), b"xyzxyz"),
        (struct.pack("<6I", 1, 1, 6, 3, 5, 3), b"xyzxyz"),
        (struct.pack("<6I", 1, 1, 6, 3, 3, 4), b"xyzxyz"),
        (struct.pack("<2I", 2**32 - 1, 2**32 - 1), b""),
        (struct.pack("<4I", 0, 2, 3, 6), b"xyzxyz"),
        (struct.pack("<5I", 0, 1, 3, 6, 0), b"xyzxyz"),
        (b"\x00\x00\x00\x00", b""),
        (b"", b""),
    ],
)
def test_sizes_that_do_not_fit_are_found_before_anything_is_decompressed(block: bytes, data: bytes) -> None:
    with pytest.raises(CorruptionError):
        release(Parts((block,), (data,)), never, 10)


def test_a_part_that_decompresses_to_another_size_is_corruption() -> None:
    absorbed = absorb(Parts((), (b"xyz",)), doubled)

    with pytest.raises(CorruptionError, match="3 bytes decompresses to 2"):
        release(absorbed, lambda stored, size: b"xy", 10)
