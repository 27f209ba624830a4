"""What the processes of `test_kill` and `test_concurrency` do.

Run as a script this is where they come from: it reads lines of JSON, `[function, argument, …]`, forks a process for
each that calls that function, and answers with its number. So a process takes milliseconds to start, and forks
nothing but what was imported.
"""

import json
import os
import random
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import terrazzo as tz
from terrazzo.engine import delete, dense, reading, update, upsert, where, write  # noqa: F401 - loaded before the fork
from terrazzo.engine.array import Array

pa.array([None, 1.5])  # the first call of its kind looks for pandas, for seconds

RANGE = 40
"""Coordinates of one process."""


def as_cells(array: Array, coords: Any, number: int) -> dict[str, Any]:
    """Cells that all say `number`; every other `n` is null."""
    n = len(coords)
    nulls = pa.array([None if i % 2 else number for i in range(n)], pa.int32())
    cells = {"x": coords, "v": np.full(n, number), "n": nulls, "s": [f"s{number}"] * n}
    return cells | {a.name: np.full(n, number) for a in array.schema.attrs if a.name not in cells}


def plan_step(chance: random.Random, number: int, base: int) -> dict[str, Any]:
    """What a process does next, so that it can be told in a line."""
    kind = chance.choice(
        ["write", "write", "write", "delete", "spare", "update", "portable", "evolve", "meta"]
    )
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
