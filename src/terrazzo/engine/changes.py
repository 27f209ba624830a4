"""The change feed: rows inserted, deleted and updated between two instants, values before and after."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from terrazzo.engine.buffers import integers, mask_of, numbers
from terrazzo.engine.columns import Column, concat, filtered, taken
from terrazzo.engine.order import sort_cells, sort_keys
from terrazzo.engine.plan import Request, plan_scan
from terrazzo.engine.predicate import Predicate, evaluate
from terrazzo.engine.region import Region, everything
from terrazzo.engine.snapshot import take_snapshot
from terrazzo.engine.sparse import joined, result_schema, scan_columns, to_batch
from terrazzo.engine.view import View
from terrazzo.engine.window import Window
from terrazzo.errors import InvalidRequestError
from terrazzo.format.schema import Schema

CHANGE = "_change"
"""insert, delete, update_before or update_after."""

_TASK = 1 << 30


def changes(view: View, since_ms: int, until_ms: int) -> Any:
    """What turned the array of `since` into that of `until`: a table of its columns, with the kind of change first.

    A cell counts as updated if its coordinates are in both and any of its values differ. In an array with
    duplicates equal coordinates do not identify a cell: an update shows as a delete and an insert.
    """
    if since_ms > until_ms:
        raise InvalidRequestError(f"since ({since_ms}) is later than until ({until_ms})")
    if view.schema.dense:
        raise InvalidRequestError("a dense array has no change feed; read it at both instants and compare")
    after = View(view.store, take_snapshot(view.store, Window(0, until_ms), view.cipher), view.cipher)
    before = View(view.store, take_snapshot(view.store, Window(0, since_ms), view.cipher), view.cipher)
    for seen in (before, after):
        seen.snapshot.require_sound()
    return difference(before, after, everything(after.schema))


def difference(before: View, after: View, region: Region, where: Predicate | None = None) -> Any:
    """What turned the cells of one view into those of another, within a region; of that, the rows that match."""
    schema = after.schema
    before = before.following(replace(before.snapshot, schema=schema, schema_name=after.snapshot.schema_name))
    old, new = _cells(before, region), _cells(after, region)
    result = result_schema(tuple(field.name for field in schema.fields), schema)
    if schema.allows_duplicates:
        kinds, cells = _bag_difference(old, new, schema)
    else:
        kinds, cells = _difference(old, new, schema)
    if where is not None:
        mask = evaluate(where, cells, schema, len(kinds))
        kinds, cells = kinds[mask], filtered(cells, mask)
    table = pa.Table.from_batches([to_batch(cells, schema, result)], result)
    labels = pa.array(["insert", "delete", "update_before", "update_after"]).take(numbers(kinds))
    return table.add_column(0, pa.field(CHANGE, pa.string(), nullable=False), labels)


def _cells(view: View, region: Region) -> dict[str, Column]:
    schema = view.schema
    names = tuple(field.name for field in schema.fields)
    plan = plan_scan(view, Request(names, region), _TASK)
    found = [columns for task in plan.tasks for columns in scan_columns(view, plan.request, task)]
    if found:
        return {name: column for name, column in joined(found).items() if name in names}
    return {field.name: _empty(field) for field in schema.fields}


def _empty(field: Any) -> Column:
    validity = np.empty(0, bool) if field.nullable else None
    if field.is_var:
        return Column(np.empty(0, np.uint8), np.zeros(1, np.int64), validity)
    shape = (0,) if field.cell_val_num == 1 else (0, field.cell_val_num)
    return Column(np.empty(shape, field.datatype.dtype), None, validity)


INSERT, DELETE, BEFORE, AFTER = range(4)


def _difference(
    old: dict[str, Column], new: dict[str, Column], schema: Schema
) -> tuple[np.ndarray[Any, Any], dict[str, Column]]:
    both = {name: concat([old[name], new[name]]) for name in old}
    n_old = len(old[schema.dims[0].name])
    keys = sort_keys([both[dim.name] for dim in schema.dims], schema, "row-major")
    index, same = sort_cells(keys)  # stable: the old cell of a pair comes first
    order = np.arange(len(keys[0])) if index is None else index
    seconds = np.flatnonzero(same)
    pairs_old, pairs_new = order[seconds - 1], order[seconds]
    paired = np.zeros(len(order), bool)
    paired[pairs_old] = paired[pairs_new] = True
    differs = np.zeros(len(seconds), bool)
    for attr in schema.attrs:
        differs |= _differs(both[attr.name], pairs_old, pairs_new)
    kinds = np.full(len(order), -1, np.int64)
    kinds[:n_old][~paired[:n_old]] = DELETE
    kinds[n_old:][~paired[n_old:]] = INSERT
    kinds[pairs_old[differs]] = BEFORE
    kinds[pairs_new[differs]] = AFTER
    changed = order[kinds[order] >= 0]
    return kinds[changed], {name: column.take(changed) for name, column in both.items()}


def _differs(column: Column, first: Any, second: Any) -> Any:
    """Whether two cells of a column hold other bytes: NaN equals itself, and a null whatever lies under it."""
    if column.offsets is not None:
        cells = column.binary()
        unequal = mask_of(pc.not_equal(cells.take(numbers(first)), cells.take(numbers(second))))
    else:
        width = column.values.dtype.itemsize * (column.values.shape[1] if column.values.ndim == 2 else 1)
        raw = np.ascontiguousarray(column.values).view(np.dtype((np.void, width))).reshape(-1)
        unequal = raw[first] != raw[second]
    if column.validity is None:
        return unequal
    was, is_ = column.validity[first], column.validity[second]
    return (was != is_) | (was & is_ & unequal)


def _bag_difference(
    old: dict[str, Column], new: dict[str, Column], schema: Schema
) -> tuple[np.ndarray[Any, Any], dict[str, Column]]:
    """Equal cells cancel out, one for one; what is left over was deleted or inserted."""
    both = {name: concat([old[name], new[name]]) for name in old}
    n_old, n = len(old[schema.dims[0].name]), len(next(iter(both.values())))
    rows = [_codes(column) for column in both.values()]
    order = np.lexsort([np.arange(n) >= n_old, *rows]) if n else np.empty(0, np.int64)
    fresh = np.zeros(n, bool)
    for codes in rows:
        ordered = codes[order]
        fresh[1:] |= ordered[1:] != ordered[:-1]
    group = np.cumsum(fresh)
    is_new = order >= n_old
    rank = _rank_within(group, is_new)
    n_groups = int(group[-1]) + 1 if n else 0
    counts_old = np.bincount(group[~is_new], minlength=n_groups)
    counts_new = np.bincount(group[is_new], minlength=n_groups)
    other = np.where(is_new, counts_old[group], counts_new[group]) if n else np.empty(0, np.int64)
    left = rank >= other
    index = order[left]
    kinds = np.where(index >= n_old, INSERT, DELETE)
    return kinds, taken(both, index)


def _rank_within(group: Any, is_new: Any) -> Any:
    """The place of each row among those of its group and side."""
    side = group * 2 + is_new
    starts = (
        np.flatnonzero(np.concatenate([[True], side[1:] != side[:-1]]))
        if len(side)
        else np.empty(0, np.int64)
    )
    return np.arange(len(side)) - np.repeat(starts, np.diff(np.append(starts, len(side))))


def _codes(column: Column) -> Any:
    """Small integers that are equal where the cells are."""
    if column.offsets is not None:
        codes = integers(column.binary().dictionary_encode().indices).astype(np.int64)
    else:
        width = column.values.dtype.itemsize * (column.values.shape[1] if column.values.ndim == 2 else 1)
        raw = np.ascontiguousarray(column.values)
        cells = pa.Array.from_buffers(pa.binary(width), len(column), [None, pa.py_buffer(raw)])
        codes = integers(cells.dictionary_encode().indices).astype(np.int64)
    return codes if column.validity is None else np.where(column.validity, codes, -1)
