import numpy as np
import pytest

from terrazzo.engine.columns import Column
from terrazzo.engine.statistics import Kind, tile_statistics, with_statistics
from terrazzo.format.datatypes import Datatype
from terrazzo.format.fragment_file import SlotMetadata
from terrazzo.format.sections import unpack_sums

MOST, LEAST = 2**63 - 1, -(2**63)


def sums(values: list, datatype: Datatype, tile: int) -> tuple[list, object]:
    column = Column(np.array(values, datatype.dtype))
    starts = np.arange(0, len(values), tile)
    kept = Kind(datatype, 1, nullable=False, extremes=True)
    slot = with_statistics(SlotMetadata(), [tile_statistics(column, starts, kept)], kept)
    kind = np.dtype("<f8") if datatype.is_float else np.dtype("<u8" if datatype.is_unsigned else "<i8")
    return unpack_sums(slot.sums, kind).tolist(), np.frombuffer(slot.statistics.total, kind)[0].item()


@pytest.mark.parametrize(
    ("values", "tile", "expected"),
    [
        ([MOST, 1, -5, 7], 4, ([MOST], MOST)),
        ([MOST, 1, -5, 7], 1, ([MOST, 1, -5, 7], MOST)),
        ([MOST, 1, -5, LEAST, LEAST, 7], 2, ([MOST, LEAST, LEAST + 7], LEAST + 6)),
        ([LEAST, -1, 5, 7, 9, 9], 2, ([LEAST, 12, 18], LEAST + 30)),
        ([LEAST, -1, 5, 7, MOST, 9], 1, ([LEAST, -1, 5, 7, MOST, 9], LEAST)),
    ],
)
def test_a_sum_stays_where_it_leaves_64_bits_over_tiles_as_over_cells(
    values: list, tile: int, expected: tuple
) -> None:
    """These are what libtiledb stored for the same cells."""
    assert sums(values, Datatype.INT64, tile) == expected


def test_sums_of_floats_are_added_in_order() -> None:
    values = [1e16, 1.0, -1e16, 1.0] * 5

    assert sums(values, Datatype.FLOAT64, 4) == ([1.0] * 5, 5.0)
    assert sums(values, Datatype.FLOAT64, 1)[1] == 1.0


def test_infinities_add_up_without_a_warning() -> None:
    tiles, whole = sums([1.0, np.inf, -np.inf, np.inf], Datatype.FLOAT64, 2)

    assert tiles[0] == np.inf
    assert np.isnan(whole)


def test_a_sum_of_zeros_is_not_negative() -> None:
    tiles, whole = sums([-0.0, -0.0], Datatype.FLOAT32, 1)

    assert [str(each) for each in (*tiles, whole)] == ["0.0"] * 3
