"""Maintenance in several processes at once, on a disk: at the end both libraries see every cell once."""

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tiledb

import terrazzo as tz
from terrazzo.engine.array import Array

N_ROUNDS = 4


def new_array(path: Path, *, duplicates: bool = True) -> Array:
    """With duplicates a cell that is counted twice shows twice."""
    schema = tz.Schema(
        [tz.Dim("x", "int32", (0, 10_000), 100)],
        [tz.Attr("k", "int32")],
        allows_duplicates=duplicates, capacity=16,
    )  # fmt: skip
    return tz.create(str(path), schema)


def seen_by_both(uri: str) -> tuple[Counter[tuple[int, int]], Counter[tuple[int, int]]]:
    found = tz.open(uri).read()
    with tiledb.open(uri) as array:
        theirs = array.query(order="U")[:]
    ours = Counter(zip(found["x"].to_pylist(), found["k"].to_pylist(), strict=True))
    return ours, Counter(zip(theirs["x"].tolist(), theirs["k"].tolist(), strict=True))


@pytest.mark.parametrize("duplicates", [True, False])
def test_of_consolidations_that_race_one_goes_through_and_no_cell_doubles(
    nursery: Any, tmp_path: Path, duplicates: bool
) -> None:
    array = new_array(tmp_path / "a", duplicates=duplicates)
    diary, expected, x = tmp_path / "outcomes", Counter[tuple[int, int]](), 0
    for number in range(N_ROUNDS):
        for _ in range(4):
            cells = {"x": list(range(x, x + 5)), "k": [number] * 5}
            array.write(cells)
            expected.update(zip(cells["x"], cells["k"], strict=True))
            x += 5
        if number % 2:
            array.delete(f"x = {x - 1}")
            del expected[x - 1, number]
        moment = time.time() + 0.1
        pids = [
            nursery.start("consolidate_at", array.uri, moment, memory, str(diary))
            for memory in (1 << 30, 3000)
        ]
        for pid in pids:
            nursery.wait(pid, patience_s=60)

        assert seen_by_both(array.uri) == (expected, expected), number
        if number % 2:
            tz.open(array.uri).vacuum(retain=0)
            assert seen_by_both(array.uri) == (expected, expected), number
        array = tz.open(array.uri)
    outcomes = diary.read_text().splitlines()
    assert len(outcomes) == 2 * N_ROUNDS
    assert outcomes.count("won") >= N_ROUNDS
    assert all("another process" in outcome for outcome in outcomes if outcome != "won")


def test_two_consolidations_beside_writers_lose_and_double_nothing(nursery: Any, tmp_path: Path) -> None:
    n_writers, n = 3, 12
    array = new_array(tmp_path / "a")
    pids = [nursery.start("append_cells", array.uri, str(tmp_path), writer, n) for writer in range(n_writers)]
    pids += [
        nursery.start("consolidate_beside", array.uri, str(tmp_path), who, n_writers, n) for who in range(2)
    ]
    for pid in pids:
        nursery.wait(pid, patience_s=120)

    cells = [
        (w * 2 * n + 2 * j + i, w if i else j) for w in range(n_writers) for j in range(n) for i in range(2)
    ]
    told = [json.loads((tmp_path / f"consolidator-{who}").read_text()) for who in range(2)]
    assert [each["problems"] for each in told] == [[], []]
    assert sum(each["steps"] for each in told) > 1
    assert seen_by_both(array.uri) == (Counter(cells), Counter(cells))
    tz.open(array.uri).vacuum(retain=0)
    assert seen_by_both(array.uri) == (Counter(cells), Counter(cells))
    assert tz.check(array.uri).of("error") == ()
