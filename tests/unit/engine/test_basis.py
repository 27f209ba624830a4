"""Changes that were computed from what could be seen: when they may still be committed."""

import numpy as np
import pytest

import terrazzo as tz
from terrazzo.engine.basis import Basis, committed


@pytest.fixture
def array(tmp_path):
    made = tz.create(
        str(tmp_path / "a"), tz.Schema([tz.Dim("x", "int64", (0, 99), 10)], [tz.Attr("v", "int64")])
    )
    for time in (10, 20):
        made.write({"x": np.arange(5) + time, "v": np.arange(5)}, at=time)
    return made


@pytest.fixture
def basis(array):
    ledger = committed(array.view.store)
    return Basis.of(array.latest(), ledger)


def other(array):
    return tz.open(array.uri)


def test_a_change_that_nothing_crossed_is_committed(array, basis):
    written = basis.bulk().run({"x": [10], "v": [100]})
    basis.check()
    basis.bulk().commit([written])

    assert array.refresh().read(where="v = 100").num_rows == 1


@pytest.mark.parametrize(
    "cross",
    [
        lambda array: other(array).write({"x": [10], "v": [7]}, at=15),
        lambda array: other(array).delete("x = 10", at=15),
        lambda array: other(array).update({"v": 7}, "x = 10", at=15),
        lambda array: other(array).delete_fragments(until=10),
    ],
    ids=["write", "delete", "update", "removal"],
)
def test_what_was_committed_earlier_and_not_seen_is_a_conflict(array, basis, cross):
    cross(array)

    with pytest.raises(tz.ConflictError, match="try again"):
        basis.check()


@pytest.mark.parametrize(
    "cross",
    [
        lambda array, later: other(array).write({"x": [10], "v": [7]}, at=later),
        lambda array, later: other(array).delete("x = 10", at=later),
        lambda array, later: other(array).consolidate(),
        lambda array, later: other(array).consolidate_commits(),
    ],
    ids=["write", "delete", "consolidation", "commits"],
)
def test_what_comes_on_top_or_changes_no_cell_is_no_conflict(array, basis, cross):
    cross(array, basis.time_ms + 10)

    basis.check()


def test_of_two_changes_of_the_same_cells_one_has_to_be_computed_again(array, basis):
    rival = Basis.of(array.latest(), committed(array.view.store), basis.time_ms + 50)
    bulk = rival.bulk()
    bulk.commit([bulk.run({"x": [10], "v": [8]})])

    with pytest.raises(tz.ConflictError, match="was written by another process"):
        basis.check()
