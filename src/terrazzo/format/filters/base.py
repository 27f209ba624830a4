"""What a filter is: a value that transforms the bytes of a chunk, and back.

A chunk starts as no metadata and one piece of data. Writing applies the filters of a pipeline first to
last, reading last to first. Two habits decide where a filter's own metadata goes:

    prepend   its block stands in front of the metadata that came in, which stays as it is
    absorb    metadata and data that came in are transformed together and become the data;
              its own block is all the metadata there is
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from terrazzo.errors import CorruptionError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.versions import WRITTEN
from terrazzo.format.wire import Bytes, Cursor

MOST_PARTS = 64
"""More parts than any pipeline makes of a chunk: a block that lists more is damage, and costs time."""


class FilterCode(IntEnum):
    """The stored number of a filter."""

    NONE = 0
    GZIP = 1
    ZSTD = 2
    LZ4 = 3
    RLE = 4
    BZIP2 = 5
    DOUBLE_DELTA = 6
    BIT_WIDTH_REDUCTION = 7
    BIT_SHUFFLE = 8
    BYTE_SHUFFLE = 9
    POSITIVE_DELTA = 10
    AES_256_GCM = 11
    CHECKSUM_MD5 = 12
    CHECKSUM_SHA256 = 13
    DICTIONARY = 14
    SCALE_FLOAT = 15
    XOR = 16
    BITSORT = 17
    WEBP = 18
    DELTA = 19


@dataclass(frozen=True, slots=True)
class Parts:
    """A chunk between two filters. Pieces count: a compressor compresses each metadata piece by itself."""

    metadata: tuple[Bytes, ...]
    data: tuple[Bytes, ...]

    @property
    def size(self) -> int:
        return sum(map(len, self.metadata)) + sum(map(len, self.data))


@dataclass(frozen=True, slots=True)
class Element:
    """What a filter is told of the values in front of it."""

    datatype: Datatype  # as the earlier filters of the pipeline leave it
    cell_size: int  # bytes of a cell of the unfiltered tile: the unit of RLE, whatever came before it
    version: int = WRITTEN  # format version of the fragment


class Filter(Protocol):
    """A filter's options are its fields. It never sees a store, an array or a configuration."""

    code: ClassVar[FilterCode]

    def output_type(self, datatype: Datatype) -> Datatype:
        """The type that the next filter sees."""
        ...

    def encode(self, parts: Parts, element: Element) -> Parts: ...

    def decode(self, parts: Parts, element: Element, limit: int) -> Parts:
        """The inverse. `limit` bounds the bytes, metadata and data together, that can be right:
        a stored length above it is damage, found before memory is spent on it."""
        ...

    def bound(self, size: int, element: Element) -> int:
        """The most bytes, metadata and data together, that `size` bytes can become when encoded."""
        ...

    def pack_options(self) -> bytes: ...

    @classmethod
    def unpack_options(cls, cursor: Cursor, version: int) -> Self:
        """Options as `version` stores them; the cursor covers the options and nothing else."""
        ...


@runtime_checkable
class Stackable(Protocol):
    """A filter that decodes the same chunk of many tiles in one call: a call costs as much as a chunk, and each is a
    moment at which threads wait for each other."""

    def stacked(self, size: int, stored: int, element: Element) -> bytes | None:
        """The metadata that a usual chunk of `size` bytes has with so much data; None if there is none such."""
        ...

    def decode_stack(self, rows: NDArray[np.uint8], out: NDArray[np.uint8], element: Element) -> None:
        """Data of such chunks, one in a row, to their bytes, one in a row; a row is in one piece. A CorruptionError
        leaves it to `decode` to tell what is wrong, if anything is."""
        ...


def joined(pieces: tuple[Bytes, ...]) -> Bytes:
    """All pieces as one; no copy where there is one only."""
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def few(count: int, what: str, most: int = MOST_PARTS) -> int:
    """`count`, if a sound chunk can have that many parts."""
    if count > most:
        raise CorruptionError(f"{count} {what}; at most {most} are possible")
    return count


def within(size: int, limit: int, what: str) -> int:
    """`size`, if a sound chunk can have it."""
    if size > limit:
        raise CorruptionError(f"{what} claims {size} bytes; at most {limit} are possible")
    return size
