"""A schema inferred from data."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from terrazzo.engine.tables import as_table
from terrazzo.errors import InvalidRequestError
from terrazzo.format.attribute import Attr
from terrazzo.format.datatypes import Datatype
from terrazzo.format.domain import Dim
from terrazzo.format.enumeration import Enumeration
from terrazzo.format.filters.compress import Zstd
from terrazzo.format.schema import Schema

_NUMBERS = {
    pa.int8(): "int8", pa.int16(): "int16", pa.int32(): "int32", pa.int64(): "int64", pa.uint8(): "uint8",
    pa.uint16(): "uint16", pa.uint32(): "uint32", pa.uint64(): "uint64", pa.float32(): "float32",
    pa.float64(): "float64", pa.bool_(): "bool", pa.date32(): "datetime_day",
}  # fmt: skip
_UNITS = {"s": "SEC", "ms": "MS", "us": "US", "ns": "NS"}
_INDEX = ((1 << 7, "int8"), (1 << 15, "int16"), (1 << 31, "int32"))


def schema_of(
    data: Any, dims: Sequence[str | Dim], *, domain: Mapping[str, Any] | None = None, tile: Mapping[str, Any] | None = None,
    filters: Any = None, **options: Any,
) -> Schema:  # fmt: skip
    """A schema that the data fit: `dims` names the columns that become dimensions (or gives a Dim), all others become
    attributes, nullable where there are nulls, dictionary columns with an enumeration. Domains are taken from
    the whole range of the type unless given. Other options are those of Schema."""
    table = as_table(data)
    if table is None:
        raise InvalidRequestError("there are no data to take a schema from")
    names = [dim if isinstance(dim, str) else dim.name for dim in dims]
    if unknown := [name for name in names if name not in table.schema.names]:
        raise InvalidRequestError(
            f"the data lack {', '.join(map(repr, unknown))}; they have {', '.join(map(repr, table.schema.names))}"
        )
    made = [
        dim if isinstance(dim, Dim) else _dim(dim, table.column(dim), domain or {}, tile or {})
        for dim in dims
    ]
    pipeline = [Zstd()] if filters is None else filters
    enums: dict[str, Enumeration] = {}
    attrs = [
        _attr(name, table.column(name), pipeline, enums) for name in table.schema.names if name not in names
    ]
    if not attrs:
        raise InvalidRequestError("every column is a dimension; an array needs at least one attribute")
    return Schema(made, attrs, enums=enums, **options)


def _dim(name: str, column: Any, domains: Mapping[str, Any], tiles: Mapping[str, Any]) -> Dim:
    datatype, kind = _datatype(name, column.type)
    if kind == "text":
        return Dim(name, "ascii")
    if kind != "number" or datatype is Datatype.BOOL:
        raise InvalidRequestError(f"column {name!r} of {column.type} cannot be a dimension")
    if name in domains:
        return Dim(name, datatype, domains[name], tiles.get(name))
    if datatype.is_float:
        found = pc.min_max(column).as_py()
        low, high = found["min"], found["max"]
        if low is None:
            raise InvalidRequestError(f"column {name!r} is empty; give its domain")
        return Dim(name, datatype, (low, high if high > low else low + 1), tiles.get(name))
    extent = int(tiles.get(name, 10_000))
    info = np.iinfo(datatype.dtype)
    low = info.min + 1 if info.min < 0 else 0
    if datatype.size == 1:
        extent = min(extent, 16)
    elif datatype.size == 2:
        extent = min(extent, 1000)
    return Dim(
        name, datatype, (low, info.max - 2 * extent if datatype.size > 1 else info.max - extent), extent
    )


def _attr(name: str, column: Any, filters: Any, enums: dict[str, Enumeration]) -> Attr:
    nullable = column.null_count > 0
    kind = column.type
    if pa.types.is_dictionary(kind):
        labels = (
            pa.concat_arrays([chunk.dictionary for chunk in column.chunks]).unique().drop_null()
            if column.num_chunks
            else pa.array([], kind.value_type)
        )
        enums[name] = Enumeration(name, labels, ordered=bool(kind.ordered))
        index = next((code for most, code in _INDEX if len(labels) < most), "int64")
        return Attr(name, index, nullable=nullable, filters=filters, enum=name)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        datatype, what = _datatype(name, kind.value_type)
        if what != "number":
            raise InvalidRequestError(f"column {name!r}: lists hold numbers, not {kind.value_type}")
        return Attr(name, datatype, var=True, nullable=nullable, filters=filters)
    if pa.types.is_fixed_size_list(kind):
        datatype, _ = _datatype(name, kind.value_type)
        return Attr(name, datatype, values_per_cell=kind.list_size, nullable=nullable, filters=filters)
    if pa.types.is_fixed_size_binary(kind):
        return Attr(name, Datatype.BLOB, values_per_cell=kind.byte_width, nullable=nullable, filters=filters)
    datatype, what = _datatype(name, kind)
    return Attr(
        name, Datatype.STRING_UTF8 if what == "text" else datatype, nullable=nullable, filters=filters
    )


def _datatype(name: str, kind: Any) -> tuple[Datatype, str]:
    if kind in _NUMBERS:
        return Datatype.parse(_NUMBERS[kind]), "number"
    if pa.types.is_timestamp(kind):
        return Datatype[f"DATETIME_{_UNITS[kind.unit]}"], "number"
    if pa.types.is_duration(kind):
        return Datatype[f"TIME_{_UNITS[kind.unit]}"], "number"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return Datatype.STRING_ASCII, "text"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return Datatype.BLOB, "bytes"
    raise InvalidRequestError(f"column {name!r} of {kind} has no counterpart in an array; cast it first")
