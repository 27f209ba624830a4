"""Arrays of every format version, beside libtiledb.

It writes fragments of format 7 to 22 when the schema has that version. Older ones are made by hand, and it
says whether they are right. To an array of any version, both of us append in format 22 at most.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
import queries
from arrays import assert_same_cells, cells_of, in_order, read_ours, view_of, write_ours
from old_fragments import create_old, write_old
from test_old_arrays import ARRAYS, old_arrays

from terrazzo.engine.columns import Column, concat
from terrazzo.format.attribute import Attr
from terrazzo.format.domain import Dim
from terrazzo.format.filters.bit_width import BitWidthReduction
from terrazzo.format.filters.byteshuffle import ByteShuffle
from terrazzo.format.filters.compress import Gzip, Zstd
from terrazzo.format.filters.delta import Delta
from terrazzo.format.filters.dictionary import Dictionary
from terrazzo.format.filters.double_delta import DoubleDelta
from terrazzo.format.filters.positive_delta import PositiveDelta
from terrazzo.format.filters.rle import Rle
from terrazzo.format.fragment import Section
from terrazzo.format.generic_tile import pack_generic_tile
from terrazzo.format.schema import Schema

SCHEMA_NAME = "__1_1_0123456789abcdef0123456789abcdef"
BOX = ((2, 9), (1, 6))
ODD_NAMES = "a b%c"  # spelled raw, then percent-encoded, then not at all


def schema_of(version: int, *, sparse: bool, by_libtiledb: bool = True) -> Schema:
    text = Attr("v", "ascii") if sparse else Attr("v", "utf8")  # a defect of dense writes, see test_arrays
    attrs = [
        Attr(ODD_NAMES, "int32"),
        text,
        Attr("list", "int16", var=True, filters=[ByteShuffle(), Gzip()]),
        Attr("three", "uint8", values_per_cell=3, filters=[Rle()]),
        Attr("date", "datetime_ms", filters=[BitWidthReduction()]),
        Attr("dd", "int64", filters=[DoubleDelta(), Zstd()]),
    ]
    if version >= 7:
        attrs += [Attr("n", "float64", nullable=True), Attr("u", "utf8", nullable=True)]
    if sparse:
        attrs += [Attr("rising", "datetime_ms", filters=[PositiveDelta()])]  # dense padding does not rise
        # Defect of libtiledb: it drops the offsets of these strings under schemas whose reader needs them.
        attrs += [Attr("r", "ascii", filters=[Rle()])] if version >= 12 or not by_libtiledb else []
        attrs += [Attr("d", "ascii", filters=[Dictionary()])] if version >= 13 else []
        attrs += [Attr("r8", "utf8", filters=[Rle()])] if version >= 17 or not by_libtiledb else []
    if version >= 19:
        attrs += [Attr("delta", "int16", filters=[Delta()])]
    if sparse:
        dims = [Dim("x", "int32", (1, 100), 10), Dim("y", "int32", (1, 100), 10)]
    else:
        dims = [Dim("x", "int32", (1, 10), 3), Dim("y", "int32", (1, 6), 4)]
    return Schema(dims, attrs, capacity=7, version=version, sparse=sparse)


def create(root: Path, schema: Schema) -> str:
    body = pack_generic_tile(schema.pack())
    if schema.version < 10:
        root.mkdir(parents=True)
        (root / "__array_schema.tdb").write_bytes(body)
        return "__array_schema.tdb"
    (root / "__schema").mkdir(parents=True)
    (root / "__schema" / SCHEMA_NAME).write_bytes(body)
    return SCHEMA_NAME


def cells(schema: Schema, seed: int) -> tuple[dict[str, Column], tuple | None]:
    rng = np.random.default_rng(seed)
    n = 23 if schema.sparse else 48
    columns = {attr.name: cells_of(attr, n, rng, extreme=False) for attr in schema.attrs}
    if schema.dense:
        return columns, BOX
    columns["rising"] = Column(np.arange(n) * 1000)
    places = (
        np.arange(n, dtype=np.int32) * 4 + seed
    )  # row-major order is global order, so that dates keep rising
    return columns | {"x": Column(places), "y": Column(places)}, None


VERSIONS = pytest.mark.parametrize("version", range(1, 23))
KINDS = pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])


@VERSIONS
@KINDS
def test_we_read_what_libtiledb_wrote_in_an_array_of_any_version(
    version: int, sparse: bool, tmp_path: Path
) -> None:
    schema = schema_of(version, sparse=sparse)
    create(tmp_path / "a", schema)
    columns, box = cells(schema, 1)
    queries.write(tmp_path / "a", schema, columns, 10, box=box)
    view = view_of(tmp_path / "a")
    (fragment,) = view.snapshot.fragments
    (facts,) = queries.fragment_facts(tmp_path / "a", schema)

    assert fragment.version == facts.version == (version if version >= 7 else 22)
    assert fragment.footer.domain == facts.domain
    assert view.reader(fragment).n_cells == facts.n_cells
    assert_same_cells(read_ours(tmp_path / "a"), queries.read(tmp_path / "a", schema))
    if sparse:
        assert_same_cells(read_ours(tmp_path / "a"), in_order(columns, schema))
        assert [len(each) for each in facts.boxes] == [2] * len(view.reader(fragment).sections.rtree.leaves)
    for section in Section:
        for slot in range(len(fragment.footer.offsets.get(section, ()))):
            assert view.reader(fragment).sections.body(section, slot) is not None


@VERSIONS
@KINDS
def test_libtiledb_reads_what_we_wrote_in_an_array_of_any_version(
    version: int, sparse: bool, tmp_path: Path
) -> None:
    schema = schema_of(version, sparse=sparse, by_libtiledb=False)
    name = create(tmp_path / "a", schema)
    columns, box = cells(schema, 1)
    write_ours(tmp_path / "a", schema, name, columns, 10, box=box)
    found = queries.read(tmp_path / "a", schema)

    assert_same_cells(found, read_ours(tmp_path / "a"))
    if sparse:
        assert_same_cells(found, in_order(columns, schema))


def old_schema(version: int, kind: str) -> Schema:
    attrs = [
        Attr("a", "int32"),
        Attr("v", "char", var=True, filters=[Gzip()]),
        Attr("l", "float32", var=True),
        Attr("three", "uint16", values_per_cell=3, filters=[ByteShuffle(), Zstd()]),
    ]
    options: dict = {"capacity": 5, "version": version, "tile_order": "col-major", "cell_order": "col-major"}
    if "dense" in kind:
        dims = [Dim("x", "int32", (1, 10), 3), Dim("y", "int32", (1, 6), 4)]
        return Schema(dims, attrs, sparse=False, **options)
    dims = [Dim("x", "int64", (1, 100), 10), Dim("y", "int64", (1, 100), 10)]
    if "one dimension" in kind:
        dims = dims[:1]
    if "text" in kind:
        dims = [Dim("s", "ascii"), *dims]
    filters: dict = {
        "zstd": [Zstd()],
        "double delta": [DoubleDelta(), Zstd()],
        "shuffled": [ByteShuffle()],
        "unfiltered": [],
    }
    chosen = next((value for word, value in filters.items() if word in kind), [Zstd()])
    return Schema(dims, attrs, coords_filters=chosen, **options)


def old_cells(schema: Schema) -> tuple[dict[str, Column], tuple | None]:
    rng = np.random.default_rng(schema.version)
    n = 23 if schema.sparse else 48
    columns = {attr.name: cells_of(attr, n, rng, extreme=False) for attr in schema.attrs}
    if schema.dense:
        return columns, BOX
    for dim in schema.dims:
        if dim.is_var:
            words = [b"%d" % number for number in rng.permutation(n)]
            columns[dim.name] = Column(
                np.frombuffer(b"".join(words), np.uint8), np.cumsum([0, *map(len, words)])
            )
        else:
            columns[dim.name] = Column((rng.permutation(99)[:n] + 1).astype(dim.datatype.dtype))
    return columns, None


OLD = [
    (version, kind)
    for version in range(1, 7)
    for kind in (
        "dense", "sparse zstd", "sparse unfiltered", "sparse double delta", "sparse shuffled",
        "sparse, one dimension, unfiltered", "sparse, one dimension, zstd",
        "sparse with text",
    )
    if version >= 5 or "text" not in kind
    # Without a compressor, format 1 has x,y,x,y…, which a filter of elements would shuffle through D chunks.
    if (version, kind) != (1, "sparse shuffled")
]  # fmt: skip


@pytest.mark.parametrize(("version", "kind"), OLD)
def test_fragments_of_formats_1_to_6_made_by_hand_are_read_by_both(
    version: int, kind: str, tmp_path: Path
) -> None:
    schema = old_schema(version, kind)
    create_old(tmp_path / "a", schema)
    columns, box = old_cells(schema)
    folder = write_old(tmp_path / "a", schema, columns, 10, box)
    found, expected = read_ours(tmp_path / "a"), queries.read(tmp_path / "a", schema)
    (facts,) = queries.fragment_facts(tmp_path / "a", schema)
    (fragment,) = view_of(tmp_path / "a").snapshot.fragments

    assert facts.uri.endswith(folder.name)
    assert (facts.version, facts.times, facts.domain) == (version, (10, 10), fragment.footer.domain)
    assert_same_cells(found, expected)
    if schema.sparse:
        assert_same_cells(found, in_order(columns, schema))


@pytest.mark.parametrize(("version", "kind"), [each for each in OLD if "double" not in each[1]])
def test_old_and_new_fragments_stand_side_by_side(version: int, kind: str, tmp_path: Path) -> None:
    schema = old_schema(version, kind)
    create_old(tmp_path / "a", schema)
    columns, box = old_cells(schema)
    write_old(tmp_path / "a", schema, columns, 10, box)
    half = 11 if schema.sparse else 24
    later = {name: column.slice(0, half) for name, column in old_cells(schema)[0].items()}
    for name in ("a", "three"):
        later[name] = Column(later[name].values + 1)
    write_ours(
        tmp_path / "a", schema, "__array_schema.tdb", later, 20, box=None if box is None else ((3, 6), (1, 6))
    )

    assert_same_cells(read_ours(tmp_path / "a"), queries.read(tmp_path / "a", schema))
    assert len(view_of(tmp_path / "a").snapshot.fragments) == 2


@pytest.mark.parametrize("name", ARRAYS)
def test_we_append_to_an_array_of_an_old_release(name: str, tmp_path: Path) -> None:
    folder = old_arrays()
    if folder is None or not (folder / name).is_dir():
        pytest.skip(f"no array {name}: TERRAZZO_OLD_ARRAYS does not say where")
    root = Path(shutil.copytree(folder / name, tmp_path / name))
    view = view_of(root)
    before = read_ours(root)
    moved = dict(before)
    first = view.schema.dims[-1].name
    if not view.schema.dims[-1].is_var:
        moved[first] = Column(before[first].values + 7)
    write_ours(root, view.schema, view.snapshot.schema_name, moved, 1_700_000_000_000)
    found, expected = queries.read(root, view.schema), read_ours(root)

    assert len(found[first]) >= len(before[first])
    for column in expected:  # equal coordinates have no order where duplicates are allowed
        assert sorted(map(repr, concat([found[column]]).values.tolist())) == sorted(
            map(repr, expected[column].values.tolist())
        )
