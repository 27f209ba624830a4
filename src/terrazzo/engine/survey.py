"""Survey: every file of an array but its cells, read one by one, with what is wrong about each.

A snapshot stops at the first file that it cannot do without; a survey goes on, so that damage can be told and mended.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from terrazzo.engine.fragments import Fragment, load_fragment
from terrazzo.engine.ledger import Ledger, read_ledger
from terrazzo.engine.listing import Listed, list_array, not_an_array
from terrazzo.engine.runner import parallel
from terrazzo.engine.schemas import load_schemas, with_enumerations
from terrazzo.engine.snapshot import StoredCondition, load_condition
from terrazzo.errors import (
    ArrayNotFoundError,
    CorruptionError,
    FormatError,
    InvalidRequestError,
    MissingObjectError,
    StorageError,
    TerrazzoError,
)
from terrazzo.format import keys
from terrazzo.format.commits import Commit
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.generic_tile import unpack_generic_tile
from terrazzo.format.keys import CommitKind, TimestampedName
from terrazzo.format.ledgers import (
    ConsolidatedFooters,
    DeleteRecord,
    Merge,
    Record,
    UpdateRecord,
    salvage_con,
    unpack_ign,
    unpack_vac,
)
from terrazzo.format.metadata import Metadata
from terrazzo.format.schema import Schema
from terrazzo.storage.base import Entry, Store

_A = TypeVar("_A")
_B = TypeVar("_B")
_ATTEMPTS = 3
_CONDITIONS = (CommitKind.DELETE, CommitKind.UPDATE)


@dataclass(frozen=True, slots=True)
class Con:
    """A `.con`: the records that can be told, and what is wrong with it as a whole, or with one of them."""

    records: tuple[Record, ...]
    problem: TerrazzoError | None = None
    broken: Mapping[str, TerrazzoError] = field(default_factory=dict)  # records whose payload is damaged

    @property
    def sound(self) -> tuple[Record, ...]:
        return tuple(record for record in self.records if record.key not in self.broken)


@dataclass(frozen=True, slots=True)
class Survey:
    listed: Listed  # without the strangers
    entries: Mapping[str, Entry]  # files of the folders that an open lists, by key
    strangers: Mapping[str, str]  # names that are none of the format's: what the matter is, by key
    schemas: Mapping[str, Schema]
    broken: Mapping[str, TerrazzoError]  # files that cannot be read, .con apart
    cons: Mapping[str, Con]
    ledger: Ledger
    conditions: tuple[StoredCondition, ...]
    footers: Mapping[str, Mapping[str, bytes]]  # by .meta and fragment name
    fragments: Mapping[str, Fragment]  # committed, by key
    lost: Mapping[str, TerrazzoError]  # committed fragments whose metadata cannot be read
    folders: Mapping[str, Mapping[str, Entry]]  # fragment folders, committed or not: their files by name

    @property
    def gone(self) -> frozenset[str]:
        """Committed fragments of which no file is left."""
        return frozenset(key for key in self.lost if not self.folders.get(key))

    @property
    def hidden(self) -> frozenset[str]:
        """Fragments that a consolidation replaced."""
        found: set[str] = set()
        for name, lines in self.ledger.superseded:
            if keys.fragment_key(name) in self.ledger.known:
                found.update(lines)
        for _, merge in self.ledger.merges:
            if all(key in self.ledger.writes for key in merge.created):
                found.update(merge.replaced)
        return frozenset(found)


def survey(store: Store, cipher: Aes256Gcm | None) -> Survey:
    """Read what there is. Only a store that does not answer, a place without an array, and a key that is missing
    or not wanted are errors."""
    for attempt in range(_ATTEMPTS):
        try:
            return _survey(store, cipher)
        except MissingObjectError:  # it went away since the listing: a vacuum, or whoever else is at work
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError


def _survey(store: Store, cipher: Aes256Gcm | None) -> Survey:
    listed = list_array(store)
    if not listed.is_array and not set(listed.root_folders) & {keys.SCHEMA_FOLDER, keys.FRAGMENT_FOLDER}:
        raise ArrayNotFoundError(not_an_array(store, listed))
    entries = {
        entry.key: entry
        for folder in ("", keys.SCHEMA_FOLDER, keys.COMMIT_FOLDER, keys.FOOTER_FOLDER, keys.METADATA_FOLDER)
        for entry in store.list(folder)
    }
    listed, strangers = _known_names(listed)
    broken: dict[str, TerrazzoError] = {}
    schemas = _schemas(store, listed, cipher, broken)
    ledger = read_ledger(store, listed)
    _keep(broken, ledger.problems, store)
    cons = _cons(store, listed, cipher)
    conditions = _conditions(store, ledger, cons, cipher, entries, broken)
    footers = _read(
        store, _footer_keys(listed), cipher, lambda b: ConsolidatedFooters.unpack(b).footers, broken
    )
    _metadata(store, listed, cipher, broken)
    folders = _folders(store, listed)
    fragments, lost = _fragments(store, ledger, dict(schemas), cipher, folders)
    return Survey(
        listed,
        entries,
        strangers,
        schemas,
        broken,
        cons,
        ledger,
        conditions,
        footers,
        fragments,
        lost,
        folders,
    )


# -- names ---------------------------------------------------------------------------------------------


def _known_names(listed: Listed) -> tuple[Listed, dict[str, str]]:
    strangers: dict[str, str] = {}

    def kept(
        folder: str, names: Iterable[str], suffixes: tuple[str, ...], *, any_name: bool
    ) -> tuple[str, ...]:
        good = []
        for name in names:
            key = f"{folder}/{name}" if folder else name
            stem = next((name.removesuffix(s) for s in suffixes if s and name.endswith(s)), name)
            known = stem != name or "" in suffixes
            try:
                parsed = TimestampedName.parse(stem) if known else None
            except CorruptionError as problem:
                strangers[key] = str(problem)
                continue
            if parsed is None and (known and not any_name):
                strangers[key] = "its name is none that the format has"
            elif not known:
                strangers[key] = f"a {folder or 'root'} folder has no such files"
            else:
                good.append(name)
        return tuple(good)

    commit_suffixes = (
        *(f".{kind}" for kind in CommitKind),
        f".{keys.MERGE_SUFFIX}",
        f".{keys.STREAM_SUFFIX}",
    )
    root_suffixes = (".ok", ".vac", ".meta")
    plain = {keys.SCHEMA_FILE, keys.LOCK_FILE, keys.GROUP_FILE}
    root = tuple(name for name in listed.root if name in plain)
    root += kept("", (n for n in listed.root if n not in plain), root_suffixes, any_name=False)
    folders = []
    for name in listed.root_folders:
        try:
            TimestampedName.parse(name)
            folders.append(name)
        except CorruptionError as problem:
            strangers[name] = str(problem)
    return (
        replace(
            listed,
            root=root,
            root_folders=tuple(folders),
            schemas=kept(keys.SCHEMA_FOLDER, listed.schemas, ("",), any_name=False),
            commits=kept(keys.COMMIT_FOLDER, listed.commits, commit_suffixes, any_name=False),
            footers=kept(keys.FOOTER_FOLDER, listed.footers, (".meta",), any_name=False),
            metadata=kept(keys.METADATA_FOLDER, listed.metadata, (".vac", ""), any_name=False),
        ),
        strangers,
    )


# -- files ---------------------------------------------------------------------------------------------


def attempt(work: Callable[[_A], _B], item: _A) -> _B | TerrazzoError:
    """What `work` makes of an item, or what is wrong with it; an object that is gone is no answer."""
    try:
        return work(item)
    except MissingObjectError:
        raise
    except (FormatError, InvalidRequestError, StorageError) as problem:
        return problem


def _keep(broken: dict[str, TerrazzoError], problems: Iterable[TerrazzoError], store: Store) -> None:
    for problem in problems:
        key = (problem.key or "").removeprefix(f"{store.uri}/")
        if not key.endswith(f".{CommitKind.CONSOLIDATED}"):
            broken.setdefault(key, problem)


def _read(
    store: Store, wanted: Iterable[str], cipher: Aes256Gcm | None, unpack: Callable[[bytes], _B],
    broken: dict[str, TerrazzoError],
) -> dict[str, _B]:  # fmt: skip
    """Files that are one generic tile each."""
    todo = list(wanted)
    results = parallel(
        lambda key: attempt(lambda k: unpack(unpack_generic_tile(store.get(k), cipher)), key), todo
    )
    found: dict[str, _B] = {}
    for key, result in zip(todo, results, strict=True):
        if isinstance(result, TerrazzoError):
            broken[key] = result
        else:
            found[key] = result
    return found


def _schemas(
    store: Store, listed: Listed, cipher: Aes256Gcm | None, broken: dict[str, TerrazzoError]
) -> dict[str, Schema]:
    found: dict[str, Schema] = {}
    alone = [replace(listed, root=(), schemas=(name,)) for name in sorted(listed.schemas, key=_time_of)]
    if keys.SCHEMA_FILE in listed.root:
        alone.insert(0, replace(listed, root=(keys.SCHEMA_FILE,), schemas=()))
    results = parallel(lambda one: attempt(lambda each: load_schemas(store, each, cipher), one), alone)
    for one, result in zip(alone, results, strict=True):
        if isinstance(result, TerrazzoError):
            broken[keys.schema_key((*one.schemas, keys.SCHEMA_FILE)[0])] = result
        else:
            found |= result
    if not found:
        for problem in broken.values():
            if isinstance(problem, InvalidRequestError):
                raise problem  # the key is missing, or there is none: nothing is known of the array
    for name, schema in found.items():
        found[name] = _with_labels(store, schema, cipher, broken)
    return found


def _time_of(name: str) -> tuple[int, str]:
    parsed = TimestampedName.parse(name)
    return (0, name) if parsed is None else parsed.order


def _with_labels(
    store: Store, schema: Schema, cipher: Aes256Gcm | None, broken: dict[str, TerrazzoError]
) -> Schema:
    enums = dict(schema.enums)
    for enum, file in schema.enum_files.items():
        key = keys.enumeration_key(file)
        try:
            alone = replace(schema, attrs=(), enums={}, enum_files={enum: file})
            enums |= with_enumerations(store, alone, cipher).enums
        except MissingObjectError:
            broken[key] = CorruptionError(f"the labels of {enum!r} are gone")
        except (FormatError, InvalidRequestError, StorageError) as problem:
            broken[key] = problem
    return replace(schema, enums=enums) if schema.enum_files.keys() <= enums.keys() else schema


def _cons(store: Store, listed: Listed, cipher: Aes256Gcm | None) -> dict[str, Con]:
    found = {}
    for name in listed.commits:
        if not name.endswith(f".{CommitKind.CONSOLIDATED}"):
            continue
        key = f"{keys.COMMIT_FOLDER}/{name}"
        stored = attempt(store.get, key)
        if isinstance(stored, TerrazzoError):
            found[key] = Con((), stored)
            continue
        records, problem = salvage_con(stored)
        bad = {}
        for record in records:
            if isinstance(record, (DeleteRecord, UpdateRecord)):
                commit = Commit(record.name, record.kind)
                result = attempt(lambda r, c=commit: load_condition(c, r.payload, cipher), record)  # type: ignore[misc]
                if isinstance(result, TerrazzoError):
                    bad[record.key] = result
        found[key] = Con(records, problem, bad)
    return found


def _conditions(
    store: Store, ledger: Ledger, cons: Mapping[str, Con], cipher: Aes256Gcm | None,
    entries: Mapping[str, Entry], broken: dict[str, TerrazzoError],
) -> tuple[StoredCondition, ...]:  # fmt: skip
    found = []
    bad = {marker for con in cons.values() for marker in con.broken}
    for commit in sorted(ledger.conditions, key=lambda commit: commit.order):
        held = commit.key in ledger.payloads
        if held and commit.key in entries:  # readers take the other one, as long as it is there
            loose = attempt(lambda c: load_condition(c, store.get(c.key), cipher), commit)
            if isinstance(loose, TerrazzoError):
                broken[commit.key] = loose
        if held and commit.key in bad:
            continue
        stored = ledger.payloads[commit.key] if held else attempt(store.get, commit.key)
        result = (
            stored
            if isinstance(stored, TerrazzoError)
            else attempt(lambda payload, c=commit: load_condition(c, payload, cipher), stored)  # type: ignore[misc]
        )
        if isinstance(result, TerrazzoError):
            broken[commit.key] = result
        else:
            found.append(result)
    return tuple(found)


def _footer_keys(listed: Listed) -> list[str]:
    return [f"{keys.FOOTER_FOLDER}/{name}" for name in listed.footers] + [
        name for name in listed.root if name.endswith(".meta")
    ]


def _metadata(
    store: Store, listed: Listed, cipher: Aes256Gcm | None, broken: dict[str, TerrazzoError]
) -> None:
    files = [f"{keys.METADATA_FOLDER}/{name}" for name in listed.metadata]
    _read(store, [key for key in files if not key.endswith(".vac")], cipher, Metadata.unpack, broken)
    for key in files:
        if key.endswith(".vac"):
            result = attempt(lambda k: unpack_vac(store.get(k)), key)
            if isinstance(result, TerrazzoError):
                broken[key] = result


# -- fragments -----------------------------------------------------------------------------------------


def _folders(store: Store, listed: Listed) -> dict[str, dict[str, Entry]]:
    found: dict[str, dict[str, Entry]] = {}
    for folder in store.list_level(keys.FRAGMENT_FOLDER).folders:
        found[folder] = {}
    old = [name for name in listed.root_folders if TimestampedName.parse(name) is not None]
    for root in (keys.FRAGMENT_FOLDER, *old):
        for entry in store.list_recursive(root):
            depth = 2 if root == keys.FRAGMENT_FOLDER else 1
            parts = entry.key.split("/")
            if len(parts) > depth:
                found.setdefault("/".join(parts[:depth]), {})["/".join(parts[depth:])] = entry
    return found


def _fragments(
    store: Store, ledger: Ledger, schemas: dict[str, Schema], cipher: Aes256Gcm | None,
    folders: Mapping[str, Mapping[str, Entry]],
) -> tuple[dict[str, Fragment], dict[str, TerrazzoError]]:  # fmt: skip
    found: dict[str, Fragment] = {}
    lost: dict[str, TerrazzoError] = {}

    def load(name: TimestampedName) -> Fragment | TerrazzoError:
        try:
            return load_fragment(store, name, schemas, cipher)
        except TerrazzoError as problem:
            return problem

    # Before format 5 a fragment is committed once its metadata is there.
    names = [
        name
        for key, name in ledger.writes.items()
        if name.version is not None or keys.FRAGMENT_METADATA_FILE in folders.get(key, {})
    ]
    for name, result in zip(names, parallel(load, names), strict=True):
        if isinstance(result, TerrazzoError):
            lost[keys.fragment_key(name)] = result
        else:
            found[keys.fragment_key(name)] = result
    return found, lost


def told_lines(stored: bytes, unpack: Callable[[bytes], tuple[_A, ...]]) -> tuple[list[_A], str]:
    """The lines of a torn ledger that can be told, and what is left of the one that was cut off."""
    whole, _, rest = stored.rpartition(b"\n")
    found: list[_A] = []
    for line in whole.split(b"\n") if whole else ():
        result = attempt(lambda one: unpack(one + b"\n"), line)
        if not isinstance(result, TerrazzoError):
            found.extend(result)
    return found, rest.decode("utf-8", "replace")


def told_merge(stored: bytes) -> tuple[Merge, str]:
    lines, rest = told_lines(stored, lambda line: (Merge.unpack(line),))
    return Merge(
        tuple(key for one in lines for key in one.created),
        tuple(key for one in lines for key in one.replaced),
    ), rest


def told_ignored(stored: bytes) -> tuple[list[Commit], str]:
    return told_lines(stored, unpack_ign)
