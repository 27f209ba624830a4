"""Between the pieces of a chunk and numpy arrays, and the plainest metadata block: a list of part sizes.

offset  size  field
     0     4  parts
     4     4  per part: its size in the data
"""

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrazzo.errors import CorruptionError
from terrazzo.format.filters.base import MOST_PARTS, Parts, few, joined, within
from terrazzo.format.wire import Bytes

_COUNT = struct.Struct("<I")
_SINGLE = struct.Struct("<II")


def as_array(piece: Bytes, dtype: np.dtype[Any] | type = np.uint8) -> NDArray[Any]:
    """The whole items of `piece`, read-only and not copied."""
    resolved = np.dtype(dtype)
    count = len(piece) // resolved.itemsize
    # numpy refuses to look at a buffer of no bytes
    return np.frombuffer(piece, resolved, count) if count else np.empty(0, resolved)


def as_piece(array: NDArray[Any]) -> memoryview:
    """The bytes of a contiguous array, not copied."""
    return array.reshape(-1).view(np.uint8).data


def copy_rows(source: NDArray[Any], target: NDArray[Any]) -> None:
    """A few long rows, either of them a transpose: numpy moves words well through it, bytes row by row."""
    if target.itemsize >= 4:
        target[...] = source
    else:
        for k in range(len(target)):
            target[k] = source[k]


def trimmed(metadata: Bytes, size: int) -> tuple[Bytes, ...]:
    """What is left behind a block of `size` bytes, as the metadata of a chunk."""
    return (memoryview(metadata)[size:],) if len(metadata) > size else ()


def pack_sizes(sizes: list[int]) -> bytes:
    return struct.pack(f"<I{len(sizes)}I", len(sizes), *sizes)


def take_sizes(parts: Parts, limit: int) -> tuple[tuple[int, ...], tuple[Bytes, ...], Bytes]:
    """The listed sizes, which add up to the data; the metadata behind the list; the data."""
    metadata, data = joined(parts.metadata), joined(parts.data)
    if len(metadata) < _COUNT.size:
        raise CorruptionError(f"{len(metadata)} bytes of metadata; a list of parts takes 4 at least")
    (count,) = _COUNT.unpack_from(metadata)
    end = _COUNT.size * (count + 1)
    if end > len(metadata):
        raise CorruptionError(f"{count} part sizes do not fit in {len(metadata)} bytes of metadata")
    if count == 1:
        sizes = _SINGLE.unpack_from(metadata)[1:]
    else:
        listed = np.frombuffer(metadata, "<u4", count, _COUNT.size)
        listed = listed[listed > 0]
        few(len(listed), "parts", 2 * MOST_PARTS)  # bit shuffle makes two of one
        sizes = tuple(listed.tolist())
    if sum(sizes) != len(data):
        raise CorruptionError(f"parts of {sum(sizes)} bytes in {len(data)} bytes of data")
    within(len(metadata) - end + len(data), limit, "a chunk")
    return sizes, trimmed(metadata, end), data
