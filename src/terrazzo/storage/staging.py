"""How a local file comes to stand under its name: whole, on disk, and at once.

    1  the bytes go to a file in the staging folder, which is then flushed to disk
    2  the folders of the final name are made where missing, each flushed into its parent
    3  the file is renamed to its final name, or hard-linked where it must not replace anything:
       of two that link the same name, the file system lets one win
    4  the folder of the final name is flushed

Staging is the hidden folder `.terrazzo-staging` in the store's root: on the same file system, in no
listing of ours, and in a place where TileDB steps over names that it does not know (in most folders of an
array it does not). It is removed by the last writer that leaves it. What a process that died left there
is harmless; `reclaim` removes it.
"""

import errno
import os
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Self

from terrazzo.storage.base import Bytes

FOLDER = ".terrazzo-staging"

_MOST_PIECES = 1024  # IOV_MAX of Linux and macOS
_BEHIND = 16 << 20
# A folder that cannot be opened for reading, or a file system that does not flush folders.
_NOT_FLUSHABLE = {errno.EACCES, errno.EINVAL, errno.ENOTSUP}


class Staging:
    """The staging folder of one root."""

    __slots__ = ("_known_folders", "_path", "_root")

    def __init__(self, root: str) -> None:
        self._root = root
        self._path = os.path.join(root, FOLDER)
        self._known_folders: set[str] = set()  # those whose entry in their parent is on disk

    def create(self) -> tuple[int, str]:
        """A new empty file: its descriptor and its path."""
        staged = os.path.join(self._path, f"{os.getpid()}-{uuid.uuid4().hex}")
        while True:
            try:
                return os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), staged
            except FileNotFoundError:  # first here, or another writer just removed the empty folder
                self._ensure_root()
                with suppress(FileExistsError):
                    os.mkdir(self._path)

    def publish(self, staged: str, final: str, *, if_absent: bool) -> None:
        """Give a flushed file its final name; a name that is taken is a FileExistsError if it matters."""
        folder = os.path.dirname(final)
        place = os.link if if_absent else os.replace
        self._ensure_folder(folder)
        try:
            place(staged, final)
        except FileNotFoundError:  # the folder was removed after it became known
            self.forget_folders()
            self._ensure_folder(folder)
            place(staged, final)
        flush_folder(folder)

    def discard(self, staged: str) -> None:
        """Leave nothing behind, whether the file was published or not."""
        with suppress(OSError):
            os.unlink(staged)
        with suppress(OSError):  # others are staging, too
            os.rmdir(self._path)

    def reclaim(self, older_than_ms: int) -> int:
        newest_ns = time.time_ns() - older_than_ms * 1_000_000
        n_removed = 0
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(self._path) as found:
            for item in found:
                with suppress(FileNotFoundError):  # its writer was alive after all, and done
                    if item.stat().st_mtime_ns <= newest_ns:
                        os.unlink(item.path)
                        n_removed += 1
        with suppress(OSError):
            os.rmdir(self._path)
        return n_removed

    def forget_folders(self) -> None:
        self._known_folders.clear()

    def _ensure_root(self) -> None:
        if not os.path.isdir(self._root):
            self.forget_folders()
        self._ensure_folder(self._root)

    def _ensure_folder(self, path: str, *, again: bool = False) -> None:
        """Make a folder and those above it. Each is flushed into its parent even if it is there already:
        another process may have made it a moment ago and not have come to that yet."""
        if path in self._known_folders:
            return
        parent = os.path.dirname(path)
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
        except FileNotFoundError:
            if again and os.path.isdir(parent):  # as in /proc: what is missing is not the folder above
                raise
            self._known_folders.discard(parent)
            self._ensure_folder(parent)
            self._ensure_folder(path, again=True)
            return
        flush_folder(parent)
        self._known_folders.add(path)


class StagedFile:
    """A file that appears under its final name when the block ends, and not at all when it raises.

    Errors of the file system pass through `translate`; those of the block's own code do not.
    """

    __slots__ = ("_begun", "_fd", "_final", "_if_absent", "_size", "_staged", "_staging", "_translate")

    def __init__(
        self, staging: Staging, final: str, *, if_absent: bool, translate: Callable[[OSError], Exception]
    ) -> None:
        self._staging, self._final, self._if_absent, self._translate = staging, final, if_absent, translate
        self._size = self._begun = 0  # bytes that were written; of these, on their way to disk

    def __enter__(self) -> Self:
        try:
            if self._if_absent and os.path.lexists(self._final):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))  # before any bytes are spent
            self._fd, self._staged = self._staging.create()
        except OSError as error:
            raise self._translate(error) from None
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        try:
            try:
                if failure is None:
                    os.fsync(self._fd)
            finally:
                os.close(self._fd)
            if failure is None:
                self._staging.publish(self._staged, self._final, if_absent=self._if_absent)
        except OSError as error:
            raise self._translate(error) from None
        finally:
            self._staging.discard(self._staged)

    def write(self, data: Bytes) -> None:
        self.write_all((data,))

    def write_all(self, data: Sequence[Bytes]) -> None:
        try:
            for first in range(0, len(data), _MOST_PIECES):
                rest = [memoryview(piece) for piece in data[first : first + _MOST_PIECES]]
                size = sum(piece.nbytes for piece in rest)
                while size:
                    written = os.writev(self._fd, rest)
                    self._size += written
                    size -= written
                    if size:
                        rest = _after(rest, written)
            self._write_behind()
        except OSError as error:
            raise self._translate(error) from None

    def _write_behind(self) -> None:
        """Let the disk begin with what is there, so that the last flush finds little to wait for. Linux takes this
        advice for a reason to write dirty pages out, and keeps them; what goes wrong is told by the flush."""
        if self._size - self._begun >= _BEHIND and hasattr(os, "posix_fadvise"):
            with suppress(OSError):  # of a file system that takes no advice
                os.posix_fadvise(self._fd, self._begun, self._size - self._begun, os.POSIX_FADV_DONTNEED)
            self._begun = self._size


def flush_folder(path: str) -> None:
    """Bring the names in a folder to disk, as far as the file system can."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno not in _NOT_FLUSHABLE:
            raise


def _after(buffers: list[memoryview], n_bytes: int) -> list[memoryview]:
    """What is left of the buffers once their first `n_bytes` are written."""
    for index, buffer in enumerate(buffers):
        if n_bytes < buffer.nbytes:
            return [buffer.cast("B")[n_bytes:], *buffers[index + 1 :]]
        n_bytes -= buffer.nbytes
    return []
