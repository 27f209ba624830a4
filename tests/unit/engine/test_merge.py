"""Consolidation of versions that no condition touches: the short way gives what the long one gives, in memory that the
plan foresaw."""

import shutil
import tracemalloc
from typing import Any

import numpy as np
import pytest

import terrazzo as tz
from terrazzo.engine.array import Array

ATTRS = [tz.Attr("v", "int32"), tz.Attr("n", "float64", nullable=True), tz.Attr("s", "utf8")]
SCHEMAS = {
    "two numbers": {"dims": [tz.Dim(d, "int16", domain=(0, 63), tile=8) for d in ("x", "y")]},
    "duplicates": {"dims": [tz.Dim("x", "uint8", domain=(0, 200), tile=9)], "allows_duplicates": True},
    "text": {"dims": [tz.Dim("x", "ascii"), tz.Dim("y", "int64", domain=(0, 40), tile=7)]},
    "hilbert": {
        "dims": [tz.Dim(d, "float32", domain=(0, 63)) for d in ("x", "y")],
        "cell_order": "hilbert",
    },
}
TIMES = (10, 20, 20, 30, 40)


def coordinates(dims: Any, n: int, rng: np.random.Generator) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for dim in dims:
        numbers = rng.integers(0, 40, n)
        found[dim.name] = (
            [f"{number:02}" for number in numbers] if dim.is_var else numbers.astype(dim.datatype.dtype)
        )
    return found


def written(uri: str, name: str) -> Array:
    """Fragments that overlap, two of them of one instant, the last ones with an attribute more."""
    options = dict(SCHEMAS[name])
    dims = options.pop("dims")
    array = tz.create(uri, tz.Schema(dims, ATTRS, capacity=5, **options), at=1)
    rng = np.random.default_rng(1)
    for at in TIMES:
        if at == TIMES[-2]:
            array.evolve(add=[tz.Attr("late", "int8", fill=7)], at=25)
        n = 60
        cells = {
            **coordinates(dims, n, rng),
            "v": rng.integers(0, 1000, n).astype(np.int32),
            "n": [None if number < 0.3 else number for number in rng.random(n)],
            "s": ["s" * number for number in rng.integers(0, 4, n)],
        }
        if array.schema.has("late"):
            cells["late"] = np.arange(n, dtype=np.int8)
        if not array.schema.allows_duplicates:  # no cell twice in one write
            _, first = np.unique([repr(key) for key in zip(*(cells[d.name] for d in dims), strict=True)],
                                 return_index=True)  # fmt: skip
            cells = {key: [column[int(row)] for row in first] for key, column in cells.items()}
        array.write(cells, at=at)
    return array


def contents(array: Array) -> tuple[Any, ...]:
    """What every instant shows, and how much is stored."""
    shown = [sorted(map(repr, tz.open(array.uri, at=at).read().to_pylist())) for at in sorted(set(TIMES))]
    array.refresh()
    return shown, sum(fragment.footer.n_cells(array.schema) for fragment in array.fragments)


def small_sets(patch: pytest.MonkeyPatch, size: int) -> None:
    """As millions of cells would be cut."""
    patch.setattr("terrazzo.engine.order._WORTH_CUTTING", 1)
    patch.setattr("terrazzo.engine.order._SAMPLE", 50)
    patch.setattr("terrazzo.engine.order._IN_CACHE", size)
    patch.setattr("terrazzo.engine.order._STRETCH", 1)


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("how", [{}, {"memory": 4000}, {"purge": True}], ids=["whole", "boxes", "purge"])
def test_versions_that_nothing_ends_need_no_bookkeeping(
    name: str, how: dict[str, Any], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = written(folder, name)
    long = tz.open(shutil.copytree(folder, f"{folder}-copy"))
    before = contents(short)[0]
    small_sets(monkeypatch, 20)
    short.consolidate(**how)
    monkeypatch.setattr("terrazzo.engine.merge.nothing_ends", lambda *_, **__: False)
    long.consolidate(**how)
    after = contents(short)

    assert after == contents(long)
    assert after[0] == before or "purge" in how
    assert not short.check(deep=True).findings


def test_a_consolidation_holds_hardly_more_than_it_planned(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = tz.Schema([tz.Dim("x", "int64", domain=(0, 10**7), tile=1000)], [tz.Attr("v", "float64")])
    array = tz.create(uri, schema)
    n, rng = 20_000, np.random.default_rng(1)
    for piece in range(40):
        array.write({"x": rng.permutation(10**5)[:n] * 100 + piece, "v": np.zeros(n)})
    planned = array.consolidate(dry_run=True).memory
    small_sets(monkeypatch, 1 << 12)
    tracemalloc.start()
    array.consolidate()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert planned / 2 < peak < planned * 1.2  # tiles on their way come on top
