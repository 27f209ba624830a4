"""What is in a data file: its field, its tiles, their chunks, and the first values if they are asked for."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrazzo.cli.describe_fragment import load, slot_names
from terrazzo.cli.output import Report, Shown
from terrazzo.cli.place import Place
from terrazzo.cli.values import cell_type, number, pipeline, plain, raw
from terrazzo.engine.arrow import value_type
from terrazzo.engine.columns import Column
from terrazzo.engine.fetch import FragmentReader
from terrazzo.engine.fragments import Fragment
from terrazzo.engine.layout import DELETE_CONDITION, DELETE_TIMESTAMPS, TIMESTAMPS
from terrazzo.errors import CorruptionError, FormatError, MissingObjectError
from terrazzo.format import keys
from terrazzo.format.attribute import Attr
from terrazzo.format.datatypes import Datatype
from terrazzo.format.fragment import Section
from terrazzo.format.schema import Field, Schema
from terrazzo.format.tile import ChunkHeader
from terrazzo.format.wire import Bytes, Cursor

MOST = 64 << 20
"""Bytes of a data file that are looked at; of a larger one, the first tiles."""
_HIDDEN = {
    "(timestamps)": TIMESTAMPS,
    "(delete timestamps)": DELETE_TIMESTAMPS,
    "(delete conditions)": DELETE_CONDITION,
}


@dataclass(frozen=True, slots=True)
class DataFile:
    """Which file of which field this is."""

    slot: int
    label: str
    field: Field | None  # None for coordinates of all dimensions, and for times
    role: str  # values, offsets, var values, validity
    section: Section


def identify(name: str, fragment: Fragment, schema: Schema) -> DataFile | None:
    for slot, (label, field, files) in enumerate(slot_names(fragment.footer, schema)):
        if files is None:
            continue
        var = field is not None and field.is_var
        if name == files.fixed:
            return DataFile(slot, label, field, "offsets" if var else "values", Section.TILE_OFFSETS)
        if var and name == files.var:
            return DataFile(slot, label, field, "var values", Section.VAR_OFFSETS)
        if isinstance(field, Attr) and field.nullable and name == files.validity:
            return DataFile(slot, label, field, "validity", Section.VALIDITY_OFFSETS)
    return None


def data(place: Place, report: Report, n_values: int) -> None:
    size = place.folder.size(place.name)
    head = place.folder.get_ranges(place.name, [(0, min(size, MOST))])[0] if size else b""
    loaded = _fragment_of(place, report)
    which = None if loaded is None else identify(place.name, *loaded)
    if loaded is None or which is None:
        if loaded is not None:
            report["note"] = "no field of the schema has a file of this name"
        _walk(head, report, whole=len(head) == size)
        return
    fragment, schema = loaded
    reader = FragmentReader(
        place.up(1).store if place.array is None else place.array.store, fragment, schema, place.cipher
    )
    _tell_field(which, schema, report)
    expected = _expected_size(which, fragment)
    offsets = reader.sections.u64s(which.section, which.slot)
    report["tiles"] = rows = []
    ends = np.append(offsets[1:], np.uint64(expected)).tolist()
    sizes = _unfiltered(which, reader).tolist()
    for tile, (start, end) in enumerate(zip(offsets.tolist(), ends, strict=True)):
        row: Report = {
            "tile": tile, "offset": start, "stored_size": end - start,
            "cells": int(reader.cells[tile]) if tile < len(reader.cells) else None,
            "size": sizes[tile] if tile < len(sizes) else None,
        }  # fmt: skip
        rows.append(row)
        if end <= len(head):
            row["chunks"] = _chunks(head, start, end)
    if size != expected:
        raise CorruptionError(
            f"the file has {size} bytes; the footer says {expected}", offset=min(size, expected)
        )
    if n_values > 0:
        report["values"] = _values(which, reader, place.labelled(schema), n_values)


def _fragment_of(place: Place, report: Report) -> tuple[Fragment, Schema] | None:
    """The metadata beside this file; without them, the tiles can still be told by walking over them."""
    beside = place.up(1)
    metadata = type(place)(place.base, (*beside.segments, keys.FRAGMENT_METADATA_FILE), place.cipher)
    try:
        loaded = load(metadata.folder.get(metadata.name), metadata)
    except MissingObjectError:
        report["note"] = f"there is no {keys.FRAGMENT_METADATA_FILE} beside this file"
        return None
    except FormatError as problem:
        report["note"] = f"the metadata beside this file cannot be read: {problem}"
        return None
    if loaded is None:
        report["note"] = "the schema was not found in the folders above: the field is not known"
    return loaded


def _tell_field(which: DataFile, schema: Schema, report: Report) -> None:
    filters = schema.coords_filters
    if which.role == "validity":
        filters = schema.validity_filters
    elif which.role == "offsets":
        filters = schema.offsets_filters
    elif which.field is not None:
        filters = schema.filters_of(which.field)
    kind = "uint64" if which.field is None else cell_type(which.field)
    if which.label == "coordinates":
        kind = f"{schema.dims[0].datatype.name.lower()}, {len(schema.dims)} dimensions together"
    report |= {"field": which.label, "role": which.role, "type": kind, "filters": pipeline(filters)}


def _expected_size(which: DataFile, fragment: Fragment) -> int:
    sizes = {
        Section.TILE_OFFSETS: fragment.footer.file_sizes,
        Section.VAR_OFFSETS: fragment.footer.var_file_sizes,
        Section.VALIDITY_OFFSETS: fragment.footer.validity_file_sizes,
    }
    return sizes[which.section][which.slot]


def _unfiltered(which: DataFile, reader: FragmentReader) -> NDArray[Any]:
    if which.role == "validity":
        return reader.cells
    if which.role == "var values":
        return reader.sections.u64s(Section.VAR_SIZES, which.slot)
    if which.role == "offsets" or (which.field is None and which.label != "coordinates"):
        return reader.cells * 8
    if which.field is None:
        return reader.cells * (len(reader.schema.dims) * reader.schema.dims[0].datatype.size)
    return reader.cells * (which.field.cell_val_num * which.field.datatype.size)


def _chunks(head: Bytes, start: int, end: int) -> Shown:
    cursor = Cursor(memoryview(head)[start:end], base=start)
    headers = _headers(cursor)
    cursor.expect_end()
    return _told(headers)


def _headers(cursor: Cursor) -> list[ChunkHeader]:
    headers = []
    for _ in range(cursor.count64(12, "chunks")):
        headers.append(ChunkHeader.unpack(cursor))
        cursor.take(headers[-1].metadata_size + headers[-1].filtered_size)
    return headers


def _told(headers: list[ChunkHeader]) -> Shown:
    data = [
        {"size": each.original_size, "stored_size": each.filtered_size, "metadata_size": each.metadata_size}
        for each in headers
    ]
    sizes = [each.original_size for each in headers]
    return Shown(f"{len(headers)} of {_range(sizes)} bytes" if headers else "none", data)


def _range(sizes: list[int]) -> str:
    low, high = min(sizes), max(sizes)
    return str(low) if low == high else f"{low} to {high}"


def _walk(head: Bytes, report: Report, *, whole: bool) -> None:
    """Tiles lie end to end and say how long they are."""
    cursor = Cursor(head)
    rows: list[Report] = []
    report["tiles"] = rows
    while cursor.remaining:
        start = cursor.offset
        try:
            headers = _headers(cursor)
        except CorruptionError:
            if not whole:  # the rest of the tile was not read
                break
            raise
        rows.append(
            {
                "tile": len(rows),
                "offset": start,
                "stored_size": cursor.offset - start,
                "size": sum(each.original_size for each in headers),
                "chunks": _told(headers),
            }
        )


def _values(which: DataFile, reader: FragmentReader, schema: Schema, n_values: int) -> Any:
    ends = np.cumsum(reader.cells)
    n_tiles = min(int(np.searchsorted(ends, n_values)) + 1, len(ends))
    tiles = reader.all_tiles()[:n_tiles]
    if which.label == "coordinates":
        columns = reader.read_here([dim.name for dim in schema.dims], tiles)
        told = [_cells(columns[dim.name], dim, schema, n_values) for dim in schema.dims]
        return [list(cell) for cell in zip(*told, strict=True)]
    if which.field is None:
        hidden = _HIDDEN[which.label]
        column = reader.read_here([hidden], tiles)[hidden]
        return [plain(value) for value in column.values[:n_values]]
    column = reader.read_here([which.field.name], tiles)[which.field.name]
    if which.role == "validity":
        return [] if column.validity is None else [int(valid) for valid in column.validity[:n_values]]
    if which.role == "offsets":
        assert column.offsets is not None
        cells = reader.cells[tiles]
        firsts = column.offsets[
            np.cumsum(cells) - cells
        ]  # in the file they count from the start of their tile
        return (column.offsets[:-1] - np.repeat(firsts, cells))[:n_values].tolist()
    return _cells(column, which.field, schema, n_values)


def _cells(column: Column, field: Field, schema: Schema, n_values: int) -> list[Any]:
    n = min(n_values, len(column))
    if column.offsets is not None:
        edges = column.offsets[: n + 1].tolist()
        cells = [_cell(column.values[a:b].view(field.datatype.dtype), field) for a, b in pairwise(edges)]
    elif isinstance(field, Attr) and field.enum in schema.enums:
        labels = [plain(label) for label in schema.enums[field.enum].values.to_pylist()]
        cells = [labels[i] if 0 <= i < len(labels) else i for i in column.values[:n].tolist()]
    else:
        cells = [_cell(value, field) for value in column.values[:n]]
    if column.validity is None:
        return cells
    return [cell if valid else None for cell, valid in zip(cells, column.validity[:n], strict=True)]


def _cell(value: Any, field: Field) -> Any:
    datatype = field.datatype
    if value_type(datatype) is None:  # text and bytes; cells that pad a dense tile need not be text
        return raw(value.tobytes())
    if datatype is Datatype.BOOL:
        return [bool(item) for item in value] if np.ndim(value) else bool(value)
    return [number(item, datatype) for item in value] if np.ndim(value) else number(value, datatype)
