"""Deletes, updates and evolutions meet what is in the array, whoever put it there and whenever it is dated."""

import uuid

import numpy as np
import pytest

import terrazzo as tz
from terrazzo.engine import clock
from terrazzo.engine.array import Array
from terrazzo.errors import InvalidRequestError
from terrazzo.storage import open_store


def new_array(*attrs: tz.Attr, duplicates: bool = False) -> Array:
    schema = tz.Schema(
        dims=[tz.Dim("x", "int64", domain=(0, 99), tile=10)],
        attrs=attrs or [tz.Attr("v", "int32", nullable=True)],
        sparse=True, allows_duplicates=duplicates,
    )  # fmt: skip
    return tz.create(f"memory://changes/{uuid.uuid4().hex}", schema)


def cells(array: Array) -> list[tuple]:
    return sorted((tuple(row.values()) for row in array.read().to_pylist()), key=repr)


def at(array: Array, ms: int) -> Array:
    return Array(open_store(array.uri), None, at=ms)


# -- other handles -------------------------------------------------------------------------------------


def test_a_delete_spares_the_nulls_that_another_handle_wrote_since() -> None:
    one = new_array()
    other = tz.open(one.uri)
    other.write({"x": [1, 2], "v": [None, 5]})
    one.delete("v > 3")

    assert cells(one) == [(1, None)]
    assert cells(tz.open(one.uri)) == [(1, None)]


def test_a_portable_update_does_not_bring_back_what_another_handle_replaced() -> None:
    one = new_array(tz.Attr("v", "int32"), tz.Attr("w", "int32"))
    one.write({"x": [1], "v": [1], "w": [1]})
    other = tz.open(one.uri)
    one.write({"x": [1], "v": [2], "w": [2]})
    other.update({"w": 0}, "v = 1", portable=True)

    assert cells(tz.open(one.uri)) == [(1, 2, 2)]


def test_two_handles_that_evolve_keep_the_attributes_of_both() -> None:
    one = new_array()
    other = tz.open(one.uri)
    one.evolve(add=[tz.Attr("a", "int8")])
    other.evolve(add=[tz.Attr("b", "int8")])

    assert [attr.name for attr in tz.open(one.uri).schema.attrs] == ["v", "a", "b"]


def test_a_handle_that_shows_a_part_of_the_cells_does_not_change_them() -> None:
    array = new_array()
    array.write({"x": [1], "v": [None]}, at=100)
    part = Array(open_store(array.uri), None, since=200)

    with pytest.raises(InvalidRequestError, match="since="):
        part.delete("v > 3")
    with pytest.raises(InvalidRequestError, match="since="):
        part.update({"v": 1}, "x = 1", portable=True)
    assert cells(tz.open(array.uri)) == [(1, None)]


def test_a_write_before_the_window_does_not_show_in_it() -> None:
    array = new_array()
    part = Array(open_store(array.uri), None, since=200)
    part.write({"x": [1], "v": [1]}, at=100)

    assert cells(part) == []


def test_clocks_ahead_of_this_one_lose_no_evolution(monkeypatch: pytest.MonkeyPatch) -> None:
    one = new_array()
    one.evolve(add=[tz.Attr("a", "int8")])
    now = clock.now_ms()
    monkeypatch.setattr("terrazzo.engine.array.now_ms", lambda: now - 60_000)
    monkeypatch.setattr("terrazzo.engine.session.now_ms", lambda: now - 60_000)
    tz.open(one.uri).evolve(add=[tz.Attr("b", "int8")])
    monkeypatch.undo()

    assert [attr.name for attr in one.refresh().schema.attrs] == ["v", "a", "b"]


# -- dates in the past ---------------------------------------------------------------------------------


@pytest.mark.parametrize("duplicates", [False, True])
def test_a_delete_in_the_past_writes_no_cell_of_later_times_again(duplicates: bool) -> None:
    array = new_array(duplicates=duplicates)
    array.write({"x": [1, 2], "v": [None, 5]}, at=100)
    array.write({"x": [3], "v": [None]}, at=300)
    array.delete("v > 3", at=200)

    assert cells(array) == [(1, None), (3, None)]
    assert cells(at(array, 250)) == [(1, None)]


@pytest.mark.parametrize("duplicates", [False, True])
def test_a_portable_update_in_the_past_changes_the_cells_of_its_time(duplicates: bool) -> None:
    array = new_array(duplicates=duplicates)
    array.write({"x": [1], "v": [1]}, at=100)
    array.write({"x": [3], "v": [1]}, at=300)
    array.update({"v": 7}, "v = 1", at=200, portable=True)

    assert cells(array) == [(1, 7), (3, 1)]
    assert cells(at(array, 250)) == [(1, 7)]


def test_a_change_in_the_past_can_not_name_what_was_not_there() -> None:
    array = new_array()
    array.evolve(add=[tz.Attr("a", "int8")])

    with pytest.raises(InvalidRequestError, match="'a' was not there at 100; choose a later instant"):
        array.update({"a": 1}, "x = 1", at=100)
    with pytest.raises(InvalidRequestError, match="'a' was not there at 100"):
        array.delete("a = 1", at=100)


def test_an_evolution_in_the_past_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="not after the present schema"):
        new_array().evolve(add=[tz.Attr("a", "int8")], at=100)


def test_a_dense_update_in_the_past_is_refused() -> None:
    schema = tz.Schema(
        dims=[tz.Dim("x", "int32", domain=(0, 9), tile=5)], attrs=[tz.Attr("v", "int32")], sparse=False
    )
    array = tz.create(f"memory://changes/{uuid.uuid4().hex}", schema)
    array[0:10] = np.arange(10, dtype=np.int32)

    with pytest.raises(InvalidRequestError, match="cannot be dated 100, before the latest write"):
        array.update({"v": 0}, "x = 1", at=100)
    array.update({"v": 0}, "x = 1")
    assert array[0:3].tolist() == [0, 0, 2]


def test_of_two_writes_of_the_same_instant_the_later_one_wins() -> None:
    array = new_array()
    for number in range(20):  # names are drawn by chance: one write proves nothing
        array.write({"x": [1], "v": [number]}, at=100)
        array.write({"x": [2], "v": [number]}, at=200)

        assert cells(array) == [(1, number), (2, number)]


def test_an_update_counts_for_cells_of_its_own_instant() -> None:
    for portable in (False, True):
        for _ in range(8):
            array = new_array()
            array.write({"x": [1], "v": [1]}, at=100)
            clock._counters.clear()  # as another process would
            array.update({"v": 2}, "x = 1", at=100, portable=portable)

            assert cells(array) == [(1, 2)]


# -- names that are given away again -------------------------------------------------------------------


def test_an_update_says_nothing_about_another_attribute_of_the_same_name() -> None:
    array = new_array(tz.Attr("v", "int32"), tz.Attr("w", "float64"))
    array.write({"x": [1], "v": [1], "w": [1.5]})
    array.update({"w": 2.5}, "x = 1")
    array.evolve(drop=["w"])
    array.evolve(add=[tz.Attr("w", "int8", fill=4)])

    assert cells(array) == [(1, 1, 4)]
    assert cells(tz.open(array.uri)) == [(1, 1, 4)]


def test_a_name_that_conditions_test_can_not_be_given_to_another_type() -> None:
    array = new_array(tz.Attr("v", "int32"), tz.Attr("w", "float64"))
    array.delete("w > 1")
    array.evolve(drop=["w"], force=True)

    with pytest.raises(InvalidRequestError, match="choose another name"):
        array.evolve(add=[tz.Attr("w", "int8")])
    array.evolve(add=[tz.Attr("w", "float64")])


def test_cells_that_an_update_gave_an_attribute_are_the_only_ones_that_have_it() -> None:
    # An old handle writes a fragment without the new attribute, dated before a delete that tests it.
    array = new_array(tz.Attr("v", "int32"))
    old = tz.open(array.uri)
    array.evolve(add=[tz.Attr("w", "int32", fill=9)])
    array.update({"w": 1}, "x = 1")
    array.delete("w = 0")
    old.write({"x": [1, 2], "v": [1, 2]}, at=100)

    # What libtiledb does with cells that lack a tested attribute: it removes them.
    assert cells(array.refresh()) == [(1, 1, 1)]
