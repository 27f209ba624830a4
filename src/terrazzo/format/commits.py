"""Commits: objects whose name makes a change visible. Spec: format_spec/timestamped_name.md,
delete_commit_file.md, update_commit_file.md.

    .wrt, .ok   empty: the fragment of that name exists
    .del        condition
    .upd        condition · u64 assignments · per assignment (str64 attribute, u64 size, value)

Both bodies are stored in a generic tile. An assigned value is the bytes of one cell, none at all for null.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Self

from terrazzo.errors import InvalidRequestError
from terrazzo.format.condition import Condition, flatten, negate, pack_condition, unpack_condition
from terrazzo.format.keys import COMMIT_FOLDER, CommitKind, TimestampedName, commit_key, fragment_key
from terrazzo.format.wire import Bytes, Cursor, Writer

_KINDS = {str(kind): kind for kind in CommitKind}


@dataclass(frozen=True, slots=True)
class Commit:
    """What an object in the commits folder is, told by its name alone."""

    name: TimestampedName
    kind: CommitKind

    @property
    def key(self) -> str:
        return commit_key(self.name, self.kind)

    @property
    def fragment_key(self) -> str:
        return fragment_key(self.name)

    @property
    def order(self) -> tuple[int, str]:
        return self.name.order

    @classmethod
    def parse(cls, key: str) -> Self | None:
        """The commit that `key` names, or None: readers step over names they do not know.

        The key is relative to the array: `__commits/…`, or at the root before format 12.
        """
        folder, _, file = key.rpartition("/")
        stem, dot, suffix = file.rpartition(".")
        kind = _KINDS.get(suffix)
        if not dot or kind is None or folder not in {"", COMMIT_FOLDER}:
            return None
        name = TimestampedName.parse(stem)
        return None if name is None else cls(name, kind)


@dataclass(frozen=True, slots=True)
class DeleteCommit:
    """A condition that removes cells, with the tree as stored: *true for the cells that stay*."""

    condition: Condition

    @classmethod
    def of(cls, matches: Condition) -> Self:
        """The commit that removes what `matches` is true of."""
        return cls(negate(flatten(matches)))

    @property
    def matches(self) -> Condition:
        """The condition as it was asked for: true for the cells that go."""
        return negate(self.condition)

    def pack(self) -> bytes:
        writer = Writer()
        pack_condition(self.condition, writer)
        return bytes(writer)

    @classmethod
    def unpack(cls, body: Bytes) -> Self:
        # Quirk: libtiledb does not mind bytes behind the tree, so neither do we.
        return cls(unpack_condition(Cursor(body)))


@dataclass(frozen=True, slots=True)
class Assignment:
    attr: str
    value: bytes  # of one cell; empty for null, which is also what an empty text looks like


@dataclass(frozen=True, slots=True)
class UpdateCommit:
    """A condition and new values, with the tree as stored: *true for the cells that stay as they are*."""

    condition: Condition
    assignments: tuple[Assignment, ...]

    def __post_init__(self) -> None:
        names = [assignment.attr for assignment in self.assignments]
        if len(set(names)) != len(names):
            twice = {name for name, count in Counter(names).items() if count > 1}
            raise InvalidRequestError(f"{', '.join(sorted(twice))}: assigned twice in one update")

    @classmethod
    def of(cls, matches: Condition, assignments: tuple[Assignment, ...]) -> Self:
        """The commit that changes what `matches` is true of."""
        return cls(negate(flatten(matches)), assignments)

    @property
    def matches(self) -> Condition:
        """The condition as it was asked for: true for the cells that change."""
        return negate(self.condition)

    def pack(self) -> bytes:
        writer = Writer()
        pack_condition(self.condition, writer)
        writer.u64(len(self.assignments))
        for assignment in self.assignments:
            writer.str64(assignment.attr)
            writer.bytes64(assignment.value)
        return bytes(writer)

    @classmethod
    def unpack(cls, body: Bytes) -> Self:
        cursor = Cursor(body)
        condition = unpack_condition(cursor)
        n_assignments = cursor.count64(16, "assignments")
        # A name that comes twice keeps its last value: libtiledb refuses to write such a file.
        values = {cursor.str64(): cursor.bytes64() for _ in range(n_assignments)}
        return cls(condition, tuple(Assignment(attr, value) for attr, value in values.items()))
