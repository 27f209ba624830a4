"""Hilbert order: the position of a cell along a space-filling curve, as libtiledb computes it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrazzo.engine.columns import Column
from terrazzo.format.domain import Dim
from terrazzo.format.schema import Schema

MAX_DIMS = 15
_U64 = np.uint64


def hilbert_values(coords: Sequence[Column], schema: Schema) -> NDArray[np.uint64]:
    bits = 63 // len(schema.dims)
    buckets = [_buckets(column, dim, bits) for column, dim in zip(coords, schema.dims, strict=True)]
    return interleave(to_transposed(buckets, bits), bits)


def _buckets(column: Column, dim: Dim, bits: int) -> NDArray[np.uint64]:
    """The cell's place on one axis, out of 2**bits."""
    if column.is_var:
        return _first_bytes(column) >> _U64(64 - bits)
    assert dim.domain is not None
    low, high = (float(bound) for bound in dim.domain)
    if low == high:
        return np.zeros(len(column), _U64)
    share = (column.values.astype(np.float64) - low) / (high - low)
    return (share * float((1 << bits) - 1)).astype(_U64)


def _first_bytes(column: Column) -> NDArray[np.uint64]:
    """The first eight bytes of each string as a big-endian number, padded with zeros."""
    assert column.offsets is not None
    starts, sizes = column.offsets[:-1], np.diff(column.offsets)
    padded = np.append(column.values, np.zeros(8, np.uint8))
    number = np.zeros(len(starts), _U64)
    for place in range(8):
        byte = np.where(place < sizes, padded[np.minimum(starts + place, len(padded) - 1)], 0)
        number = (number << _U64(8)) | byte.astype(_U64)
    return number


def to_transposed(axes: list[NDArray[Any]], bits: int) -> list[NDArray[np.uint64]]:
    """Axes to the transposed Hilbert index: bit plane by bit plane, on all cells at once."""
    x = [axis.copy() for axis in axes]
    n = len(x)
    for plane in range(bits - 1, 0, -1):
        q, p = _U64(1 << plane), _U64((1 << plane) - 1)
        for i in range(n):
            hit = (x[i] & q) != 0
            if i == 0:
                x[0] = np.where(hit, x[0] ^ p, x[0])
                continue
            swap = np.where(hit, _U64(0), (x[0] ^ x[i]) & p)
            x[0] ^= np.where(hit, p, swap)
            x[i] ^= swap
    for i in range(1, n):
        x[i] ^= x[i - 1]
    before = x[n - 1].copy()
    shift = 1
    while shift < bits:
        x[n - 1] ^= x[n - 1] >> _U64(shift)
        shift *= 2
    change = before ^ x[n - 1]
    for i in range(n - 1):
        x[i] ^= change
    return x


def interleave(axes: list[NDArray[np.uint64]], bits: int) -> NDArray[np.uint64]:
    value = np.zeros_like(axes[0])
    for plane in range(bits - 1, -1, -1):
        for axis in axes:
            value = (value << _U64(1)) | ((axis >> _U64(plane)) & _U64(1))
    return value
