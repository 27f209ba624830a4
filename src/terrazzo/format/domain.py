"""Dimensions. Spec: format_spec/array_schema.md.

    dimension        str32 name · u8 datatype · u32 values per cell · pipeline
                     u64 size · low, high · u8 no tile · [tile extent]
    before format 5  str32 name · low, high · u8 no tile · [tile extent]; one u8 datatype before them all

# Quirk: the tile extent of a signed dimension is an unsigned number: int8 [-100, 100] has one of 201.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from operator import index
from typing import Any, Self

import numpy as np

from terrazzo.errors import CorruptionError, InvalidRequestError
from terrazzo.format.datatypes import VAR, Datatype
from terrazzo.format.filters.pipeline import Pipeline
from terrazzo.format.versions import SPLIT_DIMENSIONS, WRITTEN
from terrazzo.format.wire import Cursor, Writer

Number = int | float


def as_pipeline(filters: Any) -> Pipeline:
    """`filters` is a pipeline, or the filters of one in the order of writing."""
    return filters if isinstance(filters, Pipeline) else Pipeline(tuple(filters))


def check_name(name: str, what: str) -> str:
    if not isinstance(name, str):
        raise InvalidRequestError(f"the name of {what} is text, not {type(name).__name__}")
    return name


def as_number(value: Any, datatype: Datatype, what: str) -> Number:
    """`value` as it is stored: a count of the unit for dates, an int, or a float of the type's precision."""
    if datatype.is_float:
        return _as_float(value, datatype, what)
    if isinstance(value, str) and datatype.is_datetime:
        try:
            value = np.datetime64(value)
        except ValueError:
            raise InvalidRequestError(f"{what} is {value!r}, not a date such as '2026-01-31'") from None
    if isinstance(value, (np.datetime64, np.timedelta64, date, timedelta)):
        value = _as_count(value, datatype, what)
    try:
        number = (
            int(value) if isinstance(value, (float, np.floating)) and value == int(value) else index(value)
        )
    except (TypeError, ValueError, OverflowError):
        raise InvalidRequestError(f"{what} is {value!r}; {datatype.name} takes whole numbers") from None
    limits = np.iinfo(datatype.dtype)
    if not limits.min <= number <= limits.max:
        raise InvalidRequestError(
            f"{what} is {number}; {datatype.name} goes from {limits.min} to {limits.max}"
        )
    return number


def _as_float(value: Any, datatype: Datatype, what: str) -> float:
    try:
        with np.errstate(over="ignore"):
            number = float(datatype.dtype.type(value))
    except (TypeError, ValueError):
        raise InvalidRequestError(f"{what} is {value!r}, not a number") from None
    if not np.isfinite(number):
        raise InvalidRequestError(f"{what} is {value!r}; {datatype.name} needs a finite number")
    return number


def _as_count(value: Any, datatype: Datatype, what: str) -> int:
    if not (datatype.is_datetime or datatype.is_time):
        raise InvalidRequestError(f"{what} is {value!r}; {datatype.name} takes numbers, not dates")
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    is_span = isinstance(value, (np.timedelta64, timedelta))
    exact = np.timedelta64(value) if is_span else np.datetime64(value)
    counted = exact.astype(f"{'m' if is_span else 'M'}8[{datatype.unit}]")
    if np.isnat(exact) or counted != exact:
        raise InvalidRequestError(f"{what} is {value!r}, which is no whole number of {datatype.name}")
    return int(counted.astype(np.int64))


@dataclass(frozen=True, slots=True, init=False)
class Dim:
    """A dimension. Text has neither domain nor tile; without a tile, one spans the domain."""

    name: str
    datatype: Datatype
    domain: tuple[Number, Number] | None
    tile: Number | None
    filters: Pipeline

    def __init__(
        self, name: str, datatype: Any, domain: Any = None, tile: Any = None, filters: Any = ()
    ) -> None:
        check_name(name, "a dimension")
        resolved = Datatype.parse(datatype)
        self._fill(name, resolved, None, None, as_pipeline(filters))
        if resolved is Datatype.STRING_ASCII:
            if domain not in {None, (None, None)} or tile is not None:
                raise InvalidRequestError(f"dimension {name!r} is text: it takes neither a domain nor a tile")
            return
        if not _is_numeric(resolved):
            raise InvalidRequestError(
                f"dimension {name!r} cannot be {resolved.name}; "
                "dimensions are whole numbers, floats, dates or 'ascii'"
            )
        if domain is None:
            raise InvalidRequestError(f"dimension {name!r} needs a domain, such as (0, 999)")
        try:
            low, high = domain
        except (TypeError, ValueError):
            raise InvalidRequestError(f"the domain of {name!r} is {domain!r}; (low, high) expected") from None
        low = as_number(low, resolved, f"the low end of {name!r}")
        high = as_number(high, resolved, f"the high end of {name!r}")
        _check_domain(name, resolved, low, high)
        self._fill(name, resolved, (low, high), _tile(name, resolved, low, high, tile), self.filters)

    def _fill(
        self,
        name: str,
        datatype: Datatype,
        domain: tuple[Number, Number] | None,
        tile: Number | None,
        filters: Pipeline,
    ) -> None:
        values = (name, datatype, domain, tile, filters)
        for key, value in zip(("name", "datatype", "domain", "tile", "filters"), values, strict=True):
            object.__setattr__(self, key, value)

    @property
    def is_var(self) -> bool:
        return self.datatype.is_string

    @property
    def nullable(self) -> bool:
        return False

    @property
    def cell_val_num(self) -> int:
        return VAR if self.is_var else 1

    @property
    def cell_size(self) -> int | None:
        """Bytes of a coordinate, or None where they vary."""
        return None if self.is_var else self.datatype.size

    @property
    def extent(self) -> int:
        """Cells that a tile of a dense array has along this dimension: all of them where an old one has no tile."""
        assert self.domain is not None  # text has no place in dense arrays
        return int(self.domain[1]) - int(self.domain[0]) + 1 if self.tile is None else int(self.tile)

    @property
    def n_tiles(self) -> int | None:
        """Tiles that cover the domain; None for text, and where an old array has no tiles."""
        if self.domain is None or self.tile is None:
            return None
        low, high = self.domain
        if self.datatype.is_float:
            with np.errstate(all="ignore"):
                count = np.float64(high - low) / self.tile
            # What an old release let pass, a tile of 0 or no number, counts as one tile.
            return int(count) + 1 if np.isfinite(count) else 1
        return (int(high) - int(low)) // int(self.tile) + 1

    def pack(self, writer: Writer, version: int = WRITTEN) -> None:
        writer.str32(self.name)
        if version >= SPLIT_DIMENSIONS:
            writer.u8(self.datatype)
            writer.u32(self.cell_val_num)
            self.filters.pack(writer, version)
            writer.u64(0 if self.domain is None else 2 * self.datatype.size)
        if self.domain is not None:
            writer.raw(np.array(self.domain, self.datatype.dtype).tobytes())
        writer.u8(self.tile is None)
        if self.tile is not None:
            writer.raw(np.array(self.tile, _extent_dtype(self.datatype)).tobytes())

    @classmethod
    def unpack(cls, cursor: Cursor, version: int, datatype: Datatype | None = None) -> Self:
        """`datatype` is the domain's, before format 5. What an old release let pass is let pass here."""
        name = cursor.str32()
        start = cursor.offset
        if datatype is None:
            datatype = Datatype.of_code(cursor.u8(), offset=start)
            cell_val_num = cursor.u32()
            filters = Pipeline.unpack(cursor, version)
            size = cursor.u64()
        else:
            filters, size, cell_val_num = Pipeline(), 2 * datatype.size, 1
        is_text = datatype is Datatype.STRING_ASCII
        if not (is_text or _is_numeric(datatype)) or cell_val_num != (VAR if is_text else 1):
            raise CorruptionError(f"dimension {name!r} of {cell_val_num} {datatype.name}", offset=start)
        if size != (0 if is_text else 2 * datatype.size):
            raise CorruptionError(f"the domain of {name!r} has {size} bytes", offset=cursor.offset - 8)
        domain = None if is_text else unpack_range(cursor, datatype, name)
        tile = None if cursor.flag("no tile") else _unpack_tile(cursor, datatype, name)
        dim = object.__new__(cls)
        dim._fill(name, datatype, domain, tile, filters)
        return dim


def _is_numeric(datatype: Datatype) -> bool:
    return datatype.is_integer or datatype.is_float or datatype.is_datetime or datatype.is_time


def _extent_dtype(datatype: Datatype) -> np.dtype[Any]:
    return datatype.dtype if datatype.is_float else np.dtype(f"<u{datatype.size}")


def _check_domain(name: str, datatype: Datatype, low: Number, high: Number) -> None:
    if low > high:
        raise InvalidRequestError(f"the domain of {name!r} is empty: {low} is above {high}")
    if datatype.is_float:
        return
    limits = np.iinfo(datatype.dtype)
    if (low, high) == (limits.min, limits.max):
        # Quirk: libtiledb counts the values of a domain in the type's own width.
        raise InvalidRequestError(
            f"the domain of {name!r} is all of {datatype.name}; leave out one value, e.g. {high}"
        )


def _tile(name: str, datatype: Datatype, low: Number, high: Number, tile: Any) -> Number:
    if datatype.is_float:
        with np.errstate(over="ignore"):
            if not np.isfinite(datatype.dtype.type(high) - datatype.dtype.type(low)):
                raise InvalidRequestError(
                    f"the domain of {name!r} is wider than any number of {datatype.name}"
                )
        # Quirk: libtiledb stores a tile of 0 for a domain of one float, and divides by it later.
        extent = (high - low or 1.0) if tile is None else tile
        number = _as_float(extent, datatype, f"the tile of {name!r}")
        if number <= 0 or number > high - low + 1:
            raise InvalidRequestError(f"the tile of {name!r} is {number}; the domain is {high - low} wide")
        return number
    low, high = int(low), int(high)
    width = high - low + 1
    if tile is None:
        return width
    number = int(
        as_number(tile, Datatype.UINT64 if datatype.is_integer else datatype, f"the tile of {name!r}")
    )
    if not 1 <= number <= width:
        raise InvalidRequestError(f"the tile of {name!r} is {number}; the domain holds {width} values")
    largest = int(np.iinfo(datatype.dtype).max)
    last_whole = low + (largest - low + 1) // number * number - 1
    if high > last_whole:
        raise InvalidRequestError(
            f"the last tile of {name!r} reaches beyond {datatype.name}; "
            f"end the domain at {last_whole} or below"
        )
    return number


def unpack_range(cursor: Cursor, datatype: Datatype, name: str) -> tuple[Number, Number]:
    start = cursor.offset
    low, high = cursor.array(datatype.dtype, 2).tolist()
    if not low <= high:  # NaN is not at home here either
        raise CorruptionError(f"{name!r} goes from {low} to {high}", offset=start)
    return low, high


def _unpack_tile(cursor: Cursor, datatype: Datatype, name: str) -> Number:
    start = cursor.offset
    if datatype.is_string:
        raise CorruptionError(f"text dimension {name!r} has a tile", offset=start)
    (tile,) = cursor.array(_extent_dtype(datatype), 1).tolist()
    if not tile >= 0 or (tile == 0 and not datatype.is_float):
        raise CorruptionError(f"the tile of {name!r} is {tile}", offset=start)
    return tile  # type: ignore[no-any-return]
