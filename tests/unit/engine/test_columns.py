"""Columns that lie end to end in memory are put together without being copied."""

import numpy as np
import pytest

from terrazzo.engine.columns import Column, concat, end_to_end, filtered

WHOLE = np.arange(100, dtype=np.int64)


def test_neighbours_become_what_they_are_parts_of():
    pieces = [WHOLE[10:30], WHOLE[30:70], WHOLE[70:71]]

    found = concat([Column(piece) for piece in pieces]).values

    assert np.array_equal(found, WHOLE[10:71])
    assert np.shares_memory(found, WHOLE)


@pytest.mark.parametrize(
    "pieces",
    [
        [WHOLE[10:30], WHOLE[31:40]],
        [WHOLE[30:40], WHOLE[10:30]],
        [WHOLE[10:30], WHOLE[10:30]],
        [WHOLE[10:30], WHOLE[30:40].copy()],
        [WHOLE[10:30:2], WHOLE[30:40]],
        [WHOLE[10:30], WHOLE[30:40].view(np.uint64)],
        [WHOLE.copy(), WHOLE.copy()],
        [WHOLE.reshape(10, 10)[:2], WHOLE.reshape(10, 10)[2:4, :5]],
    ],
    ids=["a gap", "turned round", "twice", "a copy", "steps", "another type", "wholes", "a matrix"],
)
def test_others_do_not(pieces):
    assert end_to_end(pieces) is None


def test_what_is_not_together_is_copied():
    found = concat([Column(WHOLE[10:30]), Column(WHOLE[50:60])]).values

    assert found.tolist() == [*range(10, 30), *range(50, 60)]


def test_filtered_takes_the_cells_of_a_mask():
    columns = {
        "fixed": Column(np.array([1, 2, 3]), None, np.array([True, False, True])),
        "pair": Column(np.array([[1, 2], [3, 4], [5, 6]])),
        "text": Column(np.frombuffer(b"abbccc", np.uint8), np.array([0, 1, 3, 6])),
    }

    found = filtered(columns, np.array([True, False, True]))

    assert found["fixed"].values.tolist() == [1, 3]
    assert found["fixed"].validity.tolist() == [True, True]
    assert found["pair"].values.tolist() == [[1, 2], [5, 6]]
    assert found["text"].binary().to_pylist() == [b"a", b"ccc"]
