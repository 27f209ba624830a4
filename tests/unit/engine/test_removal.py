"""Whole fragments, removed by their times."""

from pathlib import Path

import pytest
import tiledb

import terrazzo as tz

SCHEMA = tz.Schema(
    dims=[tz.Dim("x", "int64", domain=(0, 99), tile=10)], attrs=[tz.Attr("v", "int64")], sparse=True, capacity=4,
    allows_duplicates=True,
)  # fmt: skip


def _array(uri: str) -> tz.Array:
    a = tz.create(uri, SCHEMA, at=1)
    for i in range(1, 5):
        a.write({"x": [i], "v": [i]}, at=10 * i)
    return a


def _values(array: tz.Array) -> list[int]:
    return sorted(array.read(["v"])["v"].to_pylist())


def test_fragments_between_two_instants_go_and_the_others_stay(folder: str) -> None:
    a = _array(folder)
    names = [str(fragment.name) for fragment in a.fragments]
    told = a.delete_fragments(20, 30, dry_run=True)
    assert _values(tz.open(folder)) == [1, 2, 3, 4]
    removed = a.delete_fragments(20, 30)

    assert list(told) == list(removed) == names[1:3]
    assert str(told).startswith("would remove 2 fragments, 2 cells")
    assert _values(a) == _values(tz.open(folder)) == [1, 4]
    assert sorted(path.name for path in Path(folder, "__fragments").iterdir()) == [names[0], names[3]]
    assert tz.check(folder).findings == ()
    with tiledb.open(folder) as array:
        assert sorted(array[:]["v"].tolist()) == [1, 4]


def test_commits_that_stand_in_a_con_are_ignored_from_then_on(folder: str) -> None:
    a = _array(folder)
    a.consolidate_commits()
    a.vacuum(retain=0)
    a.delete_fragments(until=20)

    assert _values(tz.open(folder)) == [3, 4]
    assert len(list(Path(folder, "__commits").glob("*.ign"))) == 1
    assert tz.check(folder).ok
    with tiledb.open(folder) as array:
        assert sorted(array[:]["v"].tolist()) == [3, 4]


def test_fragments_that_reach_beyond_stay_with_all_that_they_replaced(folder: str) -> None:
    a = _array(folder)
    a.consolidate()

    assert not a.delete_fragments(until=30)
    assert _values(tz.open(folder)) == [1, 2, 3, 4]
    assert "nothing" in str(a.delete_fragments(until=30))


def test_what_a_removed_fragment_had_replaced_does_not_come_back(folder: str) -> None:
    a = _array(folder)
    a.consolidate(until=20)
    a.consolidate(until=30)
    report = a.delete_fragments(until=30)

    assert len(report) == 1
    assert len(report.superseded) == 4
    assert _values(a) == _values(tz.open(folder)) == [4]
    assert tz.check(folder).findings == ()
    with tiledb.open(folder) as array:
        assert array[:]["v"].tolist() == [4]


def test_without_a_bound_or_with_bounds_the_wrong_way_round_nothing_goes(uri: str) -> None:
    a = _array(uri)

    with pytest.raises(tz.InvalidRequestError, match="since=0"):
        a.delete_fragments()
    with pytest.raises(tz.InvalidRequestError, match="later than"):
        a.delete_fragments(30, 20)
    assert _values(tz.open(uri)) == [1, 2, 3, 4]
    assert len(a.delete_fragments(since=0)) == 4
    assert not tz.open(uri).count()
