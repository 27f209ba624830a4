"""The names in an array's folders: one listing for each, and all that can be told from names alone."""

from dataclasses import dataclass

from terrazzo.engine.runner import parallel
from terrazzo.errors import CorruptionError
from terrazzo.format import keys
from terrazzo.format.keys import TimestampedName
from terrazzo.storage.base import Entry, Store
from terrazzo.storage.local import LocalStore


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


def newest_of(listed: Listed) -> int:
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
