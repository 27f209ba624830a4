"""Commits: the one place that makes anything visible. Everything before the last put here is invisible.

A vacuum takes folders that nobody committed for those of a crashed writer, once they are older than its retention. So
that a slow writer, or a driver whose executors wrote, never commits a fragment whose files are gone, they are looked
for right before the commit. What this process put a few seconds ago is not: most writes pay nothing.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from math import inf

from terrazzo.engine.clock import new_name, reach
from terrazzo.engine.encode import DataFile, EncodedFragment
from terrazzo.engine.fragments import Fragment
from terrazzo.engine.runner import parallel
from terrazzo.errors import ConflictError, MissingObjectError, TerrazzoError
from terrazzo.format.commits import Commit
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.generic_tile import pack_generic_tile
from terrazzo.format.keys import FRAGMENT_METADATA_FILE, CommitKind, TimestampedName, commit_key, fragment_key
from terrazzo.format.ledgers import DeleteRecord, Record, UpdateRecord, WriteRecord, pack_con, pack_ign
from terrazzo.format.versions import WRITTEN
from terrazzo.storage.base import Store

_FRESH_S = 10.0
_put: dict[str, float] = {}
"""When this process put a fragment, those of the last seconds; the oldest stand first."""


def put_fragment(store: Store, encoded: EncodedFragment) -> Fragment:
    """The files of a fragment, all of them while their tiles are being encoded, and metadata last. It exists for
    nobody until it is committed; if anything fails, what was put is removed."""
    began = time.monotonic()

    def put(file: DataFile) -> None:
        with store.open_writer(f"{encoded.key}/{file.name}") as writer:
            for pieces in file:
                writer.write_all(pieces)

    try:
        parallel(put, encoded.files)
        store.put(f"{encoded.key}/{FRAGMENT_METADATA_FILE}", encoded.metadata)
    except BaseException:
        encoded.stop()
        with suppress(TerrazzoError):  # nobody sees them: if they cannot be removed now, vacuum does it later
            store.delete_folder(encoded.key)
        raise
    _remember(store, encoded, began)
    return encoded.fragment


def _remember(store: Store, encoded: EncodedFragment, began: float) -> None:
    """That a fragment was put just now; one that took long to put is looked at first."""
    now = time.monotonic()
    if now - began > _FRESH_S:
        there = {entry.key for entry in store.list(encoded.key)}
        if not there >= {f"{encoded.key}/{file.name}" for file in encoded.files}:
            raise _gone([encoded.key])
    for key, put in list(_put.items()):
        if put < now - _FRESH_S:
            _put.pop(key, None)
    _put[encoded.key] = now


def _require_files(store: Store, names: Sequence[TimestampedName]) -> None:
    """That every fragment to be committed is still there. ConflictError, and nothing is committed, if one is not."""
    fresh = time.monotonic() - _FRESH_S
    folders = [key for key in map(fragment_key, names) if _put.pop(key, -inf) < fresh]

    def is_gone(folder: str) -> bool:
        try:
            store.size(f"{folder}/{FRAGMENT_METADATA_FILE}")
        except MissingObjectError:
            return True
        return False

    if gone := [f for f, is_it in zip(folders, parallel(is_gone, folders), strict=True) if is_it]:
        raise _gone(gone)


def _gone(folders: Sequence[str]) -> ConflictError:
    return ConflictError(
        f"{len(folders)} of the fragments about to be committed, the first {folders[0]}, were removed meanwhile, as a "
        f"vacuum does whose retain is shorter than the write took; nothing was committed. Write again, and let vacuum "
        f"retain more"
    )


def commit_fragments(store: Store, names: Sequence[TimestampedName]) -> None:
    """One `.wrt` for one fragment, one `.con` for several: all of them appear, or none."""
    if len(names) == 1:
        reach(names[0].end_ms)
        _require_files(store, names)
        store.put(commit_key(names[0], CommitKind.WRITE), b"")
    elif names:
        commit_records(store, [WriteRecord(name) for name in names])


def commit_condition(
    store: Store, name: TimestampedName, kind: CommitKind, body: bytes, cipher: Aes256Gcm | None
) -> Commit:
    """A `.del` or `.upd`."""
    commit = Commit(name, kind)
    reach(name.end_ms)
    store.put(commit.key, pack_generic_tile(body, cipher))
    return commit


def commit_records(store: Store, records: Sequence[Record]) -> TimestampedName:
    """Several changes of any kind in one `.con`, named by the times that it spans."""
    name = new_name(
        min(record.name.start_ms for record in records),
        max(record.name.end_ms for record in records),
        WRITTEN,
    )
    reach(name.end_ms)
    _require_files(store, [record.name for record in records if isinstance(record, WriteRecord)])
    store.put(commit_key(name, CommitKind.CONSOLIDATED), pack_con(records))
    return name


def put_ignored(store: Store, commits: Sequence[Commit]) -> None:
    """An `.ign`: commits of any `.con` that no longer count."""
    if commits:
        name = new_name(min(c.name.start_ms for c in commits), max(c.name.end_ms for c in commits), WRITTEN)
        store.put(commit_key(name, CommitKind.IGNORE), pack_ign(commits))


def condition_record(
    name: TimestampedName, kind: CommitKind, body: bytes, cipher: Aes256Gcm | None
) -> DeleteRecord | UpdateRecord:
    payload = pack_generic_tile(body, cipher)
    return DeleteRecord(name, payload) if kind is CommitKind.DELETE else UpdateRecord(name, payload)
