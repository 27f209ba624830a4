"""Upserts: of several cells at the same coordinates in the input, the last counts."""

from typing import Any

import numpy as np

from terrazzo.engine.buffers import numbers
from terrazzo.engine.order import sort_cells, sort_keys
from terrazzo.engine.tables import as_table, columns_of
from terrazzo.format.schema import Schema


def last_of_each(data: Any, schema: Schema) -> Any:
    """The input as one table without repeated coordinates."""
    table = as_table(data, schema)
    if table is None:
        return ()
    columns = columns_of(table, schema, [field.name for field in schema.fields])
    keys = sort_keys([columns[dim.name] for dim in schema.dims], schema, "row-major")
    index, same = sort_cells(keys)
    if not same.any():
        return table
    last = np.append(~same[1:], True)  # stable: within a group the last row of the input comes last
    kept = np.flatnonzero(last) if index is None else index[last]
    return table.take(numbers(np.sort(kept)))
