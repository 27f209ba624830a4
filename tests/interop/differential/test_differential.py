"""Random histories, both ways between terrazzo and libtiledb.

A case is a direction and a seed; a failure names them. `TERRAZZO_CASES=5000` runs that many cases instead of the
usual ones, `TERRAZZO_SEED` starts elsewhere; one case alone is `TERRAZZO_CASES=1 TERRAZZO_SEED=<seed> pytest -k A`.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from differential.directions import DIRECTIONS, run
from differential.generator import EXCLUDED
from differential.worker import Worker

SHARES = {"A": 0.3, "B": 0.3, "C": 0.2, "U": 0.2}
USUAL = 320
CHUNK = 10

FIRST = int(os.environ.get("TERRAZZO_SEED", "0"))
CASES = int(os.environ.get("TERRAZZO_CASES", USUAL))

FOUND = {
    "A": (),
    "B": (),
    "C": (),
    "U": (),
}
"""Seeds that once showed a difference."""


def chunks() -> Iterator[object]:
    for direction, share in SHARES.items():
        count = max(1, round(CASES * share))
        for start in range(FIRST, FIRST + count, CHUNK):
            stop = min(start + CHUNK, FIRST + count)
            yield pytest.param(direction, range(start, stop), id=f"{direction}-{start}-{stop - 1}")


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.stop()


@pytest.fixture
def folder() -> Iterator[str]:
    """In memory where there is such a place: thousands of small files are synced to disk otherwise."""
    memory = Path("/dev/shm")
    path = tempfile.mkdtemp(prefix="terrazzo-", dir=memory if memory.is_dir() else None)
    yield path
    shutil.rmtree(path)


@pytest.mark.parametrize(("direction", "seeds"), list(chunks()))
def test_both_libraries_show_the_same_cells_at_every_instant(worker, folder, direction, seeds):
    for seed in seeds:
        run(worker, folder, direction, seed)


@pytest.mark.parametrize("direction", list(DIRECTIONS))
def test_what_once_differed_is_the_same(worker, folder, direction):
    for seed in FOUND[direction]:
        run(worker, folder, direction, seed)


def test_what_is_left_out_has_a_reason():
    assert all(name and reason for name, reason in EXCLUDED.items())
