"""Deletes and updates, applied to the cells of a fragment in order of time.

Deletes follow libtiledb to the letter, since both must agree on the same file. Updates follow SQL: a null or a
NaN matches nothing, and an attribute that a fragment lacks counts as its fill value.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrazzo.engine.columns import Column, Mask
from terrazzo.engine.layout import DELETE_CONDITION, DELETE_TIMESTAMPS, TIMESTAMPS
from terrazzo.engine.order import sort_cells, sort_keys
from terrazzo.engine.predicate import compare, compares_first_only, evaluate, fields_of, of_condition
from terrazzo.engine.snapshot import StoredCondition
from terrazzo.errors import CorruptionError, FormatError
from terrazzo.format.attribute import Attr
from terrazzo.format.commits import Commit, DeleteCommit, UpdateCommit
from terrazzo.format.condition import Combination, Compare, Condition, Op
from terrazzo.format.schema import Schema

NEVER = np.uint64((1 << 64) - 1)
"""The delete time, and the delete condition, of a cell that is alive."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What is known of the cells besides their values."""

    times: NDArray[np.uint64]  # write time per cell
    missing: frozenset[str]  # attributes of the read schema that the fragment does not hold
    processed: tuple[str, ...] = ()
    delete_times: NDArray[np.uint64] | None = None
    delete_conditions: NDArray[np.uint64] | None = None


def relevant(conditions: Sequence[StoredCondition], earliest_ms: int, at_ms: int) -> list[StoredCondition]:
    """Conditions that can touch a cell written at `earliest_ms` or later, as seen at `at_ms`."""
    return [c for c in conditions if earliest_ms <= c.time_ms <= at_ms]


def fields_needed(conditions: Sequence[StoredCondition], schema: Schema) -> set[str]:
    """Columns without which the conditions cannot be decided."""
    names: set[str] = set()
    for condition in conditions:
        names |= condition.body.condition.fields
    return {name for name in names if schema.has(name)}


def updated_attributes(conditions: Sequence[StoredCondition]) -> frozenset[str]:
    """Attributes whose stored statistics no longer hold."""
    return frozenset(
        assignment.attr
        for condition in conditions
        if isinstance(condition.body, UpdateCommit)
        for assignment in condition.body.assignments
    )


def apply(
    columns: dict[str, Column],
    origin: Origin,
    conditions: Sequence[StoredCondition],
    schema: Schema,
    at_ms: int,
) -> tuple[dict[str, Column], Mask]:
    """The columns as the updates leave them, and which cells are alive at `at_ms`."""
    n = len(origin.times)
    alive = np.ones(n, bool)
    touched = np.zeros(n, bool)
    markers = {marker: index for index, marker in reversed(list(enumerate(origin.processed)))}
    recorded = origin.delete_conditions
    if origin.delete_times is not None and recorded is not None:
        alive &= ~_gone(origin, {c.marker for c in conditions}, at_ms)
    ended = np.flatnonzero(recorded != NEVER) if recorded is not None else np.empty(0, np.int64)
    ended_by = recorded[ended] if recorded is not None else np.empty(0, np.uint64)
    missing: dict[str, Mask] = {name: np.ones(n, bool) for name in origin.missing}
    for condition in conditions:
        if condition.time_ms > at_ms:
            continue
        index = markers.get(condition.marker)
        at_once = isinstance(condition.body, UpdateCommit) and condition.time_ms == at_ms
        if index is not None and recorded is not None and not at_once and not touched.any():
            # Judged when the fragment was consolidated.
            told_of = ended[ended_by == np.uint64(index)]
            if isinstance(condition.body, DeleteCommit):
                alive[told_of[origin.times[told_of] <= np.uint64(condition.time_ms)]] = False
                continue
            if not len(told_of):
                continue
        candidates = alive & (origin.times <= np.uint64(condition.time_ms))
        found = np.zeros(n, bool)
        if index is not None and recorded is not None:
            found = ~touched & (recorded == np.uint64(index))
            told = found
            if at_once:
                # The version that our consolidation made of the cell begins one millisecond from now.
                assert origin.delete_times is not None
                told = found | ((recorded == NEVER) & (origin.delete_times == np.uint64(at_ms + 1)))
            candidates &= touched | told
        if not candidates.any():
            continue
        try:
            if isinstance(condition.body, DeleteCommit):
                hit = candidates & (found | ~_kept(condition.body.condition, columns, missing, schema, n))
                alive &= ~hit
                continue
            hit = candidates & _changed(condition.body, columns, schema, n)
            touched |= found  # libtiledb took them for deleted, and did not judge them any further
            if hit.any():
                columns = assign_update(columns, hit, condition.body, schema)
                for assignment in condition.body.assignments:
                    if assignment.attr in missing:
                        missing[assignment.attr] = missing[assignment.attr] & ~hit
                touched |= hit
        except FormatError as problem:
            raise problem.at_key(condition.marker) from None
    return columns, alive


def _changed(update: UpdateCommit, columns: dict[str, Column], schema: Schema, n: int) -> Mask:
    wanted = of_condition(update.matches)
    if unknown := fields_of(wanted) - columns.keys():
        raise CorruptionError(f"an update tests {sorted(unknown)}, which the array never had")
    return evaluate(wanted, columns, schema, n)


def _gone(origin: Origin, known: set[str], at_ms: int) -> Mask:
    """Cells that the fragment itself records as superseded, or as deleted by a condition that is no longer there.

    A record that names an update is none of these: libtiledb took the update for a delete.
    """
    assert origin.delete_times is not None
    assert origin.delete_conditions is not None
    due = (origin.delete_times <= np.uint64(at_ms)) & (origin.delete_times >= origin.times)
    lost = [
        index
        for index, marker in enumerate(origin.processed)
        if marker.endswith(".del") and marker not in known
    ]
    by_lost = np.isin(origin.delete_conditions, np.array(lost, np.uint64)) if lost else False
    return np.asarray(due & ((origin.delete_conditions == NEVER) | by_lost))


def made_by_updates(columns: Mapping[str, Column], processed: Sequence[str], schema: Schema) -> Mask:
    """Versions in a consolidated fragment that nobody wrote: an update made them, one millisecond behind itself.

    For each there is another at the same coordinates that ended then. With duplicates, a write at that very instant is
    told by its place: consolidation puts what it makes behind what was stored. Without, it is told only if the update
    did not change its cell.
    """
    times, ends = columns[TIMESTAMPS].values, columns[DELETE_TIMESTAMPS].values
    updates = [
        commit.name.start_ms + 1 for m in processed if m.endswith(".upd") and (commit := Commit.parse(m))
    ]
    candidates = np.flatnonzero(np.isin(times, np.array(updates, np.uint64)))
    made = np.zeros(len(times), bool)
    if not len(candidates):
        return made
    ended = np.flatnonzero((ends != NEVER) & (columns[DELETE_CONDITION].values == NEVER))
    rows = np.concatenate([candidates, ended])
    instants = np.concatenate([times[candidates], ends[ended]])
    coords = sort_keys([columns[dim.name].take(rows) for dim in schema.dims], schema, "row-major")
    index, same = sort_cells([instants, *coords])
    groups = np.empty(len(rows), np.int64)
    groups[slice(None) if index is None else index] = np.cumsum(~same)
    n_made = np.bincount(groups[len(candidates) :], minlength=len(rows) + 1)
    last_first = np.lexsort((-candidates, groups[: len(candidates)]))
    group = groups[last_first]
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    place = np.arange(len(group)) - np.repeat(starts, np.diff(np.append(starts, len(group))))
    made[candidates[last_first[place < n_made[group]]]] = True
    return made


Missing = Mapping[str, Mask]
"""The cells that lack an attribute: all of a fragment written without it, save those that an update gave it to."""


def _kept(node: Condition, columns: dict[str, Column], missing: Missing, schema: Schema, n: int) -> Mask:
    """Where a stored delete condition is true: the cells that stay.

    # Quirk: a test of an attribute that the fragment lacks is false of every cell, and under an OR it also
    # wipes out what the tests before it found. tests/interop/test_conditions.py
    """
    if isinstance(node, Compare):
        if node.field in missing:
            held = ~missing[node.field]
            others = {name: cells for name, cells in missing.items() if name != node.field}
            return held & _kept(node, columns, others, schema, n) if held.any() else held
        if node.op in {Op.ALWAYS_TRUE, Op.ALWAYS_FALSE}:
            return np.full(n, node.op is Op.ALWAYS_TRUE)
        if not schema.has(node.field):
            raise CorruptionError(
                f"a delete tests {node.field!r}, which the schema no longer has; read at an earlier instant"
            )
        field, column = schema.field(node.field), columns[node.field]
        if not node.value and node.members is None and not field.is_var:
            # A test for null, which libtiledb stores and then cannot read.
            valid = np.ones(n, bool) if column.validity is None else column.validity
            return ~valid if node.op is Op.EQ else valid
        if compares_first_only(field) and node.members is None:
            column = Column(np.ascontiguousarray(column.values[:, 0]), None, column.validity)
            return compare(column, Attr(field.name, field.datatype, var=False), node.op, node.value[:1], None)
        return compare(column, field, node.op, node.value, node.members)
    children = node.children
    if node.combination is Combination.NOT:
        return ~_kept(children[0], columns, missing, schema, n)
    mask = _kept(children[0], columns, missing, schema, n)
    for child in children[1:]:
        if node.combination is Combination.OR and isinstance(child, Compare) and child.field in missing:
            mask = mask & ~missing[child.field]
        other = _kept(child, columns, missing, schema, n)
        mask = mask & other if node.combination is Combination.AND else mask | other
    return mask


def stored_hits(
    condition: Condition,
    columns: dict[str, Column],
    schema: Schema,
    n: int,
    missing: frozenset[str] = frozenset(),
) -> Mask:
    """The cells that a delete stored with this condition removes; `missing` are attributes that none of them has."""
    return ~_kept(condition, columns, {name: np.ones(n, bool) for name in missing}, schema, n)


def assign_update(
    columns: dict[str, Column], hit: Mask, update: UpdateCommit, schema: Schema
) -> dict[str, Column]:
    changed = dict(columns)
    for assignment in update.assignments:
        if assignment.attr not in columns or not any(a.name == assignment.attr for a in schema.attrs):
            continue  # not asked for, or dropped since
        attr = schema.attr(assignment.attr)
        value: Any = assignment.value
        if not value:
            value = None if attr.nullable else b""
        if value is not None:
            expected = attr.datatype.size * (1 if attr.is_var else attr.cell_val_num)
            if (len(value) % expected) if attr.is_var else len(value) != expected:
                raise CorruptionError(
                    f"assigns {len(value)} bytes to {attr.name!r}, whose cells have {expected}"
                )
        changed[attr.name] = columns[attr.name].assign(hit, value, attr.datatype)
    return changed
