"""Ledger: what the commit files say. Which fragments are there, what replaced which, which deletes and updates wait."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from terrazzo.engine.listing import Listed
from terrazzo.engine.runner import parallel
from terrazzo.engine.window import Window
from terrazzo.errors import FormatError, MissingObjectError
from terrazzo.format import keys
from terrazzo.format.commits import Commit
from terrazzo.format.keys import CommitKind, TimestampedName
from terrazzo.format.ledgers import (
    DeleteRecord,
    Merge,
    UpdateRecord,
    WriteRecord,
    salvage_con,
    unpack_ign,
    unpack_vac,
)
from terrazzo.storage.base import Store

_B = TypeVar("_B")


@dataclass(frozen=True)
class Ledger:
    """What the commit files say, all times included."""

    writes: Mapping[str, TimestampedName]  # by fragment key
    in_con: frozenset[str]  # keys of commits that stand in a .con
    payloads: Mapping[str, bytes]  # conditions that stand in a .con, by marker
    conditions: tuple[Commit, ...]  # every .del and .upd, loose or not, each once
    superseded: tuple[tuple[TimestampedName, tuple[str, ...]], ...]  # each .vac, and the fragments it names
    merges: tuple[
        tuple[str, Merge], ...
    ] = ()  # by key: consolidations that were not finished, or are at work
    problems: tuple[FormatError, ...] = ()
    holders: Mapping[str, str] = field(default_factory=dict)  # the .con that a payload stands in, by marker

    @cached_property
    def known(self) -> frozenset[str]:
        """Fragments that are committed, or were until a consolidation replaced them."""
        found = set(self.writes)
        waiting = list(self.superseded)
        while told := [(name, lines) for name, lines in waiting if keys.fragment_key(name) in found]:
            found.update(key for _, lines in told for key in lines)
            waiting = [item for item in waiting if item not in told]
        return frozenset(found)


def read_ledger(store: Store, listed: Listed) -> Ledger:
    loose = [commit for name in listed.commits if (commit := Commit.parse(f"{keys.COMMIT_FOLDER}/{name}"))]
    loose += [commit for name in listed.root if (commit := Commit.parse(name))]
    by_kind: dict[CommitKind, list[Commit]] = {kind: [] for kind in CommitKind}
    for commit in loose:
        by_kind[commit.kind].append(commit)
    problems: list[FormatError] = []
    ignored = {
        commit.key
        for _, commits in _contents(store, by_kind[CommitKind.IGNORE], unpack_ign, problems)
        for commit in commits
    }
    writes: dict[str, TimestampedName] = {}
    in_con: set[str] = set()
    payloads: dict[str, bytes] = {}
    holders: dict[str, str] = {}
    conditions: dict[str, Commit] = {}
    for con, (records, problem) in _contents(store, by_kind[CommitKind.CONSOLIDATED], salvage_con, problems):
        if problem is not None:
            problems.append(problem.at_key(f"{store.uri}/{con.key}"))
        for record in records:
            commit = Commit(record.name, record.kind)
            in_con.add(commit.key)
            if isinstance(record, WriteRecord):
                if commit.key not in ignored:
                    writes[commit.fragment_key] = record.name
            elif isinstance(record, (DeleteRecord, UpdateRecord)):
                payloads.setdefault(commit.key, record.payload)
                holders.setdefault(commit.key, con.key)
                conditions.setdefault(commit.key, commit)
    for commit in (*by_kind[CommitKind.WRITE], *by_kind[CommitKind.OK]):
        writes[commit.fragment_key] = commit.name
    for name in listed.root_folders:  # before format 5 a fragment is committed once its metadata is there
        parsed = TimestampedName.parse(name)
        if parsed is not None and parsed.version is None:
            writes.setdefault(keys.fragment_key(parsed), parsed)
    for commit in (*by_kind[CommitKind.DELETE], *by_kind[CommitKind.UPDATE]):
        conditions.setdefault(commit.key, commit)
    superseded = tuple(
        (commit.name, lines)
        for commit, lines in _contents(store, by_kind[CommitKind.VACUUM], unpack_vac, problems)
    )
    return Ledger(
        writes,
        frozenset(in_con),
        payloads,
        tuple(conditions.values()),
        superseded,
        _merges(store, listed, problems),
        tuple(problems),
        holders,
    )


def _merges(store: Store, listed: Listed, problems: list[FormatError]) -> tuple[tuple[str, Merge], ...]:
    found: list[tuple[str, Merge]] = []
    for name in listed.commits:
        if name.endswith(f".{keys.MERGE_SUFFIX}"):
            key = f"{keys.COMMIT_FOLDER}/{name}"
            try:
                found.append((key, Merge.unpack(store.get(key))))
            except MissingObjectError:
                pass  # finished since the listing: then the next one shows its .vac, or shows neither
            except FormatError as problem:
                problems.append(problem.at_key(f"{store.uri}/{key}"))
    return tuple(found)


def _contents(
    store: Store, commits: list[Commit], unpack: Callable[[bytes], _B], problems: list[FormatError]
) -> list[tuple[Commit, _B]]:
    """What each file says; one that cannot be read is a problem to be told, not the end of the array."""

    def load(commit: Commit) -> Any:
        try:
            return unpack(store.get(commit.key))
        except FormatError as problem:
            return problem.at_key(f"{store.uri}/{commit.key}")

    read = []
    for commit, content in zip(commits, parallel(load, commits), strict=True):
        if isinstance(content, FormatError):
            problems.append(content)
        else:
            read.append((commit, content))
    return read


def honoured(ledger: Ledger) -> list[tuple[TimestampedName, tuple[str, ...]]]:
    """Each `.vac` that counts, and the fragments it names.

    Ours: one whose own fragment was never committed hides nothing; libtiledb would lose the cells. One whose
    fragment was superseded in its turn, and removed since, still counts.
    """
    known, waiting, found = set(ledger.writes), list(ledger.superseded), []
    while ready := [each for each in waiting if keys.fragment_key(each[0]) in known]:
        found += ready
        waiting = [each for each in waiting if keys.fragment_key(each[0]) not in known]
        known.update(line for _, lines in ready for line in lines)
    return found


def visible_names(ledger: Ledger, window: Window, *, dense: bool) -> list[TimestampedName]:
    """Committed fragments that take part, in the order in which later ones win."""
    hidden: set[str] = set()
    for name, lines in honoured(ledger):
        if window.shows(name, dense=dense):
            hidden.update(lines)
    for _, merge in ledger.merges:
        created = [ledger.writes[key] for key in merge.created if key in ledger.writes]
        if len(created) == len(merge.created) and all(window.shows(name, dense=dense) for name in created):
            hidden.update(merge.replaced)
    shown = [
        name for key, name in ledger.writes.items() if key not in hidden and window.shows(name, dense=dense)
    ]
    return sorted(shown, key=lambda name: name.order)
