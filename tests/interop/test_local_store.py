"""TileDB and our local store do not mind each other."""

import os

import numpy as np
import pytest

from terrazzo.storage import open_store, staging

tiledb = pytest.importorskip("tiledb")


def _leave_staging(folder) -> None:
    (folder / staging.FOLDER).mkdir()
    (folder / staging.FOLDER / "1-abc").write_bytes(b"a half of something")


def test_tiledb_steps_over_what_is_left_in_staging(tmp_path) -> None:
    uri = str(tmp_path / "array")
    tiledb.from_numpy(uri, np.arange(4)).close()
    _leave_staging(tmp_path / "array")
    for timestamp in (1, 2):
        with tiledb.open(uri, "w", timestamp=timestamp + 2_000_000_000_000) as array:
            array[:] = np.arange(4) + timestamp
            array.meta["key"] = timestamp
    for mode in ("fragments", "fragment_meta", "array_meta", "commits"):
        tiledb.consolidate(uri, config=tiledb.Config({"sm.consolidation.mode": mode}))
        tiledb.vacuum(uri, config=tiledb.Config({"sm.vacuum.mode": mode}))

    with tiledb.open(uri, timestamp=3_000_000_000_000) as array:
        assert array[:].tolist() == [2, 3, 4, 5]
        assert dict(array.meta) == {"key": 2}
    assert tiledb.object_type(uri) == "array"
    assert open_store(uri).reclaim_staging(0) == 1


def test_tiledb_steps_over_staging_in_a_group(tmp_path) -> None:
    group, member = str(tmp_path / "group"), str(tmp_path / "group" / "member")
    tiledb.group_create(group)
    _leave_staging(tmp_path / "group")
    tiledb.from_numpy(member, np.arange(4)).close()
    with tiledb.Group(group, "w") as opened:
        opened.add(member, "m")

    with tiledb.Group(group) as opened:
        assert [item.name for item in opened] == ["m"]
    assert tiledb.object_type(group) == "group"


def test_a_file_uri_means_the_same_folder_to_both(tmp_path) -> None:
    uri = f"file://{tmp_path}/100%20 percent"
    tiledb.from_numpy(uri, np.arange(4)).close()

    assert os.listdir(tmp_path) == ["100%20 percent"]
    assert "__schema" in open_store(uri).list_level().folders


def test_an_array_whose_empty_folders_are_missing_is_an_array_to_tiledb(tmp_path) -> None:
    # A store has no empty folders, so an array that is made through one has `__schema` and nothing else.
    made, copied = tmp_path / "made", open_store(tmp_path / "copied")
    with tiledb.from_numpy(str(made), np.arange(4)) as array:
        tiledb.Array.create(str(tmp_path / "empty"), array.schema)
    source = open_store(tmp_path / "empty")
    for entry in source.list_recursive():
        copied.put(entry.key, source.get(entry.key))
    with tiledb.open(copied.uri, "w") as array:
        array[:] = np.arange(4)
        array.meta["key"] = 1

    with tiledb.open(copied.uri) as array:
        assert array[:].tolist() == [0, 1, 2, 3]
        assert dict(array.meta) == {"key": 1}
