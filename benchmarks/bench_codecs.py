"""Compressors and checksums through `TileCodec`, beside the bare codec in the same run.

`rows()` gives the table; run this file to print it. MB/s of unfiltered bytes, best of three; the ratio is the
time through `TileCodec` by that of the bare codec and, when decoding, one copy into the column.
"""

import bz2
import hashlib
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.base import Filter
from terrazzo.format.filters.checksum import Md5, Sha256
from terrazzo.format.filters.compress import Bzip2, Gzip, Lz4, Zstd
from terrazzo.format.filters.pipeline import Pipeline
from terrazzo.format.tile import TileCodec

CHUNK = 65536
TILE = 10 * CHUNK * 16  # about 10 MB
TILES = 10
HEADER = "| filter | what | threads | terrazzo MB/s | bare MB/s | ratio |\n|---|---|--:|--:|--:|--:|"


def column() -> np.ndarray:
    """A measured quantity: steps of a walk with a little noise, as int64."""
    rng = np.random.default_rng(1)
    return np.cumsum(rng.integers(-3, 4, TILE * TILES // 8)).astype(np.int64)


def _bare(filter_: Filter) -> tuple[Callable[[memoryview], bytes], Callable[[bytes, int], bytes]]:
    match filter_:
        case Zstd() | Lz4():
            name = "zstd" if isinstance(filter_, Zstd) else "lz4_raw"
            codec = pa.Codec(name, compression_level=filter_.level) if name == "zstd" else pa.Codec(name)
            return (
                lambda piece: codec.compress(piece, asbytes=True),
                lambda stored, size: codec.decompress(stored, size, asbytes=True),
            )
        case Gzip():
            return lambda piece: zlib.compress(piece, filter_.level), lambda s, n: zlib.decompress(
                s, bufsize=n
            )
        case Bzip2():
            return lambda piece: bz2.compress(piece, 1), lambda stored, _: bz2.decompress(stored)
    digest = hashlib.md5 if isinstance(filter_, Md5) else hashlib.sha256

    def digested(piece):
        digest(piece).digest()
        return piece

    return digested, lambda stored, _: digested(stored)


def _seconds(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def _on_threads(n: int, work: Callable[[int], object]) -> Callable[[], object]:
    if n == 1:
        return lambda: [work(i) for i in range(TILES)]
    pool = ThreadPoolExecutor(n)
    return lambda: list(pool.map(work, range(TILES)))


def rows(filters: tuple[Filter, ...] = (Zstd(), Lz4(), Gzip(), Bzip2(), Md5(), Sha256())) -> Iterator[str]:
    values = column().view(np.uint8)
    for filter_ in filters:
        for what, threads, mine, plain in _measured(filter_, values):
            speeds = " | ".join(f"{values.nbytes / 1e6 / seconds:,.0f}" for seconds in (mine, plain))
            name = type(filter_).__name__
            yield f"| {name} | {what} | {threads} | {speeds} | {mine / plain:.2f} |"


def _measured(filter_: Filter, values: np.ndarray) -> Iterator[tuple[str, int, float, float]]:
    raw, out = memoryview(values), np.empty(len(values), np.uint8)
    target = memoryview(out)
    codec = TileCodec(Pipeline((filter_,)), Datatype.INT64, 8)
    compress, decompress = _bare(filter_)
    tiles = [codec.encode(values[i * TILE : (i + 1) * TILE]) for i in range(TILES)]
    pieces = [compress(raw[i : i + CHUNK]) for i in range(0, len(raw), CHUNK)]
    per_tile = TILE // CHUNK

    def decode(i):
        codec.decode(tiles[i], TILE, out[i * TILE : (i + 1) * TILE])

    def decode_bare(i):
        for k in range(i * per_tile, (i + 1) * per_tile):
            target[k * CHUNK : (k + 1) * CHUNK] = decompress(pieces[k], CHUNK)

    def encode(i):
        return codec.encode(values[i * TILE : (i + 1) * TILE])

    def encode_bare(i):
        return [compress(raw[k : k + CHUNK]) for k in range(i * TILE, (i + 1) * TILE, CHUNK)]

    for what, ours, bare in (("decode", decode, decode_bare), ("encode", encode, encode_bare)):
        for threads in (1, 2):
            yield what, threads, _seconds(_on_threads(threads, ours)), _seconds(_on_threads(threads, bare))
    out[:] = 0
    _on_threads(2, decode)()
    assert out.tobytes() == values.tobytes()  # fast and wrong is no result


if __name__ == "__main__":
    print(HEADER)
    for row in rows():
        print(row)
