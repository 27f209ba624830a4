"""libtiledb as an actor: it does what a history says, and answers queries, in bytes.

Everything goes through its C interface, where no Python package converts values; only metadata and maintenance,
which hold no cells, take the `tiledb` package.
"""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from ctypes import byref, c_double, c_int32, c_uint8, c_uint32, c_uint64, c_void_p
from itertools import pairwise
from typing import Any

import numpy as np
import tiledb
from capi import DELETE, UPDATE, Session, library

from differential.history import (
    Cell,
    Columns,
    Condition,
    Delete,
    Evolve,
    Joined,
    Maintain,
    Member,
    Not,
    Null,
    Put,
    Query,
    Test,
    Update,
    Window,
    Write,
)  # fmt: skip
from terrazzo import Schema
from terrazzo.format.attribute import Attr
from terrazzo.format.condition import Op
from terrazzo.format.datatypes import VAR
from terrazzo.format.domain import Dim
from terrazzo.format.enumeration import Enumeration
from terrazzo.format.filters.pipeline import Pipeline

READ, WRITE = 0, 1
LAYOUTS = {"row-major": 0, "col-major": 1, "global": 2, "unordered": 3}
COMPLETED = 1
ROOM = 1 << 18  # bytes per buffer; cases are tiny

CONFIG = {
    "sm.allow_updates_experimental": "true",
    "sm.compute_concurrency_level": "1",
    "sm.io_concurrency_level": "1",
}


class Libtiledb(Session):
    """One context for many calls; the handles of a call are freed when it ends."""

    def __init__(self) -> None:
        super().__init__(CONFIG)
        self.py = tiledb.Ctx(CONFIG)

    @contextmanager
    def scope(self) -> Iterator[None]:
        mine, self._made = self._made, []
        try:
            yield
        finally:
            self.close()
            self._made = mine

    def static(self, function: str, *arguments: object) -> None:
        """A function that takes no context and ends with the address of an error."""
        if getattr(library(), function)(*arguments, byref(c_void_p())) != 0:
            raise tiledb.TileDBError(f"{function} failed")

    def out(self, kind: str, function: str, *arguments: object) -> c_void_p:
        handle = self.new(kind)
        self.call(function, *arguments, byref(handle))
        return handle

    # -- schemas --------------------------------------------------------------------------------------

    def create(self, uri: str, schema: Schema, at: int) -> None:
        with self.scope():
            handle = self.out(
                "array_schema", "tiledb_array_schema_alloc_at_timestamp",
                c_int32(schema.sparse), c_uint64(at),
            )  # fmt: skip
            domain = self.make("domain")
            for dim in schema.dims:
                self.call("tiledb_domain_add_dimension", domain, self._dimension(dim))
            self.call("tiledb_array_schema_set_domain", handle, domain)
            self.call("tiledb_array_schema_set_capacity", handle, c_uint64(schema.capacity))
            self.call("tiledb_array_schema_set_cell_order", handle, c_int32(schema.cell_order))
            self.call("tiledb_array_schema_set_tile_order", handle, c_int32(schema.tile_order))
            if schema.sparse:
                self.call("tiledb_array_schema_set_allows_dups", handle, c_int32(schema.allows_duplicates))
            for kind, pipeline in (
                ("coords", schema.coords_filters),
                ("offsets", schema.offsets_filters),
                ("validity", schema.validity_filters),
            ):
                filters = self._filters(pipeline)
                self.call(f"tiledb_array_schema_set_{kind}_filter_list", handle, filters)
            for enum in schema.enums.values():
                self.call("tiledb_array_schema_add_enumeration", handle, self._enumeration(enum))
            for attr in schema.attrs:
                self.call("tiledb_array_schema_add_attribute", handle, self._attribute(attr))
            self.call("tiledb_array_create", uri.encode(), handle)

    def _dimension(self, dim: Dim) -> c_void_p:
        domain = tile = None
        if dim.domain is not None:
            domain = np.array(dim.domain, dim.datatype.dtype).tobytes()
            kind = dim.datatype.dtype if dim.datatype.is_float else np.dtype(f"<u{dim.datatype.size}")
            if dim.datatype.is_float or dim.tile <= np.iinfo(dim.datatype.dtype).max:
                tile = np.array(
                    dim.tile, kind
                ).tobytes()  # otherwise all of the domain, which needs no telling
        handle = self.make("dimension", dim.name.encode(), c_int32(dim.datatype), domain, tile)
        if dim.filters.filters:
            self.call("tiledb_dimension_set_filter_list", handle, self._filters(dim.filters))
        return handle

    def _attribute(self, attr: Attr) -> c_void_p:
        handle = self.make("attribute", attr.name.encode(), c_int32(attr.datatype))
        self.call("tiledb_attribute_set_cell_val_num", handle, c_uint32(attr.cell_val_num))
        self.call("tiledb_attribute_set_nullable", handle, c_uint8(attr.nullable))
        self.call("tiledb_attribute_set_filter_list", handle, self._filters(attr.filters))
        count = 1 if attr.is_var else attr.cell_val_num
        if attr.fill != attr.datatype.default_fill * count or attr.fill_valid:
            size = c_uint64(len(attr.fill))
            if attr.nullable:
                valid = c_uint8(attr.fill_valid)
                self.call("tiledb_attribute_set_fill_value_nullable", handle, attr.fill, size, valid)
            else:
                self.call("tiledb_attribute_set_fill_value", handle, attr.fill, size)
        if attr.enum is not None:
            self.call("tiledb_attribute_set_enumeration_name", handle, attr.enum.encode())
        return handle

    def _filters(self, pipeline: Pipeline) -> c_void_p:
        handle = self.make("filter_list")
        for each in pipeline.filters:
            item = self.make("filter", c_int32(each.code))
            for name, option, kind in (
                ("level", 0, c_int32),
                ("byte_width", 3, c_uint64),
                ("scale", 4, c_double),
                ("offset", 5, c_double),
            ):
                if hasattr(each, name):
                    self.call(
                        "tiledb_filter_set_option", item, c_int32(option), byref(kind(getattr(each, name)))
                    )
            if hasattr(each, "max_window"):
                option = 1 if "BitWidth" in type(each).__name__ else 2
                self.call("tiledb_filter_set_option", item, c_int32(option), byref(c_uint32(each.max_window)))
            self.call("tiledb_filter_list_add_filter", handle, item)
        return handle

    def _enumeration(self, enum: Enumeration) -> c_void_p:
        return self.make(
            "enumeration", enum.name.encode(), c_int32(enum.datatype), c_uint32(enum.cell_val_num),
            c_int32(enum.ordered), enum.data or None, c_uint64(len(enum.data)),
            enum.offsets or None, c_uint64(len(enum.offsets)),
        )  # fmt: skip

    def evolve(self, uri: str, op: Evolve) -> None:
        with self.scope():
            change = self.make("array_schema_evolution")
            if op.extend:
                with self._open(uri, READ, Window()) as array:
                    for name in op.extend:
                        old = self.out("enumeration", "tiledb_array_get_enumeration", array, name.encode())
                        new = op.schema.enums[name]
                        kept = len(self._stored(old, "data"))
                        data, offsets = new.data[kept:], b""
                        if new.is_var:
                            n_old = len(self._stored(old, "offsets")) // 8
                            offsets = (np.frombuffer(new.offsets, "<u8")[n_old:] - np.uint64(kept)).tobytes()
                        longer = self.out(
                            "enumeration", "tiledb_enumeration_extend", old, data or None,
                            c_uint64(len(data)), offsets or None, c_uint64(len(offsets)),
                        )  # fmt: skip
                        self.call("tiledb_array_schema_evolution_extend_enumeration", change, longer)
            for attr in op.add:
                self.call("tiledb_array_schema_evolution_add_attribute", change, self._attribute(attr))
            for name in op.drop:
                self.call("tiledb_array_schema_evolution_drop_attribute", change, name.encode())
            stamp = c_uint64(op.at), c_uint64(op.at)
            self.call("tiledb_array_schema_evolution_set_timestamp_range", change, *stamp)
            self.call("tiledb_array_evolve", uri.encode(), change)

    def _stored(self, enumeration: c_void_p, what: str) -> bytes:
        place, size = c_void_p(), c_uint64()
        self.call(f"tiledb_enumeration_get_{what}", enumeration, byref(place), byref(size))
        return ctypes.string_at(place, size.value) if size.value else b""

    # -- changes --------------------------------------------------------------------------------------

    @contextmanager
    def _open(self, uri: str, mode: int, window: Window) -> Iterator[c_void_p]:
        array = self.make("array", uri.encode())
        if window.at is not None:
            self.call("tiledb_array_set_open_timestamp_end", array, c_uint64(window.at))
        if window.since:
            self.call("tiledb_array_set_open_timestamp_start", array, c_uint64(window.since))
        self.call("tiledb_array_open", array, c_int32(mode))
        try:
            yield array
        finally:
            self.call("tiledb_array_close", array)

    def write(self, uri: str, op: Write) -> None:
        with self.scope(), self._open(uri, WRITE, Window(op.at)) as array:
            query = self.make("query", array, c_int32(WRITE))
            kept: list[Any] = []  # buffers live until the query is done
            names = [*op.cells] if op.box is None else [attr.name for attr in op.schema.attrs]
            if op.box is None:
                self.call("tiledb_query_set_layout", query, c_int32(LAYOUTS["unordered"]))
            else:
                self.call("tiledb_query_set_layout", query, c_int32(LAYOUTS["row-major"]))
                subarray = self.make("subarray", array)
                for index, (bound, dim) in enumerate(zip(op.box, op.schema.dims, strict=True)):
                    low, high = (np.array(end, dim.datatype.dtype).tobytes() for end in bound)
                    self.call("tiledb_subarray_add_range", subarray, c_uint32(index), low, high, None)
                self.call("tiledb_query_set_subarray_t", query, subarray)
            for name in names:
                self._give(query, op.schema, name, op.cells[name], kept)
            self.call("tiledb_query_submit", query)
            self.call("tiledb_query_finalize", query)

    def _give(self, query: c_void_p, schema: Schema, name: str, cells: list[Cell], kept: list[Any]) -> None:
        field = schema.field(name)
        stored = as_indices(cells, field, schema)
        width = None if field.is_var else field.cell_val_num * field.datatype.size
        raw = [b"" if cell is None and width is None else cell or bytes(width or 0) for cell in stored]
        data = ctypes.create_string_buffer(b"".join(raw), max(sum(map(len, raw)), 1))
        size = c_uint64(sum(map(len, raw)))
        self.call("tiledb_query_set_data_buffer", query, name.encode(), data, byref(size))
        kept += [data, size]
        if width is None:
            starts = np.cumsum([0, *map(len, raw)], dtype="<u8")[:-1]
            offsets = ctypes.create_string_buffer(starts.tobytes(), starts.nbytes)
            size = c_uint64(starts.nbytes)
            self.call("tiledb_query_set_offsets_buffer", query, name.encode(), offsets, byref(size))
            kept += [offsets, size]
        if field.nullable:
            flags = ctypes.create_string_buffer(bytes(cell is not None for cell in cells), len(cells))
            size = c_uint64(len(cells))
            self.call("tiledb_query_set_validity_buffer", query, name.encode(), flags, byref(size))
            kept += [flags, size]

    def delete(self, uri: str, op: Delete) -> None:
        self._condition_commit(uri, DELETE, op.at, op.where, {})

    def update(self, uri: str, op: Update) -> None:
        values = {}
        for name, cell in op.values.items():
            values[name] = as_indices([cell], op.schema.attr(name), op.schema)[0]
        self._condition_commit(uri, UPDATE, op.at, op.where, values)

    def _condition_commit(
        self, uri: str, kind: int, at: int, where: Condition, values: dict[str, Cell]
    ) -> None:
        with self.scope(), self._open(uri, kind, Window(at)) as array:
            query = self.make("query", array, c_int32(kind))
            self.call("tiledb_query_set_condition", query, self.meaning(where))
            for name, value in values.items():
                size = c_uint64(len(value or b""))
                self.call("tiledb_query_add_update_value", query, name.encode(), value, size)
            self.call("tiledb_query_submit", query)
            self.call("tiledb_query_finalize", query)

    def meaning(self, condition: Condition) -> c_void_p:
        """The handle of a condition; labels are given as labels."""
        match condition:
            case Test(op, name, value):
                handle = self.make("query_condition")
                # An empty text needs an address, a test for null has none.
                given = ctypes.create_string_buffer(value, max(len(value), 1))
                size = c_uint64(len(value))
                self.call("tiledb_query_condition_init", handle, name.encode(), given, size, c_int32(op))
                return handle
            case Null(name, is_null):
                handle = self.make("query_condition")
                op = Op.EQ if is_null else Op.NE
                self.call(
                    "tiledb_query_condition_init", handle, name.encode(), None, c_uint64(0), c_int32(op)
                )
                return handle
            case Member(op, name, members):
                data = b"".join(members)
                offsets = np.cumsum([0, *map(len, members)], dtype="<u8")[:-1].tobytes()
                return self.out(
                    "query_condition", "tiledb_query_condition_alloc_set_membership", name.encode(),
                    data, c_uint64(len(data)), offsets, c_uint64(len(offsets)), c_int32(op),
                )  # fmt: skip
            case Joined(how, children):
                left = self.meaning(children[0])
                for child in children[1:]:
                    right = self.meaning(child)
                    code = c_int32(0 if how == "AND" else 1)
                    left = self.out("query_condition", "tiledb_query_condition_combine", left, right, code)
                return left
            case Not(child):
                inner = self.meaning(child)
                return self.out("query_condition", "tiledb_query_condition_negate", inner)

    def put(self, uri: str, op: Put) -> None:
        with tiledb.open(uri, "w", timestamp=op.at, ctx=self.py) as array:
            for key, value in op.values.items():
                if value is None:
                    del array.meta[key]
                else:
                    array.meta[key] = value

    def maintain(self, uri: str, op: Maintain) -> None:
        with self.scope():
            config = self.new("config")
            self.static("tiledb_config_alloc", byref(config))
            for key in ("sm.consolidation.mode", "sm.vacuum.mode"):
                self.static("tiledb_config_set", config, key.encode(), op.mode.encode())
            self.call("tiledb_array_consolidate", uri.encode(), config)
            if op.vacuum:
                self.call("tiledb_array_vacuum", uri.encode(), config)

    # -- answers --------------------------------------------------------------------------------------

    def look(
        self, uri: str, schema: Schema, window: Window, queries: Sequence[Query], sums: Sequence[Any] = ()
    ) -> dict[str, Any]:
        """All that is asked of the array in one window: cells per query, aggregates, its domain, its metadata."""
        with self.scope(), self._open(uri, READ, window) as array:
            found = {
                "cells": [self._cells(array, schema, query) for query in queries],
                "aggregates": [self._aggregates(array, schema, query, wanted) for query, wanted in sums],
                "domain": self._domain(array, schema),
            }
        stamps = (window.since, window.at) if window.at is not None else None
        with tiledb.open(uri, timestamp=stamps, ctx=self.py) as array:
            found["meta"] = {key: copy(array.meta[key]) for key in array.meta.keys()}  # noqa: SIM118
        return found

    def _query(self, array: c_void_p, schema: Schema, query: Query) -> c_void_p:
        handle = self.make("query", array, c_int32(READ))
        layout = query.layout if schema.sparse else "row-major"
        self.call("tiledb_query_set_layout", handle, c_int32(LAYOUTS[layout]))
        region = query.region
        if region or not schema.sparse:
            subarray = self.make("subarray", array)
            for index, dim in enumerate(schema.dims):
                whole = []
                if not schema.sparse:
                    whole = [tuple(np.array(end, dim.datatype.dtype).tobytes() for end in dim.domain)]
                for low, high in region.get(dim.name, whole):
                    if dim.is_var:
                        sizes = c_uint64(len(low)), c_uint64(len(high))
                        self.call(
                            "tiledb_subarray_add_range_var",
                            subarray,
                            c_uint32(index),
                            low,
                            sizes[0],
                            high,
                            sizes[1],
                        )
                    else:
                        self.call("tiledb_subarray_add_range", subarray, c_uint32(index), low, high, None)
            self.call("tiledb_query_set_subarray_t", handle, subarray)
        if query.where is not None:
            self.call("tiledb_query_set_condition", handle, self.meaning(query.where))
        return handle

    def _submit(self, handle: c_void_p) -> None:
        self.call("tiledb_query_submit", handle)
        status = c_int32()
        self.call("tiledb_query_get_status", handle, byref(status))
        if status.value != COMPLETED:
            raise tiledb.TileDBError(f"the query ended with status {status.value}")

    def _cells(self, array: c_void_p, schema: Schema, query: Query) -> Columns:
        try:
            return self._read(array, schema, query)
        except tiledb.TileDBError as problem:
            raise tiledb.TileDBError(f"{problem} in {query}") from None

    def _read(self, array: c_void_p, schema: Schema, query: Query) -> Columns:
        handle = self._query(array, schema, query)
        buffers = {name: self._take(handle, schema, name) for name in query.columns}
        self._submit(handle)
        found = {}
        for name, parts in buffers.items():
            cells = cells_of(schema.field(name), parts)
            enum = getattr(schema.field(name), "enum", None)
            if enum is not None:
                handle = self.out("enumeration", "tiledb_array_get_enumeration", array, enum.encode())
                known = schema.enums[enum]
                offsets = self._stored(handle, "offsets") if known.is_var else b""
                labels = labels_of(known, self._stored(handle, "data"), offsets)
                cells = as_labels(cells, schema.field(name), labels)
            found[name] = cells
        return found

    def _take(self, handle: c_void_p, schema: Schema, name: str) -> list[tuple[Any, c_uint64]]:
        field = schema.field(name)
        wanted = ["offsets"] if field.is_var else []
        wanted += ["validity"] if field.nullable else []
        parts = []
        for part in ("data", *wanted):
            buffer, size = ctypes.create_string_buffer(ROOM), c_uint64(ROOM)
            self.call(f"tiledb_query_set_{part}_buffer", handle, name.encode(), buffer, byref(size))
            parts.append((buffer, size))
        return parts

    def _aggregates(
        self, array: c_void_p, schema: Schema, query: Query, wanted: list[tuple[str, str]]
    ) -> list[Any]:
        """(operator, attribute) → the bytes of the answer, None where it is null."""
        handle = self._query(array, schema, query)
        channel = self.out("query_channel", "tiledb_query_get_default_channel", handle)
        outputs = []
        for index, (operator, name) in enumerate(wanted):
            output = f"out{index}".encode()
            if operator == "count":
                operation = c_void_p()
                self.call("tiledb_aggregate_count_get", byref(operation))
            else:
                how = c_void_p()
                self.call(f"tiledb_channel_operator_{operator}_get", byref(how))
                operation = self.new("aggregate")
                self.call("tiledb_create_unary_aggregate", handle, how, name.encode(), byref(operation))
            self.call("tiledb_channel_apply_aggregate", channel, output, operation)
            parts = ["data"]
            field = schema.field(name)
            if operator in {"min", "max"} and field.is_var:
                parts.append("offsets")
            if operator not in {"count", "null_count"} and field.nullable:
                parts.append("validity")
            kept = {}
            for part in parts:
                room = {"offsets": 8, "validity": 1}.get(part)
                if room is None:
                    room = 8
                    if operator in {"min", "max"}:
                        room = 256 if field.is_var else field.datatype.size * field.cell_val_num
                buffer, size = ctypes.create_string_buffer(room), c_uint64(room)
                self.call(f"tiledb_query_set_{part}_buffer", handle, output, buffer, byref(size))
                kept[part] = buffer, size
            outputs.append(kept)
        self._submit(handle)
        answers: list[Any] = []
        for kept in outputs:
            buffer, size = kept["data"]
            valid = "validity" not in kept or kept["validity"][0].raw[:1] == b"\1"
            answers.append(buffer.raw[: size.value] if valid else None)
        return answers

    def _domain(self, array: c_void_p, schema: Schema) -> list[tuple[bytes, bytes]] | None:
        found = []
        for index, dim in enumerate(schema.dims):
            empty, place = c_int32(), c_uint32(index)
            if dim.is_var:
                low, high = c_uint64(), c_uint64()
                self.call(
                    "tiledb_array_get_non_empty_domain_var_size_from_index",
                    array, place, byref(low), byref(high), byref(empty),
                )  # fmt: skip
                if empty.value:
                    return None
                ends = [ctypes.create_string_buffer(max(size.value, 1)) for size in (low, high)]
                self.call(
                    "tiledb_array_get_non_empty_domain_var_from_index", array, place, *ends, byref(empty)
                )
                found.append((ends[0].raw[: low.value], ends[1].raw[: high.value]))
            else:
                size = dim.datatype.size
                both = ctypes.create_string_buffer(2 * size)
                self.call("tiledb_array_get_non_empty_domain_from_index", array, place, both, byref(empty))
                if empty.value:
                    return None
                found.append((both.raw[:size], both.raw[size:]))
        return found


# -- bytes and cells --------------------------------------------------------------------------------------


def cells_of(field: Attr | Dim, parts: list[tuple[Any, c_uint64]]) -> list[Cell]:
    raw = [buffer.raw[: size.value] for buffer, size in parts]
    data = raw[0]
    if field.cell_val_num == VAR:
        edges = [*np.frombuffer(raw[1], "<u8").tolist(), len(data)]
    else:
        width = field.cell_val_num * field.datatype.size
        edges = list(range(0, len(data) + 1, width))
    cells: list[Cell] = [data[a:b] for a, b in pairwise(edges)]
    if field.nullable:
        cells = [cell if flag else None for cell, flag in zip(cells, raw[-1], strict=True)]
    return cells


def labels_of(enum: Enumeration, data: bytes, offsets: bytes) -> list[bytes]:
    if enum.is_var:
        edges = [*np.frombuffer(offsets, "<u8").tolist(), len(data)]
    else:
        edges = list(range(0, len(data) + 1, enum.cell_val_num * enum.datatype.size))
    return [data[a:b] for a, b in pairwise(edges)]


def as_labels(cells: list[Cell], attr: Attr, labels: list[bytes]) -> list[Cell]:
    """Indices to labels; one beyond them, such as a fill value, has none."""
    found: list[Cell] = []
    for cell in cells:
        index = -1 if cell is None else int(np.frombuffer(cell, attr.datatype.dtype)[0])
        found.append(labels[index] if 0 <= index < len(labels) else None)
    return found


def as_indices(cells: list[Cell], field: Attr | Dim, schema: Schema) -> list[Cell]:
    enum = getattr(field, "enum", None)
    if enum is None:
        return cells
    known = schema.enums[enum]
    labels = {label: index for index, label in enumerate(labels_of(known, known.data, known.offsets))}
    return [
        None if cell is None else np.array(labels[cell], field.datatype.dtype).tobytes() for cell in cells
    ]
