"""Restore: what was shown at an instant is shown again, and nothing of the history is lost."""

from typing import Any

import numpy as np
import pytest
import tiledb

import terrazzo as tz
from terrazzo.engine.restore import restore
from terrazzo.engine.session import next_time

DIMS = {
    "int64": (tz.Dim("x", "int64", domain=(-99, 99), tile=10), int),
    "float64": (tz.Dim("x", "float64", domain=(-99.0, 99.0), tile=10.0), float),
    "ascii": (tz.Dim("x", "ascii"), lambda i: f"k{i:03}"),
    "uint8": (tz.Dim("x", "uint8", domain=(0, 99), tile=10), int),
}


def _rows(array: tz.Array, names: tuple[str, ...] = ("x", "v", "t")) -> list[tuple[Any, ...]]:
    table = array.read(list(names))
    return sorted(zip(*(table[name].to_pylist() for name in names), strict=True), key=repr)


@pytest.mark.parametrize("allows_duplicates", [False, True])
@pytest.mark.parametrize("kind", DIMS)
def test_a_sparse_array_shows_again_what_it_showed(folder: str, kind: str, allows_duplicates: bool) -> None:
    dim, at = DIMS[kind]
    schema = tz.Schema(
        dims=[dim], attrs=[tz.Attr("v", "int64"), tz.Attr("t", "utf8", nullable=True)], sparse=True, capacity=3,
        allows_duplicates=allows_duplicates,
    )  # fmt: skip
    a = tz.create(folder, schema, at=1)
    a.write({"x": [at(i) for i in range(6)], "v": list(range(6)), "t": ["a", None] * 3}, at=10)
    a.update({"v": 77}, "v = 1", at=15)
    a.write({"x": [at(i) for i in range(4, 8)], "v": [40, 50, 60, 70], "t": ["b"] * 4}, at=20)
    then = _rows(a)
    a.delete("v >= 40", at=30)
    a.write({"x": [at(9)], "v": [9], "t": [None]}, at=40)
    before = _rows(a)
    a.restore(25)

    assert _rows(a) == then
    assert _rows(tz.open(folder)) == then
    assert _rows(tz.open(folder, at=40)) == before
    assert _rows(tz.open(folder, at=20)) == then
    assert a.check(deep=True).ok
    with tiledb.open(folder) as array:
        assert sorted(array[:]["v"].tolist()) == sorted(v for _, v, _ in then)
    a.restore(40)
    assert _rows(tz.open(folder)) == before


def test_an_empty_past_is_one_delete(folder: str) -> None:
    schema = tz.Schema(
        dims=[tz.Dim("x", "int64", domain=(0, 9), tile=5)], attrs=[tz.Attr("v", "int64")], sparse=True
    )
    a = tz.create(folder, schema, at=1)
    a.write({"x": [1, 2], "v": [1, 2]}, at=10)
    a.restore(5)

    assert a.count() == tz.open(folder).count() == 0
    assert len(tz.open(folder).fragments) == 1
    assert tz.open(folder, at=10).count() == 2
    with tiledb.open(folder) as array:
        assert not len(array[:]["v"])


def test_attributes_added_since_get_their_fill_values_and_dropped_ones_stay_away(uri: str) -> None:
    schema = tz.Schema(
        dims=[tz.Dim("x", "int64", domain=(0, 9), tile=5)],
        attrs=[tz.Attr("v", "int64"), tz.Attr("old", "int64")],
        sparse=True,
    )
    a = tz.create(uri, schema, at=1)
    a.write({"x": [1, 2], "v": [1, 2], "old": [8, 9]}, at=10)
    a.evolve(add=[tz.Attr("w", "float32", nullable=True)], drop=["old"], at=20)
    a.write({"x": [1], "v": [5], "w": [0.5]}, at=30)
    a.restore(10)

    assert _rows(a, ("x", "v", "w")) == [(1, 1, None), (2, 2, None)]


def test_a_restore_of_the_present_changes_nothing(uri: str) -> None:
    schema = tz.Schema(
        dims=[tz.Dim("x", "int64", domain=(0, 9), tile=5)], attrs=[tz.Attr("v", "int64")], sparse=True
    )
    a = tz.create(uri, schema, at=1)
    a.write({"x": [1, 2], "v": [1, 2]}, at=10)
    a.restore(10)

    assert [event.kind for event in a.history()] == ["create", "write"]
    with pytest.raises(tz.InvalidRequestError, match="not an instant"):
        a.restore("yesterday")
    with pytest.raises(tz.InvalidRequestError, match="cannot be written"):
        tz.open(uri, at=10).restore(5)


def test_what_does_not_fit_the_memory_becomes_several_fragments_under_one_commit(folder: str) -> None:
    schema = tz.Schema(
        dims=[tz.Dim("x", "int64", domain=(0, 999_999), tile=1000)],
        attrs=[tz.Attr("v", "int64")],
        sparse=True,
        capacity=500,
    )
    a = tz.create(folder, schema, at=1)
    n = 30_000
    a.write({"x": np.arange(n), "v": np.arange(n)}, at=10)
    a.write({"x": np.arange(0, n, 2), "v": np.arange(0, n, 2) * 10}, at=20)
    a.delete("x >= 0", at=30)
    a.restore(20, memory=1)

    fragments = [f for f in a.fragments if f.name.start_ms > 30]
    assert len(fragments) > 3
    assert a.count() == n
    assert int(np.sum(a.read(["v"])["v"].to_numpy())) == n * (n - 1) // 2 + 9 * sum(range(0, n, 2))
    with tiledb.open(folder) as array:
        assert len(array[:]["v"]) == n


@pytest.mark.parametrize("memory", ["1GiB", 1])
def test_a_dense_array_shows_again_what_it_showed(folder: str, memory: int | str) -> None:
    schema = tz.Schema(
        dims=[tz.Dim("x", "int32", domain=(1, 200), tile=7), tz.Dim("y", "int32", domain=(0, 199), tile=9)],
        attrs=[tz.Attr("v", "int64")],
        sparse=False,
    )
    a = tz.create(folder, schema, at=1)
    a.write({"v": np.arange(100 * 100).reshape(100, 100)}, region={"x": (11, 110), "y": (10, 109)}, at=10)
    then = a[1:201, 0:200]
    a.write({"v": np.zeros((150, 120), np.int64)}, region={"x": (1, 150), "y": (50, 169)}, at=20)
    before = a[1:201, 0:200]
    a.restore(10, memory=memory)

    np.testing.assert_array_equal(a[1:201, 0:200], then)
    np.testing.assert_array_equal(tz.open(folder)[1:201, 0:200], then)
    np.testing.assert_array_equal(tz.open(folder, at=20)[1:201, 0:200], before)
    assert len(a.fragments) == 3 if memory == "1GiB" else len(a.fragments) > 3
    with tiledb.open(folder) as array:
        np.testing.assert_array_equal(
            array[:, :]["v"] if isinstance(array[:, :], dict) else array[:, :], then
        )


def test_what_a_consolidation_replaced_can_be_restored(folder: str) -> None:
    schema = tz.Schema(
        dims=[tz.Dim("x", "int64", domain=(0, 9), tile=5)], attrs=[tz.Attr("v", "int64")], sparse=True
    )
    a = tz.create(folder, schema, at=1)
    a.write({"x": [1, 2], "v": [1, 2]}, at=10)
    a.update({"v": 5}, "x = 1", at=20)
    a.delete("x = 2", at=30)
    a.write({"x": [3], "v": [3]}, at=40)
    a.consolidate()
    a.vacuum(retain=0)
    a.restore(25)

    assert _rows(a, ("x", "v")) == [(1, 5), (2, 2)]
    with tiledb.open(folder) as array:
        assert dict(zip(array[:]["x"].tolist(), array[:]["v"].tolist(), strict=True)) == {1: 5, 2: 2}


def test_restore_leaves_no_folder_behind_when_it_fails(uri: str) -> None:
    schema = tz.Schema(
        dims=[tz.Dim("x", "int64", domain=(0, 9), tile=5)], attrs=[tz.Attr("v", "int64")], sparse=True
    )
    a = tz.create(uri, schema, at=1)
    a.write({"x": [1, 2], "v": [1, 2]}, at=10)
    a.delete("x = 1", at=20)
    view = a._view

    class FullError(Exception):
        pass

    def refuse(*_: object, **__: object) -> None:
        raise FullError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("terrazzo.engine.restore.put_fragment", refuse)
        with pytest.raises(FullError):
            restore(view, 10, next_time(view.snapshot), 1 << 20)

    assert len(tz.open(uri).fragments) == 1
