"""What a growing array has to tell between two marks: the cells that were written, or what changed.

The logic of marks is in `arrivals`; here it meets the store.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from terrazzo.engine.arrivals import NO_LIMITS, Arrival, Limits, Mark, Sight, Step, advance, short_name, step
from terrazzo.engine.changes import difference
from terrazzo.engine.clock import FOREVER, now_ms
from terrazzo.engine.fragments import Fragment, load_fragment
from terrazzo.engine.layout import TIMESTAMPS
from terrazzo.engine.ledger import read_ledger
from terrazzo.engine.listing import list_array
from terrazzo.engine.plan import Request, ScanTask, plan_boxes, plan_scan
from terrazzo.engine.predicate import Predicate
from terrazzo.engine.region import Region
from terrazzo.engine.select import union_box
from terrazzo.engine.session import reaching
from terrazzo.engine.snapshot import Snapshot, take_snapshot
from terrazzo.engine.view import View
from terrazzo.engine.window import Window
from terrazzo.errors import ConflictError, InvalidRequestError
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.keys import TimestampedName
from terrazzo.storage.base import Store

_TILES = 256  # of write times, read at once
Histogram = dict[int, int]


@dataclass(frozen=True, slots=True)
class Written(Window):
    """Cells as they were written at some instants: those of (after, until] without a few, and a few more."""

    after: int = 0
    until: int = 0
    without: frozenset[int] = frozenset()
    also: frozenset[int] = frozenset()

    @property
    def as_written(self) -> bool:
        return True

    def holds(self, times: Any) -> Any:
        mask = (times > np.uint64(self.after)) & (times <= np.uint64(self.until))
        if self.without:
            mask &= ~np.isin(times, np.array(sorted(self.without), np.uint64))
        if self.also:
            mask |= np.isin(times, np.array(sorted(self.also), np.uint64))
        return mask


class Glance:
    """An array as it is at a moment: fragments as written, consolidated ones, and those that these replaced."""

    def __init__(self, store: Store, cipher: Aes256Gcm | None, known: Snapshot | None = None) -> None:
        self.now_ms = now_ms()
        # The ledger comes first: a fragment of it that the snapshot lacks was replaced, not committed since.
        self.ledger = read_ledger(store, list_array(store))
        snapshot = take_snapshot(store, Window(0, FOREVER), cipher, known)
        snapshot.require_sound()
        if snapshot.schema.dense:
            raise InvalidRequestError(
                "a dense array cannot be streamed: its cells do not record when they were written; read it at two "
                "instants and compare"
            )
        self.view = View(store, snapshot, cipher)

    @cached_property
    def written(self) -> dict[str, Fragment]:
        """Visible fragments as their writers left them, by short name."""
        return {short_name(f.name): f for f in self.view.snapshot.fragments if not f.has_timestamps}

    @cached_property
    def consolidated(self) -> tuple[Fragment, ...]:
        return tuple(f for f in self.view.snapshot.fragments if f.has_timestamps)

    @cached_property
    def hidden(self) -> dict[str, TimestampedName]:
        """Fragments that were replaced and are still there; of one instant, so that most were written as they are."""
        shown = {fragment.name for fragment in self.view.snapshot.fragments}
        names = (name for name in self.ledger.writes.values() if name not in shown)
        return {short_name(name): name for name in names if name.start_ms == name.end_ms}

    def superseded(self, wanted: Callable[[int, str], bool]) -> dict[str, Fragment]:
        """Fragments that were replaced and can still be read, of those that are wanted."""
        view, found = self.view, {}
        for short, name in self.hidden.items():
            if wanted(name.start_ms, short):
                try:
                    fragment = load_fragment(view.store, name, dict(view.snapshot.schemas), view.cipher)
                except ConflictError:
                    continue  # removed since
                if not fragment.has_timestamps:
                    found[short] = fragment
        return found

    def visible(self, *, conditions: bool) -> tuple[Arrival, ...]:
        snapshot = self.view.snapshot
        found = [
            Arrival(f.name.end_ms, short, f.footer.n_cells(snapshot.schema_of(f)))
            for short, f in self.written.items()
        ]
        if conditions:
            found += [Arrival(c.time_ms, short_name(c.marker)) for c in snapshot.conditions]
        return tuple(found)

    def n_cells(self, fragment: Fragment) -> int:
        return fragment.footer.n_cells(self.view.snapshot.schema_of(fragment))

    def times(self, fragment: Fragment) -> Histogram:
        """How many cells of a consolidated fragment were written when."""
        reader, counts = self.view.reader(fragment), dict[int, int]()
        tiles = reader.all_tiles()
        for start in range(0, len(tiles), _TILES):
            column = reader.read([TIMESTAMPS], tiles[start : start + _TILES])[TIMESTAMPS]
            for time, n in zip(*np.unique(column.values, return_counts=True), strict=True):
                counts[int(time)] = counts.get(int(time), 0) + int(n)
        return counts


class Follower:
    """Follows an array from mark to mark. What it learns of fragments it keeps: none of them ever changes.

    Cells are delivered at once, and those that come late behind them. Changes wait until the lateness is over.
    """

    def __init__(
        self, store: Store, cipher: Aes256Gcm | None, *, lateness_ms: int, changes: bool = False
    ) -> None:
        self.store, self.cipher, self.lateness_ms, self.changes = store, cipher, lateness_ms, changes
        self._known: Snapshot | None = None
        self._histograms: dict[str, Histogram] = {}
        self._frozen: Glance | None = None

    def __getstate__(self) -> dict[str, Any]:
        # To tasks it goes without what it has learnt: they bring their own views.
        return {**self.__dict__, "_known": None, "_histograms": {}, "_frozen": None}

    def glance(self) -> Glance:
        found = Glance(self.store, self.cipher, self._known)
        self._known = found.view.snapshot
        return found

    def freeze(self) -> None:
        """From now on nothing counts that is not there at this moment."""
        self._frozen = self.glance()

    def next(self, start: Mark, limits: Limits) -> Mark:
        """The mark to go to; `start` if nothing is new."""
        glance = self._frozen or self.glance()
        try:
            sight = self._sight(glance, start, limits)
        except ConflictError:  # vacuum took away what was frozen; its cells are in other files now
            frozen_ms, glance = glance.now_ms, self.glance()
            glance.now_ms = frozen_ms if self._frozen else glance.now_ms
            sight = self._sight(glance, start, limits)
        if self.changes:
            # Values before and after are those of two instants, so nothing is told of an instant before it settles.
            return advance(start, replace(sight, now_ms=sight.now_ms - self.lateness_ms), 0, limits)
        return advance(start, sight, self.lateness_ms, limits)

    def _sight(self, glance: Glance, start: Mark, limits: Limits) -> Sight:
        folded = self._folded(glance, start, limits)
        late = glance.superseded(lambda time, short: time in start.seen and not start.knows(time, short))
        superseded = [Arrival(f.name.end_ms, short, glance.n_cells(f)) for short, f in late.items()]
        superseded += [Arrival(n.end_ms, short) for short, n in glance.hidden.items() if n.end_ms in folded]
        return Sight(glance.now_ms, glance.visible(conditions=self.changes), tuple(superseded), folded)

    def _folded(self, glance: Glance, start: Mark, limits: Limits) -> Histogram:
        """The cells of consolidated fragments that may be new, by instant."""
        folded: Histogram = {}
        known, self._histograms = self._histograms, {}
        settles = glance.now_ms - self.lateness_ms if limits == NO_LIMITS else 0
        for fragment in glance.consolidated:
            first, last = fragment.name.start_ms, fragment.name.end_ms
            if last <= start.settled:
                continue
            if start.settled < first and last <= settles and not any(first <= t <= last for t in start.seen):
                # All of it is new and settles at once: when its cells were written makes no difference.
                folded[last] = folded.get(last, 0) + glance.n_cells(fragment)
                continue
            counts = known[fragment.key] if fragment.key in known else glance.times(fragment)
            self._histograms[fragment.key] = counts
            for time, n in counts.items():
                if time > start.settled:
                    folded[time] = folded.get(time, 0) + n
        return folded

    def written(self, start: Mark, end: Mark) -> View:
        """The cells that were written between two marks, as they were written, each with its newest version."""
        glance = self.glance()
        superseded = glance.superseded(
            lambda time, short: (
                (time in start.seen or time in end.seen)
                and end.knows(time, short)
                and not start.knows(time, short)
            )
        )
        arrivals = tuple(Arrival(f.name.end_ms, short) for short, f in superseded.items())
        found = step(start, end, Sight(glance.now_ms, glance.visible(conditions=False), arrivals))
        fragments = [f for short, f in {**superseded, **glance.written}.items() if short in found.names]
        fragments += [f for f in glance.consolidated if _touches(f, found)]
        window = Written(0, FOREVER, found.after, found.until, found.without, found.also)
        ordered = tuple(sorted(fragments, key=lambda fragment: fragment.order))
        snapshot = replace(glance.view.snapshot, window=window, fragments=ordered, conditions=())
        return glance.view.following(snapshot)

    def change_tasks(
        self, start: Mark, end: Mark, region: Region, where: Predicate | None, size: int
    ) -> list["ChangeTask"]:
        """What changed between two marks, a box of the domain each."""
        glance = self.glance()
        before, after = reaching(glance.view, start.settled), reaching(glance.view, end.settled)
        fragments = after.snapshot.fragments
        region = _narrowed(region, before, after, start)
        names = tuple(each.name for each in after.schema.fields)
        tasks = []
        for scan in plan_boxes(after, Request(names, region), range(len(fragments)), size):
            kept = {fragments[part.fragment].key for part in scan.parts}
            tasks.append(ChangeTask(_only(before, kept), _only(after, kept), scan.region, where))
        return tasks


def _only(view: View, kept: set[str]) -> View:
    fragments = tuple(f for f in view.snapshot.fragments if f.key in kept)
    return view.following(replace(view.snapshot, fragments=fragments))


def _alone(view: View, task: ScanTask) -> tuple[View, ScanTask]:
    """A task with a view of the fragments that it reads and no others: it travels by itself."""
    places = sorted({part.fragment for part in task.parts})
    fragments = tuple(view.snapshot.fragments[place] for place in places)
    parts = tuple(replace(part, fragment=places.index(part.fragment)) for part in task.parts)
    return view.following(replace(view.snapshot, fragments=fragments)), replace(task, parts=parts)


def plan_written(view: View, request: Request, size: int) -> list[tuple[View, Request, ScanTask]]:
    """The tasks of a view of `Follower.written`; versions of a cell that tell of each other stay together."""
    if view.schema.allows_duplicates and any(
        f.footer.slots.has_delete_metadata for f in view.snapshot.fragments
    ):
        dims = (dim.name for dim in view.schema.dims if dim.name not in request.columns)
        request = replace(request, columns=(*request.columns, *dims))
        boxes = plan_boxes(view, request, range(len(view.snapshot.fragments)), size)
        tasks = [replace(task, distinct=False) for task in boxes]
    else:
        plan = plan_scan(view, request, size)
        request, tasks = plan.request, list(plan.tasks)
    return [(part, request, alone_task) for part, alone_task in (_alone(view, task) for task in tasks)]


def _touches(fragment: Fragment, found: Step) -> bool:
    name = fragment.name
    inside = found.after < name.end_ms and name.start_ms <= found.until
    return inside or any(name.start_ms <= time <= name.end_ms for time in found.also)


def _narrowed(region: Region, before: View, after: View, start: Mark) -> Region:
    """The box of the fragments that are new, if nothing but these can have changed anything."""
    old = {fragment.key for fragment in before.snapshot.fragments}
    new = [f for f in after.snapshot.fragments if f.key not in old]
    folded = any(f.has_timestamps and f.name.end_ms > start.settled for f in after.snapshot.fragments)
    same = len(before.snapshot.conditions) == len(after.snapshot.conditions)
    if folded or not same or not new or any(f.footer.domain is None for f in new):
        return region
    for dim, bound in enumerate(union_box(new)):
        region = region.restricted(dim, bound)
    return region


@dataclass(frozen=True, slots=True, eq=False)
class ChangeTask:
    before: View
    after: View
    region: Region
    where: Predicate | None

    def __call__(self) -> Any:
        """The changes in the box, as a table with the kind of change first."""
        return difference(self.before, self.after, self.region, self.where)
