"""Checksums: data passes untouched, digests go into the metadata. Spec: format_spec/filters/checksum.md.

metadata out:  u32 metadata parts · u32 data parts · per part (u64 size, digest) · metadata in
"""

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Self

from terrazzo.errors import CorruptionError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.base import MOST_PARTS, Element, FilterCode, Parts, few, joined
from terrazzo.format.wire import Bytes, Cursor

_COUNTS = struct.Struct("<II")


@dataclass(frozen=True, slots=True)
class _Checksum:
    code: ClassVar[FilterCode]
    name: ClassVar[str]
    entry: ClassVar[struct.Struct]
    algorithm: ClassVar[str]

    def output_type(self, datatype: Datatype) -> Datatype:
        return datatype

    def encode(self, parts: Parts, element: Element) -> Parts:  # noqa: ARG002
        counts = _COUNTS.pack(len(parts.metadata), len(parts.data))
        entries = [self.entry.pack(len(p), self._digest(p)) for p in (*parts.metadata, *parts.data)]
        # Quirk: an empty part has a digest, and is then not there for the filters behind.
        data = tuple(filter(len, parts.data))
        return Parts((b"".join((counts, *entries)), *parts.metadata), data)

    def decode(self, parts: Parts, element: Element, limit: int) -> Parts:  # noqa: ARG002
        cursor = Cursor(joined(parts.metadata))
        n_metadata, n_data = cursor.unpack(_COUNTS)
        few(n_metadata + n_data, "digests")
        entries = list(self.entry.iter_unpack(cursor.take((n_metadata + n_data) * self.entry.size)))
        metadata, data = cursor.rest(), joined(parts.data)
        self._verify(metadata, entries[:n_metadata])
        self._verify(data, entries[n_metadata:])
        return Parts((metadata,) if metadata else (), (data,))

    def _verify(self, content: Bytes, entries: Iterable[tuple[int, bytes]]) -> None:
        cursor = Cursor(content)
        for size, stored in entries:
            if self._digest(cursor.take(size)) != stored:
                raise CorruptionError(f"{self.name} does not match")
        cursor.expect_end()  # a byte that no digest covers would pass unchecked

    def _digest(self, content: Bytes) -> bytes:
        # Not for security, so that systems which forbid MD5 for it still read their arrays.
        return hashlib.new(self.algorithm, content, usedforsecurity=False).digest()

    def bound(self, size: int, element: Element) -> int:  # noqa: ARG002
        return size + _COUNTS.size + MOST_PARTS * self.entry.size

    def pack_options(self) -> bytes:
        return b""

    @classmethod
    def unpack_options(cls, cursor: Cursor, version: int) -> Self:  # noqa: ARG003
        return cls()


@dataclass(frozen=True, slots=True)
class Md5(_Checksum):
    code: ClassVar = FilterCode.CHECKSUM_MD5
    name: ClassVar = "MD5"
    entry: ClassVar = struct.Struct("<Q16s")
    algorithm: ClassVar = "md5"


@dataclass(frozen=True, slots=True)
class Sha256(_Checksum):
    code: ClassVar = FilterCode.CHECKSUM_SHA256
    name: ClassVar = "SHA-256"
    entry: ClassVar = struct.Struct("<Q32s")
    algorithm: ClassVar = "sha256"
