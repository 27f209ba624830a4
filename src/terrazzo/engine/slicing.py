"""numpy slicing of dense arrays: half-open, in coordinates of the domain."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrazzo.engine.arrow import to_arrow
from terrazzo.engine.columns import Column
from terrazzo.engine.dense import Box, check_box, domain_box, shape_of
from terrazzo.engine.region import coordinate
from terrazzo.errors import InvalidRequestError
from terrazzo.format.attribute import Attr
from terrazzo.format.datatypes import Datatype
from terrazzo.format.domain import Dim
from terrazzo.format.schema import Schema


def parse_index(index: Any, schema: Schema) -> tuple[Box, tuple[int, ...]]:
    """The box of an index, and the axes that single numbers take out of the result."""
    if schema.sparse:
        raise InvalidRequestError(
            "a sparse array is not sliced; use read(region={…}), whose ranges are inclusive"
        )
    parts = list(index) if isinstance(index, tuple) else [index]
    n_dims = len(schema.dims)
    if any(part is Ellipsis for part in parts):
        place = next(i for i, part in enumerate(parts) if part is Ellipsis)
        parts[place : place + 1] = [slice(None)] * (n_dims - len(parts) + 1)
    if len(parts) > n_dims or any(part is Ellipsis for part in parts):
        raise InvalidRequestError(f"{len(parts)} indices for an array of {n_dims} dimensions")
    parts += [slice(None)] * (n_dims - len(parts))
    box, dropped = [], []
    for axis, (part, dim, whole) in enumerate(zip(parts, schema.dims, domain_box(schema), strict=True)):
        if isinstance(part, slice):
            box.append(_range(part, dim, whole))
        else:
            point = int(coordinate(part, dim))
            box.append((point, point))
            dropped.append(axis)
    return check_box(tuple(box), schema), tuple(dropped)


def _range(part: slice, dim: Dim, whole: tuple[int, int]) -> tuple[int, int]:
    if part.step not in {None, 1}:
        raise InvalidRequestError(f"slices of {dim.name!r} have no step")
    low = whole[0] if part.start is None else int(coordinate(part.start, dim))
    high = whole[1] if part.stop is None else int(coordinate(part.stop, dim)) - 1
    return low, high


def to_numpy(column: Column, attr: Attr, schema: Schema, shape: tuple[int, ...]) -> Any:
    """Cells as an array: numbers and dates as such, text and labels as objects, nulls masked."""
    plain = (
        not attr.is_var
        and attr.enum is None
        and (attr.cell_val_num == 1 or attr.datatype.is_integer or attr.datatype.is_float)
    )
    if plain and not attr.datatype.is_string:
        cell = () if attr.cell_val_num == 1 else (attr.cell_val_num,)
        values = _typed(column.values, attr.datatype).reshape(*shape, *cell)
    else:
        objects = np.empty(len(column), object)
        objects[:] = to_arrow(column.with_validity(None), attr, schema).to_pylist()
        values = objects.reshape(shape)
    if column.validity is None:
        return values
    mask = ~column.validity.reshape(shape)
    extra = values.ndim - mask.ndim
    return np.ma.MaskedArray(values, np.broadcast_to(mask.reshape(*shape, *(1,) * extra), values.shape))


def _typed(values: NDArray[Any], datatype: Datatype) -> NDArray[Any]:
    if datatype.is_datetime:
        return values.view(f"M8[{datatype.unit}]")
    if datatype.is_time:
        return values.view(f"m8[{datatype.unit}]")
    return values.view(bool) if datatype is Datatype.BOOL else values


def squeezed(values: Any, dropped: tuple[int, ...]) -> Any:
    return np.squeeze(values, axis=dropped) if dropped else values


def flat_cells(value: Any, attr: Attr, box: Box) -> Any:
    """A block of cells, or one value for all, as the row-major list of cells that a write takes."""
    shape = shape_of(box)
    cell = (
        (attr.cell_val_num,)
        if not attr.is_var and attr.cell_val_num > 1 and not attr.datatype.is_string
        else ()
    )
    if not isinstance(value, np.ndarray):
        if not isinstance(value, (list, tuple)) and not hasattr(value, "__array__"):
            filled = np.empty(shape, object) if isinstance(value, (str, bytes)) or value is None else None
            if filled is None:
                return np.broadcast_to(np.asarray(value), (*shape, *cell)).reshape(-1, *cell)
            filled[...] = value
            return filled.reshape(-1)
        value = np.asarray(value)
    expected = (*shape, *cell)
    if [n for n in value.shape if n != 1] != [n for n in expected if n != 1]:
        raise InvalidRequestError(f"{attr.name!r}: a block of {value.shape} for a box of {expected}")
    return value.reshape(-1, *cell)
