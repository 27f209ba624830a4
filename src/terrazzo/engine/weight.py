"""What cells weigh while they are consolidated: bytes of memory, told before anything of them is read."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from terrazzo.engine.fragments import Fragment
from terrazzo.engine.snapshot import StoredCondition
from terrazzo.engine.view import View
from terrazzo.format.orders import Layout

_Sizes = NDArray[np.int64]

# Bytes per cell, beside its columns.
_BARE = (
    32  # time, key, place in the order, whether it is inside the box; a little more for what is being sorted
)
_KEYS = 96  # of coordinates that need several keys, and where cells are alike in the first are sorted again
_TEXT = 32  # per dimension of text: its bytes as numbers
_VERSIONS = 160  # when every version begins and ends and by what, masks of conditions, a second order
_COPIES = 3  # of columns where conditions are at work: without cells outside of the box, and with what updates append
_PIECES = 8  # one part in so many of the memory is for tiles on their way, stored or encoded


@dataclass(frozen=True, slots=True)
class Weight:
    copies: int  # of the columns
    per_cell: int

    def sizes(self, cells: _Sizes, columns: _Sizes) -> _Sizes:
        """Of tiles with so many cells, and so many bytes of columns."""
        return columns * self.copies + cells * self.per_cell

    def room(self, memory: int) -> int:
        """What the cells of one task may weigh."""
        return max(1, memory - memory // _PIECES)


def weight_of(
    view: View, run: Sequence[Fragment], conditions: Sequence[StoredCondition], *, purge: bool
) -> Weight:
    dims = view.schema.dims
    several = view.schema.cell_order is Layout.HILBERT or any(d.is_var or d.datatype.is_float for d in dims)
    bare = _BARE + (_KEYS if several else 0) + _TEXT * sum(dim.is_var for dim in dims)
    plain = not any(fragment.footer.slots.has_delete_metadata for fragment in run)
    plain &= not any(condition.time_ms >= run[0].name.start_ms for condition in conditions)
    plain &= not (purge and any(fragment.has_timestamps for fragment in run))
    if not view.schema.allows_duplicates:
        plain &= all(one.name.end_ms <= two.name.start_ms for one, two in pairwise(run))
    return Weight(1, bare) if plain else Weight(_COPIES, bare + _VERSIONS)
