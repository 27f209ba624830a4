"""Bounds: a low and a high value per dimension, as footers, R-trees and current domains store them.

fixed dimension   low · high, each one value of the dimension's type
string dimension  u64 size of both · u64 size of low · low · high
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from terrazzo.errors import CorruptionError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.wire import Cursor, Writer

Value = int | float | bytes
Bound = tuple[Any, Any]


class DimensionLike(Protocol):
    @property
    def datatype(self) -> Datatype: ...
    @property
    def is_var(self) -> bool: ...


def pack_bound(out: Writer, bound: Bound, dim: DimensionLike) -> None:
    low, high = bound
    if dim.is_var:
        out.u64(len(low) + len(high))
        out.u64(len(low))
        out.raw(low)
        out.raw(high)
    else:
        out.raw(np.array([low, high], dim.datatype.dtype).tobytes())


def unpack_bound(cursor: Cursor, dim: DimensionLike) -> Bound:
    if not dim.is_var:
        low, high = cursor.array(dim.datatype.dtype, 2).tolist()
        return low, high
    total = cursor.count64(1, "bytes of a string range")
    low_size = cursor.u64()
    if low_size > total:
        raise CorruptionError(f"a range of {total} bytes has a start of {low_size}", offset=cursor.offset - 8)
    both = bytes(cursor.take(total))
    return both[:low_size], both[low_size:]


def record_of(dims: Sequence[DimensionLike]) -> np.dtype[Any] | None:
    """The packed layout of one bound of all dimensions, if they are all of fixed size."""
    if any(dim.is_var for dim in dims):
        return None
    return np.dtype([(f"d{j}", dim.datatype.dtype, (2,)) for j, dim in enumerate(dims)])


class BoundsTable:
    """Bounds of many tiles: per dimension a column of lows and a column of highs.

    Columns of fixed dimensions have the dimension's type, those of string dimensions hold bytes objects.
    """

    __slots__ = ("columns",)

    def __init__(self, columns: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> None:
        self.columns = tuple(columns)

    @classmethod
    def of(cls, bounds: Sequence[Sequence[Bound]], dims: Sequence[DimensionLike]) -> "BoundsTable":
        """Out of plain values, a bound of all dimensions per tile."""
        return cls([(_column(bounds, j, 0, dim), _column(bounds, j, 1, dim)) for j, dim in enumerate(dims)])

    def __len__(self) -> int:
        return len(self.columns[0][0]) if self.columns else 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BoundsTable) and all(
            np.array_equal(mine, theirs)
            for pair, other_pair in zip(self.columns, other.columns, strict=True)
            for mine, theirs in zip(pair, other_pair, strict=True)
        )

    __hash__ = None  # type: ignore[assignment]

    def union(self, starts: NDArray[np.intp]) -> "BoundsTable":
        """One bound for each run of tiles that begins at `starts`."""
        return BoundsTable(
            [
                (np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts))
                for low, high in self.columns
            ]
        )

    def whole(self) -> tuple[Bound, ...]:
        """The bound of all tiles together, as plain values."""
        return tuple((_plain(low.min()), _plain(high.max())) for low, high in self.columns)

    def pack(self, out: Writer, dims: Sequence[DimensionLike]) -> None:
        record = record_of(dims)
        if record is None:
            for row in range(len(self)):
                for dim, (low, high) in zip(dims, self.columns, strict=True):
                    pack_bound(out, (low[row], high[row]), dim)
            return
        rows = np.empty(len(self), record)
        for j, (low, high) in enumerate(self.columns):
            rows[f"d{j}"][:, 0] = low
            rows[f"d{j}"][:, 1] = high
        out.raw(rows.tobytes())

    @classmethod
    def unpack(cls, cursor: Cursor, dims: Sequence[DimensionLike], count: int) -> "BoundsTable":
        record = record_of(dims)
        if record is not None:
            rows = cursor.array(record, count)
            return cls([(rows[name][:, 0].copy(), rows[name][:, 1].copy()) for name in record.names or ()])
        # Strings: a few microseconds per tile, and one tile is thousands of cells.
        bounds = [[unpack_bound(cursor, dim) for dim in dims] for _ in range(count)]
        return cls.of(bounds, dims)


def _column(bounds: Sequence[Sequence[Bound]], j: int, side: int, dim: DimensionLike) -> NDArray[Any]:
    column = np.empty(len(bounds), object if dim.is_var else dim.datatype.dtype)
    column[:] = [row[j][side] for row in bounds]
    return column


def _plain(value: Any) -> Any:
    return value if isinstance(value, bytes) else value.item()
