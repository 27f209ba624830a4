"""A progress bar for what takes longer than a second: on stderr, on a terminal, and gone when it is done."""

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

DELAY = 1.0
"""Seconds before anything is shown."""


class Bar:
    """How far something has come, how fast it goes, and how long it will take.

    Calling it is the engine's `Progress`: tasks done, and tasks in all. What passes through `counting` is counted in
    the unit, and tells the rate; without tasks it is held against the total, too.
    """

    def __init__(
        self, label: str, total: int | None = None, unit: str = "cells", *, steps: bool = False
    ) -> None:
        self.label, self.total, self.unit = label, total, unit
        self._steps = ExitStack() if steps else None  # the engine tells of its steps by itself
        self.done = 0  # of the total
        self.count = 0  # in the unit
        self._tasks = False
        self._began = time.monotonic()
        self._shown: Any = None
        self._task: Any = None
        self._lock = threading.Lock()
        self._over = False
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        if self._steps is not None:
            from terrazzo.engine.runner import listening

            self._steps.enter_context(listening(self))
        if sys.stderr.isatty():
            self._timer = threading.Timer(DELAY, self._show)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._steps is not None:
            self._steps.close()
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._over = True
            if self._shown is not None:
                self._shown.stop()

    def __call__(self, done: int, total: int) -> None:
        self._tasks, self.done, self.total = True, done, total
        self._update()

    def counting(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The same batches; the rows of one are counted when the next is asked for."""
        for batch in batches:
            yield batch
            self.count += batch.num_rows
            if not self._tasks:
                self.done = self.count
            self._update()

    def told(self) -> str:
        """Rate, time left and time passed, as far as they are known."""
        passed = time.monotonic() - self._began
        parts = [f"{_short(self.count / passed)} {self.unit}/s"] if self.count and passed else []
        if not parts and self._tasks and self.done and passed:
            parts = [f"{_short(self.done / passed)} steps/s"]
        if self.total and 0 < self.done <= self.total:
            parts.append(f"{_clock(passed * (self.total - self.done) / self.done)} left")
        return ", ".join([*parts, f"{_clock(passed)} passed"])

    def _update(self) -> None:
        if self._shown is not None:
            # An estimate may fall short: then there is no end to show.
            total = None if self.total is not None and self.done > self.total else self.total
            self._shown.update(self._task, completed=self.done, total=total)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
        from rich.text import Text

        bar = self

        class Told(ProgressColumn):
            def render(self, task: Any) -> Text:  # noqa: ARG002
                return Text(bar.told())

        shown = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(bar_width=20), TextColumn("{task.percentage:>3.0f}%"), Told(),
            console=Console(file=sys.stderr), transient=True,
        )  # fmt: skip
        with self._lock:
            if self._over:
                return
            self._task = shown.add_task(self.label, total=self.total, completed=self.done)
            shown.start()
            self._shown = shown


def _short(number: float) -> str:
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= size:
            return f"{number / size:.1f}{letter}"
    return f"{number:.1f}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
