"""History: what happened to an array and when, told by the names and contents of its commit files."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from terrazzo.engine.clock import as_text
from terrazzo.engine.condition_text import describe_condition, describe_name, describe_value
from terrazzo.engine.fragments import Fragment, load_fragment, of_footer
from terrazzo.engine.ledger import Ledger, read_ledger
from terrazzo.engine.listing import list_array
from terrazzo.engine.runner import parallel
from terrazzo.engine.schemas import current_schema, load_schemas, with_enumerations
from terrazzo.engine.snapshot import consolidated_footers as footers_of
from terrazzo.engine.snapshot import load_condition
from terrazzo.errors import TerrazzoError
from terrazzo.format import keys
from terrazzo.format.commits import Assignment, Commit, UpdateCommit
from terrazzo.format.domain import Dim
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.keys import TimestampedName
from terrazzo.format.schema import Schema
from terrazzo.storage.base import Store


@dataclass(frozen=True, slots=True)
class Event:
    """One commit."""

    start_ms: int
    end_ms: int
    kind: str  # create, evolve, write, consolidate, delete, update, metadata
    name: str
    text: str  # for people: the condition, the box, the change of schema
    n_cells: int | None = None
    size: int | None = None  # bytes stored
    superseded: bool = False  # its cells live on in a consolidated fragment

    def __str__(self) -> str:
        span = as_text(self.start_ms) + (f" … {as_text(self.end_ms)}" if self.end_ms != self.start_ms else "")
        cells = "" if self.n_cells is None else f"  {self.n_cells:,} cells"
        size = "" if self.size is None else f"  {self.size:,} bytes"
        return (
            f"{span}  {self.kind:<11}{cells}{size}  {self.text}{'  (superseded)' if self.superseded else ''}"
        )


def read_history(
    store: Store, cipher: Aes256Gcm | None, known: Mapping[str, Fragment] = MappingProxyType({})
) -> list[Event]:
    """Every commit that is still there, oldest first. Fragments that are `known`, by key, are not read again."""
    listed = list_array(store)
    schemas = load_schemas(store, listed, cipher)
    latest = with_enumerations(store, schemas[current_schema(schemas, (1 << 64) - 1)], cipher)
    ledger = read_ledger(store, listed)
    footers = footers_of(store, listed, cipher)
    events = _schema_events(schemas)
    hidden = {key for _, lines in ledger.superseded for key in lines}
    merged = {keys.fragment_key(name) for name, _ in ledger.superseded}

    def write_event(item: tuple[str, TimestampedName]) -> Event:
        key, name = item
        kind = "consolidate" if key in merged or name.start_ms != name.end_ms else "write"
        try:
            stored = footers.get(str(name))
            fragment = known.get(key) or (
                of_footer(name, stored, schemas) if stored else load_fragment(store, name, schemas, cipher)
            )
        except TerrazzoError as problem:
            return Event(
                name.start_ms,
                name.end_ms,
                kind,
                str(name),
                f"unreadable: {problem}",
                superseded=key in hidden,
            )
        schema, footer = schemas[fragment.schema_name], fragment.footer
        size = sum(footer.file_sizes) + sum(footer.var_file_sizes) + sum(footer.validity_file_sizes)
        box = " × ".join(
            f"{dim.name} {_shown(low, dim)} to {_shown(high, dim)}"
            for dim, (low, high) in zip(schema.dims, footer.domain or (), strict=False)
        )
        return Event(
            name.start_ms,
            name.end_ms,
            kind,
            str(name),
            box,
            footer.n_cells(schema),
            size,
            superseded=key in hidden,
        )

    events += parallel(write_event, ledger.writes.items())
    events += parallel(
        lambda commit: _condition_event(store, ledger, commit, latest, cipher), ledger.conditions
    )
    events += _metadata_events(listed.metadata)
    return sorted(events, key=lambda event: (event.start_ms, event.name))


def _shown(value: Any, dim: Dim) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(np.array(value).astype(f"M8[{dim.datatype.unit}]")) if dim.datatype.is_datetime else str(value)


def _schema_events(schemas: dict[str, Schema]) -> list[Event]:
    events: list[Event] = []
    before: Schema | None = None
    for name, schema in schemas.items():
        parsed = TimestampedName.parse(name)
        if parsed is not None and current_schema(schemas, parsed.end_ms) != name:
            continue  # never in force: it speaks for fragments that hold dropped attributes
        start, end = (parsed.start_ms, parsed.end_ms) if parsed else (0, 0)
        if before is None:
            kind = "sparse" if schema.sparse else "dense"
            text = f"{kind} array of {', '.join(dim.name for dim in schema.dims)}"
            events.append(Event(start, end, "create", name, text))
        else:
            events.append(Event(start, end, "evolve", name, _difference(before, schema)))
        before = schema
    return events


def _difference(before: Schema, after: Schema) -> str:
    old, new = {a.name: a for a in before.attrs}, {a.name: a for a in after.attrs}
    told = [f"added {name}" for name in new if name not in old]
    told += [f"dropped {name}" for name in old if name not in new]
    for enum, file in after.enum_files.items():
        if enum not in before.enum_files:
            told.append(f"added enumeration {enum}")
        elif before.enum_files[enum] != file:
            told.append(f"extended enumeration {enum}")
    if before.current_domain != after.current_domain:
        told.append("expanded the current domain")
    return ", ".join(told) or "no visible change"


def _condition_event(
    store: Store, ledger: Ledger, commit: Commit, schema: Schema, cipher: Aes256Gcm | None
) -> Event:
    kind = "update" if commit.kind.value == "upd" else "delete"
    try:
        stored = ledger.payloads[commit.key] if commit.key in ledger.payloads else store.get(commit.key)
        condition = load_condition(commit, stored, cipher)
        text = f"where {describe_condition(condition.body.matches, schema)}"
        if isinstance(condition.body, UpdateCommit):
            text = f"set {', '.join(_assignment(a, schema) for a in condition.body.assignments)} {text}"
        size = len(stored)
    except TerrazzoError as problem:
        text, size = f"unreadable: {problem}", 0
    return Event(commit.name.start_ms, commit.name.end_ms, kind, str(commit.name), text, None, size)


def _assignment(assignment: Assignment, schema: Schema) -> str:
    field = schema.field(assignment.attr) if schema.has(assignment.attr) else None
    null = not assignment.value and field is not None and field.nullable
    value = "NULL" if null else describe_value(assignment.value, field, schema)
    return f"{describe_name(assignment.attr)} = {value}"


def _metadata_events(names: tuple[str, ...]) -> list[Event]:
    events = []
    for name in names:
        parsed = TimestampedName.parse(name)
        if parsed is not None:
            events.append(Event(parsed.start_ms, parsed.end_ms, "metadata", name, "metadata changed"))
    return events
