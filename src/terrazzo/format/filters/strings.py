"""Variable-length strings as the string forms of RLE and dictionary see them: bytes, and where each starts.

Both forms store sequences of (big-endian numbers, string bytes) without saying where the strings are.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from terrazzo.errors import CorruptionError, InvalidRequestError
from terrazzo.format.wire import Bytes

LARGEST = 0xFFFF_FFFF


def arrow_of(data: Bytes, offsets: NDArray[np.uint64]) -> Any:
    """The strings as an Arrow array over the same bytes; `offsets` has no closing element."""
    bounds = np.empty(len(offsets) + 1, np.int64)
    bounds[:-1] = offsets
    bounds[-1] = len(data)
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(offsets), [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )


def bounds_and_bytes(strings: Any) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Where strings start and the last one ends, from 0 on, and all their bytes."""
    _, offsets, data = strings.buffers()
    start = strings.offset
    bounds = np.frombuffer(offsets, np.int64)[start : start + len(strings) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return bounds - bounds[0], content[bounds[0] : bounds[-1]]


def width_of(largest: int) -> int:
    """Bytes of the smallest number that holds `largest`."""
    return next(width for width in (1, 2, 4, 8) if largest < 1 << 8 * width)


def checked_width(width: int) -> int:
    if width not in {1, 2, 4, 8}:
        raise CorruptionError(f"numbers of {width} bytes; 1, 2, 4 or 8 expected")
    return width


def checked_size(size: int, what: str) -> int:
    if size > LARGEST:
        raise InvalidRequestError(f"{what} of a string tile take {size} bytes; a tile must stay below 4 GiB")
    return size


def big_endian(values: NDArray[Any], width: int) -> NDArray[np.uint8]:
    """One row of `width` bytes per value."""
    return values.astype(f">u{width}").view(np.uint8).reshape(-1, width)


def interleaved(heads: NDArray[np.uint8], bounds: NDArray[np.int64], content: NDArray[np.uint8]) -> bytes:
    """Each row of `heads`, followed by its string."""
    n, head = heads.shape
    out = np.empty(n * head + len(content), np.uint8)
    is_string = np.ones(len(out), np.bool_)
    starts = bounds[:-1] + np.arange(0, n * head, head, dtype=np.int64)
    for column in range(head):  # at most 16 columns, each for all strings at once
        out[starts + column] = heads[:, column]
        is_string[starts + column] = False
    out[is_string] = content
    return out.tobytes()


def string_starts(stored: bytes, skip: int, width: int) -> NDArray[np.int64]:
    """Where entries start: each `skip` bytes · `width` bytes length, big-endian · string, without remainder.

    An entry says where the next one is, so this walk is sequential. Following all possible links by doubling
    is slower (20 passes over every byte) than a loop of one addition per entry, unless all strings are
    equally long, which one vector comparison tells.
    """
    size, head = len(stored), skip + width
    if size < head:
        if size:
            raise CorruptionError(f"{size} bytes are no entry of a string; it has {head} at least")
        return np.empty(0, np.int64)
    step = head + int.from_bytes(stored[skip:head], "big")
    if size % step == 0:
        lengths = np.frombuffer(stored, np.uint8).reshape(-1, step)[:, skip:head]
        if (lengths == lengths[0]).all():
            return np.arange(0, size, step, dtype=np.int64)
    starts, start = [], 0
    if width == 1:
        last = size - head
        while start <= last:
            starts.append(start)
            start += head + stored[start + skip]
    else:
        number = int.from_bytes
        last = size - head
        while start <= last:
            starts.append(start)
            start += head + number(stored[start + skip : start + head], "big")
    if start != size:
        raise CorruptionError(f"the last of {len(starts)} strings ends at byte {start} of {size}")
    return np.array(starts, np.int64)


def picked(
    stored: Bytes, starts: NDArray[np.int64], head: int, ids: NDArray[np.int64], size: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
    """The strings `ids` of the entries at `starts`, `size` bytes together, and their offsets."""
    bounds = np.empty(2 * len(starts) + 1, np.int64)
    bounds[:-1:2] = starts
    bounds[1::2] = starts + head
    bounds[-1] = len(stored)
    lengths = bounds[2::2] - bounds[1:-1:2]
    total = int(lengths[ids].sum()) if len(ids) else 0
    if total != size:
        raise CorruptionError(f"strings of {total} bytes; {size} expected")
    # Every entry is two Arrow values, its numbers and its string: nothing is copied to leave the numbers out.
    entries = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), 2 * len(starts), [None, pa.py_buffer(bounds), pa.py_buffer(stored)]
    )
    out, content = bounds_and_bytes(entries.take(pa.array(2 * ids + 1)))
    return content, out[:-1].view(np.uint64)
