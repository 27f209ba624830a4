"""Reads as users make them: tables, batches under a memory budget, counts, and what a read would cost."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa

from terrazzo.engine.columns import Column, filtered
from terrazzo.engine.dense import Box, coordinates, domain_box, meet, read_box, shape_of
from terrazzo.engine.plan import Request, ScanPlan, ScanTask, all_apart, columns_read, plan_scan
from terrazzo.engine.predicate import evaluate, fields_of
from terrazzo.engine.region import Region
from terrazzo.engine.runner import LocalRunner, Progress, Runner, steps
from terrazzo.engine.sparse import (
    joined,
    ordered,
    pieces_of,
    result_schema,
    run_scan,
    scan_columns,
    to_batches,
)
from terrazzo.engine.view import View
from terrazzo.format.domain import Dim
from terrazzo.format.schema import Schema

_READ_TASK = 1 << 30
_BATCH_ROWS = 250_000
_SHARE = 4  # a task holds stored bytes, decoded columns, masks and the result at the same time


def read_table(view: View, request: Request) -> Any:
    """All cells of a request as one table."""
    view.snapshot.require_sound()
    found: Iterable[dict[str, Column]]
    if view.schema.dense:
        found = _dense_columns(view, request, _READ_TASK)
    else:
        plan = plan_scan(view, request, _READ_TASK)
        found = (columns for task in plan.tasks for columns in scan_columns(view, plan.request, task))
    if request.order is not None and (parts := list(found)):
        found = [ordered(joined(parts), view.schema, request.order)]
    result = result_schema(request.columns, view.schema)
    batches = [batch for columns in found for batch in to_batches(columns, view.schema, result)]
    return pa.Table.from_batches(batches, result)


@dataclass(frozen=True, slots=True)
class DenseTask:
    """A box of a dense array."""

    box: Box

    @property
    def n_cells(self) -> int:
        return prod(shape_of(self.box))


def plan_tasks(view: View, request: Request, size: int) -> tuple[Request, tuple[ScanTask | DenseTask, ...]]:
    """A read of any array in tasks of about `size` bytes each, and the request that they carry out."""
    view.snapshot.require_sound()
    if view.schema.dense:
        return request, tuple(DenseTask(box) for box in _dense_parts(view, request, size))
    plan = plan_scan(view, request, size)
    return plan.request, plan.tasks


def run_task(view: View, request: Request, task: ScanTask | DenseTask) -> list[Any]:
    """The cells of a task as record batches of a handy size."""
    if isinstance(task, DenseTask):
        found = to_batches(
            dense_part(view, request, task.box), view.schema, result_schema(request.columns, view.schema)
        )
    else:
        found = run_scan(view, request, task)
    return [
        batch.slice(start, _BATCH_ROWS) for batch in found for start in range(0, batch.num_rows, _BATCH_ROWS)
    ]


@dataclass(frozen=True, slots=True)
class ScanJob:
    """A task with all that it needs, for a runner on any machine."""

    view: View
    request: Request
    task: ScanTask | DenseTask

    def __call__(self) -> list[Any]:
        return run_task(self.view, self.request, self.task)


def scan_batches(
    view: View, request: Request, memory: int, runner: Runner | None = None, progress: Progress | None = None
) -> Any:
    """The cells in record batches, with at most about `memory` bytes in use at a time."""
    view.snapshot.require_sound()
    schema = result_schema(request.columns, view.schema)
    return pa.RecordBatchReader.from_batches(schema, _batches(view, request, memory, runner, progress))


def _batches(
    view: View, request: Request, memory: int, runner: Runner | None, progress: Progress | None
) -> Iterator[Any]:
    request, tasks = plan_tasks(view, request, max(memory // _SHARE, 1 << 20))
    jobs = [ScanJob(view, request, task) for task in tasks]
    for found in (runner or LocalRunner()).map(ScanJob.__call__, jobs, progress):
        yield from found


def count_cells(view: View, request: Request, memory: int = _READ_TASK) -> int:
    """How many cells a read would return; from footers alone where nothing can change the number."""
    view.snapshot.require_sound()
    if view.schema.dense:
        if request.where is None:
            return sum(prod(shape_of(box)) for box in dense_boxes(request.region, view.schema))
        found = _dense_columns(view, request, memory)
        return sum(len(columns[request.columns[0]]) for columns in found)
    if _all_count(view, request) and all_apart(view):
        snapshot = view.snapshot
        return sum(fragment.footer.n_cells(snapshot.schema_of(fragment)) for fragment in snapshot.fragments)
    plan = plan_scan(view, request, memory)
    total = 0
    for task in steps(plan.tasks):
        if not task.distinct and _all_count(view, plan.request):
            total += task.n_cells
        else:
            for columns in scan_columns(view, plan.request, task):
                total += len(next(iter(columns.values())))
    return total


def _all_count(view: View, request: Request) -> bool:
    snapshot = view.snapshot
    return (
        request.where is None
        and request.region.is_everything
        and not snapshot.conditions
        and not any(fragment.has_timestamps for fragment in snapshot.fragments)
    )


# -- dense ---------------------------------------------------------------------------------------------


def dense_boxes(region: Region, schema: Schema) -> list[Box]:
    """The boxes of a region: one for each choice of a range per dimension."""
    whole = domain_box(schema)
    per_dim = []
    for ranges, (low, high) in zip(region.ranges, whole, strict=True):
        wanted = ranges if ranges is not None else ((low, high),)
        cut = [(max(low, low if a is None else a), min(high, high if b is None else b)) for a, b in wanted]
        per_dim.append([(a, b) for a, b in cut if a <= b])
    return [tuple(box) for box in product(*per_dim)]


def slabs(box: Box, schema: Schema, cell_size: int, size: int) -> Iterator[Box]:
    """A box cut into pieces of about `size` bytes: whole tiles where possible, whole rows of them first."""
    cells = max(size // max(cell_size, 1), 1)
    extents = [int(dim.tile or 1) for dim in schema.dims]
    steps = [min(extent, n) for extent, n in zip(extents, shape_of(box), strict=True)]
    n_tiles = cells // prod(steps)
    if not n_tiles:
        steps[0] = max(cells // prod(steps[1:]), 1)
    for j in reversed(range(len(steps))):
        if n_tiles > 1:
            low, high = box[j]
            across = (high - low) // extents[j] + 2  # as many as may be touched
            taken = min(across, n_tiles)
            steps[j] = taken * extents[j]
            n_tiles //= taken
    yield from product(*map(_cuts, box, steps, extents, schema.dims))


def _cuts(bound: tuple[int, int], step: int, extent: int, dim: Dim) -> list[tuple[int, int]]:
    assert dim.domain is not None
    (low, high), first = bound, int(dim.domain[0])
    cuts = []
    while low <= high:
        stop = low + step
        if step >= extent:
            stop -= (stop - first) % extent
        cuts.append((low, min(stop - 1, high)))
        low = stop
    return cuts


def _dense_columns(view: View, request: Request, size: int) -> Iterator[dict[str, Column]]:
    for box in _dense_parts(view, request, size):
        yield dense_part(view, request, box)


def _dense_parts(view: View, request: Request, size: int) -> Iterator[Box]:
    names = _dense_names(view.schema, request)
    width = sum(
        (field.datatype.size * (1 if field.is_var else field.cell_val_num)) + 8 * field.is_var
        for field in view.schema.fields
        if field.name in names
    )
    for whole in dense_boxes(request.region, view.schema):
        yield from slabs(whole, view.schema, width, size)


def _dense_names(schema: Schema, request: Request) -> set[str]:
    names = set(request.columns) | (fields_of(request.where) if request.where is not None else set())
    return names | {dim.name for dim in schema.dims} if request.order is not None else names


def dense_part(view: View, request: Request, box: Box) -> dict[str, Column]:
    """The cells of a box that a request asks for."""
    schema, names = view.schema, _dense_names(view.schema, request)
    columns: dict[str, Column] = coordinates(
        box, schema, [dim.name for dim in schema.dims if dim.name in names]
    )
    columns |= read_box(view, box, [attr.name for attr in schema.attrs if attr.name in names])
    if request.where is not None:
        mask = evaluate(request.where, columns, schema, prod(shape_of(box)))
        columns = filtered(columns, mask)
    return columns


def nonempty_domain(view: View) -> dict[str, tuple[Any, Any]] | None:
    """Lowest and highest coordinate of what was written, per dimension; deletes do not change it."""
    view.snapshot.require_sound()
    domains: list[Any] = [f.footer.domain for f in view.snapshot.fragments if f.footer.domain is not None]
    if not domains:
        return None
    found = {}
    for j, dim in enumerate(view.schema.dims):
        low, high = min(domain[j][0] for domain in domains), max(domain[j][1] for domain in domains)
        found[dim.name] = (_shown(low, dim), _shown(high, dim))
    return found


def _shown(value: Any, dim: Dim) -> Any:
    """A coordinate as a caller would write it: text, a number, or one of numpy's dates."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if not (dim.datatype.is_datetime or dim.datatype.is_time):
        return value
    unit: Any = dim.datatype.unit
    return np.datetime64(value, unit) if dim.datatype.is_datetime else np.timedelta64(value, unit)


# -- explain -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FragmentCost:
    """What a read does with one fragment."""

    fragment: str
    n_tiles: int
    outside_region: int
    ruled_out: int  # by their statistics
    n_read: int
    stored_bytes: int
    requests: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """The plan of a read, for people; nothing but metadata was fetched for it."""

    columns: tuple[str, ...]
    fragments: tuple[FragmentCost, ...]
    n_tasks: int
    n_cells: int
    stored_bytes: int
    requests: int
    duplicates: bool
    conditions: int

    def __str__(self) -> str:
        lines = [
            f"read {', '.join(self.columns)}",
            f"{self.n_tasks} tasks, up to {self.n_cells:,} cells, {self.stored_bytes:,} bytes in {self.requests} requests",
        ]
        if self.duplicates:
            lines.append("versions of a cell in several fragments are resolved")
        if self.conditions:
            lines.append(f"{self.conditions} deletes or updates are applied")
        for cost in self.fragments:
            why = [f"{cost.outside_region} outside the region"] if cost.outside_region else []
            why += [f"{cost.ruled_out} ruled out by statistics"] if cost.ruled_out else []
            skipped = f" ({', '.join(why)})" if why else ""
            lines.append(
                f"  {cost.fragment}: {cost.n_read} of {cost.n_tiles} tiles{skipped}, {cost.stored_bytes:,} bytes"
            )
        return "\n".join(lines)


def explain(view: View, request: Request, task_size: int = _READ_TASK) -> Explanation:
    if view.schema.dense:
        return _explain_dense(view, request)
    plan = plan_scan(view, request, task_size)
    read: dict[int, tuple[int, int, set[int]]] = {}
    for task in plan.tasks:
        for part in pieces_of(view, task):
            names = columns_read(view, plan.request, part.fragment, distinct=task.distinct)
            reader = view.reader(view.snapshot.fragments[part.fragment])
            size, requests = reader.cost(names, part.tiles)
            before = read.get(part.fragment, (0, 0, set()))
            read[part.fragment] = before[0] + size, before[1] + requests, before[2] | set(part.tiles.tolist())
    costs = []
    by_name = {told.fragment: told for told in plan.pruned}
    for place, fragment in enumerate(view.snapshot.fragments):
        told = by_name.get(str(fragment.name))
        if told is not None:
            size, requests, tiles = read.get(place, (0, 0, set()))
            costs.append(
                FragmentCost(
                    told.fragment, told.n_tiles, told.by_region, told.by_where, len(tiles), size, requests
                )
            )
    return _explanation(view, plan, request, costs)


def _explanation(view: View, plan: ScanPlan, request: Request, costs: list[FragmentCost]) -> Explanation:
    return Explanation(
        request.columns,
        tuple(costs),
        len(plan.tasks),
        plan.n_cells,
        sum(cost.stored_bytes for cost in costs),
        sum(cost.requests for cost in costs),
        any(task.distinct for task in plan.tasks),
        len(view.snapshot.conditions),
    )


def _explain_dense(view: View, request: Request) -> Explanation:
    from terrazzo.engine.dense import tile_number, tiles_of  # noqa: PLC0415
    from terrazzo.format.fragment import tile_grid  # noqa: PLC0415

    boxes = dense_boxes(request.region, view.schema)
    attrs = [attr.name for attr in view.schema.attrs if attr.name in request.columns]
    costs = []
    for fragment in view.snapshot.fragments:
        reader = view.reader(fragment)
        domain: Any = fragment.footer.domain
        grid = tile_grid(domain, view.schema)
        tiles: set[int] = set()
        for box in boxes:
            common = meet(domain, box)
            if common is not None:
                tiles |= {tile_number(place, grid, view.schema) for place in tiles_of(common, view.schema)}
        held = [name for name in attrs if name not in view.missing(fragment)]
        size, requests = reader.cost(held, np.array(sorted(tiles), np.int64)) if tiles else (0, 0)
        n_tiles = reader.sections.n_tiles
        costs.append(
            FragmentCost(str(fragment.name), n_tiles, n_tiles - len(tiles), 0, len(tiles), size, requests)
        )
    cells = sum(prod(shape_of(box)) for box in boxes)
    total = sum(cost.stored_bytes for cost in costs), sum(cost.requests for cost in costs)
    return Explanation(
        request.columns, tuple(costs), len(boxes), cells, *total, duplicates=False, conditions=0
    )
