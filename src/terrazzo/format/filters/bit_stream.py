"""Numbers of a few bits each, packed into 64-bit words.

A word is filled from its most significant bit down and stored little-endian; a number may straddle two
words, and the last word is stored whole. With its words' bytes turned round, the stream is one big-endian
row of bits, and eight numbers take exactly as many bytes as one takes bits: that is what unpacking uses.
Packing goes by the larger unit: 64 numbers take exactly as many words as one takes bits.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrazzo.format.wire import Bytes


def stream_size(count: int, width: int) -> int:
    """Bytes that `count` numbers of `width` bits take."""
    return (count * width + 63) // 64 * 8


def unpack_bits(stored: Bytes, count: int, width: int) -> NDArray[Any]:
    """Row j has the numbers j, 8 + j, 16 + j, …, each moved up to the top bit of its lane.

    Lanes are as wide as a number at any bit of a byte needs; what is below a number is undefined, and so
    are numbers past the last. `width` is 1 to 63, and `stored` has `stream_size` bytes.
    """
    lane = np.dtype("<u2" if width <= 9 else "<u4" if width <= 25 else "<u8")
    groups = -(-count // 8)
    stream = np.zeros(max(groups * width, len(stored)) + 16, np.uint8)
    stream[: len(stored)].view("<u8")[:] = np.frombuffer(stored, ">u8")
    rows, stored_lane = np.empty((8, groups), lane), lane.newbyteorder(">")
    for j in range(8):
        rows[j] = np.ndarray((groups,), stored_lane, stream, j * width // 8, (width,))
        if shift := j * width % 8:
            rows[j] <<= shift
    if width > 57:
        _add_ninth_bytes(rows, stream, width)
    return rows


def _add_ninth_bytes(rows: NDArray[Any], stream: NDArray[np.uint8], width: int) -> None:
    """Some numbers this wide reach beyond the eight bytes that a lane was loaded from."""
    for j in range(8):
        shift = j * width % 8
        if shift + width > 64:
            ninth = np.ndarray((rows.shape[1],), np.uint8, stream, j * width // 8 + 8, (width,))
            rows[j] |= ninth >> np.uint8(8 - shift)


def pack_bits(numbers: NDArray[Any], width: int) -> bytes:
    """Unsigned 64-bit numbers below 2**width, width 1 to 63."""
    groups = -(-len(numbers) // 64)
    padded = np.zeros((groups, 64), np.uint64)
    padded.reshape(-1)[: len(numbers)] = numbers
    up, down, firsts, straddling, rest_up = _layout(width)
    words = np.bitwise_or.reduceat(padded << up >> down, firsts, axis=1)
    words[:, 1:] |= padded.take(straddling, axis=1) << rest_up
    return words.tobytes()[: stream_size(len(numbers), width)]


@lru_cache(maxsize=64)
def _layout(width: int) -> tuple[NDArray[Any], ...]:
    """How 64 numbers fall into `width` words: shifts of each number into the word it starts in; for each
    word the first number that starts there; for each but the first, the number that reaches into it, and
    the shift of its rest (64, which leaves nothing, where none does)."""
    starts = np.arange(64) * width
    ups = 64 - width - starts % 64  # negative where the number straddles
    firsts = np.searchsorted(starts, np.arange(width) * 64)
    last_before = firsts[1:] - 1
    rest = np.where(ups[last_before] < 0, 64 + ups[last_before], 64)
    shifts = (np.maximum(ups, 0), np.maximum(-ups, 0))
    return (*(s.astype(np.uint64) for s in shifts), firsts, last_before, rest.astype(np.uint64))
