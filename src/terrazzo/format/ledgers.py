"""Ledgers: files that speak for many others. Spec: format_spec/consolidated_commits_file.md,
ignore_file.md, vacuum_file.md, consolidated_fragment_metadata.md.

    .con    write   __commits/<name>.wrt \\n, or <name>.ok \\n before format 12
            delete  __commits/<name>.del \\n · u64 size · the whole .del file
            update  __commits/<name>.upd \\n · u64 size · the whole .upd file · \\n
    .ign    lines: the commits of any .con that no longer count, spelled as there
    .vac    lines: /__fragments/<name> or /__meta/<name>, what was superseded
    .meta   body of a generic tile: u32 count · per fragment (str64 name, u64 offset) · footers, end to end

# Quirk: libtiledb reads a .con by lines and knows no update records: it takes their payload for more lines.
# Updates stand last, and one newline behind each payload (counted in its size) keeps the next name whole.
# Names have no leading slash in .con and .ign and one in .vac.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar, Self, TypeVar

from terrazzo.errors import CorruptionError
from terrazzo.format.commits import Commit
from terrazzo.format.keys import (
    FRAGMENT_FOLDER,
    METADATA_FOLDER,
    CommitKind,
    TimestampedName,
    commit_key,
)
from terrazzo.format.wire import U64, Bytes, Cursor, Writer

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """The fragment of that name exists."""

    name: TimestampedName
    kind: ClassVar = CommitKind.WRITE

    @property
    def key(self) -> str:
        return commit_key(self.name, self.kind)


@dataclass(frozen=True, slots=True)
class DeleteRecord:
    name: TimestampedName
    payload: bytes = field(repr=False)  # the `.del` object as stored, generic tile and all
    kind: ClassVar = CommitKind.DELETE

    @property
    def key(self) -> str:
        return commit_key(self.name, self.kind)


@dataclass(frozen=True, slots=True)
class UpdateRecord:
    name: TimestampedName
    payload: bytes = field(repr=False)  # the `.upd` object as stored, without the newline that guards it
    kind: ClassVar = CommitKind.UPDATE

    @property
    def key(self) -> str:
        return commit_key(self.name, self.kind)


Record = WriteRecord | DeleteRecord | UpdateRecord


def pack_con(records: Iterable[Record]) -> bytes:
    """The records as given, except that updates come last."""
    writer = Writer()
    for record in sorted(records, key=lambda record: isinstance(record, UpdateRecord)):
        writer.raw(f"{record.key}\n".encode())
        if isinstance(record, DeleteRecord):
            writer.bytes64(record.payload)
        elif isinstance(record, UpdateRecord):
            writer.bytes64(record.payload + b"\n")
    return bytes(writer)


def unpack_con(stored: Bytes) -> tuple[Record, ...]:
    records, problem = salvage_con(stored)
    if problem is not None:
        raise problem
    return records


def salvage_con(stored: Bytes) -> tuple[tuple[Record, ...], CorruptionError | None]:
    """The records up to the first damage, and what that is: behind it nothing can be told apart."""
    content, position = bytes(stored), 0
    records: list[Record] = []
    while position < len(content):
        try:
            record, position = _record(content, position)
        except CorruptionError as problem:
            return tuple(records), problem
        records.append(record)
    return tuple(records), None


def _record(content: bytes, start: int) -> tuple[Record, int]:
    line, position = _line(content, start)
    commit = _commit(line, start)
    match commit.kind:
        case CommitKind.WRITE | CommitKind.OK:
            return WriteRecord(commit.name), position
        case CommitKind.DELETE:
            payload, position = _payload(content, position, commit)
            return DeleteRecord(commit.name, payload), position
        case CommitKind.UPDATE:
            payload, position = _payload(content, position, commit)
            return UpdateRecord(commit.name, _unguarded(payload)), position
        case _:
            raise CorruptionError(f"a .{commit.kind} has no place among consolidated commits", offset=start)


def _line(content: bytes, start: int) -> tuple[str, int]:
    """The text up to a newline, or up to the end: the last one may be missing."""
    end = content.find(b"\n", start)
    stop, following = (len(content), len(content)) if end < 0 else (end, end + 1)
    try:
        return content[start:stop].decode(), following
    except UnicodeDecodeError:
        raise CorruptionError("a line is not text", offset=start) from None


def _parsed(name: str, parse: Callable[[str], _T], start: int) -> _T:
    try:
        return parse(name)
    except CorruptionError as problem:  # a name that contradicts itself
        problem.offset = start
        raise


def _commit(line: str, start: int) -> Commit:
    """The commit that a line names, whether by relative key, with a leading slash, or by a whole URI."""
    file = line.rpartition("/")[2]
    commit = _parsed(file, Commit.parse, start)
    if commit is None:
        raise CorruptionError(f"{line[:80]!r} names no commit", offset=start)
    return commit


def _payload(content: bytes, start: int, commit: Commit) -> tuple[bytes, int]:
    if len(content) - start < U64.size:
        raise CorruptionError(f"cut off before the size of {commit.key}", offset=start)
    (size,) = U64.unpack_from(content, start)
    begin = start + U64.size
    if size > len(content) - begin:
        raise CorruptionError(
            f"{commit.key} claims {size} bytes of which {len(content) - begin} are left", offset=start
        )
    return content[begin : begin + size], begin + size


_TILE_HEADER = struct.Struct("<4xQ18xI")  # of a generic tile: its persisted size and its pipeline's


def _unguarded(payload: bytes) -> bytes:
    """The payload without the newline behind it, which other writers may leave out: a generic tile
    tells its own size, so a tile that happens to end in a newline keeps it."""
    if not payload.endswith(b"\n"):
        return payload
    if len(payload) >= _TILE_HEADER.size:
        persisted, pipeline = _TILE_HEADER.unpack_from(payload)
        if _TILE_HEADER.size + pipeline + persisted == len(payload):
            return payload
    return payload[:-1]


def pack_ign(commits: Iterable[Commit]) -> bytes:
    return "".join(f"{commit.key}\n" for commit in commits).encode()


def unpack_ign(stored: Bytes) -> tuple[Commit, ...]:
    return tuple(_commit(line, start) for start, line in _lines(stored))


def pack_vac(keys: Iterable[str]) -> bytes:
    """`keys` are relative to the array: `__fragments/<name>`, `__meta/<name>`, or a legacy `<name>`."""
    return "".join(f"/{key}\n" for key in keys).encode()


def unpack_vac(stored: Bytes) -> tuple[str, ...]:
    """Keys relative to the array, wherever it stood when a line with a whole URI was written."""
    return tuple(_superseded(line, start) for start, line in _lines(stored, closed=True))


@dataclass(frozen=True, slots=True)
class Merge:
    """Ours alone: what a consolidation is about to commit, and what that replaces.

    It is put before the commit and removed behind the `.vac`, so that no reader of ours shows cells twice in
    between. libtiledb steps over its suffix. Lines: `+` and a new fragment, `-` and a superseded one, as keys.
    """

    created: tuple[str, ...]
    replaced: tuple[str, ...]

    def pack(self) -> bytes:
        lines = [f"+{key}\n" for key in self.created] + [f"-{key}\n" for key in self.replaced]
        return "".join(lines).encode()

    @classmethod
    def unpack(cls, stored: Bytes) -> Self:
        created: list[str] = []
        replaced: list[str] = []
        for start, line in _lines(stored, closed=True):
            if line[:1] not in {"+", "-"} or len(line) < 2:
                raise CorruptionError(
                    f"{line[:80]!r} tells neither what is new nor what is replaced", offset=start
                )
            (created if line[0] == "+" else replaced).append(line[1:])
        return cls(tuple(created), tuple(replaced))


def _superseded(line: str, start: int) -> str:
    path, slash, name = line.rpartition("/")
    # Whoever vacuums removes what stands here: half a line must not name a folder of many.
    if not slash or _parsed(name, TimestampedName.parse, start) is None:
        raise CorruptionError(f"{line[:80]!r} names no fragment and no metadata", offset=start)
    folder = path.rpartition("/")[2]
    return f"{folder}/{name}" if folder in {FRAGMENT_FOLDER, METADATA_FOLDER} else name


def _lines(stored: Bytes, *, closed: bool = False) -> Iterator[tuple[int, str]]:
    """Lines and where they start. `closed` ones must end: half a name of a fragment can be the name of another."""
    content, position = bytes(stored), 0
    if closed and content and not content.endswith(b"\n"):
        start = content.rfind(b"\n") + 1
        raise CorruptionError(f"the line {content[start:][:80]!r} is cut off", offset=start)
    while position < len(content):
        start = position
        line, position = _line(content, start)
        yield start, line


@dataclass(frozen=True, slots=True)
class ConsolidatedFooters:
    """Footers by fragment name, each without the length that ends it in its own file."""

    footers: dict[str, bytes] = field(hash=False)

    def pack(self) -> bytes:
        names = [name.encode() for name in self.footers]
        position = 4 + sum(16 + len(name) for name in names)
        writer = Writer()
        writer.u32(len(names))
        for name, footer in zip(names, self.footers.values(), strict=True):
            writer.bytes64(name)
            writer.u64(position)
            position += len(footer)
        for footer in self.footers.values():
            writer.raw(footer)
        return bytes(writer)

    @classmethod
    def unpack(cls, body: Bytes) -> Self:
        cursor = Cursor(body)
        n_fragments = cursor.count32(16, "footers")
        entries = [(cursor.str64(), cursor.u64()) for _ in range(n_fragments)]
        content, first = memoryview(body), cursor.position
        edges = [*sorted({offset for _, offset in entries}), len(content)]
        if edges[0] < first or edges[-1] < edges[max(len(edges) - 2, 0)]:
            raise CorruptionError(
                f"a footer at {edges[0]}; they lie between {first} and {len(content)}", offset=first
            )
        # Cut once each: that many names share a footer must not multiply it.
        footer_at = {start: bytes(content[start:end]) for start, end in pairwise(edges)}
        footers: dict[str, bytes] = {}
        for name, offset in entries:  # of a name that comes twice, the first footer counts
            footers.setdefault(name, footer_at.get(offset, b""))
        return cls(footers)
