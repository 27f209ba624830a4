"""Positive delta: per window, the difference of each element to the one before; never a negative one.

    offset  size  field, in front of the metadata that came in
         0     4  windows
         4   T+4  per window: T its first element, u32 its bytes

The data keeps its size, and each window starts with a difference of 0. Takes integers, bytes (blob, bool,
geometry), and since format 20 dates and times; other types pass untouched and without metadata.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from terrazzo.errors import CorruptionError, InvalidRequestError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.base import Element, FilterCode, Parts, joined, within
from terrazzo.format.filters.pieces import as_array, as_piece, trimmed
from terrazzo.format.filters.windows import Windowed, equal_runs, is_windowed_date, window_size
from terrazzo.format.wire import U32, Bytes, Cursor

_AS_BYTES = {Datatype.BLOB, Datatype.BOOL, Datatype.GEOM_WKB, Datatype.GEOM_WKT}


@dataclass(frozen=True, slots=True)
class PositiveDelta(Windowed):
    code: ClassVar = FilterCode.POSITIVE_DELTA
    head: ClassVar = U32.size
    entry: ClassVar = 4

    max_window: int = 1024

    @staticmethod
    def takes(element: Element) -> bool:
        datatype = element.datatype
        return datatype.is_integer or datatype in _AS_BYTES or is_windowed_date(datatype, element.version)

    def encode_windows(self, parts: Parts, dtype: np.dtype[Any]) -> Parts:
        encoded = [_encoded(piece, dtype, self.max_window) for piece in parts.data]
        count = U32.pack(sum(len(table) for table, _ in encoded))
        block = b"".join((count, *(table.tobytes() for table, _ in encoded)))
        return Parts((block, *parts.metadata), (joined(tuple(data for _, data in encoded)),))

    def decode_windows(self, parts: Parts, dtype: np.dtype[Any], limit: int) -> Parts:
        metadata, data = joined(parts.metadata), joined(parts.data)
        cursor = Cursor(metadata)
        table = cursor.array(_entry(dtype), cursor.count32(_entry(dtype).itemsize, "windows"))
        sizes = table["size"].astype(np.int64)
        if (claimed := int(sizes.sum())) != len(data):
            raise CorruptionError(f"positive delta: windows of {claimed} bytes in {len(data)} bytes of data")
        within(cursor.remaining + len(data), limit, "a chunk")
        source, target = as_array(data), np.empty(len(data), np.uint8)
        start = 0
        for first, end in equal_runs(sizes):
            done = start + int(sizes[first]) * (end - first)
            if sizes[first] % dtype.itemsize:
                target[start:done] = source[start:done]
            elif done > start:
                rows = target[start:done].view(dtype).reshape(end - first, -1)
                deltas = source[start:done].view(dtype).reshape(rows.shape)
                np.add.accumulate(deltas, axis=1, dtype=dtype, out=rows)
                np.add(rows, table["first"][first:end, None], rows)
            start = done
        return Parts(trimmed(metadata, cursor.position), (as_piece(target),))


def _entry(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype([("first", dtype), ("size", "<u4")])


def _encoded(piece: Bytes, dtype: np.dtype[Any], max_window: int) -> tuple[NDArray[Any], Bytes]:
    size = window_size(len(piece), max_window, dtype.itemsize)
    if not size:  # no element at all: what there is goes into one window that is only copied
        return np.array([(0, len(piece))] if len(piece) else [], _entry(dtype)), piece
    table = np.zeros(-(-len(piece) // size), _entry(dtype))
    table["size"] = size
    table["size"][-1] = len(piece) - size * (len(table) - 1)
    # A last window that ends within an element is only copied.
    whole = len(piece) if len(piece) % dtype.itemsize == 0 else len(piece) // size * size
    values, per_window = as_array(piece, dtype)[: whole // dtype.itemsize], size // dtype.itemsize
    rises = values[1:] >= values[:-1]
    rises[per_window - 1 :: per_window] = True  # from window to window it may fall
    if not rises.all():
        place = int(rises.argmin())
        raise InvalidRequestError(
            f"positive delta: elements fall from {values[place]} to {values[place + 1]}; "
            "it takes ascending data only"
        )
    target = np.empty(len(piece), np.uint8)
    deltas = target[:whole].view(dtype)
    np.subtract(values[1:], values[:-1], out=deltas[1:])
    deltas[::per_window] = 0
    target[whole:] = as_array(piece)[whole:]
    firsts = values[::per_window]
    table["first"][: len(firsts)] = firsts
    return table, as_piece(target)
