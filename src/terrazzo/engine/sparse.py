"""Scan tasks of sparse arrays to cells: times, regions, duplicates, deletes, updates and conditions resolved.

    tiles → cells of the window and region → deletes and updates → the user's condition
          → where versions of a cell can meet: the newest one, and only if it passed all that

The newest version is chosen among all versions, deleted ones included: removing it never brings an older one back.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from terrazzo.engine.arrow import arrow_field, to_arrow
from terrazzo.engine.columns import Column, Mask, concat, constant, end_to_end, filtered, taken
from terrazzo.engine.fetch import Shared
from terrazzo.engine.fragments import Fragment
from terrazzo.engine.history import Origin, apply, made_by_updates, relevant
from terrazzo.engine.layout import DELETE_CONDITION, DELETE_TIMESTAMPS, TIMESTAMPS
from terrazzo.engine.newest import Cells, newest, passing
from terrazzo.engine.order import argsort, sort_keys
from terrazzo.engine.plan import Part, Request, ScanTask, columns_read
from terrazzo.engine.predicate import evaluate
from terrazzo.engine.region import Region
from terrazzo.engine.runner import run_all
from terrazzo.engine.view import View
from terrazzo.format.attribute import Attr
from terrazzo.format.schema import Schema

_MOST = np.iinfo(np.int32).max  # bytes of a column that Arrow's usual types can count
_MANY_CELLS = 1 << 17
_MANY_PARTS = 8  # memory in one piece is had faster than in many


def run_scan(view: View, request: Request, task: ScanTask) -> list[Any]:
    """The cells of a task as record batches, in no particular order."""
    result = result_schema(request.columns, view.schema)
    return [
        batch
        for columns in scan_columns(view, request, task)
        for batch in to_batches(columns, view.schema, result)
    ]


def scan_columns(view: View, request: Request, task: ScanTask) -> list[dict[str, Column]]:
    """The cells of a task, in sets of columns: those of one fragment, or of all."""
    found = read_cells(view, request, task)
    kept = newest(found, view.schema) if task.distinct else [passing(cells) for cells in found]
    return _let_go(_reunited([columns for columns in kept if len(next(iter(columns.values())))]))


def _let_go(parts: list[dict[str, Column]]) -> list[dict[str, Column]]:
    """Where less than half is left of memory that fragments shared, what is left apart from it."""
    bases: dict[int, tuple[Any, int]] = {}
    for part in parts:
        for column in part.values():
            base: Any = column.values.base
            if isinstance(base, np.ndarray):
                bases[id(base)] = base, bases.get(id(base), (base, 0))[1] + column.values.nbytes
    wasted = {place for place, (base, kept) in bases.items() if 2 * kept < base.nbytes}
    if not wasted:
        return parts
    return [
        {
            name: replace(column, values=column.values.copy()) if id(column.values.base) in wasted else column
            for name, column in part.items()
        }
        for part in parts
    ]


def _reunited(parts: list[dict[str, Column]]) -> list[dict[str, Column]]:
    """One set of many, if the cells of all fragments lie end to end in memory: as they were decoded."""
    if len(parts) < _MANY_PARTS:
        return parts
    whole = {}
    for name in parts[0]:
        columns = [part[name] for part in parts if name in part]
        if len(columns) < len(parts) or any(c.is_var or c.validity is not None for c in columns):
            return parts
        values = end_to_end([column.values for column in columns])
        if values is None:
            return parts
        whole[name] = Column(values)
    return [whole]


def result_schema(columns: tuple[str, ...], schema: Schema) -> Any:
    return pa.schema([arrow_field(schema.field(name), schema) for name in columns])


def to_batch(columns: Mapping[str, Column], schema: Schema, result: Any) -> Any:
    """A record batch of the Arrow schema `result`, which names the columns."""
    arrays = [to_arrow(columns[name], schema.field(name), schema) for name in result.names]
    return pa.RecordBatch.from_arrays(arrays, schema=result)


def to_batches(columns: Mapping[str, Column], schema: Schema, result: Any) -> list[Any]:
    """`to_batch`, cut where the text or the lists of a column are more than one batch can hold."""
    names = result.names
    n = len(columns[names[0]])
    ends = [columns[name].offsets for name in names if columns[name].is_var]
    if all(offsets is None or offsets[-1] <= _MOST for offsets in ends):
        return [to_batch(columns, schema, result)]
    batches, start = [], 0
    while start < n:
        last = [int(np.searchsorted(o, o[start] + _MOST, side="right")) - 1 for o in ends if o is not None]
        stop = max(min(last), start + 1)
        batches.append(to_batch({name: columns[name].slice(start, stop) for name in names}, schema, result))
        start = stop
    return batches


def read_cells(view: View, request: Request, task: ScanTask) -> list[Cells]:
    """The cells of every part, newest fragment first: what comes first wins where times are equal."""
    jobs: list[Callable[[], None]] = []
    parts = sorted(pieces_of(view, task), key=lambda part: -part.fragment)
    shared = shared_fields(view, parts) if len(parts) >= _MANY_PARTS else {}
    prepared, used, start = [], set[str](), 0
    for part in parts:
        names = columns_read(view, request, part.fragment, distinct=task.distinct)
        reader = view.reader(view.snapshot.fragments[part.fragment])
        finish = reader.prepare(names, part.tiles, jobs, shared, start)
        stop = start + int(reader.cells[part.tiles].sum())
        common = [name for name in names if name in shared]
        prepared.append((part, finish, common, start, stop))
        used.update(common)
        start = stop
    for name in sorted(used):
        shared[name].make_room(start)
        jobs += shared[name].jobs()
    run_all(jobs)
    found = []
    for part, finish, common, start, stop in prepared:
        columns = finish() | {name: shared[name].rows(start, stop) for name in common}
        found.append(_cells(view, request, task.region, part, columns))
    return found


def shared_fields(view: View, parts: Sequence[Part]) -> dict[str, Shared]:
    """The fields of these parts whose cells have one size, and lie in files of their own."""
    fragments = [view.snapshot.fragments[part.fragment] for part in parts]
    first = view.schema.dims[0].name
    joint = any(view.reader(fragment).layout.field(first).joint for fragment in fragments)
    found = {TIMESTAMPS: Shared(np.uint64)}
    for field in view.wide.fields:
        attr = isinstance(field, Attr)
        if not field.is_var and (attr or not joint):
            nullable = attr and field.nullable
            found[field.name] = Shared(field.datatype.dtype, field.cell_val_num, nullable=nullable)
    return found


def pieces_of(view: View, task: ScanTask) -> Sequence[Part]:
    """The parts of a task as they are read."""
    if task.distinct or task.region.is_everything or view.snapshot.window.as_written:
        return task.parts
    return [piece for part in task.parts for piece in _split(view, task.region, part)]


def _split(view: View, region: Region, part: Part) -> list[Part]:
    """Tiles on the border of the region apart from those inside it, whose cells need no looking at; where these
    are many, since it costs a request more per file."""
    reader = view.reader(view.snapshot.fragments[part.fragment])
    inside = region.covers(reader.sections.rtree.leaves)[part.tiles]
    if int(reader.cells[part.tiles[inside]].sum()) < _MANY_CELLS:
        return [part]
    pieces = (part.tiles[~inside], part.tiles[inside])
    return [Part(part.fragment, tiles) for tiles in pieces if len(tiles)]


def _cells(view: View, request: Request, region: Region, part: Part, columns: dict[str, Column]) -> Cells:
    snapshot, schema = view.snapshot, view.wide
    fragment = snapshot.fragments[part.fragment]
    mask = _and(_in_window(view, fragment, columns), _in_region(view, region, part, columns))
    if mask is not None and not mask.all():
        columns = filtered(columns, mask)
    n = len(next(iter(columns.values())))
    times = _write_times(fragment, columns, n)
    missing = view.missing(fragment)
    for attr in schema.attrs:
        if attr.name in missing:
            columns[attr.name] = absent(attr, n)
    conditions = relevant(view.conditions, fragment.name.start_ms, snapshot.window.at_ms)
    passed: Mask | None = None
    if not snapshot.window.as_written and (conditions or DELETE_TIMESTAMPS in columns):
        origin = _origin(view, fragment, columns, times, missing)
        columns, passed = apply(columns, origin, conditions, schema, snapshot.window.at_ms)
    if request.where is not None:
        passed = _and(passed, evaluate(request.where, columns, schema, n))
    return Cells(columns, times, passed)


def absent(attr: Attr, n: int) -> Column:
    """Cells of an attribute that a fragment was written without."""
    valid = attr.fill_valid if attr.nullable else None
    return constant(attr.fill, n, attr.datatype, attr.cell_val_num, var=attr.is_var, valid=valid)


def _origin(
    view: View,
    fragment: Fragment,
    columns: dict[str, Column],
    times: NDArray[np.uint64],
    missing: frozenset[str],
) -> Origin:
    if DELETE_TIMESTAMPS not in columns:
        return Origin(times, missing)
    return Origin(
        times,
        missing,
        view.reader(fragment).sections.processed,
        columns[DELETE_TIMESTAMPS].values,
        columns[DELETE_CONDITION].values,
    )


def _write_times(fragment: Fragment, columns: dict[str, Column], n: int) -> NDArray[np.uint64]:
    if TIMESTAMPS in columns:
        return columns[TIMESTAMPS].values
    one = np.array([fragment.name.start_ms], np.uint64)
    times: NDArray[np.uint64] = np.ndarray((n,), np.uint64, one, strides=(0,))  # quicker than np.broadcast_to
    times.flags.writeable = False
    return times


def _in_window(view: View, fragment: Fragment, columns: dict[str, Column]) -> Mask | None:
    """Cells written within the window, wherever the fragment records that; whatever its name says."""
    if TIMESTAMPS not in columns:
        return None
    window = view.snapshot.window
    mask: Mask = window.holds(columns[TIMESTAMPS].values)
    if window.as_written and DELETE_TIMESTAMPS in columns:
        mask &= ~made_by_updates(columns, view.reader(fragment).sections.processed, view.schema)
    return mask


def _in_region(view: View, region: Region, part: Part, columns: dict[str, Column]) -> Mask | None:
    if region.is_everything:
        return None
    boxes = view.reader(view.snapshot.fragments[part.fragment]).sections.rtree.leaves
    if region.covers(boxes)[part.tiles].all():
        return None
    return region.cells([columns[dim.name] for dim in view.schema.dims])


def _and(one: Mask | None, other: Mask | None) -> Mask | None:
    return other if one is None else one if other is None else one & other


def joined(batches: list[dict[str, Column]]) -> dict[str, Column]:
    """All cells in one set of columns."""
    common = set.intersection(*(set(batch) for batch in batches))
    return {name: concat([batch[name] for batch in batches]) for name in common}


def ordered(columns: dict[str, Column], schema: Schema, order: str) -> dict[str, Column]:
    """Cells in row-major, col-major or global order."""
    index = argsort(sort_keys([columns[dim.name] for dim in schema.dims], schema, order))
    return columns if index is None else taken(columns, index)
