"""Enumerations, labels, current domains, evolved schemas, times and deletes, beside libtiledb and both ways."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import queries
import tiledb
from arrays import assert_same_cells, attr_of, cell_list, create, pair, read_ours, view_of, write_ours
from fragments import Stored

from terrazzo.engine.arrow import to_arrow
from terrazzo.engine.clock import new_name
from terrazzo.engine.columns import Column
from terrazzo.engine.commit import commit_fragments, put_fragment
from terrazzo.engine.encode import encode_sparse
from terrazzo.engine.layout import DELETE_CONDITION, DELETE_TIMESTAMPS, TIMESTAMPS
from terrazzo.format.attribute import Attr
from terrazzo.format.datatypes import Datatype
from terrazzo.format.domain import Dim
from terrazzo.format.enumeration import Enumeration
from terrazzo.format.fragment import Section
from terrazzo.format.schema import Schema
from terrazzo.format.sections import unpack_conditions, unpack_u64s
from terrazzo.storage import open_store

NEVER = (1 << 64) - 1


def i4(*values: int) -> Column:
    return Column(np.array(values, np.int32))


X = Dim("x", "int32", (0, 99), 10)


# -- enumerations ----------------------------------------------------------------------------------------

ENUMS = {
    "unordered": Enumeration("unordered", ["red", "", "blue", "grün"]),
    "ordered": Enumeration("ordered", ["low", "middle", "high"], ordered=True),
    "numbers": Enumeration("numbers", [10, 20, 30]),
    "floats": Enumeration("floats", [0.5, 1.5, 2.5], ordered=True),
    "bytes": Enumeration("bytes", [b"x", b"yy", b"zzz"]),
}


@pytest.mark.parametrize("sparse", [True, False])
def test_enumerated_attributes_are_indices_to_both(sparse: bool, tmp_path: Path) -> None:
    kinds = ["int8", "uint8", "int16", "uint32", "int64"]
    attrs = [
        Attr(name, kind, enum=name, nullable=name == "ordered")
        for name, kind in zip(ENUMS, kinds, strict=True)
    ]
    schema = Schema([X], attrs, enums=list(ENUMS.values()), sparse=sparse)
    columns = {
        name: Column(np.array([0, 2, 1, 1, 2], Datatype.parse(kind).dtype))
        for name, kind in zip(ENUMS, kinds, strict=True)
    }
    columns["ordered"] = columns["ordered"].with_validity(np.array([True, False, True, True, True]))
    if sparse:
        columns["x"] = i4(3, 1, 4, 7, 5)
    both = pair(tmp_path, schema, columns, box=None if sparse else ((2, 6),))
    view = view_of(both.theirs)

    assert both.stored("ours").files == both.stored("theirs").files
    assert_same_cells(read_ours(both.theirs), both.expected)
    for name, enum in ENUMS.items():
        found = to_arrow(both.columns[name], view.schema.attr(name), view.schema)
        labels = enum.values.to_pylist()
        indices = [0, 2, 1, 1, 2]
        expected = [labels[index] for index in indices]
        assert found.to_pylist() == [
            None if name == "ordered" and row == 1 else each for row, each in enumerate(expected)
        ]
    with tiledb.open(str(both.ours)) as array:
        for name, enum in ENUMS.items():
            values = [
                each.decode() if isinstance(each, bytes) else each for each in array.enum(name).values()
            ]
            assert values == enum.values.to_pylist()
            assert array.enum(name).ordered == enum.ordered
        if sparse:
            assert list(array.query(cond="unordered == 'blue'").df[:]["x"]) == [1, 5]
            assert list(array.query(cond="ordered >= 'middle'").df[:]["x"]) == [4, 5, 7]


def test_an_enumeration_that_libtiledb_extended(tmp_path: Path) -> None:
    enum = tiledb.Enumeration("e", True, values=["a", "b"])
    schema = tiledb.ArraySchema(
        tiledb.Domain(tiledb.Dim("x", domain=(0, 99), tile=10, dtype="int32")),
        [tiledb.Attr("k", dtype="int8", enum_label="e")], sparse=True, enums=[enum],
    )  # fmt: skip
    tiledb.Array.create(str(tmp_path), schema)
    with tiledb.open(str(tmp_path), "w") as array:
        array[[1, 2]] = {"k": np.array([0, 1], np.int8)}
    change = tiledb.ArraySchemaEvolution()
    change.extend_enumeration(enum.extend(["c"]))
    change.array_evolve(str(tmp_path))
    with tiledb.open(str(tmp_path), "w") as array:
        array[[3]] = {"k": np.array([2], np.int8)}
    view = view_of(tmp_path)
    found = read_ours(tmp_path)

    assert len(view.snapshot.schemas) == 2
    assert to_arrow(found["k"], view.schema.attr("k"), view.schema).to_pylist() == ["a", "b", "c"]


def test_an_enumeration_that_we_extended(tmp_path: Path) -> None:
    first = Enumeration("e", ["a", "b"], ordered=True)
    schema, name = create(tmp_path, Schema([X], [Attr("k", "int8", enum="e")], enums=[first]), timestamp=1)
    write_ours(tmp_path, schema, name, {"x": i4(1, 2), "k": Column(np.array([0, 1], np.int8))}, 10)
    longer = dataclasses.replace(schema, enums={"e": first.extend(["c"])}, enum_files={})
    schema, name = create(tmp_path, longer, timestamp=20)
    write_ours(tmp_path, schema, name, {"x": i4(3), "k": Column(np.array([2], np.int8))}, 30)

    with tiledb.open(str(tmp_path)) as array:
        assert list(array.enum("e").values()) == ["a", "b", "c"]
        assert list(array.query(cond="k > 'a'").df[:]["x"]) == [2, 3]
    with tiledb.open(str(tmp_path), timestamp=15) as array:
        assert list(array.enum("e").values()) == ["a", "b"]


# -- labels ----------------------------------------------------------------------------------------------


def test_labels_are_dense_arrays_of_their_own(tmp_path: Path) -> None:
    dim = tiledb.Dim("x", domain=(1, 10), tile=5, dtype="int32")
    labels = {0: {"up": dim.create_label_schema(order="increasing", dtype=np.float64)}}
    schema = tiledb.ArraySchema(
        tiledb.Domain(dim), [tiledb.Attr("a", dtype="int32")], sparse=False, dim_labels=labels
    )
    tiledb.Array.create(str(tmp_path / "a"), schema)
    with tiledb.open(str(tmp_path / "a"), "w") as array:
        array[:] = {"a": np.arange(10, dtype=np.int32), "up": np.arange(10) / 4}
    (label,) = view_of(tmp_path / "a").schema.labels

    assert label.name == "up"
    assert read_ours(tmp_path / "a")["a"].values.tolist() == list(range(10))
    assert read_ours(tmp_path / "a" / label.uri)[label.attr].values.tolist() == [i / 4 for i in range(10)]


def test_libtiledb_reads_by_a_label_that_we_wrote(tmp_path: Path) -> None:
    dim = tiledb.Dim("x", domain=(1, 10), tile=5, dtype="int32")
    labels = {0: {"up": dim.create_label_schema(order="increasing", dtype=np.float64)}}
    theirs = tiledb.ArraySchema(
        tiledb.Domain(dim), [tiledb.Attr("a", dtype="int32")], sparse=False, dim_labels=labels
    )
    tiledb.Array.create(str(tmp_path / "a"), theirs)
    view = view_of(tmp_path / "a")
    (label,) = view.schema.labels
    nested = view_of(tmp_path / "a" / label.uri)
    box = ((1, 10),)
    write_ours(tmp_path / "a", view.schema, view.snapshot.schema_name, {"a": i4(*range(10))}, 10, box=box)
    write_ours(tmp_path / "a" / label.uri, nested.schema, nested.snapshot.schema_name,
               {label.attr: Column(np.arange(10) / 4)}, 10, box=box)  # fmt: skip

    with tiledb.open(str(tmp_path / "a")) as array:
        found = array.label_index(["up"])[0.5:1.25]
        assert list(found["a"]) == [2, 3, 4, 5]
        assert list(found["up"]) == [0.5, 0.75, 1.0, 1.25]


# -- current domain --------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [True, False])
def test_a_current_domain_changes_no_tile(sparse: bool, tmp_path: Path) -> None:
    dims = [Dim("x", "int32", (1, 100), 7), Dim("y", "int32", (1, 100), 9)]
    schema = Schema(
        dims, [Attr("a", "int32")], sparse=sparse, capacity=5, current_domain={"x": (3, 20), "y": (2, 30)}
    )
    if sparse:
        columns, box = {"x": i4(*range(3, 20)), "y": i4(*range(30, 13, -1)), "a": i4(*range(17))}, None
    else:
        columns, box = {"a": i4(*range(16 * 20))}, ((4, 19), (3, 22))
    both = pair(tmp_path, schema, columns, box=box)
    theirs, ours = both.stored("theirs"), both.stored("ours")

    assert ours.files == theirs.files
    assert ours.footer.domain == theirs.footer.domain
    assert view_of(both.theirs).schema.current_domain == ((3, 20), (2, 30))
    whole = None if sparse else [(3, 20), (2, 30)]
    expected = queries.read(both.theirs, schema, ranges=whole)
    assert_same_cells(queries.read(both.ours, schema, ranges=whole), expected)
    with tiledb.open(str(both.ours)) as array:
        assert array.schema.current_domain.ndrectangle.range(0) == (3, 20)


def test_a_current_domain_of_text(tmp_path: Path) -> None:
    schema = Schema([Dim("s", "ascii")], [Attr("a", "int32")], current_domain={"s": ("b", "y")})
    words = [b"b", b"cat", b"xylophone", b"y"]
    column = Column(np.frombuffer(b"".join(words), np.uint8), np.cumsum([0, *map(len, words)]))
    both = pair(tmp_path, schema, {"s": column, "a": i4(1, 2, 3, 4)})

    assert both.stored("ours").files == both.stored("theirs").files
    assert_same_cells(queries.read(both.ours, schema), both.expected)


# -- evolution -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [True, False])
def test_attributes_that_libtiledb_added_and_dropped(sparse: bool, tmp_path: Path) -> None:
    schema, _ = create(
        tmp_path, Schema([X], [Attr("a", "int32"), Attr("b", "int32")], sparse=sparse), timestamp=1
    )
    box = None if sparse else ((0, 1),)
    coords = {"x": i4(0, 1)} if sparse else {}
    queries.write(tmp_path, schema, {**coords, "a": i4(1, 2), "b": i4(3, 4)}, 10, box=box)
    change = tiledb.ArraySchemaEvolution()
    change.add_attribute(tiledb.Attr("c", dtype="float64", fill=2.5))
    change.add_attribute(tiledb.Attr("d", dtype="ascii", var=True, nullable=True))
    change.drop_attribute("a")
    change.timestamp(20)
    change.array_evolve(str(tmp_path))
    later = view_of(tmp_path).schema
    text = Column(np.frombuffer(b"xyz", np.uint8), np.array([0, 1, 3]), np.array([True, True]))
    box = None if sparse else ((2, 3),)
    coords = {"x": i4(2, 3)} if sparse else {}
    queries.write(
        tmp_path, later, {**coords, "b": i4(5, 6), "c": Column(np.array([0.5, 1.5])), "d": text}, 30, box=box
    )
    found, expected = read_ours(tmp_path), queries.read(tmp_path, later)

    assert [attr.name for attr in later.attrs] == ["b", "c", "d"]
    assert found["c"].values[:4].tolist() == [2.5, 2.5, 0.5, 1.5]
    assert_same_cells(found, expected)


@pytest.mark.parametrize("sparse", [True, False])
def test_attributes_that_we_added_and_dropped(sparse: bool, tmp_path: Path) -> None:
    schema, name = create(
        tmp_path, Schema([X], [Attr("a", "int32"), Attr("b", "int32")], sparse=sparse), timestamp=1
    )
    coords = {"x": i4(0, 1)} if sparse else {}
    write_ours(
        tmp_path,
        schema,
        name,
        {**coords, "a": i4(1, 2), "b": i4(3, 4)},
        10,
        box=None if sparse else ((0, 1),),
    )
    attrs = [Attr("b", "int32"), Attr("c", "float64", fill=2.5), Attr("d", "ascii", nullable=True)]
    later, name = create(tmp_path, Schema([X], attrs, sparse=sparse), timestamp=20)
    text = Column(np.frombuffer(b"xyz", np.uint8), np.array([0, 1, 3]), np.array([True, False]))
    coords = {"x": i4(2, 3)} if sparse else {}
    columns = {**coords, "b": i4(5, 6), "c": Column(np.array([0.5, 1.5])), "d": text}
    write_ours(tmp_path, later, name, columns, 30, box=None if sparse else ((2, 3),))
    found, expected = queries.read(tmp_path, later), read_ours(tmp_path)

    assert found["c"].values[:4].tolist() == [2.5, 2.5, 0.5, 1.5]
    assert cell_list(found["d"])[:4] == [None, None, b"x", None]
    assert_same_cells(found, expected)
    assert queries.read(tmp_path, schema, ["a"], timestamp=15)["a"].values[:2].tolist() == [1, 2]


# -- consolidated fragments ------------------------------------------------------------------------------


def consolidated(root: Path, **options: str) -> None:
    config = tiledb.Config({"sm.consolidation.mode": "fragments", **options})
    tiledb.consolidate(str(root), config=config)


def condition(root: Path, text: str, timestamp: int) -> None:
    with tiledb.open(str(root), "d", timestamp=timestamp) as array:
        array.query(cond=text).submit()


def test_times_of_cells_and_of_their_deletion_are_read(tmp_path: Path) -> None:
    schema, name = create(tmp_path, Schema([X], [Attr("a", "int32")], capacity=3))
    queries.write(tmp_path, schema, {"x": i4(1, 2, 3, 4), "a": i4(10, 20, 30, 40)}, 10)
    queries.write(tmp_path, schema, {"x": i4(2, 5), "a": i4(21, 50)}, 20)
    condition(tmp_path, "a >= 30 and a < 50", 30)
    queries.write(tmp_path, schema, {"x": i4(6), "a": i4(60)}, 40)
    consolidated(tmp_path)
    (folder,) = [path for path in (tmp_path / "__fragments").iterdir() if path.name.startswith("__10_40")]
    stored = Stored(folder, schema, name)
    (marker,) = [f"__commits/{path.name}" for path in (tmp_path / "__commits").glob("*.del")]
    reader = view_of(tmp_path).reader(stored.fragment)
    names = ["x", "a", TIMESTAMPS, DELETE_TIMESTAMPS, DELETE_CONDITION]
    cells = reader.read(names, reader.all_tiles())

    assert sorted(stored.files) == ["a0.tdb", "d0.tdb", "dci.tdb", "dt.tdb", "t.tdb"]
    assert [cells[each].values.tolist() for each in names] == [
        [1, 2, 2, 3, 4, 5, 6],
        [10, 21, 20, 30, 40, 50, 60],
        [10, 20, 10, 10, 10, 20, 40],
        [NEVER, NEVER, NEVER, 30, 30, NEVER, NEVER],
        [NEVER, NEVER, NEVER, 0, 0, NEVER, NEVER],
    ]
    assert stored.sections.processed == (marker,)
    assert_same_cells(read_ours(tmp_path), queries.read(tmp_path, schema))


def test_statistics_of_hidden_fields_are_kept_as_libtiledb_keeps_them(tmp_path: Path) -> None:
    """The same cells with times and delete metadata, consolidated by libtiledb and encoded by us."""
    root, copy = tmp_path / "theirs", tmp_path / "ours"
    schema, name = create(
        root, Schema([X], [Attr("a", "int32"), attr_of(Datatype.STRING_ASCII, "var", name="s")], capacity=3)
    )
    words = Column(np.frombuffer(b"abcd", np.uint8), np.array([0, 1, 2, 3, 4]))
    queries.write(root, schema, {"x": i4(1, 2, 3, 4), "a": i4(10, 20, 30, 40), "s": words}, 10)
    queries.write(root, schema, {"x": i4(2, 5, 7, 8), "a": i4(21, 50, 70, 80), "s": words}, 20)
    condition(root, "a >= 30 and a < 50", 30)
    consolidated(root)
    (folder,) = [path for path in (root / "__fragments").iterdir() if path.name.startswith("__10_20")]
    theirs = Stored(folder, schema, name)
    reader = view_of(root).reader(theirs.fragment)
    names = ["x", "a", "s", TIMESTAMPS, DELETE_TIMESTAMPS, DELETE_CONDITION]
    cells = reader.read(names, reader.all_tiles())
    schema, name = create(copy, schema)
    encoded = encode_sparse(new_name(10, 20), schema, name, cells, processed=theirs.sections.processed)
    put_fragment(open_store(str(copy)), encoded)
    commit_fragments(open_store(str(copy)), [encoded.fragment.name])
    (deletes,) = (root / "__commits").glob("*.del")
    (copy / "__commits" / deletes.name).write_bytes(deletes.read_bytes())
    ours = Stored(copy / encoded.fragment.key, schema, name)

    assert ours.files == theirs.files
    assert ours.footer.slots == theirs.footer.slots
    assert ours.body(Section.RTREE) == theirs.body(Section.RTREE)
    assert ours.body(Section.PROCESSED_CONDITIONS) == theirs.body(Section.PROCESSED_CONDITIONS)
    assert unpack_conditions(theirs.body(Section.PROCESSED_CONDITIONS)) == theirs.sections.processed
    for slot in range(theirs.footer.slots.count):
        for section in (Section.MINS, Section.MAXES, Section.SUMS, Section.NULL_COUNTS):
            if slot != theirs.footer.slots.coords:
                assert ours.sections.body(section, slot) == theirs.sections.body(section, slot), (
                    slot,
                    section,
                )
        if slot != theirs.footer.slots.coords:
            assert ours.sections.statistics[slot] == theirs.sections.statistics[slot], slot
    assert_same_cells(queries.read(copy, schema), queries.read(root, schema))
    for timestamp in (10, 15, 20, 29, 30, 99):
        assert_same_cells(
            queries.read(copy, schema, timestamp=timestamp), queries.read(root, schema, timestamp=timestamp)
        )


def test_a_consolidated_dense_fragment_is_padded_with_fill_values(tmp_path: Path) -> None:
    schema, name = create(
        tmp_path, Schema([Dim("x", "int32", (1, 20), 6)], [Attr("a", "int32", fill=-1)], sparse=False)
    )
    queries.write(tmp_path, schema, {"a": i4(1, 2, 3)}, 10, box=((2, 4),))
    queries.write(tmp_path, schema, {"a": i4(9, 9, 9, 9)}, 20, box=((4, 7),))
    before = queries.read(tmp_path, schema)
    consolidated(tmp_path)
    tiledb.vacuum(str(tmp_path))
    (folder,) = (tmp_path / "__fragments").iterdir()
    stored = Stored(folder, schema, name)
    reader = view_of(tmp_path).reader(stored.fragment)

    assert stored.footer.domain == ((2, 7),)
    assert unpack_u64s(stored.body(Section.NULL_COUNTS, "a")).tolist() == []
    assert reader.read(["a"], reader.all_tiles())["a"].values.tolist() == [-1, 1, 2, 9, 9, 9, 9, *[-1] * 5]
    assert_same_cells(read_ours(tmp_path), before)
