"""Statistics per tile and per fragment, as libtiledb's aggregates and pruning expect them.

A null, and a cell of a dense tile outside the written box, does not count. NaN never becomes a minimum or a
maximum while there is a number beside it. Integer sums stay at a bound once they cross it.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

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

_HALF = np.int64(32)


def add_statistics(
    slot: SlotMetadata, column: Column, starts: NDArray[np.int64], datatype: Datatype, cell_val_num: int, *,
    nullable: bool = False, extremes: bool = True, counted: Mask | None = None,
) -> SlotMetadata:  # fmt: skip
    """`slot` with the statistics of its column, whose tiles begin at `starts`. `counted` leaves cells out."""
    valid = column.validity
    mask = counted if valid is None else valid if counted is None else valid & counted
    stored = FieldStatistics()
    if nullable:
        nulls = np.zeros(len(column), bool) if valid is None else ~valid
        counts = _per_tile(np.add, (nulls if counted is None else nulls & counted).astype(np.int64), starts)
        slot = replace(slot, null_counts=pack_u64s(counts))
        stored = replace(stored, null_count=int(counts.sum()))
    if extremes and has_extremes(datatype, cell_val_num):
        if column.is_var or (
            datatype in {Datatype.CHAR, Datatype.STRING_ASCII}
            and (cell_val_num > 1 or datatype is Datatype.STRING_ASCII)
        ):
            slot, stored = _text_extremes(slot, stored, column, starts, mask, cell_val_num)
        else:
            slot, stored = _number_extremes(slot, stored, column.values, starts, mask)
    total = sum_dtype(datatype, cell_val_num)
    if total is not None:
        with np.errstate(over="ignore", invalid="ignore"):  # infinities have sums too, NaN for two that differ
            sums = _sums(column.values, starts, mask, total)
            slot = replace(slot, sums=pack_sums(sums))
            stored = replace(stored, total=_fold(sums).tobytes())
    return replace(slot, statistics=stored)


def _per_tile(operation: np.ufunc, values: NDArray[Any], starts: NDArray[np.int64]) -> NDArray[Any]:
    return operation.reduceat(values, starts) if len(values) else values[:0]


def _number_extremes(
    slot: SlotMetadata,
    stored: FieldStatistics,
    values: NDArray[Any],
    starts: NDArray[np.int64],
    mask: Mask | None,
) -> tuple[SlotMetadata, FieldStatistics]:
    lowest, highest = _range(values.dtype)
    low = values if mask is None else np.where(mask, values, highest)
    high = values if mask is None else np.where(mask, values, lowest)
    mins = _per_tile(np.fmin if values.dtype.kind == "f" else np.minimum, low, starts)
    maxes = _per_tile(np.fmax if values.dtype.kind == "f" else np.maximum, high, starts)
    some = np.ones(len(mins), bool)
    if mask is not None:
        some = _per_tile(np.logical_or, mask, starts)
        mins[~some], maxes[~some] = 0, 0
    slot = replace(slot, mins=pack_extremes(mins.tobytes()), maxes=pack_extremes(maxes.tobytes()))
    if some.any():
        whole = np.fmin.reduce(mins[some]), np.fmax.reduce(maxes[some])
    else:
        whole = highest, lowest
    return slot, replace(stored, minimum=whole[0].tobytes(), maximum=whole[1].tobytes())


def _range(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    info: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return dtype.type(info.min), dtype.type(info.max)


def _text_extremes(
    slot: SlotMetadata, stored: FieldStatistics, column: Column, starts: NDArray[np.int64], mask: Mask | None,
    cell_val_num: int,
) -> tuple[SlotMetadata, FieldStatistics]:  # fmt: skip
    if column.is_var:
        cells = column.binary()
    else:
        kind = pa.binary(cell_val_num)
        flat = np.ascontiguousarray(column.values)
        cells = pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(flat)]).cast(pa.binary())
    if mask is not None:
        cells = pc.if_else(pa.array(mask), cells, pa.scalar(None, cells.type))
    ends = [*starts[1:].tolist(), len(column)]
    pairs = [
        pc.min_max(cells.slice(start, end - start)).as_py()
        for start, end in zip(starts.tolist(), ends, strict=True)
    ]
    empty = b"" if cell_val_num == VAR else bytes(cell_val_num)
    mins = [pair["min"] if pair["min"] is not None else empty for pair in pairs]
    maxes = [pair["max"] if pair["max"] is not None else empty for pair in pairs]
    whole = pc.min_max(cells).as_py()
    stored = replace(stored, minimum=whole["min"] or b"", maximum=whole["max"] or b"")
    if cell_val_num == VAR:
        return replace(slot, mins=pack_var_extremes(mins), maxes=pack_var_extremes(maxes)), stored
    return replace(slot, mins=pack_extremes(b"".join(mins)), maxes=pack_extremes(b"".join(maxes))), stored


def _sums(
    values: NDArray[Any], starts: NDArray[np.int64], mask: Mask | None, dtype: np.dtype[Any]
) -> NDArray[Any]:
    counted = values if mask is None else np.where(mask, values, values.dtype.type(0))
    wide = counted.astype(dtype, copy=False)
    sums = _per_tile(np.add, wide, starts)
    if dtype.kind == "f" or values.dtype.itemsize < 8:
        return sums  # a tile of 2**32 cells would be needed to overflow
    rough = _per_tile(np.add, np.abs(counted.astype(np.float64)), starts)
    for tile in np.flatnonzero(rough >= 2.0**62).tolist():
        end = int(starts[tile + 1]) if tile + 1 < len(starts) else len(wide)
        sums[tile] = _saturated(wide[int(starts[tile]) : end])
    return sums


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
    if sums.dtype.kind == "f":
        return np.asarray(sums.sum(), sums.dtype)
    total, info = sum(sums.tolist()), np.iinfo(sums.dtype)  # one number per tile
    return np.asarray(min(max(total, info.min), info.max), sums.dtype)
