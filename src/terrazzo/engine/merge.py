"""Versions of cells, brought together: what consolidation writes so that every instant reads as it did before.

Each row is one version of a cell: values, write time, and when and by what it came to an end.

    delete at d       the version ends at d, by that condition
    update at d       the version ends at d + 1 by nothing named, and a new one begins at d + 1: a chain

One millisecond lies between an update and its new version, since libtiledb, which takes an update for a delete,
applies it to everything written up to its own time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from terrazzo.engine.columns import Column, Index, Mask, Ordered, concat
from terrazzo.engine.history import NEVER, assign_update, stored_hits
from terrazzo.engine.interleave import interleaved, nothing_ends
from terrazzo.engine.layout import DELETE_CONDITION, DELETE_TIMESTAMPS, TIMESTAMPS
from terrazzo.engine.order import sort_cells, sort_keys
from terrazzo.engine.predicate import evaluate, of_condition
from terrazzo.engine.snapshot import StoredCondition
from terrazzo.engine.together import Source, Times, Together
from terrazzo.format.commits import DeleteCommit, UpdateCommit
from terrazzo.format.orders import Layout
from terrazzo.format.schema import Schema


@dataclass(slots=True, eq=False)
class _Rows:
    """All versions at hand. Arrays grow as updates add new ones."""

    columns: dict[str, Column]
    times: Times
    effective: Times  # from when on conditions see the version: of a chained one, the update's own time
    ends: Times
    ended_by: NDArray[np.int64]  # place among the conditions, -1 for none
    judged: NDArray[np.int64]  # which source's list of processed conditions speaks for it, -1 for none
    rank: NDArray[np.int64]  # of the fragment: later ones win at equal times
    origin: NDArray[np.int64]  # the row that an update made this one of, -1 for a stored one
    group: NDArray[
        np.int64
    ]  # equal for versions of one cell; computed only where an update or a purge asks for it
    absent: NDArray[np.int64]  # place in `missing`

    def __len__(self) -> int:
        return len(self.times)


def merge(
    cells: Together, conditions: Sequence[StoredCondition], schema: Schema, *, purge: bool
) -> dict[str, Ordered] | None:
    """The versions of all sources, under all `conditions`, in the order of the array. None if nothing is left. Delete
    metadata are there if any condition or any source asks for them."""
    if nothing_ends(cells, conditions, schema, purge=purge):
        order = interleaved(cells, schema, purge=purge)
        return _in_order(cells.columns, cells.times, order) if len(order) else None
    cells = cells.only_inside()
    sources = cells.sources
    if not sources:
        return None
    earliest = int(cells.times.min())
    updated = any(isinstance(c.body, UpdateCommit) and c.time_ms >= earliest for c in conditions)
    rows = _gather(cells, conditions, schema, grouped=purge or updated)
    missing = [source.missing for source in sources]
    for place, condition in enumerate(conditions):
        if isinstance(condition.body, DeleteCommit):
            _delete(rows, place, condition, sources, missing, schema)
        else:
            _update(rows, place, condition, sources, missing, schema)
    if purge:
        return _purged(rows, schema)
    wanted = any(source.ends is not None for source in sources) or any(
        condition.time_ms >= earliest for condition in conditions
    )
    return _ordered(rows, schema, delete_metadata=wanted)


def _in_order(columns: Mapping[str, Column], times: Times, order: Index) -> dict[str, Ordered]:
    return {name: Ordered(column, order) for name, column in {**columns, TIMESTAMPS: Column(times)}.items()}


def _gather(
    cells: Together, conditions: Sequence[StoredCondition], schema: Schema, *, grouped: bool
) -> _Rows:
    columns, times, sources = cells.columns, cells.times, cells.sources
    n = len(times)
    places = {condition.marker: place for place, condition in enumerate(conditions)}
    ends = np.full(n, NEVER)
    ended_by = np.full(n, -1, np.int64)
    for source in sources:
        if source.ends is not None and source.ended_by is not None:
            rows = slice(source.start, source.stop)
            ends[rows], ended_by[rows] = _recorded(source, places)
    number = np.repeat(np.arange(len(sources)), [len(source) for source in sources])
    judged = np.where(np.array([source.ends is not None for source in sources])[number], number, -1)
    return _Rows(
        columns, times, times.copy(), ends, ended_by, judged, number, np.full(n, -1, np.int64),
        _groups(columns, schema) if grouped else number, number.copy(),
    )  # fmt: skip


def _recorded(source: Source, places: dict[str, int]) -> tuple[Times, NDArray[np.int64]]:
    """Ends that the fragment records. One by an update is a mistake of libtiledb's and counts as none; one by a
    condition that is no longer there stands by itself."""
    assert source.ends is not None
    assert source.ended_by is not None
    ends, ended_by = source.ends.copy(), np.full(len(source), -1, np.int64)
    for index, marker in enumerate(source.processed):
        rows = source.ended_by == np.uint64(index)
        if marker.endswith(".upd"):
            ends[rows] = NEVER
        elif marker in places:
            ended_by[rows] = places[marker]
    ends[source.ends < source.times] = NEVER  # a misnamed fragment of libtiledb's: it never applied
    return ends, ended_by


def _groups(columns: dict[str, Column], schema: Schema) -> NDArray[np.int64]:
    """A number per cell; with duplicates every row is a cell of its own."""
    n = len(columns[schema.dims[0].name])
    if schema.allows_duplicates:
        return np.arange(n)
    order_name = "row-major" if schema.cell_order is Layout.HILBERT else "global"
    index, same = sort_cells(sort_keys([columns[dim.name] for dim in schema.dims], schema, order_name))
    numbers = np.cumsum(~same)
    group = np.empty(n, np.int64)
    group[slice(None) if index is None else index] = numbers
    return group


def _unjudged(rows: _Rows, some: Index, condition: StoredCondition, sources: Sequence[Source]) -> Index:
    """Those of some versions that a condition has still to judge: they are there at its instant, and were not judged
    when their fragment was consolidated."""
    delta, ends = np.uint64(condition.time_ms), rows.ends[some]
    judge = (rows.effective[some] <= delta) & (ends > delta)
    # Ended by another update of this instant: the version that it made is the one to judge.
    judge &= (ends != delta + np.uint64(1)) | (rows.ended_by[some] >= 0)
    if numbers := _judges(condition, sources):
        judge &= (rows.origin[some] >= 0) | ~np.isin(rows.judged[some], numbers)
    return some[judge]


def _judges(condition: StoredCondition, sources: Sequence[Source]) -> list[int]:
    """The sources whose records speak of a condition."""
    return [
        number
        for number, source in enumerate(sources)
        if source.ends is not None and condition.marker in source.processed
    ]


def _has_to_judge(rows: _Rows, condition: StoredCondition, sources: Sequence[Source]) -> bool:
    """Whether a condition has any version to judge: many are older than the cells, or judged these long ago."""
    judges = set(_judges(condition, sources))
    for number, source in enumerate(sources):
        if number not in judges and source.span[0] <= condition.time_ms:
            return True
    unbound = rows.effective[rows.judged < 0]  # made by updates, or no longer spoken for
    return bool((unbound <= np.uint64(condition.time_ms)).any())


def _delete(
    rows: _Rows, place: int, condition: StoredCondition, sources: Sequence[Source],
    missing: Sequence[frozenset[str]], schema: Schema,
) -> None:  # fmt: skip
    if not _has_to_judge(rows, condition, sources):
        return
    delta = np.uint64(condition.time_ms)
    hit = np.flatnonzero(_hits(rows, condition, missing, schema))
    hit = _unjudged(rows, hit, condition, sources)
    made_now = (rows.origin[hit] >= 0) & (rows.effective[hit] == delta)
    plain, chained = hit[~made_now], hit[made_now]
    # Updated and deleted at one instant: the new version never showed, and the old one ends by the delete.
    before = rows.origin[chained]
    rows.ends[before], rows.ended_by[before] = delta, place
    rows.ends[chained] = 0
    rows.ends[plain], rows.ended_by[plain] = delta, place


def _hits(rows: _Rows, condition: StoredCondition, missing: Sequence[frozenset[str]], schema: Schema) -> Mask:
    stored = condition.body.condition
    hit = stored_hits(stored, rows.columns, schema, len(rows))
    for number in range(len(missing)):
        if missing[number] & stored.fields:
            mine = np.flatnonzero(rows.absent == number)
            some = {name: column.take(mine) for name, column in rows.columns.items()}
            hit[mine] = stored_hits(stored, some, schema, len(mine), missing[number])
    return hit


def _update(
    rows: _Rows, _place: int, condition: StoredCondition, sources: Sequence[Source],
    missing: Sequence[frozenset[str]], schema: Schema,
) -> None:  # fmt: skip
    assert isinstance(condition.body, UpdateCommit)
    for number in _judges(condition, sources):
        # libtiledb took these for deleted, and did not judge them any further.
        source = sources[number]
        mistaken = source.ended_by == np.uint64(source.processed.index(condition.marker))
        rows.judged[source.start + np.flatnonzero(mistaken)] = -1
    if not _has_to_judge(rows, condition, sources):
        return
    hit = np.flatnonzero(evaluate(of_condition(condition.body.matches), rows.columns, schema, len(rows)))
    hit = _unjudged(rows, hit, condition, sources)
    delta = np.uint64(condition.time_ms)
    if len(hit) and not schema.allows_duplicates:
        hit = hit[_winners(rows, delta)[hit]]
    if not len(hit):
        return
    made_now = (rows.origin[hit] >= 0) & (rows.effective[hit] == delta)
    if made_now.any():  # a second update at the same instant changes the version that the first one made
        again = np.zeros(len(rows), bool)
        again[hit[made_now]] = True
        rows.columns = assign_update(rows.columns, again, condition.body, schema)
    fresh = hit[~made_now]
    if len(fresh):
        _chain(rows, fresh, condition, missing, schema)


def _chain(
    rows: _Rows,
    fresh: NDArray[np.int64],
    condition: StoredCondition,
    missing: Sequence[frozenset[str]],
    schema: Schema,
) -> None:
    """End the versions of `fresh` and append what the update makes of them."""
    delta, n = np.uint64(condition.time_ms), len(fresh)
    new = {name: column.take(fresh) for name, column in rows.columns.items()}
    assert isinstance(condition.body, UpdateCommit)
    new = assign_update(new, np.ones(n, bool), condition.body, schema)
    rows.ends[fresh], rows.ended_by[fresh] = delta + np.uint64(1), -1
    rows.columns = {name: concat([rows.columns[name], new[name]]) for name in new}
    rows.times = np.append(rows.times, np.full(n, delta + np.uint64(1)))
    rows.effective = np.append(rows.effective, np.full(n, delta))
    rows.ends = np.append(rows.ends, np.full(n, NEVER))
    rows.ended_by = np.append(rows.ended_by, np.full(n, -1))
    rows.judged = np.append(rows.judged, np.full(n, -1))
    rows.rank = np.append(rows.rank, rows.rank[fresh])
    rows.origin = np.append(rows.origin, fresh)
    rows.group = np.append(rows.group, rows.group[fresh])
    # What a fragment lacked is there now, as its fill value or as assigned: nothing is absent from a chained row.
    rows.absent = np.append(rows.absent, np.full(n, len(missing)))


def _winners(rows: _Rows, delta: np.uint64) -> Mask:
    """Versions that show at an instant: the newest of each cell up to it."""
    eligible = np.flatnonzero((rows.effective <= delta) & (rows.ends != 0))
    order = eligible[_newest_last(rows, eligible)]
    last = np.ones(len(order), bool)
    last[:-1] = rows.group[order][1:] != rows.group[order][:-1]
    winners = np.zeros(len(rows), bool)
    winners[order[last]] = True
    return winners


def _newest_last(rows: _Rows, some: NDArray[np.int64]) -> NDArray[np.intp]:
    # A stored version beats a chained one of the same time; of one fragment's, the first stored beats the rest.
    chained = rows.origin[some] >= 0
    return np.lexsort((-some, rows.rank[some], ~chained, rows.times[some], rows.group[some]))


def _newest_first(rows: _Rows, live: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows by time. Fragments mostly follow each other in time, and then it is enough to turn them round."""
    if len(live) == len(rows) and (rows.origin < 0).all():
        starts = np.flatnonzero(np.diff(rows.rank, prepend=-1))
        earliest, latest = (each.reduceat(rows.times, starts) for each in (np.minimum, np.maximum))
        if (latest[:-1] <= earliest[1:]).all():
            edges = [*starts.tolist(), len(rows)]
            return np.concatenate([np.arange(a, b) for a, b in pairwise(edges)][::-1])
    chained = rows.origin[live] >= 0
    return live[np.lexsort((-live, rows.rank[live], ~chained, rows.times[live]))[::-1]]


def _purged(rows: _Rows, schema: Schema) -> dict[str, Ordered] | None:
    """The cells as they show now, and nothing else."""
    alive = rows.ends == NEVER
    if not schema.allows_duplicates:
        alive &= _winners(rows, NEVER)
    kept = np.flatnonzero(alive)
    if not len(kept):
        return None
    index, _ = sort_cells(sort_keys([rows.columns[dim.name].take(kept) for dim in schema.dims], schema))
    return _in_order(rows.columns, rows.times, kept if index is None else kept[index])


def _ordered(rows: _Rows, schema: Schema, *, delete_metadata: bool) -> dict[str, Ordered]:
    """Every version, in global order, those of one cell newest first."""
    live = np.flatnonzero(rows.ends != 0)
    newest_first = live if schema.allows_duplicates else _newest_first(rows, live)
    coords = [rows.columns[dim.name].take(newest_first) for dim in schema.dims]
    index, same = sort_cells(sort_keys(coords, schema))  # stable
    order = newest_first if index is None else newest_first[index]
    if not schema.allows_duplicates and same.any():
        # Of two versions of one cell and time the second never shows. libtiledb would choose by tile.
        same[1:] &= rows.times[order[1:]] == rows.times[order[:-1]]
        order = order[~same]
    columns = _in_order(rows.columns, rows.times, order)
    if delete_metadata:
        columns[DELETE_TIMESTAMPS] = Ordered(Column(rows.ends), order)
        ended_by = np.where(rows.ended_by < 0, NEVER, rows.ended_by.astype(np.uint64))
        columns[DELETE_CONDITION] = Ordered(Column(ended_by), order)
    return columns
