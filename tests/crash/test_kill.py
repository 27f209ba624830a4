"""Processes killed in the midst of writing, deleting, updating and evolving leave whole operations and no others.

Each says what it is about to do before it does it, and that it is done after. The operation that it has announced
and not finished may have happened, as a whole, or not at all.
"""

import json
import random
import time
from pathlib import Path
from typing import Any

import labour

import terrazzo as tz
from terrazzo.storage import staging

N_KILLS, PER_ARRAY = 200, 20


def new_array(path: str) -> None:
    schema = tz.Schema(
        dims=[tz.Dim("x", "int64", domain=(0, labour.RANGE * PER_ARRAY - 1), tile=labour.RANGE)],
        attrs=[tz.Attr("v", "int64"), tz.Attr("n", "int32", nullable=True), tz.Attr("s", "utf8")],
        sparse=True, capacity=16,
    )  # fmt: skip
    tz.create(path, schema)


def seen(path: str) -> labour.State:
    array = tz.open(path)
    rows = array.read(columns=["x", "v", "n", "s"]).to_pylist()
    found = {row["x"]: (row["v"], row["n"], row["s"]) for row in rows}
    assert len(found) == len(rows) == array.count()
    return {"rows": found, "extra": array.schema.has("extra"), "meta": dict(array.meta)}


def kill_one(nursery: Any, path: str, diary: Path, base: int, seed: int) -> list[str]:
    """Start a process, kill it at some time during one of its first operations, and hand over what it said."""
    chance = random.Random(seed)
    n_lines, after_s = 2 * chance.randrange(5) + 1, chance.uniform(0, 0.02)
    pid = nursery.start("work_until_killed", path, str(diary), base, seed)
    deadline = time.monotonic() + 60
    while not diary.exists() or diary.read_text().count("\n") < n_lines:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    time.sleep(after_s)
    nursery.kill(pid)
    return diary.read_text().splitlines()


def test_two_hundred_killed_processes_leave_whole_operations(tmp_path: Path, nursery: Any) -> None:
    n_done = n_cut = n_whole = 0
    for number in range(N_KILLS):
        path, place = str(tmp_path / f"array-{number // PER_ARRAY}"), number % PER_ARRAY
        if place == 0:
            new_array(path)
            state = labour.NOTHING
        lines = kill_one(nursery, path, tmp_path / f"diary-{number}", place * labour.RANGE, number)
        steps = [json.loads(line) for line in lines if line != "done"]
        for step in steps[: lines.count("done")]:
            state = labour.after(state, step)
            n_done += 1
        found = seen(path)

        if len(steps) > lines.count("done"):
            happened = labour.after(state, steps[-1])
            assert found in (state, happened), f"{steps[-1]} is torn"
            n_cut += 1
            n_whole += found == happened != state
            state = found
        assert found == state
        if place == PER_ARRAY - 1:  # and the array is as good as new
            array = tz.open(path)
            array.write(labour.as_cells(array, [0], 1))
            array.delete("x > 0")
            assert tz.open(path).read(columns=["x", "v"]).to_pylist() == [{"x": 0, "v": 1}]

    # Else no process was hit at work, or none between its commit and its word of it: this test proves little.
    assert n_done > N_KILLS / 4
    assert n_cut > N_KILLS / 4
    left = [path for path in tmp_path.glob(f"array-*/{staging.FOLDER}") if any(path.iterdir())]
    print(
        f"{n_done} operations done, {n_cut} cut short, {n_whole} of these whole, {len(left)} arrays with leftovers"
    )
