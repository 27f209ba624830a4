"""Texts as numbers that sort as their bytes do."""

import numpy as np
from numpy.typing import NDArray

from terrazzo.engine.buffers import integers
from terrazzo.engine.columns import Column
from terrazzo.engine.runner import run_blocks

_U64 = np.uint64
_WORD = 8
_LONG = 4 * _WORD  # more words than that cost more than ranks
_SAMPLE = 1 << 16


def text_numbers(column: Column) -> list[NDArray[np.uint64]]:
    """Numbers per text, the most significant first. Texts that are short and seem to differ mostly are taken by their
    bytes; others are ranked, which leaves more room for the numbers of other dimensions."""
    assert column.offsets is not None
    sizes = np.diff(column.offsets)
    longest = int(sizes.max(initial=0))
    if longest > _LONG or _mostly_alike(column):
        return [_ranks(column)]
    numbers = [np.empty(len(column), _U64) for _ in range(0, longest, _WORD)]
    spare = -longest % _WORD

    def fill(start: int, stop: int) -> None:
        part = column.slice(start, stop)
        for place, out in enumerate(numbers):
            out[start:stop] = word(part, place * _WORD)
        numbers[-1][start:stop] >>= _U64(8 * spare)

    if numbers:
        run_blocks(len(column), fill)
    if not (column.values != 0).all():
        # Of two that differ only in zeros at their ends, the shorter comes first.
        numbers.append(sizes.astype(_U64))
    return numbers or [np.zeros(len(column), _U64)]


def word(column: Column, place: int) -> NDArray[np.uint64]:
    """Eight bytes of each text from `place` on as a big-endian number, zeros behind its end."""
    assert column.offsets is not None
    starts, left = column.offsets[:-1] + place, np.diff(column.offsets) - place
    within = left > 0
    padded = np.append(column.values, np.zeros(_WORD, np.uint8))
    everywhere = np.ndarray(len(padded) - _WORD + 1, ">u8", padded, strides=(1,))
    found = everywhere[np.where(within, starts, 0)].astype(_U64)
    lost = (_WORD * (_WORD - np.clip(left, 1, _WORD))).astype(_U64)
    found >>= lost
    found <<= lost
    found *= within
    return found


def _mostly_alike(column: Column) -> bool:
    some = column.binary()
    if len(some) > _SAMPLE:
        some = column.take(np.arange(0, len(column), len(column) // _SAMPLE)).binary()
    return 2 * len(some.unique()) < len(some)


def _ranks(column: Column) -> NDArray[np.uint64]:
    import pyarrow.compute as pc  # noqa: PLC0415  # an open need not load it

    encoded = column.binary().dictionary_encode()
    places = integers(pc.sort_indices(encoded.dictionary))
    ranks: NDArray[np.uint64] = np.empty(len(places), _U64)
    ranks[places] = np.arange(len(places), dtype=_U64)
    return ranks.take(integers(encoded.indices))
