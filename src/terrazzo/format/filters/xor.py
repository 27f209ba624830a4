"""Xor: the first element as it is, then each one combined with the one before.

Metadata: the list of part sizes (see pieces), in front of what came in.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from terrazzo.errors import CorruptionError, InvalidRequestError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.base import MOST_PARTS, Element, FilterCode, Parts
from terrazzo.format.filters.pieces import as_array, as_piece, pack_sizes, take_sizes
from terrazzo.format.wire import Cursor

_SIGNED = {1: Datatype.INT8, 2: Datatype.INT16, 4: Datatype.INT32, 8: Datatype.INT64}


@dataclass(frozen=True, slots=True)
class Xor:
    code: ClassVar[FilterCode] = FilterCode.XOR

    def output_type(self, datatype: Datatype) -> Datatype:
        return _SIGNED[datatype.size]

    def encode(self, parts: Parts, element: Element) -> Parts:
        word = np.dtype(f"<u{element.datatype.size}")
        sizes = [*map(len, parts.data)]
        if any(size % word.itemsize for size in sizes):
            raise InvalidRequestError(
                f"xor takes whole elements of {word.itemsize} bytes; parts have {sizes} bytes"
            )
        target = np.empty(sum(sizes) // word.itemsize, word)
        start = 0
        for piece in parts.data:
            source = as_array(piece, word)
            end = start + len(source)
            np.bitwise_xor(source[1:], source[:-1], out=target[start + 1 : end])
            target[start:end][:1] = source[:1]
            start = end
        return Parts((pack_sizes(sizes), *parts.metadata), (as_piece(target),))

    def decode(self, parts: Parts, element: Element, limit: int) -> Parts:
        word = np.dtype(f"<u{element.datatype.size}")
        sizes, metadata, data = take_sizes(parts, limit)
        if any(size % word.itemsize for size in sizes):
            raise CorruptionError(f"parts of {sizes} bytes behind xor of {word.itemsize}-byte elements")
        source, target = as_array(data, word), np.empty(len(data) // word.itemsize, word)
        start = 0
        for size in sizes:
            end = start + size // word.itemsize
            np.bitwise_xor.accumulate(source[start:end], out=target[start:end])
            start = end
        return Parts(metadata, (as_piece(target),))

    def stacked(self, size: int, stored: int, element: Element) -> bytes | None:
        return pack_sizes([size]) if stored == size and not size % element.datatype.size else None

    def decode_stack(self, rows: NDArray[np.uint8], out: NDArray[np.uint8], element: Element) -> None:
        word = np.dtype(f"<u{element.datatype.size}")
        np.bitwise_xor.accumulate(rows.view(word), axis=1, out=out.view(word))

    def bound(self, size: int, element: Element) -> int:  # noqa: ARG002
        return size + 4 + 4 * MOST_PARTS

    def pack_options(self) -> bytes:
        return b""

    @classmethod
    def unpack_options(cls, cursor: Cursor, version: int) -> Self:  # noqa: ARG003
        return cls()
