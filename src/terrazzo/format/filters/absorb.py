"""The block that every compressor puts in front: how long each part was, and how long it is now.

    offset  size  field
         0     4  metadata parts
         4     4  data parts
         8     8  per part, metadata parts first: u32 original size, u32 stored size

The stored parts follow each other in the data, in the same order. Each metadata part is compressed by
itself, yet comes back joined: the filter before takes its own block off the front of what it is given.
"""

import struct
from collections.abc import Callable

from terrazzo.errors import CorruptionError, InvalidRequestError
from terrazzo.format.filters.base import Parts, few, joined
from terrazzo.format.wire import Bytes

_COUNTS = struct.Struct("<II")
_SIZES = struct.Struct("<II")
_SINGLE = struct.Struct("<IIII")
_LARGEST = 0xFFFF_FFFF


def absorb(parts: Parts, compress: Callable[[Bytes], Bytes]) -> Parts:
    """All parts compressed into the data; the block is all the metadata there is."""
    originals = (*parts.metadata, *parts.data)
    stored = [compress(part) for part in originals]
    if any(len(part) > _LARGEST for part in (*originals, *stored)):
        raise InvalidRequestError("a chunk of 4 GiB or more cannot be compressed; write smaller chunks")
    block = [_COUNTS.pack(len(parts.metadata), len(parts.data))]
    block += [_SIZES.pack(len(part), len(kept)) for part, kept in zip(originals, stored, strict=True)]
    return Parts((b"".join(block),), (joined(tuple(stored)),))


def single_block(original: int, stored: int) -> bytes:
    """The usual block: no metadata, one part of data."""
    return _SINGLE.pack(0, 1, original, stored)


def release(parts: Parts, decompress: Callable[[Bytes, int], Bytes], limit: int) -> Parts:
    """The inverse: `decompress(stored, original size)` must return just as many bytes.

    Nothing is decompressed before every size has been held against the data at hand and `limit`.
    """
    block, data = joined(parts.metadata), joined(parts.data)
    if len(block) == _SINGLE.size:
        n_metadata, n_data, original, stored = _SINGLE.unpack(block)
        if n_metadata == 0 and n_data == 1:  # nearly every chunk: no lists, no slices
            _check(original, stored, len(data), limit)
            return Parts((), (_restored(data, original, decompress),))
    return _release_each(block, data, decompress, limit)


def _release_each(block: Bytes, data: Bytes, decompress: Callable[[Bytes, int], Bytes], limit: int) -> Parts:
    if len(block) < _COUNTS.size:
        raise CorruptionError(f"a compressor's block of {len(block)} bytes; it has {_COUNTS.size} at least")
    n_metadata, n_data = _COUNTS.unpack_from(block)
    few(n_metadata + n_data, "compressed parts")
    if len(block) != _COUNTS.size + _SIZES.size * (n_metadata + n_data):
        raise CorruptionError(
            f"a compressor's block of {len(block)} bytes for {n_metadata} metadata and {n_data} data parts"
        )
    sizes = list(_SIZES.iter_unpack(memoryview(block)[_COUNTS.size :]))
    _check(sum(size for size, _ in sizes), sum(size for _, size in sizes), len(data), limit)
    view, start, pieces = memoryview(data), 0, []
    for original, stored in sizes:
        pieces.append(_restored(view[start : start + stored], original, decompress))
        start += stored
    metadata = joined(tuple(pieces[:n_metadata]))
    return Parts((metadata,) if metadata else (), (joined(tuple(pieces[n_metadata:])),))


def _check(original: int, stored: int, size: int, limit: int) -> None:
    if stored != size:
        raise CorruptionError(f"compressed parts of {stored} bytes in {size} bytes of data")
    if original > limit:
        raise CorruptionError(f"compressed parts claim {original} bytes; at most {limit} are possible")


def _restored(stored: Bytes, original: int, decompress: Callable[[Bytes, int], Bytes]) -> Bytes:
    piece = decompress(stored, original)
    if len(piece) != original:
        raise CorruptionError(f"a part of {original} bytes decompresses to {len(piece)}")
    return piece
