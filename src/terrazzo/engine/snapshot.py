"""Snapshot: one listing per folder, then an immutable view of the array between two instants.

Everything else is a function of it. Opening costs five listings, the schemas, the ledgers, the conditions
in the window, and a footer for each visible fragment that no `.meta` tells of.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from terrazzo.engine.fragments import Fragment, UnknownSchemaError, load_fragment, of_footer
from terrazzo.engine.runner import parallel
from terrazzo.errors import (
    ArrayNotFoundError,
    ConflictError,
    CorruptionError,
    FormatError,
    MissingObjectError,
    TerrazzoError,
)
from terrazzo.format import keys, versions
from terrazzo.format.commits import Commit, DeleteCommit, UpdateCommit
from terrazzo.format.enumeration import Enumeration
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.generic_tile import unpack_generic_tile
from terrazzo.format.keys import CommitKind, TimestampedName
from terrazzo.format.ledgers import (
    ConsolidatedFooters,
    DeleteRecord,
    Merge,
    UpdateRecord,
    WriteRecord,
    salvage_con,
    unpack_ign,
    unpack_vac,
)
from terrazzo.format.schema import Schema
from terrazzo.storage.base import Entry, Store
from terrazzo.storage.local import LocalStore

_B = TypeVar("_B")
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Window:
    """The instants that a reader looks at, both ends included."""

    since_ms: int
    at_ms: int

    def contains(self, name: TimestampedName) -> bool:
        return self.since_ms <= name.start_ms and name.end_ms <= self.at_ms

    def overlaps(self, name: TimestampedName) -> bool:
        return name.start_ms <= self.at_ms and self.since_ms <= name.end_ms

    def shows(self, name: TimestampedName, *, dense: bool) -> bool:
        """Whether a fragment of that name takes part; cells that carry times are then judged one by one."""
        timed = not dense and name.version is not None and name.version >= versions.DELETE_METADATA
        return self.overlaps(name) if timed else self.contains(name)

    @property
    def as_written(self) -> bool:
        """Whether cells show as they were written, whatever deletes and updates did to them since."""
        return False

    def holds(self, times: Any) -> Any:
        """Which cells were written within the window, by their times."""
        return (times >= np.uint64(self.since_ms)) & (times <= np.uint64(self.at_ms))


@dataclass(frozen=True, slots=True)
class StoredCondition:
    """A `.del` or `.upd` in force."""

    commit: Commit
    body: DeleteCommit | UpdateCommit

    @property
    def marker(self) -> str:
        return self.commit.key

    @property
    def time_ms(self) -> int:
        return self.commit.name.start_ms

    @property
    def order(self) -> tuple[int, str]:
        return self.time_ms, self.marker


@dataclass(frozen=True, slots=True)
class Listed:
    """The names in an array's folders, each listed once."""

    root: tuple[str, ...] = ()
    root_folders: tuple[str, ...] = ()
    schemas: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    footers: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()

    @property
    def is_array(self) -> bool:
        return bool(self.schemas) or keys.SCHEMA_FILE in self.root


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


@dataclass(frozen=True, slots=True)
class Snapshot:
    window: Window
    schema: Schema
    schema_name: str
    schemas: Mapping[str, Schema] = field(repr=False)
    fragments: tuple[Fragment, ...]
    conditions: tuple[StoredCondition, ...]
    metadata_names: tuple[TimestampedName, ...]
    newest_ms: int
    problems: tuple[TerrazzoError, ...] = ()
    metadata_problems: tuple[FormatError, ...] = ()

    def require_sound(self) -> None:
        """Raise what is wrong with the commit files: cells that they speak of cannot be told."""
        if self.problems:
            raise self.problems[0]

    def schema_of(self, fragment: Fragment) -> Schema:
        return self.schemas[fragment.schema_name]

    def schema_at(self, at_ms: int) -> Schema:
        """The schema in force at an instant."""
        return self.schemas[current_schema(self.schemas, at_ms)]

    def with_fragments(self, *added: Fragment) -> "Snapshot":
        """This snapshot and what its holder has committed since, as far as it lies in the window."""
        latest = max(fragment.name.end_ms for fragment in added)
        added = tuple(fragment for fragment in added if fragment.name.end_ms >= self.window.since_ms)
        return replace(
            self,
            window=replace(self.window, at_ms=max(self.window.at_ms, latest)),
            fragments=tuple(sorted((*self.fragments, *added), key=lambda f: f.order)),
            newest_ms=max(self.newest_ms, latest),
        )

    def with_conditions(self, *added: StoredCondition) -> "Snapshot":
        latest = max(condition.time_ms for condition in added)
        return replace(
            self,
            window=replace(self.window, at_ms=max(self.window.at_ms, latest)),
            conditions=tuple(sorted((*self.conditions, *added), key=lambda c: c.order)),
            newest_ms=max(self.newest_ms, latest),
        )

    def with_schema(self, name: str, schema: Schema, time_ms: int) -> "Snapshot":
        return replace(
            self,
            window=replace(self.window, at_ms=max(self.window.at_ms, time_ms)),
            schema=schema,
            schema_name=name,
            schemas={**self.schemas, name: schema},
            newest_ms=max(self.newest_ms, time_ms),
        )

    def with_metadata(self, name: TimestampedName) -> "Snapshot":
        return replace(
            self,
            window=replace(self.window, at_ms=max(self.window.at_ms, name.end_ms)),
            metadata_names=(*self.metadata_names, name),
            newest_ms=max(self.newest_ms, name.end_ms),
        )


def take_snapshot(
    store: Store, window: Window, cipher: Aes256Gcm | None, known: Snapshot | None = None
) -> Snapshot:
    """The array between two instants. A file that a vacuum removes meanwhile, or a schema that is put between one
    listing and the next, costs another try and is no error.

    What an earlier snapshot has read already is not read again: no file ever changes.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return _snapshot(store, window, cipher, known, last=attempt == _ATTEMPTS - 1)
        except (MissingObjectError, ConflictError, UnknownSchemaError) as problem:
            if attempt == _ATTEMPTS - 1:
                if isinstance(problem, MissingObjectError):
                    raise ConflictError(f"{problem}; the array is changing: open it again") from None
                raise
    raise AssertionError


def _snapshot(
    store: Store, window: Window, cipher: Aes256Gcm | None, known: Snapshot | None, *, last: bool
) -> Snapshot:
    listed = list_array(store)
    if not listed.is_array:
        raise ArrayNotFoundError(not_an_array(store, listed))
    schemas = load_schemas(store, listed, cipher, known.schemas if known else {})
    name = current_schema(schemas, window.at_ms)
    schema = with_enumerations(store, schemas[name], cipher)
    schemas[name] = schema
    ledger = read_ledger(store, listed)
    fragments, gone = _fragments(store, listed, ledger, window, schemas, cipher, known, dense=schema.dense)
    if gone and not last:
        raise gone[0]
    conditions, problems = _conditions(store, ledger, window, cipher, known)
    metadata_names, metadata_problems = _metadata_names(store, listed, window)
    if not last:
        _check_fields(conditions, schemas)
    return Snapshot(
        window=window,
        schema=schema,
        schema_name=name,
        schemas=schemas,
        fragments=fragments,
        conditions=conditions,
        metadata_names=metadata_names,
        newest_ms=_newest(listed),
        problems=(*_in_window(ledger.problems, window, dense=schema.dense), *gone, *problems),
        metadata_problems=metadata_problems,
    )


def _in_window(problems: tuple[FormatError, ...], window: Window, *, dense: bool) -> list[FormatError]:
    """Problems that matter: what a consolidation replaced is of no interest before there was anything to replace."""
    kept = []
    for problem in problems:
        stem, _, suffix = (problem.key or "").rpartition("/")[2].rpartition(".")
        name = TimestampedName.parse(stem) if suffix in {CommitKind.VACUUM, keys.MERGE_SUFFIX} else None
        if name is None or window.shows(name, dense=dense):
            kept.append(problem)
    return kept


def _check_fields(conditions: tuple[StoredCondition, ...], schemas: Mapping[str, Schema]) -> None:
    names = {each.name for schema in schemas.values() for each in schema.fields}
    for condition in conditions:
        if not condition.body.condition.fields <= names:
            raise UnknownSchemaError(f"{condition.marker} tests an attribute of no schema")


def list_array(store: Store) -> Listed:
    folders = ("", keys.SCHEMA_FOLDER, keys.COMMIT_FOLDER, keys.FOOTER_FOLDER, keys.METADATA_FOLDER)
    listings = parallel(store.list_level, folders)

    def names(entries: list[Entry]) -> tuple[str, ...]:
        return tuple(entry.key.rpartition("/")[2] for entry in entries)

    return Listed(
        root=names(listings[0].files),
        root_folders=tuple(folder.rpartition("/")[2] for folder in listings[0].folders),
        schemas=names(listings[1].files),
        commits=names(listings[2].files),
        footers=names(listings[3].files),
        metadata=names(listings[4].files),
    )


def not_an_array(store: Store, listed: Listed) -> str:
    if keys.GROUP_FILE in listed.root or keys.GROUP_FOLDER in listed.root_folders:
        return f"{store.uri} is a group, not an array; open it with Group"
    if listed.root or listed.root_folders:
        return f"there is no array at {store.uri}: the folder has no {keys.SCHEMA_FOLDER}; check the path"
    if isinstance(store, LocalStore) and store.is_file:
        return f"{store.uri} is a file, and an array is a folder; check the path"
    return f"there is no array at {store.uri}; check the path"


def load_schemas(
    store: Store, listed: Listed, cipher: Aes256Gcm | None, known: Mapping[str, Schema] = MappingProxyType({})
) -> dict[str, Schema]:
    """Every schema file, oldest first; fragments name the one they were written with."""
    names = sorted(
        (n for n in map(TimestampedName.parse, listed.schemas) if n is not None), key=lambda n: n.order
    )
    wanted = ([keys.SCHEMA_FILE] if keys.SCHEMA_FILE in listed.root else []) + [str(name) for name in names]

    def load(name: str) -> Schema:
        if name in known:
            return known[name]
        key = keys.schema_key(name)
        try:
            return Schema.unpack(unpack_generic_tile(store.get(key), cipher))
        except FormatError as problem:
            raise problem.at_key(f"{store.uri}/{key}") from None

    return dict(zip(wanted, parallel(load, wanted), strict=True))


def current_schema(schemas: Mapping[str, Schema], at_ms: int) -> str:
    """The newest schema up to the instant; before the first one, the first."""
    chosen = next(iter(schemas))
    for name in schemas:
        parsed = TimestampedName.parse(name)
        if parsed is None or parsed.end_ms <= at_ms:
            chosen = name
    return chosen


def with_enumerations(store: Store, schema: Schema, cipher: Aes256Gcm | None) -> Schema:
    """The schema with the labels that it refers to by file name."""

    def load(item: tuple[str, str]) -> tuple[str, Enumeration]:
        key = keys.enumeration_key(item[1])
        try:
            enumeration, _ = Enumeration.unpack(unpack_generic_tile(store.get(key), cipher))
            if enumeration.name != item[0]:
                raise CorruptionError(f"holds enumeration {enumeration.name!r}, not {item[0]!r}")
            return item[0], enumeration
        except FormatError as problem:
            raise problem.at_key(f"{store.uri}/{key}") from None

    if schema.enum_files.keys() <= schema.enums.keys():
        return schema
    return replace(schema, enums=dict(parallel(load, schema.enum_files.items())))


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


def _fragments(
    store: Store, listed: Listed, ledger: Ledger, window: Window, schemas: dict[str, Schema],
    cipher: Aes256Gcm | None, known: Snapshot | None, *, dense: bool,
) -> tuple[tuple[Fragment, ...], list[ConflictError]]:  # fmt: skip
    """The fragments, and for each that is committed but gone, the error that tells so."""
    names = visible_names(ledger, window, dense=dense)
    seen = {fragment.name: fragment for fragment in known.fragments} if known else {}
    footers = consolidated_footers(store, listed, cipher) if not seen.keys() >= set(names) else {}

    def load(name: TimestampedName) -> Fragment | ConflictError | None:
        if name in seen:
            return seen[name]
        stored = footers.get(str(name))
        if stored is not None:
            with suppress(FormatError):  # then the fragment's own file has the word
                return of_footer(name, stored, schemas)
        if name.version is None and not _has_metadata(store, name):
            return None
        try:
            return load_fragment(store, name, schemas, cipher)
        except ConflictError as problem:
            return problem

    loaded = parallel(load, names)
    return (
        tuple(fragment for fragment in loaded if isinstance(fragment, Fragment)),
        [problem for problem in loaded if isinstance(problem, ConflictError)],
    )


def _has_metadata(store: Store, name: TimestampedName) -> bool:
    files = {entry.key.rpartition("/")[2] for entry in store.list(keys.fragment_key(name))}
    return keys.FRAGMENT_METADATA_FILE in files


def consolidated_footers(store: Store, listed: Listed, cipher: Aes256Gcm | None) -> dict[str, bytes]:
    """Footers by fragment name, out of every `.meta`. They only save requests: a damaged one is passed over."""
    files = [f"{keys.FOOTER_FOLDER}/{name}" for name in listed.footers if name.endswith(".meta")]
    files += [name for name in listed.root if name.endswith(".meta")]

    def load(key: str) -> dict[str, bytes]:
        try:
            return ConsolidatedFooters.unpack(unpack_generic_tile(store.get(key), cipher)).footers
        except FormatError:
            return {}

    known: dict[str, bytes] = {}
    for footers in parallel(load, files):
        for name, footer in footers.items():
            known.setdefault(name, footer)
    return known


def _conditions(
    store: Store, ledger: Ledger, window: Window, cipher: Aes256Gcm | None, known: Snapshot | None
) -> tuple[tuple[StoredCondition, ...], list[FormatError]]:
    seen = {condition.marker: condition for condition in known.conditions} if known else {}
    wanted = sorted(
        (c for c in ledger.conditions if window.contains(c.name)), key=lambda c: (c.name.start_ms, c.key)
    )

    def load(commit: Commit) -> StoredCondition | FormatError:
        if commit.key in seen:
            return seen[commit.key]
        try:
            stored = ledger.payloads[commit.key] if commit.key in ledger.payloads else store.get(commit.key)
            return load_condition(commit, stored, cipher)
        except FormatError as problem:
            return problem.at_key(f"{store.uri}/{ledger.holders.get(commit.key, commit.key)}")

    loaded = parallel(load, wanted)
    return (
        tuple(c for c in loaded if isinstance(c, StoredCondition)),
        [p for p in loaded if isinstance(p, FormatError)],
    )


def load_condition(commit: Commit, stored: bytes, cipher: Aes256Gcm | None) -> StoredCondition:
    body = unpack_generic_tile(stored, cipher)
    kind = UpdateCommit if commit.kind is CommitKind.UPDATE else DeleteCommit
    return StoredCondition(commit, kind.unpack(body))


def _metadata_names(
    store: Store, listed: Listed, window: Window
) -> tuple[tuple[TimestampedName, ...], tuple[FormatError, ...]]:
    names = {name: TimestampedName.parse(name) for name in listed.metadata if not name.endswith(".vac")}
    hidden: set[str] = set()
    problems: list[FormatError] = []
    for name in listed.metadata:
        stem = name.removesuffix(".vac")
        parsed = TimestampedName.parse(stem)
        if stem != name and parsed is not None and window.contains(parsed):
            key = f"{keys.METADATA_FOLDER}/{name}"
            try:
                hidden.update(line.rpartition("/")[2] for line in unpack_vac(store.get(key)))
            except FormatError as problem:
                problems.append(problem.at_key(f"{store.uri}/{key}"))
    shown = [p for n, p in names.items() if p is not None and n not in hidden and window.contains(p)]
    return tuple(sorted(shown, key=lambda name: name.order)), tuple(problems)


def _newest(listed: Listed) -> int:
    stems = (
        name.partition(".")[0]
        for group in (listed.schemas, listed.commits, listed.metadata, listed.root_folders)
        for name in group
    )
    newest = 0
    for stem in stems:
        try:
            parsed = TimestampedName.parse(stem)
        except CorruptionError:
            continue
        if parsed is not None:
            newest = max(newest, parsed.end_ms)
    return newest
