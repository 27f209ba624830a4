"""R-tree: the bounding boxes of a sparse fragment's tiles. Spec: format_spec/fragment.md.

    u32 fanout · u32 levels · per level, root first: u64 count, then that many boxes

A parent covers `fanout` consecutive children and there is exactly one root: libtiledb drops tiles silently
from a tree that ends in several. Formats 3 and 4 begin with `u32 dimensions` and have a u8 datatype behind
the fanout. The boxes of the last level, one per tile in tile order, are all that a reader needs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from terrazzo.errors import CorruptionError
from terrazzo.format import versions
from terrazzo.format.bounds import BoundsTable, DimensionLike
from terrazzo.format.wire import Cursor, Writer

FANOUT = 10
_MAX_LEVELS = 64


@dataclass(frozen=True, slots=True)
class RTree:
    leaves: BoundsTable
    fanout: int = FANOUT

    def pack(self, dims: Sequence[DimensionLike]) -> bytes:
        levels = [self.leaves] if len(self.leaves) else []
        while levels and len(levels[-1]) > 1:
            levels.append(levels[-1].union(np.arange(0, len(levels[-1]), self.fanout)))
        out = Writer()
        out.u32(self.fanout)
        out.u32(len(levels))
        for level in reversed(levels):
            out.u64(len(level))
            level.pack(out, dims)
        return bytes(out)

    @classmethod
    def unpack(cls, body: bytes, dims: Sequence[DimensionLike], version: int) -> "RTree":
        cursor = Cursor(body)
        if version < versions.SPLIT_DIMENSIONS:
            cursor.u32()
        fanout = cursor.u32()
        if version < versions.SPLIT_DIMENSIONS:
            cursor.u8()
        n_levels = cursor.u32()
        if n_levels > _MAX_LEVELS:
            raise CorruptionError(f"an R-tree of {n_levels} levels", offset=cursor.offset - 4)
        if n_levels > 1 and fanout < 2:
            raise CorruptionError(f"an R-tree of {n_levels} levels has a fanout of {fanout}", offset=0)
        level = BoundsTable([(np.empty(0), np.empty(0)) for _ in dims])
        smallest = sum(16 if dim.is_var else 2 * dim.datatype.size for dim in dims)
        for _ in range(n_levels):
            level = BoundsTable.unpack(cursor, dims, cursor.count64(smallest, "boxes"))
        return cls(level, fanout)
