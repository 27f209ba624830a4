"""Delta: the first element, then the differences, wrapped in the type of the elements.

Each part, metadata parts too, becomes one of these behind the compressors' block (see absorb):

    offset  size  field
         0     8  elements
         8     T  per element: its difference to the one before; the first, to 0
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from terrazzo.errors import CorruptionError
from terrazzo.format import versions
from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters import differences
from terrazzo.format.filters.absorb import absorb, release, single_block
from terrazzo.format.filters.base import MOST_PARTS, Element, FilterCode, Parts
from terrazzo.format.filters.pieces import as_array, as_piece
from terrazzo.format.wire import U64, Bytes, Cursor

_COMPRESSOR = 8


@dataclass(frozen=True, slots=True)
class Delta:
    reinterpret: Datatype | None = None
    level: int = -1

    code: ClassVar[FilterCode] = FilterCode.DELTA

    def __post_init__(self) -> None:
        differences.check_options(self.level, self.reinterpret)

    def output_type(self, datatype: Datatype) -> Datatype:
        return datatype if self.reinterpret is None else self.reinterpret

    def encode(self, parts: Parts, element: Element) -> Parts:
        dtype = differences.encoded_as("delta", self.reinterpret, element.datatype)
        return absorb(parts, partial(_encoded, dtype=dtype))

    def decode(self, parts: Parts, element: Element, limit: int) -> Parts:
        dtype = differences.decoded_as("delta", self.reinterpret, element.datatype)
        return release(parts, partial(_decoded, dtype=dtype), limit)

    def stacked(self, size: int, stored: int, element: Element) -> bytes | None:
        dtype = differences.counted_as(self.reinterpret, element.datatype)
        if dtype is None or not size or size % dtype.itemsize or stored != U64.size + size:
            return None
        return single_block(size, stored)

    def decode_stack(self, rows: NDArray[np.uint8], out: NDArray[np.uint8], element: Element) -> None:
        dtype = differences.decoded_as("delta", self.reinterpret, element.datatype)
        if (rows[:, : U64.size] != np.frombuffer(U64.pack(out.shape[1] // dtype.itemsize), np.uint8)).any():
            raise CorruptionError(f"delta: the count of elements does not make {out.shape[1]} bytes")
        np.add.accumulate(rows[:, U64.size :].view(dtype), axis=1, dtype=dtype, out=out.view(dtype))

    def bound(self, size: int, element: Element) -> int:  # noqa: ARG002
        return size + 8 + MOST_PARTS * 24

    def pack_options(self) -> bytes:
        return differences.pack_options(_COMPRESSOR, self.level, self.reinterpret)

    @classmethod
    def unpack_options(cls, cursor: Cursor, version: int) -> Self:
        reinterprets = version >= versions.DELTA_REINTERPRET
        return cls(*differences.unpack_options(cursor, _COMPRESSOR, reinterprets=reinterprets))


def _encoded(piece: Bytes, dtype: np.dtype[Any]) -> Bytes:
    differences.check_whole("delta", len(piece), dtype)
    values = as_array(piece, dtype)
    if not len(values):
        # Quirk: libtiledb stores a first element even where there is none.
        return bytes(U64.size + dtype.itemsize)
    stored = np.empty(U64.size + len(piece), np.uint8)
    stored[: U64.size].view("<u8")[0] = len(values)
    deltas = stored[U64.size :].view(dtype)
    deltas[0] = values[0]
    np.subtract(values[1:], values[:-1], out=deltas[1:])
    return as_piece(stored)


def _decoded(stored: Bytes, size: int, dtype: np.dtype[Any]) -> Bytes:
    if not size:
        return b""
    if len(stored) < U64.size or U64.unpack_from(stored)[0] * dtype.itemsize != size:
        raise CorruptionError(f"delta: the count of elements does not make {size} bytes")
    if len(stored) != U64.size + size:
        raise CorruptionError(f"delta: {len(stored)} bytes stored for elements of {size} bytes")
    deltas = np.frombuffer(stored, dtype, offset=U64.size)
    return as_piece(np.add.accumulate(deltas, dtype=dtype))
