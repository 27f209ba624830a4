"""Snapshot: one listing per folder, then an immutable view of the array between two instants.

Everything else is a function of it. Opening costs five listings, the schemas, the ledgers, the conditions
in the window, and a footer for each visible fragment that no `.meta` tells of.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

from terrazzo.engine.fragments import Fragment, UnknownSchemaError, load_fragment, of_footer
from terrazzo.engine.ledger import Ledger, read_ledger, visible_names
from terrazzo.engine.listing import Listed, list_array, newest_of, not_an_array
from terrazzo.engine.runner import parallel
from terrazzo.engine.schemas import current_schema, load_schemas, with_enumerations
from terrazzo.engine.window import Window
from terrazzo.errors import (
    ArrayNotFoundError,
    ConflictError,
    FormatError,
    MissingObjectError,
    TerrazzoError,
)
from terrazzo.format import keys
from terrazzo.format.commits import Commit, DeleteCommit, UpdateCommit
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.generic_tile import unpack_generic_tile
from terrazzo.format.keys import CommitKind, TimestampedName
from terrazzo.format.ledgers import (
    ConsolidatedFooters,
    unpack_vac,
)
from terrazzo.format.schema import Schema
from terrazzo.storage.base import Store

_ATTEMPTS = 3


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


_Item = TypeVar("_Item", bound=Fragment | StoredCondition)


def _in_order(held: tuple[_Item, ...], added: tuple[_Item, ...]) -> tuple[_Item, ...]:
    """All of them by time. What is added mostly comes last, and what is held need not be looked at again."""
    added = tuple(sorted(added, key=lambda item: item.order))
    everything = held + added
    if not held or not added or held[-1].order < added[0].order:
        return everything
    return tuple(sorted(everything, key=lambda item: item.order))


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
            fragments=_in_order(self.fragments, added),
            newest_ms=max(self.newest_ms, latest),
        )

    def with_conditions(self, *added: StoredCondition) -> "Snapshot":
        latest = max(condition.time_ms for condition in added)
        return replace(
            self,
            window=replace(self.window, at_ms=max(self.window.at_ms, latest)),
            conditions=_in_order(self.conditions, added),
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
        newest_ms=newest_of(listed),
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
