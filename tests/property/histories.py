"""Random histories of an array, from a seed: what is written, deleted, updated and evolved, and what every instant shows."""

import os
import random
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

import terrazzo as tz


def seeds(n: int) -> range:
    """The first `n`, or what LAW_SEEDS says: a number of them, or the slice "first:end"."""
    start, _, stop = os.environ.get("LAW_SEEDS", str(n)).rpartition(":")
    return range(int(start or 0), int(stop))


LABELS = ["red", "green", "blue"]
WORDS = ["", "a", "b", "ba", "é"]


def sparse_schema(rnd: random.Random) -> tz.Schema:
    dims = [tz.Dim("x", "int32", (0, 30), 5)]
    second = rnd.choice([None, tz.Dim("s", "ascii"), tz.Dim("y", "float64", (0.0, 4.0), 2.0)])
    if second is not None:
        dims.append(second)
    return tz.Schema(
        dims,
        [
            tz.Attr("v", "float64", nullable=rnd.random() < 0.6),
            tz.Attr("k", "int32"),
            tz.Attr("t", "utf8", nullable=rnd.random() < 0.5),
            tz.Attr("l", "int16", var=True, nullable=rnd.random() < 0.5),
            tz.Attr("e", "int8", enum="colours", nullable=rnd.random() < 0.5),
        ],
        enums={"colours": LABELS},
        allows_duplicates=rnd.random() < 0.4,
        capacity=rnd.choice([1, 3, 50]),
        cell_order=rnd.choice(["row-major", "hilbert", "col-major"]),
    )  # fmt: skip


def dense_schema(rnd: random.Random) -> tz.Schema:
    dims = [tz.Dim("x", "int32", (1, 12), rnd.choice([3, 5]))]
    if rnd.random() < 0.6:
        dims.append(tz.Dim("y", "int32", (0, 6), rnd.choice([2, 4])))
    return tz.Schema(
        dims,
        [tz.Attr("k", "int32"), tz.Attr("t", "utf8", nullable=rnd.random() < 0.5)],
        sparse=False,
        cell_order=rnd.choice(["row-major", "col-major"]),
        tile_order=rnd.choice(["row-major", "col-major"]),
    )


def value(rnd: random.Random, attr: Any) -> Any:
    if attr.nullable and rnd.random() < 0.25:
        return None
    match attr.name:
        case "v":
            return rnd.choice([1.0, 2.0, 3.0, float("nan")])
        case "t":
            return rnd.choice(WORDS)
        case "l":
            return [rnd.randint(-3, 3) for _ in range(rnd.randint(0, 3))]
        case "e":
            return rnd.choice(LABELS)
        case _:
            return rnd.randint(0, 4)


def some_cells(rnd: random.Random, schema: tz.Schema, most: int = 12) -> dict[str, Any]:
    places = rnd.sample(range(31), rnd.randint(1, most))
    cells: dict[str, Any] = {"x": np.array(places, np.int32)}
    if schema.has("s"):
        cells["s"] = [rnd.choice("pq") for _ in places]
    if schema.has("y"):
        cells["y"] = [rnd.choice([0.5, 3.0]) for _ in places]
    for attr in schema.attrs:
        cells[attr.name] = [value(rnd, attr) for _ in places]
    return cells


DELETES = [
    "k = 1",
    "v < 2",
    "x > 20 and k < 3",
    "v is null",
    "t = 'a' or k = 0",
    "e = 'red'",
    "e in ('green') and x < 9",
]
MATCHES = ["k = 2", "v > 1", "x < 15", "k = 9", "v is not null", "t = 'zz' or k = 3", "e = 'blue'", None]


def some_values(rnd: random.Random, schema: tz.Schema) -> dict[str, Any]:
    options: list[dict[str, Any]] = [
        {"k": 9},
        {"k": 2},
        {"t": "zz"},
        {"v": 7.5, "k": 1},
        {"e": "blue"},
        {"l": [5, 6]},
    ]
    options += [{name: None} for name in ("v", "t", "e") if schema.has(name) and schema.attr(name).nullable]
    return rnd.choice([each for each in options if all(map(schema.has, each))])


@dataclass
class History:
    """An array to which things happen, in even milliseconds, late writes in odd ones."""

    rnd: random.Random
    array: tz.Array
    time: int = 10
    log: list[Any] = field(default_factory=list)
    evolves: bool = True

    @classmethod
    def sparse(cls, seed: int, uri: str, *, evolves: bool = True) -> "History":
        rnd = random.Random(seed)
        return cls(rnd, tz.create(uri, sparse_schema(rnd), at=1), evolves=evolves)

    @classmethod
    def dense(cls, seed: int, uri: str) -> "History":
        rnd = random.Random(seed)
        return cls(rnd, tz.create(uri, dense_schema(rnd), at=1))

    @property
    def uri(self) -> str:
        return self.array.uri

    def go_on(self, n_steps: int) -> None:
        for _ in range(n_steps):
            self.time += self.rnd.randint(0, 3) * 2
            if self.array.schema.dense:
                self._write_box()
            else:
                self._step()

    def _step(self) -> None:
        choice = self.rnd.random()
        if choice < 0.5:
            self.write()
        elif choice < 0.7:
            self.delete()
        elif choice < 0.9 or not self.evolves:
            self.update()
        else:
            self._evolve()

    def some_time(self) -> int:
        """Mostly now, at times earlier, between what happened then."""
        late = self.rnd.random() < 0.2
        return max(3, self.time - self.rnd.randint(0, 8) * 2 - 1) if late else self.time

    def write(self) -> None:
        at = self.some_time()
        self.array.write(some_cells(self.rnd, self.array.schema), at=at)
        self.log.append(("write", at))

    def delete(self) -> None:
        where = self.rnd.choice(DELETES)
        try:
            self.array.delete(where, at=self.time)
        except tz.InvalidRequestError:  # by an attribute that older fragments lack, or that was dropped
            return
        self.log.append(("delete", self.time, where))

    def update(self) -> None:
        values, where = some_values(self.rnd, self.array.schema), self.rnd.choice(MATCHES)
        try:
            self.array.update(values, where, at=self.time)
        except tz.InvalidRequestError:
            return
        self.log.append(("update", self.time, values, where))

    def _evolve(self) -> None:
        schema = self.array.schema
        dropped = self.rnd.choice(["l", "t", "v", "n"])
        try:
            if not schema.has("n") and self.rnd.random() < 0.7:
                self.array.evolve(add=[tz.Attr("n", "int32", fill=2)], at=self.time)
                self.log.append(("add n", self.time))
            elif schema.has(dropped):
                self.array.evolve(drop=[dropped], at=self.time)
                self.log.append(("drop", dropped, self.time))
        except tz.InvalidRequestError:
            return

    def _write_box(self) -> None:
        region, n = {}, 1
        for dim in self.array.schema.dims:
            low, high = sorted(self.rnd.randint(*dim.domain) for _ in range(2))
            region[dim.name] = (low, high)
            n *= high - low + 1
        at = self.some_time()
        cells = {attr.name: [value(self.rnd, attr) for _ in range(n)] for attr in self.array.schema.attrs}
        self.array.write(cells, region=region, at=at)
        self.log.append(("box", at, region))

    @property
    def instants(self) -> list[int]:
        """Those between which nothing changes: just before, at, and just behind what happened."""
        times = {entry for event in self.log for entry in event if isinstance(entry, int)}
        return sorted({at + step for at in times for step in (-1, 0, 1)} | {self.time + 4})

    @property
    def fragment_names(self) -> list[str]:
        return [str(fragment.name) for fragment in self.array._everything().snapshot.fragments]


class Serial:
    """In place of a pool of threads: for arrays of a few cells, threads take longer than the work."""

    def __init__(self, *_: Any) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def map(self, work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        return [work(item) for item in items]

    def submit(self, job: Callable[[], Any]) -> "Future[Any]":
        done: Future[Any] = Future()
        try:
            done.set_result(job())
        except BaseException as problem:  # as a thread would keep it
            done.set_exception(problem)
        return done


def without_threads(patch: Any) -> None:
    """`patch` is pytest's monkeypatch."""
    patch.setattr("terrazzo.engine.runner.ThreadPoolExecutor", Serial)
    patch.setattr("terrazzo.engine.runner._pool", Serial)
    patch.setattr("terrazzo.engine.runner.cpu_count", lambda: 1)


def shown(uri: str, at: int) -> list[str]:
    """What an instant shows, comparable: rows in no order, NaN equal to NaN."""
    return sorted(map(repr, tz.open(uri, at=at).read().to_pylist()))


def all_shown(uri: str, instants: Iterable[int]) -> dict[int, list[str]]:
    return {at: shown(uri, at) for at in instants}


def differences(before: dict[int, Any], after: dict[int, Any]) -> dict[int, Any]:
    """Per instant that differs: what is gone and what is new."""
    return {
        at: (sorted(set(rows) - set(after[at])), sorted(set(after[at]) - set(rows)))
        for at, rows in before.items()
        if rows != after[at]
    }
