"""Fragments on their way to a store: streamed while they are encoded, and gone again if anything fails."""

import uuid
from pathlib import Path

import numpy as np
import pytest

import terrazzo as tz
from terrazzo.engine.array import Array
from terrazzo.engine.columns import Column
from terrazzo.engine.encode import EncodedFragment, encode_dense
from terrazzo.errors import InvalidRequestError, StorageError
from terrazzo.format.keys import TimestampedName
from terrazzo.storage import open_store
from terrazzo.testing.stores import CountingStore, FailingStore

SCHEMA = tz.Schema(
    dims=[tz.Dim("x", "int32", domain=(0, 7), tile=2)],
    attrs=[tz.Attr("v", "int64", nullable=True), tz.Attr("s", "utf8")],
    sparse=False,
)


def encoded(n_tiles: int = 3, cells: int = 100_000) -> EncodedFragment:
    """Tiles of which each takes a job of its own, and which no filter changes."""
    extent = cells
    schema = tz.Schema(
        dims=[tz.Dim("x", "int64", domain=(0, 10 * extent - 1), tile=extent)],
        attrs=[tz.Attr("v", "int64", filters=[])], sparse=False,
    )  # fmt: skip
    name = TimestampedName(1, 1, "0" * 32, 22)
    column = Column(np.arange(n_tiles * cells))
    return encode_dense(name, schema, "schema", {"v": column}, ((0, n_tiles * cells - 1),), cells, None)


def test_a_file_hands_out_its_bytes_once() -> None:
    fragment = encoded()
    (file,) = fragment.files
    taken = [b"".join(pieces) for pieces in file]

    with pytest.raises(RuntimeError, match=r"a0\.tdb have been taken already"):
        list(file)
    assert file.sizes == [len(tile) for tile in taken]
    assert file.offsets.tolist() == [0, len(taken[0]), len(taken[0]) + len(taken[1])]
    assert fragment.fragment.footer.file_sizes[0] == sum(map(len, taken))


def test_there_are_no_metadata_of_a_fragment_that_was_not_put() -> None:
    fragment = encoded()
    next(iter(fragment.files[0]))

    with pytest.raises(RuntimeError, match=r"a0\.tdb of .* has not been put"):
        _ = fragment.metadata


@pytest.mark.parametrize("number", range(5))
def test_a_fragment_that_cannot_be_put_leaves_nothing_behind(number: int) -> None:
    uri = f"memory://{uuid.uuid4().hex}"
    tz.create(uri, SCHEMA)
    inner = open_store(uri)
    before = inner.list_recursive()
    store = FailingStore.nth(inner, number, "put")
    array = Array(store, None)

    with pytest.raises(StorageError, match="made to fail"):
        array[0:8] = {"v": np.arange(8), "s": np.full(8, "text", object)}

    assert inner.list_recursive() == before


def test_cells_that_cannot_be_encoded_leave_nothing_behind(tmp_path: Path) -> None:
    late = [tz.filters.Zstd(), tz.filters.Rle()]  # of text it must be the first
    schema = tz.Schema(
        dims=[tz.Dim("x", "int32", domain=(0, 7), tile=2)],
        attrs=[tz.Attr("v", "int64"), tz.Attr("s", "utf8", filters=late)], sparse=False,
    )  # fmt: skip
    array = tz.create(str(tmp_path / "array"), schema)

    with pytest.raises(InvalidRequestError, match="must be the first filter"):
        array[0:8] = {"v": np.arange(8), "s": np.full(8, "text", object)}

    assert open_store(str(tmp_path / "array")).list_recursive("__fragments") == []
    assert list((tmp_path / "array" / "__fragments").glob("*")) == []


def test_metadata_are_put_behind_all_data_and_in_front_of_the_commit() -> None:
    uri = f"memory://{uuid.uuid4().hex}"
    tz.create(uri, SCHEMA)
    store = CountingStore(open_store(uri))
    array = Array(store, None)
    store.reset()
    array[0:8] = {"v": np.arange(8), "s": np.full(8, "text", object)}

    puts = [request.key.rpartition("/")[2] for request in store.requests if request.kind == "put"]
    assert sorted(puts[:-2]) == ["a0.tdb", "a0_validity.tdb", "a1.tdb", "a1_var.tdb"]
    assert puts[-2] == "__fragment_metadata.tdb"
    assert puts[-1].endswith(".wrt")
