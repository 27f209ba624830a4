"""A schema as text for people: a line for the array, then one for each dimension and attribute, aligned."""

from typing import TYPE_CHECKING, Any

import numpy as np

from terrazzo.format.attribute import Attr
from terrazzo.format.domain import Dim
from terrazzo.format.filters.pipeline import Pipeline

if TYPE_CHECKING:
    from terrazzo.format.schema import Schema


def describe(schema: "Schema") -> str:
    notes = ["sparse array" if schema.sparse else "dense array"]
    notes += [f"cells {schema.cell_order}", f"tiles {schema.tile_order}"]
    if schema.sparse:
        notes.append(f"capacity {schema.capacity:,}")
        notes.append(f"duplicates {'allowed' if schema.allows_duplicates else 'not allowed'}")
    notes.append(f"format {schema.version}")
    rows = [("dim", *_dim_row(dim, schema)) for dim in schema.dims]
    rows += [("attr", *_attr_row(attr, schema)) for attr in schema.attrs]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([" · ".join(notes), *(f"  {line}" for line in lines)])


def _dim_row(dim: Dim, schema: "Schema") -> tuple[str, str, str, str]:
    extent = ""
    if dim.domain is not None:
        low, high = (_shown(value, dim) for value in dim.domain)
        extent = f"[{low}, {high}]" + ("" if dim.tile is None else f" tile {dim.tile}")
    return dim.name, dim.datatype.name.lower(), extent, _filters_shown(schema.filters_of(dim))


def _attr_row(attr: Attr, schema: "Schema") -> tuple[str, str, str, str]:
    shape = "[]" if attr.var else "" if attr.values_per_cell == 1 else f"[{attr.values_per_cell}]"
    notes = ["nullable"] if attr.nullable else []
    if attr.enum is not None:
        size = f" of {len(schema.enums[attr.enum])}" if attr.enum in schema.enums else ""
        notes.append(f"enum {attr.enum}{size}")
    return (
        attr.name,
        attr.datatype.name.lower() + shape,
        ", ".join(notes),
        _filters_shown(schema.filters_of(attr)),
    )


def _shown(value: Any, dim: Dim) -> str:
    return str(np.array(value).astype(f"M8[{dim.datatype.unit}]")) if dim.datatype.is_datetime else str(value)


def _filters_shown(pipeline: Pipeline) -> str:
    return " → ".join(each.code.name.lower() for each in pipeline.filters)
