"""Group details: the members of a group. Spec: format_spec/group.md.

    u32 version · u64 members · per member:
        u32 version · u8 object kind · u8 relative · str64 uri · u8 has name · [str64 name] · [u8 deleted]

Version 2 ends each member with `deleted`, and a reader combines all files in order of time; of version 1 only
the newest file counts.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Self

from terrazzo.errors import CorruptionError, UnsupportedFeatureError
from terrazzo.format.wire import Bytes, Cursor, Writer

NEWEST = 2
_TOMBSTONES = 2  # version that brought `deleted`
_SMALLEST_MEMBER = 15


class ObjectKind(IntEnum):
    INVALID = 0
    GROUP = 1
    ARRAY = 2


@dataclass(frozen=True, slots=True)
class GroupMember:
    uri: str  # without a leading slash where it is relative to the group
    kind: ObjectKind
    relative: bool = True
    name: str | None = None
    deleted: bool = False

    @property
    def key(self) -> str:
        """What identifies the member in its group."""
        return self.uri if self.name is None else self.name

    def pack(self, writer: Writer, version: int = NEWEST) -> None:
        writer.u32(version)
        writer.u8(self.kind)
        writer.u8(self.relative)
        writer.str64(self.uri)
        writer.u8(self.name is not None)
        if self.name is not None:
            writer.str64(self.name)
        if version >= _TOMBSTONES:
            writer.u8(self.deleted)

    @classmethod
    def unpack(cls, cursor: Cursor) -> Self:
        version = _checked_version(cursor, "group member")
        start = cursor.offset
        code = cursor.u8()
        if code > ObjectKind.ARRAY:
            raise CorruptionError(f"there is no object of kind {code}", offset=start)
        relative = cursor.flag("relative")
        uri = cursor.str64()
        name = cursor.str64() if cursor.flag("has name") else None
        deleted = version >= _TOMBSTONES and cursor.flag("deleted")
        return cls(uri, ObjectKind(code), relative, name, deleted)


@dataclass(frozen=True, slots=True)
class GroupDetails:
    """One file: the members that live, and tombstones of those removed."""

    members: tuple[GroupMember, ...] = ()
    version: int = NEWEST

    def pack(self) -> bytes:
        writer = Writer()
        writer.u32(self.version)
        writer.u64(len(self.members))
        for member in self.members:
            member.pack(writer, self.version)
        return bytes(writer)

    @classmethod
    def unpack(cls, body: Bytes) -> Self:
        cursor = Cursor(body)
        version = _checked_version(cursor, "group")
        n_members = cursor.count64(_SMALLEST_MEMBER, "members")
        members = tuple(GroupMember.unpack(cursor) for _ in range(n_members))
        cursor.expect_end()
        return cls(members, version)


def live_members(files: Iterable[GroupDetails]) -> dict[str, GroupMember]:
    """The members by key, from the files of a group in order of time."""
    members: dict[str, GroupMember] = {}
    for details in files:
        if details.version < _TOMBSTONES:
            members.clear()
        for member in details.members:
            members.pop(member.key, None)
            if not member.deleted:
                members[member.key] = member
    return members


def _checked_version(cursor: Cursor, what: str) -> int:
    start = cursor.offset
    version = cursor.u32()
    if version == 0:
        raise CorruptionError(f"{what} has version 0", offset=start)
    if version > NEWEST:
        raise UnsupportedFeatureError(
            f"{what} has version {version}; this release reads up to {NEWEST}", offset=start
        )
    return version
