"""Double delta: how each difference differs from the one before, in as few bits as the largest needs.

Each part, metadata parts too, becomes one of these behind the compressors' block (see absorb):

    offset  size  field
         0     1  bits of a magnitude; 0 where there are two elements or less
         1     8  elements
         9     T  the first element, then T the second
               …  per further element: a sign bit (1 is negative), then the magnitude, see bit_stream

Where sign and magnitude would be no shorter than an element, all elements follow the count unchanged.
"""

import struct
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from terrazzo.errors import CorruptionError, InvalidRequestError
from terrazzo.format import versions
from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters import differences
from terrazzo.format.filters.absorb import absorb, release, single_block
from terrazzo.format.filters.base import MOST_PARTS, Element, FilterCode, Parts
from terrazzo.format.filters.bit_stream import pack_bits, stream_size, unpack_bits
from terrazzo.format.filters.pieces import as_array, as_piece, copy_rows
from terrazzo.format.wire import Bytes, Cursor

_COMPRESSOR = 6
_HEADER = struct.Struct("<BQ")


@dataclass(frozen=True, slots=True)
class DoubleDelta:
    reinterpret: Datatype | None = None
    level: int = -1

    code: ClassVar[FilterCode] = FilterCode.DOUBLE_DELTA

    def __post_init__(self) -> None:
        differences.check_options(self.level, self.reinterpret)

    def output_type(self, datatype: Datatype) -> Datatype:
        return datatype if self.reinterpret is None else self.reinterpret

    def encode(self, parts: Parts, element: Element) -> Parts:
        dtype = differences.encoded_as("double delta", self.reinterpret, element.datatype)
        return absorb(parts, partial(_encoded, dtype=dtype))

    def decode(self, parts: Parts, element: Element, limit: int) -> Parts:
        dtype = differences.decoded_as("double delta", self.reinterpret, element.datatype)
        return release(parts, partial(_decoded, dtype=dtype), limit)

    def stacked(self, size: int, stored: int, element: Element) -> bytes | None:
        dtype = differences.counted_as(self.reinterpret, element.datatype)
        if dtype is None or size % dtype.itemsize or size <= 2 * dtype.itemsize:
            return None
        usual = _HEADER.size + 2 * dtype.itemsize < stored <= _HEADER.size + size
        return single_block(size, stored) if usual else None

    def decode_stack(self, rows: NDArray[np.uint8], out: NDArray[np.uint8], element: Element) -> None:
        dtype = differences.decoded_as("double delta", self.reinterpret, element.datatype)
        heads, bodies = rows[:, : _HEADER.size], rows[:, _HEADER.size :]
        bits, count = _HEADER.unpack(heads[0].tobytes())
        packed = stream_size(count - 2, bits + 1) + 2 * dtype.itemsize if count > 2 else 0
        if (heads != heads[0]).any() or count * dtype.itemsize != out.shape[1]:
            raise CorruptionError("double delta: parts that are not alike")
        if _is_raw(bits, dtype) and bodies.shape == out.shape:
            out[:] = bodies
        elif _is_raw(bits, dtype) or not bits or packed != bodies.shape[1]:
            raise CorruptionError("double delta: a part that is not of the usual kind")
        else:
            _restore(bodies, bits, out, np.dtype(f"<u{dtype.itemsize}"))

    def bound(self, size: int, element: Element) -> int:  # noqa: ARG002
        # per part: two sizes, the header, room for the last word (or for the elements of an empty part)
        return size + 8 + MOST_PARTS * (8 + 9 + 16)

    def pack_options(self) -> bytes:
        return differences.pack_options(_COMPRESSOR, self.level, self.reinterpret)

    @classmethod
    def unpack_options(cls, cursor: Cursor, version: int) -> Self:
        reinterprets = version >= versions.DOUBLE_DELTA_REINTERPRET
        return cls(*differences.unpack_options(cursor, _COMPRESSOR, reinterprets=reinterprets))


def _is_raw(bits: int, dtype: np.dtype[Any]) -> bool:
    return bits >= 8 * dtype.itemsize - 1


def _encoded(piece: Bytes, dtype: np.dtype[Any]) -> Bytes:
    differences.check_whole("double delta", len(piece), dtype)
    values = as_array(piece, dtype)
    if not len(values):
        # Quirk: libtiledb stores two elements even where there are none.
        return bytes(_HEADER.size + 2 * dtype.itemsize)
    if len(values) <= 2:
        return _HEADER.pack(0, len(values)) + bytes(piece)
    deltas = _differences(values)
    seconds = _checked(deltas) if dtype.itemsize == 8 else np.subtract(deltas[1:], deltas[:-1])
    # Quirk: the first plain difference counts too, though it is not among what is packed.
    largest = max(abs(int(deltas[0])), int(seconds.max()), -int(seconds.min()))
    bits = max(largest.bit_length(), 1)
    header = _HEADER.pack(bits, len(values))
    if _is_raw(bits, dtype):
        return header + bytes(piece)
    words = seconds.astype(np.int64, copy=False)
    signs = words >> 63
    numbers = ((words ^ signs) - signs) | (signs & (1 << bits))
    return b"".join((header, values[:2].tobytes(), pack_bits(numbers.view(np.uint64), bits + 1)))


def _differences(values: NDArray[Any]) -> NDArray[Any]:
    """Signed, exact, and in a type that holds their differences too; refused where 64 bits do not do."""
    if values.itemsize < 8:
        wide = values.astype("<i8" if values.itemsize == 4 else "<i4")
        narrow: NDArray[Any] = np.subtract(wide[1:], wide[:-1])
        return narrow
    return _checked(values)


def _checked(values: NDArray[Any]) -> NDArray[np.int64]:
    result: NDArray[np.int64] = np.subtract(values[1:], values[:-1]).view(np.int64)
    if ((values[1:] >= values[:-1]) != (result >= 0)).any():
        raise InvalidRequestError(
            "double delta: elements lie too far apart for their differences to fit in 64 bits; "
            "use another filter, for instance delta"
        )
    return result


def _decoded(stored: Bytes, size: int, dtype: np.dtype[Any]) -> Bytes:
    if not size:
        return b""
    if len(stored) < _HEADER.size:
        raise CorruptionError(f"double delta: {len(stored)} bytes stored; a header has {_HEADER.size}")
    bits, count = _HEADER.unpack_from(stored)
    if count * dtype.itemsize != size:
        raise CorruptionError(f"double delta: {count} elements do not make {size} bytes")
    packed = 0 if count <= 2 or _is_raw(bits, dtype) else count - 2
    body = memoryview(stored)[_HEADER.size :]
    plain_size = size - packed * dtype.itemsize
    if len(body) != plain_size + stream_size(packed, bits + 1):
        raise CorruptionError(f"double delta: {len(body)} bytes stored for {count} elements of {bits} bits")
    if not packed:
        return body
    unsigned = np.dtype(f"<u{dtype.itemsize}")
    if bits == 0:
        # Quirk: releases before 2.0 store elements at equal distances as signs without a magnitude.
        first, second = np.frombuffer(body, unsigned, 2)[:, np.newaxis]
        return as_piece(first + np.arange(count).astype(unsigned) * (second - first))
    target = np.empty(size, np.uint8)
    _restore(as_array(body)[None], bits, target[None], unsigned)
    return as_piece(target)


def _restore(bodies: NDArray[np.uint8], bits: int, out: NDArray[np.uint8], unsigned: np.dtype[Any]) -> None:
    """Parts of as many elements and bits each, one in a row: two elements and a stream, to all elements."""
    n, target = len(out), out.view(unsigned)
    packed = target.shape[1] - 2
    target[:, :2] = bodies[:, : 2 * unsigned.itemsize].view(unsigned)
    rows = _seconds(unpack_bits(bodies[:, 2 * unsigned.itemsize :], packed, bits + 1), bits, unsigned)
    _accumulate(rows, target[:, 1] - target[:, 0])
    _accumulate(rows, target[:, 1])
    groups, rest = divmod(packed, 8)
    cells = target[:, 2 : 2 + 8 * groups].reshape(n, groups, 8)
    copy_rows(rows[..., :groups], cells.transpose(2, 0, 1))
    target[:, 2 + 8 * groups :] = rows[:rest, :, -1].T


def _seconds(rows: NDArray[Any], bits: int, unsigned: np.dtype[Any]) -> NDArray[Any]:
    """Sign and magnitude, at the top of each lane, as two's complement of the elements' width."""
    lane_bits = 8 * rows.itemsize
    signed = np.dtype(f"<i{rows.itemsize}")
    signs = rows.view(signed) >> (lane_bits - 1)  # 0, or all ones
    np.left_shift(rows, 1, rows)
    np.right_shift(rows, lane_bits - bits, rows)
    result = rows.view(signed)
    np.bitwise_xor(result, signs, result)
    np.subtract(result, signs, result)
    return result.astype(unsigned, copy=False)


def _accumulate(rows: NDArray[Any], start: NDArray[Any]) -> None:
    """Running sums from `start` on, in place, where [j, i] has the items j, 8 + j, 16 + j, … of part i.

    Sums of eight are whole-row additions; only their totals need a running sum proper, which numpy does
    one by one.
    """
    for j in range(1, 8):
        np.add(rows[j], rows[j - 1], rows[j])
    carry = np.empty(rows.shape[1:], rows.dtype)
    carry[:, 0] = start
    carry[:, 1:] = rows[7, :, :-1]
    np.add(rows, np.add.accumulate(carry, axis=1, dtype=rows.dtype), rows)
