"""A snapshot together with the store that it was taken from: what plans and tasks read through."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from terrazzo.engine.fetch import FragmentReader
from terrazzo.engine.fragments import Fragment
from terrazzo.engine.layout import Layout
from terrazzo.engine.snapshot import Snapshot, StoredCondition
from terrazzo.format.attribute import Attr
from terrazzo.format.commits import UpdateCommit
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.fragment import Slots
from terrazzo.format.schema import Schema
from terrazzo.storage.base import Store


class View:
    """Keeps the reader of every fragment, and with it the sections that were fetched. Picklable: what was fetched
    stays behind."""

    def __init__(self, store: Store, snapshot: Snapshot, cipher: Aes256Gcm | None) -> None:
        self.store, self.snapshot, self.cipher = store, snapshot, cipher
        self._readers: dict[str, FragmentReader] = {}
        self._layouts: dict[tuple[str, int, Slots], Layout] = {}
        self._missing: dict[str, frozenset[str]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return View, (self.store, self.snapshot, self.cipher)

    @property
    def schema(self) -> Schema:
        return self.snapshot.schema

    def reader(self, fragment: Fragment) -> FragmentReader:
        found = self._readers.get(fragment.key)
        if found is None:
            schema, slots = self.snapshot.schema_of(fragment), fragment.footer.slots
            alike = (fragment.schema_name, fragment.version, slots)
            layout = self._layouts.get(alike)
            if layout is None:
                layout = self._layouts[alike] = Layout(schema, fragment.version, slots, self.cipher)
            found = FragmentReader(self.store, fragment, schema, self.cipher, layout)
            self._readers[fragment.key] = found
        return found

    def following(self, snapshot: Snapshot) -> "View":
        """The view of a later snapshot of the same array; what is known of the fragments is kept."""
        later = View(self.store, snapshot, self.cipher)
        kept = {fragment.key for fragment in snapshot.fragments}
        later._readers = {key: reader for key, reader in self._readers.items() if key in kept}
        return later

    @cached_property
    def conditions(self) -> tuple[StoredCondition, ...]:
        """The deletes and updates in force, updates without values for what is another attribute today: one that
        was dropped, and whose name was given away again."""
        return tuple(self._fitting(condition) for condition in self.snapshot.conditions)

    def _fitting(self, condition: StoredCondition) -> StoredCondition:
        body = condition.body
        if not isinstance(body, UpdateCommit):
            return condition
        then = self.snapshot.schema_at(condition.time_ms)
        kept = tuple(a for a in body.assignments if not self._became_another(a.attr, then))
        return replace(condition, body=replace(body, assignments=kept))

    def _became_another(self, name: str, then: Schema) -> bool:
        attrs = {attr.name: attr for attr in then.attrs}
        return name in attrs and self.wide.has(name) and not same_cells(self.wide.attr(name), attrs[name])

    @cached_property
    def wide(self) -> Schema:
        """The schema, and behind it the attributes that were dropped since but that conditions still test."""
        tested = {name for c in self.snapshot.conditions for name in c.body.condition.fields}
        dropped: dict[str, Attr] = {}
        for schema in list(self.snapshot.schemas.values())[::-1]:
            for attr in schema.attrs:
                if attr.name in tested and not self.schema.has(attr.name):
                    dropped.setdefault(attr.name, replace(attr, enum=None))
        return replace(self.schema, attrs=(*self.schema.attrs, *dropped.values())) if dropped else self.schema

    def missing(self, fragment: Fragment) -> frozenset[str]:
        """Attributes of the wide schema that a fragment does not hold, or holds as something else."""
        known = self._missing.get(fragment.schema_name)
        if known is None:
            own: Mapping[str, Attr] = {attr.name: attr for attr in self.snapshot.schema_of(fragment).attrs}
            known = frozenset(a.name for a in self.wide.attrs if not same_cells(a, own.get(a.name)))
            self._missing[fragment.schema_name] = known
        return known


def same_cells(attr: Attr, other: Attr | None) -> bool:
    """Whether cells of both are the same bytes: type, values per cell and nullability agree."""
    return other is not None and (attr.datatype, attr.cell_val_num, attr.nullable) == (
        other.datatype,
        other.cell_val_num,
        other.nullable,
    )
