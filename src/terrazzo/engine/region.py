"""Regions: per dimension the ranges of coordinates that are asked for, sorted and disjoint, ends included."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from terrazzo.engine.buffers import binaries, binary, mask_of
from terrazzo.engine.clock import moment
from terrazzo.engine.columns import Column, Mask
from terrazzo.errors import InvalidRequestError
from terrazzo.format.bounds import Bound, BoundsTable
from terrazzo.format.domain import Dim, as_number
from terrazzo.format.schema import Schema

Ranges = tuple[Bound, ...]

_MANY = 32


@dataclass(frozen=True, slots=True)
class Region:
    """None for a dimension that is not restricted; no range at all selects nothing."""

    ranges: tuple[Ranges | None, ...]

    @property
    def is_everything(self) -> bool:
        return all(each is None for each in self.ranges)

    @property
    def is_empty(self) -> bool:
        return any(each is not None and not each for each in self.ranges)

    def restricted(self, dim: int, bound: Bound) -> "Region":
        """The part of this region that lies within `bound` in one dimension. None is an open end."""
        low, high = bound
        kept: list[Bound] = []
        for a, b in self.ranges[dim] if self.ranges[dim] is not None else ((None, None),):  # type: ignore[union-attr]
            first = low if a is None else a if low is None else max(a, low)
            last = high if b is None else b if high is None else min(b, high)
            if first is None or last is None or first <= last:
                kept.append((first, last))
        ranges = list(self.ranges)
        ranges[dim] = tuple(kept)
        return Region(tuple(ranges))

    def tiles(self, boxes: BoundsTable) -> Mask:
        """Boxes that touch the region."""
        mask = np.ones(len(boxes), bool)
        for ranges, (low, high) in zip(self.ranges, boxes.columns, strict=True):
            if ranges is not None:
                mask &= _touching(ranges, low, high)
        return mask

    def covers(self, boxes: BoundsTable) -> Mask:
        """Boxes that lie inside the region, all of their cells included."""
        mask = np.ones(len(boxes), bool)
        for ranges, (low, high) in zip(self.ranges, boxes.columns, strict=True):
            if ranges is not None:
                inside = np.zeros(len(boxes), bool)
                for a, b in ranges[:64]:  # a box inside one of very many ranges is not worth the search
                    inside |= _at_least(low, a) & _at_most(high, b)
                mask &= inside
        return mask

    def cells(self, coords: Sequence[Column]) -> Mask | None:
        """Cells of the region; None where no dimension is restricted."""
        mask: Mask | None = None
        for ranges, column in zip(self.ranges, coords, strict=True):
            if ranges is not None:
                inside = _inside(ranges, column)
                mask = inside if mask is None else mask & inside
        return mask


def _at_least(values: NDArray[Any], bound: Any) -> Any:
    return True if bound is None else values >= comparable(bound)


def _at_most(values: NDArray[Any], bound: Any) -> Any:
    return True if bound is None else values <= comparable(bound)


def comparable(bound: Any) -> Any:
    """A bound that a column of numbers or of bytes compares with: numpy alone would drop zeros at the end of bytes."""
    return np.array(bound, object) if isinstance(bound, bytes) else bound


def _edges(ranges: Ranges, dtype: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    low, high = np.empty(len(ranges), dtype), np.empty(len(ranges), dtype)
    low[:], high[:] = [a for a, _ in ranges], [b for _, b in ranges]
    return low, high


def _touching(ranges: Ranges, low: NDArray[Any], high: NDArray[Any]) -> Mask:
    if len(ranges) <= 4 or any(None in each for each in ranges):
        mask = np.zeros(len(low), bool)
        for a, b in ranges:
            mask |= np.asarray(_at_least(high, a) & np.asarray(_at_most(low, b)), bool)
        return mask
    firsts, lasts = _edges(ranges, low.dtype)
    place = np.searchsorted(lasts, low)  # the first range that does not end before the box begins
    found = place < len(ranges)
    mask = np.zeros(len(low), bool)
    mask[found] = firsts[place[found]] <= high[found]
    return mask


def _inside(ranges: Ranges, column: Column) -> Mask:
    if column.is_var:
        return _strings_inside(ranges, column)
    values = column.values
    if len(ranges) <= 4 or any(None in each for each in ranges):
        mask = np.zeros(len(values), bool)
        for a, b in ranges:
            mask |= np.asarray(_at_least(values, a) & np.asarray(_at_most(values, b)), bool)
        return mask
    firsts, lasts = _edges(ranges, values.dtype)
    place = np.searchsorted(lasts, values)
    found = place < len(ranges)
    return found & (firsts[np.where(found, place, 0)] <= values)


def _strings_inside(ranges: Ranges, column: Column) -> Mask:
    import pyarrow.compute as pc  # noqa: PLC0415  # takes a while to import, and few need it

    cells = column.binary()
    points = [a for a, b in ranges if a is not None and a == b]
    mask = np.zeros(len(column), bool)
    if points:
        mask |= mask_of(pc.is_in(cells, value_set=binaries(points)))
    for a, b in ranges:
        if a is not None and a == b:
            continue
        inside = np.ones(len(column), bool)
        if a is not None:
            inside &= mask_of(pc.greater_equal(cells, binary(a)))
        if b is not None:
            inside &= mask_of(pc.less_equal(cells, binary(b)))
        mask |= inside
    return mask


def everything(schema: Schema) -> Region:
    return Region((None,) * len(schema.dims))


def parse_region(given: Mapping[str, Any] | None, schema: Schema) -> Region:
    """`{"x": (10, 20), "sample": ["a", "b"], "y": [(0, 5), (9, 12)]}`: tuples are ranges, lists are points
    or ranges."""
    if given is None:
        return everything(schema)
    if not isinstance(given, Mapping):
        raise InvalidRequestError(f"region={given!r}; a dict such as {{'x': (10, 20)}} is expected")
    for name in given:
        schema.dim(name)  # says which dimensions there are
    return Region(tuple(_ranges(given[dim.name], dim) if dim.name in given else None for dim in schema.dims))


def _ranges(given: Any, dim: Dim) -> Ranges | None:
    if given is None:
        return None
    if isinstance(given, slice):
        raise InvalidRequestError(f"the region of {dim.name!r} is a slice; write (low, high), both included")
    points = _whole_numbers(given, dim)
    if points is not None:
        return points
    items = [given] if isinstance(given, tuple) else list(given) if _is_list(given) else [given]
    ranges = [_range(item, dim) for item in items]
    return _merged(ranges, dim)


def _whole_numbers(given: Any, dim: Dim) -> Ranges | None:
    """Many points at once, neighbours joined to ranges; None for what has to be looked at one by one."""
    if not _is_list(given) or isinstance(given, (set, frozenset)) or not dim.datatype.is_integer:
        return None
    if len(given) < _MANY:
        return None
    try:
        values = (
            np.asarray(given)
            if not isinstance(given, (pa.Array, pa.ChunkedArray))
            else given.to_numpy(zero_copy_only=False)
        )
    except ValueError:  # numbers and ranges
        return None
    info = np.iinfo(dim.datatype.dtype)
    if (
        values.ndim != 1
        or values.dtype.kind not in "iu"
        or values.min() < info.min
        or values.max() > info.max
    ):
        return None
    wide = np.unique(values).astype(np.uint64 if dim.datatype.is_unsigned else np.int64)
    ends = np.flatnonzero(wide[1:].view(np.uint64) - wide[:-1].view(np.uint64) != 1)
    firsts, lasts = wide[np.append(0, ends + 1)], wide[np.append(ends, len(wide) - 1)]
    return tuple(zip(firsts.tolist(), lasts.tolist(), strict=True))


def _is_list(given: Any) -> bool:
    return isinstance(given, (list, set, frozenset, range, np.ndarray, pa.Array, pa.ChunkedArray))


def _range(item: Any, dim: Dim) -> Bound:
    if isinstance(item, tuple):
        if len(item) != 2:
            raise InvalidRequestError(f"the range {item!r} of {dim.name!r} is not (low, high)")
        low, high = (None if end is None else coordinate(end, dim) for end in item)
        if low is not None and high is not None and low > high:
            raise InvalidRequestError(f"the range {item!r} of {dim.name!r} ends before it begins")
        return low, high
    point = coordinate(item, dim)
    return point, point


def coordinate(value: Any, dim: Dim) -> Any:
    """A value of the caller as the dimension stores it."""
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    if dim.is_var:
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, bytes):
            return value
        raise InvalidRequestError(f"{value!r} is no coordinate of {dim.name!r}, which is text")
    if isinstance(value, str) and dim.datatype.is_datetime:
        try:
            value = moment(value)
        except ValueError:
            raise InvalidRequestError(f"{value!r} is no date for dimension {dim.name!r}") from None
    if dim.datatype.is_float and isinstance(value, (float, np.floating)) and np.isinf(value):
        return float(value)
    return as_number(value, dim.datatype, f"a coordinate of {dim.name!r}")


def _merged(ranges: list[Bound], dim: Dim) -> Ranges:
    """Sorted, and overlapping ones joined: a cell is asked for once."""
    if any(None in each for each in ranges) and len(ranges) > 1:
        low, high = _extent(dim)
        ranges = [(low if a is None else a, high if b is None else b) for a, b in ranges]
    merged: list[Bound] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def _extent(dim: Dim) -> Bound:
    if dim.domain is None:
        return b"", b"\xff" * 64
    return dim.domain
