"""General compressors: each part of a chunk becomes a stream of its own.

Spec: format_spec/filters/compression.md.

    options   u8 compressor number · i32 level
    data      zlib stream (gzip) · zstd frame · bare LZ4 block · bzip2 stream, one per part

Any encoder and level is good for any reader; a level says only how hard a writer tries.
"""

import bz2
import struct
import zlib
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Self

import pyarrow as pa

from terrazzo.errors import CorruptionError, InvalidRequestError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.absorb import absorb, release
from terrazzo.format.filters.base import MOST_PARTS, Element, FilterCode, Parts, within
from terrazzo.format.wire import Bytes, Cursor

_OPTIONS = struct.Struct("<Bi")
_PART_OVERHEAD = 640  # bzip2, the worst, adds up to 600 bytes to a part, and the block holds 8 more


@dataclass(frozen=True, slots=True)
class LevelOption:
    """The options that all compressors share, whatever they compress."""

    code: ClassVar[FilterCode]
    compressor: ClassVar[int]  # Quirk: a second enumeration; beyond bzip2 it is not the filter's number

    level: int = -1

    def __post_init__(self) -> None:
        if not hasattr(self.level, "__index__") or not -(1 << 31) <= self.level < 1 << 31:
            raise InvalidRequestError(f"a level of {self.level!r}; a whole number is expected")

    def output_type(self, datatype: Datatype) -> Datatype:
        return datatype

    def pack_options(self) -> bytes:
        return _OPTIONS.pack(self.compressor, self.level)

    @classmethod
    def unpack_options(cls, cursor: Cursor, version: int) -> Self:  # noqa: ARG003
        start = cursor.offset
        compressor, level = cursor.unpack(_OPTIONS)
        if compressor != cls.compressor:
            raise CorruptionError(
                f"filter {cls.code.name} names compressor {compressor}, not {cls.compressor}", offset=start
            )
        return cls(level)


@dataclass(frozen=True, slots=True)
class Compressor(LevelOption):
    @abstractmethod
    def compress(self, piece: Bytes) -> bytes: ...

    @staticmethod
    @abstractmethod
    def decompress(stored: Bytes, size: int) -> bytes:
        """Exactly `size` bytes, or CorruptionError."""

    def encode(self, parts: Parts, element: Element) -> Parts:  # noqa: ARG002
        return absorb(parts, self.compress)

    def decode(self, parts: Parts, element: Element, limit: int) -> Parts:  # noqa: ARG002
        return release(parts, self.decompress, limit)

    def bound(self, size: int, element: Element) -> int:  # noqa: ARG002
        return size + size // 50 + MOST_PARTS * _PART_OVERHEAD


@dataclass(frozen=True, slots=True)
class Gzip(Compressor):
    """Zlib streams, whatever the name says."""

    code: ClassVar = FilterCode.GZIP
    compressor: ClassVar = 1

    def compress(self, piece: Bytes) -> bytes:
        return zlib.compress(piece, max(-1, min(self.level, 9)))

    @staticmethod
    def decompress(stored: Bytes, size: int) -> bytes:
        within(size, 1032 * len(stored), "a zlib stream")
        stream = zlib.decompressobj()
        try:
            # One byte more than wanted: zlib notices the end of a stream only when it has room left.
            content = stream.decompress(stored, size + 1)
        except zlib.error as error:
            raise CorruptionError(f"zlib: {error}") from None
        return _whole("zlib", content, size, ended=stream.eof, trailing=stream.unused_data)


@dataclass(frozen=True, slots=True)
class Bzip2(Compressor):
    code: ClassVar = FilterCode.BZIP2
    compressor: ClassVar = 5

    def compress(self, piece: Bytes) -> bytes:
        return bz2.compress(piece, max(1, min(self.level, 9)))

    @staticmethod
    def decompress(stored: Bytes, size: int) -> bytes:
        stream = bz2.BZ2Decompressor()
        try:
            content = stream.decompress(stored, size + 1)
        except (OSError, ValueError) as error:
            raise CorruptionError(f"bzip2: {error}") from None
        return _whole("bzip2", content, size, ended=stream.eof, trailing=stream.unused_data)


@dataclass(frozen=True, slots=True)
class Zstd(Compressor):
    """Level -1 is a real one, faster than 1, and what libtiledb writes by default."""

    code: ClassVar = FilterCode.ZSTD
    compressor: ClassVar = 2

    def compress(self, piece: Bytes) -> bytes:
        level = 3 if self.level < -7 else min(self.level, 22)
        return _codec("zstd", level).compress(piece, asbytes=True)  # type: ignore[no-any-return]

    @staticmethod
    def decompress(stored: Bytes, size: int) -> bytes:
        if size > len(stored) << 15:  # a block of 4 bytes is the smallest, 128 KiB of output the most
            within(size, len(stored) << 15, "a zstd frame")
        try:
            # Arrow refuses frames that are longer or shorter than `size`.
            return _ZSTD.decompress(stored, size, asbytes=True)  # type: ignore[no-any-return]
        except OSError as error:
            raise CorruptionError(f"zstd: {error}") from None

    @staticmethod
    def is_frame(stored: memoryview, size: int) -> bool:
        """Whether this is one frame, and nothing else, that says to hold so many bytes, in the form in which libzstd writes
        what it is given at once. Frames of which this holds can be laid end to end and decompressed in one call: each
        ends where the next begins, and libzstd holds each to its size."""
        begins = _frame_start(size)
        if stored[: len(begins)] != begins:
            return False
        place, last = len(begins), len(stored) - 3
        while place <= last:
            header = stored[place] | stored[place + 1] << 8 | stored[place + 2] << 16
            place += 3 + (1 if header & 6 == _REPEATED else header >> 3)
            if header & 1:
                return place == len(stored)
        return False


@dataclass(frozen=True, slots=True)
class Lz4(Compressor):
    """Bare LZ4 blocks; there is but one level."""

    code: ClassVar = FilterCode.LZ4
    compressor: ClassVar = 3

    def compress(self, piece: Bytes) -> bytes:
        return _LZ4.compress(piece, asbytes=True)  # type: ignore[no-any-return]

    @staticmethod
    def decompress(stored: Bytes, size: int) -> bytes:
        if size > 255 * len(stored):
            within(size, 255 * len(stored), "an LZ4 block")
        try:
            content: bytes = _LZ4.decompress(stored, size, asbytes=True)
        except OSError as error:
            raise CorruptionError(f"lz4: {error}") from None
        # Arrow does not tell when a block ends before `size` bytes, and leaves the rest as it was in memory.
        # But a block ends with literals, at least 5 of them if there is as much: they must be in place.
        tail = min(5, size)
        if content[size - tail :] != stored[len(stored) - tail :]:
            raise CorruptionError(f"lz4: the block holds less than {size} bytes")
        return content


def _whole(what: str, content: bytes, size: int, *, ended: bool, trailing: bytes) -> bytes:
    if len(content) != size or not ended:
        raise CorruptionError(f"{what}: the stream does not end at {size} bytes")
    if trailing:
        raise CorruptionError(f"{what}: {len(trailing)} bytes behind the end of the stream")
    return content


@lru_cache(maxsize=64)
def _codec(name: str, level: int) -> Any:
    return pa.Codec(name, compression_level=level)


@lru_cache(maxsize=64)
def _frame_start(size: int) -> bytes:
    """Magic number, descriptor, size."""
    if size < 256:
        return b"\x28\xb5\x2f\xfd\x20" + size.to_bytes(1, "little")
    if size < 65_536 + 256:
        return b"\x28\xb5\x2f\xfd\x60" + (size - 256).to_bytes(2, "little")
    return b"\x28\xb5\x2f\xfd\xa0" + size.to_bytes(4, "little")


_REPEATED = 2  # a block of one byte, many times
_ZSTD = pa.Codec("zstd")
_LZ4 = pa.Codec("lz4_raw")
