"""What the processes of `test_kill`, `test_concurrency` and `test_maintenance_processes` do.

Run as a script this is where they come from: it reads lines of JSON, `[function, argument, …]`, forks a process for
each that calls that function, and answers with its number. So a process takes milliseconds to start, and forks
nothing but what was imported.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import terrazzo as tz
from terrazzo.engine import delete, dense, maintain, reading, update, upsert, where, write  # noqa: F401 - loaded before the fork
from terrazzo.engine.array import Array
from terrazzo.errors import ConflictError

pa.array([None, 1.5])  # the first call of its kind looks for pandas, for seconds

RANGE = 40
"""Coordinates of one process."""

State = dict[str, Any]
NOTHING: State = {"rows": {}, "extra": False, "meta": {}}


def as_cells(array: Array, coords: Any, number: int) -> dict[str, Any]:
    """Cells that all say `number`; every other `n` is null."""
    n = len(coords)
    nulls = pa.array([None if i % 2 else number for i in range(n)], pa.int32())
    cells = {"x": coords, "v": np.full(n, number), "n": nulls, "s": [f"s{number}"] * n}
    return cells | {a.name: np.full(n, number) for a in array.schema.attrs if a.name not in cells}


CELLS = ("write", "write", "write", "delete", "spare", "update", "portable")


def plan_step(
    chance: random.Random, number: int, base: int, kinds: Sequence[str] = (*CELLS, "evolve", "meta")
) -> dict[str, Any]:
    """What a process does next, so that it can be told in a line."""
    kind = chance.choice(kinds)
    start = base + chance.randrange(RANGE - 10)
    return {"kind": kind, "number": number, "start": start, "stop": start + chance.randrange(1, 11)}


def take_step(array: Array, step: dict[str, Any]) -> None:
    kind, number, start, stop = step["kind"], step["number"], step["start"], step["stop"]
    inside = f"x >= {start} and x < {stop}"
    match kind:
        case "write":
            array.write(as_cells(array, np.arange(start, stop), number))
        case "delete":
            array.delete(inside)
        case "spare":  # nulls in the range stay: the delete and the cells that are kept make one commit
            array.delete(f"{inside} and n >= 0")
        case "evolve" if any(attr.name == "extra" for attr in array.schema.attrs):
            array.evolve(drop=["extra"])
        case "evolve":
            array.evolve(add=[tz.Attr("extra", "int64", fill=-1)])
        case "meta":
            array.meta[f"of {start // RANGE}"] = number
        case _:
            array.update({"v": -number, "s": "updated"}, inside, portable=kind == "portable")


def after(state: State, step: dict[str, Any]) -> State:
    """The same step on a dict of rows."""
    rows, extra, meta = dict(state["rows"]), state["extra"], dict(state["meta"])
    kind, number, start = step["kind"], step["number"], step["start"]
    if kind == "evolve":
        extra = not extra
    if kind == "meta":
        meta[f"of {start // RANGE}"] = number
    for x in range(start, step["stop"]):
        if kind == "write":
            rows[x] = (number, None if (x - start) % 2 else number, f"s{number}")
        elif kind == "delete" or (kind == "spare" and x in rows and rows[x][1] is not None):
            rows.pop(x, None)
        elif kind in {"update", "portable"} and x in rows:
            rows[x] = (-number, rows[x][1], "updated")
    return {"rows": rows, "extra": extra, "meta": meta}


def work_until_killed(uri: str, diary: str, base: int, seed: int) -> None:
    """Say what is to come, do it, say that it is done; until death."""
    chance, array, number = random.Random(seed), tz.open(uri), 0
    with Path(diary).open("a", buffering=1) as lines:
        while True:
            number += 1
            step = plan_step(chance, number, base)
            lines.write(f"{json.dumps(step)}\n")
            take_step(array, step)
            lines.write("done\n")


# -- many at a time ------------------------------------------------------------------------------------


def steps_of(writer: int, n: int) -> list[dict[str, Any]]:
    """What a writer does, known to all; nothing but cells in its own range."""
    chance = random.Random(writer)
    return [plan_step(chance, number, writer * RANGE, CELLS) for number in range(1, n + 1)]


def write_all(uri: str, options: dict[str, str] | None, folder: str, writer: int, n: int) -> None:
    """Take the steps of a writer; a line in its diary before each, and one after."""
    array = tz.open(uri, storage_options=options)
    with (Path(folder) / f"writer-{writer}").open("a", buffering=1) as lines:
        for step in steps_of(writer, n):
            lines.write("begun\n")
            take_step(array, step)
            lines.write("done\n")


def progress(folder: str, n_writers: int, word: str) -> list[int]:
    diaries = [Path(folder) / f"writer-{writer}" for writer in range(n_writers)]
    return [diary.read_text().count(word) if diary.exists() else 0 for diary in diaries]


def read_all(
    uri: str, options: dict[str, str] | None, folder: str, reader: int, n_writers: int, n: int
) -> None:
    """Open and read until the writers are done; every reading must be a prefix of what each of them did."""
    states = []
    for writer in range(n_writers):
        states.append([NOTHING["rows"]])
        state = NOTHING
        for step in steps_of(writer, n):
            state = after(state, step)
            states[-1].append(state["rows"])
    problems: list[str] = []
    n_reads, finished, kept = 0, False, None
    while not finished:
        finished = sum(progress(folder, n_writers, "done")) == n_writers * n
        done = progress(folder, n_writers, "done")
        if kept is None or n_reads % 2 == reader % 2:
            kept = tz.open(uri, storage_options=options)
        else:
            kept.refresh()
        rows = kept.read(columns=["x", "v", "n", "s"]).to_pylist()
        begun = progress(folder, n_writers, "begun")
        n_reads += 1
        for writer in range(n_writers):
            mine = [row for row in rows if row["x"] // RANGE == writer]
            found = {row["x"]: (row["v"], row["n"], row["s"]) for row in mine}
            allowed = states[writer][done[writer] : begun[writer] + 1]
            if len(found) != len(mine) or found not in allowed:
                problems.append(f"writer {writer} after {done[writer]} to {begun[writer]} steps: {found}")
    outcome = {"reads": n_reads, "problems": problems[:5]}
    (Path(folder) / f"reader-{reader}").write_text(json.dumps(outcome))


# -- maintenance by several ----------------------------------------------------------------------------


def consolidate_at(uri: str, moment: float, memory: int, diary: str) -> None:
    """One consolidation, at an instant that others were given too; how it ended goes into the diary."""
    array = tz.open(uri)
    while time.time() < moment:
        pass
    try:
        array.consolidate(memory=memory)
        outcome = "won"
    except ConflictError as lost:
        outcome = f"lost: {lost}"
    with Path(diary).open("a") as lines:
        lines.write(f"{outcome}\n")


def append_cells(uri: str, folder: str, writer: int, n: int) -> None:
    """Fragments of two cells each; every coordinate of the writer's own range is written once."""
    array = tz.open(uri)
    for number in range(n):
        x = writer * 2 * n + 2 * number
        array.write({"x": [x, x + 1], "k": [number, writer]})
        (Path(folder) / f"writer-{writer}").write_text(str(number + 1))


def consolidate_beside(uri: str, folder: str, who: int, n_writers: int, n: int) -> None:
    """Consolidate until the writers are done; every reading in between holds every cell once at most."""
    steps, conflicts, problems, done = 0, 0, [], False
    while not done:
        diaries = [Path(folder) / f"writer-{writer}" for writer in range(n_writers)]
        done = all(diary.exists() and diary.read_text() == str(n) for diary in diaries)
        array = tz.open(uri)
        try:
            steps += array.consolidate(memory=(1 << 30) if who else 2000).steps
        except ConflictError:
            conflicts += 1
        found = tz.open(uri).read(columns=["x"])["x"].to_pylist()
        if len(set(found)) != len(found):
            problems.append(f"{len(found) - len(set(found))} cells twice")
    told = {"steps": steps, "conflicts": conflicts, "problems": problems}
    (Path(folder) / f"consolidator-{who}").write_text(json.dumps(told))


def nursery() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                globals()[name](*arguments)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        print(pid, flush=True)


if __name__ == "__main__":
    nursery()
