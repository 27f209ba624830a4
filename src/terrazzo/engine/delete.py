"""Deletes: a condition, made visible by one commit.

The stored form is libtiledb's, which also removes cells where a tested attribute is null or NaN. Those that SQL
keeps are written again, one millisecond later, under the same commit: so both readers show SQL's answer.
"""

from dataclasses import dataclass

from terrazzo.engine.clock import new_name
from terrazzo.engine.columns import Column, filtered
from terrazzo.engine.commit import commit_condition, commit_records, condition_record, put_fragment
from terrazzo.engine.fragments import Fragment
from terrazzo.engine.history import stored_hits
from terrazzo.engine.plan import Request, plan_scan
from terrazzo.engine.predicate import (
    FALSE,
    All,
    Predicate,
    Some,
    Test,
    compares_first_only,
    evaluate,
    fields_of,
    to_condition,
)
from terrazzo.engine.region import everything
from terrazzo.engine.runner import steps
from terrazzo.engine.session import check_names, reaching, with_change
from terrazzo.engine.snapshot import StoredCondition
from terrazzo.engine.sparse import joined, scan_columns
from terrazzo.engine.view import View
from terrazzo.engine.write import sparse_fragment
from terrazzo.errors import InvalidRequestError
from terrazzo.format.attribute import Attr
from terrazzo.format.commits import Commit, DeleteCommit
from terrazzo.format.condition import Op
from terrazzo.format.keys import CommitKind
from terrazzo.format.ledgers import WriteRecord
from terrazzo.format.schema import Schema

_TASK = 1 << 28


@dataclass(frozen=True, slots=True)
class Removal:
    """A delete ready to be committed: the condition, and the cells to write again."""

    body: DeleteCommit
    kept: dict[str, Column] | None


def plan_delete(view: View, where: Predicate, time_ms: int) -> Removal:
    body = delete_body(view, where, time_ms)
    return Removal(body, _spared(view, where, body, time_ms))


def delete_body(view: View, where: Predicate, time_ms: int) -> DeleteCommit:
    """What to store for a delete; an error if other readers would take it for something else."""
    if view.schema.dense:
        raise InvalidRequestError(
            "a dense array has a value in every cell: write its fill value instead of deleting"
        )
    check_names(view, fields_of(where), time_ms)
    _check_fragments(view, where, time_ms)
    _check_characters(view, where)
    return DeleteCommit.of(to_condition(where, view.schema))


def _check_fragments(view: View, where: Predicate, time_ms: int) -> None:
    """libtiledb removes every cell of a fragment that lacks a tested attribute, whatever the condition says."""
    names = fields_of(where)
    for fragment in view.snapshot.fragments:
        lacking = names & view.missing(fragment)
        if lacking and fragment.name.start_ms <= time_ms:
            raise InvalidRequestError(
                f"{', '.join(map(repr, sorted(lacking)))} was added after {fragment.name} was written, and a delete "
                f"by it would remove all of that fragment's cells in other readers; consolidate first"
            )


def _check_characters(view: View, where: Predicate) -> None:
    match where:
        case Test(op, name) if op in {Op.LT, Op.LE, Op.GT, Op.GE} and compares_first_only(
            view.schema.field(name)
        ):
            raise InvalidRequestError(
                f"{name!r} is CHAR of a fixed length, and of those libtiledb compares the first character only; "
                f"delete with = or IN instead"
            )
        case All(children) | Some(children):
            for child in children:
                _check_characters(view, child)


def may_spare(where: Predicate, schema: Schema) -> bool:
    """Whether the stored condition can hit cells that the asked one does not."""
    tested = [schema.field(name) for name in fields_of(where)]
    return any((isinstance(field, Attr) and field.nullable) or field.datatype.is_float for field in tested)


def spared_cells(
    columns: dict[str, Column], where: Predicate, body: DeleteCommit, schema: Schema
) -> dict[str, Column] | None:
    """Those of some cells that the stored condition hits and the asked one does not; None if there are none."""
    n = len(next(iter(columns.values())))
    spared = stored_hits(body.condition, columns, schema, n) & ~evaluate(where, columns, schema, n)
    return filtered(columns, spared) if spared.any() else None


def _spared(view: View, where: Predicate, body: DeleteCommit, time_ms: int) -> dict[str, Column] | None:
    """Cells that the stored condition hits and the asked one does not."""
    if not may_spare(where, view.schema):
        return None
    seen = reaching(view, time_ms)
    request = Request(tuple(field.name for field in view.schema.fields), everything(view.schema))
    found = []
    for task in steps(plan_scan(seen, request, _TASK).tasks):
        for columns in scan_columns(seen, request, task):
            spared = spared_cells(columns, where, body, view.schema)
            if spared is not None:
                found.append(spared)
    names = [field.name for field in view.schema.fields]
    return {name: column for name, column in joined(found).items() if name in names} if found else None


def commit_delete(view: View, removal: Removal, time_ms: int) -> View:
    name = new_name(time_ms)
    commit = Commit(name, CommitKind.DELETE)
    fragments: tuple[Fragment, ...] = ()
    if removal.kept is None:
        commit_condition(view.store, name, CommitKind.DELETE, removal.body.pack(), view.cipher)
    else:
        schema, schema_name = view.schema, view.snapshot.schema_name
        encoded = sparse_fragment(removal.kept, schema, schema_name, time_ms + 1, view.cipher)
        put_fragment(view.store, encoded)
        record = condition_record(name, CommitKind.DELETE, removal.body.pack(), view.cipher)
        commit_records(view.store, [record, WriteRecord(encoded.fragment.name)])
        fragments = (encoded.fragment,)
    return with_change(view, (StoredCondition(commit, removal.body),), fragments)


def delete(view: View, where: Predicate, time_ms: int) -> View:
    """The view after the delete; a condition that nothing can match is not even stored."""
    if where == FALSE:
        return view
    return commit_delete(view, plan_delete(view, where, time_ms), time_ms)
