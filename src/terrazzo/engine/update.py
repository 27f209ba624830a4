"""Updates: a condition with new values, made visible by one commit.

The usual form is an `.upd`, applied on read. Where that cannot say it, or libtiledb must see the new values, the
matching cells are written again instead.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from terrazzo.engine.clock import new_name
from terrazzo.engine.columns import Column
from terrazzo.engine.commit import (
    commit_condition,
    commit_fragments,
    commit_records,
    condition_record,
    put_fragment,
)
from terrazzo.engine.delete import plan_delete
from terrazzo.engine.dense import Box, coordinates, read_box, shape_of, tile_box, tiles_of
from terrazzo.engine.intake import exact_counts
from terrazzo.engine.plan import Request, plan_scan
from terrazzo.engine.predicate import FALSE, All, NullTest, Predicate, Some, evaluate, fields_of, to_condition
from terrazzo.engine.region import everything
from terrazzo.engine.runner import steps
from terrazzo.engine.session import check_names, reaching, with_change
from terrazzo.engine.snapshot import StoredCondition
from terrazzo.engine.sparse import joined, scan_columns
from terrazzo.engine.tables import columns_of, table_of
from terrazzo.engine.view import View
from terrazzo.engine.write import dense_fragment, sparse_fragment
from terrazzo.errors import InvalidRequestError
from terrazzo.format.attribute import Attr
from terrazzo.format.commits import Assignment, Commit, UpdateCommit
from terrazzo.format.keys import CommitKind
from terrazzo.format.ledgers import WriteRecord
from terrazzo.format.schema import Schema

Values = dict[str, bytes | None]
"""The bytes of one cell by attribute; None is null."""

_TASK = 1 << 28


def cell_values(given: Mapping[str, Any], schema: Schema) -> Values:
    """New values as they are stored, checked against the schema."""
    if not given:
        raise InvalidRequestError("an update needs at least one value to set")
    return {name: _cell(name, value, schema) for name, value in given.items()}


def _cell(name: str, value: Any, schema: Schema) -> bytes | None:
    if any(dim.name == name for dim in schema.dims):
        raise InvalidRequestError(
            f"{name!r} is a dimension: the place of a cell cannot be updated; delete and write"
        )
    attr = schema.attr(name)
    if value is None:
        if not attr.nullable:
            raise InvalidRequestError(f"attribute {name!r} is not nullable; set a value, not None")
        return None
    moments = _moments(value, attr)
    if moments is not None:
        return exact_counts(moments, attr.datatype, f"attribute {name!r}").tobytes()
    if isinstance(value, np.generic):
        cells: Any = np.array([value])
    else:
        cells = [value.tolist() if isinstance(value, np.ndarray) else value]
    try:
        column = columns_of(table_of({name: cells}, schema), schema, [name])[name]
    except InvalidRequestError as problem:
        raise InvalidRequestError(f"{name!r} cannot be set to {value!r}: {problem}") from None
    return column.values.tobytes()


def _moments(value: Any, attr: Attr) -> Any:
    """numpy's dates and spans, of which Arrow does not have all units; None for anything else."""
    items = value if isinstance(value, (list, tuple, np.ndarray)) else [value]
    kind = np.datetime64 if attr.datatype.is_datetime else np.timedelta64 if attr.datatype.is_time else None
    if kind is None or not len(items) or not all(isinstance(item, kind) for item in items):
        return None
    nested = items is value
    fits = nested if attr.is_var else (len(items) == attr.cell_val_num and nested == (attr.cell_val_num > 1))
    return np.asarray(items) if fits else None


def storable(where: Predicate, values: Values, schema: Schema) -> bool:
    """Whether an `.upd` says it: it has no test for null, and one spelling for null and for no bytes."""
    for name, value in values.items():
        if value == b"" and schema.attr(name).nullable:
            return False
    return not _asks_for_nulls(where, schema)


def _asks_for_nulls(where: Predicate, schema: Schema) -> bool:
    match where:
        case NullTest(name, is_null):
            return is_null or schema.field(name).datatype.is_float
        case All(children) | Some(children):
            return any(_asks_for_nulls(child, schema) for child in children)
        case _:
            return False


def update(view: View, values: Values, where: Predicate, time_ms: int, *, portable: bool) -> View:
    """The view after the update; a condition that nothing can match is not even stored."""
    if where == FALSE:
        return view
    check_names(view, {*values, *fields_of(where)}, time_ms)
    if view.schema.dense:
        return _update_dense(view, values, where, time_ms)
    if portable or not storable(where, values, view.schema):
        return rewrite(view, values, where, time_ms)
    assignments = tuple(Assignment(name, value or b"") for name, value in values.items())
    body = UpdateCommit.of(to_condition(where, view.schema), assignments)
    name = new_name(time_ms)
    commit = commit_condition(view.store, name, CommitKind.UPDATE, body.pack(), view.cipher)
    return with_change(view, (StoredCondition(commit, body),), ())


def matching(view: View, where: Predicate, time_ms: int) -> dict[str, Column] | None:
    """Whole cells that a condition matches at an instant; None if there are none."""
    seen = reaching(view, time_ms)
    names = tuple(field.name for field in view.schema.fields)
    request = Request(names, everything(view.schema), where)
    plan = plan_scan(seen, request, _TASK)
    found = [columns for task in steps(plan.tasks) for columns in scan_columns(seen, plan.request, task)]
    return {name: column for name, column in joined(found).items() if name in names} if found else None


def assigned(columns: dict[str, Column], values: Values, schema: Schema) -> dict[str, Column]:
    n = len(next(iter(columns.values())))
    changed = dict(columns)
    for name, value in values.items():
        changed[name] = columns[name].assign(np.ones(n, bool), value, schema.attr(name).datatype)
    return changed


def rewrite(view: View, values: Values, where: Predicate, time_ms: int) -> View:
    """Write the matching cells again with their new values: what every reader understands."""
    columns = matching(view, where, time_ms)
    if columns is None:
        return view
    return replace_cells(view, assigned(columns, values, view.schema), where, time_ms)


def replace_cells(view: View, columns: dict[str, Column], where: Predicate, time_ms: int) -> View:
    """Commit `columns` in place of the cells that match `where`. Without duplicates a newer version is enough;
    with them the old cells are deleted under the same commit."""
    schema, schema_name = view.schema, view.snapshot.schema_name
    if not schema.allows_duplicates:
        encoded = sparse_fragment(columns, schema, schema_name, time_ms, view.cipher)
        put_fragment(view.store, encoded)
        commit_fragments(view.store, [encoded.fragment.name])
        return with_change(view, (), (encoded.fragment,))
    removal = plan_delete(view, where, time_ms)
    if removal.kept is not None:
        columns = joined([columns, removal.kept])
    encoded = sparse_fragment(columns, schema, schema_name, time_ms + 1, view.cipher)
    put_fragment(view.store, encoded)
    name = new_name(time_ms)
    record = condition_record(name, CommitKind.DELETE, removal.body.pack(), view.cipher)
    commit_records(view.store, [record, WriteRecord(encoded.fragment.name)])
    condition = StoredCondition(Commit(name, CommitKind.DELETE), removal.body)
    return with_change(view, (condition,), (encoded.fragment,))


def _update_dense(view: View, values: Values, where: Predicate, time_ms: int) -> View:
    """Read the tiles that hold a matching cell, change them, and write them as one box."""
    schema = view.schema
    late = [f.name.end_ms for f in view.snapshot.fragments if f.name.end_ms >= time_ms]
    if late:
        raise InvalidRequestError(
            f"a dense update writes whole tiles again as they are now: it cannot be dated {time_ms}, before the "
            f"latest write at {max(late)}"
        )
    written: list[Box] = [f.footer.domain for f in view.snapshot.fragments if f.footer.domain]
    if not written:
        return view
    extent: Box = tuple(
        (min(box[j][0] for box in written), max(box[j][1] for box in written))
        for j in range(len(schema.dims))
    )
    touched: Box | None = None
    for place in tiles_of(extent, schema):
        part = tuple(
            (max(a, c), min(b, d)) for (a, b), (c, d) in zip(tile_box(place, schema), extent, strict=True)
        )
        columns = _dense_columns(view, part, fields_of(where))
        if evaluate(where, columns, schema, int(np.prod(shape_of(part)))).any():
            touched = (
                part
                if touched is None
                else tuple((min(a, c), max(b, d)) for (a, b), (c, d) in zip(touched, part, strict=True))
            )
    if touched is None:
        return view
    columns = _dense_columns(view, touched, {field.name for field in schema.fields})
    hit = evaluate(where, columns, schema, int(np.prod(shape_of(touched))))
    changed = {attr.name: columns[attr.name] for attr in schema.attrs}
    for name, value in values.items():
        changed[name] = changed[name].assign(hit, value, schema.attr(name).datatype)
    encoded = dense_fragment(
        schema, view.snapshot.schema_name, changed, touched, new_name(time_ms), view.cipher
    )
    put_fragment(view.store, encoded)
    commit_fragments(view.store, [encoded.fragment.name])
    return with_change(view, (), (encoded.fragment,))


def _dense_columns(view: View, box: Box, names: Any) -> dict[str, Column]:
    attrs = [attr.name for attr in view.schema.attrs if attr.name in names]
    return coordinates(box, view.schema, names) | read_box(view, box, attrs)
