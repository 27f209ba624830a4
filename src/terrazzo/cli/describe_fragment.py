"""What is in `__fragment_metadata.tdb` and in a `.meta`: the footer, its files, and every section."""

from typing import Any

import numpy as np

from terrazzo.cli.describe import open_tile
from terrazzo.cli.output import Report
from terrazzo.cli.place import Place
from terrazzo.cli.values import number, pair, plain, stored
from terrazzo.engine.fragments import Fragment, Sections
from terrazzo.errors import CorruptionError, FormatError
from terrazzo.format import keys, versions
from terrazzo.format.datatypes import Datatype
from terrazzo.format.fragment import Footer, Section, schema_name, split_footer
from terrazzo.format.fragment_v1 import unpack_first
from terrazzo.format.generic_tile import GenericTileHeader, unpack_generic_tile
from terrazzo.format.keys import DataFiles, TimestampedName
from terrazzo.format.ledgers import ConsolidatedFooters
from terrazzo.format.schema import Field, Schema
from terrazzo.format.sections import sum_dtype, unpack_sums
from terrazzo.format.wire import U64, Cursor

_NO_NAME = TimestampedName(0, 0, "0" * 32, versions.WRITTEN)
_LISTS = (
    Section.TILE_OFFSETS,
    Section.VAR_OFFSETS,
    Section.VAR_SIZES,
    Section.VALIDITY_OFFSETS,
    Section.NULL_COUNTS,
)


def load(content: bytes, place: Place) -> tuple[Fragment, Schema] | None:
    """The fragment of a metadata file, or None where the array, and so the schema, is not to be found."""
    name = place.fragment_name or _NO_NAME
    version = name.version if name.version is not None else (3 if name.uuid_first is None else 1)
    schemas = place.schemas
    only = schemas.get(keys.SCHEMA_FILE)
    if version < versions.FOOTER:
        if only is None:
            return None
        dense = all(entry.key != keys.COORDS_FILE for entry in place.folder.list())
        first = unpack_first(unpack_generic_tile(content, place.cipher), only, dense=dense)
        return Fragment(name, keys.SCHEMA_FILE, first.footer, content), only
    if version < versions.SCHEMA_FOLDER and only is None:
        return None
    footer = _footer_of(content, version, only)
    wanted = schema_name(footer) or keys.SCHEMA_FILE
    if wanted not in schemas:
        return None
    return Fragment(name, wanted, Footer.unpack(footer, schemas[wanted]), content), schemas[wanted]


def _footer_of(content: bytes, version: int, only: Schema | None) -> bytes:
    found = split_footer(content, version, only)
    if isinstance(found, int):
        raise CorruptionError(
            f"a footer of {found} bytes in a file of {len(content)}", offset=max(0, len(content) - 8)
        )
    return bytes(found)


def fragment_metadata(content: bytes, place: Place, report: Report) -> None:
    loaded = load(content, place)
    if loaded is None:
        _without_schema(content, place, report)
        return
    fragment, schema = loaded
    report["footer"] = _footer_report(fragment.footer, schema)
    store = place.folder if place.array is None else place.array.store  # not read from, but named in errors
    sections = Sections(store, fragment, schema, place.cipher)
    problems: list[FormatError] = []
    report["files"] = [
        _slot_report(slot, fragment.footer, schema) for slot in range(len(fragment.footer.file_sizes))
    ]
    if not fragment.footer.dense:
        _guarded(problems, report, "rtree", lambda: _rtree_report(sections, schema))
    if fragment.version >= versions.FRAGMENT_STATISTICS:
        _guarded(problems, report, "statistics", lambda: _statistics(sections, schema))
    if fragment.version >= versions.PROCESSED_CONDITIONS:
        _guarded(problems, report, "processed_conditions", lambda: list(sections.processed))
    report["sections"] = _section_rows(sections, schema, len(content), problems)
    if problems:
        raise problems[0]


def _guarded(problems: list[FormatError], report: Report, key: str, make: Any) -> None:
    """A section that is damaged does not keep the others from being shown."""
    try:
        report[key] = make()
    except FormatError as problem:
        report[key] = f"unreadable: {problem}"
        problems.append(problem)


def _footer_report(footer: Footer, schema: Schema) -> Report:
    report: Report = {
        "format_version": footer.version,
        "schema": footer.schema_name or keys.SCHEMA_FILE,
        "array": "dense" if footer.dense else "sparse",
        "tiles": footer.n_tiles(schema),
        "cells": footer.n_cells(schema),
        "last_tile_cells": footer.last_tile_cells,
        "has_timestamps": footer.slots.has_timestamps,
        "has_delete_metadata": footer.slots.has_delete_metadata,
        "non_empty_domain": None,
    }
    if footer.domain is not None:
        report["non_empty_domain"] = {
            dim.name: pair(*bound, dim.datatype)
            for dim, bound in zip(schema.dims, footer.domain, strict=True)
        }
    return report


def slot_names(footer: Footer, schema: Schema) -> list[tuple[str, Field | None, DataFiles | None]]:
    """Of each slot of a footer: what it is called, its field, and its files."""
    version, slots = footer.version, footer.slots
    named: list[tuple[str, Field | None, DataFiles | None]] = [
        (attr.name, attr, keys.attribute_files(index, attr.name, version))
        for index, attr in enumerate(schema.attrs)
    ]
    if version < versions.SPLIT_DIMENSIONS:
        return [*named, ("coordinates", None, DataFiles.of("__coords"))]
    named.append(("(unused)", None, None))
    named += [
        (dim.name, dim, keys.dimension_files(index, dim.name, version))
        for index, dim in enumerate(schema.dims)
    ]
    if slots.has_timestamps:
        named.append(("(timestamps)", None, DataFiles.of("t")))
    if slots.has_delete_metadata:
        named.append(("(delete timestamps)", None, DataFiles.of("dt")))
        named.append(("(delete conditions)", None, DataFiles.of("dci")))
    return named


def _slot_report(slot: int, footer: Footer, schema: Schema) -> Report:
    name, _, files = slot_names(footer, schema)[slot]
    return {
        "slot": slot,
        "field": name,
        "file": None if files is None else files.fixed,
        "size": footer.file_sizes[slot],
        "var_size": footer.var_file_sizes[slot] if slot < len(footer.var_file_sizes) else 0,
        "validity_size": footer.validity_file_sizes[slot],
    }


def _rtree_report(sections: Sections, schema: Schema) -> Report:
    tree = sections.rtree
    boxes = [
        {
            dim.name: pair(_item(low[tile]), _item(high[tile]), dim.datatype)
            for dim, (low, high) in zip(schema.dims, tree.leaves.columns, strict=True)
        }
        for tile in range(len(tree.leaves))
    ]
    return {"fanout": tree.fanout, "boxes": [{"tile": tile, **box} for tile, box in enumerate(boxes)]}


def _item(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _statistics(sections: Sections, schema: Schema) -> list[Report]:
    rows = []
    footer = sections.fragment.footer
    for (name, field, _), statistics in zip(
        slot_names(footer, schema), sections.statistics or (), strict=True
    ):
        datatype = field.datatype if field is not None else Datatype.UINT64
        kind = None if field is None else sum_dtype(datatype, field.cell_val_num)
        rows.append(
            {
                "field": name,
                "min": stored(statistics.minimum, datatype),
                "max": stored(statistics.maximum, datatype),
                "sum": None if kind is None else plain(np.frombuffer(statistics.total, kind)[0]),
                "null_count": statistics.null_count,
            }
        )
    return rows


def _section_rows(sections: Sections, schema: Schema, size: int, problems: list[FormatError]) -> list[Report]:
    footer = sections.fragment.footer
    if footer.version < versions.FOOTER:
        return [
            _list_row(section, slot, name, None, lambda s=section, k=slot: sections.u64s(s, k), problems)
            for slot, (name, _, _) in enumerate(slot_names(footer, schema))
            for section in (Section.TILE_OFFSETS, Section.VAR_OFFSETS, Section.VAR_SIZES)
            if section is Section.TILE_OFFSETS or slot < len(schema.attrs)
        ]
    rows = []
    for section, offsets in footer.offsets.items():
        for slot, offset in enumerate(offsets):
            name, field, _ = slot_names(footer, schema)[slot] if len(offsets) > 1 else ("", None, None)
            read: Any = None
            if section in _LISTS:
                read = lambda s=section, k=slot: sections.u64s(s, k)  # noqa: E731
            elif section in {Section.MINS, Section.MAXES} and slot < len(schema.attrs):
                read = lambda s=section, k=slot: _extremes(sections, s, k)  # noqa: E731
            elif section is Section.SUMS and field is not None:
                read = lambda s=section, k=slot, f=field: _sums(sections, s, k, f)  # noqa: E731
            rows.append(_list_row(section, slot if len(offsets) > 1 else None, name, offset, read, problems))
    if any(offset >= size for offsets in footer.offsets.values() for offset in offsets):
        problems.append(CorruptionError("the footer points behind the end of the file"))
    return rows


def _list_row(
    section: Section, slot: int | None, name: str, offset: int | None, read: Any, problems: list[FormatError]
) -> Report:
    values: Any = None
    try:
        values = None if read is None else [plain(value) for value in read()]
    except FormatError as problem:
        problems.append(problem)
        values = f"unreadable: {problem}"
    return {
        "section": section.name.lower().replace("_", " "),
        "slot": slot,
        "field": name,
        "offset": offset,
        "values": values,
    }


def _extremes(sections: Sections, section: Section, slot: int) -> list[Any]:
    found = sections.extremes(slot)
    if found is None:
        return []
    datatype = sections.schema.attrs[slot].datatype
    return [number(_item(value), datatype) for value in found[section is Section.MAXES]]


def _sums(sections: Sections, section: Section, slot: int, field: Field) -> Any:
    kind, body = sum_dtype(field.datatype, field.cell_val_num), sections.body(section, slot)
    return [] if kind is None or body is None else unpack_sums(body, kind)


def _without_schema(content: bytes, place: Place, report: Report) -> None:
    """The version, the schema that is wanted, and the tiles that the sections are stored in."""
    name = place.fragment_name
    report["note"] = "the schema was not found in the folders above: fields cannot be told apart"
    end = len(content)
    if name is None or name.version is None or name.version >= versions.SCHEMA_FOLDER:
        footer = _footer_of(content, versions.WRITTEN, None)
        report["format_version"] = int.from_bytes(footer[:4], "little")
        report["schema"] = schema_name(footer)
        report["footer_size"] = len(footer)
        end -= len(footer) + U64.size
    cursor, rows = Cursor(content[:end]), []
    while cursor.remaining:
        start = cursor.offset
        try:
            header = GenericTileHeader.unpack(cursor)
            cursor.take(header.pipeline_size + header.stored_size)
        except FormatError:
            break  # a footer of before format 10, whose size only the schema tells
        rows.append({"offset": start, "stored_size": cursor.offset - start, "size": header.size})
    report["sections"] = rows


def footers(content: bytes, place: Place, report: Report) -> None:
    unpacked = ConsolidatedFooters.unpack(open_tile(content, place, report))
    schemas = place.schemas
    if not schemas:
        report["note"] = "no schema was found in the folders above: footers are not taken apart"
    rows: list[Report] = []
    report["footers"] = rows
    for name, footer in unpacked.footers.items():
        wanted = schema_name(footer) or keys.SCHEMA_FILE
        row: Report = {"fragment": name, "size": len(footer), "schema": wanted}
        rows.append(row)
        if wanted in schemas:
            told = _footer_report(Footer.unpack(footer, schemas[wanted]), schemas[wanted])
            row |= {
                key: told[key] for key in ("format_version", "array", "tiles", "cells", "non_empty_domain")
            }
