"""An object streamed to an object store in parts, and aborted rather than left half-uploaded.

obstore has a writer of its own, but none that gives up: an upload that is dropped stays in the bucket,
unseen and paid for. Its `put` of an iterator does abort when the iterator raises. So the parts pass
through a queue to a thread that runs such a `put`, and an error in the block becomes an error there.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from queue import Full, Queue
from threading import Thread
from typing import Self

from terrazzo.storage.base import Bytes

PART = 16 << 20  # of at most 10,000 parts: objects up to 160 GB


class _AbortedError(Exception):
    """The block raised."""


class Upload:
    """`put_parts` stores an iterator of parts and aborts when it raises; an object of less than a part is
    one request: `put_whole`."""

    __slots__ = ("_buffer", "_error", "_parts", "_put_parts", "_put_whole", "_thread")

    def __init__(
        self, put_parts: Callable[[Iterable[Bytes]], None], put_whole: Callable[[Bytes], None]
    ) -> None:
        self._put_parts, self._put_whole = put_parts, put_whole
        self._buffer = bytearray()
        self._parts: Queue[bytearray | _AbortedError | None] = Queue(maxsize=1)
        self._thread: Thread | None = None
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def write(self, data: Bytes) -> None:
        view = memoryview(data).cast("B")
        while view.nbytes:
            room = PART - len(self._buffer)
            self._buffer += view[:room]
            view = view[room:]
            if len(self._buffer) == PART:
                self._send(self._buffer)
                self._buffer = bytearray()

    def write_all(self, data: Sequence[Bytes]) -> None:
        for piece in data:
            self.write(piece)

    def __exit__(self, failure: object, *_: object) -> None:
        if self._thread is None:
            if failure is None:
                self._put_whole(self._buffer)
            return
        try:
            if failure is not None:
                with suppress(Exception):  # the upload had failed by itself, and the block because of it
                    self._send(_AbortedError())
                return
            if self._buffer:
                self._send(self._buffer)
            self._send(None)
        finally:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def _send(self, part: bytearray | _AbortedError | None) -> None:
        if self._thread is None:
            # A daemon: a process that exits in the midst of a block does not wait for it.
            self._thread = Thread(target=self._run, name="terrazzo-upload", daemon=True)
            self._thread.start()
        while True:
            if self._error is not None:
                raise self._error
            with suppress(Full):
                self._parts.put(part, timeout=0.05)
                return

    def _run(self) -> None:
        try:
            self._put_parts(self._received())
        except BaseException as error:
            self._error = error

    def _received(self) -> Iterator[Bytes]:
        while (part := self._parts.get()) is not None:
            if isinstance(part, _AbortedError):
                raise part
            yield part
