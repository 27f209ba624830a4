"""Statistics per tile and per fragment, as libtiledb's aggregates and pruning expect them.

A null, and a cell of a dense tile outside the written box, does not count. NaN never becomes a minimum or a
maximum while there is a number beside it. Integer sums stay at a bound once they cross it, those of tiles as
those of fragments.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from terrazzo.engine.buffers import bools
from terrazzo.engine.columns import Column, Mask
from terrazzo.format.datatypes import VAR, Datatype
from terrazzo.format.fragment_file import SlotMetadata
from terrazzo.format.sections import (
    FieldStatistics,
    has_extremes,
    pack_extremes,
    pack_sums,
    pack_u64s,
    pack_var_extremes,
    sum_dtype,
)

Starts = NDArray[np.int64]
_HALF = np.int64(32)
_IN_ORDER = 4096


@dataclass(frozen=True, slots=True)
class Kind:
    """Which statistics a field keeps."""

    datatype: Datatype
    cell_val_num: int
    nullable: bool
    extremes: bool  # minimum and maximum: of attributes and times, not of dimensions

    @property
    def is_text(self) -> bool:
        text = self.datatype in {Datatype.CHAR, Datatype.STRING_ASCII}
        return text and (self.cell_val_num != 1 or self.datatype is Datatype.STRING_ASCII)

    @property
    def has_extremes(self) -> bool:
        return self.extremes and has_extremes(self.datatype, self.cell_val_num)

    @property
    def total(self) -> np.dtype[Any] | None:
        return sum_dtype(self.datatype, self.cell_val_num)


@dataclass(frozen=True, slots=True)
class TileStatistics:
    """Of a run of tiles. `some` marks tiles with a cell that counts."""

    some: Mask
    mins: Any = None  # numbers, or a list of bytes
    maxes: Any = None
    sums: NDArray[Any] | None = None
    null_counts: NDArray[np.int64] | None = None


def tile_statistics(
    column: Column, starts: Starts, kind: Kind, counted: Mask | None = None
) -> TileStatistics:
    """Of the tiles of a column that begin at `starts`; `counted` leaves cells out."""
    valid = column.validity
    mask = counted if valid is None else valid if counted is None else valid & counted
    some = np.ones(len(starts), bool) if mask is None else np.logical_or.reduceat(mask, starts)
    found = TileStatistics(some)
    if kind.nullable:
        nulls = np.zeros(len(column), bool) if valid is None else ~valid
        nulls = nulls if counted is None else nulls & counted
        found = replace(found, null_counts=np.add.reduceat(nulls, starts, dtype=np.int64))
    if kind.has_extremes:
        if kind.is_text:
            pair: tuple[Any, Any] = _text_extremes(column, starts, mask, kind)
        else:
            # Quirk: a tile of nulls alone has zeros, unless it is a dense one that was written in part.
            zeros = ~some if counted is None else ~some & np.logical_and.reduceat(counted, starts)
            pair = _number_extremes(column.values, starts, mask, zeros)
        found = replace(found, mins=pair[0], maxes=pair[1])
    if kind.total is not None:
        with np.errstate(invalid="ignore", over="ignore"):  # infinities add up to what they add up to
            found = replace(found, sums=_sums(column.values, starts, mask, kind.total))
    return found


def with_statistics(slot: SlotMetadata, runs: Sequence[TileStatistics], kind: Kind) -> SlotMetadata:
    """`slot` with the statistics of all its tiles, and of the fragment."""
    stored = FieldStatistics()
    some = np.concatenate([run.some for run in runs])
    if kind.nullable:
        counts = np.concatenate([run.null_counts for run in runs if run.null_counts is not None])
        slot = replace(slot, null_counts=pack_u64s(counts))
        stored = replace(stored, null_count=int(counts.sum()))
    if kind.has_extremes and kind.is_text:
        mins = [cell for run in runs for cell in run.mins]
        maxes = [cell for run in runs for cell in run.maxes]
        low = [cell for cell, counts in zip(mins, some, strict=True) if counts]
        high = [cell for cell, counts in zip(maxes, some, strict=True) if counts]
        stored = replace(stored, minimum=min(low, default=b""), maximum=max(high, default=b""))
        pack = pack_var_extremes if kind.cell_val_num == VAR else lambda cells: pack_extremes(b"".join(cells))
        slot = replace(slot, mins=pack(mins), maxes=pack(maxes))
    elif kind.has_extremes:
        lows = np.concatenate([run.mins for run in runs])
        highs = np.concatenate([run.maxes for run in runs])
        slot = replace(slot, mins=pack_extremes(lows.tobytes()), maxes=pack_extremes(highs.tobytes()))
        lowest, highest = _range(lows.dtype)
        whole = (np.fmin.reduce(lows[some]), np.fmax.reduce(highs[some])) if some.any() else (highest, lowest)
        stored = replace(stored, minimum=whole[0].tobytes(), maximum=whole[1].tobytes())
    if kind.total is not None:
        sums = np.concatenate([run.sums for run in runs if run.sums is not None])
        slot = replace(slot, sums=pack_sums(sums))
        with np.errstate(invalid="ignore", over="ignore"):
            stored = replace(stored, total=_fold(sums).tobytes())
    return replace(slot, statistics=stored)


def _number_extremes(
    values: NDArray[Any], starts: Starts, mask: Mask | None, zeros: Mask
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Of a tile in which nothing counts, the largest number is the minimum and the lowest the maximum; or both are 0."""
    lowest, highest = _range(values.dtype)
    mins = _reduced("min", values if mask is None else np.where(mask, values, highest), starts)
    maxes = _reduced("max", values if mask is None else np.where(mask, values, lowest), starts)
    mins[zeros], maxes[zeros] = 0, 0
    return mins, maxes


def _reduced(side: str, values: NDArray[Any], starts: Starts) -> NDArray[Any]:
    found: NDArray[Any] = (np.minimum if side == "min" else np.maximum).reduceat(values, starts)
    if values.dtype.kind == "f" and np.isnan(found).any():
        found = (np.fmin if side == "min" else np.fmax).reduceat(values, starts)
    return found


def _range(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    info: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return dtype.type(info.min), dtype.type(info.max)


def _text_extremes(
    column: Column, starts: Starts, mask: Mask | None, kind: Kind
) -> tuple[list[bytes], list[bytes]]:
    if column.is_var:
        cells = column.binary()
    else:
        flat = pa.py_buffer(np.ascontiguousarray(column.values))
        cells = pa.Array.from_buffers(pa.binary(kind.cell_val_num), len(column), [None, flat]).cast(
            pa.binary()
        )
    if mask is not None:
        cells = pc.if_else(bools(mask), cells, pa.nulls(1, cells.type)[0])
    ends = [*starts[1:].tolist(), len(column)]
    pairs = [
        pc.min_max(cells.slice(start, end - start)).as_py()
        for start, end in zip(starts.tolist(), ends, strict=True)
    ]
    empty = b"" if kind.cell_val_num == VAR else bytes(kind.cell_val_num)
    mins = [pair["min"] if pair["min"] is not None else empty for pair in pairs]
    return mins, [pair["max"] if pair["max"] is not None else empty for pair in pairs]


def _sums(values: NDArray[Any], starts: Starts, mask: Mask | None, dtype: np.dtype[Any]) -> NDArray[Any]:
    counted = values if mask is None else np.where(mask, values, values.dtype.type(0))
    if dtype.kind == "f":
        ends = [*starts[1:].tolist(), len(counted)]
        return np.array([_float_sum(counted[a:b]) for a, b in zip(starts.tolist(), ends, strict=True)], dtype)
    sums: NDArray[Any] = np.add.reduceat(counted, starts, dtype=dtype)
    if values.dtype.itemsize < 8:
        return sums  # a tile of 2**32 cells would be needed to overflow
    # With a factor of 8 to spare the largest value times the cells of a tile tells that nothing overflowed.
    largest = max(abs(float(counted.max())), abs(float(counted.min())))
    sizes = np.diff(np.append(starts, len(counted)))
    if largest * float(sizes.max(initial=0)) < 2.0**60:
        return sums
    for tile in range(len(starts)):
        sums[tile] = _saturated(
            counted[int(starts[tile]) : int(starts[tile] + sizes[tile])].astype(dtype, copy=False)
        )
    return sums


def _float_sum(values: NDArray[Any]) -> Any:
    """A short run is added in order, which gives libtiledb's very bits; a long one in pairs, which is closer to the
    truth and fifteen times as fast."""
    if len(values) > _IN_ORDER:
        return values.sum(dtype=np.float64)
    return np.cumsum(values, dtype=np.float64)[-1] + 0.0  # a sum begins with 0, so that it is never -0


def _saturated(values: NDArray[Any]) -> Any:
    """The running sum, which stays where it first leaves 64 bits; exact, in halves of 32 bits."""
    low = (values & values.dtype.type(0xFFFF_FFFF)).astype(np.int64)
    high = (values >> values.dtype.type(32)).astype(np.int64)
    carried = np.cumsum(low)
    top = np.cumsum(high) + (carried >> _HALF)
    info = np.iinfo(values.dtype)
    over, under = top > (info.max >> 32), top < (info.min >> 32)
    if not (over | under).any():
        return values.sum()
    first = int(np.argmax(over | under))
    return values.dtype.type(info.max if over[first] else info.min)


def _fold(sums: NDArray[Any]) -> NDArray[Any]:
    """The sum of a fragment out of those of its tiles, one after the other."""
    total = _float_sum(sums) if sums.dtype.kind == "f" else _saturated(sums)
    return np.asarray(total, sums.dtype)
