"""Key-value metadata of an array or a group, as a dict. Every change is one file, and so one atomic commit."""

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from terrazzo.engine.clock import new_name, reach
from terrazzo.engine.runner import parallel
from terrazzo.errors import ConflictError, FormatError, MissingObjectError
from terrazzo.format import keys
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.generic_tile import pack_generic_tile, unpack_generic_tile
from terrazzo.format.keys import TimestampedName
from terrazzo.format.metadata import Metadata as MetadataFile
from terrazzo.format.metadata import MetadataValue, put, remove, values
from terrazzo.storage.base import Store

Entries = dict[str, MetadataValue | None]


def load_entries(store: Store, names: tuple[TimestampedName, ...], cipher: Aes256Gcm | None) -> Entries:
    """What the files say together: later ones win, key by key."""

    def load(name: TimestampedName) -> Entries:
        key = keys.metadata_key(name)
        try:
            return MetadataFile.unpack(unpack_generic_tile(store.get(key), cipher)).entries
        except MissingObjectError:
            raise ConflictError(f"{store.uri}/{key} was removed since; open again") from None
        except FormatError as problem:
            raise problem.at_key(f"{store.uri}/{key}") from None

    merged: Entries = {}
    for entries in parallel(load, names):
        merged.update(entries)
    return merged


def put_entries(store: Store, entries: Entries, time_ms: int, cipher: Aes256Gcm | None) -> TimestampedName:
    name = new_name(time_ms, version=None)
    reach(time_ms)
    store.put(keys.metadata_key(name), pack_generic_tile(MetadataFile(entries).pack(), cipher))
    return name


class Metadata(MutableMapping[str, Any]):
    """`a.meta["unit"] = "K"`. Values: text, bytes, numbers, tuples of numbers, numpy arrays."""

    def __init__(self, load: Callable[[], Entries], store: Callable[[Entries], None]) -> None:
        self._load, self._store = load, store
        self._known: dict[str, Any] | None = None

    def _values(self) -> dict[str, Any]:
        if self._known is None:
            self._known = values(self._load())
        return self._known

    def __getitem__(self, key: str) -> Any:
        return self._values()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(self._values())

    def __contains__(self, key: object) -> bool:
        return key in self._values()

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def update(self, other: Any = (), /, **more: Any) -> None:
        """Set several keys under one commit."""
        changes: Entries = {}
        for key, value in {**dict(other), **more}.items():
            changes.update(put(key, value))
        if changes:
            self._store(changes)
            self._known = None

    def __delitem__(self, key: str) -> None:
        if key not in self._values():
            raise KeyError(key)
        self._store(remove(key))
        self._known = None

    def clear(self) -> None:
        changes: Entries = {}
        for key in self._values():
            changes.update(remove(key))
        if changes:
            self._store(changes)
            self._known = None

    def __repr__(self) -> str:
        return f"Metadata({self._values()!r})"
