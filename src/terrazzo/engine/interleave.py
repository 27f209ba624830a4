"""The order of versions that nothing ends: no delete and no update has anything to say about them.

That is most consolidations. Fragments are sorted, so their rows are cut at the same keys into sets that fit the
cache, and every core merges sets by itself.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from terrazzo.engine.columns import Index, Mask
from terrazzo.engine.order import Keys, sets_of_runs, sort_cells, sort_keys
from terrazzo.engine.runner import run_all
from terrazzo.engine.snapshot import StoredCondition
from terrazzo.engine.together import Times, Together
from terrazzo.format.schema import Schema


def nothing_ends(
    cells: Together, conditions: Sequence[StoredCondition], schema: Schema, *, purge: bool
) -> bool:
    """Whether the versions stay as they are, and fragment by fragment stand in order of time."""
    sources = [source for source in cells.sources if len(source)]
    if any(source.ends is not None or (purge and source.timed) for source in sources):
        return False
    spans = [source.span for source in sources]
    earliest = min((first for first, _ in spans), default=0)
    if any(condition.time_ms >= earliest for condition in conditions):
        return False
    return schema.allows_duplicates or all(one[1] <= two[0] for one, two in pairwise(spans))


def interleaved(cells: Together, schema: Schema, *, purge: bool) -> Index:
    """Rows in the order of the array, those of one cell newest first. Of two versions of one cell and time the second
    never shows, and is left out; with `purge` only the newest of each cell is there."""
    keys = sort_keys([cells.columns[dim.name] for dim in schema.dims], schema)
    ends = [source.stop for source in cells.sources]
    sets = sets_of_runs(keys, ends)
    if len(sets) == 1:
        sets = [[slice(start, stop) for start, stop in pairwise([0, *ends]) if stop > start]]
    sizes = [sum(place.stop - place.start for place in places) for places in sets]
    order = np.empty(sum(sizes), np.int64)
    kept = [0] * len(sets)
    firsts = np.cumsum([0, *sizes]).tolist()

    def merge_set(which: int) -> None:
        places = sets[which] if schema.allows_duplicates else sets[which][::-1]
        found, same = _sorted(keys, places)
        if not schema.allows_duplicates and same.any():
            found = found[~same] if purge else np.delete(found, _hidden(found, same, cells.times))
        if cells.inside is not None:  # cells outside are few, and their versions are outside, too
            found = found[cells.inside[found]]
        kept[which] = len(found)
        order[firsts[which] : firsts[which] + len(found)] = found

    jobs: list[Callable[[], None]] = [partial(merge_set, which) for which in range(len(sets))]
    run_all(jobs)
    if kept == sizes:
        return order
    return np.concatenate([order[first : first + n] for first, n in zip(firsts[:-1], kept, strict=True)])


def _sorted(keys: Keys, places: Sequence[slice]) -> tuple[Index, Mask]:
    """The rows of a set in order, and which of them have the coordinates of the one before."""
    index, same = sort_cells([np.concatenate([key[place] for place in places]) for key in keys])
    found = np.concatenate([np.arange(place.start, place.stop) for place in places])
    return found if index is None else found[index], same


def _hidden(found: Index, same: Mask, times: Times) -> Index:
    """Places of versions that are of the same time as the one before them, which is the newer."""
    later = np.flatnonzero(same)
    alike: Mask = times[found[later]] == times[found[later - 1]]
    return later[alike]
