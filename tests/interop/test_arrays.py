"""Arrays of every datatype, beside libtiledb: what one writes the other reads, and the files are the same.

Each pair below holds every datatype with one, three and any number of values per cell, nullable and not.
"""

from pathlib import Path

import numpy as np
import pytest
import queries
from arrays import (
    DATATYPES,
    KEY,
    SHAPES,
    Pair,
    assert_same_cells,
    attr_of,
    cells_of,
    pair,
    read_ours,
    view_of,
)
from fragments import LISTS, PER_SLOT
from statistics_by_hand import statistics

from terrazzo.engine.columns import Column
from terrazzo.engine.dense import read_box
from terrazzo.errors import TerrazzoError
from terrazzo.format.attribute import Attr
from terrazzo.format.datatypes import VAR, Datatype
from terrazzo.format.domain import Dim
from terrazzo.format.fragment import Section, dense_tile_cells
from terrazzo.format.fragment_file import SlotMetadata, pack_metadata_file
from terrazzo.format.schema import Schema
from terrazzo.format.sections import has_extremes, sum_dtype, unpack_extremes, unpack_sums, unpack_u64s

N_CELLS = 230  # five tiles of fifty, the last one short
BOX = ((3, 18), (2, 13))  # of a dense array: 12 tiles, most of them partly written
ATTRS = [
    attr_of(each, shape, nullable=null) for each in DATATYPES for shape in SHAPES for null in (False, True)
]
_TEXT = {Datatype.CHAR, Datatype.STRING_ASCII}

# Defect of libtiledb: a dense write of strings with more attributes than tiles puts their minima and maxima
# out of place, and may crash. They have an array of their own here, "dense-text".
LONE = [attr for attr in ATTRS if attr.is_var and attr.datatype in _TEXT]
LAYOUTS = {
    "sparse-row": {"cell_order": "row-major"},
    "sparse-col": {"cell_order": "col-major", "tile_order": "col-major"},
    "sparse-hilbert": {"cell_order": "hilbert"},
    "dense-row": {"sparse": False, "cell_order": "row-major"},
    "dense-col": {"sparse": False, "cell_order": "col-major", "tile_order": "row-major"},
    "dense-text": {"sparse": False, "cell_order": "col-major", "tile_order": "col-major"},
}


def made(root: Path, layout: str, key: bytes | None) -> Pair:
    rng = np.random.default_rng(len(layout))
    if layout.startswith("sparse"):
        dims = [Dim("x", "int64", (-500, 500), 100), Dim("y", "uint32", (0, 99), 7)]
        schema = Schema(dims, ATTRS, capacity=50, **LAYOUTS[layout])
        # Rising in every order, so that a whole tile of nulls can be asked for.
        nulls, n = slice(50, 100), N_CELLS
        columns = {"x": Column(np.arange(n) * 4 - 480), "y": Column((np.arange(n) // 3).astype(np.uint32))}
        box = None
    else:
        dims = [Dim("x", "int32", (1, 20), 7), Dim("y", "int32", (1, 15), 4)]
        attrs = LONE if layout == "dense-text" else [attr for attr in ATTRS if attr not in LONE]
        schema = Schema(dims, attrs, **LAYOUTS[layout])
        columns, box, nulls, n = {}, BOX, slice(0, 64), 16 * 12
    columns |= {attr.name: cells_of(attr, n, rng, nulls=nulls) for attr in schema.attrs}
    return pair(root, schema, columns, box=box, key=key)


@pytest.fixture(scope="module", params=[*LAYOUTS, "sparse-row encrypted", "dense-text encrypted"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    layout, _, encrypted = request.param.partition(" ")
    return made(tmp_path_factory.mktemp("pair"), layout, KEY if encrypted else None)


def test_we_read_every_cell_that_libtiledb_wrote(both: Pair) -> None:
    assert_same_cells(read_ours(both.theirs, key=both.key), both.expected)


def test_libtiledb_reads_every_cell_that_we_wrote(both: Pair) -> None:
    assert_same_cells(queries.read(both.ours, both.schema, key=both.key), both.expected)


RANGES = [((-200, 111), (20, 60)), ((-500, -480), (0, 99)), ((3, 3), (40, 41))]
BOXES = [((7, 9), (4, 6)), ((18, 20), (12, 15))]


def test_slices_are_the_same_to_both(both: Pair) -> None:
    for ranges in RANGES if both.schema.sparse else BOXES:
        expected = both.within(ranges)

        assert_same_cells(queries.read(both.ours, both.schema, ranges=ranges, key=both.key), expected)
        if both.schema.dense:
            assert_same_cells(read_box(view_of(both.theirs, key=both.key), ranges, list(expected)), expected)


def test_data_files_are_the_same_byte_for_byte(both: Pair) -> None:
    theirs, ours = both.stored("theirs"), both.stored("ours")

    assert sorted(theirs.files) == sorted(ours.files)
    for name, content in theirs.files.items():
        # Every ciphertext has its own nonce, so of encrypted files only the length can be the same.
        assert len(ours.files[name]) == len(content), name
        assert both.key is not None or ours.files[name] == content, name


def test_the_footer_says_the_same(both: Pair) -> None:
    theirs, ours = both.stored("theirs").footer, both.stored("ours").footer

    for name in ("version", "dense", "domain", "n_sparse_tiles", "last_tile_cells", "slots", "file_sizes",
                 "var_file_sizes", "validity_file_sizes"):  # fmt: skip
        assert getattr(ours, name) == getattr(theirs, name), name
    assert [len(ours.offsets[section]) for section in Section] == [
        len(theirs.offsets[section]) for section in Section
    ]


def test_what_libtiledb_tells_of_both_fragments_is_the_same(both: Pair) -> None:
    (theirs,) = queries.fragment_facts(both.theirs, both.schema, both.key)
    (ours,) = queries.fragment_facts(both.ours, both.schema, both.key)
    footer, boxes = both.stored("theirs").footer, both.stored("theirs").sections.rtree.leaves

    assert (ours.version, ours.dense, ours.times, ours.n_cells) == (
        22,
        both.schema.dense,
        (10, 10),
        theirs.n_cells,
    )
    assert (ours.domain, ours.boxes) == (theirs.domain, theirs.boxes)
    assert theirs.domain == footer.domain
    assert theirs.n_cells == footer.n_cells(both.schema)
    if both.schema.sparse:
        columns = [(low.tolist(), high.tolist()) for low, high in boxes.columns]
        rows = [tuple((low[i], high[i]) for low, high in columns) for i in range(len(boxes))]
        assert list(theirs.boxes) == rows


def test_offsets_sizes_and_boxes_are_the_same(both: Pair) -> None:
    theirs, ours = both.stored("theirs"), both.stored("ours")

    assert ours.body(Section.RTREE) == theirs.body(Section.RTREE)
    assert ours.sections.processed == theirs.sections.processed == ()
    for each in both.schema.fields:
        for section in LISTS:
            mine, other = (unpack_u64s(side.body(section, each.name)) for side in (ours, theirs))
            if len(mine):
                assert mine.tolist() == other.tolist(), (each.name, section)
            else:  # where a field lacks a file, libtiledb writes zeros and we nothing
                assert not other.any(), (each.name, section)


# Defects of libtiledb in what it stores; everything else must be what the cells say.


def knows_nulls(attr: Attr, *, dense: bool) -> bool:
    """Null counts of some types are always 0; in dense arrays, padding and other tiles' cells are counted."""
    if dense:
        return attr.cell_val_num == 1 and has_extremes(attr.datatype, 1)
    return attr.datatype in _TEXT or not (attr.is_var or attr.datatype.is_string)


def knows_extremes(attr: Attr, *, dense: bool) -> bool:
    """In dense arrays, those of nullable strings are taken from the wrong cells."""
    return not (dense and attr.nullable and attr.is_var)


def empty_extremes(
    attr: Attr, tiles: list[list[bytes | None]], schema: Schema, section: Section
) -> list[bytes]:
    """What stands for each tile if it has no value: zeros; of numbers in a dense tile that was written in part, the end
    of their range that no value is beyond."""
    zeros = b"" if attr.is_var else bytes(attr.cell_size)
    character = attr.datatype is Datatype.CHAR and attr.cell_val_num == 1  # a number like others
    if not schema.dense or (attr.datatype in _TEXT and not character):
        return [zeros] * len(tiles)
    dtype = attr.datatype.dtype
    info = (
        np.finfo(dtype)
        if dtype.kind == "f"
        else np.iinfo({"i": dtype, "u": dtype, "S": "i1"}.get(dtype.kind, "i8"))
    )
    bound = np.array(info.max if section is Section.MINS else info.min, info.dtype).tobytes()
    return [zeros if len(cells) == dense_tile_cells(schema) else bound for cells in tiles]


def checked_extremes(
    attr: Attr, found: list[bytes], expected: list[bytes | None], empties: list[bytes] | None
) -> None:
    """`empties`: what is stored for tiles without a value, where that is known, too."""
    if empties is not None:
        expected = [empty if each is None else each for each, empty in zip(expected, empties, strict=True)]
    else:
        found = [None if want is None else got for got, want in zip(found, expected, strict=True)]
    assert found == expected, attr.name


@pytest.mark.parametrize("side", ["theirs", "ours"])
def test_statistics_are_those_of_the_cells(both: Pair, side: str) -> None:
    tiles, dense, mine = both.tiles(), both.schema.dense, side == "ours"
    stored = both.stored(side)
    for slot, attr in enumerate(both.schema.attrs):
        per_tile, whole = statistics(attr, tiles[attr.name])
        fragment = stored.sections.statistics[slot]
        if attr.nullable and (mine or knows_nulls(attr, dense=dense)):
            counts = unpack_u64s(stored.body(Section.NULL_COUNTS, attr.name)).tolist()
            assert counts == [each.nulls for each in per_tile], attr.name
            assert fragment.null_count == whole.nulls, attr.name
        if has_extremes(attr.datatype, attr.cell_val_num) and (mine or knows_extremes(attr, dense=dense)):
            # Defect: a fixed string of a tile without a value, zero bytes, becomes the fragment's minimum.
            empty_counts = attr.datatype in _TEXT and any(each.minimum is None for each in per_tile)
            for section, name in ((Section.MINS, "minimum"), (Section.MAXES, "maximum")):
                found = extremes(stored.body(section, attr.name), attr)
                empties = empty_extremes(attr, tiles[attr.name], both.schema, section)
                checked_extremes(
                    attr,
                    found,
                    [getattr(each, name) for each in per_tile],
                    empties if mine or not dense else None,
                )
                assert (empty_counts and not mine) or getattr(fragment, name) == getattr(whole, name), (
                    attr.name
                )
        total = sum_dtype(attr.datatype, attr.cell_val_num)
        # Defect: dense sums are taken in slabs, and go on behind a slab that crossed a bound.
        if total is not None and (mine or not (dense and whole.saturated)):
            sums = unpack_sums(stored.body(Section.SUMS, attr.name), total).tolist()
            expected = np.frombuffer(b"".join(each.total for each in (*per_tile, whole)), total).tolist()
            if dense and attr.datatype.is_float and not mine:  # added in slabs, and rounded otherwise
                expected = pytest.approx(expected)
            # Defect: the sum of CHAR is kept per tile only.
            fragment_sum = np.frombuffer(fragment.total, total)[0].item()
            if attr.datatype is Datatype.CHAR and not mine:
                fragment_sum = expected[-1]
            assert [*sums, fragment_sum] == expected, attr.name


def extremes(body: bytes, attr: Attr) -> list[bytes]:
    values = unpack_extremes(body, attr.datatype.dtype, attr.cell_val_num)
    return list(values) if attr.cell_val_num == VAR else [each.tobytes() for each in values]


def test_sections_of_statistics_are_the_same_byte_for_byte(both: Pair) -> None:
    theirs, ours, dense = both.stored("theirs"), both.stored("ours"), both.schema.dense
    for each in both.schema.fields:
        nullable = isinstance(each, Attr) and each.nullable
        for section in PER_SLOT[len(LISTS) :]:
            if section is Section.NULL_COUNTS and nullable and not knows_nulls(each, dense=dense):
                continue
            # In a dense tile that is partly written and without a value, libtiledb leaves what it began with.
            if dense and (nullable if section in {Section.MINS, Section.MAXES} else section is Section.SUMS):
                continue

            assert ours.body(section, each.name) == theirs.body(section, each.name), (each.name, section)


def test_metadata_of_libtiledb_is_put_together_again_from_its_parts(both: Pair) -> None:
    if both.key is not None:
        return
    stored = both.stored("theirs")
    slots = [
        SlotMetadata(
            *(unpack_u64s(stored.sections.body(section, slot)) for section in LISTS),
            *(stored.sections.body(section, slot) for section in PER_SLOT[len(LISTS) :]),
            stored.sections.statistics[slot],
        )
        for slot in range(stored.footer.slots.count)
    ]
    tree = None if both.schema.dense else stored.sections.rtree
    again, _ = pack_metadata_file(stored.footer, both.schema, tree, slots)

    assert again == (stored.folder / "__fragment_metadata.tdb").read_bytes()


def test_another_key_opens_neither(both: Pair) -> None:
    if both.key is None:
        return
    for root in (both.theirs, both.ours):
        with pytest.raises(Exception, match=r"(?i)crypt"):
            queries.read(root, both.schema, key=b"x" * 32)
        with pytest.raises(TerrazzoError):
            read_ours(root, key=b"x" * 32)
