import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal

from terrazzo.engine.buffers import mask_of


@pytest.mark.parametrize(("start", "n"), [(0, 0), (0, 100), (3, 5), (8, 17), (13, 87)])
def test_a_mask_is_the_booleans_of_an_array_wherever_it_begins(start, n):
    values = np.random.default_rng(1).random(100) < 0.5
    assert_array_equal(mask_of(pa.array(values).slice(start, n)), values[start : start + n])
