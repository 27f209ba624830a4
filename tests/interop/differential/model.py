"""What an array holds at an instant, in plain Python: every version of every cell, and every change, in lists.

Conditions mean what SQL says: a null or a NaN matches no comparison. A cell that was written without an attribute
has its fill value.
"""

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np

from differential.generator import labels, places, schema_at
from differential.history import (
    Case,
    Cell,
    Condition,
    Delete,
    Joined,
    Member,
    Not,
    Null,
    Operation,
    Query,
    Ranges,
    Test,
    Update,
    Window,
    Write,
)  # fmt: skip
from terrazzo import Attr, Datatype, Dim, Schema
from terrazzo.format.condition import Op

Cells = dict[str, Cell]
_OPS = {
    Op.LT: operator.lt, Op.LE: operator.le, Op.GT: operator.gt, Op.GE: operator.ge, Op.EQ: operator.eq,
    Op.NE: operator.ne,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Version:
    place: tuple[bytes, ...]
    at: int
    values: Cells
    attrs: dict[str, Attr]  # as they were when it was written


def rows_at(case: Case, operations: list[Operation], window: Window) -> list[Cells]:
    """Every cell in the window, by field."""
    schema = schema_at(case, window)
    last = window.at if window.at is not None else 1 << 63
    versions = [
        version
        for op in operations
        if isinstance(op, Write) and window.since <= op.at <= last
        for version in _versions(op)
    ]
    changes = [op for op in operations if isinstance(op, (Delete, Update)) and window.since <= op.at <= last]
    changes.sort(key=lambda op: op.at)
    if not schema.allows_duplicates:
        newest: dict[tuple[bytes, ...], Version] = {}
        for version in versions:
            if version.place not in newest or newest[version.place].at < version.at:
                newest[version.place] = version
        versions = list(newest.values())
    if schema.dense:
        return _dense(schema, {version.place: version for version in versions})
    shown = (_changed(version, changes, schema) for version in versions)
    return [cells for cells in shown if cells is not None]


def _versions(op: Write) -> list[Version]:
    attrs = {attr.name: attr for attr in op.schema.attrs}
    if op.box is not None:
        where = places(op.box, op.schema)
    else:
        where = list(zip(*(op.cells[dim.name] for dim in op.schema.dims), strict=True))
    return [
        Version(place, op.at, {name: op.cells[name][row] for name in attrs}, attrs)
        for row, place in enumerate(where)
    ]


def _dense(schema: Schema, written: dict[tuple[bytes, ...], Version]) -> list[Cells]:
    found = []
    for place in places(tuple(dim.domain for dim in schema.dims), schema):
        version = written.get(place, Version(place, 0, {}, {}))
        found.append(
            _place(version, schema) | {attr.name: _value(version, attr, schema) for attr in schema.attrs}
        )
    return found


def _place(version: Version, schema: Schema) -> Cells:
    return {dim.name: cell for dim, cell in zip(schema.dims, version.place, strict=True)}


def _value(version: Version, attr: Attr, schema: Schema) -> Cell:
    if not _has(version, attr):
        return fill_of(attr, schema)
    cell = version.values[attr.name]
    if attr.enum is not None and cell is not None and cell not in labels(schema.enums[attr.enum]):
        return NoLabel(b"\x7f" * attr.datatype.size)  # a label that a later schema brought
    return cell


def _has(version: Version, attr: Attr) -> bool:
    old = version.attrs.get(attr.name)
    return old is not None and (old.datatype, old.cell_val_num, old.nullable) == (
        attr.datatype, attr.cell_val_num, attr.nullable,
    )  # fmt: skip


def fill_of(attr: Attr, schema: Schema) -> Cell:
    if attr.nullable and not attr.fill_valid:
        return None
    if attr.enum is not None:
        index = int(np.frombuffer(attr.fill, attr.datatype.dtype)[0])
        known = labels(schema.enums[attr.enum])
        return known[index] if 0 <= index < len(known) else NoLabel(attr.fill)
    return attr.fill


def _changed(version: Version, changes: list[Delete | Update], schema: Schema) -> Cells | None:
    assigned: Cells = {}
    place = _place(version, schema)
    for change in changes:
        if change.at < version.at:
            continue
        then = {attr.name: _value(version, attr, change.schema) for attr in change.schema.attrs}
        if holds(change.where, {**place, **then, **assigned}, change.schema):
            if isinstance(change, Delete):
                return None
            assigned |= change.values
    now = {attr.name: _value(version, attr, schema) for attr in schema.attrs}
    return place | {
        name: assigned.get(name, cell) if name in assigned else cell for name, cell in now.items()
    }


# -- conditions -------------------------------------------------------------------------------------------


class NoLabel(bytes):
    """An index beyond the labels, such as a fill value: it reads as null, yet compares as an index."""


def holds(condition: Condition, cells: Cells, schema: Schema, *, negated: bool = False) -> bool:
    match condition:
        case Joined(how, children):
            found = [holds(child, cells, schema, negated=negated) for child in children]
            return all(found) if (how == "AND") != negated else any(found)
        case Not(child):
            return holds(child, cells, schema, negated=not negated)
        case Null(name, is_null):
            return (cells[name] is None) == (is_null != negated)
        case Test(op, name, value):
            field = schema.field(name)
            cell = cells[name]
            if cell is None or _is_nan(cell, field):
                return False
            wanted = op.negated if negated else op
            return bool(_OPS[wanted](_comparable(cell, field, schema), _comparable(value, field, schema)))
        case Member(op, name, members):
            field = schema.field(name)
            cell = cells[name]
            if cell is None or _is_nan(cell, field):
                return False
            inside = any(
                _comparable(cell, field, schema) == _comparable(member, field, schema) for member in members
            )
            return inside == ((op is Op.IN) != negated)


def _is_nan(cell: bytes, field: Attr | Dim) -> bool:
    plain = field.datatype.is_float and getattr(field, "enum", None) is None
    return plain and bool(np.isnan(np.frombuffer(cell, field.datatype.dtype)[0]))


def _comparable(cell: bytes, field: Attr | Dim, schema: Schema) -> Any:
    if isinstance(cell, NoLabel):
        return int(np.frombuffer(cell, field.datatype.dtype)[0])
    if getattr(field, "enum", None) is not None:
        return labels(schema.enums[field.enum]).index(cell)
    if field.is_var or field.datatype.is_string or field.datatype is Datatype.CHAR:
        return cell
    return np.frombuffer(cell, field.datatype.dtype)[0]


# -- questions --------------------------------------------------------------------------------------------


def answer(rows: list[Cells], query: Query, schema: Schema) -> dict[str, list[Cell]]:
    chosen = [
        row
        for row in rows
        if all(_inside(row[name], ranges, schema.dim(name)) for name, ranges in query.region.items())
        and (query.where is None or holds(query.where, row, schema))
    ]
    return {name: [shown(row[name]) for row in chosen] for name in query.columns}


def shown(cell: Cell) -> Cell:
    return None if isinstance(cell, NoLabel) else cell


def _inside(cell: Cell, ranges: Ranges, dim: Dim) -> bool:
    def number(stored: bytes) -> Any:
        return stored if dim.is_var else np.frombuffer(stored, dim.datatype.dtype)[0]

    return any(number(low) <= number(cell) <= number(high) for low, high in ranges)
