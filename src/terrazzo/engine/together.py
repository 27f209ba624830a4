"""The cells of several fragments in one set of columns, each fragment decoded straight into its rows."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrazzo.engine.columns import Column, Mask, concat, filtered
from terrazzo.engine.fetch import Shared
from terrazzo.engine.fragments import Fragment
from terrazzo.engine.layout import DELETE_CONDITION, DELETE_TIMESTAMPS, TIMESTAMPS
from terrazzo.engine.plan import Part, ScanTask
from terrazzo.engine.runner import run_all
from terrazzo.engine.sparse import absent, shared_fields
from terrazzo.engine.view import View

Times = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """The cells of one fragment, as its files hold them: the rows from `start` to `stop`."""

    start: int
    stop: int
    times: Times
    timed: bool  # the fragment records the time of every cell
    ends: Times | None  # delete times
    ended_by: Times | None  # places in `processed`
    processed: tuple[str, ...]
    missing: frozenset[str]

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def span(self) -> tuple[int, int]:
        """When the first and the last of its cells were written."""
        if not self.timed:
            return int(self.times[0]), int(self.times[0])
        return int(self.times.min()), int(self.times.max())


@dataclass(frozen=True, slots=True, eq=False)
class Together:
    columns: dict[str, Column]
    times: Times
    sources: tuple[Source, ...]  # oldest first
    inside: Mask | None  # the cells of the box; None if they all are

    def only_inside(self) -> "Together":
        """Without the cells outside of the box, and without fragments of which none is left."""
        inside = self.inside
        if inside is None:
            return replace(self, sources=tuple(source for source in self.sources if len(source)))
        times, sources, start = self.times[inside], [], 0
        for source in self.sources:
            mask = inside[source.start : source.stop]
            stop = start + int(np.count_nonzero(mask))
            if stop > start:
                sources.append(
                    replace(
                        source, start=start, stop=stop, times=times[start:stop],
                        ends=None if source.ends is None else source.ends[mask],
                        ended_by=None if source.ended_by is None else source.ended_by[mask],
                    )
                )  # fmt: skip
            start = stop
        columns = filtered(self.columns, inside)
        return Together(columns, times, tuple(sources), None)


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """A part on its way."""

    part: Part
    fragment: Fragment
    missing: frozenset[str]
    start: int
    stop: int
    finish: Callable[[], dict[str, Column]]


def read_together(view: View, scan: ScanTask) -> Together:
    """Every version in the box, fragment by fragment in order of time."""
    shared = shared_fields(view, scan.parts)
    jobs: list[Callable[[], None]] = []
    reads: list[_Read] = []
    alike: dict[Any, tuple[frozenset[str], list[str]]] = {}
    n = 0
    for part in sorted(scan.parts, key=lambda part: part.fragment):
        fragment = view.snapshot.fragments[part.fragment]
        reader, kind = view.reader(fragment), (fragment.schema_name, fragment.footer.slots)
        if kind not in alike:
            missing = view.missing(fragment)
            names = [field.name for field in view.wide.fields if field.name not in missing]
            names += [name for name in (TIMESTAMPS, DELETE_TIMESTAMPS, DELETE_CONDITION) if reader.has(name)]
            alike[kind] = missing, names
        missing, names = alike[kind]
        finish = reader.prepare(names, part.tiles, jobs, shared, n)
        stop = n + int(reader.cells[part.tiles].sum())
        reads.append(_Read(part, fragment, missing, n, stop, finish))
        n = stop
    for each in shared.values():
        each.make_room(n)
        jobs += each.jobs()
    run_all(jobs)
    rest = [read.finish() for read in reads]
    columns = _columns(view, reads, rest, shared)
    times = shared[TIMESTAMPS].values
    sources = []
    for read, own in zip(reads, rest, strict=True):
        rows = slice(read.start, read.stop)
        if not read.fragment.has_timestamps:
            times[rows] = read.fragment.name.start_ms
        ends, ended_by = own.get(DELETE_TIMESTAMPS), own.get(DELETE_CONDITION)
        sources.append(
            Source(
                read.start, read.stop, times[rows], read.fragment.has_timestamps,
                None if ends is None else ends.values, None if ended_by is None else ended_by.values,
                view.reader(read.fragment).sections.processed, read.missing,
            )
        )  # fmt: skip
    return Together(columns, times, tuple(sources), _inside(view, scan, reads, columns))


def _columns(
    view: View, reads: list[_Read], rest: list[dict[str, Column]], shared: dict[str, Shared]
) -> dict[str, Column]:
    """All rows of every field; what a fragment was written without is its fill value."""
    for attr in view.wide.attrs:
        for read, own in zip(reads, rest, strict=True):
            if attr.name in read.missing:
                column = absent(attr, read.stop - read.start)
                if attr.name in shared:
                    shared[attr.name].fill(read.start, column)
                else:
                    own[attr.name] = column
    return {
        field.name: shared[field.name].column()
        if field.name in shared
        else concat([own[field.name] for own in rest])
        for field in view.wide.fields
    }


def _inside(view: View, scan: ScanTask, reads: list[_Read], columns: dict[str, Column]) -> Mask | None:
    if scan.region.is_everything:
        return None
    inside: Mask | None = None
    for read in reads:
        boxes = view.reader(read.fragment).sections.rtree.leaves
        if not scan.region.covers(boxes)[read.part.tiles].all():
            coords = [columns[dim.name].slice(read.start, read.stop) for dim in view.schema.dims]
            mask = scan.region.cells(coords)
            if mask is not None and not mask.all():
                inside = np.ones(len(columns[view.schema.dims[0].name]), bool) if inside is None else inside
                inside[read.start : read.stop] = mask
    return inside
