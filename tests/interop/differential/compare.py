"""Answers side by side."""

from collections import Counter
from typing import Any

import numpy as np

from differential.history import Columns, Query, Row
from differential.terrazzo_actor import NOT_A_TIME
from terrazzo import Schema


def rows_of(columns: Columns, query: Query, schema: Schema) -> Counter[Row]:
    """The rows, each as often as it is there; a time that is none counts as null."""
    told = []
    for name in query.columns:
        cells, field = columns[name], schema.field(name)
        if (field.datatype.is_datetime or field.datatype.is_time) and field.cell_val_num == 1:
            cells = [None if cell == NOT_A_TIME else cell for cell in cells]
        told.append(cells)
    return Counter(zip(*told, strict=True))


def difference(one: Counter[Row], other: Counter[Row]) -> str:
    """What only one side has, in a few lines; empty where they agree."""
    lines = [f"only terrazzo:  {count} × {row}" for row, count in (one - other).items()]
    lines += [f"only the other: {count} × {row}" for row, count in (other - one).items()]
    return "\n".join(lines[:12])


def same_metadata(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        one, other = np.asarray(one), np.asarray(other)
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, (bool, int, float)) and isinstance(other, (int, float, np.generic)):
        return np.asarray(one).dtype.kind == np.asarray(other).dtype.kind and bool(one == other)
    return type(one) is type(other) and bool(one == other)
