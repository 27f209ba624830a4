"""The local store against the system calls it is made of. `python benchmarks/bench_storage.py`"""

import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from measure import Table, seconds

from terrazzo.storage import open_store

N_SMALL, N_RANGES, RANGE, N_ENTRIES = 1000, 1000, 64 << 10, 10_000


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
        plain = seconds(lambda: [_durable(folder / "plain", f"{i}", data) for i in range(N_SMALL)], most=3)
        ours = seconds(lambda: [store.put(f"x/{i}", data) for i in range(N_SMALL)], most=3)
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
        times = seconds(lambda: store.get_ranges("big", ranges)), seconds(plain)
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
        return f"list {N_ENTRIES} entries", seconds(store.list), seconds(plain)


def table() -> Table:
    result = Table("Storage, local", ("what", "terrazzo ms", "plain system calls ms"))
    for what, ours, plain in (puts(), reads("sorted"), reads("shuffled"), listing()):
        result.rows.append((what, f"{ours * 1000:.1f}", f"{plain * 1000:.1f}"))
    return result


if __name__ == "__main__":
    print(table().markdown())
