"""Float scaling: (x - offset) / scale, rounded, as an integer of 1, 2, 4 or 8 bytes. What it rounds is lost.

Metadata: the list of part sizes (see pieces), after conversion, in front of what came in.

    size  option
       8  scale, f64
       8  offset, f64
       8  bytes of a stored integer, u64
"""

import struct
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from terrazzo.errors import CorruptionError, InvalidRequestError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.base import MOST_PARTS, Element, FilterCode, Parts, joined, within
from terrazzo.format.filters.pieces import as_array, as_piece, pack_sizes, take_sizes
from terrazzo.format.wire import Bytes, Cursor

_OPTIONS = struct.Struct("<ddQ")
_INTEGERS = {1: Datatype.INT8, 2: Datatype.INT16, 4: Datatype.INT32, 8: Datatype.INT64}


@dataclass(frozen=True, slots=True)
class ScaleFloat:
    scale: float = 1.0
    offset: float = 0.0
    byte_width: int = 8

    code: ClassVar[FilterCode] = FilterCode.SCALE_FLOAT

    def __post_init__(self) -> None:
        if self.byte_width not in _INTEGERS:
            raise InvalidRequestError(f"integers of {self.byte_width} bytes; float scaling has 1, 2, 4 and 8")

    def output_type(self, datatype: Datatype) -> Datatype:  # noqa: ARG002
        return _INTEGERS[self.byte_width]

    def encode(self, parts: Parts, element: Element) -> Parts:
        floating = _floating(element.datatype)
        if floating is None:
            raise InvalidRequestError(
                f"float scaling takes elements of 4 or 8 bytes, not {element.datatype.name.lower()}"
            )
        pieces = tuple(self._scaled(piece, floating) for piece in parts.data)
        return Parts((pack_sizes([*map(len, pieces)]), *parts.metadata), (joined(pieces),))

    def _scaled(self, piece: Bytes, floating: np.dtype[Any]) -> Bytes:
        if len(piece) % floating.itemsize:
            raise InvalidRequestError(
                f"float scaling takes whole elements of {floating.itemsize} bytes; a part has {len(piece)}"
            )
        number = floating.type
        with np.errstate(all="ignore"):  # what overflows is refused below
            scaled = (as_array(piece, floating) - number(self.offset)) / number(self.scale)
            rounded = _rounded(scaled)
        # The largest integer may not exist as a float; the power of two above it always does.
        edge = number(2.0 ** (8 * self.byte_width - 1))
        if not ((rounded >= -edge) & (rounded < edge)).all():
            raise InvalidRequestError(
                f"float scaling: NaN, or a value that scale {self.scale:g} and offset {self.offset:g} "
                f"do not bring into {self.byte_width} bytes"
            )
        return as_piece(rounded.astype(f"<i{self.byte_width}"))

    def decode(self, parts: Parts, element: Element, limit: int) -> Parts:
        floating = _floating(element.datatype)
        if floating is None:
            raise CorruptionError(f"float scaling on {element.datatype.name.lower()}, which it does not take")
        # Stored integers may be wider or narrower than the floats; the list of sizes is not.
        sizes, metadata, data = take_sizes(parts, max(limit, parts.size))
        if any(size % self.byte_width for size in sizes):
            raise CorruptionError(f"parts of {sizes} bytes behind float scaling to {self.byte_width} bytes")
        count = len(data) // self.byte_width
        within(sum(map(len, metadata)) + count * floating.itemsize, limit, "a chunk")
        # Quirk: integers become floats of the element's precision first, then all is double precision.
        values = as_array(data, np.dtype(f"<i{self.byte_width}")).astype(floating).astype("<f8", copy=False)
        with np.errstate(all="ignore"):
            return Parts(metadata, (as_piece((values * self.scale + self.offset).astype(floating)),))

    def bound(self, size: int, element: Element) -> int:
        # metadata, which is not converted, may be all of `size`
        return max(size, size * self.byte_width // element.datatype.size) + 4 + 4 * MOST_PARTS

    def pack_options(self) -> bytes:
        return _OPTIONS.pack(self.scale, self.offset, self.byte_width)

    @classmethod
    def unpack_options(cls, cursor: Cursor, version: int) -> Self:  # noqa: ARG003
        scale, offset, byte_width = cursor.unpack(_OPTIONS)
        if byte_width not in _INTEGERS:
            raise CorruptionError(f"float scaling to {byte_width} bytes", offset=cursor.offset - 8)
        return cls(scale, offset, byte_width)


def _floating(datatype: Datatype) -> np.dtype[Any] | None:
    """Quirk: any type of 4 or 8 bytes is taken, and its bytes for floats."""
    return np.dtype(f"<f{datatype.size}") if datatype.size >= 4 else None


def _rounded(values: NDArray[Any]) -> NDArray[Any]:
    """To the nearest integer, halves away from zero; exact, since what trunc cuts off is."""
    whole = np.trunc(values)
    result: NDArray[Any] = whole + np.trunc(2 * (values - whole))
    return result
