"""Windows: bit-width reduction and positive delta look at a part in stretches of a few elements."""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrazzo.errors import InvalidRequestError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.base import MOST_PARTS, few
from terrazzo.format.versions import WINDOW_FILTERS_ON_DATES

_LARGEST = 0xFFFF_FFFF


def check_max_window(max_window: int) -> None:
    if not 0 <= max_window <= _LARGEST:
        raise InvalidRequestError(f"a window of {max_window} bytes; it is a number of 32 bits")


def window_size(size: int, max_window: int, width: int) -> int:
    """Bytes of every window but the last of a part: whole elements; 0 where none fits the part."""
    if max_window < width:
        raise InvalidRequestError(f"a window of {max_window} bytes holds no element of {width} bytes")
    return min(size, max_window) // width * width


def is_windowed_date(datatype: Datatype, version: int) -> bool:
    return version >= WINDOW_FILTERS_ON_DATES and (datatype.is_datetime or datatype.is_time)


def equal_runs(sizes: NDArray[Any]) -> list[tuple[int, int]]:
    """(first, end) of each longest run of equal sizes: usually all windows, or all and a shorter last."""
    cuts = (np.flatnonzero(sizes[1:] != sizes[:-1]) + 1).tolist()
    few(len(cuts), "changes of window size", 2 * MOST_PARTS)
    edges = [0, *cuts, len(sizes)]
    return list(pairwise(edges)) if len(sizes) else []
