"""A schema inferred from data."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from terrazzo.engine.tables import DATATYPE, as_table
from terrazzo.errors import InvalidRequestError
from terrazzo.format.attribute import Attr
from terrazzo.format.datatypes import Datatype
from terrazzo.format.domain import Dim, as_number
from terrazzo.format.enumeration import Enumeration
from terrazzo.format.filters.compress import Zstd
from terrazzo.format.schema import Schema

_NUMBERS = {
    pa.int8(): "int8", pa.int16(): "int16", pa.int32(): "int32", pa.int64(): "int64", pa.uint8(): "uint8",
    pa.uint16(): "uint16", pa.uint32(): "uint32", pa.uint64(): "uint64", pa.float32(): "float32",
    pa.float64(): "float64", pa.bool_(): "bool", pa.date32(): "datetime_day",
}  # fmt: skip
_UNITS = {"s": "SEC", "ms": "MS", "us": "US", "ns": "NS"}
_DIVIDES = {1: 15, 2: 257, 4: 13_107, 8: 10_897}
"""Numbers that divide 2**8 - 1, 2**16 - 1, 2**32 - 1 and 2**64 - 1."""
_INDEX = ((1 << 7, "int8"), (1 << 15, "int16"), (1 << 31, "int32"))


def schema_of(
    data: Any, dims: str | Dim | Sequence[str | Dim], *, domain: Mapping[str, Any] | None = None,
    tile: Mapping[str, Any] | None = None, filters: Any = None, **options: Any,
) -> Schema:  # fmt: skip
    """A schema that the data fit: `dims` names the columns that become dimensions (or gives a Dim), all others become
    attributes, nullable where there are nulls, dictionary columns with an enumeration. The domain of a dimension is
    as wide as its type, unless it is given; that of a float, and of a dense array, is what the data span. `filters`
    are those of every attribute, or a dict of them by column. Other options are those of Schema."""
    table = as_table(data)
    if table is None:
        raise InvalidRequestError("there are no data to take a schema from")
    chosen = [dims] if isinstance(dims, (str, Dim)) else list(dims)
    names = [dim if isinstance(dim, str) else dim.name for dim in chosen]
    given = table.schema.names
    by_name = dict(filters) if isinstance(filters, Mapping) else {}
    for what, asked in (
        ("dims", names), ("domain", domain or {}), ("tile", tile or {}), ("filters", by_name),
    ):  # fmt: skip
        if unknown := [name for name in asked if name not in given]:
            raise InvalidRequestError(
                f"{what}: the data lack {', '.join(map(repr, unknown))}; they have {', '.join(map(repr, given))}"
            )
    dense = options.get("sparse") is False
    made = [
        dim if isinstance(dim, Dim) else _dim(dim, table, domain or {}, tile or {}, spanned=dense)
        for dim in chosen
    ]
    made = [_filtered(dim, by_name[dim.name]) if dim.name in by_name else dim for dim in made]
    pipeline = [Zstd()] if filters is None or isinstance(filters, Mapping) else filters
    enums: dict[str, Enumeration] = {}
    attrs = [_attr(name, table, by_name.get(name, pipeline), enums) for name in given if name not in names]
    if not attrs:
        raise InvalidRequestError("every column is a dimension; an array needs at least one attribute")
    return Schema(made, attrs, enums=enums, **options)


def _filtered(dim: Dim, filters: Any) -> Dim:
    return Dim(dim.name, dim.datatype, dim.domain, dim.tile, filters)


def _dim(
    name: str, table: Any, domains: Mapping[str, Any], tiles: Mapping[str, Any], *, spanned: bool
) -> Dim:
    column = table.column(name)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    datatype, what = datatype_of(table.schema.field(name), kind)
    if what == "text":
        return Dim(name, "ascii")
    if what != "number" or datatype is Datatype.BOOL:
        raise InvalidRequestError(f"column {name!r} of {column.type} cannot be a dimension")
    if name in domains:
        return Dim(name, datatype, domains[name], tiles.get(name))
    low, high = _span(name, column)
    if datatype.is_float:
        if low is None:
            raise InvalidRequestError(f"column {name!r} is empty; give its domain")
        return Dim(name, datatype, (low, high if high > low else low + 1), tiles.get(name))
    if spanned:
        if low is None:
            raise InvalidRequestError(f"column {name!r} is empty; give its domain")
        return Dim(name, datatype, (low, high), tiles.get(name))
    if name in tiles:
        extent = int(as_number(tiles[name], datatype, f"the tile of {name!r}"))
    else:
        extent = {1: 16, 2: 1000}.get(datatype.size, 10_000)
    return Dim(name, datatype, *_widest(name, datatype, extent, low, high, fixed=name in tiles))


def _span(name: str, column: Any) -> tuple[Any, Any]:
    """The lowest and the highest value as they are stored; None for no values."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    found = pc.min_max(column).as_py()
    if found["min"] is not None and found["min"] != found["min"]:
        raise InvalidRequestError(f"column {name!r} holds NaN, which is no coordinate")
    return found["min"], found["max"]


def _widest(
    name: str, datatype: Datatype, extent: int, low: Any, high: Any, *, fixed: bool
) -> tuple[tuple[int, int], int]:
    """A domain as wide as the type that holds `low` to `high`, and its tile."""
    for (first, last), step in _domains(datatype, extent, fixed=fixed):
        if low is None or (first <= low and high <= last):
            return (first, last), step
    raise InvalidRequestError(
        f"column {name!r} goes from {low} to {high}, which leaves no room in {datatype.name}; "
        f"cast it to a larger type, or give its domain"
    )


def _domains(datatype: Datatype, extent: int, *, fixed: bool) -> Iterator[tuple[tuple[int, int], int]]:
    """Domains to choose from: none is all of its type, and the last tile of each ends within the type. The first one
    leaves some room behind it, as libtiledb's users are used to."""
    info = np.iinfo(datatype.dtype)
    least, most = int(info.min), int(info.max)
    usual = least + 1 if least < 0 else 0
    yield (usual, most - (2 * extent if datatype.size > 1 else extent)), extent
    for first in (usual, least if least < 0 else 1):
        step = extent if fixed else 16 if first == least else _DIVIDES[datatype.size]
        last = first + (most - first + 1) // step * step - 1
        yield (first, min(last, most - 1) if first == least else last), step


def _attr(name: str, table: Any, filters: Any, enums: dict[str, Enumeration]) -> Attr:
    column, field = table.column(name), table.schema.field(name)
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _labelled(name, column, filters, enums)
    nullable = column.null_count > 0
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        datatype, what = datatype_of(field, kind.value_type)
        if what != "number":
            raise InvalidRequestError(f"column {name!r}: lists hold numbers, not {kind.value_type}")
        size = kind.list_size if pa.types.is_fixed_size_list(kind) else None
        return Attr(
            name, datatype, var=size is None, values_per_cell=size, nullable=nullable, filters=filters
        )
    if pa.types.is_fixed_size_binary(kind):
        return Attr(name, Datatype.BLOB, values_per_cell=kind.byte_width, nullable=nullable, filters=filters)
    datatype, what = datatype_of(field, kind)
    return Attr(
        name, Datatype.STRING_UTF8 if what == "text" else datatype, nullable=nullable, filters=filters
    )


def _labelled(name: str, column: Any, filters: Any, enums: dict[str, Enumeration]) -> Attr:
    kind = column.type.value_type
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(kind, kind)
    found = [chunk.dictionary.cast(plain) for chunk in column.chunks] or [pa.array([], plain)]
    labels = pa.concat_arrays(found).unique().drop_null()
    enums[name] = Enumeration(name, labels, ordered=bool(column.type.ordered))
    nullable = column.null_count > 0 or any(each.null_count for each in found)
    index = next((code for most, code in _INDEX if len(labels) < most), "int64")
    return Attr(name, index, nullable=nullable, filters=filters, enum=name)


def datatype_of(field: Any, kind: Any) -> tuple[Datatype, str]:
    if kind in _NUMBERS:
        told = (field.metadata or {}).get(DATATYPE)
        return Datatype.parse(_NUMBERS[kind] if told is None else told.decode()), "number"
    if pa.types.is_timestamp(kind):
        return Datatype[f"DATETIME_{_UNITS[kind.unit]}"], "number"
    if pa.types.is_duration(kind):
        return Datatype[f"TIME_{_UNITS[kind.unit]}"], "number"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return Datatype.STRING_ASCII, "text"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return Datatype.BLOB, "bytes"
    raise InvalidRequestError(
        f"column {field.name!r} of {kind} has no counterpart in an array; cast it first"
    )
