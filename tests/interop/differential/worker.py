"""libtiledb in a process of its own, because some inputs kill it.

Requests and replies are pickles over pipes, each behind its length. A worker that dies is replaced; the call that
it died of raises `Crashed`.
"""

import os
import pickle
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

_LENGTH = struct.Struct("<Q")


class Crashed(Exception):  # noqa: N818
    """The worker died of a call."""


class Refused(Exception):  # noqa: N818
    """libtiledb answered with an error."""


def _send(pipe: BinaryIO, message: object) -> None:
    body = pickle.dumps(message)
    pipe.write(_LENGTH.pack(len(body)) + body)
    pipe.flush()


def _receive(pipe: BinaryIO) -> Any:
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    return pickle.loads(pipe.read(_LENGTH.unpack(head)[0]))


class Worker:
    """Calls methods of `Libtiledb` there: `worker.write(uri, op)`."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments: self.call(name, *arguments)

    def call(self, name: str, *arguments: object) -> Any:
        process = self._running()
        try:
            _send(process.stdin, (name, arguments))
            kind, answer = _receive(process.stdout)
        except (EOFError, BrokenPipeError):
            code = process.wait()
            self._close()
            raise Crashed(f"libtiledb died of {name} with code {code}") from None
        if kind == "error":
            raise Refused(f"{name}: {answer}")
        return answer

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            paths = [str(Path(__file__).parents[1]), *sys.path]
            self._process = subprocess.Popen(
                [sys.executable, "-m", "differential.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )
        return self._process

    def _close(self) -> None:
        if self._process is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.stdout.close()
            self._process.wait(10)
            self._process = None

    def stop(self) -> None:
        self._close()


def serve() -> None:
    import warnings

    import tiledb

    from differential.libtiledb import Libtiledb

    warnings.simplefilter("ignore")
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libtiledb prints is no reply
    library = Libtiledb()
    while True:
        try:
            name, arguments = _receive(requests)
        except EOFError:
            return
        try:
            answer = "ok", getattr(library, name)(*arguments)
        except tiledb.TileDBError as problem:
            answer = "error", str(problem)
        except Exception as problem:
            answer = "error", f"{type(problem).__name__}: {problem}"
        _send(replies, answer)


if __name__ == "__main__":
    serve()
