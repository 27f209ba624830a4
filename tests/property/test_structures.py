"""Every stored structure: what is packed comes back, and damaged bytes give nothing but a FormatError."""

import string
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from terrazzo.errors import FormatError
from terrazzo.format.attribute import Attr
from terrazzo.format.commits import Assignment, DeleteCommit, UpdateCommit
from terrazzo.format.condition import Combination, Combine, Compare, Condition, Op, flatten, negate
from terrazzo.format.datatypes import VAR, Datatype
from terrazzo.format.domain import Dim
from terrazzo.format.enumeration import Enumeration
from terrazzo.format.filters.bit_width import BitWidthReduction
from terrazzo.format.filters.compress import Bzip2, Gzip, Lz4, Zstd
from terrazzo.format.filters.delta import Delta
from terrazzo.format.filters.double_delta import DoubleDelta
from terrazzo.format.filters.pipeline import Pipeline
from terrazzo.format.filters.rle import Rle
from terrazzo.format.filters.scale_float import ScaleFloat
from terrazzo.format.filters.xor import Xor
from terrazzo.format.group import GroupDetails, GroupMember, ObjectKind
from terrazzo.format.keys import TimestampedName
from terrazzo.format.label import DimensionLabel
from terrazzo.format.ledgers import (
    ConsolidatedFooters,
    DeleteRecord,
    UpdateRecord,
    WriteRecord,
    pack_con,
    pack_vac,
    unpack_con,
    unpack_ign,
    unpack_vac,
)
from terrazzo.format.metadata import Metadata, MetadataValue
from terrazzo.format.orders import DataOrder
from terrazzo.format.schema import Schema

texts = st.text(max_size=6)
blobs = st.binary(max_size=12)
u64 = st.integers(0, 2**64 - 1)

names = st.builds(
    lambda times, uuid, version: TimestampedName(min(times), max(times), uuid, version),
    st.tuples(u64, u64),
    st.text("0123456789abcdef", min_size=32, max_size=32),
    st.none() | st.integers(5, 23),
)

comparisons = st.builds(
    Compare, st.sampled_from([op for op in Op if not op.takes_members]), texts, blobs
) | st.builds(
    lambda op, field, members: Compare(op, field, b"", tuple(members)),
    st.sampled_from([Op.IN, Op.NOT_IN]), texts, st.lists(blobs, max_size=4),
)  # fmt: skip


def combined(children: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    several = st.lists(children, min_size=1, max_size=3).map(tuple)
    return st.builds(Combine, st.sampled_from([Combination.AND, Combination.OR]), several) | st.builds(
        lambda child: Combine(Combination.NOT, (child,)), children
    )


conditions = st.recursive(comparisons, combined, max_leaves=8)
assignments = st.lists(st.builds(Assignment, texts, blobs), max_size=3, unique_by=lambda each: each.attr).map(
    tuple
)

filters = st.sampled_from(
    [
        Zstd(-1),
        Gzip(5),
        Lz4(),
        Bzip2(1),
        Rle(-1),
        Delta(),
        DoubleDelta(),
        BitWidthReduction(),
        ScaleFloat(),
        Xor(),
    ]
)
pipelines = st.builds(Pipeline, st.lists(filters, max_size=2).map(tuple), st.integers(0, 2**32 - 1))

whole = st.sampled_from([d for d in Datatype if d.is_integer or d.is_datetime or d.is_time])


@st.composite
def dims(draw: st.DrawFn, name: str) -> Dim:
    kind = draw(st.sampled_from(["whole", "float", "text"]))
    if kind == "text":
        return Dim(name, "ascii", filters=draw(pipelines))
    if kind == "float":
        datatype = draw(st.sampled_from([Datatype.FLOAT32, Datatype.FLOAT64]))
        low = draw(st.floats(-1e6, 1e6, width=32))
        return Dim(name, datatype, (low, low + draw(st.integers(0, 100))), filters=draw(pipelines))
    datatype = draw(whole)
    limits = np.iinfo(datatype.dtype)
    low = draw(st.integers(int(limits.min), int(limits.max) - 1))
    high = draw(st.integers(low, int(limits.max) - 1))
    return Dim(name, datatype, (low, high), filters=draw(pipelines))


@st.composite
def attrs(draw: st.DrawFn, name: str) -> Attr:
    datatype = draw(st.sampled_from(Datatype))
    var = datatype is Datatype.ANY or draw(st.booleans())
    count = 1 if var else draw(st.integers(1, 4))
    fill = draw(st.none() | st.binary(min_size=count * datatype.size, max_size=count * datatype.size))
    enum = draw(st.sampled_from([None, "e"])) if datatype.is_integer and count == 1 and not var else None
    return Attr(
        name, datatype, var=var, nullable=draw(st.booleans()), filters=draw(pipelines), fill=fill,
        fill_valid=draw(st.booleans()), enum=enum, order=draw(st.sampled_from(DataOrder)),
        values_per_cell=count,
    )  # fmt: skip


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    dimensions = [draw(dims(name)) for name in string.ascii_lowercase[: draw(st.integers(1, 3))]]
    attributes = [draw(attrs(name)) for name in string.ascii_uppercase[: draw(st.integers(0, 3))]]
    label = DimensionLabel(0, "l", "__labels/l0", "label", DataOrder.INCREASING, Datatype.STRING_ASCII, VAR)
    box = [dim.domain or (b"a", draw(st.binary(min_size=1, max_size=3)) + b"z") for dim in dimensions]
    box = [(min(ends), max(ends)) for ends in box]
    return Schema(
        dimensions, attributes, enum_files={"e": "__00_0", "other": draw(texts)},
        allows_duplicates=draw(st.booleans()), capacity=draw(st.integers(1, 2**64 - 1)),
        cell_order=draw(st.sampled_from(["row-major", "col-major", "hilbert"])),
        tile_order=draw(st.sampled_from(["row-major", "col-major"])),
        coords_filters=draw(pipelines), offsets_filters=draw(pipelines), validity_filters=draw(pipelines),
        current_domain=draw(st.sampled_from([None, box])), labels=draw(st.sampled_from([(), (label,)])),
        version=draw(st.sampled_from([22, 23])),
    )  # fmt: skip


values = st.builds(
    lambda datatype, count, byte: MetadataValue(datatype, count, bytes([byte]) * (count * datatype.size)),
    st.sampled_from(Datatype), st.integers(0, 4), st.integers(0, 255),
)  # fmt: skip
metadata = st.dictionaries(texts, st.none() | values, max_size=4).map(Metadata)

members = st.builds(
    GroupMember, texts, st.sampled_from(ObjectKind), st.booleans(), st.none() | texts, st.booleans()
)
groups = st.lists(members, max_size=3).map(lambda each: GroupDetails(tuple(each)))

enumerations = st.builds(
    Enumeration,
    texts,
    st.lists(texts, min_size=1, max_size=5, unique=True)
    | st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5, unique=True),
    ordered=st.booleans(),
)

records = st.lists(
    st.builds(WriteRecord, names)
    | st.builds(DeleteRecord, names, blobs)
    | st.builds(UpdateRecord, names, blobs),
    max_size=4,
).map(lambda each: tuple(sorted(each, key=lambda record: isinstance(record, UpdateRecord))))

footers = st.dictionaries(texts, st.binary(min_size=1, max_size=5), max_size=3).map(ConsolidatedFooters)


@settings(deadline=None)
@given(names)
def test_names_come_back(name: TimestampedName) -> None:
    assert TimestampedName.parse(str(name)) == name


@settings(deadline=None)
@given(conditions)
def test_negating_twice_changes_nothing(node: Condition) -> None:
    assert negate(negate(node)) == node


@settings(deadline=None)
@given(conditions)
def test_a_flat_tree_has_nothing_to_flatten(node: Condition) -> None:
    flat = flatten(node)

    assert flatten(flat) == flat
    assert flat.fields == node.fields
    assert all(
        len(each.children) > 1 and each.combination is not Combination.NOT for each in _combinations(flat)
    )


def _combinations(node: Condition) -> list[Combine]:
    if isinstance(node, Compare):
        return []
    return [node, *(each for child in node.children for each in _combinations(child))]


@settings(deadline=None)
@given(conditions)
def test_deletes_come_back(condition: Condition) -> None:
    assert DeleteCommit.unpack(DeleteCommit(condition).pack()) == DeleteCommit(condition)


@settings(deadline=None)
@given(conditions, assignments)
def test_updates_come_back(condition: Condition, assigned: tuple[Assignment, ...]) -> None:
    update = UpdateCommit(condition, assigned)

    assert UpdateCommit.unpack(update.pack()) == update


@settings(max_examples=200, deadline=None)
@given(schemas())
def test_schemas_come_back(schema: Schema) -> None:
    read = Schema.unpack(schema.pack())

    assert read == schema
    assert read.pack() == schema.pack()
    assert replace(read) == read


@settings(deadline=None)
@given(metadata)
def test_metadata_comes_back(entries: Metadata) -> None:
    assert Metadata.unpack(entries.pack()) == entries


@settings(deadline=None)
@given(groups)
def test_groups_come_back(group: GroupDetails) -> None:
    assert GroupDetails.unpack(group.pack()) == group


@settings(deadline=None)
@given(enumerations, texts)
def test_enumerations_come_back(enum: Enumeration, file_name: str) -> None:
    assert Enumeration.unpack(enum.pack(file_name)) == (enum, file_name)


@settings(deadline=None)
@given(records)
def test_consolidated_commits_come_back(each: tuple) -> None:
    stored = [replace(record, name=replace(record.name, version=record.name.version or 5)) for record in each]

    assert unpack_con(pack_con(stored)) == tuple(stored)


@settings(deadline=None)
@given(footers)
def test_consolidated_footers_come_back(each: ConsolidatedFooters) -> None:
    assert ConsolidatedFooters.unpack(each.pack()) == each


@settings(deadline=None)
@given(st.lists(names))
def test_vacuum_files_come_back(each: list[TimestampedName]) -> None:
    keys = tuple(f"__fragments/{name}" for name in each)

    assert unpack_vac(pack_vac(keys)) == keys


PACKED: dict[str, tuple[st.SearchStrategy[bytes], Callable[[bytes], object]]] = {
    "delete": (conditions.map(lambda node: DeleteCommit(node).pack()), DeleteCommit.unpack),
    "update": (
        st.builds(UpdateCommit, conditions, assignments).map(UpdateCommit.pack),
        UpdateCommit.unpack,
    ),
    "schema": (schemas().map(Schema.pack), Schema.unpack),
    "metadata": (metadata.map(Metadata.pack), Metadata.unpack),
    "group": (groups.map(GroupDetails.pack), GroupDetails.unpack),
    "enumeration": (
        enumerations.map(lambda enum: enum.pack("f")),
        lambda body: Enumeration.unpack(body)[0].values,
    ),
    "con": (records.map(pack_con), unpack_con),
    "ign": (names.map(lambda name: f"__commits/{name}.wrt\n".encode()), unpack_ign),
    "vac": (names.map(lambda name: pack_vac([str(name)])), unpack_vac),
    "meta": (footers.map(ConsolidatedFooters.pack), ConsolidatedFooters.unpack),
}
structures = st.sampled_from(list(PACKED)).flatmap(lambda name: st.tuples(st.just(name), PACKED[name][0]))


@settings(max_examples=150, deadline=None)
@given(structures)
def test_cut_at_any_byte_there_is_only_a_format_error(structure: tuple[str, bytes]) -> None:
    name, stored = structure

    for size in range(len(stored)):
        with suppress(FormatError):
            PACKED[name][1](stored[:size])


@settings(max_examples=1000, deadline=None)
@given(structures, st.data())
def test_mutated_anywhere_there_is_only_a_format_error(
    structure: tuple[str, bytes], data: st.DataObject
) -> None:
    name, stored = structure
    damaged = bytearray(stored)
    for _ in range(data.draw(st.integers(1, 4))):
        if damaged:
            at = data.draw(st.integers(0, len(damaged) - 1))
            damaged[at] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))

    with suppress(FormatError):
        PACKED[name][1](bytes(damaged))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(list(PACKED)), st.binary(max_size=200))
def test_of_any_bytes_there_is_only_a_format_error(name: str, stored: bytes) -> None:
    with suppress(FormatError):
        PACKED[name][1](stored)


@settings(max_examples=100, deadline=None)
@given(schemas(), st.integers(1, 23))
def test_a_schema_of_another_version_is_read_or_is_a_format_error(schema: Schema, version: int) -> None:
    stored = bytes([version]) + schema.pack()[1:]

    with suppress(FormatError):
        Schema.unpack(stored)
