"""Bit-width reduction: per window, how far each element is above the least, in 8, 16 or 32 bits.

    offset  size  field, in front of the metadata that came in
         0     4  bytes of all windows before reduction
         4     4  windows
         8   T+5  per window: T its least element, u8 bits, u32 its bytes before reduction

Takes integers of 2, 4 and 8 bytes, and since format 20 dates and times; other types pass untouched and
without metadata. A window that gains nothing, or whose bytes are no whole elements, is copied; its bits
are then the element's own.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from terrazzo.errors import CorruptionError
from terrazzo.format.filters.base import Element, FilterCode, Parts, joined, within
from terrazzo.format.filters.pieces import as_array, as_piece, trimmed
from terrazzo.format.filters.windows import Windowed, equal_runs, is_windowed_date, window_size
from terrazzo.format.wire import Bytes, Cursor

_HEADER = struct.Struct("<II")


def _units(itemsize: int) -> NDArray[np.int64]:
    bits = np.arange(256)
    return np.where(bits >= 8 * itemsize, itemsize, np.where(np.isin(bits, (8, 16, 32)), bits // 8, 0))


# A window takes as many units, of one byte per element, as its numbers have bytes. By the size of an
# element: the units for stored bits; 0 for bits that cannot be.
_UNITS = {itemsize: _units(itemsize) for itemsize in (2, 4, 8)}


@dataclass(frozen=True, slots=True)
class BitWidthReduction(Windowed):
    code: ClassVar = FilterCode.BIT_WIDTH_REDUCTION
    head: ClassVar = _HEADER.size
    entry: ClassVar = 5

    max_window: int = 256

    @staticmethod
    def takes(element: Element) -> bool:
        datatype = element.datatype
        return datatype.size > 1 and (datatype.is_integer or is_windowed_date(datatype, element.version))

    def encode_windows(self, parts: Parts, dtype: np.dtype[Any]) -> Parts:
        reduced = [_reduced_piece(piece, dtype, self.max_window) for piece in parts.data]
        tables = [table for piece in reduced for table, _ in piece]
        header = _HEADER.pack(sum(map(len, parts.data)), sum(map(len, tables)))
        block = b"".join((header, *(table.tobytes() for table in tables)))
        data = tuple(stored for piece in reduced for _, stored in piece)
        return Parts((block, *parts.metadata), (joined(data),))

    def decode_windows(self, parts: Parts, dtype: np.dtype[Any], limit: int) -> Parts:
        metadata, data = joined(parts.metadata), joined(parts.data)
        table, metadata_rest = _table(metadata, dtype, limit)
        sizes, units = table["size"].astype(np.int64), _UNITS[dtype.itemsize][table["bits"]]
        if (ragged := sizes & (dtype.itemsize - 1)).any():
            units[ragged > 0] = dtype.itemsize
        if not units.all():
            raise CorruptionError("bit-width reduction: a window's bits are none of 8, 16, 32 and 64")
        ends = np.cumsum(sizes * units) // dtype.itemsize  # of the windows as stored
        if (ends[-1] if len(ends) else 0) != len(data):
            raise CorruptionError(f"bit-width reduction: {len(data)} bytes of data do not fill the windows")
        source, target = as_array(data), np.empty(int(sizes.sum()), np.uint8)
        begin = start = 0
        for first, end in equal_runs(sizes):
            done, used = start + int(sizes[first]) * (end - first), int(ends[end - 1])
            run = slice(first, end)
            if sizes[first] % dtype.itemsize:
                target[start:done] = source[begin:used]
            else:
                rows = target[start:done].view(dtype).reshape(end - first, -1)
                _restore(source[begin:used], table["offset"][run], units[run], rows)
            begin, start = used, done
        return Parts(metadata_rest, (as_piece(target),))


def _entry(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype([("offset", dtype), ("bits", "u1"), ("size", "<u4")])


def _narrow(dtype: np.dtype[Any], width: int) -> np.dtype[Any]:
    return np.dtype(f"<{dtype.kind}{width}")


def _table(metadata: Bytes, dtype: np.dtype[Any], limit: int) -> tuple[NDArray[Any], tuple[Bytes, ...]]:
    cursor = Cursor(metadata)
    total, count = cursor.unpack(_HEADER)
    entry = _entry(dtype)
    if count * entry.itemsize > cursor.remaining:
        raise CorruptionError(f"{count} windows do not fit in {cursor.remaining} bytes of metadata")
    table = cursor.array(entry, count)
    if (claimed := int(table["size"].sum(dtype=np.int64))) != total:
        raise CorruptionError(f"bit-width reduction: windows of {claimed} bytes make a chunk of {total}")
    within(total + cursor.remaining, limit, "a chunk")
    return table, trimmed(metadata, cursor.position)


def _reduced_piece(piece: Bytes, dtype: np.dtype[Any], max_window: int) -> list[tuple[NDArray[Any], Bytes]]:
    """(table, data) of the windows of one size, then of the shorter last one."""
    size = window_size(len(piece), max_window, dtype.itemsize)
    whole = len(piece) // size * size if size else 0
    result = []
    if whole:
        result.append(_reduced(as_array(piece, dtype)[: whole // dtype.itemsize].reshape(whole // size, -1)))
    if rest := len(piece) - whole:
        tail = memoryview(piece)[whole:]
        if rest % dtype.itemsize:
            result.append((np.array([(0, 8 * dtype.itemsize, rest)], _entry(dtype)), tail))
        else:
            result.append(_reduced(as_array(tail, dtype).reshape(1, -1)))
    return result


def _reduced(rows: NDArray[Any]) -> tuple[NDArray[Any], Bytes]:
    """The table and the data of windows that are rows."""
    dtype = rows.dtype
    least = rows.min(axis=1)
    spread = (rows.max(axis=1) - least).view(f"<u{dtype.itemsize}")  # exact, even where dtype wraps
    units = np.full(len(rows), dtype.itemsize)
    for width in (4, 2, 1):
        if width < dtype.itemsize:
            # Quirk: the largest value of the narrow type is not used.
            units[spread < np.iinfo(_narrow(dtype, width)).max] = width
    table = np.empty(len(rows), _entry(dtype))
    table["offset"], table["bits"], table["size"] = least, 8 * units, rows.shape[1] * dtype.itemsize
    if (units == units[0]).all():
        return table, as_piece(_above(rows, least, int(units[0])))
    ends = np.cumsum(units)
    target = np.empty((ends[-1], rows.shape[1]), np.uint8)
    for width, chosen in _by_width(units):
        stored = _above(rows[chosen], least[chosen], width).view(np.uint8)
        places = (ends[chosen] - width)[:, None] + np.arange(width)
        target[places.reshape(-1)] = stored.reshape(-1, rows.shape[1])
    return table, as_piece(target)


def _by_width(units: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Each width that occurs, with the windows that have it."""
    for width in (1, 2, 4, 8):
        if len(chosen := np.flatnonzero(units == width)):
            yield width, chosen


def _above(rows: NDArray[Any], least: NDArray[Any], width: int) -> NDArray[Any]:
    if width == rows.itemsize:
        return rows
    above: NDArray[Any] = np.subtract(rows, least[:, None])
    return above.astype(_narrow(rows.dtype, width))


def _restore(source: NDArray[np.uint8], least: NDArray[Any], units: NDArray[Any], rows: NDArray[Any]) -> None:
    """The inverse of `_reduced`, into `rows`."""
    if not rows.size:
        return
    if (units == units[0]).all():
        _raise(source, least, int(units[0]), rows)
        return
    ends = np.cumsum(units)
    table = source.reshape(-1, rows.shape[1])
    for width, chosen in _by_width(units):
        places = (ends[chosen] - width)[:, None] + np.arange(width)
        part = np.empty((len(chosen), rows.shape[1]), rows.dtype)
        _raise(table.take(places.reshape(-1), axis=0).reshape(-1), least[chosen], width, part)
        rows[chosen] = part


def _raise(source: NDArray[np.uint8], least: NDArray[Any], width: int, rows: NDArray[Any]) -> None:
    stored = source.view(_narrow(rows.dtype, width)).reshape(rows.shape)
    if width == rows.itemsize:
        rows[...] = stored
    else:
        np.add(stored, least[:, None], rows, dtype=rows.dtype)
