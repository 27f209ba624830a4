"""What is in each small file of the format, field by field, as a report.

A describer fills the report that it is given, so that what was read before damage can still be shown.
"""

from typing import Any

from terrazzo.cli.kinds import FileKind
from terrazzo.cli.output import Report
from terrazzo.cli.place import Place
from terrazzo.cli.values import cell_type, moment, pair, pipeline, plain, stored
from terrazzo.engine.condition_text import describe_condition, describe_value
from terrazzo.errors import FormatError, InvalidRequestError
from terrazzo.format.commits import DeleteCommit, UpdateCommit
from terrazzo.format.condition import Compare, Condition
from terrazzo.format.enumeration import Enumeration
from terrazzo.format.generic_tile import GenericTileHeader, unpack_generic_tile
from terrazzo.format.group import GroupDetails
from terrazzo.format.keys import TimestampedName
from terrazzo.format.ledgers import Record, WriteRecord, salvage_con, unpack_ign, unpack_vac
from terrazzo.format.metadata import Metadata
from terrazzo.format.schema import Schema
from terrazzo.format.wire import Cursor


def open_tile(content: bytes, place: Place, report: Report) -> bytes:
    """The body of a file that is one generic tile."""
    header = GenericTileHeader.unpack(Cursor(content))
    report["generic_tile"] = {
        "format_version": header.version,
        "stored_size": header.stored_size,
        "size": header.size,
        "encrypted": header.encrypted,
    }
    return unpack_generic_tile(content, place.cipher)


def name_report(name: TimestampedName | None) -> Report:
    if name is None:
        return {}
    report: Report = {"name": str(name), "start_ms": moment(name.start_ms), "end_ms": moment(name.end_ms)}
    if name.version is not None:
        report["version_in_name"] = name.version
    return report


def schema(content: bytes, place: Place, report: Report) -> None:
    describe_schema(Schema.unpack(open_tile(content, place, report)), report)


def describe_schema(unpacked: Schema, report: Report) -> None:
    report |= {
        "format_version": unpacked.version,
        "array": "sparse" if unpacked.sparse else "dense",
        "allows_duplicates": unpacked.allows_duplicates,
        "tile_order": str(unpacked.tile_order),
        "cell_order": str(unpacked.cell_order),
        "capacity": unpacked.capacity,
        "coords_filters": pipeline(unpacked.coords_filters),
        "offsets_filters": pipeline(unpacked.offsets_filters),
        "validity_filters": pipeline(unpacked.validity_filters),
    }
    report["dimensions"] = [
        {
            "name": dim.name,
            "type": cell_type(dim),
            "domain": None if dim.domain is None else pair(*dim.domain, dim.datatype),
            "tile": plain(dim.tile),
            "filters": pipeline(dim.filters),
        }
        for dim in unpacked.dims
    ]
    report["attributes"] = [
        {
            "name": attr.name,
            "type": cell_type(attr),
            "nullable": attr.nullable,
            "enumeration": attr.enum,
            "fill": stored(attr.fill, attr.datatype),
            "fill_valid": attr.fill_valid,
            "order": str(attr.order),
            "filters": pipeline(attr.filters),
        }
        for attr in unpacked.attrs
    ]
    report["labels"] = [
        {
            "name": label.name,
            "dimension": unpacked.dims[label.dim_index].name,
            "type": label.datatype.name.lower(),
            "order": str(label.order),
            "attribute": label.attr,
            "uri": label.uri,
            "relative": label.relative,
            "external": label.external,
        }
        for label in unpacked.labels
    ]
    report["enumerations"] = [{"name": name, "file": file} for name, file in unpacked.enum_files.items()]
    report["current_domain"] = None
    if unpacked.current_domain is not None:
        report["current_domain"] = {
            dim.name: pair(low, high, dim.datatype)
            for dim, (low, high) in zip(unpacked.dims, unpacked.current_domain, strict=True)
        }


def enumeration(content: bytes, place: Place, report: Report) -> None:
    unpacked, file_name = Enumeration.unpack(open_tile(content, place, report))
    count = unpacked.cell_val_num
    report |= {
        "enumeration": unpacked.name,
        "file_name": file_name,
        "type": unpacked.datatype.name.lower()
        + ("[]" if unpacked.is_var else "" if count == 1 else f"[{count}]"),
        "ordered": unpacked.ordered,
        "count": len(unpacked),
        "values": [plain(value) for value in unpacked.values.to_pylist()],
    }


def write_commit(content: bytes, place: Place, report: Report) -> None:  # noqa: ARG001
    report["says"] = "the fragment of this name is committed"
    if content:
        report["note"] = f"{len(content)} bytes, where none are expected; readers do not mind"


def delete_commit(content: bytes, place: Place, report: Report) -> None:
    _condition(DeleteCommit.unpack(open_tile(content, place, report)), place, report)


def update_commit(content: bytes, place: Place, report: Report) -> None:
    commit = UpdateCommit.unpack(open_tile(content, place, report))
    _condition(commit, place, report)
    report["set"] = _assignments(commit, place)


def _condition(commit: DeleteCommit | UpdateCommit, place: Place, report: Report) -> None:
    known = schema_of(place, report)
    report["where"] = describe_condition(commit.matches, known)
    report["stored_as"] = describe_condition(commit.condition, known)
    report["fields"] = sorted(commit.condition.fields)
    report["nodes"] = _count(commit.condition)


def _count(node: Condition) -> int:
    return 1 if isinstance(node, Compare) else 1 + sum(map(_count, node.children))


def _assignments(commit: UpdateCommit, place: Place) -> list[Report]:
    known = place.newest_schema
    rows = []
    for assignment in commit.assignments:
        attr = known.attr(assignment.attr) if known is not None and known.has(assignment.attr) else None
        null = not assignment.value and (attr is None or attr.nullable or not attr.is_var)
        value = "NULL" if null else describe_value(assignment.value, attr, known)
        rows.append({"attribute": assignment.attr, "value": value, "size": len(assignment.value)})
    return rows


def schema_of(place: Place, report: Report) -> Schema | None:
    """The schema that gives values their types. Without it a condition is told with bytes, and that is said."""
    try:
        known = place.newest_schema
    except (FormatError, InvalidRequestError) as problem:
        report["note"] = f"the schema cannot be read, so values are shown as bytes: {problem}"
        return None
    if known is None:
        report["note"] = "no schema was found in the folders above: values are shown as bytes"
    return known


def consolidated(content: bytes, place: Place, report: Report) -> None:
    records, problem = salvage_con(content)
    known = schema_of(place, report)
    report["records"] = [_record(record, place, known) for record in records]
    if problem is not None:
        raise problem


def _record(record: Record, place: Place, known: Schema | None) -> Report:
    row: Report = {"kind": str(record.kind), "name": str(record.name), "size": 0, "where": None}
    if isinstance(record, WriteRecord):
        return row
    row["size"] = len(record.payload)
    try:
        body = unpack_generic_tile(record.payload, place.cipher)
        unpack = UpdateCommit.unpack if record.kind == "upd" else DeleteCommit.unpack
        commit: Any = unpack(body)
        row["where"] = describe_condition(commit.matches, known)
        if isinstance(commit, UpdateCommit):
            row["set"] = ", ".join(
                f"{each['attribute']} = {each['value']}" for each in _assignments(commit, place)
            )
    except (FormatError, InvalidRequestError) as problem:
        row["where"] = f"unreadable: {problem}"
    return row


def ignored(content: bytes, place: Place, report: Report) -> None:  # noqa: ARG001
    report["commits"] = [commit.key for commit in unpack_ign(content)]


def vacuum(content: bytes, place: Place, report: Report) -> None:  # noqa: ARG001
    report["superseded"] = list(unpack_vac(content))


def metadata(content: bytes, place: Place, report: Report) -> None:
    unpacked = Metadata.unpack(open_tile(content, place, report))
    report["entries"] = [
        {"key": key, "deleted": True, "type": None, "count": None, "value": None}
        if entry is None
        else {
            "key": key,
            "deleted": False,
            "type": entry.datatype.name.lower(),
            "count": entry.count,
            "value": plain(entry.value),
        }
        for key, entry in unpacked.entries.items()
    ]


def group(content: bytes, place: Place, report: Report) -> None:
    unpacked = GroupDetails.unpack(open_tile(content, place, report))
    report["group_version"] = unpacked.version
    report["members"] = [
        {
            "name": member.name,
            "type": member.kind.name.lower(),
            "uri": member.uri,
            "relative": member.relative,
            "deleted": member.deleted,
        }
        for member in unpacked.members
    ]


def nothing(content: bytes, place: Place, report: Report) -> None:  # noqa: ARG001
    report["says"] = "only that it is there"


DESCRIBERS = {
    FileKind.SCHEMA: schema,
    FileKind.ENUMERATION: enumeration,
    FileKind.WRITE: write_commit,
    FileKind.DELETE: delete_commit,
    FileKind.UPDATE: update_commit,
    FileKind.CONSOLIDATED: consolidated,
    FileKind.IGNORE: ignored,
    FileKind.VACUUM: vacuum,
    FileKind.METADATA: metadata,
    FileKind.GROUP: group,
    FileKind.GROUP_MARKER: nothing,
    FileKind.LOCK: nothing,
}
