"""The newest version of each cell, among versions that lie in several fragments, or in one that records their times."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from terrazzo.engine.buffers import mask_of
from terrazzo.engine.columns import Column, Mask, filtered
from terrazzo.engine.order import Keys, sets_of_runs, sort_cells, sort_keys_of_parts
from terrazzo.engine.runner import run_all, run_blocks
from terrazzo.format.orders import Layout
from terrazzo.format.schema import Schema

_FEW_RUNS = 8


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Cells of one fragment. `passed` marks those that are alive and match; the others still hide older ones."""

    columns: dict[str, Column]
    times: NDArray[np.uint64]
    passed: Mask | None  # None: all of them

    def __len__(self) -> int:
        return len(self.times)


def passing(cells: Cells) -> dict[str, Column]:
    if cells.passed is None or cells.passed.all():
        return cells.columns
    return filtered(cells.columns, cells.passed)


def newest(found: list[Cells], schema: Schema) -> list[dict[str, Column]]:
    """Per fragment, the cells that no other version hides and that passed."""
    found = [cells for cells in found if len(cells)]
    if not found:
        return []
    hidden = _hidden(found, schema)
    if hidden is None:
        return [passing(cells) for cells in found]
    kept, start = [], 0
    for cells in found:
        mask = ~hidden[start : start + len(cells)]
        start += len(cells)
        passed = mask if cells.passed is None else mask & cells.passed
        kept.append(filtered(cells.columns, passed))
    return kept


def _hidden(found: list[Cells], schema: Schema) -> Mask | None:
    """Which cells, in the order of `found`, have a newer version at the same coordinates; None if none has.

    Newest is the latest write time, then the later fragment, then the place in the fragment.
    """
    if len(found) == 1 and not _neighbours_alike([found[0].columns[dim.name] for dim in schema.dims]):
        return None
    # Hilbert values cost more than they save: any order that puts equals side by side will do.
    order = "row-major" if schema.cell_order is Layout.HILBERT else "global"
    parts = [[cells.columns[dim.name] for dim in schema.dims] for cells in found]
    keys = sort_keys_of_parts(parts, schema, order)
    constant_times = all(cells.times.strides == (0,) for cells in found) and _newest_first(found)
    times = None if constant_times else np.concatenate([cells.times for cells in found])
    hidden = np.zeros(len(keys[0]), bool)
    ends = np.cumsum([len(cells) for cells in found]).tolist()

    def look(places: list[slice]) -> None:
        some = [
            np.concatenate([key[place] for place in places]) if len(places) > 1 else key[places[0]]
            for key in keys
        ]
        if len(some) == 1 and not _repeats(some[0], len(places)):
            return
        rows = np.concatenate([np.arange(place.start, place.stop) for place in places])
        hidden[_older(some, rows, times)] = True

    run_all([lambda places=places: look(places) for places in sets_of_runs(keys, ends)])  # type: ignore[misc]
    return hidden if hidden.any() else None


def _neighbours_alike(coords: Sequence[Column]) -> bool:
    """Whether two cells of a fragment, which is in order, have the same coordinates."""
    found: list[int] = []

    def look(start: int, stop: int) -> None:
        before = max(start - 1, 0)
        if not found and np.logical_and.reduce([alike(column, before, stop) for column in coords]).any():
            found.append(start)

    def alike(column: Column, start: int, stop: int) -> Mask:
        """Which cells, from the second on, are like the one before."""
        if column.offsets is None:
            some = column.values[start:stop]
            same: Mask = some[1:] == some[:-1]
            if some.dtype.kind == "f":  # libtiledb takes NaN for a coordinate
                nan = np.isnan(some)
                same |= nan[1:] & nan[:-1]
            return same
        import pyarrow.compute as pc  # noqa: PLC0415  # an open need not load it

        texts = column.binary().slice(start, stop - start)
        return mask_of(pc.equal(texts[1:], texts[:-1]))

    run_blocks(len(coords[0]), look)
    return bool(found)


def _repeats(key: NDArray[np.uint64], n_runs: int) -> bool:
    """Whether a value is there twice. A few runs laid end to end are merged faster than sorted."""
    ordered = np.sort(key, kind="stable" if 1 < n_runs <= _FEW_RUNS else None)
    return bool((ordered[1:] == ordered[:-1]).any())


def _older(keys: Keys, rows: NDArray[np.int64], times: NDArray[np.uint64] | None) -> NDArray[np.int64]:
    """Of rows with equal keys, all but the newest. Without times the first row is the newest."""
    index, same = sort_cells(keys)
    order = rows if index is None else rows[index]
    if times is None:
        return order[same]
    several = same.copy()
    several[:-1] |= same[1:]  # members of groups of two or more
    members, groups = order[several], np.cumsum(~same)[several]
    ranked = np.lexsort((np.arange(len(members)), ~times[members], groups))
    later = np.zeros(len(members), bool)
    later[1:] = groups[ranked][1:] == groups[ranked][:-1]
    return members[ranked[later]]


def _newest_first(found: list[Cells]) -> bool:
    times = [int(cells.times[0]) for cells in found]
    return all(a >= b for a, b in pairwise(times))
