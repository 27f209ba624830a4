"""Which kind of file a path names: told by its last folders and its suffix, as `format.keys` spells them."""

from collections.abc import Sequence
from enum import StrEnum

from terrazzo.errors import FormatError
from terrazzo.format import keys
from terrazzo.format.commits import Commit
from terrazzo.format.keys import CommitKind, TimestampedName


class FileKind(StrEnum):
    SCHEMA = "schema"
    ENUMERATION = "enumeration"
    FRAGMENT_METADATA = "fragment metadata"
    DATA = "data"
    WRITE = "write commit"
    DELETE = "delete commit"
    UPDATE = "update commit"
    CONSOLIDATED = "consolidated commits"
    IGNORE = "ignored commits"
    VACUUM = "vacuum list"
    FOOTERS = "consolidated footers"
    METADATA = "metadata"
    GROUP = "group details"
    GROUP_MARKER = "group marker"
    LOCK = "lock"
    OTHER = "other"


_COMMITS = {
    CommitKind.WRITE: FileKind.WRITE,
    CommitKind.OK: FileKind.WRITE,
    CommitKind.DELETE: FileKind.DELETE,
    CommitKind.UPDATE: FileKind.UPDATE,
    CommitKind.CONSOLIDATED: FileKind.CONSOLIDATED,
    CommitKind.IGNORE: FileKind.IGNORE,
    CommitKind.VACUUM: FileKind.VACUUM,
}
_BY_FOLDER = {
    keys.SCHEMA_FOLDER: FileKind.SCHEMA,
    "__enumerations": FileKind.ENUMERATION,
    keys.METADATA_FOLDER: FileKind.METADATA,
    keys.GROUP_FOLDER: FileKind.GROUP,
}
_BY_NAME = {
    keys.SCHEMA_FILE: FileKind.SCHEMA,
    keys.GROUP_FILE: FileKind.GROUP_MARKER,
    keys.LOCK_FILE: FileKind.LOCK,
    keys.FRAGMENT_METADATA_FILE: FileKind.FRAGMENT_METADATA,
}


def kind_of(segments: Sequence[str]) -> FileKind:
    """The kind of the file whose path ends in these segments; OTHER where the name does not tell."""
    *folders, name = segments
    if name in _BY_NAME:
        return _BY_NAME[name]
    folder = folders[-1] if folders else ""
    stem, _, suffix = name.rpartition(".")
    if suffix == "vac" and parse_name(stem) is not None:
        return FileKind.VACUUM
    if suffix == "meta" and parse_name(stem) is not None:
        return FileKind.FOOTERS
    if folder in _BY_FOLDER and parse_name(name) is not None:
        return _BY_FOLDER[folder]
    if suffix == "tdb" and parse_name(folder) is not None:
        return FileKind.DATA
    try:
        commit = Commit.parse(name)
    except FormatError:
        return FileKind.OTHER
    return FileKind.OTHER if commit is None else _COMMITS[commit.kind]


def parse_name(name: str) -> TimestampedName | None:
    try:
        return TimestampedName.parse(name)
    except FormatError:
        return None
