"""Consolidation: many fragments to few, in tasks that are boxes of the domain, under one commit.

    plan     which fragments, which boxes, which conditions; nothing but metadata is read
    run      a box: read, merge the versions, encode, put. Leaves a folder that nobody sees
    commit   `.merge`, then the commit of all new fragments at once, then `.vac`, then `.merge` goes

A crash before the commit leaves folders that vacuum reclaims. One behind it leaves a `.merge`: our readers honour it
as they would the `.vac`, and the next maintenance finishes it.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from terrazzo.engine.clock import new_name
from terrazzo.engine.commit import commit_fragments, put_fragment
from terrazzo.engine.dense import Box, read_box, shape_of
from terrazzo.engine.encode import encode_sparse
from terrazzo.engine.fragments import Fragment
from terrazzo.engine.keeping import alien, keep_dropped
from terrazzo.engine.layout import DELETE_CONDITION, DELETE_TIMESTAMPS, TIMESTAMPS
from terrazzo.engine.ledger import Ledger, read_ledger
from terrazzo.engine.listing import list_array
from terrazzo.engine.merge import merge
from terrazzo.engine.plan import Request, ScanTask, plan_boxes
from terrazzo.engine.reading import slabs
from terrazzo.engine.region import everything
from terrazzo.engine.runner import LocalRunner, Progress, Runner
from terrazzo.engine.select import (
    Selection,
    boxes_meet,
    dense_run_is_safe,
    named,
    select,
    stored_size,
    tied_with,
    union_box,
)
from terrazzo.engine.snapshot import StoredCondition
from terrazzo.engine.together import read_together
from terrazzo.engine.view import View
from terrazzo.engine.weight import Weight, weight_of
from terrazzo.engine.write import dense_fragment
from terrazzo.errors import ConflictError, InvalidRequestError
from terrazzo.format.commits import UpdateCommit
from terrazzo.format.generic_tile import pack_generic_tile
from terrazzo.format.keys import (
    COMMIT_FOLDER,
    MERGE_SUFFIX,
    CommitKind,
    TimestampedName,
    commit_key,
    fragment_key,
    merge_key,
    schema_key,
)
from terrazzo.format.ledgers import Merge, pack_vac
from terrazzo.format.schema import Schema
from terrazzo.storage.base import Store

_ABOUT_TO_MS = 600_000  # a commit follows its `.merge` at once, by far within ten minutes
_PATIENCE_S, _POLL_S = 2.0, 0.02  # with another that is about to commit, or to give way
_SHARE = 6  # of dense cells: decoded, their merge, the encoded tiles


@dataclass(frozen=True, slots=True, eq=False)
class BoxTask:
    """One box to merge into one fragment. It names its fragment anew each time that it runs."""

    view: View
    sources: tuple[int, ...]  # places in the snapshot
    conditions: tuple[StoredCondition, ...]
    start_ms: int
    end_ms: int
    purge: bool
    scan: ScanTask | None = None  # sparse
    box: Box | None = None  # dense

    def __call__(self) -> Fragment | None:
        return _run_dense(self) if self.box is not None else _run_sparse(self)


@dataclass(frozen=True, slots=True)
class ConsolidationPlan:
    sources: tuple[Fragment, ...]
    tasks: tuple[BoxTask, ...] = field(repr=False)
    n_cells: int
    stored_bytes: int
    memory: int
    pending: int  # updates that cannot be materialised yet, because of fragments outside
    purge: bool
    schema: tuple[str, Schema] | None = field(
        default=None, repr=False
    )  # to be put first: it holds dropped attributes

    def __str__(self) -> str:
        if not self.sources:
            return "nothing to consolidate"
        lines = [
            f"consolidate {len(self.sources)} fragments, {self.n_cells:,} cells, {self.stored_bytes:,} bytes stored",
            f"into {len(self.tasks)} fragments, one task each, up to {self.memory:,} bytes of memory",
        ]
        if self.purge:
            lines.append("deleted and superseded cells are dropped: earlier instants can no longer be read")
        if self.pending:
            lines.append(
                f"{self.pending} updates stay pending: fragments outside hold versions of the same cells"
            )
        return "\n".join(lines)


def plan_consolidation(
    view: View, selection: Selection, *, fragments: Sequence[str] | None = None, purge: bool = False,
    memory: int = 1 << 30, max_fragment_size: int | None = None,
) -> ConsolidationPlan:  # fmt: skip
    """The next step. `view` must see everything, whatever its time."""
    snapshot, schema = view.snapshot, view.schema
    snapshot.require_sound()
    known = snapshot.schemas
    if fragments is not None:
        run = named(snapshot.fragments, fragments)
        if schema.dense and not dense_run_is_safe(
            snapshot.fragments, run, schema, replace(selection, amplification=np.inf)
        ):
            raise InvalidRequestError(
                "an older fragment lies within the box of these; consolidate it with them"
            )
        if tied := tied_with(snapshot.fragments, run, schema):
            raise InvalidRequestError(
                f"{tied.name} was written at the same instant as some of these, and which cell wins would change; "
                f"consolidate it with them"
            )
        if not purge and {each.key for each in run} & {each.key for each in alien(view)}:
            raise InvalidRequestError(
                "one of these holds an attribute whose name now means another one, which earlier instants still "
                "show; leave it out, or purge"
            )
    else:
        run = select(snapshot.fragments, schema, selection, () if purge else alien(view))
    if not run:
        return ConsolidationPlan((), (), 0, 0, 0, 0, purge)
    keeping = view if purge else keep_dropped(view, run)
    view, snapshot, schema = keeping, keeping.snapshot, keeping.schema
    new_schema = None if snapshot.schema_name in known else (snapshot.schema_name, schema)
    places = {fragment.key: place for place, fragment in enumerate(snapshot.fragments)}
    sources = tuple(places[fragment.key] for fragment in run)
    conditions, pending = _conditions(view, run, purge=purge)
    end_ms = max(fragment.name.end_ms for fragment in run)
    if not schema.dense:
        end_ms = max(
            [
                end_ms,
                *(
                    c.time_ms + 1
                    for c in conditions
                    if isinstance(c.body, UpdateCommit) and c.time_ms >= run[0].name.start_ms
                ),
            ]
        )
    shared = (view, sources, conditions, run[0].name.start_ms, end_ms, purge)
    if schema.dense:
        size = memory // _SHARE
        if max_fragment_size is not None:
            size = min(size, _in_memory(max_fragment_size, run, view, Weight(copies=1, per_cell=0)))
        cell = sum(attr.datatype.size * (8 if attr.is_var else attr.cell_val_num) for attr in schema.attrs)
        tasks = tuple(BoxTask(*shared, box=box) for box in slabs(union_box(run), schema, cell, size))
        peak = min(size, prod(shape_of(union_box(run))) * cell) * _SHARE
    else:
        weight = weight_of(view, run, conditions, purge=purge)
        size = weight.room(memory)
        if max_fragment_size is not None:
            size = min(size, _in_memory(max_fragment_size, run, view, weight))
        names = tuple(each.name for each in schema.fields)
        scans = plan_boxes(view, Request(names, everything(schema)), sources, size, weight.sizes)
        tasks = tuple(BoxTask(*shared, scan=scan) for scan in scans)
        peak = max((scan.size for scan in scans), default=0)
    n_cells = sum(fragment.footer.n_cells(snapshot.schema_of(fragment)) for fragment in run)
    return ConsolidationPlan(
        run, tasks, n_cells, sum(map(stored_size, run)), peak, pending, purge, new_schema
    )


def _in_memory(stored: int, run: Sequence[Fragment], view: View, weight: Weight) -> int:
    """What cells weigh that make about so many stored bytes."""
    total = sum(map(stored_size, run)) or 1
    width = sum(f.datatype.size * (8 if f.is_var else f.cell_val_num) for f in view.schema.fields)
    cells = sum(fragment.footer.n_cells(view.snapshot.schema_of(fragment)) for fragment in run)
    return max(1, int(stored * max(cells * (width * weight.copies + weight.per_cell) / total, 0.5)))


def _conditions(
    view: View, run: Sequence[Fragment], *, purge: bool
) -> tuple[tuple[StoredCondition, ...], int]:
    """Conditions to settle, and how many updates must wait.

    Without duplicates an update changes the newest version of a cell only. Where a fragment that stays outside may
    hold a newer one, the update stays pending for these cells, and with it every later update.
    """
    chosen = {fragment.key for fragment in run}
    snapshot, schema, conditions = view.snapshot, view.schema, view.conditions
    if schema.dense:
        return (), 0
    outside: list[Fragment] = []
    if not schema.allows_duplicates:
        box = union_box(run)
        outside = [f for f in snapshot.fragments if f.key not in chosen and boxes_meet(f.footer.domain, box)]
        if outside and purge:
            raise InvalidRequestError(
                "purge drops the newest version of deleted cells, and older ones outside would come back; "
                "consolidate all fragments that overlap"
            )
    if not outside:
        return conditions, 0
    earliest = min(fragment.name.start_ms for fragment in outside)
    kept = [c for c in conditions if not (isinstance(c.body, UpdateCommit) and c.time_ms >= earliest)]
    return tuple(kept), len(conditions) - len(kept)


def _run_sparse(task: BoxTask) -> Fragment | None:
    view, scan = task.view, task.scan
    assert scan is not None
    columns = merge(read_together(view, scan), task.conditions, view.wide, purge=task.purge)
    if columns is None:
        return None
    hidden = {TIMESTAMPS, DELETE_TIMESTAMPS, DELETE_CONDITION}
    kept = {name: column for name, column in columns.items() if name in hidden or view.schema.has(name)}
    encoded = encode_sparse(
        new_name(task.start_ms, task.end_ms), view.schema, view.snapshot.schema_name, kept,
        processed=[condition.marker for condition in task.conditions], cipher=view.cipher,
    )  # fmt: skip
    return put_fragment(view.store, encoded)


def _run_dense(task: BoxTask) -> Fragment:
    view, box = task.view, task.box
    assert box is not None
    chosen = tuple(view.snapshot.fragments[place] for place in task.sources)
    alone = view.following(replace(view.snapshot, fragments=chosen))
    columns = read_box(alone, box, [attr.name for attr in view.schema.attrs])
    name = new_name(task.start_ms, task.end_ms)
    encoded = dense_fragment(view.schema, view.snapshot.schema_name, columns, box, name, view.cipher)
    return put_fragment(view.store, encoded)


def run_consolidation(
    plan: ConsolidationPlan, runner: Runner | None = None, progress: Progress | None = None
) -> tuple[Fragment, ...]:
    """The new fragments, put but not committed."""
    if plan.schema is not None and plan.tasks:
        view = plan.tasks[0].view
        name, schema = plan.schema
        view.store.put(schema_key(name), pack_generic_tile(schema.pack(), view.cipher))
    results = (runner or LocalRunner()).map(BoxTask.__call__, plan.tasks, progress)
    return tuple(fragment for fragment in results if fragment is not None)


def commit_consolidation(view: View, plan: ConsolidationPlan, created: Sequence[Fragment]) -> None:
    """Make the new fragments visible in place of their sources."""
    store = view.store
    if not created:
        raise InvalidRequestError("no cell is left to write; use delete_fragments to remove what is there")
    first = created[0].name
    merge_ = Merge(tuple(f.key for f in created), tuple(f.key for f in plan.sources))
    store.put(merge_key(first), merge_.pack())
    try:
        _check_undisturbed(view, merge_key(first), merge_)
        commit_fragments(store, [fragment.name for fragment in created])
    except ConflictError:  # none of them is committed
        store.delete([merge_key(first)])
        for fragment in created:
            store.delete_folder(fragment.key)
        raise
    finish_merge(store, first, merge_)


def finish_merge(store: Store, name: TimestampedName, merge_: Merge) -> None:
    """What remains to be done once the new fragments are committed."""
    store.put(commit_key(name, CommitKind.VACUUM), pack_vac(merge_.replaced))
    store.delete([merge_key(name)])


def finish_merges(view: View, ledger: Ledger) -> bool:
    """Complete consolidations that stopped between their commit and their `.vac`; whether there were any."""
    found = False
    for key, each in ledger.merges:
        name = TimestampedName.parse(key.rpartition("/")[2].removesuffix(f".{MERGE_SUFFIX}"))
        if name is not None and all(created in ledger.writes for created in each.created):
            finish_merge(view.store, name, each)
            found = True
    return found


def _check_undisturbed(view: View, own: str, merge_: Merge) -> None:
    """That nobody else consolidated, or is about to, what we did: ConflictError otherwise.

    Whoever announces itself by a `.merge` second sees the first. Of two that see each other the later name gives way;
    the earlier one waits for that, since the other may have looked before, and then it commits. One that has been
    about to for long is dead, and vacuum clears it away.
    """
    patience, clean = time.monotonic() + _PATIENCE_S, 0
    while (
        clean < 2
    ):  # a listing may miss both the `.merge` and the `.vac` of one that ends meanwhile; a second does not
        gone, ahead, behind = _rivals(view, own, merge_)
        if gone or ahead or (behind and time.monotonic() > patience):
            hint = (
                "; if that one died, try again in ten minutes or after vacuum(retain=0)" if not gone else ""
            )
            raise ConflictError(
                f"{len(gone or ahead or behind)} of the fragments were consolidated or removed by another process "
                f"meanwhile, or are about to be; nothing was changed{hint}"
            )
        clean = 0 if behind else clean + 1
        if behind:
            time.sleep(_POLL_S)


def _rivals(view: View, own: str, merge_: Merge) -> tuple[set[str], set[str], set[str]]:
    """Of our sources: those that are gone already, and those that others are about to replace, who sort before and
    behind us."""
    ledger = read_ledger(view.store, list_array(view.store))
    replaced = set(merge_.replaced)
    gone, ahead, behind = replaced - set(ledger.writes), set[str](), set[str]()
    for name, lines in ledger.superseded:
        if fragment_key(name) in ledger.writes:
            gone |= replaced & set(lines)
    rivals = [(key, other) for key, other in ledger.merges if key != own and replaced & set(other.replaced)]
    modified = {entry.key: entry.modified_ms for entry in view.store.list(COMMIT_FOLDER)} if rivals else {}
    for key, other in rivals:
        shared = replaced & set(other.replaced)
        if all(created in ledger.writes for created in other.created):
            gone |= shared
        elif modified.get(key, 0) > modified.get(own, 0) - _ABOUT_TO_MS:
            (ahead if key < own else behind).update(shared)
    return gone, ahead, behind
