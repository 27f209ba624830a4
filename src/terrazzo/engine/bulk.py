"""Writes by many hands under one commit.

    plan     which schema, which instant; the array need not be there yet
    run      cells to fragments that nobody sees, in any process, as often as a task is tried
    commit   the schema, if the array is new; then one `.wrt` or `.con` for the fragments of the tasks that count

A task that fails removes what it wrote. What a killed one leaves behind is invisible, and vacuum reclaims it.
"""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from terrazzo.engine.clock import FOREVER, instant, new_name, now_ms
from terrazzo.engine.columns import Column, filtered
from terrazzo.engine.commit import commit_fragments, commit_records, condition_record, put_fragment
from terrazzo.engine.dense import placed
from terrazzo.engine.encode import EncodedFragment, encode_sparse
from terrazzo.engine.evolve import put_schema, require_free
from terrazzo.engine.ledger import read_ledger
from terrazzo.engine.listing import list_array
from terrazzo.engine.predicate import TRUE, to_condition
from terrazzo.engine.reading import slabs
from terrazzo.engine.select import union_box
from terrazzo.engine.session import next_time
from terrazzo.engine.snapshot import Snapshot, take_snapshot
from terrazzo.engine.view import View
from terrazzo.engine.window import Window
from terrazzo.engine.write import dense_fragment, gathered, in_global_order
from terrazzo.errors import ArrayNotFoundError, ConflictError, TerrazzoError
from terrazzo.format import keys
from terrazzo.format.commits import DeleteCommit
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.keys import CommitKind, TimestampedName
from terrazzo.format.ledgers import Record, WriteRecord
from terrazzo.format.schema import Schema
from terrazzo.storage.base import Store

FRAGMENT_SIZE = 256 << 20
"""Bytes of columns that a task sorts at once; several tasks share the memory of an executor."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a task wrote: the names of its fragments, and how much is in them."""

    names: tuple[str, ...]
    n_cells: int
    size: int


@dataclass(frozen=True, slots=True)
class BulkWrite:
    store: Store
    schema: Schema
    schema_name: str
    time_ms: int
    cipher: Aes256Gcm | None
    fragment_size: int
    creates: bool  # the array is not there yet
    replaces: bool  # everything that is there goes, under the same commit
    token: str  # twelve digits in the names of all its fragments, by which its leftovers are known

    @property
    def cells_ms(self) -> int:
        """When the cells are written: behind the delete of those that they replace."""
        return self.time_ms + (self.replaces and not self.creates)

    def run(self, data: Any) -> Written:
        """Put the cells of one task; batches of any kind that `Array.write` takes."""
        written: list[TimestampedName] = []
        cells = size = 0
        try:
            for encoded in self._fragments(data):
                written.append(encoded.name)
                footer = put_fragment(self.store, encoded).footer
                cells += footer.n_cells(self.schema)
                size += sum(footer.file_sizes) + sum(footer.var_file_sizes) + sum(footer.validity_file_sizes)
        except BaseException:
            with suppress(TerrazzoError):
                self.discard([Written(tuple(map(str, written)), 0, 0)])
            raise
        return Written(tuple(map(str, written)), cells, size)

    def _fragments(self, data: Any) -> Iterator[EncodedFragment]:
        schema, name = self.schema, self.schema_name
        for columns in gathered(data, schema, FOREVER if schema.dense else self.fragment_size):
            if schema.sparse:
                ordered = in_global_order(columns, schema)
                yield encode_sparse(self._new_name(), schema, name, ordered, cipher=self.cipher)
                continue
            for part in _tile_rows(columns, schema):
                attrs, box = placed(part, schema)
                yield dense_fragment(schema, name, attrs, box, self._new_name(), self.cipher)

    def _new_name(self) -> TimestampedName:
        name = new_name(self.cells_ms)
        return replace(name, uuid=name.uuid[:8] + self.token + name.uuid[20:])

    def discard(self, results: Iterable[Written | None]) -> None:
        """Remove what tasks wrote for a write that will not be committed."""
        names = [name for result in results if result is not None for name in result.names]
        self._remove([f"{keys.FRAGMENT_FOLDER}/{name}" for name in names])

    def discard_all(self) -> None:
        """Remove whatever any task of this write left, after one of them failed."""
        left = []
        for folder in self.store.list_level(keys.FRAGMENT_FOLDER).folders:
            name = TimestampedName.parse(folder.rpartition("/")[2])
            if name is not None and name.start_ms == self.cells_ms and name.uuid[8:20] == self.token:
                left.append(folder)
        self._remove(left)

    def _remove(self, folders: Sequence[str]) -> None:
        """Folders of this write, unless they are committed: a put may fail only after it was carried out."""
        committed = read_ledger(self.store, list_array(self.store)).known if folders else frozenset()
        for folder in folders:
            if folder not in committed:
                self.store.delete_folder(folder)

    def commit(self, results: Sequence[Written | None], also: Sequence[Record] = ()) -> int:
        """Make the results of all tasks visible at once, with other records under the same commit; how many
        fragments. The result of a task that was lost is an error: its cells would be missing."""
        if any(result is None for result in results):
            raise ConflictError(
                "the result of a task was lost on the way; nothing was committed, so write again"
            )
        names = [_name(name) for result in results if result is not None for name in result.names]
        if self.creates:
            self._create()
        records: list[Record] = [*also, *(WriteRecord(name) for name in names)]
        if self.replaces and not self.creates:
            records = [*self._removal(), *records]
        if len(records) == 1 and names:
            commit_fragments(self.store, names)
        elif records:
            commit_records(self.store, records)
        return len(names)

    def _create(self) -> None:
        if list_array(self.store).is_array:
            raise ConflictError(
                f"another writer created an array at {self.store.uri} meanwhile; nothing was committed"
            )
        put_schema(self.store, self.schema, self.time_ms, self.cipher, self.schema_name)

    def _removal(self) -> list[Record]:
        """What takes the present cells away: a delete of all, or for a dense array its fill value everywhere."""
        if self.schema.sparse:
            body = DeleteCommit.of(to_condition(TRUE, self.schema))
            name = new_name(self.time_ms)
            return [condition_record(name, CommitKind.DELETE, body.pack(), self.cipher)]
        snapshot = _everything(self.store, self.cipher)
        if not snapshot.fragments:
            return []
        return [WriteRecord(name) for name in self._blanks(snapshot)]

    def _blanks(self, snapshot: Snapshot) -> Iterator[TimestampedName]:
        from terrazzo.engine.dense import read_box  # noqa: PLC0415

        empty = View(self.store, replace(snapshot, fragments=()), self.cipher)
        attrs = [attr.name for attr in self.schema.attrs]
        width = sum(
            attr.datatype.size * (8 if attr.is_var else attr.cell_val_num) for attr in self.schema.attrs
        )
        for box in slabs(union_box(snapshot.fragments), self.schema, width, self.fragment_size):
            name = new_name(self.time_ms)
            blank = read_box(empty, box, attrs)
            put_fragment(
                self.store, dense_fragment(self.schema, self.schema_name, blank, box, name, self.cipher)
            )
            yield name


def _name(text: str) -> TimestampedName:
    name = TimestampedName.parse(text)
    assert name is not None, text
    return name


def _tile_rows(columns: dict[str, Column], schema: Schema) -> Iterator[dict[str, Column]]:
    """The cells of each run of neighbouring tiles along the first dimension: boxes, if none is missing."""
    first = schema.dims[0]
    assert first.domain is not None
    values = columns[first.name].values.astype(np.int64)
    rows = (values - int(first.domain[0])) // int(first.tile or 1)
    held = np.unique(rows)
    if not len(held):
        return
    runs = np.split(held, np.flatnonzero(np.diff(held) > 1) + 1)
    for run in runs:
        if len(runs) == 1:
            yield columns
        else:
            mask = (rows >= run[0]) & (rows <= run[-1])
            yield filtered(columns, mask)


def plan_bulk_write(
    store: Store, cipher: Aes256Gcm | None, schema: Schema | None, *, replaces: bool = False,
    fragment_size: int = FRAGMENT_SIZE, at: object = None,
) -> BulkWrite:  # fmt: skip
    """A write to the array at a store; `schema` is that of the array to create if there is none."""
    listed = list_array(store)
    if listed.is_array:
        snapshot = _everything(store, cipher)
        snapshot.require_sound()
        return BulkWrite(
            store, snapshot.schema, snapshot.schema_name, next_time(snapshot, at), cipher, fragment_size,
            creates=False, replaces=replaces, token=secrets.token_hex(6),
        )  # fmt: skip
    if schema is None:
        raise ArrayNotFoundError(f"there is no array at {store.uri}; create it first, or say dims=… to do so")
    require_free(store, listed)
    time_ms = now_ms() if at is None else instant(at)
    name = str(new_name(time_ms, version=None))
    return BulkWrite(
        store, replace(schema, enum_files={}), name, time_ms, cipher, fragment_size, creates=True,
        replaces=replaces, token=secrets.token_hex(6),
    )  # fmt: skip


def _everything(store: Store, cipher: Aes256Gcm | None) -> Snapshot:
    """All that is committed, also what clocks ahead of ours stamped: the write comes behind it."""
    return take_snapshot(store, Window(0, FOREVER), cipher)
