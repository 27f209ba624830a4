"""Consolidation beside libtiledb: the same fragments, the same machine, the same run.

A ratio above 1 means that terrazzo is faster. `SMALL=1` runs a tenth of the cells. Peaks are those of a process
that does nothing else.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import tiledb
from bench_engine import MILLION, SMALL, best, cells, folder, our_schema, row, write_ours, write_theirs

import terrazzo as tz

_CHUNK = 1 << 16
_OURS = """
import re, sys, time
import terrazzo as tz
array = tz.open(sys.argv[1])
start = time.perf_counter()
array.consolidate()
print(time.perf_counter() - start, int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024)
"""


def consolidated(uri: Path) -> tuple[float, int]:
    """Seconds and peak memory in MiB."""
    told = subprocess.run([sys.executable, "-c", _OURS, str(uri)], check=True, capture_output=True, text=True)
    took, peak = told.stdout.split()
    return float(took), int(peak)


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def bare_zstd(uri: Path) -> Callable[[], object]:
    """Compresses what a consolidation writes, and does nothing else."""
    table = tz.open(str(uri)).read()
    columns = [table[name].combine_chunks().to_numpy() for name in table.column_names]
    later = np.random.default_rng(1).random(len(columns[0])) < 1 / 3
    columns.append(np.where(later, 1_700_000_001_000, 1_700_000_000_000))  # when each cell was written
    chunks = [
        cells[i : i + _CHUNK // cells.itemsize].view(np.uint8)
        for cells in columns
        for i in range(0, len(cells), _CHUNK // cells.itemsize)
    ]
    runs = [chunks[i : i + 64] for i in range(0, len(chunks), 64)]

    def compress(run: list[np.ndarray]) -> None:
        codec = pa.Codec("zstd", compression_level=-1)
        for chunk in run:
            codec.compress(chunk)

    def work() -> None:
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(compress, runs))

    return work


def overlap_rows(path: Path) -> Iterator[dict[str, object]]:
    first, second = cells(10 * MILLION, 2), cells(5 * MILLION, 3, offset=1)
    ours, theirs = path / "ours", path / "theirs"
    write_ours(ours, first, second)
    write_theirs(theirs, first, second)
    shutil.copytree(ours, path / "again")
    took, peak = min(consolidated(ours), consolidated(path / "again"))
    assert tz.open(str(ours)).count() == 15 * MILLION
    their_time = timed(lambda: tiledb.consolidate(str(theirs)))
    yield row(
        f"consolidate fragments of {10 * MILLION:,} and {5 * MILLION:,} cells: peak {peak} MiB",
        took, their_time, "30",
    )  # fmt: skip
    yield row(
        "zstd of the result alone, on every core", best(bare_zstd(ours), 2), their_time, "the most there is"
    )


def many_rows(path: Path) -> Iterator[dict[str, object]]:
    pieces, n = (100 if SMALL else 1000), 10_000
    table = cells(pieces * n, 4)
    parts = [{name: column[i * n : (i + 1) * n] for name, column in table.items()} for i in range(pieces)]
    ours, theirs = path / "ours", path / "theirs"
    write_ours(ours, *parts)
    write_theirs(theirs, *parts)
    took, peak = consolidated(ours)
    assert tz.open(str(ours)).count() == pieces * n
    yield row(
        f"consolidate {pieces:,} fragments of {n:,} cells: peak {peak} MiB",
        took, timed(lambda: tiledb.consolidate(str(theirs))), "5, below 1536 MiB",
    )  # fmt: skip


def memory_rows(path: Path) -> Iterator[dict[str, object]]:
    """The peak follows the memory allowed, not the number of cells."""
    peaks = []
    for total in (10 * MILLION, 40 * MILLION):
        uri = path / f"n{total}"
        array = tz.create(str(uri), our_schema())
        for piece in range(4):
            array.write(cells(total // 4, 20 + piece, offset=piece))
        took, peak = consolidated(uri)
        peaks.append(peak)
        what = f"consolidate {total:,} cells in 4 fragments: peak {peak} MiB"
        yield row(what, took, None, f"{peaks[0]} MiB")
        shutil.rmtree(uri)


GROUPS = {"overlap": overlap_rows, "many": many_rows, "memory": memory_rows}


def rows(only: str | None = None) -> list[dict[str, object]]:
    found = []
    for name, group in GROUPS.items():
        if only in {None, name}:
            with folder() as path:
                found += list(group(path))
    return found


if __name__ == "__main__":
    for name in sys.argv[1:] or GROUPS:
        for each in rows(name):
            print(each, flush=True)
