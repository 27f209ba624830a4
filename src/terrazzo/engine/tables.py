"""What users hand in, as Arrow batches of the columns that the schema asks for."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from terrazzo.engine.buffers import numbers
from terrazzo.engine.columns import Column
from terrazzo.engine.intake import exact_counts, from_arrow
from terrazzo.errors import InvalidRequestError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.schema import Schema

DATATYPE = b"tiledb.datatype"
"""Key of a field's metadata: what counts are of that Arrow has no type for."""

_PLAIN = frozenset(np.dtype(code) for code in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"))
_ARROW_UNITS = frozenset({"s", "ms", "us", "ns"})
_UNREADABLE = (pa.ArrowException, TypeError, ValueError, OverflowError)


def as_batches(data: Any, schema: Schema | None = None) -> Iterator[Any]:
    """Tables or batches, one after the other: Arrow, pandas, polars, a dict of arrays, or an iterable of these.

    pandas' NaN is a null, unless the schema has a field there that takes NaN and no nulls.
    """
    if isinstance(data, (pa.Table, pa.RecordBatch)):
        yield data
    elif isinstance(data, pa.RecordBatchReader):
        yield from data
    elif isinstance(data, Mapping):
        yield table_of(data, schema)
    elif _is_pandas(data) and hasattr(data, "columns"):
        yield _of_pandas(data, schema)
    elif hasattr(data, "__arrow_c_stream__") and not _is_pandas(data):  # polars, DuckDB, …
        yield from pa.RecordBatchReader.from_stream(data)
    elif (
        isinstance(data, Iterable) and not isinstance(data, (str, bytes, np.ndarray)) and not _is_pandas(data)
    ):
        for item in data:
            yield from as_batches(item, schema)
    else:
        raise InvalidRequestError(
            f"{type(data).__name__} cannot be written; give an Arrow table or reader, a pandas or polars frame, or a dict"
        )


def as_table(data: Any, schema: Schema | None = None) -> Any:
    """All batches as one table, or None if there are none at all."""
    tables = [
        batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
        for batch in as_batches(data, schema)
    ]
    if len(tables) <= 1:
        return tables[0] if tables else None
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as problem:
        raise InvalidRequestError(f"the batches do not go together: {_reason(problem)}") from None


def _is_pandas(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] == "pandas"


def _of_pandas(frame: Any, schema: Schema | None) -> Any:
    try:
        if any(name is not None for name in frame.index.names):
            frame = frame.reset_index()
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except _UNREADABLE as problem:
        raise InvalidRequestError(f"the frame cannot be read: {_reason(problem)}") from None
    for place, name in enumerate(table.schema.names):
        if table.column(place).null_count and _keeps_nan(frame.dtypes.iloc[place], name, schema):
            table = table.set_column(place, name, numbers(frame.iloc[:, place].to_numpy()))
    return table


def _keeps_nan(dtype: Any, name: str, schema: Schema | None) -> bool:
    """Whether the NaN of a pandas column are values: numpy's floats, where the array has no nulls."""
    if schema is None or not isinstance(dtype, np.dtype) or dtype not in _PLAIN:
        return False
    return schema.has(name) and schema.field(name).datatype.is_float and not schema.field(name).nullable


def table_of(columns: Mapping[str, Any], schema: Schema | None = None) -> Any:
    """A table of arrays, lists or Arrow arrays; a numpy matrix is a fixed number of values per cell."""
    arrays = {str(name): _array(name, values, schema) for name, values in columns.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name!r} {n}" for name, n in lengths.items())
        raise InvalidRequestError(f"the columns differ in length: {told}")
    fields = [
        pa.field(str(name), arrays[str(name)].type, metadata=_told(values))
        for name, values in columns.items()
    ]
    return pa.Table.from_arrays(list(arrays.values()), schema=pa.schema(fields))


def _told(values: Any) -> dict[bytes, bytes] | None:
    if isinstance(values, np.ndarray) and values.dtype.kind in "Mm":
        unit, count = np.datetime_data(values.dtype)
        if unit not in _ARROW_UNITS and not (unit == "D" and values.dtype.kind == "M") and count == 1:
            return {DATATYPE: Datatype.parse(values.dtype).name.encode()}
    return None


def _array(name: str, values: Any, schema: Schema | None) -> Any:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    try:
        if type(values) is np.ndarray and values.ndim == 1 and values.dtype in _PLAIN:
            return numbers(values)
        if _is_pandas(values):
            keep = _keeps_nan(getattr(values, "dtype", None), name, schema)
            return numbers(values.to_numpy()) if keep else pa.array(values)
        if isinstance(values, np.ma.MaskedArray):
            return _of_numpy(values.data, np.ma.getmaskarray(values))
        if isinstance(values, np.ndarray):
            return _of_numpy(values, None)
        if hasattr(values, "__arrow_c_stream__"):  # a polars series
            return pa.chunked_array(values)
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise InvalidRequestError(f"column {name!r} is {values!r}; a list or an array is expected")
        return _of_sequence(values if isinstance(values, Sequence) else list(values))
    except _UNREADABLE as problem:
        if isinstance(problem, InvalidRequestError):
            raise
        raise InvalidRequestError(f"column {name!r} cannot be read: {_reason(problem)}") from None


def _of_sequence(values: Sequence[Any]) -> Any:
    try:
        return pa.array(values)
    except OverflowError:  # numbers beyond int64
        some = next((value for value in values if value is not None), None)
        lists = isinstance(some, Iterable)
        return pa.array(values, pa.list_(pa.uint64()) if lists else pa.uint64())


def _of_numpy(values: NDArray[Any], mask: NDArray[np.bool_] | None) -> Any:
    if not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    if _told(values) is not None:
        absent = np.isnat(values)
        values, mask = values.astype(np.int64), absent if mask is None else mask | absent
    elif values.dtype.kind in "Mm" and np.datetime_data(values.dtype)[1] != 1:
        values = values.astype(f"{values.dtype.kind}8[{np.datetime_data(values.dtype)[0]}]")
    if values.ndim == 2 and values.dtype.kind in "iufbMm" and values.shape[1]:
        flat = pa.array(values.reshape(-1))
        rows = None if mask is None else pa.array(mask.any(axis=1))
        return pa.FixedSizeListArray.from_arrays(flat, values.shape[1], mask=rows)
    # In an array of objects NaN is what pandas takes it for: nothing.
    return pa.array(values, mask=mask, from_pandas=values.dtype.kind == "O")


def _reason(problem: BaseException) -> str:
    """The first line of what Arrow says; for a frame it says the column last."""
    parts = [str(part).splitlines()[0] for part in problem.args if str(part)]
    return "; ".join(parts) or type(problem).__name__


def columns_of(table: Any, schema: Schema, names: Sequence[str]) -> dict[str, Column]:
    """The named fields of the schema, out of a table that has just these columns."""
    given = table.schema.names
    if len(set(given)) != len(given):
        raise InvalidRequestError(f"the data have a column twice: {', '.join(given)}")
    if lacking := [name for name in names if name not in given]:
        raise InvalidRequestError(
            f"the data lack {', '.join(map(repr, lacking))}; they have {', '.join(map(repr, given)) or 'no columns'}"
        )
    if unknown := [name for name in given if name not in names]:
        raise InvalidRequestError(
            f"the array has no {', '.join(map(repr, unknown))}; it has {', '.join(map(repr, names))}"
        )
    columns = {}
    for name in names:
        array = _in_one_piece(table.column(name))
        counts_of = (table.schema.field(name).metadata or {}).get(DATATYPE)
        if counts_of is not None and pa.types.is_int64(array.type):
            array = _recounted(array, name, Datatype.parse(counts_of.decode()), schema)
        columns[name] = from_arrow(array, schema.field(name), schema)
    return columns


def _in_one_piece(array: Any) -> Any:
    if not isinstance(array, pa.ChunkedArray):
        return array
    if array.num_chunks == 1:
        return array.chunk(0)
    if not array.num_chunks:
        return pa.nulls(0, array.type)
    # Together they may hold more than the 2 GiB that these types can count.
    large = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(array.type)
    return pa.concat_arrays((array if large is None else array.cast(large)).unify_dictionaries().chunks)


def _recounted(array: Any, name: str, given: Datatype, schema: Schema) -> Any:
    """Counts of one unit as counts of the field's, or as what Arrow calls them."""
    datatype = schema.field(name).datatype
    if given is datatype:
        return array
    if given.is_datetime != datatype.is_datetime or given.is_time != datatype.is_time:
        raise InvalidRequestError(f"column {name!r}: {given.name} does not fit {datatype.name}")
    letter = "M" if given.is_datetime else "m"
    moments = array.fill_null(0).to_numpy(zero_copy_only=False).view(f"{letter}8[{given.unit}]")
    counts = exact_counts(moments, datatype, f"column {name!r}")
    return pa.array(counts, mask=array.is_null().to_numpy(zero_copy_only=False))
