"""What the benchmarks share: tables of text, and the best of several runs."""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

Work = Callable[[], object]


@dataclass(frozen=True)
class Table:
    title: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what the numbers should be, and whether they are

    def markdown(self) -> str:
        lines = [f"## {self.title}", "", _row(self.header)]
        numeric = [all(_is_number(row[i]) for row in self.rows) for i in range(len(self.header))]
        lines.append("|" + "|".join("--:" if right else "---" for right in numeric) + "|")
        lines += [_row(row) for row in self.rows]
        if self.notes:
            lines += ["", *(f"- {note}" for note in self.notes)]
        return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _is_number(cell: str) -> bool:
    return cell[:1].isdigit() or cell in {"", "-"}


def seconds(work: Work, *, clock: Callable[[], float] = time.perf_counter, most: int = 200) -> float:
    """The best of several runs: whatever else the machine does only ever slows one."""
    return side_by_side([work], clock=clock, most=most)[0]


def side_by_side(
    works: Sequence[Work],
    *,
    clock: Callable[[], float] = time.perf_counter,
    enough: float = 1.0,
    most: int = 7,
) -> list[float]:
    """The best of several runs of each, in turns, so that a busy minute slows them all."""
    best, total, runs = [float("inf")] * len(works), 0.0, 0
    while runs < 1 or (total < enough * len(works) and runs < most):
        for i, work in enumerate(works):
            start = clock()
            work()
            took = clock() - start
            best[i], total = min(best[i], took), total + took
        runs += 1
    return best


def on_threads(n_threads: int, *groups: Sequence[Work]) -> list[float]:
    """Seconds for each group of jobs. On one thread it is processor time, and of each job by itself the best:
    other programs then hardly count. Two threads need two free cores to tell anything."""
    if n_threads == 1:
        jobs = [job for group in groups for job in group]
        best = side_by_side(jobs, clock=time.process_time, enough=0.8 / len(jobs))
        ends = [0, *accumulate(map(len, groups))]
        return [sum(best[a:b]) for a, b in pairwise(ends)]
    with ThreadPoolExecutor(n_threads) as pool:
        return side_by_side([lambda jobs=jobs: list(pool.map(lambda job: job(), jobs)) for jobs in groups])


def speed(size: int, took: float) -> str:
    return f"{size / 1e6 / took:,.0f}"
