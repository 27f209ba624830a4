"""The one adapter on obstore: S3, GCS, Azure and memory as stores; and `open_store`, which picks.

Three things obstore does that a caller should not meet: a range beyond the end of an object is a panic, a
misleading "not found" or a silently short answer, depending on the store (so ranges are joined here and
each is checked); client options among the store's own are a panic (see `options`); and its messages run
over many lines and may quote signed URLs.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import MemoryStore, ObjectStore, from_url

from terrazzo.errors import (
    ConflictError,
    InvalidRequestError,
    MissingObjectError,
    StorageError,
    TerrazzoError,
)
from terrazzo.storage.base import (
    Buffers,
    Bytes,
    Entries,
    Entry,
    Listing,
    Store,
    Writer,
    checked_key,
    checked_prefix,
    pieces,
)
from terrazzo.storage.local import LocalStore
from terrazzo.storage.options import Options, one_line
from terrazzo.storage.ranges import Span, coalesce, cut
from terrazzo.storage.upload import PART, Upload

_SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss")
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(.*)", re.DOTALL)
_GAP = 1 << 20  # what a request's latency is worth in bytes
_LARGEST_SPAN = 16 << 20
_PARALLEL_REQUESTS = 10
_PARALLEL_PARTS = 4
_WHOLE = 2 * PART  # larger objects are put in parts
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist")

_memories: dict[str, MemoryStore] = {}  # what memory:// URIs name, for as long as the process lives


def open_store(uri: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Store:
    """The store at a path, or at a file, memory, s3, gs, az, azure, abfs or abfss URI.

    `memory://name/…` is shared by all of a process, and by no other. For `options` see
    `terrazzo.storage.options`; they hold the credentials, which a URI must not. Nothing is requested yet.
    """
    text = os.fspath(uri)
    if (match := _URI.fullmatch(text)) is None:
        if not text:
            raise InvalidRequestError("an empty path names no store")
        return LocalStore(text)
    scheme, host, path = match[1].lower(), match[2], match[3]
    if scheme == "file":
        if host not in {"", "localhost"} or not path:
            raise InvalidRequestError(f"{text}: a file URI has no host, and its path is absolute: file:///…")
        return LocalStore(path)
    if scheme not in {"memory", *_SCHEMES}:
        raise InvalidRequestError(
            f"{scheme}:// is no store; these are: a path, {', '.join(f'{s}://' for s in _OPENED)}"
        )
    if ("@" in host and not scheme.startswith("abfs")) or ":" in host or "?" in text:
        raise InvalidRequestError(f"{scheme}://…: credentials do not belong in a URI, but in storage options")
    if not host:
        raise InvalidRequestError(f"{text}: which bucket? {scheme}://bucket/path")
    root = checked_prefix(path.strip("/"))
    base = f"{scheme}://{host}"
    if scheme == "memory":
        return ObstoreStore(_memories.setdefault(host, MemoryStore()), base, root)
    return ObstoreStore(_client(base, options or {}), base, root, options)


_OPENED = ("file", "memory", *_SCHEMES)


def _client(base: str, options: Mapping[str, str]) -> ObjectStore:
    split = Options.split(options)
    config: Any = dict(split.store)
    client: Any = dict(split.client)
    retry: Any = dict(split.retry)
    try:
        return from_url(base, config=config, client_options=client, retry_config=retry)
    except (BaseError, ValueError, TypeError) as error:
        raise InvalidRequestError(f"{base}: {one_line(error, options)}") from None


class ObstoreStore:
    """Objects below `root` in what `base` names. `open_store` makes them."""

    __slots__ = ("_base", "_objects", "_options", "_root")

    def __init__(
        self, objects: ObjectStore, base: str, root: str, options: Mapping[str, str] | None = None
    ) -> None:
        self._objects, self._base, self._root = objects, base, root
        self._options = MappingProxyType(dict(options or {}))

    @property
    def uri(self) -> str:
        return f"{self._base}/{self._root}" if self._root else self._base

    def __repr__(self) -> str:
        return f"ObstoreStore({self.uri!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObstoreStore) and other.uri == self.uri

    def __hash__(self) -> int:
        return hash(self.uri)

    def __reduce__(self) -> tuple[Any, ...]:
        return open_store, (self.uri, dict(self._options))

    def beside(self, suffix: str) -> "ObstoreStore":
        return ObstoreStore(self._objects, self._base, f"{self._root}{suffix}", self._options)

    def get(self, key: str) -> bytes:
        with self._asking(key):
            return obstore.get(self._objects, self._path(key)).bytes().to_bytes()

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> Buffers:
        in_memory = isinstance(self._objects, MemoryStore)
        # Memory hands out views for nothing: there is nothing to join, nor to wait for.
        spans = coalesce(ranges, gap=-1 if in_memory else _GAP, largest=_LARGEST_SPAN)
        fetch = partial(self._fetch, key)
        if in_memory or len(spans) < 2:
            return cut(ranges, spans, [fetch(span) for span in spans])
        # Not obstore.get_ranges: it joins neighbours once more and panics where the object ends early.
        with ThreadPoolExecutor(min(len(spans), _PARALLEL_REQUESTS)) as threads:
            return cut(ranges, spans, list(threads.map(fetch, spans)))

    def _fetch(self, key: str, span: Span) -> memoryview:
        try:
            found = obstore.get_range(self._objects, self._path(key), start=span.start, end=span.stop)
        except (BaseError, OSError, ValueError) as error:
            # Stores disagree on what a range beyond the end is; so ask whether that is the reason.
            if not _NO_BUCKET.search(str(error)) and (size := self.size(key)) < span.stop:
                raise self._too_short(key, span, size) from None
            raise self._failed(key, error) from None
        data = memoryview(found)
        if data.nbytes < span.size:
            raise self._too_short(key, span, span.start + data.nbytes)
        return data

    def get_tail(self, key: str, size: int) -> tuple[Bytes, int]:
        with self._asking(key):
            found = obstore.get(self._objects, self._path(key), options={"range": {"suffix": size}})
            whole = int(found.meta["size"])
            return (memoryview(found.bytes()) if whole else b""), whole

    def size(self, key: str) -> int:
        with self._asking(key):
            return int(obstore.head(self._objects, self._path(key))["size"])

    def list(self, prefix: str = "") -> Entries:
        return self.list_level(prefix).files

    def list_level(self, prefix: str = "") -> Listing:
        folder = checked_prefix(prefix)
        with self._asking(folder):
            found = obstore.list_with_delimiter(self._objects, self._below(folder))
        folders = sorted(self._key(path) for path in found["common_prefixes"])
        return Listing(self._entries(folder, found["objects"]), folders)

    def list_recursive(self, prefix: str = "") -> Entries:
        folder = checked_prefix(prefix)
        with self._asking(folder):
            return self._entries(folder, obstore.list(self._objects, self._below(folder)).collect())

    def _entries(self, folder: str, found: Iterable[Any]) -> Entries:
        # Some tools mark a folder by an empty object of its name: that is not in the folder.
        marker = self._below(folder)
        entries = [
            Entry(self._key(meta["path"]), meta["size"], int(meta["last_modified"].timestamp() * 1000))
            for meta in found
            if meta["path"] != marker
        ]
        entries.sort(key=lambda entry: entry.key)
        return entries

    def put(self, key: str, data: Bytes | Sequence[Bytes], *, if_absent: bool = False) -> None:
        path = self._path(key)
        views = [memoryview(piece).cast("B") for piece in pieces(data)]
        in_parts = not if_absent and sum(view.nbytes for view in views) > _WHOLE
        with self._asking(key, writing=True):
            if in_parts:
                self._put_parts(path, views)
            else:
                mode: Any = "create" if if_absent else "overwrite"
                obstore.put(self._objects, path, views, mode=mode, use_multipart=False)

    def _put_parts(self, path: str, parts: Iterable[Bytes]) -> None:
        obstore.put(
            self._objects,
            path,
            parts,
            use_multipart=True,
            chunk_size=PART,
            max_concurrency=_PARALLEL_PARTS,
        )

    @contextmanager
    def _streaming(self, key: str) -> Iterator[Writer]:
        path = self._path(key)

        def put_parts(parts: Iterable[Bytes]) -> None:
            with self._asking(key, writing=True):
                self._put_parts(path, parts)

        with Upload(put_parts, partial(self.put, key)) as upload:
            yield upload

    def open_writer(self, key: str) -> AbstractContextManager[Writer]:
        return self._streaming(key)

    def delete(self, keys: Iterable[str]) -> None:
        named = {self._path(key): key for key in keys}
        if not named:
            return
        try:
            obstore.delete(self._objects, list(named))
        except FileNotFoundError:
            # Some stores mind, and then the rest is still there: one by one, and never mind.
            for path, key in named.items():
                with self._asking(key, writing=True):
                    try:
                        obstore.delete(self._objects, path)
                    except FileNotFoundError as error:
                        if _NO_BUCKET.search(str(error)):
                            raise
        except (BaseError, OSError, ValueError) as error:
            raise self._failed(next(iter(named.values())), error, writing=True) from None

    def delete_folder(self, prefix: str) -> None:
        self.delete(entry.key for entry in self.list_recursive(prefix))

    def reclaim_staging(self, older_than_ms: int) -> int:  # noqa: ARG002 - a put needs no staging here
        return 0

    def _path(self, key: str) -> str:
        return f"{self._root}/{checked_key(key)}" if self._root else checked_key(key)

    def _below(self, folder: str) -> str | None:
        return "/".join(part for part in (self._root, folder) if part) or None

    def _key(self, path: str) -> str:
        return path[len(self._root) + 1 :] if self._root else path

    def _name(self, key: str) -> str:
        return f"{self.uri}/{key}" if key else self.uri

    @contextmanager
    def _asking(self, key: str, *, writing: bool = False) -> Iterator[None]:
        try:
            yield
        except TerrazzoError:
            raise
        except (BaseError, OSError, ValueError, NotImplementedError) as error:
            raise self._failed(key, error, writing=writing) from None

    def _failed(self, key: str, error: Exception, *, writing: bool = False) -> TerrazzoError:
        if isinstance(error, AlreadyExistsError):
            return ConflictError("is there already", key=self._name(key))
        # Whoever writes does not look for an object: "not found" is then the bucket.
        if isinstance(error, FileNotFoundError) and not writing and not _NO_BUCKET.search(str(error)):
            return MissingObjectError("no such object", key=self._name(key))
        return StorageError(one_line(error, self._options), key=self._name(key))

    def _too_short(self, key: str, span: Span, size: int) -> StorageError:
        return StorageError(f"{span.stop} bytes expected, the object has {size}", key=self._name(key))
