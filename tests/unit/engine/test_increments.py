"""Following an array that others write, change, consolidate and vacuum meanwhile: no cell lost, none twice."""

from collections import Counter

import numpy as np
import pytest

import terrazzo as tz
from terrazzo.engine import increments
from terrazzo.engine.arrivals import NO_LIMITS, Limits, Mark
from terrazzo.engine.increments import Follower, plan_written
from terrazzo.engine.reading import run_task
from terrazzo.engine.region import everything
from terrazzo.engine.request import make_request

ALWAYS = 10**15
"""A lateness that lets nothing settle: the instants below are long past."""


def made(path, *, duplicates=False):
    return tz.create(
        str(path),
        tz.Schema(
            [tz.Dim("x", "int64", (0, 9999), 10)],
            [tz.Attr("v", "int64")],
            capacity=4,
            allows_duplicates=duplicates,
        ),
    )


class Reader:
    """Takes steps and remembers what they delivered."""

    def __init__(self, array, lateness=ALWAYS, *, changes=False):
        self.follower = Follower(array.view.store, None, lateness_ms=lateness, changes=changes)
        self.mark, self.got, self.steps = Mark(), Counter(), 0

    def cells(self, start, end, size=1 << 20, **asked):
        view = self.follower.written(start, end)
        request = make_request(view.schema, None, asked.get("where"), asked.get("region"), None)
        batches = [batch for task in plan_written(view, request, size) for batch in run_task(*task)]
        return Counter((row["x"], row["v"]) for batch in batches for row in batch.to_pylist())

    def next(self, limits=NO_LIMITS):
        """One step; what it delivered."""
        end = self.follower.next(self.mark, limits)
        found = self.cells(self.mark, end) if end != self.mark else Counter()
        self.steps += end != self.mark
        self.got += found
        self.mark = end
        return found

    def changed(self, size=1 << 20):
        end = self.follower.next(self.mark, NO_LIMITS)
        region = everything(self.follower.glance().view.schema)
        tasks = self.follower.change_tasks(self.mark, end, region, None, size)
        self.mark = end
        return [row for task in tasks for row in task().to_pylist()]


def test_late_commits_are_delivered_once(tmp_path):
    array = made(tmp_path / "a")
    reader = Reader(array)
    array.write({"x": [1, 2], "v": [1, 2]}, at=100)
    array.write({"x": [3], "v": [3]}, at=300)

    assert reader.next() == {(1, 1): 1, (2, 2): 1, (3, 3): 1}
    array.write({"x": [4], "v": [4]}, at=200)
    array.write({"x": [5], "v": [5]}, at=300)
    assert reader.next() == {(4, 4): 1, (5, 5): 1}
    assert reader.next() == {}


def test_commits_behind_the_lateness_are_not_waited_for(tmp_path):
    array = made(tmp_path / "a")
    reader = Reader(array, lateness=60_000)
    array.write({"x": [1], "v": [1]})
    reader.next()

    array.write({"x": [2], "v": [2]}, at=200)
    array.write({"x": [3], "v": [3]}, at=max(reader.mark.seen) - 30_000)
    assert reader.next() == {(3, 3): 1}


@pytest.mark.parametrize("duplicates", [False, True])
@pytest.mark.parametrize("vacuum", [False, True])
def test_consolidation_between_steps_neither_repeats_nor_loses_cells(tmp_path, duplicates, vacuum):
    array = made(tmp_path / "a", duplicates=duplicates)
    reader = Reader(array)
    array.write({"x": np.arange(20), "v": np.arange(20)}, at=100)
    reader.next()
    array.write({"x": [30], "v": [30]}, at=50)
    array.update({"v": 7}, "x < 15", at=249)
    array.write({"x": [31, 16], "v": [31, 33]}, at=250)  # stamped as the versions are that the update makes
    array.delete("x = 31", at=260)
    array.consolidate()
    if vacuum:
        array.vacuum(retain=0)

    assert reader.next() == {(30, 30): 1, (31, 31): 1, (16, 33): 1}
    assert reader.next() == {}


def test_two_commits_of_one_instant_are_told_apart_while_their_files_last(tmp_path):
    array = made(tmp_path / "a")
    reader = Reader(array)
    array.write({"x": [1], "v": [1]}, at=100)
    reader.next()
    array.write({"x": [2], "v": [2]}, at=100)
    array.consolidate()

    assert reader.next() == {(2, 2): 1}
    array.vacuum(retain=0)
    assert reader.next() == {}


def test_a_step_tried_again_delivers_the_same_cells(tmp_path):
    array = made(tmp_path / "a")
    reader = Reader(array)
    for i in range(5):
        array.write({"x": [i], "v": [i]}, at=100 + i)
    middle = reader.follower.next(Mark(), Limits(commits=3))
    end = reader.follower.next(middle, NO_LIMITS)
    first, second = reader.cells(Mark(), middle), reader.cells(middle, end)

    array.write({"x": [9], "v": [9]}, at=101)
    array.delete("x = 1", at=200)
    for maintain in (lambda: None, array.consolidate, lambda: array.vacuum(retain=0)):
        maintain()
        assert (reader.cells(Mark(), middle) - Counter({(9, 9): 1}), reader.cells(middle, end)) == (
            first,
            second,
        )


def test_tasks_of_any_size_deliver_the_same_and_conditions_apply(tmp_path):
    array = made(tmp_path / "a", duplicates=True)
    array.write({"x": np.arange(100) // 3, "v": np.arange(100)}, at=100)
    array.update({"v": -1}, "v < 50", at=200)
    array.write({"x": [50], "v": [1000]}, at=201)
    array.consolidate()
    array.vacuum(retain=0)
    reader = Reader(array)
    end = reader.follower.next(Mark(), NO_LIMITS)

    whole = reader.cells(Mark(), end)
    assert whole == Counter({**{(i // 3, i): 1 for i in range(100)}, (50, 1000): 1})
    assert reader.cells(Mark(), end, size=64) == whole
    assert reader.cells(Mark(), end, where="v >= 98") == {(32, 98): 1, (33, 99): 1, (50, 1000): 1}
    assert reader.cells(Mark(), end, region={"x": (33, 50)}) == {(33, 99): 1, (50, 1000): 1}


def test_frozen_it_sees_nothing_that_comes_later(tmp_path):
    array = made(tmp_path / "a")
    array.write({"x": [1], "v": [1]})
    array.write({"x": [2], "v": [2]})
    array.consolidate()
    reader = Reader(array)
    reader.follower.freeze()
    array.write({"x": [3], "v": [3]})
    array.vacuum(retain=0)

    assert reader.next(Limits(commits=1)) == {(1, 1): 1}
    assert reader.next(Limits(commits=1)) == {(2, 2): 1}
    assert reader.next(Limits(commits=1)) == {}


def test_a_dense_array_is_refused(tmp_path):
    array = tz.create(
        str(tmp_path / "a"),
        tz.Schema([tz.Dim("x", "int64", (0, 9), 5)], [tz.Attr("v", "int64")], sparse=False),
    )

    with pytest.raises(tz.InvalidRequestError, match="dense"):
        Reader(array).next()


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_between_steps_each_written_cell_is_delivered_once(tmp_path, seed):
    random = np.random.default_rng(seed)
    array = made(tmp_path / "a", duplicates=bool(seed % 2))
    reader, written, time, x = Reader(array), Counter(), 1000, 0
    for _ in range(40):
        match random.choice(
            [
                "write",
                "late",
                "delete",
                "update",
                "consolidate",
                "some",
                "commits",
                "vacuum",
                "step",
                "limited",
            ]
        ):
            case "write" | "late" as kind:
                time += int(random.integers(1, 3)) if kind == "write" else 0
                at = time if kind == "write" else int(random.integers(900, time + 1))
                n = int(random.integers(1, 9))
                cells = {"x": np.arange(x, x + n), "v": np.arange(x, x + n)}
                array.write(cells, at=at)
                written.update((k, k) for k in range(x, x + n))
                x += n
            case "delete":
                time += 1
                array.delete(f"x = {random.integers(0, x + 1)}", at=time)
            case "update":
                time += 1
                array.update({"v": -1}, f"x < {random.integers(0, x + 1)}", at=time)
            case "consolidate" if len(array.fragments) > 1:
                array.consolidate()
            case "some" if len(array.fragments) > 2:
                array.consolidate(max_fragments=2, steps=1)
            case "commits":
                array.consolidate_commits()
            case "vacuum":
                # What shares its instant with another commit needs its files: see the documentation.
                reader.next()
                array.vacuum(retain=0)
            case "step":
                reader.next()
            case "limited":
                reader.next(Limits(commits=2, cells=9))
        array.refresh()
    while reader.next(Limits(cells=7)):
        pass
    reader.next()

    assert reader.got == written


def applied(rows, state):
    """What a change feed makes of a table of x to v."""
    for row in rows:
        if row["_change"] in {"delete", "update_before"}:
            assert state.pop(row["x"]) == row["v"]
    for row in rows:
        if row["_change"] in {"insert", "update_after"}:
            assert row["x"] not in state
            state[row["x"]] = row["v"]
    return state


@pytest.mark.parametrize("seed", range(6))
def test_the_changes_of_all_steps_make_the_array(tmp_path, monkeypatch, seed):
    random = np.random.default_rng(seed)
    array = made(tmp_path / "a")
    time, state, v = 1000, {}, 0
    # Nothing comes later than two milliseconds behind the last commit, and so long a step waits.
    reader = Reader(array, lateness=3, changes=True)
    monkeypatch.setattr(increments, "now_ms", lambda: time)
    for _ in range(40):
        time += int(random.integers(1, 3))
        match random.choice(["write", "late", "delete", "update", "consolidate", "vacuum", "step"]):
            case "write" | "late" as kind:
                cells = np.unique(random.integers(0, 40, 8))
                v += 1
                array.write({"x": cells, "v": np.full(len(cells), v)}, at=time - 2 * (kind == "late"))
            case "delete":
                array.delete(f"x < {random.integers(0, 20)}", at=time - int(random.integers(0, 3)))
            case "update":
                array.update({"v": -time}, f"x > {random.integers(20, 40)}", at=time)
            case "consolidate" if len(array.fragments) > 1:
                array.consolidate()
            case "vacuum":
                array.vacuum(retain=0)
            case "step":
                state = applied(reader.changed(size=200), state)
        array.refresh()
    time += 4
    state = applied(reader.changed(), state)

    assert state == {row["x"]: row["v"] for row in array.read().to_pylist()}
    assert reader.changed() == []
