"""Restore: the array shows again what it showed at an instant, as a new commit on top of all that happened.

    sparse   one `.con`: a `.del` that removes every cell up to its time, and fragments one millisecond later that
             hold the cells of then; an empty past is the `.del` alone
    dense    the box of everything written by now, as it read then; cells that nobody had written get fill values

Cells are read and written in pieces that keep to the memory. Nobody sees any of it before the commit.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from terrazzo.engine.clock import new_name
from terrazzo.engine.columns import Column
from terrazzo.engine.commit import (
    commit_condition,
    commit_fragments,
    commit_records,
    condition_record,
    put_fragment,
)
from terrazzo.engine.dense import read_box
from terrazzo.engine.encode import EncodedFragment
from terrazzo.engine.fragments import Fragment
from terrazzo.engine.plan import Request, plan_scan
from terrazzo.engine.predicate import TRUE, to_condition
from terrazzo.engine.reading import slabs
from terrazzo.engine.region import everything
from terrazzo.engine.runner import steps
from terrazzo.engine.select import union_box
from terrazzo.engine.session import with_change, with_fragments
from terrazzo.engine.snapshot import StoredCondition, take_snapshot
from terrazzo.engine.sparse import joined, scan_columns
from terrazzo.engine.view import View
from terrazzo.engine.window import Window
from terrazzo.engine.write import dense_fragment, sparse_fragment
from terrazzo.errors import TerrazzoError
from terrazzo.format.commits import Commit, DeleteCommit
from terrazzo.format.keys import CommitKind
from terrazzo.format.ledgers import WriteRecord

_SHARE = 6  # decoded cells, their sorted copy, the encoded tiles

Columns = dict[str, Column]


def restore(view: View, at_ms: int, time_ms: int, memory: int) -> View:
    """The view after the restore. `view` shows everything there is; `time_ms` is later than all of it."""
    past = as_of(view, at_ms)
    if (past.snapshot.fragments, past.snapshot.conditions) == (
        view.snapshot.fragments,
        view.snapshot.conditions,
    ):
        return view  # nothing has happened since
    size = max(memory // _SHARE, 1 << 16)
    return (_restore_dense if view.schema.dense else _restore_sparse)(view, past, time_ms, size)


def as_of(view: View, at_ms: int) -> View:
    """What was there at an instant, told by the schema of now."""
    then = take_snapshot(view.store, Window(0, at_ms), view.cipher)
    then.require_sound()
    now = view.snapshot
    return view.following(replace(then, schema=now.schema, schema_name=now.schema_name, schemas=now.schemas))


def _restore_sparse(view: View, past: View, time_ms: int, size: int) -> View:
    schema, schema_name = view.schema, view.snapshot.schema_name
    body = DeleteCommit.of(to_condition(TRUE, schema))
    written = _put_all(
        view,
        (
            sparse_fragment(columns, schema, schema_name, time_ms + 1, view.cipher)
            for columns in _cells(past, size)
        ),
    )
    name = new_name(time_ms)
    if not written:
        commit_condition(view.store, name, CommitKind.DELETE, body.pack(), view.cipher)
    else:
        record = condition_record(name, CommitKind.DELETE, body.pack(), view.cipher)
        commit_records(view.store, [record, *(WriteRecord(fragment.name) for fragment in written)])
    return with_change(view, (StoredCondition(Commit(name, CommitKind.DELETE), body),), written)


def _cells(past: View, size: int) -> Iterator[Columns]:
    """The cells of then, in pieces of about `size` bytes."""
    names = tuple(field.name for field in past.schema.fields)
    plan = plan_scan(past, Request(names, everything(past.schema)), size)
    waiting: list[Columns] = []
    held = 0
    for task in steps(plan.tasks):
        for found in scan_columns(past, plan.request, task):
            waiting.append({name: found[name] for name in names})
            held += sum(found[name].nbytes for name in names)
        if held >= size:
            yield joined(waiting)
            waiting, held = [], 0
    if waiting:
        yield joined(waiting)


def _restore_dense(view: View, past: View, time_ms: int, size: int) -> View:
    schema, schema_name = view.schema, view.snapshot.schema_name
    cell = sum(attr.datatype.size * (8 if attr.is_var else attr.cell_val_num) for attr in schema.attrs)
    attrs = [attr.name for attr in schema.attrs]
    box = union_box((*past.snapshot.fragments, *view.snapshot.fragments))
    written = _put_all(
        view,
        (
            dense_fragment(
                schema, schema_name, read_box(past, part, attrs), part, new_name(time_ms), view.cipher
            )
            for part in slabs(box, schema, cell, size)
        ),
    )
    commit_fragments(view.store, [fragment.name for fragment in written])
    return with_fragments(view, written)


def _put_all(view: View, pieces: Iterator[EncodedFragment]) -> tuple[Fragment, ...]:
    written: list[Fragment] = []
    try:
        for encoded in pieces:
            fragment = put_fragment(view.store, encoded)
            written.append(fragment)
    except BaseException:
        with suppress(TerrazzoError):  # nobody sees them: if they cannot be removed now, vacuum does it later
            for fragment in written:
                view.store.delete_folder(fragment.key)
        raise
    return tuple(written)
