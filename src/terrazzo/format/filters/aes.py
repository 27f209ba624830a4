"""AES-256-GCM: every part encrypted under a nonce of its own. Spec: format_spec/filters/encryption.md.

    metadata out:  u32 metadata parts · u32 data parts
                   per part (u32 plain size, u32 stored size, 12 bytes nonce, 16 bytes tag)
    data out:      the ciphertexts, metadata parts first

The filter is in no schema: an encrypted array has it last in every pipeline of its data, and only
generic tiles name it.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Self

from terrazzo.errors import CorruptionError, InvalidRequestError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.base import MOST_PARTS, Element, FilterCode, Parts, few, joined
from terrazzo.format.wire import Bytes, Cursor

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_COUNTS = struct.Struct("<II")
_ENTRY = struct.Struct("<II12s16s")
_NONCE_SIZE = 12
_TAG_SIZE = 16
_KEY_SIZE = 32
_LARGEST = 0x7FFF_FFFF  # what the cipher takes at once


@dataclass(frozen=True, slots=True)
class Aes256Gcm:
    code: ClassVar = FilterCode.AES_256_GCM

    key: bytes = field(repr=False)
    nonce: Callable[[], bytes] = field(repr=False)
    """12 bytes that this key has never seen before; chance is not this package's business."""

    def __post_init__(self) -> None:
        if len(self.key) != _KEY_SIZE:
            raise InvalidRequestError(f"a key has {_KEY_SIZE} bytes; this one has {len(self.key)}")

    def output_type(self, datatype: Datatype) -> Datatype:  # noqa: ARG002
        return Datatype.BLOB

    def encode(self, parts: Parts, element: Element) -> Parts:  # noqa: ARG002
        cipher = _aesgcm(self.key)
        block, texts = [_COUNTS.pack(len(parts.metadata), len(parts.data))], []
        for part in (*parts.metadata, *parts.data):
            if len(part) > _LARGEST:
                raise InvalidRequestError(
                    f"{len(part)} bytes cannot be encrypted at once; write smaller tiles"
                )
            nonce = self.nonce()
            sealed = memoryview(cipher.encrypt(nonce, part, None))
            size = len(sealed) - _TAG_SIZE
            block.append(_ENTRY.pack(size, size, nonce, sealed[size:].tobytes()))
            texts.append(sealed[:size])
        return Parts((b"".join(block),), (joined(tuple(texts)),))

    def decode(self, parts: Parts, element: Element, limit: int) -> Parts:  # noqa: ARG002
        cursor = Cursor(joined(parts.metadata))
        n_metadata, n_data = cursor.unpack(_COUNTS)
        few(n_metadata + n_data, "encrypted parts")
        entries = list(_ENTRY.iter_unpack(cursor.take((n_metadata + n_data) * _ENTRY.size)))
        cursor.expect_end()
        cipher, data = _aesgcm(self.key), Cursor(joined(parts.data))
        pieces = [_opened(cipher, data, *entry) for entry in entries]
        data.expect_end()
        metadata = joined(tuple(pieces[:n_metadata]))
        return Parts((metadata,) if metadata else (), (joined(tuple(pieces[n_metadata:])),))

    def bound(self, size: int, element: Element) -> int:  # noqa: ARG002
        return size + _COUNTS.size + MOST_PARTS * _ENTRY.size

    def pack_options(self) -> bytes:
        return b""

    @classmethod
    def unpack_options(cls, cursor: Cursor, version: int) -> Self:  # noqa: ARG003
        # Nothing is stored of it but its number; who has the key puts the filter in its place.
        raise CorruptionError("a pipeline names encryption where there is none")


def _aesgcm(key: bytes) -> "AESGCM":
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415  # few arrays are encrypted

    return AESGCM(key)


def _opened(cipher: "AESGCM", data: Cursor, plain_size: int, size: int, nonce: bytes, tag: bytes) -> Bytes:
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415

    if plain_size != size:
        raise CorruptionError(f"{size} encrypted bytes for {plain_size}; they are as many")
    try:
        return cipher.decrypt(nonce, b"".join((data.take(size), tag)), None)
    except InvalidTag:
        raise CorruptionError("the tag does not match: the key is wrong, or the data are damaged") from None
