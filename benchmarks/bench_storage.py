"""The local store against the system calls it is made of. `python benchmarks/bench_storage.py`"""

import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from terrazzo.storage import open_store

N_SMALL, N_RANGES, RANGE, N_ENTRIES = 1000, 1000, 64 << 10, 10_000


def best(run: Callable[[], object], repeats: int = 5) -> float:
    """Seconds of the fastest run."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("TERRAZZO_BENCH_DIR")) as name:
        yield Path(name)


def _durable(folder: Path, name: str, data: bytes) -> None:
    fd = os.open(folder / "staged", os.O_WRONLY | os.O_CREAT)
    os.write(fd, data)
    os.fsync(fd)
    os.close(fd)
    os.rename(folder / "staged", folder / name)
    fd = os.open(folder, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def puts() -> tuple[str, float, float]:
    data = os.urandom(1000)
    with _folder() as folder:
        (folder / "plain").mkdir()
        store = open_store(folder / "store")
        plain = best(lambda: [_durable(folder / "plain", f"{i}", data) for i in range(N_SMALL)], 3)
        ours = best(lambda: [store.put(f"x/{i}", data) for i in range(N_SMALL)], 3)
    return f"put {N_SMALL} files of 1 kB, durable", ours, plain


def reads(order: str) -> tuple[str, float, float]:
    with _folder() as folder:
        store = open_store(folder)
        store.put("big", [os.urandom(1 << 20)] * 100)
        starts = random.Random(0).sample(range(0, 100 << 20, RANGE), N_RANGES)
        if order == "sorted":
            starts.sort()
        ranges = [(start, RANGE) for start in starts]

        def plain() -> list[bytes]:
            fd = os.open(folder / "big", os.O_RDONLY)
            try:
                return [os.pread(fd, length, start) for start, length in ranges]
            finally:
                os.close(fd)

        assert [bytes(part) for part in store.get_ranges("big", ranges)] == plain()
        times = best(lambda: store.get_ranges("big", ranges)), best(plain)
    return f"get {N_RANGES} ranges of 64 KiB out of 100 MB, {order}", *times


def listing() -> tuple[str, float, float]:
    with _folder() as folder:
        for i in range(N_ENTRIES):
            (folder / f"__{i}_{i}_{i:032x}_22.wrt").touch()
        store = open_store(folder)

        def plain() -> list[tuple[str, int]]:
            with os.scandir(folder) as found:
                return [(item.name, item.stat().st_size) for item in found]

        assert len(store.list()) == N_ENTRIES
        return f"list {N_ENTRIES} entries", best(store.list), best(plain)


def rows() -> list[str]:
    """A Markdown table."""
    table = ["| storage, local | terrazzo | plain system calls |", "|---|---:|---:|"]
    for what, ours, plain in (puts(), reads("sorted"), reads("shuffled"), listing()):
        table.append(f"| {what} | {ours * 1000:.1f} ms | {plain * 1000:.1f} ms |")
    return table


if __name__ == "__main__":
    print("\n".join(rows()))
