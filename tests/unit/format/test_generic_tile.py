import pytest

from terrazzo.errors import CorruptionError, FormatError, InvalidRequestError, UnsupportedFeatureError
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.generic_tile import pack_generic_tile, unpack_generic_tile
from terrazzo.format.wire import Cursor

SCHEMA = bytes.fromhex(
    "16000000 00 01 00 00 0400000000000000"
    "00000100 01000000 02 05000000 02 ffffffff"
    "00000100 01000000 02 05000000 02 ffffffff"
    "00000100 01000000 04 05000000 04 ffffffff"
    "01000000"
    "01000000 78 00 01000000 00000100 00000000"
    "0800000000000000 01000000 64000000 00 0a000000"
    "01000000"
    "01000000 61 00 01000000 00000100 00000000"
    "0400000000000000 00000080 00 00 00 00000000"
    "00000000 00000000"
    "00000000 01"
)
HEAD = bytes.fromhex(
    "16000000 6d00000000000000 a700000000000000 04 0100000000000000 00 12000000"
    "00000100 01000000 01 05000000 01 01000000"
    "0100000000000000 a7000000 49000000 10000000 00000000 01000000 a7000000 49000000 7801"
)
CIPHER = Aes256Gcm(b"0123456789abcdef0123456789ABCDEF", lambda: b"twelve bytes")


def test_a_schema_becomes_the_bytes_that_libtiledb_writes() -> None:
    stored = pack_generic_tile(SCHEMA)

    assert stored[: len(HEAD)] == HEAD
    assert len(stored) == 34 + 18 + 0x6D
    assert unpack_generic_tile(stored) == SCHEMA


def test_a_cursor_is_left_behind_the_tile() -> None:
    cursor = Cursor(pack_generic_tile(b"one") + pack_generic_tile(b"") + b"rest")

    assert unpack_generic_tile(cursor) == b"one"
    assert unpack_generic_tile(cursor) == b""
    assert bytes(cursor.rest()) == b"rest"


def test_bodies_of_many_chunks_come_back() -> None:
    body = bytes(range(256)) * 1000

    assert unpack_generic_tile(pack_generic_tile(body)) == body
    assert unpack_generic_tile(pack_generic_tile(body, CIPHER), CIPHER) == body


def test_an_encrypted_tile_names_the_filter_and_hides_the_body() -> None:
    stored = pack_generic_tile(SCHEMA, CIPHER)

    assert stored[29] == 1
    assert stored[30:34] == bytes.fromhex("17000000")
    assert stored[52:57] == bytes.fromhex("0b 00000000")


def test_a_key_that_is_missing_or_not_wanted_says_what_to_do() -> None:
    with pytest.raises(InvalidRequestError, match="is encrypted; open it with its key"):
        unpack_generic_tile(pack_generic_tile(SCHEMA, CIPHER))
    with pytest.raises(InvalidRequestError, match="not encrypted; open it without a key"):
        unpack_generic_tile(pack_generic_tile(SCHEMA), CIPHER)


def test_a_wrong_key_is_told_from_nothing_but_damage() -> None:
    other = Aes256Gcm(bytes(32), lambda: b"twelve bytes")

    with pytest.raises(CorruptionError, match="the key is wrong"):
        unpack_generic_tile(pack_generic_tile(SCHEMA, CIPHER), other)


def test_every_truncation_is_a_format_error() -> None:
    stored = pack_generic_tile(SCHEMA)
    for size in range(len(stored)):
        with pytest.raises(FormatError):
            unpack_generic_tile(stored[:size])


def test_bytes_behind_the_tile_are_corruption() -> None:
    with pytest.raises(CorruptionError, match="1 bytes too many"):
        unpack_generic_tile(pack_generic_tile(b"body") + b"x")


def test_a_newer_version_asks_for_an_upgrade() -> None:
    stored = bytearray(pack_generic_tile(b"body"))
    stored[0] = 24

    with pytest.raises(UnsupportedFeatureError, match="upgrade"):
        unpack_generic_tile(stored)
