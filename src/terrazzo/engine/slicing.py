"""Blocks of dense arrays: numpy slicing, half-open, in coordinates of the domain; and what is written."""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from terrazzo.engine.arrow import to_arrow, value_type
from terrazzo.engine.columns import Column
from terrazzo.engine.dense import Box, check_box, domain_box, one_box, placed, shape_of
from terrazzo.engine.region import coordinate, parse_region
from terrazzo.engine.tables import as_table, columns_of
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
    if part.stop is None:
        return low, whole[1]
    # One behind the last coordinate may be more than the type of the dimension can hold.
    past = isinstance(part.stop, (int, np.integer)) and int(part.stop) == whole[1] + 1
    high = whole[1] if past else int(coordinate(part.stop, dim)) - 1
    if low > high:
        raise InvalidRequestError(f"{part.start}:{part.stop} selects nothing of {dim.name!r}")
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
        cells = to_arrow(column.with_validity(None), attr, schema).to_pylist()
        values = np.fromiter(cells, object, len(column)).reshape(shape)
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
    """Without the axes of single numbers; a single cell is its value."""
    if not dropped:
        return values
    left = np.squeeze(values, axis=dropped)
    return left if left.ndim else left[()]


def is_block(data: Any) -> bool:
    """Whether data are the cells of one attribute, and not a table or several."""
    if isinstance(data, (list, tuple)) and len(data):
        return is_block(data[0])
    if hasattr(data, "schema") or hasattr(data, "columns"):
        return False
    is_array = hasattr(data, "__array__") or isinstance(data, (str, bytes))
    return is_array or not (hasattr(data, "__iter__") or hasattr(data, "__arrow_c_stream__"))


def flat_cells(value: Any, attr: Attr, box: Box) -> Any:
    """A block of cells, or one value for all, as the row-major list of cells that a write takes."""
    shape = shape_of(box)
    if isinstance(value, (pa.Array, pa.ChunkedArray)) or type(value).__name__ == "Series":
        return value  # with its nulls
    several = not attr.is_var and attr.cell_val_num > 1 and not attr.datatype.is_text
    cell = (attr.cell_val_num,) if several and value_type(attr.datatype) is not None else ()
    if value is None or isinstance(value, (str, bytes, np.generic)) or not hasattr(value, "__len__"):
        return _repeated(value, shape)
    if not isinstance(value, np.ndarray):
        value = _nested(value, len(shape)) if attr.is_var else np.asarray(value)
    if value.ndim == 0:
        return _repeated(value[()], shape)
    expected = (*shape, *cell)
    if cell and value.shape == cell:
        return np.broadcast_to(value, expected).reshape(-1, *cell)
    is_flat = value.shape == (prod(shape), *cell)
    if not is_flat and [n for n in value.shape if n != 1] != [n for n in expected if n != 1]:
        raise InvalidRequestError(f"{attr.name!r}: a block of {value.shape} for a box of {expected}")
    return value.reshape(-1, *cell)


def _repeated(value: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    if value is None or isinstance(value, (str, bytes)):
        filled = np.empty(prod(shape), object)
        filled[:] = value
        return filled
    return np.broadcast_to(np.asarray(value), shape).reshape(-1)


def _nested(value: Any, depth: int) -> NDArray[Any]:
    """Lists in lists as a block of objects, which may be lists themselves, of whatever length."""
    if not isinstance(value, (list, tuple)):
        return np.asarray(value)
    shape, items = [len(value)], list(value)
    for _ in range(depth - 1):
        sizes = {len(item) if isinstance(item, (list, tuple)) else -1 for item in items}
        if len(sizes) != 1 or -1 in sizes:
            break
        shape.append(sizes.pop())
        items = [inner for item in items for inner in item]
    return np.fromiter(items, object, len(items)).reshape(shape)


def dense_input(data: Any, region: Mapping[str, Any] | None, schema: Schema) -> tuple[dict[str, Column], Box]:
    """What a caller writes to a dense array, as columns of the cells of a box in row-major order: blocks, or columns
    with the coordinates of all cells."""
    box = one_box(parse_region(region, schema), schema)
    table = as_table(_blocks(data, box, schema), schema)
    if table is None:
        raise InvalidRequestError("there are no cells to write")
    attrs, dims = [attr.name for attr in schema.attrs], [dim.name for dim in schema.dims]
    if region is None and set(dims) <= set(table.schema.names):
        return placed(columns_of(table, schema, [*dims, *attrs]), schema)
    return columns_of(table, schema, attrs), box


def _blocks(data: Any, box: Box, schema: Schema) -> Any:
    """Blocks as flat columns."""
    attrs = {attr.name: attr for attr in schema.attrs}
    if not isinstance(data, Mapping):
        if len(attrs) != 1 or not is_block(data):
            return data
        data = {next(iter(attrs)): data}
    if any(dim.name in data for dim in schema.dims):
        return data
    return {
        name: flat_cells(value, attrs[name], box) if name in attrs else value for name, value in data.items()
    }
