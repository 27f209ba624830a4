"""The engine's tasks on Spark's executors. What a task returns comes back; cells stay in storage.

Tasks go out through `mapInArrow` over a range, which a classic session and Spark Connect both have.
"""

import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import pyarrow as pa

from terrazzo.engine.runner import Progress
from terrazzo.spark.failures import telling
from terrazzo.spark.parcels import Parcel, parcel

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
        work = parcel((fn, list(tasks)))
        frame = self.spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(_job(work), _SCHEMA)
        with telling(), watching(self.spark, len(tasks), progress):
            found = {row["place"]: row["result"] for row in frame.collect()}
        for place in range(len(tasks)):
            yield pickle.loads(found[place])  # noqa: S301  # our own, from our own tasks


def _job(work: Parcel) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        fn, tasks = work.open()
        for batch in batches:
            for place in batch.column(0).to_pylist():
                result = pickle.dumps(fn(tasks[place]))
                yield pa.RecordBatch.from_pydict(
                    {"place": pa.array([place], pa.int64()), "result": pa.array([result], pa.binary())}
                )

    return run


@contextmanager
def watching(spark: Any, total: int | None, progress: Progress | None) -> Iterator[None]:
    """Tell how many tasks of the running stage are done, where the session can say it: that of `total` tasks, or
    whichever runs."""
    tracker = None
    if progress is not None:
        with suppress(Exception):  # Spark Connect has no context to ask
            tracker = spark.sparkContext.statusTracker()
    if tracker is None or progress is None:
        yield
    else:
        ended = threading.Event()
        thread = threading.Thread(target=_look, args=(tracker, total, progress, ended), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
    if progress is not None and total is not None:
        progress(total, total)


def _look(tracker: Any, total: int | None, progress: Progress, ended: threading.Event) -> None:
    while not ended.wait(0.5):
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        running = [stage for stage in stages if stage and total in {None, stage.numTasks}]
        if running and running[-1].numCompletedTasks:
            progress(running[-1].numCompletedTasks, running[-1].numTasks)
