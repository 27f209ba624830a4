"""Byte shuffle: byte 0 of every element, then byte 1 of every element, and so on.

Metadata: the list of part sizes (see pieces), in front of what came in. A trailing part of an element
stays where it is.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.base import MOST_PARTS, Element, FilterCode, Parts, joined
from terrazzo.format.filters.pieces import as_array, as_piece, pack_sizes, take_sizes
from terrazzo.format.wire import Bytes, Cursor


@dataclass(frozen=True, slots=True)
class ByteShuffle:
    code: ClassVar[FilterCode] = FilterCode.BYTE_SHUFFLE

    def output_type(self, datatype: Datatype) -> Datatype:
        return datatype

    def encode(self, parts: Parts, element: Element) -> Parts:
        width = element.datatype.size
        pieces = tuple(_shuffled(piece, width) for piece in parts.data)
        return Parts((pack_sizes([*map(len, parts.data)]), *parts.metadata), (joined(pieces),))

    def decode(self, parts: Parts, element: Element, limit: int) -> Parts:
        width = element.datatype.size
        sizes, metadata, data = take_sizes(parts, limit)
        if len(sizes) == 1:
            return Parts(metadata, (_unshuffled(data, width),))
        cursor = Cursor(data)
        return Parts(metadata, (joined(tuple(_unshuffled(cursor.take(size), width) for size in sizes)),))

    def stacked(self, size: int, stored: int, element: Element) -> bytes | None:  # noqa: ARG002
        return pack_sizes([size]) if stored == size else None

    def decode_stack(self, rows: NDArray[np.uint8], out: NDArray[np.uint8], element: Element) -> None:
        n, size = rows.shape
        width = element.datatype.size
        count = size // width
        whole = count * width
        planes, cells = rows[:, :whole].reshape(n, width, count), out[:, :whole].reshape(n, count, width)
        for plane in range(width):
            cells[:, :, plane] = planes[:, plane]
        out[:, whole:] = rows[:, whole:]

    def bound(self, size: int, element: Element) -> int:  # noqa: ARG002
        return size + 4 + 4 * MOST_PARTS

    def pack_options(self) -> bytes:
        return b""

    @classmethod
    def unpack_options(cls, cursor: Cursor, version: int) -> Self:  # noqa: ARG003
        return cls()


def _shuffled(piece: Bytes, width: int) -> Bytes:
    count = len(piece) // width
    if width == 1 or count < 2:
        return piece
    source, target = as_array(piece), np.empty(len(piece), np.uint8)
    whole = count * width
    cells, planes = source[:whole].reshape(count, width), target[:whole].reshape(width, count)
    for plane in range(width):  # one strided copy per plane: up to 8 times faster than copying a transpose
        planes[plane] = cells[:, plane]
    target[whole:] = source[whole:]
    return as_piece(target)


def _unshuffled(piece: Bytes, width: int) -> Bytes:
    count = len(piece) // width
    if width == 1 or count < 2:
        return piece
    source, target = as_array(piece), np.empty(len(piece), np.uint8)
    whole = count * width
    planes, cells = source[:whole].reshape(width, count), target[:whole].reshape(count, width)
    for plane in range(width):
        cells[:, plane] = planes[plane]
    target[whole:] = source[whole:]
    return as_piece(target)
