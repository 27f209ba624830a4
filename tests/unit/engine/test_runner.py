"""Items that wait are worked at together, others by one thread."""

import subprocess
import sys
import threading
import time
from functools import partial

import pytest

from terrazzo.engine.runner import cpu_count, parallel, run_all


@pytest.fixture
def busy(monkeypatch):
    """A core that is at work all the time, however little of the machine is left for it."""
    monkeypatch.setattr("time.process_time", time.perf_counter)


@pytest.mark.usefixtures("busy")
def test_quick_items_are_the_work_of_one_thread():
    workers = set()

    def work(item):
        workers.add(threading.get_ident())
        return item * 2

    assert parallel(work, range(5000)) == [item * 2 for item in range(5000)]
    assert len(workers) == 1


def test_items_that_wait_are_begun_together():
    everyone = threading.Barrier(16)

    def work(item):
        everyone.wait(timeout=30)
        return item

    assert parallel(work, range(16)) == list(range(16))


def test_results_are_in_the_order_of_the_items():
    def work(item):
        time.sleep((7 - item) / 500)
        return item

    assert parallel(work, iter(range(8))) == list(range(8))


@pytest.mark.parametrize("pause", [0, 0.003])
def test_after_an_error_nothing_more_is_begun(pause):
    begun = []

    def work(item):
        begun.append(item)
        time.sleep(pause)
        if item == 5:
            raise LookupError("five")

    with pytest.raises(LookupError, match="five"):
        parallel(work, range(1000))
    assert len(begun) < 1000


_INTERRUPTED = """
import os, signal, sys, time
from terrazzo.engine.runner import parallel, run_all

done, numbers = [], iter(range(400))

def job():
    if next(numbers) == 100:
        os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.05)
    done.append(1)

try:
    run_all([job] * 400) if sys.argv[1] == "run_all" else parallel(lambda each: each(), [job] * 400)
except KeyboardInterrupt:
    before = len(done)
    time.sleep(0.2)
    print(len(done) == before < 400)
"""


@pytest.mark.parametrize("how", ["run_all", "parallel"])
def test_an_interrupt_ends_the_work(how):
    told = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED, how], capture_output=True, text=True, check=True
    )
    assert told.stdout == "True\n"


def test_of_several_errors_that_of_the_first_job_is_raised():
    everyone = threading.Barrier(8)

    def job(place):
        everyone.wait(timeout=30)
        time.sleep((8 - place) / 100)
        raise LookupError(str(place))

    with pytest.raises(LookupError, match="0"):
        run_all([partial(job, place) for place in range(8)])


def test_one_item_and_none():
    assert parallel(str, [7]) == ["7"]
    assert parallel(str, []) == []


def test_jobs_that_wait_for_a_store_are_begun_together():
    everyone = threading.Barrier(12)
    run_all([lambda: everyone.wait(timeout=30)] * 12)


@pytest.mark.usefixtures("busy")
def test_jobs_that_do_not_wait_use_no_more_threads_than_cores():
    workers = set()
    run_all([lambda: workers.add(threading.get_ident())] * 2000)
    assert len(workers) <= cpu_count()


def test_the_first_error_of_a_job_is_raised_once_all_have_stopped():
    running = []

    def job(place):
        running.append(place)
        time.sleep(0.002)
        running.remove(place)
        if place == 30:
            raise LookupError("thirty")

    with pytest.raises(LookupError, match="thirty"):
        run_all([partial(job, place) for place in range(10_000)])
    assert running == []
