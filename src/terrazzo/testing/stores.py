"""Stores for tests: they wrap a real one and count its requests, slow them down, or make them fail.

store = CountingStore(open_store("memory://test"))
...
assert store.counts == {"list": 2, "get": 3}
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from terrazzo.errors import StorageError
from terrazzo.storage.base import Buffers, Bytes, Entries, Listing, Store, Writer, pieces

Kind = Literal[
    "get", "get_ranges", "get_tail", "size", "put", "list", "list_recursive", "delete", "delete_folder"
]
_Sizes = list[int]


@dataclass(frozen=True, slots=True)
class Request:
    """A call on its way to the store. A streamed object is a put, made when its block ends; `list` and
    `list_level` are the same request. `key` is a folder's where the call is about one, and the first of
    those to be deleted."""

    kind: Kind
    key: str


_Requests = list[Request]


@dataclass(eq=False)
class WrappedStore:
    """Passes everything on to `inner`. Subclasses override `before`, which may raise, and `after`."""

    inner: Store

    def before(self, request: Request) -> None: ...

    def after(self, request: Request, n_bytes: int) -> None: ...

    @property
    def uri(self) -> str:
        return self.inner.uri

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, WrappedStore) and other.inner == self.inner

    def __hash__(self) -> int:
        return hash(self.inner)

    def __reduce__(self) -> tuple[Any, ...]:
        # What a wrapper was made of, not what it has seen since: that belongs to this process.
        return type(self), tuple(getattr(self, item.name) for item in fields(self) if item.init)

    def beside(self, suffix: str) -> "WrappedStore":
        return _Beside(self.inner.beside(suffix), self)

    def get(self, key: str) -> bytes:
        with self._request("get", key) as sizes:
            data = self.inner.get(key)
            sizes.append(len(data))
            return data

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> Buffers:
        with self._request("get_ranges", key) as sizes:
            found = self.inner.get_ranges(key, ranges)
            sizes.extend(map(len, found))
            return found

    def get_tail(self, key: str, size: int) -> tuple[Bytes, int]:
        with self._request("get_tail", key) as sizes:
            tail, whole = self.inner.get_tail(key, size)
            sizes.append(len(tail))
            return tail, whole

    def size(self, key: str) -> int:
        with self._request("size", key):
            return self.inner.size(key)

    def put(self, key: str, data: Bytes | Sequence[Bytes], *, if_absent: bool = False) -> None:
        with self._request("put", key) as sizes:
            self.inner.put(key, data, if_absent=if_absent)
            sizes.extend(memoryview(piece).nbytes for piece in pieces(data))

    def open_writer(self, key: str) -> AbstractContextManager[Writer]:
        return self._writing(key)

    @contextmanager
    def _writing(self, key: str) -> Iterator[Writer]:
        request = Request("put", key)
        with self.inner.open_writer(key) as writer:
            counted = _CountingWriter(writer)
            yield counted
            self.before(request)  # if it raises, the inner store drops what was written
        self.after(request, counted.n_bytes)

    def list(self, prefix: str = "") -> Entries:
        with self._request("list", prefix):
            return self.inner.list(prefix)

    def list_level(self, prefix: str = "") -> Listing:
        with self._request("list", prefix):
            return self.inner.list_level(prefix)

    def list_recursive(self, prefix: str = "") -> Entries:
        with self._request("list_recursive", prefix):
            return self.inner.list_recursive(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        named = tuple(keys)
        with self._request("delete", named[0] if named else ""):
            self.inner.delete(named)

    def delete_folder(self, prefix: str) -> None:
        with self._request("delete_folder", prefix):
            self.inner.delete_folder(prefix)

    def reclaim_staging(self, older_than_ms: int) -> int:
        return self.inner.reclaim_staging(older_than_ms)

    @contextmanager
    def _request(self, kind: Kind, key: str) -> Iterator[_Sizes]:
        request = Request(kind, key)
        self.before(request)
        sizes: _Sizes = []
        yield sizes
        self.after(request, sum(sizes))


@dataclass(eq=False)
class _Beside(WrappedStore):
    """A store beside a wrapped one: its requests are the other's too."""

    other: WrappedStore

    def before(self, request: Request) -> None:
        self.other.before(request)

    def after(self, request: Request, n_bytes: int) -> None:
        self.other.after(request, n_bytes)


@dataclass(eq=False)
class CountingStore(WrappedStore):
    """Counts requests and bytes by kind, and keeps the requests in order."""

    counts: Counter[str] = field(default_factory=Counter, init=False)
    bytes_moved: Counter[str] = field(default_factory=Counter, init=False)
    requests: _Requests = field(default_factory=list, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def before(self, request: Request) -> None:
        with self._lock:
            self.counts[request.kind] += 1
            self.requests.append(request)

    def after(self, request: Request, n_bytes: int) -> None:
        if n_bytes:
            with self._lock:
                self.bytes_moved[request.kind] += n_bytes

    @property
    def n_requests(self) -> int:
        return self.counts.total()

    def reset(self) -> None:
        with self._lock:
            self.counts.clear()
            self.bytes_moved.clear()
            self.requests.clear()


@dataclass(eq=False)
class LaggingStore(WrappedStore):
    """Every request takes `latency_s` longer, as over a network."""

    latency_s: float = 0.02

    def before(self, request: Request) -> None:  # noqa: ARG002
        time.sleep(self.latency_s)


@dataclass(eq=False)
class FailingStore(WrappedStore):
    """The requests that `fails` picks raise a StorageError; it is given the request and its number, from
    0. `FailingStore.nth(store, 3)` fails the fourth request and no other."""

    fails: Callable[[Request, int], bool] = lambda _request, _number: True
    n_seen: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @classmethod
    def nth(cls, inner: Store, number: int, kind: Kind | None = None) -> "FailingStore":
        """Fails the n-th request, or the n-th of a kind, counted from 0."""
        return cls(inner, _Nth(number, kind))

    def before(self, request: Request) -> None:
        with self._lock:
            number, self.n_seen = self.n_seen, self.n_seen + 1
            failed = self.fails(request, number)
        if failed:
            raise StorageError(f"this {request.kind} was made to fail", key=f"{self.uri}/{request.key}")


@dataclass
class _Nth:
    number: int
    kind: Kind | None
    n_matching: int = 0

    def __call__(self, request: Request, _number: int) -> bool:
        if self.kind not in {None, request.kind}:
            return False
        self.n_matching += 1
        return self.n_matching == self.number + 1


@dataclass(eq=False)
class DyingStore(WrappedStore):
    """After `puts_left` puts the process is as good as dead: that put and all later calls of any kind
    raise a StorageError. What it left behind is in `inner`.

    With `deletes_count`, every object deleted costs a life as well, one by one, in the order given.
    """

    puts_left: int = 0
    deletes_count: bool = False
    dead: bool = field(default=False, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def before(self, request: Request) -> None:
        with self._lock:
            if request.kind == "put" or (self.deletes_count and request.kind == "delete"):
                self.puts_left -= 1
                self.dead = self.dead or self.puts_left < 0
            if self.dead:
                raise StorageError("the writer died", key=f"{self.uri}/{request.key}")

    def delete(self, keys: Iterable[str]) -> None:
        if not self.deletes_count:
            super().delete(keys)
            return
        for key in keys:
            super().delete([key])

    def delete_folder(self, prefix: str) -> None:
        if self.deletes_count:
            self.delete(entry.key for entry in self.inner.list_recursive(prefix))
        super().delete_folder(prefix)


class _CountingWriter:
    def __init__(self, inner: Writer) -> None:
        self.inner, self.n_bytes = inner, 0

    def write(self, data: Bytes) -> None:
        self.write_all((data,))

    def write_all(self, data: Sequence[Bytes]) -> None:
        self.inner.write_all(data)
        self.n_bytes += sum(memoryview(piece).nbytes for piece in data)
