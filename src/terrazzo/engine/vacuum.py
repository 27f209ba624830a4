"""Vacuum: removes what consolidation replaced and what crashed writers left, in the order that keeps readers right.

    fragments   `.ign` where a `.con` names what goes, then the commit, then the folder, then the `.vac`
    commits     loose files that a `.con` holds, then older `.con` and `.ign` that the newest `.con` covers
    footers     every `.meta` but the newest
    metadata    what a `.vac` names, then the `.vac`
    orphans     fragment folders without a commit, and staged files, older than the retention

A `.del` or `.upd` is never removed unless a `.con` holds it.

A retention of 0 is for arrays that nobody else uses at the moment. It takes the files away from readers that opened
before, which then get a ConflictError; and the folder of a writer that has not committed yet. A writer looks whether
its files are still there right before it commits, unless it put them within the last ten seconds: a retention from a
minute up makes a slow writer fail, but never commits a fragment without files.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from terrazzo.engine.clock import as_text, now_ms
from terrazzo.engine.commit import put_ignored
from terrazzo.engine.consolidate import finish_merges
from terrazzo.engine.ledger import Ledger, honoured, read_ledger
from terrazzo.engine.listing import Listed, list_array
from terrazzo.engine.runner import steps
from terrazzo.engine.view import View
from terrazzo.errors import FormatError, InvalidRequestError
from terrazzo.format import keys
from terrazzo.format.commits import Commit
from terrazzo.format.keys import CommitKind, TimestampedName, commit_key
from terrazzo.format.ledgers import unpack_con, unpack_vac
from terrazzo.storage.base import Store

_IN_USE_MS = 3_600_000  # who opened the array within the last hour may still be at work
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
    lost: tuple[tuple[int, int], ...] = ()  # instants that can no longer be read right, as ranges [from, to)
    lost_metadata: tuple[tuple[int, int], ...] = ()  # likewise, of metadata
    retain_ms: int = _IN_USE_MS
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
        return "\n".join([*lines, *self.breaks])

    @property
    def breaks(self) -> tuple[str, ...]:
        """What no longer works afterwards, a sentence each."""
        goes = "will no longer be" if self.dry_run else "can no longer be"
        told = [
            f"instants from {as_text(start)} to before {as_text(end)} {goes} read" for start, end in self.lost
        ]
        told += [
            f"metadata from {as_text(start)} to before {as_text(end)} {goes} read"
            for start, end in self.lost_metadata
        ]
        if self.retain_ms < _IN_USE_MS and self.n_removed > len(self.orphans):
            told.append(
                "readers that opened the array before and are not done lose files: they get a ConflictError and open "
                "it again"
            )
        if self.retain_ms < _IN_USE_MS and self.orphans:
            told.append(
                f"the {len(self.orphans)} fragments without a commit may be those of a writer or a consolidation at "
                f"work, which then fails and has to be repeated"
            )
        return tuple(told)


def vacuum(view: View, *, retain_ms: int, dry_run: bool) -> VacuumReport:
    store = view.store
    listed = list_array(store)
    ledger = read_ledger(store, listed)
    if ledger.problems:
        raise ledger.problems[0]
    if not dry_run and finish_merges(view, ledger):
        listed = list_array(store)
        ledger = read_ledger(store, listed)
    deadline = now_ms() - retain_ms
    modified = {entry.key: entry.modified_ms for entry in store.list(keys.COMMIT_FOLDER)}
    modified |= {entry.key: entry.modified_ms for entry in store.list("")}
    gone, kept, vacs, lost = _superseded(view, ledger, modified, deadline)
    abandoned, waiting = _abandoned(ledger, modified, deadline)
    orphans = _orphans(store, ledger, waiting, deadline)
    commits = abandoned + _covered_commits(store, ledger, listed, modified, deadline)
    footers = _old_footers(store, deadline)
    metadata = _old_metadata(store, deadline)
    report = VacuumReport(
        tuple(gone), tuple(commits), tuple(footers), tuple(key for _, lines in metadata for key in lines),
        tuple(orphans), kept, tuple(lost), tuple(_lost_metadata(metadata)), retain_ms, dry_run,
    )  # fmt: skip
    if dry_run:
        return report
    _remove_fragments(store, ledger, gone, vacs)
    for vac, lines in metadata:
        store.delete(lines)
        store.delete([vac])
    store.delete(commits)
    store.delete(footers)
    for folder in steps(orphans):
        store.delete_folder(folder)
    store.reclaim_staging(retain_ms)
    return report


def _superseded(
    view: View, ledger: Ledger, modified: dict[str, int], deadline: int
) -> tuple[list[str], int, list[str], list[tuple[int, int]]]:
    """Fragments to remove, how many stay for now, the `.vac` files that are done with, instants that are lost."""
    gone: dict[str, None] = {}
    vacs, kept, lost = [], 0, []
    counted = honoured(ledger)
    young = {n for n, _ in counted if modified.get(commit_key(n, CommitKind.VACUUM), 0) > deadline}
    while (
        more := {n for n, lines in counted if not {keys.fragment_key(y) for y in young}.isdisjoint(lines)}
        - young
    ):
        young |= more  # as long as a `.vac` stays, so does its own fragment
    # What was superseded first goes first: a fragment that replaced others stays until they are gone.
    for name, lines in reversed(counted):
        key = commit_key(name, CommitKind.VACUUM)
        if name in young:
            kept += len(lines)
            continue
        gone.update(dict.fromkeys(lines))
        vacs.append(key)
        if view.schema.dense and name.start_ms < name.end_ms:
            lost.append((name.start_ms, name.end_ms))
    names = {name for name, _ in counted}
    for name, lines in ledger.superseded:
        key = commit_key(name, CommitKind.VACUUM)
        if name not in names and not ledger.writes.keys() & set(lines) and modified.get(key, 0) <= deadline:
            gone.update(dict.fromkeys(lines))
            vacs.append(key)  # an earlier vacuum removed all that it speaks of, and was cut short
    return list(gone), kept, vacs, lost


def _remove_fragments(store: Store, ledger: Ledger, gone: Iterable[str], vacs: list[str]) -> None:
    commits = [Commit(name, CommitKind.WRITE) for key in gone if (name := ledger.writes.get(key)) is not None]
    put_ignored(store, [commit for commit in commits if commit.key in ledger.in_con])
    store.delete([commit.key for commit in commits])
    if commits:
        # Commits that somebody gathered into a `.con` meanwhile.
        again = read_ledger(store, list_array(store))
        put_ignored(store, [commit for commit in commits if commit.fragment_key in again.writes])
    for key in steps(gone):
        store.delete_folder(key)
    store.delete(vacs)


def _covered_commits(
    store: Store, ledger: Ledger, listed: Listed, modified: dict[str, int], deadline: int
) -> list[str]:
    """Loose commits that a `.con` holds; and every `.con` and `.ign` that the newest complete `.con` makes idle."""
    old = {key for key, time_ms in modified.items() if time_ms <= deadline}
    loose = [key for key in sorted(old) if key in ledger.in_con]
    seen = [f"{keys.COMMIT_FOLDER}/{name}" for name in sorted(listed.commits)]  # before the ledger was read
    cons = [key for key in seen if key.endswith(".con") and key in modified]
    igns = [key for key in seen if key.endswith(".ign") and key in modified]
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
    idle = [key for key in cons if key != complete[-1]]
    going = [key for key in idle if key in old]
    # A `.con` that stays needs every `.ign`.
    return loose + going + ([key for key in igns if key in old] if going == idle else [])


def _old_footers(store: Store, deadline: int) -> list[str]:
    found = store.list(keys.FOOTER_FOLDER)
    entries = sorted((e for e in found if e.key.endswith(".meta")), key=lambda e: (e.modified_ms, e.key))
    return [entry.key for entry in entries[:-1] if entry.modified_ms <= deadline]


def _old_metadata(store: Store, deadline: int) -> list[tuple[str, list[str]]]:
    entries = {entry.key: entry for entry in store.list(keys.METADATA_FOLDER)}
    found = []
    for key, entry in entries.items():
        # Its own file may be gone: superseded in its turn, or never written since every key was removed.
        if key.endswith(".vac") and entry.modified_ms <= deadline:
            found.append((key, [line for line in unpack_vac(store.get(key)) if line in entries]))
    return found


def _lost_metadata(found: Iterable[tuple[str, list[str]]]) -> Iterator[tuple[int, int]]:
    """A merged file shows from its last change on."""
    for vac, lines in found:
        name = TimestampedName.parse(vac.rpartition("/")[2].removesuffix(".vac"))
        if name is not None and lines and name.start_ms < name.end_ms:
            yield name.start_ms, name.end_ms


def _abandoned(ledger: Ledger, modified: dict[str, int], deadline: int) -> tuple[list[str], set[str]]:
    """Consolidations that died before their commit, and the fragments of those that may still be at work."""
    dead: list[str] = []
    waiting: set[str] = set()
    for key, merge in ledger.merges:
        if modified.get(key, 0) > deadline or all(created in ledger.writes for created in merge.created):
            waiting.update(merge.created)
        else:
            dead.append(key)
    return dead, waiting


def _orphans(store: Store, ledger: Ledger, waiting: set[str], deadline: int) -> list[str]:
    """Fragment folders that were never committed, and whose last file is older than the retention."""
    found = []
    superseded = {line for _, lines in ledger.superseded for line in lines}
    for folder in store.list_level(keys.FRAGMENT_FOLDER).folders:
        name = TimestampedName.parse(folder.rpartition("/")[2])
        if name is None or folder in ledger.writes or folder in waiting:
            continue
        if folder in superseded:
            continue  # its commit went first: a vacuum that was interrupted, and that this one completes
        if all(entry.modified_ms <= deadline for entry in store.list_recursive(folder)):
            found.append(folder)
    return found
