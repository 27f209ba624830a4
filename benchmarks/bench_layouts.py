"""Layouts of sparse cells beside libtiledb: other dimensions, orders and attributes, the same cells and files.

A fragment of 2,000,000 cells is written and read; a second one of 1,000,000 overlaps it, both are read, consolidated, and
read again. Each column holds terrazzo's seconds, libtiledb's, and how many times as fast terrazzo is. `SMALL=1` runs a
tenth of the cells.
"""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tiledb
from bench_engine import MILLION, best, folder
from bench_maintenance import timed

import terrazzo as tz

Table = dict[str, Any]
RNG = np.random.default_rng(1)
ZSTD = [tz.filters.Zstd()]
SIDE = 100_000
TEXT = "ascii"


def flat(n: int, offset: int) -> np.ndarray:
    """Distinct places out of 10,000,000,000; different offsets share none."""
    return RNG.permutation(5 * MILLION)[:n] * (10_000_000_000 // (5 * MILLION)) + offset


def plane(n: int, offset: int) -> Table:
    at = flat(n, offset)
    return {"x": at // SIDE, "y": (at * 7919) % SIDE}


def space(n: int, offset: int) -> Table:
    at = flat(n, offset)
    return {"x": at // 10_000_000, "y": at // 10_000 % 1000, "z": (at * 7919) % 10_000}


def points(n: int, _offset: int) -> Table:
    return {name: RNG.random(n) * SIDE for name in "xy"}


def genes(n: int, offset: int) -> Table:
    cells = plane(n, offset)
    return {"gene": names(cells["x"]), "y": cells["y"]}


def labels(n: int, offset: int) -> Table:
    return {"name": names(flat(n, offset) // 1000)}


def moments(n: int, offset: int) -> Table:
    nanoseconds = flat(n, offset) * 10_000_000 + 1_700_000_000_000_000_000
    return {"time": nanoseconds.astype("M8[ns]"), "sensor": RNG.integers(0, 10_000, n)}


def names(numbers: np.ndarray) -> Any:
    return pa.array(np.char.add("gene", np.char.zfill(numbers.astype("U"), 7)))


FILTERS = {
    "byteshuffle": tz.filters.ByteShuffle(), "bitshuffle": tz.filters.BitShuffle(), "delta": tz.filters.Delta(),
    "double delta": tz.filters.DoubleDelta(), "xor": tz.filters.Xor(),
}  # fmt: skip


def filtered(each: object) -> tz.Schema:
    dims = [tz.Dim(name, "int64", (0, SIDE - 1), 1000, filters=[each, *ZSTD]) for name in "xy"]
    return tz.Schema(dims, [number()])


def axes(names: str, high: int = SIDE - 1, tile: int | None = 1000, kind: str = "int64") -> list[tz.Dim]:
    domain = (0.0, float(high + 1)) if kind == "float64" else (0, high)
    return [tz.Dim(name, kind, domain, tile, filters=ZSTD) for name in names]


def number() -> tz.Attr:
    return tz.Attr("v", "float64", filters=ZSTD)


def layouts() -> dict[str, tuple[tz.Schema, Callable[[int, int], Table]]]:
    text = tz.Dim("gene", TEXT, filters=ZSTD)
    when = tz.Dim("time", "datetime_ns", (0, 1 << 62), 86_400_000_000_000, filters=ZSTD)
    return {
        "int64 × 2, col-major": (
            tz.Schema(axes("xy"), [number()], cell_order="col-major", tile_order="col-major"), plane,
        ),
        "int64 × 3": (tz.Schema(axes("xyz", 9999, 100), [number()]), space),
        "float64 × 2": (tz.Schema(axes("xy", tile=1000, kind="float64"), [number()]), points),
        "int64 × 2, hilbert": (tz.Schema(axes("xy", tile=None), [number()], cell_order="hilbert"), plane),
        "float64 × 2, hilbert": (
            tz.Schema(axes("xy", tile=None, kind="float64"), [number()], cell_order="hilbert"), points,
        ),
        "text": (tz.Schema([tz.Dim("name", TEXT, filters=ZSTD)], [number()], allows_duplicates=True), labels),
        "text, int64": (tz.Schema([text, *axes("y")], [number()]), genes),
        "datetime_ns, int64": (tz.Schema([when, *axes(["sensor"], 9999, 10_000)], [number()]), moments),
        "int64 × 2, text attribute": (tz.Schema(axes("xy"), [tz.Attr("t", "utf8", filters=ZSTD)]), plane),
        "int64 × 2, nullable": (tz.Schema(axes("xy"), [tz.Attr("v", "float64", nullable=True, filters=ZSTD)]), plane),
        **{f"int64 × 2, {name} zstd": (filtered(each), plane) for name, each in FILTERS.items()},
        "int64 × 2, 40 attributes": (
            tz.Schema(axes("xy"), [tz.Attr(f"a{i}", "float64", filters=ZSTD) for i in range(40)]), plane,
        ),
    }  # fmt: skip


def table(schema: tz.Schema, place: Callable[[int, int], Table], n: int, offset: int) -> Table:
    cells = place(n, offset)
    for attr in schema.attrs:
        cells[attr.name] = names(RNG.integers(0, 5 * MILLION, n)) if attr.is_var else RNG.random(n)
    return cells


def write_theirs(uri: str, schema: tz.Schema, cells: Table) -> None:
    given = {
        name: np.array(column.to_pylist(), object) if isinstance(column, pa.Array) else column
        for name, column in cells.items()
    }
    dims = [dim.name for dim in schema.dims]
    with tiledb.open(uri, "w") as array:
        array[tuple(given.pop(name) for name in dims)] = given


def read_theirs(uri: str) -> object:
    with tiledb.open(uri) as array:
        return array[:]


def told(ours: float, theirs: float) -> str:
    return f"{ours:.2f} : {theirs:.2f} = {theirs / ours:.1f}"


def row_of(path: Path, name: str, schema: tz.Schema, place: Callable[[int, int], Table]) -> dict[str, str]:
    n = 2 * MILLION // (4 if len(schema.attrs) > 10 else 1)
    first, second = table(schema, place, n, 0), table(schema, place, n // 2, 7)
    ours, theirs, again = (str(path / each) for each in ("ours", "theirs", "again"))
    for uri in (ours, theirs, again):
        tz.create(uri, schema)
    row = {"layout": name}
    wrote = min(timed(lambda uri=uri: tz.open(uri).write(first)) for uri in (ours, again))
    row["write"] = told(wrote, timed(lambda: write_theirs(theirs, schema, first)))

    def read(uri: str = ours) -> str:
        return told(best(lambda: tz.open(uri).read()), best(lambda: read_theirs(uri), 2))

    row["read"] = read()
    for uri in (ours, again):
        tz.open(uri).write(second)
    shutil.rmtree(theirs)
    shutil.copytree(ours, theirs)
    row["read two that overlap"] = read()
    took = min(timed(lambda uri=uri: tz.open(uri).consolidate()) for uri in (ours, again))
    row["consolidate"] = told(took, timed(lambda: tiledb.consolidate(theirs)))
    row["read consolidated"] = read()
    return row


def rows(only: str | None = None) -> list[dict[str, str]]:
    found = []
    for name, (schema, place) in layouts().items():
        if only in {None, name}:
            with folder() as path:
                found.append(row_of(path, name, schema, place))
    return found


if __name__ == "__main__":
    for name in sys.argv[1:] or layouts():
        for each in rows(name):
            print(each, flush=True)
