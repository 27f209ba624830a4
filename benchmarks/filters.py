"""One filter, or one pipeline, through `TileCodec`: chunks of 64 KiB and a column of 100 MB, one thread and two."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from measure import on_threads, speed

from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.filters.base import Filter
from terrazzo.format.filters.pipeline import Pipeline
from terrazzo.format.tile import TileCodec

CHUNK = 65536
TILE = 160 * CHUNK  # about 10 MB
COLUMN = 10 * TILE
HEADER = ("filter", "data", "what", "size", "threads", "terrazzo MB/s", "bare MB/s", "time by bare")

Codec = Callable[[Any], bytes]
Decoder = Callable[[Any, int], Any]


@dataclass(frozen=True)
class Case:
    name: str
    data: str
    filters: tuple[Filter, ...]
    values: np.ndarray  # 100 MB
    datatype: Datatype = Datatype.INT64
    bare: tuple[Codec, Decoder] | None = None  # per chunk; None: a memory copy stands in
    cipher: Aes256Gcm | None = None
    beside: bool = True  # whether there is anything to compare with


@dataclass(frozen=True)
class Speed:
    case: Case
    what: str
    size: str
    threads: int
    ours: float  # seconds per byte
    bare: float | None

    def row(self) -> tuple[str, ...]:
        bare = ("-", "-") if self.bare is None else (speed(1, self.bare), f"{self.ours / self.bare:.2f}")
        return (
            self.case.name,
            self.case.data,
            self.what,
            self.size,
            str(self.threads),
            speed(1, self.ours),
            *bare,
        )

    @property
    def mb_s(self) -> float:
        return 1e-6 / self.ours


def measured(case: Case) -> Iterator[Speed]:
    """Decode and encode, small and large, on one thread and on two."""
    for label, piece, pieces in (("64 KiB", CHUNK, 32), ("100 MB", TILE, COLUMN // TILE)):
        jobs = _Jobs(case, piece, pieces)
        for what in ("decode", "encode"):
            for threads in (1, 2):
                total = piece * pieces
                groups = [jobs.ours(what)] + ([jobs.bare(what)] if case.beside else [])
                took = on_threads(threads, *groups)
                bare = took[1] / total if case.beside else None
                yield Speed(case, what, label, threads, took[0] / total, bare)
        jobs.check()


class _Jobs:
    """One job per piece. Chunks of 64 KiB are read many times by each, so that threads have work."""

    def __init__(self, case: Case, piece: int, pieces: int) -> None:
        self.case, self.piece, self.pieces = case, piece, pieces
        self.raw = case.values.view(np.uint8)[: piece * pieces]
        self.out = np.empty(piece * pieces, np.uint8)
        self.codec = TileCodec(Pipeline(case.filters), case.datatype, case.datatype.size, cipher=case.cipher)
        self.tiles = [self.codec.encode(self._slice(self.raw, i)) for i in range(pieces)]
        self.stored: list[list[bytes]] = []
        if case.bare is not None:
            compress = case.bare[0]
            self.stored = [[compress(chunk) for chunk in self._chunks(i)] for i in range(pieces)]

    def _slice(self, array: np.ndarray, i: int) -> np.ndarray:
        return array[i * self.piece : (i + 1) * self.piece]

    def _chunks(self, i: int) -> list[memoryview]:
        view = memoryview(self._slice(self.raw, i))
        return [view[start : start + CHUNK] for start in range(0, self.piece, CHUNK)]

    def ours(self, what: str) -> Sequence[Callable[[], object]]:
        if what == "encode":
            return [lambda i=i: self.codec.encode(self._slice(self.raw, i)) for i in range(self.pieces)]
        return [
            lambda i=i: self.codec.decode(self.tiles[i], self.piece, self._slice(self.out, i))
            for i in range(self.pieces)
        ]

    def bare(self, what: str) -> Sequence[Callable[[], object]]:
        if self.case.bare is None:
            return [
                lambda i=i: np.copyto(self._slice(self.out, i), self._slice(self.raw, i))
                for i in range(self.pieces)
            ]
        compress, decompress = self.case.bare
        if what == "encode":
            return [lambda i=i: [compress(chunk) for chunk in self._chunks(i)] for i in range(self.pieces)]

        def decode(i: int) -> None:
            target, position = memoryview(self._slice(self.out, i)), 0
            for stored in self.stored[i]:
                target[position : position + CHUNK] = decompress(stored, CHUNK)
                position += CHUNK

        return [lambda i=i: decode(i) for i in range(self.pieces)]

    def check(self) -> None:
        self.out[:] = 0
        for job in self.ours("decode"):
            job()
        assert self.out.tobytes() == self.raw.tobytes()  # fast and wrong is no result


def walk(dtype: str = "int64", step: int = 3, seed: int = 1) -> np.ndarray:
    """A measured quantity: steps of a walk with a little noise."""
    rng = np.random.default_rng(seed)
    return np.cumsum(rng.integers(-step, step + 1, COLUMN // np.dtype(dtype).itemsize)).astype(dtype)


def rising(dtype: str = "int64") -> np.ndarray:
    return np.cumsum(np.random.default_rng(2).integers(0, 100, COLUMN // np.dtype(dtype).itemsize)).astype(
        dtype
    )
