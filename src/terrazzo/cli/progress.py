"""A progress bar for what takes longer than a second: on stderr, on a terminal, and gone when it is done."""

import sys
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self

DELAY = 1.0
"""Seconds before anything is shown."""


class Bar:
    """Counts up to a total, if that is known. Calls from any thread; calling it is the engine's `Progress`."""

    def __init__(self, label: str, total: int | None = None, unit: str = "cells") -> None:
        self.label, self.total, self.unit, self.done = label, total, unit, 0
        self._shown: Any = None
        self._task: Any = None
        self._lock = threading.Lock()
        self._over = False
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._timer = threading.Timer(DELAY, self._show)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._over = True
            if self._shown is not None:
                self._shown.stop()

    def __call__(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        self._update()

    def advance(self, count: int) -> None:
        self.done += count
        self._update()

    def counting(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The same batches; their rows are counted as they are taken."""
        for batch in batches:
            yield batch
            self.advance(batch.num_rows)

    def _update(self) -> None:
        if self._shown is not None:
            # An estimate may fall short: then there is no end to show.
            total = None if self.total is not None and self.done > self.total else self.total
            self._shown.update(self._task, completed=self.done, total=total)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            ProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.text import Text

        unit = self.unit

        class Rate(ProgressColumn):
            def render(self, task: Any) -> Text:
                speed = task.finished_speed or task.speed
                return Text("" if speed is None else f"{_short(speed)} {unit}/s")

        shown = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"), Rate(),
            TextColumn("left"), TimeRemainingColumn(), TextColumn("passed"), TimeElapsedColumn(),
            console=Console(file=sys.stderr), transient=True,
        )  # fmt: skip
        with self._lock:
            if self._over:
                return
            self._task = shown.add_task(self.label, total=self.total, completed=self.done)
            shown.start()
            self._shown = shown


def _short(number: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f} {letter}"
    return f"{number:.1f}"
