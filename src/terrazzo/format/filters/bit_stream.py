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


def stream_size(count: int, width: int) -> int:
    """Bytes that `count` numbers of `width` bits take."""
    return (count * width + 63) // 64 * 8


def unpack_bits(streams: NDArray[np.uint8], count: int, width: int) -> NDArray[Any]:
    """`count` numbers out of each of several streams. [j, i] has the numbers j, 8 + j, 16 + j, … of stream i, each moved
    up to the top bit of its lane.

    Lanes are as wide as a number at any bit of a byte needs; what is below a number is undefined, and so
    are numbers past the last. `width` is 1 to 63, and a stream has `stream_size` bytes in one piece.
    """
    lane = np.dtype("<u2" if width <= 9 else "<u4" if width <= 25 else "<u8")
    groups, (n, size) = -(-count // 8), streams.shape
    turned = np.zeros((n, max(groups * width, size) + 16), np.uint8)
    turned[:, :size].view("<u8")[:] = streams.view(">u8")
    rows, stored_lane = np.empty((8, n, groups), lane), lane.newbyteorder(">")
    steps = (turned.shape[1], width)
    for j in range(8):
        rows[j] = np.ndarray((n, groups), stored_lane, turned, j * width // 8, steps)
        if shift := j * width % 8:
            rows[j] <<= shift
            if (
                shift + width > 64
            ):  # numbers this wide reach beyond the eight bytes that a lane was loaded from
                ninth = np.ndarray((n, groups), np.uint8, turned, j * width // 8 + 8, steps)
                rows[j] |= ninth >> np.uint8(8 - shift)
    return rows


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
