"""A store of bytes in memory that nobody writes to, so that a test can put damaged ones in their place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from terrazzo.errors import MissingObjectError, StorageError
from terrazzo.storage.base import Buffers, Bytes, Entries, Entry, Listing, checked_key
from terrazzo.storage.ranges import coalesce, cut


@dataclass(frozen=True, slots=True)
class FrozenStore:
    files: Mapping[str, bytes] = field(repr=False)
    uri: str = "memory://frozen"

    @classmethod
    def of_folder(cls, root: Path) -> "FrozenStore":
        found = (path for path in sorted(root.rglob("*")) if path.is_file())
        return cls({path.relative_to(root).as_posix(): path.read_bytes() for path in found})

    def damaged(self, key: str, stored: bytes) -> "FrozenStore":
        return FrozenStore({**self.files, key: stored}, self.uri)

    def get(self, key: str) -> bytes:
        stored = self.files.get(checked_key(key))
        if stored is None:
            raise MissingObjectError("no such object", key=f"{self.uri}/{key}")
        return stored

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> Buffers:
        stored = self.get(key)
        spans = coalesce(ranges, gap=0, largest=1 << 20)
        if max((span.stop for span in spans), default=0) > len(stored):
            raise StorageError(f"the object has {len(stored)} bytes only", key=f"{self.uri}/{key}")
        return cut(ranges, spans, [stored[span.start : span.stop] for span in spans])

    def get_tail(self, key: str, size: int) -> tuple[Bytes, int]:
        stored = self.get(key)
        return stored[max(0, len(stored) - size) :], len(stored)

    def size(self, key: str) -> int:
        return len(self.get(key))

    def list(self, prefix: str = "") -> Entries:
        return self.list_level(prefix).files

    def list_level(self, prefix: str = "") -> Listing:
        base = f"{prefix}/" if prefix else ""
        below = sorted(key for key in self.files if key.startswith(base))
        files = [Entry(key, len(self.files[key]), 0) for key in below if "/" not in key[len(base) :]]
        folders = {base + key[len(base) :].partition("/")[0] for key in below if "/" in key[len(base) :]}
        return Listing(files, sorted(folders))
