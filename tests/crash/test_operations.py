"""Every operation, stopped before each of its puts: the array opens, and shows all of the operation or nothing."""

import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import terrazzo as tz
from terrazzo.engine import array as array_module
from terrazzo.engine import groups
from terrazzo.engine.array import Array
from terrazzo.engine.write import write_sparse
from terrazzo.errors import StorageError
from terrazzo.storage import open_store
from terrazzo.storage.base import Store
from terrazzo.testing.stores import CountingStore, DyingStore

SPARSE = tz.Schema(
    dims=[tz.Dim("x", "int64", domain=(0, 99), tile=10)],
    attrs=[
        tz.Attr("v", "float64"), tz.Attr("n", "int32", nullable=True), tz.Attr("s", "utf8"),
        tz.Attr("k", "int8", enum="kinds"),
    ],
    enums={"kinds": ["a", "b"]}, sparse=True, capacity=4,
)  # fmt: skip
DENSE = tz.Schema(
    dims=[tz.Dim("x", "int32", domain=(0, 15), tile=4), tz.Dim("y", "int32", domain=(0, 15), tile=4)],
    attrs=[tz.Attr("v", "float64"), tz.Attr("s", "utf8")],
    sparse=False,
)


def cells(start: int, stop: int) -> dict[str, Any]:
    n = stop - start
    return {
        "x": np.arange(start, stop), "v": [float("nan") if i % 5 == 0 else i / 2 for i in range(start, stop)],
        "n": pa.array([None if i % 3 == 0 else i for i in range(start, stop)], pa.int32()), "s": ["text"] * n,
        "k": ["a", "b"] * (n // 2) + ["a"] * (n % 2),
    }  # fmt: skip


def sparse_array(uri: str, *, duplicates: bool = False) -> None:
    schema = SPARSE if not duplicates else _with_duplicates()
    array = tz.create(uri, schema)
    array.write(cells(0, 10), at=1000)
    array.write(cells(5, 20), at=2000)
    array.update({"s": "updated"}, "x between 8 and 9")
    array.meta["unit"] = "K"


def _with_duplicates() -> tz.Schema:
    return tz.Schema(
        dims=SPARSE.dims, attrs=SPARSE.attrs, enums={"kinds": ["a", "b"]}, sparse=True, allows_duplicates=True, capacity=4
    )  # fmt: skip


def sparse_with_duplicates(uri: str) -> None:
    sparse_array(uri, duplicates=True)


def dense_array(uri: str) -> None:
    array = tz.create(uri, DENSE)
    array[0:16, 0:16] = {"v": np.arange(256.0).reshape(16, 16), "s": np.full((16, 16), "old", object)}


def nothing(uri: str) -> None:
    """The place is empty."""


def state(uri: str) -> Any:
    """All that a fresh reader can see; None where there is no array."""
    if not tz.exists(uri):
        return None
    array = tz.open(uri)
    names = [field.name for field in array.schema.fields]
    rows = sorted(repr(tuple(row[name] for name in names)) for row in array.read().to_pylist())
    assert len(rows) == array.count()
    labels = {name: enum.values.to_pylist() for name, enum in array.schema.enums.items()}
    return names, rows, dict(array.meta), labels


# -- operations, on a store ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Operation:
    before: Callable[[str], None]
    run: Callable[[Store, str], None]
    puts: int  # at least; so that a test which kills nothing is noticed


def on_array(work: Callable[[Array], None]) -> Callable[[Store, str], None]:
    return lambda store, _uri: work(Array(store, None))


def create(store: Store, uri: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(array_module, "open_store", lambda *_: store)
        tz.create(uri, SPARSE)


def write_many(store: Store, _uri: str) -> None:
    """Four fragments under one commit."""
    snapshot = Array(store, None)._view.snapshot
    batches = [pa.table(cells(start, start + 10)) for start in range(30, 70, 10)]
    written = write_sparse(
        store, snapshot.schema, snapshot.schema_name, batches, snapshot.newest_ms + 1, None, fragment_size=1
    )
    assert len(written) == 4


OPERATIONS = {
    "create": Operation(nothing, create, 2),
    "write": Operation(sparse_array, on_array(lambda a: a.write(cells(15, 30))), 9),
    "write in the past": Operation(sparse_array, on_array(lambda a: a.write(cells(15, 30), at=1500)), 9),
    "write of many fragments": Operation(sparse_array, write_many, 33),
    "write of a box": Operation(
        dense_array,
        on_array(
            lambda a: a.write({"v": np.zeros((5, 5)), "s": np.full((5, 5), "new", object)}, region={"x": (3, 7), "y": (3, 7)})
        ),
        5,
    ),
    "delete": Operation(sparse_array, on_array(lambda a: a.delete("x > 12")), 1),
    "delete that spares": Operation(sparse_array, on_array(lambda a: a.delete("v > 3 and n < 100")), 9),
    "delete with duplicates": Operation(sparse_with_duplicates, on_array(lambda a: a.delete("n > 3")), 9),
    "update": Operation(sparse_array, on_array(lambda a: a.update({"v": -1.0, "n": None}, "x < 7")), 1),
    "portable update": Operation(
        sparse_array, on_array(lambda a: a.update({"v": -1.0}, "x < 7", portable=True)), 9
    ),
    "portable update with duplicates": Operation(
        sparse_with_duplicates, on_array(lambda a: a.update({"v": -1.0}, "v < 7", portable=True)), 9
    ),
    "dense update": Operation(dense_array, on_array(lambda a: a.update({"v": 0.0}, "v between 20 and 90")), 5),
    "upsert": Operation(sparse_array, on_array(lambda a: a.upsert(cells(3, 25))), 9),
    "evolve": Operation(
        sparse_array,
        on_array(
            lambda a: a.evolve(
                add=[tz.Attr("colour", "int8", enum="colours")], drop=["n"],
                add_enum={"colours": ["red", "blue"]}, extend_enum={"kinds": ["c"]},
            )
        ),
        3,
    ),
    "metadata": Operation(sparse_array, on_array(lambda a: a.meta.update(unit="°C", station=7)), 1),
    "removal of metadata": Operation(sparse_array, on_array(lambda a: a.meta.clear()), 1),
}  # fmt: skip


ON_DISK = ("create", "write", "delete that spares", "portable update with duplicates", "evolve")


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_that_is_cut_short_did_not_happen_and_can_be_tried_again(name: str) -> None:
    uri = f"memory://crash/{uuid.uuid4().hex}"
    n_puts, after = whole(OPERATIONS[name], f"{uri}-whole")
    for puts in range(n_puts + 1):
        cut_short(OPERATIONS[name], f"{uri}-{puts}", puts, n_puts, after)


@pytest.mark.parametrize("name", ON_DISK)
def test_an_operation_that_is_cut_short_on_a_disk_did_not_happen(name: str, tmp_path: Path) -> None:
    n_puts, after = whole(OPERATIONS[name], str(tmp_path / "whole"))
    for puts in sorted({0, 1, n_puts // 2, n_puts - 1, n_puts}):
        cut_short(OPERATIONS[name], str(tmp_path / f"array-{puts}"), puts, n_puts, after)


def whole(operation: Operation, uri: str) -> tuple[int, Any]:
    """How many puts the operation makes, and what it comes to."""
    operation.before(uri)
    store = CountingStore(open_store(uri))
    operation.run(store, uri)
    n_puts = store.counts["put"]
    assert n_puts >= operation.puts
    return n_puts, state(uri)


def cut_short(operation: Operation, uri: str, puts: int, n_puts: int, after: Any) -> None:
    operation.before(uri)
    before = state(uri)
    assert before != after
    with suppress(StorageError):
        operation.run(DyingStore(open_store(uri), puts_left=puts), uri)

    assert state(uri) == (after if puts == n_puts else before)
    if puts < n_puts:
        operation.run(open_store(uri), uri)
        assert state(uri) == after


def test_a_group_that_lost_its_writer_has_its_members_or_the_new_one_too(tmp_path: Path) -> None:
    for puts in (0, 1):
        root = tmp_path / f"group-{puts}"
        tz.Group.create(str(root)).meta["a"] = 1
        for name in ("one", "two"):
            tz.create(str(root / name), SPARSE)
        tz.Group(str(root)).add("one")
        for attempt in ("dying", "well"):
            group = tz.Group(str(root))
            if attempt == "dying":
                group._store = DyingStore(group._store, puts_left=puts)
            with suppress(StorageError):
                group.add("two", name="second")

            expected = {"one", "second"} if puts or attempt == "well" else {"one"}
            assert set(tz.Group(str(root))) == expected
            if expected == {"one", "second"}:
                break


def test_the_creation_of_a_group_is_one_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CountingStore(open_store(str(tmp_path / "group")))
    monkeypatch.setattr(groups, "open_store", lambda *_: store)
    tz.Group.create(str(tmp_path / "group"))

    assert store.counts["put"] == 1
