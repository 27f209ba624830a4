"""Vacuum: removes what consolidation replaced and what crashed writers left, in the order that keeps readers right.

    fragments   `.ign` where a `.con` names what goes, then the commit, then the folder, then the `.vac`
    commits     loose files that a `.con` holds, then older `.con` and `.ign` that the newest `.con` covers
    footers     every `.meta` but the newest
    metadata    what a `.vac` names, then the `.vac`
    orphans     fragment folders without a commit, and staged files, older than the retention

A `.del` or `.upd` is never removed unless a `.con` holds it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from terrazzo.engine.clock import as_text, new_name, now_ms
from terrazzo.engine.consolidate import finish_merge
from terrazzo.engine.snapshot import Ledger, list_array, read_ledger
from terrazzo.engine.view import View
from terrazzo.errors import FormatError, InvalidRequestError
from terrazzo.format import keys
from terrazzo.format.commits import Commit
from terrazzo.format.keys import CommitKind, TimestampedName, commit_key
from terrazzo.format.ledgers import pack_ign, unpack_con, unpack_vac
from terrazzo.format.versions import WRITTEN
from terrazzo.storage.base import Store

_UNITS = {"s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000, "ms": 1}


def parse_age(given: int | str, what: str = "retain") -> int:
    """Milliseconds of a number, or of text such as "7d" or "12h"."""
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return given
    match = (
        re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d|w)?\s*", given)
        if isinstance(given, str)
        else None
    )
    if match is None:
        raise InvalidRequestError(
            f"{what}={given!r} is no age; write milliseconds, or text such as '7d' or '12h'"
        )
    return int(float(match[1]) * _UNITS[match[2] or "ms"])


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """What was removed, or would be."""

    fragments: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    footers: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()
    orphans: tuple[str, ...] = ()
    kept: int = 0  # superseded fragments that are too young to go
    lost: tuple[tuple[int, int], ...] = field(
        default=()
    )  # instants that can no longer be read right, as ranges
    dry_run: bool = False

    @property
    def n_removed(self) -> int:
        return sum(map(len, (self.fragments, self.commits, self.footers, self.metadata, self.orphans)))

    def __str__(self) -> str:
        verb = "would remove" if self.dry_run else "removed"
        counts = (
            (self.fragments, "superseded fragments"), (self.commits, "commit files"), (self.footers, "footer files"),
            (self.metadata, "metadata files"), (self.orphans, "leftovers of crashed writers"),
        )  # fmt: skip
        told = [f"{len(what)} {name}" for what, name in counts if what]
        lines = [f"{verb} {', '.join(told) if told else 'nothing'}"]
        if self.kept:
            lines.append(f"{self.kept} superseded fragments are younger than the retention and stay")
        lines += [
            f"instants from {as_text(start)} to before {as_text(end)} can no longer be read"
            for start, end in self.lost
        ]
        return "\n".join(lines)


def vacuum(view: View, *, retain_ms: int, dry_run: bool) -> VacuumReport:
    store = view.store
    deadline = now_ms() - retain_ms
    listed = list_array(store)
    ledger = read_ledger(store, listed)
    if ledger.problems:
        raise ledger.problems[0]
    if not dry_run:
        ledger = _finish_merges(view, ledger)
    modified = {entry.key: entry.modified_ms for entry in store.list(keys.COMMIT_FOLDER)}
    modified |= {entry.key: entry.modified_ms for entry in store.list("")}
    gone, kept, vacs, lost = _superseded(view, ledger, modified, deadline)
    orphans = _orphans(store, ledger, deadline)
    commits = _covered_commits(store, ledger, modified, deadline)
    footers = _old_footers(store, deadline)
    metadata = _old_metadata(store, deadline)
    report = VacuumReport(
        tuple(gone), tuple(commits), tuple(footers), tuple(key for _, lines in metadata for key in lines),
        tuple(orphans), kept, tuple(lost), dry_run,
    )  # fmt: skip
    if dry_run:
        return report
    _remove_fragments(store, ledger, gone, vacs)
    for vac, lines in metadata:
        store.delete(lines)
        store.delete([vac])
    store.delete(commits)
    store.delete(footers)
    for folder in orphans:
        store.delete_folder(folder)
    store.reclaim_staging(retain_ms)
    return report


def _finish_merges(view: View, ledger: Ledger) -> Ledger:
    """Consolidations that stopped between their commit and their `.vac`."""
    for key, merge in ledger.merges:
        name = TimestampedName.parse(key.rpartition("/")[2].removesuffix(f".{keys.MERGE_SUFFIX}"))
        if name is not None and all(created in ledger.writes for created in merge.created):
            finish_merge(view.store, name, merge)
    return read_ledger(view.store, list_array(view.store))


def _superseded(
    view: View, ledger: Ledger, modified: dict[str, int], deadline: int
) -> tuple[list[str], int, list[str], list[tuple[int, int]]]:
    """Fragments to remove, how many stay for now, the `.vac` files that are done with, instants that are lost."""
    gone: dict[str, None] = {}
    vacs, kept, lost = [], 0, []
    for name, lines in ledger.superseded:
        key = commit_key(name, CommitKind.VACUUM)
        if keys.fragment_key(name) not in ledger.known:
            continue  # its own fragment was never committed, or is gone: repair looks at it
        if modified.get(key, 0) > deadline:
            kept += len(lines)
            continue
        gone.update(dict.fromkeys(lines))
        vacs.append(key)
        if view.schema.dense and name.start_ms < name.end_ms:
            lost.append((name.start_ms, name.end_ms))
    return list(gone), kept, vacs, lost


def _remove_fragments(store: Store, ledger: Ledger, gone: Iterable[str], vacs: list[str]) -> None:
    commits = [Commit(name, CommitKind.WRITE) for key in gone if (name := ledger.writes.get(key)) is not None]
    ignored = [commit for commit in commits if commit.key in ledger.in_con]
    if ignored:
        name = new_name(min(c.name.start_ms for c in ignored), max(c.name.end_ms for c in ignored), WRITTEN)
        store.put(commit_key(name, CommitKind.IGNORE), pack_ign(ignored))
    store.delete([commit.key for commit in commits])
    for key in gone:
        store.delete_folder(key)
    store.delete(vacs)


def _covered_commits(store: Store, ledger: Ledger, modified: dict[str, int], deadline: int) -> list[str]:
    """Loose commits that a `.con` holds; and every `.con` and `.ign` that the newest complete `.con` makes idle."""
    old = {key for key, time_ms in modified.items() if time_ms <= deadline}
    loose = [key for key in sorted(old) if key in ledger.in_con]
    cons = sorted(key for key in modified if key.endswith(".con"))
    igns = [key for key in sorted(modified) if key.endswith(".ign")]
    wanted = {commit_key(name, CommitKind.WRITE) for key, name in ledger.writes.items()}
    wanted |= {commit.key for commit in ledger.conditions}
    complete = []
    for key in cons:
        try:
            held = {record.key for record in unpack_con(store.get(key))}
        except FormatError:
            continue
        if held == wanted & held and wanted & ledger.in_con <= held:
            complete.append(key)
    if not complete or complete[-1] not in old:
        return loose
    keep = complete[-1]
    return loose + [key for key in [*cons, *igns] if key != keep and key in old]


def _old_footers(store: Store, deadline: int) -> list[str]:
    found = store.list(keys.FOOTER_FOLDER)
    entries = sorted((e for e in found if e.key.endswith(".meta")), key=lambda e: (e.modified_ms, e.key))
    return [entry.key for entry in entries[:-1] if entry.modified_ms <= deadline]


def _old_metadata(store: Store, deadline: int) -> list[tuple[str, list[str]]]:
    entries = {entry.key: entry for entry in store.list(keys.METADATA_FOLDER)}
    found = []
    for key, entry in entries.items():
        if key.endswith(".vac") and entry.modified_ms <= deadline and key.removesuffix(".vac") in entries:
            found.append((key, [line for line in unpack_vac(store.get(key)) if line in entries]))
    return found


def _orphans(store: Store, ledger: Ledger, deadline: int) -> list[str]:
    """Fragment folders that were never committed, and whose last file is older than the retention."""
    found = []
    waiting = {key for _, merge in ledger.merges for key in merge.created}
    for folder in store.list_level(keys.FRAGMENT_FOLDER).folders:
        name = TimestampedName.parse(folder.rpartition("/")[2])
        if name is None or folder in ledger.writes or folder in waiting:
            continue
        if any(folder in lines for _, lines in ledger.superseded):
            continue  # its commit went first: a vacuum that was interrupted, and that this one completes
        if all(entry.modified_ms <= deadline for entry in store.list_recursive(folder)):
            found.append(folder)
    return found
