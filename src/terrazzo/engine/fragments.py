"""A fragment as the engine holds it: its footer at hand, its sections fetched when they are asked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from terrazzo.errors import ConflictError, CorruptionError, FormatError, MissingObjectError
from terrazzo.format import versions
from terrazzo.format.bounds import BoundsTable
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.fragment import Footer, Section, schema_name, split_footer
from terrazzo.format.fragment_file import SectionMap
from terrazzo.format.fragment_v1 import unpack_first
from terrazzo.format.generic_tile import unpack_generic_tile
from terrazzo.format.keys import (
    COORDS_FILE,
    FRAGMENT_METADATA_FILE,
    SCHEMA_FILE,
    TimestampedName,
    fragment_key,
)
from terrazzo.format.rtree import RTree
from terrazzo.format.schema import Schema
from terrazzo.format.sections import (
    FieldStatistics,
    has_extremes,
    unpack_conditions,
    unpack_extremes,
    unpack_statistics,
    unpack_u64s,
)
from terrazzo.format.wire import Cursor
from terrazzo.storage.base import Store

_T = TypeVar("_T")

TAIL = 64 << 10
"""Bytes read from the end of a metadata file at open: the footer, and mostly the whole file."""
LARGEST = 1 << 40
"""More bytes than anyone reads at once: a size above it is damage."""
_WHOLE = 4 << 20
_OFFSETS = frozenset({Section.TILE_OFFSETS, Section.VAR_OFFSETS, Section.VALIDITY_OFFSETS})
_FIRST = np.zeros(1, np.uint64)


@dataclass(frozen=True, slots=True)
class Fragment:
    """A committed fragment. Everything in it was read once and never changes."""

    name: TimestampedName
    schema_name: str
    footer: Footer
    tail: bytes | None = field(default=None, repr=False, compare=False)  # the whole metadata file, if small
    key: str = field(init=False, repr=False, compare=False)  # of its folder

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", fragment_key(self.name))

    @property
    def version(self) -> int:
        return self.footer.version

    @property
    def has_timestamps(self) -> bool:
        return self.footer.slots.has_timestamps

    @property
    def order(self) -> tuple[int, str]:
        return self.name.order


def load_fragment(
    store: Store, name: TimestampedName, schemas: dict[str, Schema], cipher: Aes256Gcm | None
) -> Fragment:
    """Read the footer of a fragment of any format, from its own metadata file."""
    key = f"{fragment_key(name)}/{FRAGMENT_METADATA_FILE}"
    try:
        try:
            tail, size = store.get_tail(key, TAIL)
            return _from_tail(store, name, key, bytes(tail), size, schemas, cipher)
        except MissingObjectError:
            raise ConflictError(
                f"{fragment_key(name)} is committed, but its files are gone; open the array again, and if that "
                f"does not help, restore the folder or run repair"
            ) from None
    except FormatError as problem:
        raise problem.at_key(f"{store.uri}/{key}") from None


def _from_tail(
    store: Store, name: TimestampedName, key: str, tail: bytes, size: int, schemas: dict[str, Schema],
    cipher: Aes256Gcm | None,
) -> Fragment:  # fmt: skip
    version = name.version if name.version is not None else (3 if name.uuid_first is None else 1)
    only = schemas.get(SCHEMA_FILE)
    if version < versions.FOOTER:
        dense = not any(entry.key.endswith(COORDS_FILE) for entry in store.list(fragment_key(name)))
        whole = tail if len(tail) == size else store.get(key)
        body = unpack_generic_tile(whole, cipher)
        return Fragment(
            name, SCHEMA_FILE, unpack_first(body, _known(schemas, SCHEMA_FILE), dense=dense).footer, whole
        )
    found = split_footer(tail, version, only)
    if isinstance(found, int):
        if found > size:
            raise CorruptionError(f"a footer of {found} bytes in a file of {size}")
        tail = bytes(store.get_ranges(key, [(size - found, found)])[0])
        found = split_footer(tail, version, only)
        assert not isinstance(found, int)
    wanted = schema_name(found) or SCHEMA_FILE
    return Fragment(
        name, wanted, Footer.unpack(found, _known(schemas, wanted)), tail if len(tail) == size else None
    )


def of_footer(name: TimestampedName, footer: bytes, schemas: dict[str, Schema]) -> Fragment:
    """A fragment whose footer stands in a `.meta`."""
    wanted = schema_name(footer) or SCHEMA_FILE
    return Fragment(name, wanted, Footer.unpack(footer, _known(schemas, wanted)))


class UnknownSchemaError(CorruptionError):
    """A fragment names a schema that was not listed: it is lost, or younger than the listing."""


def _known(schemas: dict[str, Schema], name: str) -> Schema:
    if name not in schemas:
        raise UnknownSchemaError(f"the fragment asks for the schema {name!r}, which is not there")
    return schemas[name]


class Sections:
    """The sections of one fragment, each fetched and parsed once."""

    def __init__(self, store: Store, fragment: Fragment, schema: Schema, cipher: Aes256Gcm | None) -> None:
        self.store, self.fragment, self.schema, self.cipher = store, fragment, schema, cipher
        self.key = f"{fragment.key}/{FRAGMENT_METADATA_FILE}"
        self._map = SectionMap(fragment.footer, None)
        self._lists: dict[tuple[Section, int], NDArray[Any]] = {}

    @cached_property
    def n_tiles(self) -> int:
        return self.fragment.footer.n_tiles(self.schema)

    @cached_property
    def _file(self) -> bytes | None:
        """The metadata file, if it is small enough to be fetched whole."""
        if self.fragment.tail is not None:
            return self.fragment.tail
        last = max((o for group in self.fragment.footer.offsets.values() for o in group), default=0)
        if self.fragment.version >= versions.FOOTER and last > _WHOLE:
            return None
        return self.store.get(self.key)

    def body(self, section: Section, slot: int = 0) -> bytes | None:
        span = self._map.span(section, slot)
        if span is None:
            return None
        start, size = span
        try:
            if self._file is not None:
                stored = memoryview(self._file)[start : None if size is None else start + size]
            else:
                end = self.store.size(self.key) if size is None else start + size
                if not start <= end < 1 << 62:
                    raise CorruptionError(f"section {section.name} begins at byte {start} of {end}")
                stored = memoryview(self.store.get_ranges(self.key, [(start, end - start)])[0])
            # Behind the last section stands the footer, and who knows neither's size takes both.
            return unpack_generic_tile(Cursor(stored, base=start), self.cipher)
        except MissingObjectError:
            raise ConflictError(
                f"{self.fragment.key} was removed while it was read; open the array again"
            ) from None
        except FormatError as problem:
            raise problem.at_key(f"{self.store.uri}/{self.key}") from None

    def _parsed(self, parse: Callable[[bytes], _T], section: Section, slot: int = 0) -> _T | None:
        body = self.body(section, slot)
        try:
            return None if body is None else parse(body)
        except FormatError as problem:
            raise problem.at_key(f"{self.store.uri}/{self.key}") from None

    @cached_property
    def _first(self) -> Any:
        """Formats 1 and 2 have one tile for everything."""
        assert self._file is not None
        body = unpack_generic_tile(self._file, self.cipher)
        return unpack_first(body, self.schema, dense=self.fragment.footer.dense)

    @cached_property
    def rtree(self) -> RTree:
        if self.fragment.version < versions.FOOTER:
            return self._first.rtree  # type: ignore[no-any-return]
        if self.n_tiles == 1 and not self.fragment.footer.dense and self.fragment.footer.domain is not None:
            # The footer says it all.
            return RTree(BoundsTable.of([self.fragment.footer.domain], self.schema.dims))
        tree = self._parsed(
            lambda body: RTree.unpack(body, self.schema.dims, self.fragment.version), Section.RTREE
        )
        assert tree is not None
        if len(tree.leaves) != self.n_tiles and not self.fragment.footer.dense:
            raise CorruptionError(
                f"the R-tree has {len(tree.leaves)} boxes for {self.n_tiles} tiles",
                key=f"{self.store.uri}/{self.key}",
            )
        return tree

    def u64s(self, section: Section, slot: int) -> NDArray[np.uint64]:
        """Offsets, sizes or null counts per tile; empty where the fragment has none."""
        known = self._lists.get((section, slot))
        if known is None:
            if section in _OFFSETS and self.n_tiles == 1:
                known = _FIRST  # the one tile begins where its file begins
            elif self.fragment.version < versions.FOOTER:
                known = self._first.lists[section, slot]
            else:
                found = self._parsed(unpack_u64s, section, slot)
                known = np.empty(0, np.uint64) if found is None else found
            self._lists[section, slot] = known
        return known

    def per_tile(self, section: Section, slot: int) -> NDArray[np.uint64]:
        """`u64s` of a section that must have an entry for every tile."""
        values = self.u64s(section, slot)
        if len(values) != self.n_tiles:
            raise CorruptionError(
                f"{section.name.lower()} has {len(values)} entries for {self.n_tiles} tiles",
                key=f"{self.store.uri}/{self.key}",
            )
        if section is Section.VAR_SIZES and len(values) and int(values.max()) > LARGEST:
            raise CorruptionError(
                f"a tile of {int(values.max())} bytes of values", key=f"{self.store.uri}/{self.key}"
            )
        return values

    def extremes(self, attr: int) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """Minimum and maximum per tile of an attribute, or None where the fragment has none."""
        field_ = self.schema.attrs[attr]
        if not has_extremes(field_.datatype, field_.cell_val_num):
            return None
        pair = []
        for section in (Section.MINS, Section.MAXES):
            known = self._lists.get((section, attr))
            if known is None:
                known = self._parsed(
                    lambda body: unpack_extremes(body, field_.datatype.dtype, field_.cell_val_num),
                    section,
                    attr,
                )
                if known is None:
                    return None
                self._lists[section, attr] = known
            if len(known) != self.n_tiles:
                return None
            pair.append(known)
        return pair[0], pair[1]

    @cached_property
    def statistics(self) -> tuple[FieldStatistics, ...] | None:
        n_slots = self.fragment.footer.slots.count
        return self._parsed(lambda body: unpack_statistics(body, n_slots), Section.FRAGMENT_STATISTICS)

    @cached_property
    def processed(self) -> tuple[str, ...]:
        """Markers of the conditions that the delete metadata accounts for."""
        if not self.fragment.footer.slots.has_delete_metadata:
            return ()  # Quirk: without delete metadata the list is there, but means nothing
        return self._parsed(unpack_conditions, Section.PROCESSED_CONDITIONS) or ()


def file_keys(fragment: Fragment, names: Sequence[str]) -> list[str]:
    return [f"{fragment.key}/{name}" for name in names]
