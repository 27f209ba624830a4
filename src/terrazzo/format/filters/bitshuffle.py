"""Bit shuffle: bit 0 of every element, then bit 1 of every element, and so on, in blocks of 8192 bytes.

Metadata: the list of part sizes (see pieces), in front of what came in. A part whose size is no multiple
of 8 is listed, and treated, as two: as much of it as is one, and the rest, which is only copied.

    a block of n elements of e bytes, the last block of a part being shorter:

    8e planes   plane 8·byte + bit has (n - n % 8) / 8 bytes; element k is bit k % 8 of its byte k // 8
    n % 8       last elements as they are
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.base import MOST_PARTS, Element, FilterCode, Parts
from terrazzo.format.filters.pieces import as_array, as_piece, copy_rows, pack_sizes, take_sizes
from terrazzo.format.wire import Cursor

_BLOCK = 8192
_AT_ONCE = 8  # blocks: all of a usual chunk, and a bound on scratch space for the others
_SWAPS = {
    word.itemsize: [
        # arrays of no dimension: a ufunc takes them in half the time of a scalar
        (distance, np.array(distance, word), np.array([pattern] * word.itemsize, "u1").view(word).reshape(()))
        for distance, pattern in ((4, 0x0F), (2, 0x33), (1, 0x55))
    ]
    for word in (np.dtype("u1"), np.dtype("<u8"))
}


@dataclass(frozen=True, slots=True)
class BitShuffle:
    code: ClassVar[FilterCode] = FilterCode.BIT_SHUFFLE

    def output_type(self, datatype: Datatype) -> Datatype:
        return datatype

    def encode(self, parts: Parts, element: Element) -> Parts:
        sizes = [size for piece in parts.data for size in _split(len(piece))]
        target = np.empty(sum(sizes), np.uint8)
        start = 0
        for piece in parts.data:
            source = as_array(piece)
            body = len(piece) // 8 * 8
            _shuffle(source[:body], target[start : start + body], element.datatype.size)
            target[start + body : start + len(piece)] = source[body:]
            start += len(piece)
        return Parts((pack_sizes(sizes), *parts.metadata), (as_piece(target),))

    def decode(self, parts: Parts, element: Element, limit: int) -> Parts:
        width = element.datatype.size
        sizes, metadata, data = take_sizes(parts, limit)
        source, target = as_array(data), np.empty(len(data), np.uint8)
        start = 0
        for size in sizes:
            part = slice(start, start + size)
            if size % 8:
                target[part] = source[part]
            else:
                _unshuffle(source[part][None], target[part][None], width)
            start += size
        return Parts(metadata, (as_piece(target),))

    def stacked(self, size: int, stored: int, element: Element) -> bytes | None:  # noqa: ARG002
        return pack_sizes([size]) if stored == size and not size % 8 else None

    def decode_stack(self, rows: NDArray[np.uint8], out: NDArray[np.uint8], element: Element) -> None:
        _unshuffle(rows, out, element.datatype.size)

    def bound(self, size: int, element: Element) -> int:  # noqa: ARG002
        return size + 4 + 8 * MOST_PARTS

    def pack_options(self) -> bytes:
        return b""

    @classmethod
    def unpack_options(cls, cursor: Cursor, version: int) -> Self:  # noqa: ARG003
        return cls()


def _split(size: int) -> tuple[int, ...]:
    return (size // 8 * 8, size % 8) if size % 8 else (size,)


def _blocks(size: int, width: int) -> Iterator[tuple[int, int, int]]:
    """(start, number of blocks, eighths of elements in each): whole blocks a few at a time, then the rest."""
    whole, start = size // _BLOCK, 0
    while whole:
        count = min(whole, _AT_ONCE)
        yield start, count, _BLOCK // width // 8
        whole, start = whole - count, start + count * _BLOCK
    if eighth := (size - start) // width // 8:
        yield start, 1, eighth


def _shuffle(source: NDArray[np.uint8], target: NDArray[np.uint8], width: int) -> None:
    word, end = np.dtype(f"<u{width}"), 0
    for start, count, eighth in _blocks(len(source), width):
        end = start + count * eighth * 8 * width
        cells = source[start:end].view(word).reshape(-1, 8)
        rows = np.empty((8, len(cells)), word)
        copy_rows(cells.T, rows)
        _transpose_bits(rows)
        planes = target[start:end].reshape(count, width, 8, eighth)
        pieces = rows.view(np.uint8).reshape(8, count, eighth, width)
        for byte in range(width):
            planes[:, byte] = pieces[..., byte].transpose(1, 0, 2)
    target[end:] = source[end:]


def _unshuffle(source: NDArray[np.uint8], target: NDArray[np.uint8], width: int) -> None:
    """Parts, one in a row."""
    word, end, n = np.dtype(f"<u{width}"), 0, len(source)
    for start, count, eighth in _blocks(source.shape[1], width):
        end = start + count * eighth * 8 * width
        rows = np.empty((8, n * count * eighth), word)
        pieces = rows.view(np.uint8).reshape(8, n, count, eighth, width)
        planes = source[:, start:end].reshape(n, count, width, 8, eighth)
        for byte in range(width):
            pieces[..., byte] = planes[:, :, byte].transpose(2, 0, 1, 3)
        _transpose_bits(rows)
        cells = target[:, start:end].view(word).reshape(n, count * eighth, 8)
        copy_rows(rows.reshape(8, n, count * eighth), cells.transpose(2, 0, 1))
    target[:, end:] = source[:, end:]


def _transpose_bits(rows: NDArray[Any]) -> None:
    """Swaps bit k of row i with bit i of row k, for every byte of eight rows, in place.

    Three rounds exchange 4 by 4, 2 by 2 and single bits between rows at that distance. Working across rows
    instead of inside words takes half the operations, and words carry eight bytes at a time.
    """
    flat: NDArray[Any] = rows.view(np.uint8)
    if flat.shape[1] % 8 == 0:
        flat = flat.view(np.uint64)
    scratch = np.empty(flat.size // 2, flat.dtype)
    for distance, shift, mask in _SWAPS[flat.itemsize]:
        pairs = flat.reshape(4 // distance, 2, distance, -1)
        low, high = pairs[:, 0], pairs[:, 1]
        moved = scratch.reshape(low.shape)
        np.right_shift(low, shift, moved)
        np.bitwise_xor(moved, high, moved)
        np.bitwise_and(moved, mask, moved)
        np.bitwise_xor(high, moved, high)
        np.left_shift(moved, shift, moved)
        np.bitwise_xor(low, moved, low)
