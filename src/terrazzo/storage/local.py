"""A folder of the local file system (POSIX) as a store. How puts become durable: `staging`.

Reads use `pread`: as fast as obstore or faster, and unlike a memory map it turns a failing disk or a
truncated file into an error, not into a signal. All calls into the system release the GIL.
"""

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from terrazzo.errors import ConflictError, MissingObjectError, StorageError, TerrazzoError
from terrazzo.storage import staging
from terrazzo.storage.base import (
    Buffers,
    Bytes,
    Entries,
    Entry,
    Listing,
    checked_key,
    checked_prefix,
    pieces,
)
from terrazzo.storage.ranges import coalesce, cut

_GAP = 16 << 10  # reading this much in vain takes about as long as one more system call
_LARGEST_SPAN = 8 << 20
_LARGEST_READ = 1 << 30  # Linux moves at most 2 GiB - 4 KiB per call
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG}


class LocalStore:
    """Objects are files below `root`. Folders that are emptied stay until `delete_folder`."""

    __slots__ = ("_root", "_staging")

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.path.abspath(root)
        self._staging = staging.Staging(self._root)

    @property
    def uri(self) -> str:
        # Quirk: TileDB reads file:// URIs as they stand, without percent-decoding; so do we.
        # tests/interop/test_local_store.py
        return f"file://{self._root}"

    @property
    def is_file(self) -> bool:
        """Whether there is a file in the place of the root, so that no object can be below it."""
        return os.path.isfile(self._root)

    def __repr__(self) -> str:
        return f"LocalStore({self._root!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalStore) and other._root == self._root

    def __hash__(self) -> int:
        return hash(self._root)

    def __reduce__(self) -> tuple[type["LocalStore"], tuple[str]]:
        return LocalStore, (self._root,)

    def beside(self, suffix: str) -> "LocalStore":
        return LocalStore(f"{self._root}{suffix}")

    def get(self, key: str) -> bytes:
        with self._opened(key) as (fd, size):
            return bytes(_read(fd, 0, size))

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> Buffers:
        if len(ranges) == 1 and (alone := self._get_range(key, *ranges[0])) is not None:
            return [alone]
        with self._opened(key) as (fd, size):
            spans = coalesce(ranges, gap=_GAP, largest=_LARGEST_SPAN)
            needed = max((span.stop for span in spans), default=0)
            if needed > size:
                raise StorageError(f"{needed} bytes expected, the object has {size}", key=self._name(key))
            return cut(ranges, spans, [_read(fd, span.start, span.size) for span in spans])

    def _get_range(self, key: str, start: int, length: int) -> bytes | None:
        """One range with as few calls as can be; None where that is not enough, or where the file is too short."""
        if not (0 <= start < 1 << 62 and 0 <= length <= _LARGEST_READ):
            return None
        path = self._path(key)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                data = os.pread(fd, length, start)
            finally:
                os.close(fd)
        except OSError as error:
            raise self._unread(key, error) from None
        return data if len(data) == length else None

    def get_tail(self, key: str, size: int) -> tuple[Bytes, int]:
        with self._opened(key) as (fd, whole):
            start = max(0, whole - size)
            return _read(fd, start, whole - start), whole

    def size(self, key: str) -> int:
        with self._opened(key) as (_, size):
            return size

    @contextmanager
    def _opened(self, key: str) -> Iterator[tuple[int, int]]:
        path = self._path(key)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                status = os.fstat(fd)
                if stat.S_ISDIR(status.st_mode):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
                yield fd, status.st_size
            finally:
                os.close(fd)
        except StorageError:
            raise
        except OSError as error:
            raise self._unread(key, error) from None

    def list(self, prefix: str = "") -> Entries:
        return self.list_level(prefix).files

    def list_level(self, prefix: str = "") -> Listing:
        level = Listing([], [])
        self._scan(checked_prefix(prefix), level.files.append, level.folders.append)
        level.files.sort(key=_key_of)
        level.folders.sort()
        return level

    def list_recursive(self, prefix: str = "") -> Entries:
        pending = [checked_prefix(prefix)]
        files: Entries = []
        while pending:
            self._scan(pending.pop(), files.append, pending.append)
        files.sort(key=_key_of)
        return files

    def _scan(
        self, folder: str, on_file: Callable[[Entry], object], on_folder: Callable[[str], object]
    ) -> None:
        base = f"{folder}/" if folder else ""
        try:
            with os.scandir(f"{self._root}/{folder}") as found:
                for item in found:
                    if item.is_dir():
                        if item.name != staging.FOLDER:
                            on_folder(base + item.name)
                        continue
                    # Gone between listing and looking, or a link to nowhere: not there.
                    with suppress(FileNotFoundError):
                        status = item.stat()
                        on_file(Entry(base + item.name, status.st_size, status.st_mtime_ns // 1_000_000))
        except OSError as error:
            if error.errno not in _ABSENT:
                raise self._unread(folder, error) from None

    def put(self, key: str, data: Bytes | Sequence[Bytes], *, if_absent: bool = False) -> None:
        with self.open_writer(key, if_absent=if_absent) as staged:
            staged.write_all(pieces(data))

    def open_writer(self, key: str, *, if_absent: bool = False) -> staging.StagedFile:
        return staging.StagedFile(
            self._staging, self._path(key), if_absent=if_absent, translate=partial(self._unwritten, key)
        )

    def delete(self, keys: Iterable[str]) -> None:
        folders = dict[str, None]()
        for key in keys:
            path = self._path(key)
            try:
                os.unlink(path)
                folders[os.path.dirname(path)] = None
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise self._unwritten(key, error) from None
        for folder in folders:
            with suppress(FileNotFoundError):
                staging.flush_folder(folder)

    def delete_folder(self, prefix: str) -> None:
        folder = checked_prefix(prefix)
        path = f"{self._root}/{folder}" if folder else self._root
        self._staging.forget_folders()
        try:
            shutil.rmtree(path, onerror=_unless_gone)
            staging.flush_folder(os.path.dirname(path))
        except OSError as error:
            if error.errno not in _ABSENT:
                raise self._unwritten(folder, error) from None

    def reclaim_staging(self, older_than_ms: int) -> int:
        try:
            return self._staging.reclaim(older_than_ms)
        except OSError as error:
            raise self._unwritten(staging.FOLDER, error) from None

    def _path(self, key: str) -> str:
        return f"{self._root}/{checked_key(key)}"

    def _name(self, key: str) -> str:
        return f"{self.uri}/{key}"

    def _unread(self, key: str, error: OSError) -> TerrazzoError:
        if error.errno in _ABSENT:
            return MissingObjectError("no such object", key=self._name(key))
        return StorageError(_reason(error), key=self._name(key))

    def _unwritten(self, key: str, error: OSError) -> TerrazzoError:
        if isinstance(error, FileExistsError):
            return ConflictError("is there already", key=self._name(key))
        return StorageError(_reason(error), key=self._name(key))


def _read(fd: int, start: int, size: int) -> Bytes:
    if size <= _LARGEST_READ:
        data = os.pread(fd, size, start)
        if len(data) == size:
            return data
    buffer = memoryview(bytearray(size))
    done = 0
    while done < size:
        n_read = os.preadv(fd, [buffer[done : done + _LARGEST_READ]], start + done)
        if not n_read:
            raise OSError(errno.EIO, f"shrank to {start + done} bytes while it was read")
        done += n_read
    return buffer


def _reason(error: OSError) -> str:
    text = error.strerror or str(error) or type(error).__name__
    return text[0].lower() + text[1:]


def _unless_gone(_function: object, _path: str, failure: tuple[object, BaseException, object]) -> None:
    if not isinstance(failure[1], FileNotFoundError):
        raise failure[1]


def _key_of(entry: Entry) -> str:
    return entry.key
