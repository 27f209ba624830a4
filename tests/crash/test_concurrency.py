"""Many processes at a time: no commit is lost, no reading is torn, and a handle shows what it may show."""

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import labour
import numpy as np
import pytest

import terrazzo as tz
from terrazzo.engine import clock
from terrazzo.engine.array import Array
from terrazzo.errors import ConflictError
from terrazzo.format import keys
from terrazzo.storage import open_store
from terrazzo.storage.base import Listing
from terrazzo.testing.stores import Request, WrappedStore

N_WRITERS, N_READERS = 8, 4


def new_array(uri: str, options: dict[str, str] | None = None) -> Array:
    schema = tz.Schema(
        dims=[tz.Dim("x", "int64", domain=(0, labour.RANGE * N_WRITERS - 1), tile=labour.RANGE)],
        attrs=[tz.Attr("v", "int64"), tz.Attr("n", "int32", nullable=True), tz.Attr("s", "utf8")],
        sparse=True, capacity=16,
    )  # fmt: skip
    return tz.create(uri, schema, storage_options=options)


def coordinates(array: Array) -> list[int]:
    return sorted(array.read(columns=["x"])["x"].to_pylist())


def write(array: Array, *coords: int, number: int = 1) -> None:
    array.write(labour.as_cells(array, list(coords), number))


# -- processes -----------------------------------------------------------------------------------------


def run_all(nursery: Any, uri: str, options: dict[str, str] | None, folder: Path, n_steps: int) -> None:
    new_array(uri, options)
    pids = [
        nursery.start("read_all", uri, options, str(folder), reader, N_WRITERS, n_steps)
        for reader in range(N_READERS)
    ]
    pids += [
        nursery.start("write_all", uri, options, str(folder), writer, n_steps) for writer in range(N_WRITERS)
    ]
    for pid in pids:
        nursery.wait(pid, patience_s=400)

    assert labour.progress(str(folder), N_WRITERS, "done") == [n_steps] * N_WRITERS
    for reader in range(N_READERS):
        outcome = json.loads((folder / f"reader-{reader}").read_text())
        assert outcome["problems"] == []
        assert outcome["reads"] > 1
    expected = labour.NOTHING
    for writer in range(N_WRITERS):
        for step in labour.steps_of(writer, n_steps):
            expected = labour.after(expected, step)
    rows = tz.open(uri, storage_options=options).read().to_pylist()
    assert {row["x"]: (row["v"], row["n"], row["s"]) for row in rows} == expected["rows"]
    assert len(rows) == len(expected["rows"])


def test_eight_writers_and_four_readers_on_a_disk(nursery: Any, tmp_path: Path) -> None:
    run_all(nursery, str(tmp_path / "array"), None, tmp_path, n_steps=12)


def test_eight_writers_and_four_readers_on_s3(
    nursery: Any, s3_server: Any, s3_uri: str, tmp_path: Path
) -> None:
    run_all(nursery, s3_uri, s3_server.options, tmp_path, n_steps=3)


# -- handles -------------------------------------------------------------------------------------------


def test_a_handle_shows_its_own_writes_at_once_and_others_after_a_refresh(tmp_path: Path) -> None:
    one = new_array(str(tmp_path / "array"))
    other = tz.open(one.uri)
    write(one, 1)
    other.meta["of"] = "other"
    write(other, 2)

    assert coordinates(one) == [1]
    assert coordinates(other) == [2]
    assert dict(one.meta) == {}
    assert coordinates(one.refresh()) == coordinates(other.refresh()) == [1, 2]
    assert dict(one.meta) == {"of": "other"}


def test_whoever_opens_the_array_after_a_change_sees_it(tmp_path: Path) -> None:
    array = new_array(
        f"memory://concurrency/{uuid.uuid4().hex}"
    )  # where commits follow each other within a millisecond
    for number in range(40):
        write(array, number, number=number)
        assert coordinates(tz.open(array.uri)) == list(range(number + 1))
    array.delete("n >= 20")  # every other is null, and written again one millisecond later

    assert coordinates(tz.open(array.uri)) == coordinates(array)


# -- clocks --------------------------------------------------------------------------------------------


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ms = 1_700_000_000_000
        monkeypatch.setattr(clock, "time", self)

    def time_ns(self) -> int:
        return self.ms * 1_000_000

    def sleep(self, seconds: float) -> None:
        self.ms += round(seconds * 1000)


def test_a_clock_that_goes_backwards_loses_no_write(monkeypatch: pytest.MonkeyPatch) -> None:
    now = Clock(monkeypatch)
    array = new_array(f"memory://concurrency/{uuid.uuid4().hex}")
    write(array, 1, 2, 3, number=1)
    now.ms -= 3_600_000
    write(array, 1, number=2)
    array.update({"v": 7}, "x = 2")
    array.delete("x = 3")
    array.meta["a"] = 1
    array.evolve(add=[tz.Attr("e", "int8", fill=3)])
    expected = [{"x": 1, "v": 2, "n": 2, "s": "s2", "e": 3}, {"x": 2, "v": 7, "n": None, "s": "s1", "e": 3}]

    assert array.read(order="row-major").to_pylist() == expected
    assert array.refresh().read(order="row-major").to_pylist() == expected
    # A new handle stands at its own clock, before all of that; its changes still come after all of it.
    late = tz.open(array.uri)
    assert coordinates(late) == []
    write(late, 1, number=3)
    assert coordinates(late) == [1]
    late.update({"s": "late"}, "v >= 3")
    assert late.read(columns=["v", "s"], order="row-major").to_pylist() == [
        {"v": 3, "s": "late"}, {"v": 7, "s": "late"},
    ]  # fmt: skip
    now.ms += 7_200_000
    assert tz.open(array.uri).read().equals(late.read())
    assert dict(tz.open(array.uri).meta) == {"a": 1}


# -- removal under a reader's eyes ---------------------------------------------------------------------


@dataclass(eq=False)
class MeddlingStore(WrappedStore):
    """Does something once, just before the first request that `when` picks."""

    when: Callable[[Request], bool] = lambda _request: False
    meddle: Callable[[], None] = lambda: None
    done: bool = False

    def before(self, request: Request) -> None:
        if not self.done and self.when(request):
            self.done = True
            self.meddle()


def remove_fragment(array: Array, place: int = 0) -> None:
    """As a vacuum does: the commit first."""
    fragment = array.fragments[place]
    store = open_store(array.uri)
    store.delete([keys.commit_key(fragment.name, keys.CommitKind.WRITE)])
    store.delete_folder(fragment.key)


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_a_fragment_that_is_removed_under_a_reader_is_a_conflict(place: str, tmp_path: Path) -> None:
    uri = f"memory://concurrency/{uuid.uuid4().hex}" if place == "memory" else str(tmp_path / "array")
    array = new_array(uri)
    write(array, 1)
    write(array, 2)
    reader = tz.open(uri)
    remove_fragment(array)

    for read in (reader.read, lambda: list(reader.scan()), lambda: reader.count(where="v > 0")):
        with pytest.raises(ConflictError, match="open the array again"):
            read()
    assert coordinates(reader.refresh()) == [2]


def test_a_dense_fragment_that_is_removed_under_a_reader_is_a_conflict() -> None:
    schema = tz.Schema(
        dims=[tz.Dim("x", "int32", domain=(0, 9), tile=5)], attrs=[tz.Attr("v", "int32")], sparse=False
    )
    array = tz.create(f"memory://concurrency/{uuid.uuid4().hex}", schema)
    array[0:10] = np.arange(10, dtype=np.int32)
    reader = tz.open(array.uri)
    remove_fragment(array)

    with pytest.raises(ConflictError, match="open the array again"):
        reader[0:10]


def test_metadata_that_are_removed_under_a_reader_are_a_conflict() -> None:
    array = new_array(f"memory://concurrency/{uuid.uuid4().hex}")
    array.meta["a"] = 1
    reader = tz.open(array.uri)
    store = open_store(array.uri)
    store.delete(entry.key for entry in store.list(keys.METADATA_FOLDER))

    with pytest.raises(ConflictError, match="open again"):
        reader.meta["a"]


def test_a_vacuum_between_listing_and_reading_costs_another_try() -> None:
    array = new_array(f"memory://concurrency/{uuid.uuid4().hex}")
    write(array, 1)
    write(array, 2)
    store = MeddlingStore(
        open_store(array.uri), lambda request: request.kind == "get_tail", lambda: remove_fragment(array)
    )

    assert coordinates(Array(store, None)) == [2]
    assert store.done


def test_a_commit_without_its_fragment_is_a_conflict_that_names_it() -> None:
    array = new_array(f"memory://concurrency/{uuid.uuid4().hex}")
    write(array, 1)
    open_store(array.uri).delete_folder(array.fragments[0].key)

    told = f"{array.fragments[0].name} is committed, but its files are gone"
    with pytest.raises(ConflictError, match=told):
        tz.open(array.uri).read()


@dataclass(eq=False)
class EarlyStore(WrappedStore):
    """Lists the schemas, once, as they were when the store was made: as if that listing had been the first of all."""

    def __post_init__(self) -> None:
        self.early: Listing | None = self.inner.list_level(keys.SCHEMA_FOLDER)

    def list_level(self, prefix: str = "") -> Listing:
        if prefix == keys.SCHEMA_FOLDER and self.early is not None:
            early, self.early = self.early, None
            return early
        return super().list_level(prefix)


@pytest.mark.parametrize("change", ["write", "update", "delete"])
def test_a_schema_that_appears_between_two_listings_is_found(change: str) -> None:
    array = new_array(f"memory://concurrency/{uuid.uuid4().hex}")
    if change != "delete":
        write(array, 1)
    store = EarlyStore(open_store(array.uri))
    array.evolve(add=[tz.Attr("e", "int8", fill=3)])
    if change == "write":
        write(array, 2)
    elif change == "update":
        array.update({"v": 5}, "e = 3")
    else:
        array.delete("e = 3")

    found = Array(store, None)
    assert store.early is None
    assert found.schema.has("e")
    assert found.read().equals(array.read())
