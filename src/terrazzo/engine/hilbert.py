"""Hilbert order: the position of a cell along a space-filling curve, as libtiledb computes it.

The curve is walked from the coarsest bits of the coordinates to the finest. The way so far turns and mirrors what is
still to come: with few dimensions in few ways, and a table answers several bits at a time.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from terrazzo.engine.columns import Column
from terrazzo.engine.runner import run_blocks
from terrazzo.engine.texts import word
from terrazzo.format.domain import Dim
from terrazzo.format.schema import Schema

MAX_DIMS = 15
_U64 = np.uint64
_STEPS = {1: 8, 2: 4, 3: 2, 4: 1}  # bits of every axis that a table answers, by the number of dimensions

Axes = Sequence[NDArray[np.uint64]]


def hilbert_values(coords: Sequence[Column], schema: Schema) -> NDArray[np.uint64]:
    n, bits = len(coords[0]), 63 // len(schema.dims)
    out = np.empty(n, _U64)

    def fill(start: int, stop: int) -> None:
        parts = [column.slice(start, stop) for column in coords]
        axes = [_buckets(part, dim, bits) for part, dim in zip(parts, schema.dims, strict=True)]
        out[start:stop] = positions(axes, bits)

    run_blocks(n, fill)
    return out


def _buckets(column: Column, dim: Dim, bits: int) -> NDArray[np.uint64]:
    """The cell's place on one axis, out of 2**bits."""
    if column.is_var:
        return word(column, 0) >> _U64(64 - bits)
    assert dim.domain is not None
    low, high = (float(bound) for bound in dim.domain)
    if low == high:
        return np.zeros(len(column), _U64)
    share = (column.values.astype(np.float64) - low) / (high - low)
    last = (1 << bits) - 1  # 63 of them are more than a float can tell apart from one more
    return np.minimum((share * float(last)).astype(_U64), _U64(last))


def positions(axes: Axes, bits: int) -> NDArray[np.uint64]:
    """Where on the curve cells lie, given their place on each axis out of 2**bits."""
    return by_table(axes, bits) if len(axes) in _STEPS else by_plane(axes, bits)


def by_table(axes: Axes, bits: int) -> NDArray[np.uint64]:
    """Several bits of every axis at a time: a state and these bits are a place in the table, which holds the next
    state and the bits of the position."""
    n, step = len(axes), _STEPS[len(axes)]
    signed = [axis.view(np.int64) for axis in reversed(axes)]
    value = state = np.zeros(len(axes[0]), np.int64)
    left, taken = bits, bits % step or step
    while left:
        left -= taken
        place = state
        for j, axis in enumerate(signed):
            some = axis >> left
            some &= (1 << taken) - 1
            some <<= j * taken
            place = np.bitwise_or(place, some, out=some)
        state = _table(n, taken).take(place)
        digits = state & ((1 << n * taken) - 1)
        state -= digits
        digits |= value << (n * taken)
        value, taken = digits, step
    return value.view(_U64)


class _Turn(NamedTuple):
    """A state: bits of axis `source[i]`, mirrored where `mirrored[i]`, count as those of axis i."""

    source: tuple[int, ...]
    mirrored: tuple[int, ...]
    odd: int  # whether the position so far is an odd number

    def walk(self, bits: Sequence[int]) -> tuple["_Turn", int]:
        """One bit of every axis: the state behind it, and their digits of the position."""
        source, mirrored = list(self.source), list(self.mirrored)
        digits, so_far = 0, self.odd
        for i, bit in enumerate([bits[a] ^ flip for a, flip in zip(self.source, self.mirrored, strict=True)]):
            so_far ^= bit
            digits = digits << 1 | so_far
            if bit:
                mirrored[0] ^= 1
            else:
                source[0], source[i] = source[i], source[0]
                mirrored[0], mirrored[i] = mirrored[i], mirrored[0]
        return _Turn(tuple(source), tuple(mirrored), so_far), digits


@lru_cache
def _single_bits(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For every state, the first one first, and one bit of every axis: the next state, and the digits."""
    states = {_Turn(tuple(range(n)), (0,) * n, 0): 0}
    rows = []
    for state in (todo := list(states)):
        row = [state.walk([code >> (n - 1 - i) & 1 for i in range(n)]) for code in range(1 << n)]
        for new in (new for new, _ in row if new not in states):
            states[new] = len(states)
            todo.append(new)
        rows.append(row)
    after = np.array([[states[new] for new, _ in row] for row in rows])
    return after, np.array([[digits for _, digits in row] for row in rows])


@lru_cache
def _table(n: int, taken: int) -> NDArray[np.int64]:
    """What `by_table` looks up for so many bits of n axes. States are shifted for the steps that follow."""
    after, digits = _single_bits(n)
    place = np.arange(1 << n * taken)
    state = np.repeat(np.arange(len(after))[:, None], len(place), 1)
    value = np.zeros_like(state)
    for plane in range(taken - 1, -1, -1):
        code = np.zeros_like(place)
        for axis in range(n - 1, -1, -1):
            code = code << 1 | (place >> (axis * taken + plane) & 1)
        value = value << n | digits[state, code]
        state = after[state, code]
    return np.ascontiguousarray((state << n * _STEPS[n] | value).reshape(-1))


def by_plane(axes: Axes, bits: int) -> NDArray[np.uint64]:
    """Any number of dimensions, one bit at a time."""
    x: list[NDArray[Any]] = [axis.copy() for axis in axes]
    n = len(x)
    for plane in range(bits - 1, 0, -1):
        lower = _U64((1 << plane) - 1)
        for i in range(n):
            # The lower bits where this one is set, or none.
            mirror = ((x[i] >> _U64(plane)) & _U64(1)) * lower
            if i:
                swap = (x[0] ^ x[i]) & (lower ^ mirror)
                x[i] ^= swap
                x[0] ^= swap
            x[0] ^= mirror
    for i in range(1, n):
        x[i] ^= x[i - 1]
    odd = x[n - 1].copy()
    shift = 1
    while shift < bits:
        odd ^= odd >> _U64(shift)
        shift *= 2
    odd ^= x[n - 1]
    value = np.zeros_like(axes[0])
    for plane in range(bits - 1, -1, -1):
        for axis in x:
            value = (value << _U64(1)) | (((axis ^ odd) >> _U64(plane)) & _U64(1))
    return value
