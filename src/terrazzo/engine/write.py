"""Writes: columns to ordered cells to fragments, any number of them under one commit."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np

from terrazzo.engine.buffers import binary
from terrazzo.engine.clock import new_name
from terrazzo.engine.columns import Column, concat, taken
from terrazzo.engine.commit import commit_fragments, put_fragment
from terrazzo.engine.dense import Box, shape_of, to_tiles
from terrazzo.engine.encode import EncodedFragment, encode_dense, encode_sparse
from terrazzo.engine.fragments import Fragment
from terrazzo.engine.order import sort_cells, sort_keys
from terrazzo.engine.tables import as_batches, columns_of
from terrazzo.errors import InvalidRequestError, TerrazzoError
from terrazzo.format.domain import Dim
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.fragment import dense_tile_cells
from terrazzo.format.keys import TimestampedName
from terrazzo.format.schema import Schema
from terrazzo.storage.base import Store

FRAGMENT_SIZE = 1 << 30
"""Bytes of columns that are sorted at once; a longer input becomes several fragments under one commit."""


def write_sparse(
    store: Store, schema: Schema, schema_name: str, data: Any, time_ms: int, cipher: Aes256Gcm | None,
    fragment_size: int = FRAGMENT_SIZE,
) -> tuple[Fragment, ...]:  # fmt: skip
    """Write and commit; no cells at all leave nothing behind."""
    written = put_sparse(store, schema, schema_name, data, time_ms, cipher, fragment_size)
    commit_fragments(store, [fragment.name for fragment in written])
    return written


def put_sparse(
    store: Store, schema: Schema, schema_name: str, data: Any, time_ms: int, cipher: Aes256Gcm | None,
    fragment_size: int, *, last_wins: bool = False,
) -> tuple[Fragment, ...]:  # fmt: skip
    """Fragments that nobody sees yet. An input that turns out to be wrong leaves nothing behind."""
    written: list[Fragment] = []
    try:
        for columns in gathered(data, schema, fragment_size):
            ordered = in_global_order(columns, schema, last_wins=last_wins)
            encoded = encode_sparse(new_name(time_ms), schema, schema_name, ordered, cipher=cipher)
            written.append(put_fragment(store, encoded))
    except BaseException:
        take_back(store, written)
        raise
    return tuple(written)


def take_back(store: Store, written: Iterable[Fragment]) -> None:
    """Remove fragments that nobody sees. Where that fails, vacuum does it later."""
    with suppress(TerrazzoError):
        for fragment in written:
            store.delete_folder(fragment.key)


def gathered(data: Any, schema: Schema, size: int) -> Iterator[dict[str, Column]]:
    """Input batches joined until they fill a fragment; a batch is never cut."""
    names = [field.name for field in schema.fields]
    waiting: list[dict[str, Column]] = []
    held = 0
    for batch in as_batches(data, schema):
        columns = columns_of(batch, schema, names)
        n = len(columns[schema.dims[0].name])
        if not n:
            continue
        for dim in schema.dims:
            check_domain(columns[dim.name], dim, schema)
        waiting.append(columns)
        held += sum(column.nbytes for column in columns.values())
        if held >= size:
            yield _joined(waiting, names)
            waiting, held = [], 0
    if waiting:
        yield _joined(waiting, names)


def _joined(waiting: list[dict[str, Column]], names: Iterable[str]) -> dict[str, Column]:
    return {name: concat([columns[name] for columns in waiting]) for name in names}


def check_domain(column: Column, dim: Dim, schema: Schema) -> None:
    """That every coordinate lies in the domain, and in the current domain if there is one."""
    domain: Any = dim.domain
    if schema.current_domain is not None:
        domain = schema.current_domain[schema.dims.index(dim)]
    if column.is_var:
        if schema.current_domain is not None and domain is not None:
            _check_strings(column, dim, domain)
        return
    assert domain is not None
    values = column.values
    if dim.datatype.is_float and np.isnan(values).any():
        raise InvalidRequestError(
            f"row {int(np.argmax(np.isnan(values)))}: NaN is no coordinate of {dim.name!r}"
        )
    low, high = values.dtype.type(domain[0]), values.dtype.type(domain[1])
    if values.min() < low or values.max() > high:
        row = int(np.argmax((values < low) | (values > high)))
        raise InvalidRequestError(
            f"row {row}: {dim.name} = {values[row].item()} lies outside the domain {domain[0]} to {domain[1]}"
        )


def _check_strings(column: Column, dim: Dim, domain: Any) -> None:
    import pyarrow.compute as pc  # noqa: PLC0415

    low, high = (end if isinstance(end, bytes) else str(end).encode() for end in domain)
    cells = column.binary()
    outside = pc.or_(pc.less(cells, binary(low)), pc.greater(cells, binary(high)))
    if high and pc.any(outside).as_py():
        row = int(np.argmax(outside.to_numpy(zero_copy_only=False)))
        raise InvalidRequestError(
            f"row {row}: {dim.name} = {cells[row].as_py()!r} lies outside the current domain {low!r} to {high!r}"
        )


def sparse_fragment(
    columns: Mapping[str, Column], schema: Schema, schema_name: str, time_ms: int, cipher: Aes256Gcm | None
) -> EncodedFragment:
    """One fragment out of unordered cells."""
    ordered = in_global_order(columns, schema)
    return encode_sparse(new_name(time_ms), schema, schema_name, ordered, cipher=cipher)


def in_global_order(
    columns: Mapping[str, Column], schema: Schema, *, last_wins: bool = False
) -> dict[str, Column]:
    """The cells sorted. Where two share coordinates and the schema forbids that, the last one of the input is kept, or
    none: InvalidRequestError."""
    keys = sort_keys([columns[dim.name] for dim in schema.dims], schema)
    index, same = sort_cells(keys)
    if not schema.allows_duplicates and same.any():
        if not last_wins:
            place = int(np.argmax(same))
            raise _duplicate(columns, schema, place if index is None else int(index[place]))
        last = np.append(~same[1:], True)  # the order is stable
        index = np.flatnonzero(last) if index is None else index[last]
    return dict(columns) if index is None else taken(columns, index)


def _duplicate(columns: Mapping[str, Column], schema: Schema, row: int) -> InvalidRequestError:
    told = []
    for dim in schema.dims:
        column = columns[dim.name]
        value = (
            column.binary()[row].as_py().decode("ascii", "backslashreplace")
            if column.is_var
            else column.values[row].item()
        )
        told.append(f"{dim.name}={value!r}")
    return InvalidRequestError(
        f"two cells at {', '.join(told)}; drop one of them, or create the array with allows_duplicates=True"
    )


def write_dense(
    store: Store, schema: Schema, schema_name: str, columns: Mapping[str, Column], box: Box, time_ms: int,
    cipher: Aes256Gcm | None,
) -> tuple[Fragment, ...]:  # fmt: skip
    encoded = dense_fragment(schema, schema_name, columns, box, new_name(time_ms), cipher)
    fragment = put_fragment(store, encoded)
    commit_fragments(store, [fragment.name])
    return (fragment,)


def dense_fragment(
    schema: Schema,
    schema_name: str,
    columns: Mapping[str, Column],
    box: Box,
    name: TimestampedName,
    cipher: Aes256Gcm | None,
) -> EncodedFragment:
    """One fragment out of the cells of a box in row-major order."""
    cells = prod(shape_of(box))
    for attr, column in columns.items():
        if len(column) != cells:
            raise InvalidRequestError(f"column {attr!r} has {len(column)} cells; the region holds {cells}")
    tiled, written = to_tiles(columns, box, schema)
    return encode_dense(
        name, schema, schema_name, tiled, box, dense_tile_cells(schema), written, cipher=cipher
    )
