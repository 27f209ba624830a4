from hashlib import md5, sha256

import pytest

from terrazzo.errors import CorruptionError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.base import Element, Parts
from terrazzo.format.filters.checksum import Md5, Sha256

ELEMENT = Element(Datatype.UINT8, 1)


def test_md5_of_nothing_is_stored_as_libtiledb_stores_it() -> None:
    encoded = Md5().encode(Parts((), (b"",)), ELEMENT)

    assert encoded.metadata == (
        bytes.fromhex("00000000 01000000 0000000000000000 d41d8cd98f00b204e9800998ecf8427e"),
    )


@pytest.mark.parametrize(("filter_", "digest"), [(Md5(), md5), (Sha256(), sha256)])
def test_digests_stand_in_front_of_the_metadata_and_data_pass_untouched(filter_, digest) -> None:
    parts = Parts((b"new", b"old"), (b"tile",))

    encoded = filter_.encode(parts, ELEMENT)

    expected = bytes.fromhex("02000000 01000000")
    for part in (b"new", b"old", b"tile"):
        expected += len(part).to_bytes(8, "little") + digest(part).digest()
    assert encoded == Parts((expected, b"new", b"old"), (b"tile",))
    assert filter_.decode(encoded, ELEMENT, 10) == Parts((b"newold",), (b"tile",))
    assert encoded.size <= filter_.bound(parts.size, ELEMENT)


@pytest.mark.parametrize("filter_", [Md5(), Sha256()])
def test_a_flipped_bit_in_data_metadata_or_digest_is_corruption(filter_) -> None:
    encoded = filter_.encode(Parts((b"meta",), (b"data",)), ELEMENT)
    metadata = b"".join(encoded.metadata)
    for bit in range(8 * len(metadata)):
        damaged = bytearray(metadata)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptionError):
            filter_.decode(Parts((damaged,), encoded.data), ELEMENT, 100)
    with pytest.raises(CorruptionError, match="does not match"):
        filter_.decode(Parts(encoded.metadata, (b"dat\x00",)), ELEMENT, 100)


def test_bytes_that_no_digest_covers_are_corruption() -> None:
    encoded = Sha256().encode(Parts((), (b"data",)), ELEMENT)

    with pytest.raises(CorruptionError, match="too many"):
        Sha256().decode(Parts(encoded.metadata, (b"data!",)), ELEMENT, 100)
