"""How many requests an operation makes, whatever the size of the array. Requests are what a remote store charges for."""

import uuid
from collections import Counter

import numpy as np
import pytest

import terrazzo as tz
from terrazzo.engine.array import Array
from terrazzo.format import keys
from terrazzo.storage import open_store
from terrazzo.testing.stores import CountingStore

LISTINGS = 5  # the root, schemas, commits, footers, metadata


def sparse_array(n_fragments: int, *, cells: int = 100, capacity: int = 10) -> Array:
    """Fragment f holds the cells from f * 1000 on."""
    schema = tz.Schema(
        dims=[tz.Dim("x", "int64", domain=(0, 999_999), tile=1000)],
        attrs=[tz.Attr("v", "int64"), tz.Attr("s", "utf8"), tz.Attr("n", "int32", nullable=True)],
        sparse=True, capacity=capacity,
    )  # fmt: skip
    array = tz.create(f"memory://requests/{uuid.uuid4().hex}", schema)
    for number in range(n_fragments):
        x = np.arange(number * 1000, number * 1000 + cells)
        array.write({"x": x, "v": x, "s": ["text"] * cells, "n": x.astype(np.int32)})
    return array


def counted(array: Array) -> CountingStore:
    return CountingStore(open_store(array.uri))


def files(store: CountingStore, kind: str = "get_ranges") -> Counter[str]:
    """Requests by the name of the file, without the fragment's."""
    return Counter(request.key.rpartition("/")[2] for request in store.requests if request.kind == kind)


@pytest.mark.parametrize("n_fragments", [0, 1, 7, 40])
def test_open_lists_five_folders_and_reads_one_footer_per_fragment(n_fragments: int) -> None:
    store = counted(sparse_array(n_fragments))
    Array(store, None)

    assert store.counts == Counter(
        {"list": LISTINGS, "get": 1, "get_tail": n_fragments}
    )  # the get: one schema


def test_open_reads_every_condition_once_and_metadata_only_when_asked() -> None:
    array = sparse_array(2)
    array.delete("x = 1")
    array.update({"v": 1}, "x = 2")
    array.meta["a"] = 1
    store = counted(array)
    opened = Array(store, None)

    assert store.counts == {"list": LISTINGS, "get": 3, "get_tail": 2}
    store.reset()
    dict(opened.meta)
    assert store.counts == {"get": 1}


def test_an_instant_in_the_past_opens_without_the_footers_of_later_fragments() -> None:
    array = sparse_array(6)
    store = counted(array)
    Array(store, None, at=array.fragments[1].name.start_ms)

    assert store.counts == {"list": LISTINGS, "get": 1, "get_tail": 2}


def test_with_consolidated_footers_open_costs_the_same_whatever_the_number_of_fragments() -> None:
    counts = []
    for n_fragments in (3, 30):
        array = sparse_array(n_fragments)
        array.consolidate_fragment_metadata()
        array.consolidate_commits()
        store = counted(array)
        assert Array(store, None).count() == n_fragments * 100
        counts.append(store.counts)

    assert counts[0] == counts[1] == {"list": LISTINGS, "get": 3}  # the schema, the commits, the footers


def test_refresh_reads_nothing_again() -> None:
    array = sparse_array(5)
    array.delete("x = 1")
    store = counted(array)
    opened = Array(store, None)
    opened.read()
    store.reset()
    opened.refresh()

    assert store.counts == {"list": LISTINGS}
    array.write({"x": [0], "v": [0], "s": ["new"], "n": [0]})
    store.reset()
    opened.refresh()
    assert store.counts == {"list": LISTINGS, "get_tail": 1}


def test_a_column_is_read_from_its_files_alone() -> None:
    store = counted(sparse_array(3))
    opened = Array(store, None)
    store.reset()
    opened.read(columns=["v"])

    assert store.counts == {"get_ranges": 3}
    assert files(store) == {"a0.tdb": 3}
    store.reset()
    opened.read(columns=["s", "n"])
    assert files(store) == {"a1.tdb": 3, "a1_var.tdb": 3, "a2.tdb": 3, "a2_validity.tdb": 3}


def test_a_box_is_read_from_the_tiles_that_touch_it() -> None:
    array = sparse_array(3, cells=1000, capacity=100)
    store = counted(array)
    opened = Array(store, None)
    opened.explain(columns=["v"])
    store.reset()
    whole = opened.read(columns=["v"])
    all_bytes = store.bytes_moved["get_ranges"]
    store.reset()
    found = opened.read(columns=["v"], region={"x": (1050, 1149)})

    assert (whole.num_rows, found.num_rows) == (3000, 100)
    assert files(store) == {"a0.tdb": 1, "d0.tdb": 1}
    touched = {request.key.split("/")[1] for request in store.requests}
    assert touched == {str(array.fragments[1].name)}
    assert store.bytes_moved["get_ranges"] <= 2 * all_bytes * 2 / 30  # two columns, two of thirty tiles


def test_statistics_leave_out_the_tiles_that_a_condition_can_not_match() -> None:
    array = sparse_array(4, cells=1000, capacity=100)
    store = counted(array)
    opened = Array(store, None)
    store.reset()
    found = opened.read(columns=["v"], where="n = 2345")

    assert found.num_rows == 1
    assert files(store) == {"a0.tdb": 1, "a2.tdb": 1, "a2_validity.tdb": 1}
    assert sum(store.bytes_moved.values()) < 2500  # one tile of a hundred cells, not forty


def test_a_count_is_made_from_footers() -> None:
    store = counted(sparse_array(4))
    opened = Array(store, None)
    store.reset()

    assert opened.count() == 400
    assert store.n_requests == 0


def test_explain_reads_no_cell_and_tells_what_a_read_takes() -> None:
    store = counted(sparse_array(4, cells=1000, capacity=100))
    opened = Array(store, None)
    store.reset()
    told = opened.explain(columns=["v", "s"], where="n > 100", region={"x": (0, 1500)})
    metadata = {request.key.rpartition("/")[2] for request in store.requests}

    assert metadata <= {keys.FRAGMENT_METADATA_FILE}
    store.reset()
    opened.read(columns=["v", "s"], where="n > 100", region={"x": (0, 1500)})
    assert store.counts == {"get_ranges": told.requests}
    assert store.bytes_moved["get_ranges"] == told.stored_bytes


def test_a_dense_box_is_read_from_its_tiles_alone() -> None:
    schema = tz.Schema(
        dims=[tz.Dim(name, "int32", domain=(0, 99), tile=10) for name in "xy"],
        attrs=[tz.Attr("v", "int64"), tz.Attr("w", "int64")],
        sparse=False,
    )
    array = tz.create(f"memory://requests/{uuid.uuid4().hex}", schema)
    block = np.arange(10_000).reshape(100, 100)
    array[0:100, 0:100] = {"v": block, "w": block}
    store = counted(array)
    opened = Array(store, None)
    store.reset()
    told = opened.explain(columns=["v"], region={"x": (5, 14), "y": (30, 39)})
    assert store.n_requests == 0
    found = opened.read(columns=["v"], region={"x": (5, 14), "y": (30, 39)})

    assert found.num_rows == 100
    assert sum(cost.n_read for cost in told.fragments) == 2
    assert files(store) == {"a0.tdb": 2}
    assert store.bytes_moved["get_ranges"] == told.stored_bytes < 2200


def test_a_write_puts_its_files_and_one_commit() -> None:
    array = sparse_array(5)
    store = counted(array)
    opened = Array(store, None)
    store.reset()
    opened.write({"x": [0], "v": [0], "s": ["new"], "n": [0]})

    assert store.counts == {
        "put": 8
    }  # v; offsets and values of s; n and its validity; x; metadata; the commit
    assert store.requests[-1].key.endswith(".wrt")


def test_a_delete_looks_again_and_puts_one_file() -> None:
    array = sparse_array(5)
    store = counted(array)
    opened = Array(store, None)
    store.reset()
    opened.delete("x = 3")

    assert store.counts == {"list": LISTINGS, "put": 1}
