import itertools

import pytest

from terrazzo.errors import CorruptionError, InvalidRequestError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.filters.base import Element, Parts

ELEMENT = Element(Datatype.UINT8, 1)
KEY = b"0123456789abcdef0123456789ABCDEF"


def counted_nonces():
    counter = itertools.count()
    return lambda: next(counter).to_bytes(12, "big")


def test_each_part_has_sizes_nonce_and_tag_and_ciphertexts_follow_each_other() -> None:
    cipher = Aes256Gcm(KEY, counted_nonces())
    parts = Parts((b"meta",), (b"the data",))

    encoded = cipher.encode(parts, ELEMENT)

    block = bytes(encoded.metadata[0])
    assert len(block) == 8 + 2 * 36
    assert block[:16] == bytes.fromhex("01000000 01000000 04000000 04000000")
    assert block[16:28] == bytes(12)
    assert block[44:64] == bytes.fromhex("08000000 08000000") + bytes(11) + b"\x01"
    assert len(encoded.data[0]) == 12
    assert cipher.decode(encoded, ELEMENT, 100) == Parts((b"meta",), (b"the data",))
    assert cipher.output_type(Datatype.INT32) is Datatype.BLOB


def test_another_key_or_damaged_data_say_so() -> None:
    encoded = Aes256Gcm(KEY, counted_nonces()).encode(Parts((), (b"secret",)), ELEMENT)
    other = Aes256Gcm(KEY[::-1], counted_nonces())

    with pytest.raises(CorruptionError, match="the key is wrong, or the data are damaged"):
        other.decode(encoded, ELEMENT, 100)
    with pytest.raises(CorruptionError):
        Aes256Gcm(KEY, counted_nonces()).decode(Parts(encoded.metadata, (b"secreT",)), ELEMENT, 100)
    with pytest.raises(CorruptionError):
        Aes256Gcm(KEY, counted_nonces()).decode(Parts(encoded.metadata, (b"secr",)), ELEMENT, 100)


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_a_key_has_32_bytes(size: int) -> None:
    with pytest.raises(InvalidRequestError, match="a key has 32 bytes"):
        Aes256Gcm(bytes(size), counted_nonces())


def test_a_key_is_not_shown() -> None:
    assert "0123" not in repr(Aes256Gcm(KEY, counted_nonces()))
