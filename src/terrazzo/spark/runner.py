"""The engine's tasks on Spark's executors. What a task returns comes back; cells stay in storage.

Tasks go out through `mapInArrow` over a range, which a classic session and Spark Connect both have.
"""

import pickle
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self, TypeVar

import pyarrow as pa

from terrazzo.engine.runner import Progress
from terrazzo.spark.failures import telling

Task = TypeVar("Task")
Result = TypeVar("Result")
_SCHEMA = "place bigint, result binary"


class SparkRunner:
    """Runs each task of a plan as a task of Spark's."""

    def __init__(self, spark: Any) -> None:
        self.spark = spark

    def map(
        self, fn: Callable[[Task], Result], tasks: Sequence[Task], progress: Progress | None = None
    ) -> Iterator[Result]:
        if not tasks:
            return
        # One pickle holds all tasks, and what they share (the view of the array) once.
        work = zlib.compress(pickle.dumps((fn, list(tasks))), 1)
        frame = self.spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(_job(work), _SCHEMA)
        with telling(), _Watch(self.spark, len(tasks), progress):
            found = {row["place"]: row["result"] for row in frame.collect()}
        for place in range(len(tasks)):
            yield pickle.loads(found[place])  # noqa: S301  # our own, from our own tasks


def _job(work: bytes) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        fn, tasks = pickle.loads(zlib.decompress(work))  # noqa: S301
        for batch in batches:
            for place in batch.column(0).to_pylist():
                result = pickle.dumps(fn(tasks[place]))
                yield pa.RecordBatch.from_pydict(
                    {"place": pa.array([place], pa.int64()), "result": pa.array([result], pa.binary())}
                )

    return run


class _Watch:
    """Tells how many tasks of the running job are done, where the session can say it."""

    def __init__(self, spark: Any, total: int, progress: Progress | None) -> None:
        self.total, self.progress = total, progress
        self.tracker = None
        if progress is not None:
            try:
                self.tracker = spark.sparkContext.statusTracker()
            except Exception:  # Spark Connect has no context to ask
                self.tracker = None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        if self.tracker is not None:
            self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        if self.tracker is not None:
            self.thread.join()
        if self.progress is not None:
            self.progress(self.total, self.total)

    def _look(self) -> None:
        assert self.progress is not None
        assert self.tracker is not None
        while not self.ended.wait(0.5):
            stages = [self.tracker.getStageInfo(stage) for stage in self.tracker.getActiveStageIds()]
            done = max((s.numCompletedTasks for s in stages if s and s.numTasks == self.total), default=0)
            if done:
                self.progress(done, self.total)
