"""Plans of reads: which tiles of which fragments, in tasks that a thread or an executor can run by itself.

A task whose fragments cannot hold the same cell twice is a list of tiles. Where they can, it is a box of the
domain, boxes disjoint, with every tile that touches it: so duplicates are resolved inside one task.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrazzo.engine.fetch import FragmentReader, Tiles
from terrazzo.engine.history import fields_needed, relevant, updated_attributes
from terrazzo.engine.layout import DELETE_CONDITION, DELETE_TIMESTAMPS, TIMESTAMPS
from terrazzo.engine.predicate import All, Predicate, Test, fields_of
from terrazzo.engine.prune import possible
from terrazzo.engine.region import Region, comparable
from terrazzo.engine.view import View
from terrazzo.errors import InvalidRequestError
from terrazzo.format.bounds import BoundsTable
from terrazzo.format.condition import Op
from terrazzo.format.domain import Dim
from terrazzo.format.schema import Schema

_ALL_PAIRS = 2_000


@dataclass(frozen=True, slots=True)
class Request:
    columns: tuple[str, ...]  # in the order of the result
    region: Region
    where: Predicate | None = None
    order: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Tiles of one fragment."""

    fragment: int  # its place in the snapshot
    tiles: Tiles


@dataclass(frozen=True, slots=True, eq=False)
class ScanTask:
    parts: tuple[Part, ...]
    region: Region
    distinct: bool  # the parts may hold versions of the same cell
    n_cells: int
    size: int  # bytes in memory


@dataclass(frozen=True, slots=True)
class Pruned:
    """What became of one fragment, for people."""

    fragment: str
    n_tiles: int
    by_region: int
    by_where: int
    n_read: int
    stored_size: int
    n_requests: int


@dataclass(frozen=True, slots=True)
class ScanPlan:
    request: Request
    tasks: tuple[ScanTask, ...]
    pruned: tuple[Pruned, ...] = field(default=(), repr=False)

    @property
    def n_cells(self) -> int:
        return sum(task.n_cells for task in self.tasks)

    @property
    def size(self) -> int:
        return sum(task.size for task in self.tasks)


@dataclass(frozen=True, slots=True, eq=False)
class _Source:
    """A fragment and the tiles of it that the request touches."""

    place: int
    reader: FragmentReader
    tiles: Tiles
    boxes: BoundsTable
    sizes: NDArray[np.int64]  # bytes in memory per tile

    def within(self, region: Region) -> "_Source":
        mask = region.tiles(self.boxes)
        boxes = BoundsTable([(low[mask], high[mask]) for low, high in self.boxes.columns])
        return _Source(self.place, self.reader, self.tiles[mask], boxes, self.sizes[mask])


def plan_scan(view: View, request: Request, task_size: int) -> ScanPlan:
    """Tasks of about `task_size` bytes in memory each."""
    request = replace(request, region=narrowed(request.region, request.where, view.schema))
    if request.region.is_empty:
        return ScanPlan(request, ())
    snapshot = view.snapshot
    sources, pruned = [], []
    alone = _alone(view)
    for place in range(len(snapshot.fragments)):
        source, told = _select(view, request, place, prune_values=place in alone)
        if told is not None:
            pruned.append(told)
        if source is not None and len(source.tiles):
            sources.append(source)
    tasks: list[ScanTask] = []
    for group, distinct in _groups(view, sources):
        if distinct:
            tasks += _boxes(request.region, group, task_size)
        else:
            tasks += _runs(request.region, group, task_size)
    return ScanPlan(request, tuple(tasks), tuple(pruned))


def plan_boxes(view: View, request: Request, places: Sequence[int], task_size: int) -> list[ScanTask]:
    """Boxes of about `task_size` bytes over all cells of some fragments."""
    sources = []
    for place in places:
        source, _ = _select(view, request, place, prune_values=False)
        if source is not None and len(source.tiles):
            sources.append(source)
    return list(_boxes(request.region, sources, task_size))


def columns_read(view: View, request: Request, place: int, *, distinct: bool) -> list[str]:
    """The columns of a fragment that a request takes from the store: those asked for, and those that decide
    which cells there are."""
    fragment, schema = view.snapshot.fragments[place], view.wide
    conditions = relevant(view.conditions, fragment.name.start_ms, view.snapshot.window.at_ms)
    names = set(request.columns) | fields_needed(conditions, schema)
    names |= fields_of(request.where) if request.where is not None else set()
    if distinct or request.order is not None or not request.region.is_everything or not names:
        names |= {dim.name for dim in schema.dims}
    missing = view.missing(fragment)
    if names <= missing:  # the coordinates tell how many cells there are
        names.add(schema.dims[0].name)
    held = [each.name for each in schema.fields if each.name in names and each.name not in missing]
    reader = view.reader(fragment)
    hidden = (TIMESTAMPS, DELETE_TIMESTAMPS, DELETE_CONDITION)
    return held + [name for name in hidden if reader.has(name)]


def narrowed(region: Region, where: Predicate | None, schema: Schema) -> Region:
    """The region, cut down by what the condition says of the dimensions."""
    tests = where.children if isinstance(where, All) else (where,)
    names = {dim.name: (j, dim) for j, dim in enumerate(schema.dims)}
    for test in tests:
        if isinstance(test, Test) and test.field in names and test.members is None:
            j, dim = names[test.field]
            value = test.value if dim.is_var else np.frombuffer(test.value, dim.datatype.dtype)[0].item()
            bound = {
                Op.EQ: (value, value), Op.LT: (None, value), Op.LE: (None, value),
                Op.GT: (value, None), Op.GE: (value, None),
            }.get(test.op)  # fmt: skip
            if bound is not None:
                region = region.restricted(j, bound)
    return region


def _select(
    view: View, request: Request, place: int, *, prune_values: bool
) -> tuple[_Source | None, Pruned | None]:
    fragment = view.snapshot.fragments[place]
    reader = view.reader(fragment)
    n_tiles = reader.sections.n_tiles
    if not n_tiles or fragment.footer.domain is None:
        return None, None
    everything = request.region.is_everything
    if not everything:
        whole = BoundsTable.of([fragment.footer.domain], view.schema.dims)
        if not request.region.tiles(whole)[0]:
            return None, Pruned(str(fragment.name), n_tiles, n_tiles, 0, 0, 0, 0)
    boxes = reader.sections.rtree.leaves
    if everything and request.where is None:
        n_region, tiles, kept = n_tiles, reader.all_tiles(), boxes
    else:
        touching = request.region.tiles(boxes)
        n_region, mask = int(touching.sum()), touching
        if request.where is not None:
            mask = touching & _promising(view, request.where, place, reader, values=prune_values)
        tiles = np.flatnonzero(mask)
        kept = BoundsTable([(low[tiles], high[tiles]) for low, high in boxes.columns])
    names = columns_read(view, request, place, distinct=not view.schema.allows_duplicates)
    sizes = _tile_sizes(reader, names, tiles)
    told = Pruned(str(fragment.name), n_tiles, n_tiles - n_region, n_region - len(tiles), len(tiles), -1, -1)
    return _Source(place, reader, tiles, kept, sizes), told


def _dtype(dim: Dim) -> Any:
    return object if dim.is_var else dim.datatype.dtype


def _promising(
    view: View, where: Predicate, place: int, reader: FragmentReader, *, values: bool
) -> NDArray[np.bool_]:
    """Tiles of which the statistics do not rule the condition out."""
    fragment = view.snapshot.fragments[place]
    conditions = relevant(view.conditions, fragment.name.start_ms, view.snapshot.window.at_ms)
    stale = updated_attributes(conditions) | view.missing(fragment)
    usable = (
        frozenset(attr.name for attr in view.schema.attrs if attr.name not in stale)
        if values
        else frozenset()
    )
    return possible(where, reader, view.schema, usable)


def _tile_sizes(reader: FragmentReader, names: Sequence[str], tiles: Tiles) -> NDArray[np.int64]:
    sizes = np.zeros(len(tiles), np.int64)
    cells = reader.cells[tiles]
    for name in names:
        sizes += reader.tile_sizes(name, tiles, cells)
    return sizes


def _alone(view: View) -> set[int]:
    """Fragments whose tiles may be left out by their values: no other fragment can hold another version of a
    cell in them, which would come to light in its place."""
    snapshot = view.snapshot
    if view.schema.allows_duplicates:
        return set(range(len(snapshot.fragments)))
    held = [(place, f) for place, f in enumerate(snapshot.fragments) if f.footer.domain is not None]
    overlapping = _overlaps([fragment.footer.domain for _, fragment in held], view.schema)
    return {
        place
        for (place, fragment), others in zip(held, overlapping, strict=True)
        if not fragment.has_timestamps and not others
    }


def all_apart(view: View) -> bool:
    """Whether the footers alone say that no cell is stored twice."""
    held = [fragment for fragment in view.snapshot.fragments if fragment.footer.domain is not None]
    return len(_alone(view)) >= len(held)


def _groups(view: View, sources: list[_Source]) -> Iterator[tuple[list[_Source], bool]]:
    """Sources that may hold the same cell go together; the others need no looking at each other."""
    if view.schema.allows_duplicates:
        if sources:
            yield sources, False
        return
    fragments = view.snapshot.fragments
    overlapping = _overlaps([fragments[s.place].footer.domain for s in sources], view.schema)
    simple: list[_Source] = []
    entangled: list[_Source] = []
    for source, others in zip(sources, overlapping, strict=True):
        (entangled if others or fragments[source.place].has_timestamps else simple).append(source)
    if simple:
        yield simple, False
    if entangled:
        yield entangled, True


def _overlaps(domains: Sequence[Any], schema: Schema) -> list[bool]:
    """Whether each box meets any of the others."""
    n = len(domains)
    if n < 2:
        return [False] * n
    if n > _ALL_PAIRS:
        return [True] * n
    meets = np.ones((n, n), bool)
    for j, dim in enumerate(schema.dims):
        low, high = np.empty(n, _dtype(dim)), np.empty(n, _dtype(dim))
        low[:], high[:] = [domain[j][0] for domain in domains], [domain[j][1] for domain in domains]
        meets &= (low[:, None] <= high[None, :]) & (high[:, None] >= low[None, :])
    np.fill_diagonal(meets, val=False)
    return [bool(each) for each in np.atleast_1d(meets.any(axis=1))]


def _runs(region: Region, sources: list[_Source], task_size: int) -> Iterator[ScanTask]:
    """Tiles one after the other, cut where a task is full."""
    parts: list[Part] = []
    cells = size = 0
    for source in sources:
        start = 0
        ends = np.cumsum(source.sizes)
        while start < len(source.tiles):
            base = int(ends[start - 1]) if start else 0
            stop = int(np.searchsorted(ends, base + task_size - size, side="right"))
            if stop <= start and parts:
                yield ScanTask(tuple(parts), region, distinct=False, n_cells=cells, size=size)
                parts, cells, size = [], 0, 0
                continue
            stop = max(stop, start + 1)
            tiles = source.tiles[start:stop]
            parts.append(Part(source.place, tiles))
            cells += int(source.reader.cells[tiles].sum())
            size += int(ends[stop - 1]) - base
            start = stop
    if parts:
        yield ScanTask(tuple(parts), region, distinct=False, n_cells=cells, size=size)


def _boxes(region: Region, sources: list[_Source], task_size: int, depth: int = 0) -> Iterator[ScanTask]:
    """Halve the box until what touches it fits a task; a box that no cut makes smaller stays whole."""
    total = sum(int(source.sizes.sum()) for source in sources)
    halves = _halved(region, sources, total) if total > task_size and depth < 40 else None
    if halves is None:
        parts = tuple(Part(source.place, source.tiles) for source in sources if len(source.tiles))
        if parts:
            cells = sum(int(source.reader.cells[source.tiles].sum()) for source in sources)
            yield ScanTask(parts, region, distinct=True, n_cells=cells, size=total)
        return
    for half in halves:
        inside = [source.within(half) for source in sources]
        yield from _boxes(half, [s for s in inside if len(s.tiles)], task_size, depth + 1)


def _halved(region: Region, sources: list[_Source], total: int) -> tuple[Region, Region] | None:
    """The cut, among all dimensions, that divides the tiles best; None if none helps."""
    best: tuple[int, tuple[Region, Region]] | None = None
    for j in range(len(region.ranges)):
        low = np.concatenate([source.boxes.columns[j][0] for source in sources])
        high = np.concatenate([source.boxes.columns[j][1] for source in sources])
        sizes = np.concatenate([source.sizes for source in sources])
        order = np.argsort(low, kind="stable")
        middle = int(np.searchsorted(np.cumsum(sizes[order]), total / 2))
        cut = low[order[min(middle, len(order) - 1)]]
        if cut <= low[order[0]]:
            later = low[order][low[order] > comparable(cut)]
            if not len(later):
                continue
            cut = later[0]
        left = int(sizes[low < comparable(cut)].sum())
        right = int(sizes[high >= comparable(cut)].sum())
        largest = max(left, right)
        if largest < 0.95 * total and (best is None or largest < best[0]):
            before = before_value(cut)
            plain = cut if isinstance(cut, bytes) else cut.item()
            best = largest, (region.restricted(j, (None, before)), region.restricted(j, (plain, None)))
    return None if best is None else best[1]


def before_value(value: Any) -> Any:
    """The largest coordinate below `value`."""
    if isinstance(value, bytes):
        # What begins alike is mostly 7-bit text, but libtiledb takes any bytes: so many of 0xff stand behind them all.
        return value[:-1] if value.endswith(b"\0") else value[:-1] + bytes([value[-1] - 1]) + b"\xff" * 64
    if isinstance(value, np.floating):
        return np.nextafter(value, value.dtype.type(-np.inf)).item()
    return int(value) - 1


def parse_size(given: int | str, what: str = "memory") -> int:
    """Bytes of a number, or of text such as "256MiB"."""
    units = {
        "": 1,
        "b": 1,
        "kb": 10**3,
        "mb": 10**6,
        "gb": 10**9,
        "kib": 1 << 10,
        "mib": 1 << 20,
        "gib": 1 << 30,
        "tb": 10**12,
        "tib": 1 << 40,
    }
    if isinstance(given, int) and not isinstance(given, bool) and given > 0:
        return given
    if isinstance(given, str):
        digits = given.strip().rstrip("BbKkMmGgTtIi ").strip()
        unit = given.strip()[len(digits) :].strip().lower()
        try:
            if unit in units and float(digits) > 0:
                return max(1, int(float(digits) * units[unit]))
        except ValueError:
            pass
    raise InvalidRequestError(f"{what}={given!r} is no size; write bytes, or text such as '256MiB'")
