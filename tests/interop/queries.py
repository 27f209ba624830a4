"""Cells in and out of libtiledb as the buffers they are, for every datatype: its Python package converts some
and refuses others. Nothing here interprets a value; columns are those of the engine.
"""

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import byref, c_char_p, c_int32, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass, field

import numpy as np
from capi import Session

from terrazzo.engine.columns import Column
from terrazzo.format.condition import Condition
from terrazzo.format.datatypes import Datatype
from terrazzo.format.schema import Schema
from terrazzo.format.sections import sum_dtype

READ, WRITE = 0, 1
ROW_MAJOR, COL_MAJOR, GLOBAL, UNORDERED = range(4)
_COMPLETED, _INCOMPLETE = 1, 3
_HIDDEN = {"__timestamps", "__delete_timestamps", "__delete_condition_index"}


def encryption(key: bytes | None) -> dict[str, str]:
    if key is None:
        return {}
    return {"sm.encryption_type": "AES_256_GCM", "sm.encryption_key": key.decode()}


@dataclass
class Buffers:
    """What libtiledb reads from or writes to, for one field."""

    data: np.ndarray
    offsets: np.ndarray | None = None
    validity: np.ndarray | None = None
    sizes: list[c_uint64] = field(default_factory=list)

    def attach(self, session: Session, query: c_void_p, name: str) -> None:
        for kind, buffer in (("data", self.data), ("offsets", self.offsets), ("validity", self.validity)):
            if buffer is not None:
                size = c_uint64(buffer.nbytes)
                self.sizes.append(size)
                # An address even for no bytes: a null pointer means that there is no buffer.
                address = c_void_p(buffer.ctypes.data if buffer.nbytes else _NOWHERE.ctypes.data)
                session.call(f"tiledb_query_set_{kind}_buffer", query, name.encode(), address, byref(size))

    def column(self, datatype: Datatype, cell_val_num: int) -> Column:
        """What was read."""
        sizes = [size.value for size in self.sizes]
        data = self.data[: sizes.pop(0)]
        offsets = None
        if self.offsets is not None:
            starts = self.offsets[: sizes.pop(0) // 8]
            offsets = np.append(starts, np.uint64(len(data))).astype(np.int64)
        validity = None if self.validity is None else self.validity[: sizes.pop(0)] != 0
        if offsets is None:
            data = data.view(datatype.dtype)
            data = data.reshape(-1, cell_val_num) if cell_val_num > 1 else data
        return Column(data, offsets, validity)


_NOWHERE = np.zeros(8, np.uint8)


def _input(column: Column, *, nullable: bool) -> Buffers:
    data = np.ascontiguousarray(column.values).reshape(-1).view(np.uint8)
    offsets = None if column.offsets is None else column.offsets[:-1].astype(np.uint64)
    validity = None
    if nullable:
        flags = np.ones(len(column), bool) if column.validity is None else column.validity
        validity = flags.astype(np.uint8)
    return Buffers(data, offsets, validity)


def write(
    uri: object,
    schema: Schema,
    columns: Mapping[str, Column],
    timestamp: int,
    *,
    box: Sequence[tuple[int, int]] | None = None,
    layout: int | None = None,
    key: bytes | None = None,
) -> None:
    """One fragment, by libtiledb. `box` is the region of a dense write."""
    session = Session(encryption(key))
    try:
        array = _opened(session, uri, WRITE, timestamp)
        query = session.make("query", array, c_int32(WRITE))
        chosen = layout if layout is not None else UNORDERED if schema.sparse else ROW_MAJOR
        session.call("tiledb_query_set_layout", query, c_int32(chosen))
        if box is not None:
            _restrict(session, array, query, schema, list(box))
        buffers = []
        for name, column in columns.items():
            nullable = any(attr.name == name and attr.nullable for attr in schema.attrs)
            buffers.append(_input(column, nullable=nullable))
            buffers[-1].attach(session, query, name)
        session.call("tiledb_query_submit", query)
        session.call("tiledb_query_finalize", query)
        session.call("tiledb_array_close", array)
    finally:
        session.close()


def _opened(session: Session, uri: object, kind: int, timestamp: int | None) -> c_void_p:
    array = session.make("array", str(uri).encode())
    if timestamp is not None:
        session.call("tiledb_array_set_open_timestamp_end", array, c_uint64(timestamp))
    session.call("tiledb_array_open", array, c_int32(kind))
    return array


def _restrict(
    session: Session, array: c_void_p, query: c_void_p, schema: Schema, ranges: list[tuple | None]
) -> None:
    subarray = session.make("subarray", array)
    for index, (dim, bounds) in enumerate(zip(schema.dims, ranges, strict=True)):
        if bounds is None:
            continue
        if dim.is_var:
            arguments = [part for end in bounds for part in (c_char_p(end), c_uint64(len(end)))]
            session.call("tiledb_subarray_add_range_var", subarray, c_uint32(index), *arguments)
        else:
            ends = np.array(bounds, dim.datatype.dtype)
            low, high = (ends[i:].ctypes.data_as(c_void_p) for i in (0, 1))
            session.call("tiledb_subarray_add_range", subarray, c_uint32(index), low, high, None)
    session.call("tiledb_query_set_subarray_t", query, subarray)


def _everything(schema: Schema) -> list[tuple | None]:
    """A dense read must say that it wants all."""
    if schema.dense and schema.current_domain is not None:
        return list(schema.current_domain)
    return [None if schema.sparse else dim.domain for dim in schema.dims]


def read(
    uri: object,
    schema: Schema,
    names: Sequence[str] | None = None,
    *,
    ranges: Sequence[tuple | None] | None = None,
    condition: Condition | None = None,
    layout: int | None = None,
    key: bytes | None = None,
    timestamp: int | None = None,
    room: int = 1 << 16,
) -> dict[str, Column]:
    """Cells as libtiledb gives them: in row-major order, or `layout`. `room` is bytes per buffer at first."""
    if names is None:
        names = [each.name for each in (schema.fields if schema.sparse else schema.attrs)]
    session = Session(encryption(key))
    try:
        array = _opened(session, uri, READ, timestamp)
        while True:
            query = session.make("query", array, c_int32(READ))
            session.call("tiledb_query_set_layout", query, c_int32(ROW_MAJOR if layout is None else layout))
            _restrict(session, array, query, schema, list(ranges or _everything(schema)))
            if condition is not None:
                session.call("tiledb_query_set_condition", query, session.condition(condition))
            buffers = {name: _output(schema, name, room) for name in names}
            for name, each in buffers.items():
                each.attach(session, query, name)
            session.call("tiledb_query_submit", query)
            status = c_int32()
            session.call("tiledb_query_get_status", query, byref(status))
            if status.value == _COMPLETED:
                break
            assert status.value == _INCOMPLETE
            room *= 4
        session.call("tiledb_array_close", array)
    finally:
        session.close()
    return {name: each.column(*_kind(schema, name)) for name, each in buffers.items()}


def _kind(schema: Schema, name: str) -> tuple[Datatype, int]:
    if name in _HIDDEN:
        return Datatype.UINT64, 1
    return schema.field(name).datatype, schema.field(name).cell_val_num


def _output(schema: Schema, name: str, room: int) -> Buffers:
    # Not zeros: what libtiledb leaves alone must not look like an answer.
    data = np.full(room, 0xAB, np.uint8)
    if name in _HIDDEN:
        return Buffers(data)
    each = schema.field(name)
    offsets = np.full(room // 8, 1 << 63, np.uint64) if each.is_var else None
    width = 1 if each.is_var else each.datatype.size * each.cell_val_num
    validity = np.full(room, 0xAB, np.uint8) if each.nullable else None
    return Buffers(data[: len(data) // width * width], offsets, validity)


def aggregate(
    uri: object,
    schema: Schema,
    requests: Sequence[tuple[str, str]],
    *,
    condition: Condition | None = None,
    ranges: Sequence[tuple | None] | None = None,
    key: bytes | None = None,
    timestamp: int | None = None,
) -> dict[tuple[str, str], object]:
    """`sum`, `min`, `max`, `mean`, `null_count` of a field, or `("count", "")`; None where there is no value.

    Minimum and maximum are the bytes of a cell.
    """
    session = Session(encryption(key))
    try:
        array = _opened(session, uri, READ, timestamp)
        query = session.make("query", array, c_int32(READ))
        layout = UNORDERED if schema.sparse else ROW_MAJOR
        session.call("tiledb_query_set_layout", query, c_int32(layout))
        _restrict(session, array, query, schema, list(ranges or _everything(schema)))
        if condition is not None:
            session.call("tiledb_query_set_condition", query, session.condition(condition))
        channel = c_void_p()  # its free takes the context too; a test can do without
        session.call("tiledb_query_get_default_channel", query, byref(channel))
        results = {}
        for number, (operation, name) in enumerate(requests):
            label = f"r{number}"
            session.call("tiledb_channel_apply_aggregate", channel, label.encode(),
                         _operation(session, query, operation, name))  # fmt: skip
            results[operation, name] = _result_buffers(schema, operation, name)
            results[operation, name].attach(session, query, label)
        session.call("tiledb_query_submit", query)
        session.call("tiledb_array_close", array)
        return {what: _result(schema, *what, found) for what, found in results.items()}
    finally:
        session.close()


def _operation(session: Session, query: c_void_p, operation: str, name: str) -> c_void_p:
    handle = c_void_p()
    if operation == "count":
        session.call("tiledb_aggregate_count_get", byref(handle))
        return handle
    operator = c_void_p()
    session.call(f"tiledb_channel_operator_{operation}_get", byref(operator))
    session.call("tiledb_create_unary_aggregate", query, operator, name.encode(), byref(handle))
    return handle


def _result_buffers(schema: Schema, operation: str, name: str) -> Buffers:
    if operation in {"count", "null_count"}:
        return Buffers(np.zeros(8, np.uint8))
    each = schema.field(name)
    validity = np.full(1, 0xAB, np.uint8) if each.nullable else None
    if operation in {"sum", "mean"}:
        return Buffers(np.zeros(8, np.uint8), None, validity)
    if each.is_var:
        return Buffers(np.zeros(1 << 16, np.uint8), np.zeros(1, np.uint64), validity)
    return Buffers(np.zeros(each.datatype.size * each.cell_val_num, np.uint8), None, validity)


def _result(schema: Schema, operation: str, name: str, found: Buffers) -> object:
    if found.validity is not None and not found.validity[0]:
        return None
    if operation in {"count", "null_count"}:
        return int(found.data.view(np.uint64)[0])
    if operation == "mean":
        return float(found.data.view(np.float64)[0])
    if operation == "sum":
        each = schema.field(name)
        return found.data.view(sum_dtype(each.datatype, each.cell_val_num))[0].item()
    return found.data[: found.sizes[0].value].tobytes()


@dataclass(frozen=True)
class FragmentFacts:
    """What libtiledb tells of a fragment."""

    uri: str
    version: int
    dense: bool
    times: tuple[int, int]
    n_cells: int
    domain: tuple[tuple, ...]
    boxes: tuple[tuple[tuple, ...], ...]  # of tiles, sparse only


def fragment_facts(uri: object, schema: Schema, key: bytes | None = None) -> list[FragmentFacts]:
    session = Session(encryption(key))
    try:
        info = session.make("fragment_info", str(uri).encode())
        session.call("tiledb_fragment_info_load", info)
        count = c_uint32()
        session.call("tiledb_fragment_info_get_fragment_num", info, byref(count))
        return [_facts(session, info, schema, number) for number in range(count.value)]
    finally:
        session.close()


def _facts(session: Session, info: c_void_p, schema: Schema, number: int) -> FragmentFacts:
    def ask(what: str, kind: type, *arguments: object) -> int:
        answer = kind()
        session.call(f"tiledb_fragment_info_get_{what}", info, c_uint32(number), *arguments, byref(answer))
        return answer.value

    uri, first, last = c_char_p(), c_uint64(), c_uint64()
    session.call("tiledb_fragment_info_get_fragment_uri", info, c_uint32(number), byref(uri))
    session.call(
        "tiledb_fragment_info_get_timestamp_range", info, c_uint32(number), byref(first), byref(last)
    )
    dense = bool(ask("dense", c_int32))
    n_boxes = 0 if dense else ask("mbr_num", c_uint64)
    dims = list(enumerate(schema.dims))
    return FragmentFacts(
        uri.value.decode(),
        ask("version", c_uint32),
        dense,
        (first.value, last.value),
        ask("cell_num", c_uint64),
        tuple(_range(session, info, "non_empty_domain", (number,), i, dim) for i, dim in dims),
        tuple(
            tuple(_range(session, info, "mbr", (number, tile), i, dim) for i, dim in dims)
            for tile in range(n_boxes)
        ),
    )


def _range(session: Session, info: c_void_p, what: str, where: tuple, index: int, dim: object) -> tuple:
    place = [c_uint32(each) for each in (*where, index)]
    name = f"tiledb_fragment_info_get_{what}"
    if not dim.is_var:
        ends = np.zeros(2, dim.datatype.dtype)
        session.call(f"{name}_from_index", info, *place, ends.ctypes.data_as(c_void_p))
        return tuple(ends.tolist())
    sizes = c_uint64(), c_uint64()
    session.call(f"{name}_var_size_from_index", info, *place, byref(sizes[0]), byref(sizes[1]))
    low, high = (ctypes.create_string_buffer(size.value + 1) for size in sizes)
    session.call(f"{name}_var_from_index", info, *place, low, high)
    return low.raw[: sizes[0].value], high.raw[: sizes[1].value]
