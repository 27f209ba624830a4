import numpy as np
import pytest

from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.base import Element, Parts
from terrazzo.format.filters.double_delta import DoubleDelta


def test_the_example_of_the_reference() -> None:
    values = np.array([10, 12, 15, 16, 14], "<i4")
    parts = DoubleDelta().encode(Parts((), (values.tobytes(),)), Element(Datatype.INT32, 4, 22))

    assert b"".join(parts.metadata) == bytes.fromhex("00000000 01000000 14000000 19000000")
    assert b"".join(parts.data) == bytes.fromhex("02 0500000000000000 0a000000 0c000000 000000000000803b")


@pytest.mark.parametrize(
    ("datatype", "count", "first", "step"),
    [(Datatype.UINT64, 14, 0, 12), (Datatype.INT32, 70, 5, -3), (Datatype.UINT8, 300, 250, 7)],
)
def test_elements_at_equal_distances_may_be_stored_as_signs_alone(
    datatype: Datatype, count: int, first: int, step: int
) -> None:
    """Releases before 2.0 did so: magnitudes of no bits."""
    values = (first + step * np.arange(count)).astype(datatype.dtype)
    n_words = -(-(count - 2) // 64)
    stored = b"\0" + count.to_bytes(8, "little") + values[:2].tobytes() + bytes(8 * n_words)
    sizes = np.array([0, 1, values.nbytes, len(stored)], "<u4").tobytes()
    parts = DoubleDelta().decode(
        Parts((sizes,), (stored,)), Element(datatype, datatype.size, 3), values.nbytes
    )

    assert b"".join(parts.data) == values.tobytes()
