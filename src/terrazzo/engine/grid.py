"""One 64-bit key per cell where all coordinates are whole numbers: the space tile, then the place in it.

Bounds are those of the cells at hand. Keys are computed in blocks that stay in the cache, on every core.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrazzo.engine.columns import Column, concat
from terrazzo.engine.runner import run_all
from terrazzo.format.domain import Dim
from terrazzo.format.orders import Layout
from terrazzo.format.schema import Schema

_BLOCK = 1 << 15  # three of them stay in the cache, and a step is long enough for threads to be worth it
_JOB = 1 << 18
_FEW_PARTS = 8
_U64 = np.uint64
_Edges = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Axis:
    """How the coordinates of one dimension are cut."""

    base: int  # what counts as 0
    extent: int  # of a tile
    n_tiles: int  # 1: not cut at all
    width: int  # values within a tile


def grid_key(parts: Sequence[Sequence[Column]], schema: Schema, order: str) -> NDArray[np.uint64] | None:
    """The key of every cell of every part, one after the other; None where no single key holds them."""
    if any(dim.is_var or dim.datatype.is_float for dim in schema.dims):
        return None
    if len(parts) > _FEW_PARTS:
        parts = [[concat([part[j] for part in parts]) for j in range(len(schema.dims))]]
    sizes = [len(part[0]) for part in parts]
    if not sum(sizes):
        return np.empty(0, np.uint64)
    edges = _edges(parts, sizes, len(schema.dims))
    axes = [_axis(dim, *edge, tiled=order == "global") for dim, edge in zip(schema.dims, edges, strict=True)]
    room = 1
    for axis in axes:
        room *= axis.n_tiles * axis.width
    if room > 1 << 64:
        return None
    terms = _terms(axes, schema, order)
    out = np.empty(sum(sizes), np.uint64)
    jobs: list[Callable[[], None]] = []
    start = 0
    for part, size in zip(parts, sizes, strict=True):
        columns = [column.values for column in part]
        for first in range(0, size, _JOB):
            some = slice(first, min(first + _JOB, size))
            target = out[start + first : start + some.stop]
            jobs.append(partial(_fill, [values[some] for values in columns], axes, terms, target))
        start += size
    run_all(jobs)
    return out


def _places(n: int, layout: Layout) -> list[int]:
    return list(range(n))[::-1] if layout is Layout.COL_MAJOR else list(range(n))


def _edges(parts: Sequence[Sequence[Column]], sizes: Sequence[int], n_dims: int) -> list[_Edges]:
    """Lowest and highest coordinate per dimension."""
    found: dict[tuple[int, int], _Edges] = {}

    def look(p: int, j: int) -> None:
        values = parts[p][j].values
        found[p, j] = int(values.min()), int(values.max())

    places = [(p, j) for p, size in enumerate(sizes) if size for j in range(n_dims)]
    run_all([lambda p=p, j=j: look(p, j) for p, j in places])  # type: ignore[misc]
    return [
        (min(found[p, k][0] for p, k in places if k == j), max(found[p, k][1] for p, k in places if k == j))
        for j in range(n_dims)
    ]


def _axis(dim: Dim, low: int, high: int, *, tiled: bool) -> _Axis:
    if tiled and dim.domain is not None and dim.tile is not None:
        first, extent = int(dim.domain[0]), int(dim.tile)
        base = low - (low - first) % extent
        n_tiles = (high - base) // extent + 1
        if n_tiles > 1:
            return _Axis(base, extent, n_tiles, extent)
    return _Axis(low, 0, 1, high - low + 1)


def _terms(axes: list[_Axis], schema: Schema, order: str) -> list[tuple[int, int]]:
    """The key as a sum: per axis, what a tile counts for and what a place counts for.

    A place within its tile is place - tile * extent: so a tile counts for so much less.
    """
    cell_order = schema.cell_order if order == "global" else Layout.parse(order)
    places, tiles, unit = [0] * len(axes), [0] * len(axes), 1
    for j in reversed(_places(len(axes), cell_order)):
        places[j] = unit
        unit *= axes[j].width
    for j in reversed(_places(len(axes), schema.tile_order)):
        tiles[j] = unit - places[j] * axes[j].extent
        unit *= axes[j].n_tiles
    return list(zip(tiles, places, strict=True))


def _fill(
    columns: list[NDArray[Any]], axes: list[_Axis], terms: list[tuple[int, int]], out: NDArray[np.uint64]
) -> None:
    """Sums wrap round at 64 bits, and so end at the right key."""
    scratch = np.empty((2, min(_BLOCK, len(out))), np.uint64)
    for start in range(0, len(out), _BLOCK):
        key = out[start : start + _BLOCK]
        place, product = scratch[:, : len(key)]
        key[:] = 0
        for values, axis, (per_tile, per_place) in zip(columns, axes, terms, strict=True):
            np.subtract(_wide(values[start : start + _BLOCK]), _wrapped(axis.base), out=place)
            if axis.n_tiles > 1:
                np.floor_divide(place, _U64(axis.extent), out=product)
                np.multiply(product, _wrapped(per_tile), out=product)
                np.add(key, product, out=key)
            np.multiply(place, _wrapped(per_place), out=place)
            np.add(key, place, out=key)


def unsigned(values: NDArray[Any], low: int) -> NDArray[np.uint64]:
    """values - low, as unsigned: exact over the whole range of 64 bits."""
    wide = _wide(values)
    return wide - _wrapped(low) if low else wide


def _wide(values: NDArray[Any]) -> NDArray[np.uint64]:
    return values.astype(np.int64 if values.dtype.kind == "i" else np.uint64, copy=False).view(np.uint64)


def _wrapped(number: int) -> np.uint64:
    return _U64(number % (1 << 64))
