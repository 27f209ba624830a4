"""Windows: bit-width reduction and positive delta look at a part in stretches of a few elements."""

from abc import abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from terrazzo.errors import InvalidRequestError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.base import MOST_PARTS, Element, FilterCode, Parts, few, within
from terrazzo.format.versions import WINDOW_FILTERS_ON_DATES
from terrazzo.format.wire import U32, Cursor

_LARGEST = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class Windowed:
    """What the filters share that keep a table of windows: types that they do not take pass untouched."""

    code: ClassVar[FilterCode]
    head: ClassVar[int]  # bytes in front of the table
    entry: ClassVar[int]  # bytes of a window in the table, besides an element

    max_window: int  # bytes

    def __post_init__(self) -> None:
        if not 0 <= self.max_window <= _LARGEST:
            raise InvalidRequestError(f"a window of {self.max_window} bytes; it is a number of 32 bits")

    @staticmethod
    @abstractmethod
    def takes(element: Element) -> bool: ...

    @abstractmethod
    def encode_windows(self, parts: Parts, dtype: np.dtype[Any]) -> Parts: ...

    @abstractmethod
    def decode_windows(self, parts: Parts, dtype: np.dtype[Any], limit: int) -> Parts: ...

    def output_type(self, datatype: Datatype) -> Datatype:
        return datatype

    def encode(self, parts: Parts, element: Element) -> Parts:
        return self.encode_windows(parts, element.datatype.dtype) if self.takes(element) else parts

    def decode(self, parts: Parts, element: Element, limit: int) -> Parts:
        if not self.takes(element):
            within(parts.size, limit, "a chunk")
            return parts
        return self.decode_windows(parts, element.datatype.dtype, limit)

    def bound(self, size: int, element: Element) -> int:
        if not self.takes(element):
            return size
        width = element.datatype.size
        window = max(self.max_window // width * width, width)
        return size + self.head + (size // window + 2 * MOST_PARTS) * (width + self.entry)

    def pack_options(self) -> bytes:
        return U32.pack(self.max_window)

    @classmethod
    def unpack_options(cls, cursor: Cursor, version: int) -> Self:  # noqa: ARG003
        return cls(cursor.u32())


def window_size(size: int, max_window: int, width: int) -> int:
    """Bytes of every window but the last of a part: whole elements; 0 where none fits the part."""
    if max_window < width:
        raise InvalidRequestError(f"a window of {max_window} bytes holds no element of {width} bytes")
    return min(size, max_window) // width * width


def is_windowed_date(datatype: Datatype, version: int) -> bool:
    return version >= WINDOW_FILTERS_ON_DATES and (datatype.is_datetime or datatype.is_time)


def equal_runs(sizes: NDArray[Any]) -> list[tuple[int, int]]:
    """(first, end) of each longest run of equal sizes: usually all windows, or all and a shorter last."""
    cuts = (np.flatnonzero(sizes[1:] != sizes[:-1]) + 1).tolist()
    few(len(cuts), "changes of window size", 2 * MOST_PARTS)
    edges = [0, *cuts, len(sizes)]
    return list(pairwise(edges)) if len(sizes) else []
