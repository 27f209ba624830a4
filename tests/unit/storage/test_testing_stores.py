"""The wrappers of terrazzo.testing do what their names say."""

import time
import uuid

import pytest

from terrazzo.errors import StorageError
from terrazzo.storage import open_store
from terrazzo.testing.stores import CountingStore, DyingStore, FailingStore, LaggingStore, Request


@pytest.fixture
def memory():
    return open_store(f"memory://{uuid.uuid4().hex}")


def test_a_counting_store_counts_requests_and_bytes_by_kind(memory) -> None:
    store = CountingStore(memory)
    store.put("a", [b"12", b"345"])
    with store.open_writer("b") as writer:
        writer.write(b"1234")
    store.get("a")
    store.get_ranges("a", [(0, 2), (3, 1)])
    store.list()
    store.list_level("f")
    store.delete(["a", "b"])

    assert store.counts == {"put": 2, "get": 1, "get_ranges": 1, "list": 2, "delete": 1}
    assert store.bytes_moved == {"put": 9, "get": 5, "get_ranges": 3}
    assert store.requests[:2] == [Request("put", "a"), Request("put", "b")]
    assert store.n_requests == 7

    store.reset()
    assert store.n_requests == 0


def test_a_lagging_store_takes_its_time(memory) -> None:
    store = LaggingStore(memory, 0.05)
    start = time.perf_counter()
    store.list()

    assert time.perf_counter() - start >= 0.05


def test_a_failing_store_fails_the_nth_request_and_no_other(memory) -> None:
    store = FailingStore.nth(memory, 1)
    store.put("a", b"1")

    with pytest.raises(StorageError, match="/b: this put was made to fail"):
        store.put("b", b"1")
    store.put("c", b"1")
    assert [entry.key for entry in store.list()] == ["a", "c"]


def test_a_failing_store_fails_the_nth_of_a_kind(memory) -> None:
    store = FailingStore.nth(memory, 1, "list")
    store.put("a", b"1")
    store.list()

    with pytest.raises(StorageError):
        store.list()
    assert len(store.list()) == 1


def test_a_failing_store_fails_what_its_predicate_picks(memory) -> None:
    store = FailingStore(memory, lambda request, _: request.key.endswith(".wrt"))
    store.put("a.tdb", b"1")

    with pytest.raises(StorageError):
        store.put("a.wrt", b"1")
    with pytest.raises(StorageError), store.open_writer("b.wrt") as writer:
        writer.write(b"1")
    assert [entry.key for entry in memory.list()] == ["a.tdb"]


@pytest.mark.parametrize("puts", range(4))
def test_a_dying_store_does_nothing_after_its_last_put(memory, puts) -> None:
    store = DyingStore(memory, puts_left=puts)
    done = 0
    with pytest.raises(StorageError, match="the writer died"):  # noqa: PT012
        for key in "abcde":
            store.put(key, b"1")
            done += 1

    assert done == puts
    assert [entry.key for entry in memory.list()] == list("abcde"[:puts])
    for call in (
        store.list,
        lambda: store.get("a"),
        lambda: store.delete(["a"]),
        lambda: store.put("x", b""),
    ):
        with pytest.raises(StorageError):
            call()
    assert len(memory.list()) == puts


@pytest.mark.parametrize("lives", range(4))
def test_deletes_can_cost_lives_one_by_one(memory, lives) -> None:
    for key in "abcd":
        memory.put(f"f/{key}", b"1")
    store = DyingStore(memory, puts_left=lives, deletes_count=True)
    with pytest.raises(StorageError):
        store.delete_folder("f")

    assert [entry.key for entry in memory.list("f")] == [f"f/{key}" for key in "abcd"[lives:]]
