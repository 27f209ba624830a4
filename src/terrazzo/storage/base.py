"""What a store is: whole objects by key, below one root URI.

A key is a path relative to the root: segments joined by `/`, none of them empty, `.` or `..`. A folder is
nothing but a common beginning of keys; one that holds no object may or may not be listed, and a missing
one lists as empty. Objects appear whole or not at all, which is all that a commit protocol needs.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from terrazzo.errors import InvalidRequestError

Bytes = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Entry:
    """An object as a listing shows it."""

    key: str
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Listing:
    """One level below a folder. Files and folders are in order of their keys, which are relative to the
    store's root; those of folders end without a slash."""

    files: list[Entry]
    folders: list[str]


# Inside a class that has a method `list`, the builtin cannot be spelled.
Entries = list[Entry]
Buffers = list[Bytes]


class Writer(Protocol):
    """An object while it is being streamed."""

    def write(self, data: Bytes) -> None: ...

    def write_all(self, data: Sequence[Bytes]) -> None:
        """One piece after the other; none of them is needed any longer when this returns."""
        ...


@runtime_checkable
class Store(Protocol):
    """Synchronous, usable from many threads, picklable, and equal to any other store of the same URI.

    An object that is not there is a MissingObjectError; whatever else goes wrong is a StorageError. Both
    name the object by its full URI and give a reason on one line, free of credentials.
    """

    @property
    def uri(self) -> str:
        """The root, for messages and for opening the store again; without credentials."""
        ...

    def beside(self, suffix: str) -> "Store":
        """The store whose root is this one's with `suffix` behind its name: a place of the same kind, with the
        same credentials, that is no part of this one."""
        ...

    def get(self, key: str) -> bytes: ...

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> Buffers:
        """The bytes of every (start, length), in the order asked for. Neighbours are fetched together and
        share memory. An object too short for a range is a StorageError."""
        ...

    def get_tail(self, key: str, size: int) -> tuple[Bytes, int]:
        """The last `size` bytes, or all where there are fewer; and how large the object is. One request."""
        ...

    def size(self, key: str) -> int: ...

    def put(self, key: str, data: Bytes | Sequence[Bytes], *, if_absent: bool = False) -> None:
        """Store the pieces as one object, durably, whole or not at all. With `if_absent`, an object that
        is there already stays as it is, and that is a ConflictError: of many racers exactly one wins."""
        ...

    def open_writer(self, key: str) -> AbstractContextManager[Writer]:
        """Stream an object larger than memory: it appears whole when the block ends, and not at all when
        the block raises."""
        ...

    def list(self, prefix: str = "") -> Entries:
        """The objects directly in a folder, in order of their keys."""
        ...

    def list_level(self, prefix: str = "") -> Listing:
        """The objects and the folders directly in a folder."""
        ...

    def list_recursive(self, prefix: str = "") -> Entries:
        """All objects below a folder, in order of their keys."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects in the order given; those that are not there are passed over."""
        ...

    def delete_folder(self, prefix: str) -> None:
        """Remove everything below a folder, and the folder. Not atomic."""
        ...

    def reclaim_staging(self, older_than_ms: int) -> int:
        """Remove what writers that died left in staging more than `older_than_ms` ago; how many files."""
        ...


def checked_key(key: str) -> str:
    """`key`, if it names an object below the root: it may neither be empty nor climb out."""
    for segment in key.split("/"):
        if segment in {"", ".", ".."}:
            raise InvalidRequestError(f"not a key: {key!r} has an empty, '.' or '..' segment")
    if "\0" in key:
        raise InvalidRequestError(f"not a key: {key!r} contains a null character")
    return key


def checked_prefix(prefix: str) -> str:
    """A folder without its last slash; the root is empty."""
    folder = prefix.removesuffix("/")
    return checked_key(folder) if folder else ""


def pieces(data: Bytes | Sequence[Bytes]) -> Sequence[Bytes]:
    """What is to be stored, as a sequence in any case. Empty pieces are fine."""
    return (data,) if isinstance(data, bytes | bytearray | memoryview) else data
