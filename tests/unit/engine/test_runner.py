"""Items that wait are worked at together, others by one thread."""

import threading
import time

import pytest

from terrazzo.engine.runner import parallel


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


def test_one_item_and_none():
    assert parallel(str, [7]) == ["7"]
    assert parallel(str, []) == []
