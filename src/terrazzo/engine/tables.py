"""What users hand in, as Arrow batches of the columns that the schema asks for."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from terrazzo.engine.arrow import from_arrow
from terrazzo.engine.buffers import numbers
from terrazzo.engine.columns import Column
from terrazzo.errors import InvalidRequestError
from terrazzo.format.schema import Schema

_PLAIN = frozenset(np.dtype(code) for code in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"))


def as_batches(data: Any) -> Iterator[Any]:
    """Tables or batches, one after the other: Arrow, pandas, polars, a dict of arrays, or an iterable of these."""
    if isinstance(data, (pa.Table, pa.RecordBatch)):
        yield data
    elif isinstance(data, pa.RecordBatchReader):
        yield from data
    elif isinstance(data, Mapping):
        yield table_of(data)
    elif hasattr(data, "__arrow_c_stream__"):  # polars, DuckDB, pandas from 2.2 on, …
        yield _of_stream(data)
    elif type(data).__module__.partition(".")[0] == "pandas":
        yield _of_pandas(data)
    elif isinstance(data, Iterable) and not isinstance(data, (str, bytes)):
        for item in data:
            yield from as_batches(item)
    else:
        raise InvalidRequestError(
            f"{type(data).__name__} cannot be written; give an Arrow table or reader, a pandas or polars frame, or a dict"
        )


def _of_pandas(frame: Any) -> Any:
    named = [name for name in frame.index.names if name is not None]
    return pa.Table.from_pandas(frame.reset_index() if named else frame, preserve_index=False)


def _of_stream(data: Any) -> Any:
    if type(data).__module__.partition(".")[0] == "pandas":
        return _of_pandas(data)
    return pa.table(data)


def table_of(columns: Mapping[str, Any]) -> Any:
    """A table of arrays, lists or Arrow arrays; a numpy matrix is a fixed number of values per cell."""
    arrays = {name: _array(name, values) for name, values in columns.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name!r} {n}" for name, n in lengths.items())
        raise InvalidRequestError(f"the columns differ in length: {told}")
    return pa.Table.from_arrays(list(arrays.values()), list(arrays))


def _array(name: str, values: Any) -> Any:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    try:
        if type(values) is np.ndarray and values.ndim == 1 and values.dtype in _PLAIN:
            return numbers(values)
        if isinstance(values, np.ma.MaskedArray):
            return pa.array(values.data, mask=np.ma.getmaskarray(values))
        if isinstance(values, np.ndarray) and values.ndim == 2 and values.dtype.kind in "iufb":
            return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
        if (
            isinstance(values, np.ndarray)
            and values.dtype.kind == "M"
            and np.datetime_data(values.dtype)[0] not in {"D", "s", "ms", "us", "ns"}
        ):
            return pa.array(values.astype(np.int64))
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError) as problem:
        reason = str(problem).splitlines()[0]
        raise InvalidRequestError(f"column {name!r} cannot be read: {reason}") from None


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
        array = table.column(name)
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
        columns[name] = from_arrow(array, schema.field(name), schema)
    return columns
