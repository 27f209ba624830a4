"""The small consolidations: commit files, fragment footers and metadata, each into one file."""

from dataclasses import replace

from terrazzo.engine.clock import FOREVER, new_name
from terrazzo.engine.commit import put_ignored
from terrazzo.engine.fragments import Fragment
from terrazzo.engine.ledger import read_ledger
from terrazzo.engine.listing import list_array
from terrazzo.engine.metadata import Entries, load_entries
from terrazzo.engine.runner import parallel
from terrazzo.engine.snapshot import take_snapshot
from terrazzo.engine.view import View
from terrazzo.engine.window import Window
from terrazzo.format import keys
from terrazzo.format.commits import Commit
from terrazzo.format.fragment import Section
from terrazzo.format.generic_tile import pack_generic_tile
from terrazzo.format.keys import COMMIT_FOLDER, CommitKind, TimestampedName, commit_key
from terrazzo.format.ledgers import (
    ConsolidatedFooters,
    DeleteRecord,
    Record,
    UpdateRecord,
    WriteRecord,
    pack_con,
    pack_vac,
)
from terrazzo.format.metadata import Metadata
from terrazzo.format.versions import WRITTEN

__all__ = ["consolidate_commits", "consolidate_fragment_metadata", "consolidate_metadata"]


def consolidate_commits(view: View) -> TimestampedName | None:
    """One `.con` with every commit that counts; payloads come from where they are, loose or in an older `.con`.

    The earliest update stays outside, unless a delete came first. libtiledb does not see an update in a `.con`, and
    where it sees no condition at all, it ignores the times at which consolidated versions end: it would show the old
    version beside the new where duplicates are allowed, and its own consolidation of such a fragment would crash.
    """
    store = view.store
    ledger = read_ledger(store, list_array(store))
    if ledger.problems:
        raise ledger.problems[0]
    records: list[Record] = [
        WriteRecord(name) for name in sorted(ledger.writes.values(), key=lambda name: name.order)
    ]

    def condition(commit: Commit) -> Record:
        payload = ledger.payloads[commit.key] if commit.key in ledger.payloads else store.get(commit.key)
        return (DeleteRecord if commit.kind is CommitKind.DELETE else UpdateRecord)(commit.name, payload)

    conditions = sorted(ledger.conditions, key=lambda commit: commit.order)
    if conditions and conditions[0].kind is CommitKind.UPDATE and conditions[0].key not in ledger.in_con:
        del conditions[0]
    records += parallel(condition, conditions)
    if not records:
        return None
    name = new_name(
        min(record.name.start_ms for record in records),
        max(record.name.end_ms for record in records),
        WRITTEN,
    )
    key = commit_key(name, CommitKind.CONSOLIDATED)
    store.put(key, pack_con(records))
    # What a vacuum removed meanwhile must not come back by this file.
    others = list_array(store)
    others = replace(
        others, commits=tuple(each for each in others.commits if f"{COMMIT_FOLDER}/{each}" != key)
    )
    still = read_ledger(store, others).writes
    written = [Commit(record.name, CommitKind.WRITE) for record in records if isinstance(record, WriteRecord)]
    put_ignored(store, [commit for commit in written if commit.fragment_key not in still])
    return name


def consolidate_fragment_metadata(view: View) -> TimestampedName | None:
    """One `.meta` with the footers of all visible fragments, so that an open need not visit each of them."""
    snapshot = take_snapshot(view.store, Window(0, FOREVER), view.cipher)
    if len(snapshot.fragments) < 2:
        return None

    def footer(fragment: Fragment) -> tuple[str, bytes]:
        return str(fragment.name), fragment.footer.pack(snapshot.schema_of(fragment))

    packed = dict(
        footer(f) for f in snapshot.fragments if f.version == WRITTEN and Section.RTREE in f.footer.offsets
    )
    if not packed:
        return None
    name = new_name(
        min(f.name.start_ms for f in snapshot.fragments),
        max(f.name.end_ms for f in snapshot.fragments),
        WRITTEN,
    )
    view.store.put(keys.footers_key(name), pack_generic_tile(ConsolidatedFooters(packed).pack(), view.cipher))
    return name


def consolidate_metadata(view: View) -> TimestampedName | None:
    """One file with all metadata, and a `.vac` that names those that it replaces. Removed keys stay removed: nothing
    older is left for them to come back from."""
    snapshot = take_snapshot(view.store, Window(0, FOREVER), view.cipher)
    for problem in snapshot.metadata_problems:
        raise problem
    names = snapshot.metadata_names
    if len(names) < 2:
        return None
    merged = load_entries(view.store, names, view.cipher)
    # Quirk: libtiledb writes no merged file when every key is removed; a file of tombstones reads the same.
    name = new_name(min(n.start_ms for n in names), max(n.end_ms for n in names), version=None)
    live: Entries = {key: entry for key, entry in merged.items() if entry is not None} or merged
    view.store.put(keys.metadata_key(name), pack_generic_tile(Metadata(live).pack(), view.cipher))
    replaced = [keys.metadata_key(each) for each in names]
    view.store.put(f"{keys.metadata_key(name)}.vac", pack_vac(replaced))
    return name
