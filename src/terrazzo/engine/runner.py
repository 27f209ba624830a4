"""Runners: the ways to carry out the tasks of a plan. Local threads here, Spark executors in terrazzo.spark.

A task is frozen, picklable and harmless to run twice; `fn` is a top-level function of (task). Nothing else in
the engine knows which runner it was given.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]
"""Called with tasks done and tasks in all."""


_listener: ContextVar[Progress | None] = ContextVar("progress", default=None)


@contextmanager
def listening(progress: Progress) -> Iterator[None]:
    """Have `progress` told of the `steps` of whatever the block calls."""
    token = _listener.set(progress)
    try:
        yield
    finally:
        _listener.reset(token)


def steps(items: Iterable[Task]) -> Iterator[Task]:
    """The items of something that takes long; who listens is told how many of them are done."""
    told, todo = _listener.get(), list(items)
    for done, item in enumerate(todo, 1):
        yield item
        if told is not None:
            told(done, len(todo))


class Runner(Protocol):
    def map(
        self, fn: Callable[[Task], Result], tasks: Sequence[Task], progress: Progress | None = None
    ) -> Iterator[Result]:
        """Results in the order of the tasks, each as soon as those before it are there."""
        ...


class LocalRunner:
    """Tasks one after the other: each of them already uses every core for its tiles."""

    def map(
        self, fn: Callable[[Task], Result], tasks: Sequence[Task], progress: Progress | None = None
    ) -> Iterator[Result]:
        for done, task in enumerate(tasks, 1):
            result = fn(task)
            if progress is not None:
                progress(done, len(tasks))
            yield result


_MOST_WAITING = 16
_BLOCK, _BLOCKS = 1 << 14, 1 << 18  # rows; a job of many blocks is long enough for threads to be worth it
_QUICK_S, _SLOW_S = 0.001, 0.02  # between two looks at whether small items, or jobs, wait for something


def cpu_count() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@lru_cache(maxsize=2)
def _pool(_pid: int, n_threads: int) -> ThreadPoolExecutor:
    """Threads that are kept. A pool does not survive a fork."""
    return ThreadPoolExecutor(n_threads, thread_name_prefix="terrazzo")


def run_all(jobs: Iterable[Callable[[], Any]]) -> None:
    """Run jobs on every core, and more of them at a time where they wait for a store; the first error is raised once
    all have stopped.

    Codecs and numpy release the interpreter lock, so threads are enough. Jobs never call this themselves.
    """
    todo = list(jobs)
    if len(todo) <= 1:
        for job in todo:
            job()
    else:
        _take_turns(todo, _pool(os.getpid(), max(_MOST_WAITING, cpu_count())), cpu_count(), _SLOW_S)


def run_blocks(n: int, work: Callable[[int, int], Any]) -> None:
    """`work` of the rows from a first to before a last one, in blocks that stay in the cache, on every core."""

    def run_some(first: int, last: int) -> None:
        for start in range(first, last, _BLOCK):
            work(start, min(start + _BLOCK, last))

    run_all([partial(run_some, first, min(first + _BLOCKS, n)) for first in range(0, n, _BLOCKS)])


def _take_turns(
    jobs: Sequence[Callable[[], Any]], pool: ThreadPoolExecutor, n_first: int, patience_s: float
) -> None:
    """Some threads begin, and others come to their help when these turn out to wait: less than half a core is busy.
    Threads that do not wait hinder each other, and each holds what it works at in memory."""
    places, problems = iter(range(len(jobs))), dict[int, BaseException]()

    def take_turns() -> None:
        for place in places:
            try:
                jobs[place]()
            except BaseException as problem:
                problems[place] = problem
                list(places)  # nothing more is begun

    turns, most = list[Future[None]](), min(max(_MOST_WAITING, n_first), len(jobs))
    try:
        turns.extend(pool.submit(take_turns) for _ in range(min(n_first, most)))
        then, busy = time.perf_counter(), time.process_time()
        while len(turns) < most and wait(turns, patience_s).not_done:
            now, used = time.perf_counter(), time.process_time()
            if used - busy < (now - then) / 2:
                turns.extend(pool.submit(take_turns) for _ in range(most - len(turns)))
            then, busy = now, used
        wait(turns)
    except BaseException:  # an interrupt, for one
        list(places)
        wait(turns)
        raise
    if problems:
        raise problems[min(problems)]


class Ahead(Generic[Result]):
    """Jobs for a caller that takes their results one by one: they run on every core, a few ahead of it, so that
    results do not pile up where it is slower than they are. Several may take the same ones."""

    def __init__(self, jobs: Sequence[Callable[[], Result]]) -> None:
        self._jobs, self._lock = jobs, Lock()
        self._begun: list[Future[Result]] = []
        self._most = max(4, 2 * cpu_count())

    def __len__(self) -> int:
        return len(self._jobs)

    def result(self, place: int) -> Result:
        with self._lock:
            for job in self._jobs[len(self._begun) : place + self._most]:
                self._begun.append(_pool(os.getpid(), cpu_count()).submit(job))
        return self._begun[place].result()

    def results(self) -> Iterator[Result]:
        return map(self.result, range(len(self)))

    def stop(self) -> None:
        """Begin nothing more: nobody takes the results."""
        for begun in self._begun:
            begun.cancel()


def parallel(work: Callable[[Task], Result], items: Iterable[Task]) -> list[Result]:
    """`work` of every item: one after the other where that is quick, many at once where it is to wait, for a store or
    for jobs that were started."""
    todo = list(items)
    if len(todo) <= 1:
        return [work(item) for item in todo]
    results: dict[int, Result] = {}

    def one(place: int) -> None:
        results[place] = work(todo[place])

    with ThreadPoolExecutor(min(_MOST_WAITING, len(todo))) as pool:  # its own: items may wait for others
        _take_turns([partial(one, place) for place in range(len(todo))], pool, 1, _QUICK_S)
    return [results[place] for place in range(len(todo))]
