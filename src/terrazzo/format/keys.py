"""Every object key, spelled in one place. Spec: format_spec/timestamped_name.md, array_file_hierarchy.md.

    __<t1>_<t2>_<uuid>_<version>   fragments and commits since 5, group details
    __<t1>_<t2>_<uuid>             fragments of 3 and 4; schemas and metadata of any version
    __<uuid>_<t1>[_<t2>]           fragments of 1 and 2
    __<uuid>_0                     enumerations, which carry no time

Times are decimal milliseconds, not padded. Keys are relative to the array or group.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from terrazzo.errors import CorruptionError
from terrazzo.format.versions import (
    COMMITS_FOLDER,
    ENCODED_FILE_NAMES,
    NUMBERED_FILES,
    SPLIT_DIMENSIONS,
)

SCHEMA_FOLDER = "__schema"
ENUMERATION_FOLDER = "__schema/__enumerations"
FRAGMENT_FOLDER = "__fragments"
COMMIT_FOLDER = "__commits"
FOOTER_FOLDER = "__fragment_meta"
METADATA_FOLDER = "__meta"
LABEL_FOLDER = "__labels"
GROUP_FOLDER = "__group"

SCHEMA_FILE = "__array_schema.tdb"  # the one schema of arrays before format 10
GROUP_FILE = "__tiledb_group.tdb"  # empty; marks a group
LOCK_FILE = "__lock.tdb"  # left behind by old writers, means nothing
FRAGMENT_METADATA_FILE = "__fragment_metadata.tdb"
COORDS_FILE = "__coords.tdb"  # all dimensions together, before format 5
TIMESTAMPS_FILE = "t.tdb"
DELETE_TIMESTAMPS_FILE = "dt.tdb"
DELETE_CONDITIONS_FILE = "dci.tdb"

MERGE_SUFFIX = "merge"  # unknown to libtiledb, which steps over it
STREAM_SUFFIX = "stream"  # likewise: the last batch that a streaming query committed

GROUP_VERSION = 2
ENUMERATION_VERSION = 0

_LARGEST_TIME = (1 << 64) - 1
_WITH_VERSION = re.compile(r"__([0-9]{1,20})_([0-9]{1,20})_([0-9A-Za-z-]+)_([0-9]{1,9})", re.ASCII)
_WITHOUT_VERSION = re.compile(r"__([0-9]{1,20})_([0-9]{1,20})_([0-9A-Za-z]{32})", re.ASCII)
_UUID_FIRST = re.compile(r"__([0-9A-Za-z-]+)_([0-9]{1,20})(?:_([0-9]{1,20}))?", re.ASCII)


class CommitKind(StrEnum):
    """The suffix of an object in the commits folder."""

    WRITE = "wrt"
    DELETE = "del"
    UPDATE = "upd"
    CONSOLIDATED = "con"
    IGNORE = "ign"
    VACUUM = "vac"
    OK = "ok"  # what .wrt was called before format 12, beside the fragment


@dataclass(frozen=True, slots=True)
class TimestampedName:
    """The name of what was written between two instants, both included."""

    start_ms: int
    end_ms: int
    uuid: str
    version: int | None = None  # None where the name does not tell: schemas, metadata, fragments before 5
    uuid_first: str | None = None  # the name itself, in the spelling of formats 1 and 2

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """The name in `name` (no folder, no suffix), or None: readers step over names they do not know."""
        if match := _WITH_VERSION.fullmatch(name):
            start, end, uuid, version = match.groups()
            return cls(*_times(start, end, name), uuid, int(version))
        if match := _WITHOUT_VERSION.fullmatch(name):
            start, end, uuid = match.groups()
            return cls(*_times(start, end, name), uuid)
        if match := _UUID_FIRST.fullmatch(name):
            uuid, start, last = match.groups()
            return cls(*_times(start, last or start, name), uuid, uuid_first=name)
        return None

    def __str__(self) -> str:
        if self.uuid_first is not None:
            return self.uuid_first
        suffix = "" if self.version is None else f"_{self.version}"
        return f"__{self.start_ms}_{self.end_ms}_{self.uuid}{suffix}"

    @property
    def order(self) -> tuple[int, str]:
        # Quirk: on an equal start the name decides, as *text*.
        return self.start_ms, str(self)

    @property
    def in_folders(self) -> bool:
        """Whether fragment and commit live in their folders, or at the root as before format 12."""
        return self.version is not None and self.version >= COMMITS_FOLDER


def _times(start: str, end: str, name: str) -> tuple[int, int]:
    start_ms, end_ms = int(start), int(end)
    if start_ms > end_ms or end_ms > _LARGEST_TIME:
        raise CorruptionError(f"{name} begins after it ends")
    return start_ms, end_ms


def unique_hex(counter: int, random: bytes) -> str:
    """32 digits: a 31-bit counter, so that names of one millisecond sort as written, then 12 random bytes."""
    if not 0 <= counter < 1 << 31 or len(random) != 12:
        raise ValueError("a counter below 2**31 and 12 random bytes are needed")
    return f"{counter:08x}{random.hex()}"


def fragment_key(name: TimestampedName) -> str:
    return f"{FRAGMENT_FOLDER}/{name}" if name.in_folders else str(name)


def commit_key(name: TimestampedName, kind: CommitKind) -> str:
    """A write before format 12 is an `.ok` at the root, where its `.vac` is too."""
    if name.in_folders:
        return f"{COMMIT_FOLDER}/{name}.{kind}"
    return f"{name}.{CommitKind.OK if kind is CommitKind.WRITE else kind}"


def merge_key(name: TimestampedName) -> str:
    """Where a consolidation says what it replaces, until its `.vac` does."""
    return f"{COMMIT_FOLDER}/{name}.{MERGE_SUFFIX}"


def stream_key(uuid: str, version: int) -> str:
    """`uuid` stands for a streaming query."""
    return f"{COMMIT_FOLDER}/{TimestampedName(0, 0, uuid, version)}.{STREAM_SUFFIX}"


def schema_key(name: str | TimestampedName) -> str:
    """`name` as fragments spell it: before format 10 there is one schema, at the root."""
    return SCHEMA_FILE if name == SCHEMA_FILE else f"{SCHEMA_FOLDER}/{name}"


def enumeration_name(uuid: str) -> str:
    return f"__{uuid}_{ENUMERATION_VERSION}"


def enumeration_key(name: str) -> str:
    return f"{ENUMERATION_FOLDER}/{name}"


def metadata_key(name: TimestampedName) -> str:
    return f"{METADATA_FOLDER}/{name}"


def footers_key(name: TimestampedName) -> str:
    return f"{FOOTER_FOLDER}/{name}.meta" if name.in_folders else f"{name}.meta"


def group_key(name: TimestampedName) -> str:
    return f"{GROUP_FOLDER}/{name}"


@dataclass(frozen=True, slots=True)
class DataFiles:
    """The files of a field in a fragment; which of them exist depends on the field."""

    fixed: str  # the cells, or their offsets where they vary in length
    var: str
    validity: str

    @classmethod
    def of(cls, stem: str) -> Self:
        return cls(f"{stem}.tdb", f"{stem}_var.tdb", f"{stem}_validity.tdb")


def attribute_files(index: int, name: str, version: int) -> DataFiles:
    """`index` counts the attributes of the fragment's own schema."""
    return DataFiles.of(f"a{index}" if version >= NUMBERED_FILES else _encoded(name, version))


def dimension_files(index: int, name: str, version: int) -> DataFiles:
    """`index` counts the dimensions of the fragment's own schema."""
    if version < SPLIT_DIMENSIONS:
        return DataFiles.of("__coords")
    return DataFiles.of(f"d{index}" if version >= NUMBERED_FILES else _encoded(name, version))


# Quirk: format 8 encodes the first group as a URL would, and the second with the wrong numbers.
_PERCENT = str.maketrans(
    {c: f"%{ord(c):02X}" for c in "!#$%&'()*+,/:;=?@[]"}
    | {'"': "%22", "<": "%20", ">": "%2D", "\\": "%30", "|": "%3C"}
)


def _encoded(name: str, version: int) -> str:
    return name.translate(_PERCENT) if version >= ENCODED_FILE_NAMES else name
