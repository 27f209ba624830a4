"""One 64-bit key per cell where all coordinates are whole numbers: the space tile, then the place in it.

Bounds are those of the cells at hand. Keys are computed in blocks that stay in the cache, on every core.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrazzo.engine.columns import Column
from terrazzo.engine.runner import run_all
from terrazzo.format.domain import Dim
from terrazzo.format.orders import Layout
from terrazzo.format.schema import Schema

_BLOCK = 1 << 13  # 64 KiB: what is larger than 128 KiB the allocator takes from the system anew each time
_BLOCKS_PER_JOB = 128
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
    tile_places = _places(len(axes), schema.tile_order)
    cell_places = _places(len(axes), schema.cell_order if order == "global" else Layout.parse(order))
    out = np.empty(sum(sizes), np.uint64)
    jobs: list[Callable[[], None]] = []
    start = 0
    for part, size in zip(parts, sizes, strict=True):
        columns = [column.values for column in part]
        target = out[start : start + size]
        for first in range(0, size, _BLOCK * _BLOCKS_PER_JOB):
            last = min(first + _BLOCK * _BLOCKS_PER_JOB, size)
            jobs.append(_job(columns, axes, tile_places, cell_places, target, first, last))
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


def _job(
    columns: list[NDArray[Any]], axes: list[_Axis], tile_places: list[int], cell_places: list[int],
    out: NDArray[np.uint64], first: int, last: int,
) -> Callable[[], None]:  # fmt: skip
    def run() -> None:
        for start in range(first, last, _BLOCK):
            block = slice(start, min(start + _BLOCK, last))
            _block(columns, axes, tile_places, cell_places, out, block)

    return run


def _block(
    columns: list[NDArray[Any]], axes: list[_Axis], tile_places: list[int], cell_places: list[int],
    out: NDArray[np.uint64], block: slice,
) -> None:  # fmt: skip
    offsets: list[NDArray[np.uint64]] = []
    tiles: list[NDArray[np.uint64] | None] = []
    for values, axis in zip(columns, axes, strict=True):
        place = unsigned(values[block], axis.base)
        if axis.n_tiles > 1:
            tile = place // _U64(axis.extent)
            place = place - tile * _U64(axis.extent)
            tiles.append(tile)
        else:
            tiles.append(None)
        offsets.append(place)
    key: NDArray[np.uint64] | None = None
    for j in tile_places:
        tile_of = tiles[j]
        if tile_of is not None:
            key = tile_of if key is None else key * _U64(axes[j].n_tiles) + tile_of
    for j in cell_places:
        key = offsets[j] if key is None else key * _U64(axes[j].width) + offsets[j]
    assert key is not None
    out[block] = key


def unsigned(values: NDArray[Any], low: int) -> NDArray[np.uint64]:
    """values - low, as unsigned: exact over the whole range of 64 bits."""
    wide = values.astype(np.int64 if values.dtype.kind == "i" else np.uint64, copy=False).view(np.uint64)
    return wide - _U64(low % (1 << 64)) if low else wide
