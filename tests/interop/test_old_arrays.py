"""Arrays that old releases of TileDB wrote, read by us and by libtiledb.

They are not kept in this repository: a folder `shared/data` beside one of the folders above, or the environment
variable TERRAZZO_OLD_ARRAYS, says where they are.
"""

import os
import shutil
from pathlib import Path

import pytest
import queries
from arrays import assert_same_cells, in_order, read_ours, view_of

from terrazzo.format.fragment import Section
from terrazzo.format.generic_tile import unpack_generic_tile
from terrazzo.format.metadata import Metadata

ARRAYS = {  # and the format version, and the cells, of each
    "non_split_coords_v1_4_0": (1, 4),
    "sparse_v3": (3, 14),
    "string_dims_v6": (6, 14),
    "zero_var_chunks_v10": (10, 1),
}


def old_arrays() -> Path | None:
    places = [parent / "shared" / "data" for parent in Path(__file__).resolve().parents]
    if named := os.environ.get("TERRAZZO_OLD_ARRAYS"):
        places.insert(0, Path(named))
    return next((place for place in places if place.is_dir()), None)


@pytest.fixture(params=ARRAYS)
def array(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = old_arrays()
    if folder is None or not (folder / request.param).is_dir():
        pytest.skip(f"no array {request.param}: TERRAZZO_OLD_ARRAYS does not say where")
    return Path(shutil.copytree(folder / request.param, tmp_path / request.param))


def test_every_cell_is_read_as_libtiledb_reads_it(array: Path) -> None:
    version, n_cells = ARRAYS[array.name]
    view = view_of(array)
    found = read_ours(array)
    expected = queries.read(array, view.schema)

    assert [fragment.version for fragment in view.snapshot.fragments] == [version]
    assert {len(column) for column in found.values()} == {n_cells}
    assert_same_cells(found, in_order(expected, view.schema))


def test_every_section_of_the_metadata_is_read(array: Path) -> None:
    view = view_of(array)
    (fragment,) = view.snapshot.fragments
    (facts,) = queries.fragment_facts(array, view.schema)
    reader = view.reader(fragment)
    boxes = reader.sections.rtree.leaves

    assert facts.n_cells == reader.n_cells
    assert facts.times == (fragment.name.start_ms, fragment.name.end_ms)
    assert facts.domain == fragment.footer.domain
    assert [tuple((low[0], high[0]) for low, high in boxes.columns)] == list(facts.boxes)
    for field in view.schema.fields:
        slot = reader.layout.field(field.name).slot
        assert reader.sections.per_tile(Section.TILE_OFFSETS, slot).tolist() == [0]
        if field.is_var:
            assert reader.sections.per_tile(Section.VAR_OFFSETS, slot).tolist() == [0]
    for section in Section:
        if section in fragment.footer.offsets:
            for slot in range(len(fragment.footer.offsets[section])):
                assert reader.sections.body(section, slot) is not None


def test_columns_are_read_one_by_one(array: Path) -> None:
    schema, everything = view_of(array).schema, read_ours(array)
    for field in schema.attrs:
        names = [*(dim.name for dim in schema.dims), field.name]
        assert_same_cells(read_ours(array, names), {name: everything[name] for name in names})


def test_metadata_is_read(array: Path) -> None:
    for name in view_of(array).snapshot.metadata_names:
        stored = (array / "__meta" / str(name)).read_bytes()
        assert Metadata.unpack(unpack_generic_tile(stored)).entries
