"""Groups: named collections of arrays and groups, with metadata of their own."""

from collections.abc import Iterator
from typing import Any

from terrazzo.engine.clock import new_name, now_ms, reach
from terrazzo.engine.keys import as_cipher
from terrazzo.engine.metadata import Entries, Metadata, load_entries, put_entries
from terrazzo.engine.runner import parallel
from terrazzo.errors import ArrayExistsError, ArrayNotFoundError, FormatError, InvalidRequestError
from terrazzo.format import keys
from terrazzo.format.generic_tile import pack_generic_tile, unpack_generic_tile
from terrazzo.format.group import GroupDetails, GroupMember, ObjectKind, live_members
from terrazzo.format.keys import GROUP_VERSION, TimestampedName
from terrazzo.storage import open_store


class Group:
    """`tz.Group(uri)` opens a group; `Group.create(uri)` makes one. It maps member names to URIs."""

    def __init__(self, uri: str, *, key: Any = None, storage_options: dict[str, str] | None = None) -> None:
        self._store, self._options = open_store(str(uri), storage_options), storage_options
        self._cipher = as_cipher(key)
        if not is_group(self._store):
            raise ArrayNotFoundError(f"there is no group at {self._store.uri}")
        self._times: list[int] = []
        self.refresh()

    @classmethod
    def create(cls, uri: str, *, key: Any = None, storage_options: dict[str, str] | None = None) -> "Group":
        store = open_store(str(uri), storage_options)
        level = store.list_level("")
        if level.files or level.folders:
            raise ArrayExistsError(f"there is something at {store.uri} already")
        store.put(keys.GROUP_FILE, b"")
        return cls(uri, key=key, storage_options=storage_options)

    @property
    def uri(self) -> str:
        return self._store.uri

    def refresh(self) -> None:
        """Look again: members and metadata that others changed."""
        names = _names(self._store, keys.GROUP_FOLDER)
        metadata = tuple(n for n in _names(self._store, keys.METADATA_FOLDER))
        self._times = [name.end_ms for name in (*names, *metadata)]
        self._members = live_members(parallel(self._load, names))
        self._metadata_names = metadata
        self.meta = Metadata(
            lambda: load_entries(self._store, self._metadata_names, self._cipher), self._put_metadata
        )

    def _load(self, name: TimestampedName) -> GroupDetails:
        key = keys.group_key(name)
        try:
            return GroupDetails.unpack(unpack_generic_tile(self._store.get(key), self._cipher))
        except FormatError as problem:
            raise problem.at_key(f"{self._store.uri}/{key}") from None

    @property
    def members(self) -> dict[str, str]:
        """URIs by name, or by themselves where a member has no name."""
        return {key: self._resolved(member) for key, member in self._members.items()}

    def kind(self, name: str) -> str:
        """`"array"` or `"group"`."""
        return self._member(name).kind.name.lower()

    def __getitem__(self, name: str) -> str:
        return self._resolved(self._member(name))

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def add(self, uri: str, name: str | None = None, *, relative: bool | None = None) -> None:
        """Add an array or a group; `relative` is meant for members below the group, and is the default there."""
        uri = str(uri)
        below = uri.removeprefix(f"{self.uri}/") if uri.startswith(f"{self.uri}/") else uri
        local = below != uri or not ("://" in uri or uri.startswith("/"))
        relative = local if relative is None else relative
        member_uri = below if relative else open_store(uri, self._options).uri
        kind = object_kind(f"{self.uri}/{below}" if relative else uri, self._options)
        if kind is None:
            raise ArrayNotFoundError(f"there is neither an array nor a group at {uri}")
        member = GroupMember(member_uri, kind, relative, name)
        if member.key in self._members:
            raise InvalidRequestError(f"the group has a member {member.key!r} already")
        self._put([*self._members.values(), member])

    def remove(self, name: str) -> None:
        """Take a member out of the group; the array or group itself stays as it is."""
        gone = self._member(name)
        others = [member for member in self._members.values() if member is not gone]
        tombstone = GroupMember(gone.uri, gone.kind, gone.relative, gone.name, deleted=True)
        self._put([*others, tombstone])

    def _member(self, name: str) -> GroupMember:
        if name not in self._members:
            known = ", ".join(map(repr, self._members)) or "none"
            raise InvalidRequestError(f"no member {name!r}; the group has {known}")
        return self._members[name]

    def _resolved(self, member: GroupMember) -> str:
        return f"{self.uri}/{member.uri}" if member.relative else member.uri

    def _next_ms(self) -> int:
        time_ms = max(now_ms(), max(self._times, default=0) + 1)
        self._times.append(time_ms)
        return time_ms

    def _put(self, members: list[GroupMember]) -> None:
        name = new_name(self._next_ms(), version=GROUP_VERSION)
        body = GroupDetails(tuple(members)).pack()
        reach(name.end_ms)
        self._store.put(keys.group_key(name), pack_generic_tile(body, self._cipher))
        self._members = {member.key: member for member in members if not member.deleted}

    def _put_metadata(self, entries: Entries) -> None:
        name = put_entries(self._store, entries, self._next_ms(), self._cipher)
        self._metadata_names = (*self._metadata_names, name)

    def __repr__(self) -> str:
        return f"Group({self.uri!r}, {len(self)} members)"


def _names(store: Any, folder: str) -> list[TimestampedName]:
    found = (TimestampedName.parse(entry.key.rpartition("/")[2]) for entry in store.list(folder))
    return sorted((name for name in found if name is not None), key=lambda name: name.order)


def is_group(store: Any) -> bool:
    level = store.list_level("")
    return any(entry.key == keys.GROUP_FILE for entry in level.files) or keys.GROUP_FOLDER in level.folders


def object_kind(uri: str, storage_options: dict[str, str] | None = None) -> ObjectKind | None:
    """What lies at a URI, if anything of ours does."""
    store = open_store(uri, storage_options)
    level = store.list_level("")
    files = {entry.key for entry in level.files}
    if keys.SCHEMA_FOLDER in level.folders or keys.SCHEMA_FILE in files:
        return ObjectKind.ARRAY
    if keys.GROUP_FOLDER in level.folders or keys.GROUP_FILE in files:
        return ObjectKind.GROUP
    return None
