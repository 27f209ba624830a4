"""The bodies of the sections of fragment metadata. Spec: format_spec/fragment.md.

offsets, sizes, null counts   u64 count · count × u64
mins, maxes                   u64 fixed bytes · u64 var bytes · fixed · var
                              fixed field: one value per tile; var field: u64 offsets into var
sums                          u64 count · count × 8 bytes, typed by the field
fragment statistics           per slot: u64+min · u64+max · 8 bytes sum · u64 null count
processed conditions          u64 count · count × (u64+text)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrazzo.errors import CorruptionError
from terrazzo.format.datatypes import VAR, Datatype
from terrazzo.format.wire import Bytes, Cursor, Writer

_NO_SUM = bytes(8)


def pack_u64s(values: Sequence[int] | NDArray[Any]) -> bytes:
    out = Writer()
    out.u64(len(values))
    out.u64s(values)
    return bytes(out)


def unpack_u64s(body: Bytes) -> NDArray[np.uint64]:
    cursor = Cursor(body)
    values = cursor.array("<u8", cursor.count64(8, "values"))
    cursor.expect_end()
    return values


def pack_sums(values: NDArray[Any]) -> bytes:
    """Sums as they come: int64, uint64 or float64."""
    out = Writer()
    out.u64(len(values))
    out.raw(values.tobytes())
    return bytes(out)


def unpack_sums(body: Bytes, dtype: np.dtype[Any]) -> NDArray[Any]:
    cursor = Cursor(body)
    values = cursor.array(dtype, cursor.count64(8, "sums"))
    cursor.expect_end()
    return values


def pack_extremes(fixed: Bytes, var: Bytes = b"") -> bytes:
    """Mins or maxes; both sizes stand in front, in bytes."""
    out = Writer()
    out.u64(len(fixed))
    out.u64(len(var))
    out.raw(fixed)
    out.raw(var)
    return bytes(out)


def pack_var_extremes(values: Sequence[bytes]) -> bytes:
    sizes = np.fromiter(map(len, values), np.uint64, len(values))
    starts = np.concatenate([np.zeros(1, np.uint64), np.cumsum(sizes, dtype=np.uint64)])[: len(values)]
    return pack_extremes(starts.astype("<u8").tobytes(), b"".join(values))


def unpack_extremes(body: Bytes, dtype: np.dtype[Any], cell_val_num: int) -> NDArray[Any]:
    """A value per tile: numbers of `dtype`, bytes of fixed width (void), or bytes objects of a var field."""
    cursor = Cursor(body)
    n_fixed, n_var = cursor.u64(), cursor.u64()
    fixed, var = cursor.take(n_fixed), cursor.take(n_var)
    cursor.expect_end()
    if cell_val_num == VAR:
        return _slices(fixed, var)
    if cell_val_num > 1:
        dtype = np.dtype((np.void, cell_val_num * dtype.itemsize))
    if n_fixed % dtype.itemsize:
        raise CorruptionError(f"{n_fixed} bytes are not whole values of {dtype.itemsize}", offset=0)
    return np.frombuffer(fixed, dtype)


def _slices(fixed: memoryview, var: memoryview) -> NDArray[Any]:
    if len(fixed) % 8:
        raise CorruptionError(f"{len(fixed)} bytes are not whole offsets", offset=0)
    starts = np.frombuffer(fixed, "<u8")
    ends = np.append(starts, np.uint64(len(var)))[1:]
    if (starts > ends).any():
        raise CorruptionError("offsets of minimum or maximum values run backwards", offset=16)
    values = np.empty(len(starts), object)
    values[:] = [bytes(var[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    return values


@dataclass(frozen=True, slots=True)
class FieldStatistics:
    """Of one field over the whole fragment, as stored bytes: empty where the field has none."""

    minimum: bytes = b""
    maximum: bytes = b""
    total: bytes = _NO_SUM
    null_count: int = 0


NO_STATISTICS = FieldStatistics()


def pack_statistics(fields: Sequence[FieldStatistics]) -> bytes:
    out = Writer()
    for each in fields:
        out.bytes64(each.minimum)
        out.bytes64(each.maximum)
        out.raw(each.total)
        out.u64(each.null_count)
    return bytes(out)


def unpack_statistics(body: Bytes, n_slots: int) -> tuple[FieldStatistics, ...]:
    cursor = Cursor(body)
    fields = tuple(
        FieldStatistics(cursor.bytes64(), cursor.bytes64(), bytes(cursor.take(8)), cursor.u64())
        for _ in range(n_slots)
    )
    cursor.expect_end()
    return fields


def pack_conditions(markers: Sequence[str]) -> bytes:
    out = Writer()
    out.u64(len(markers))
    for marker in markers:
        out.str64(marker)
    return bytes(out)


def unpack_conditions(body: Bytes) -> tuple[str, ...]:
    cursor = Cursor(body)
    markers = tuple(cursor.str64() for _ in range(cursor.count64(8, "condition names")))
    cursor.expect_end()
    return markers


def has_extremes(datatype: Datatype, cell_val_num: int) -> bool:
    """Whether a field keeps a minimum and a maximum per tile."""
    if datatype in {Datatype.CHAR, Datatype.STRING_ASCII}:
        return True
    return cell_val_num == 1 and sum_dtype(datatype, cell_val_num) is not None


def sum_dtype(datatype: Datatype, cell_val_num: int) -> np.dtype[Any] | None:
    """The type of a field's sums, or None where it keeps none."""
    if cell_val_num != 1:
        return None
    if datatype.is_unsigned or datatype is Datatype.BOOL:
        return np.dtype("<u8")
    if datatype.is_float:
        return np.dtype("<f8")
    if datatype.is_integer or datatype.is_datetime or datatype.is_time or datatype is Datatype.CHAR:
        return np.dtype("<i8")
    return None
