"""Fragment metadata: bounds, R-trees, sections and footers come back as they were packed."""

import itertools
import random
import string
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specimens import footer_of, pack_any_footer, pack_first, plain_schema

from terrazzo.format import versions
from terrazzo.format.attribute import Attr
from terrazzo.format.bounds import BoundsTable, pack_bound, unpack_bound
from terrazzo.format.datatypes import VAR, Datatype
from terrazzo.format.domain import Dim
from terrazzo.format.fragment import Footer, Section, Slots, footer_size, schema_name, split_footer
from terrazzo.format.fragment_file import SectionMap, SlotMetadata, pack_metadata_file
from terrazzo.format.fragment_v1 import unpack_first
from terrazzo.format.generic_tile import unpack_generic_tile
from terrazzo.format.rtree import RTree
from terrazzo.format.schema import Schema
from terrazzo.format.sections import (
    NO_STATISTICS,
    FieldStatistics,
    pack_conditions,
    pack_extremes,
    pack_statistics,
    pack_sums,
    pack_u64s,
    pack_var_extremes,
    unpack_conditions,
    unpack_extremes,
    unpack_statistics,
    unpack_sums,
    unpack_u64s,
)
from terrazzo.format.wire import Cursor, Writer

u64 = st.integers(0, 2**64 - 1)
text = st.binary(max_size=6)
DIMENSIONS = [d for d in Datatype if d.is_integer or d.is_float or d.is_datetime or d.is_time]


def a_dim(name: str, datatype: Datatype) -> Dim:
    if datatype is Datatype.STRING_ASCII:
        return Dim(name, datatype)
    return Dim(name, datatype, (0, 100), 10)


dim_types = st.sampled_from([*DIMENSIONS, Datatype.STRING_ASCII, Datatype.STRING_ASCII])
dims = st.lists(dim_types, min_size=1, max_size=3).map(
    lambda types: tuple(map(a_dim, string.ascii_lowercase, types))
)


def values(datatype: Datatype) -> st.SearchStrategy[Any]:
    """Any value of the type, the extreme ones and NaN included."""
    if datatype is Datatype.STRING_ASCII:
        return text
    if datatype.is_float:
        return st.floats(width=8 * datatype.size)  # type: ignore[arg-type]
    limits = np.iinfo(datatype.dtype)
    return st.sampled_from([int(limits.min), int(limits.max)]) | st.integers(int(limits.min), int(limits.max))


def column(items: list[Any], datatype: Datatype) -> Any:
    if datatype is not Datatype.STRING_ASCII:
        return np.array(items, datatype.dtype)
    cells = np.empty(len(items), object)
    cells[:] = items
    return cells


@st.composite
def tables(draw: st.DrawFn, of: tuple[Dim, ...], max_size: int = 25) -> BoundsTable:
    n = draw(st.sampled_from([0, 1, 10, 11]) | st.integers(0, max_size))
    sides = [
        [column(draw(st.lists(values(dim.datatype), min_size=n, max_size=n)), dim.datatype) for _ in range(2)]
        for dim in of
    ]
    return BoundsTable([(low, high) for low, high in sides])


with_tables = dims.flatmap(lambda of: st.tuples(st.just(of), tables(of)))


def same(one: BoundsTable, other: BoundsTable) -> bool:
    """Equal to the byte: NaN is itself, and -0.0 is not 0.0."""
    pairs = [
        (mine, theirs)
        for a, b in zip(one.columns, other.columns, strict=True)
        for mine, theirs in zip(a, b, strict=True)
    ]
    return all(
        (mine.tolist() == theirs.tolist()) if mine.dtype == object else mine.tobytes() == theirs.tobytes()
        for mine, theirs in pairs
    )


@settings(deadline=None)
@given(dim_types.flatmap(lambda kind: st.tuples(st.just(kind), values(kind), values(kind))))
def test_bounds_come_back(drawn: tuple[Datatype, Any, Any]) -> None:
    datatype, low, high = drawn
    dim, writer = a_dim("x", datatype), Writer()
    pack_bound(writer, (low, high), dim)
    cursor = Cursor(bytes(writer))
    read = unpack_bound(cursor, dim)

    cursor.expect_end()
    again = Writer()
    pack_bound(again, read, dim)
    assert bytes(again) == bytes(writer)


@settings(deadline=None)
@given(with_tables)
def test_tables_of_bounds_come_back(drawn: tuple[tuple[Dim, ...], BoundsTable]) -> None:
    of, table = drawn
    writer = Writer()
    table.pack(writer, of)
    cursor = Cursor(bytes(writer))
    read = BoundsTable.unpack(cursor, of, len(table))

    cursor.expect_end()
    assert same(read, table)
    assert len(read) == len(table)


@settings(deadline=None)
@given(with_tables, st.integers(2, 12))
def test_r_trees_come_back_and_end_in_one_root(
    drawn: tuple[tuple[Dim, ...], BoundsTable], fanout: int
) -> None:
    of, leaves = drawn
    with np.errstate(invalid="ignore"):
        packed = RTree(leaves, fanout).pack(of)
    read = RTree.unpack(packed, of, 22)

    assert read.fanout == fanout
    assert len(read.leaves) == len(leaves)
    assert not len(leaves) or same(read.leaves, leaves)
    n_levels = int.from_bytes(packed[4:8], "little")
    assert (n_levels == 0) == (len(leaves) == 0)
    assert n_levels == 0 or int.from_bytes(packed[8:16], "little") == 1


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=40), st.integers(2, 12)
)
def test_parents_of_an_r_tree_cover_their_children(boxes: list[tuple[int, int]], fanout: int) -> None:
    dim = Dim("x", "int64", (0, 100))
    low, high = (np.array([pick(box) for box in boxes]) for pick in (min, max))
    cursor = Cursor(RTree(BoundsTable([(low, high)]), fanout).pack([dim]))
    _, n_levels = cursor.u32(), cursor.u32()
    levels = [BoundsTable.unpack(cursor, [dim], cursor.u64()) for _ in range(n_levels)]

    for parents, children in itertools.pairwise(levels):
        starts = np.arange(0, len(children), fanout)
        (lows, highs), (child_lows, child_highs) = parents.columns[0], children.columns[0]
        assert lows.tolist() == np.minimum.reduceat(child_lows, starts).tolist()
        assert highs.tolist() == np.maximum.reduceat(child_highs, starts).tolist()


@settings(deadline=None)
@given(st.lists(u64, max_size=20))
def test_offsets_and_sizes_come_back(numbers: list[int]) -> None:
    assert unpack_u64s(pack_u64s(numbers)).tolist() == numbers
    assert unpack_u64s(pack_u64s(np.array(numbers, np.uint64))).tolist() == numbers


@settings(deadline=None)
@given(
    st.lists(st.floats(), max_size=9), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=9), st.lists(u64)
)
def test_sums_come_back(floats: list[float], signed: list[int], unsigned: list[int]) -> None:
    for items, dtype in ((floats, "<f8"), (signed, "<i8"), (unsigned, "<u8")):
        stored = np.array(items, dtype)

        assert unpack_sums(pack_sums(stored), np.dtype(dtype)).tobytes() == stored.tobytes()


@settings(deadline=None)
@given(st.sampled_from(DIMENSIONS).flatmap(lambda kind: st.tuples(st.just(kind), st.lists(values(kind)))))
def test_extremes_of_numbers_come_back(drawn: tuple[Datatype, list[Any]]) -> None:
    datatype, items = drawn
    stored = np.array(items, datatype.dtype)

    assert unpack_extremes(pack_extremes(stored.tobytes()), datatype.dtype, 1).tobytes() == stored.tobytes()


@settings(deadline=None)
@given(st.lists(text, max_size=12))
def test_extremes_of_text_come_back(items: list[bytes]) -> None:
    assert unpack_extremes(pack_var_extremes(items), np.dtype("i1"), VAR).tolist() == items


@settings(deadline=None)
@given(
    st.integers(2, 5).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.binary(min_size=n, max_size=n))))
)
def test_extremes_of_cells_of_several_values_come_back(drawn: tuple[int, list[bytes]]) -> None:
    n, items = drawn
    read = unpack_extremes(pack_extremes(b"".join(items)), np.dtype("i1"), n)

    assert [cell.tobytes() for cell in read] == items


statistics = st.builds(FieldStatistics, text, text, st.binary(min_size=8, max_size=8), u64)


@settings(deadline=None)
@given(st.lists(statistics | st.just(NO_STATISTICS), max_size=6))
def test_statistics_come_back(fields: list[FieldStatistics]) -> None:
    assert unpack_statistics(pack_statistics(fields), len(fields)) == tuple(fields)


@settings(deadline=None)
@given(st.lists(st.text(max_size=20), max_size=6))
def test_processed_conditions_come_back(markers: list[str]) -> None:
    assert unpack_conditions(pack_conditions(markers)) == tuple(markers)


@st.composite
def footers(draw: st.DrawFn) -> tuple[Footer, Schema]:
    """Footers of format 22, of sparse and dense fragments."""
    dense = draw(st.booleans())
    if dense:
        kind = draw(st.sampled_from([d for d in DIMENSIONS if not d.is_float]))
        of = tuple(a_dim(name, kind) for name in "xyz"[: draw(st.integers(1, 3))])
        bound = st.tuples(st.integers(0, 100), st.integers(0, 100)).map(lambda pair: (min(pair), max(pair)))
        domain = tuple(draw(bound) for _ in of)
    else:
        of = draw(dims)
        domain = tuple((draw(values(d.datatype)), draw(values(d.datatype))) for d in of)
    attrs = [Attr(f"a{j}", "int32") for j in range(draw(st.integers(1, 3)))]
    schema = Schema(of, attrs, sparse=not dense, capacity=draw(st.integers(1, 1 << 30)))
    timed, deletes = (False, False) if dense else (draw(st.booleans()), draw(st.booleans()))
    slots = Slots(len(attrs), len(of), timed, deletes)
    chance = random.Random(draw(u64))  # numbers that nothing looks at; drawn one by one they take seconds

    def some(count: int = slots.count) -> tuple[int, ...]:
        return tuple(chance.choice((0, 1, 2**64 - 1, chance.getrandbits(64))) for _ in range(count))

    sizes = (1 << 40, *some()[1:])
    single = {Section.RTREE, Section.FRAGMENT_STATISTICS, Section.PROCESSED_CONDITIONS}
    offsets = {section: some(1) if section in single else some() for section in Section}
    n_tiles = 0 if dense else draw(st.integers(0, 1000))
    last = draw(st.integers(1, schema.capacity))
    name = draw(st.text(max_size=10))
    footer = Footer(22, name, dense, domain, n_tiles, last, slots, sizes, some(), some(), offsets)
    return footer, schema


@settings(deadline=None)
@given(footers())
def test_footers_come_back(drawn: tuple[Footer, Schema]) -> None:
    footer, schema = drawn
    stored = footer.pack(schema)
    read = Footer.unpack(stored, schema)

    assert repr(read) == repr(footer)  # NaN is not equal to itself, but looks the same
    assert read.pack(schema) == stored
    assert pack_any_footer(footer, schema) == stored
    assert schema_name(stored) == footer.schema_name


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("version", range(3, 24))
def test_footers_of_every_version_are_read(version: int, timed: bool) -> None:
    schema = plain_schema(version)
    footer = footer_of(version, schema, timed=timed)
    stored = pack_any_footer(footer, schema)

    assert Footer.unpack(stored, schema) == footer
    assert footer_size(version, schema) in {None, len(stored)}
    closing = b"" if footer_size(version, schema) is not None else len(stored).to_bytes(8, "little")
    assert split_footer(b"sections" + stored + closing, version, schema) == stored


@pytest.mark.parametrize("version", [1, 2])
def test_metadata_of_the_first_formats_is_read(version: int) -> None:
    schema = plain_schema(version)
    first = unpack_first(pack_first(version, schema), schema, dense=False)

    assert (first.footer.version, first.footer.domain) == (version, ((1, 5), (2, 6)))
    assert (first.footer.n_sparse_tiles, first.footer.last_tile_cells) == (3, 2)
    assert first.footer.file_sizes == (150, 150, 150)
    assert first.rtree.leaves.whole() == ((1, 5), (2, 6))
    assert first.lists[Section.VAR_SIZES, 1].tolist() == [0, 50, 100]


numbers = st.lists(u64, max_size=4).map(lambda items: np.array(items, np.uint64))
slot_metadata = st.builds(
    SlotMetadata, numbers, numbers, numbers, numbers,
    st.lists(text, max_size=3).map(pack_var_extremes), st.binary(max_size=9).map(pack_extremes),
    st.lists(u64, max_size=3).map(pack_u64s), st.lists(u64, max_size=3).map(pack_u64s), statistics,
)  # fmt: skip


@settings(deadline=None, max_examples=50)
@given(footers(), st.data())
def test_metadata_files_come_back_section_by_section(
    drawn: tuple[Footer, Schema], data: st.DataObject
) -> None:
    footer, schema = drawn
    count = footer.slots.count
    slots = (data.draw(st.lists(slot_metadata, min_size=2, max_size=2)) * count)[:count]
    tree = None if footer.dense else RTree(data.draw(tables(schema.dims)))
    processed = data.draw(st.lists(st.text(max_size=9), max_size=2))
    with np.errstate(invalid="ignore"):
        stored, packed = pack_metadata_file(footer, schema, tree, slots, processed)

    assert split_footer(stored, versions.WRITTEN, None) == packed
    read = Footer.unpack(packed, schema)
    end = len(stored) - len(packed) - 8
    spans = SectionMap(read, end)

    def body(section: Section, slot: int = 0) -> bytes:
        found = spans.span(section, slot)
        assert found is not None
        start, size = found
        assert size is not None
        assert SectionMap(read, None).span(section, slot) in {(start, size), (start, None)}
        return unpack_generic_tile(stored[start : start + size])

    leaves = RTree.unpack(body(Section.RTREE), schema.dims, 22).leaves
    assert len(leaves) == (0 if tree is None else len(tree.leaves))
    assert not len(leaves) or tree is None or same(leaves, tree.leaves)
    for section in Section:
        if Section.TILE_OFFSETS <= section <= Section.NULL_COUNTS:
            assert [body(section, j) for j in range(count)] == [slot.body(section) for slot in slots]
    assert unpack_statistics(body(Section.FRAGMENT_STATISTICS), count) == tuple(s.statistics for s in slots)
    assert unpack_conditions(body(Section.PROCESSED_CONDITIONS)) == tuple(processed)
