"""Arrays with torn and foreign files: they open for what is sound, say which file it is, and can be mended."""

import re
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import tiledb

import terrazzo as tz
from terrazzo.engine.consolidate import Merge
from terrazzo.engine.repair import QUARANTINE, repair_array
from terrazzo.format.keys import fragment_key, merge_key
from terrazzo.storage import open_store
from terrazzo.storage.base import Store

SCHEMA = tz.Schema(
    dims=[tz.Dim("x", "int64", domain=(0, 99), tile=10)],
    attrs=[tz.Attr("v", "int64")],
    sparse=True,
    capacity=4,
)
Files = Mapping[str, bytes]
Cells = dict[int, int]


def _place() -> str:
    return f"memory://{uuid.uuid4().hex}/array"


def _files(store: Store) -> dict[str, bytes]:
    return {entry.key: store.get(entry.key) for entry in store.list_recursive()}


def _put(uri: str, files: Files) -> Store:
    store = open_store(uri)
    for key, stored in files.items():
        store.put(key, stored)
    return store


def _cells(uri: str, at: int | None = None) -> Cells:
    table = tz.open(uri, at=at).read(["x", "v"])
    return dict(zip(table["x"].to_pylist(), table["v"].to_pylist(), strict=True))


def _history(uri: str) -> tz.Array:
    """Two writes, a delete and an update."""
    a = tz.create(uri, SCHEMA, at=1)
    a.write({"x": [1, 2, 3], "v": [10, 20, 30]}, at=10)
    a.write({"x": [3, 4], "v": [31, 40]}, at=20)
    a.delete("v = 20", at=30)
    a.update({"v": 0}, "x = 4", at=40)
    return a


def _one(store: Store, suffix: str) -> str:
    (key,) = [entry.key for entry in store.list("__commits") if entry.key.endswith(suffix)]
    return key


def _commits() -> tuple[dict[str, bytes], str]:
    uri = _place()
    _history(uri)
    return _files(open_store(uri)), uri


def _con() -> dict[str, bytes]:
    """Everything in one `.con`, and nothing loose."""
    uri = _place()
    a = _history(uri)
    a.consolidate_commits()
    a.vacuum(retain=0)
    files = _files(open_store(uri))
    assert [key.rpartition(".")[2] for key in files if key.startswith("__commits/")] == ["con"]
    return files


def _vac() -> dict[str, bytes]:
    uri = _place()
    _history(uri).consolidate()
    return _files(open_store(uri))


def _ign() -> dict[str, bytes]:
    """The `.con` still names fragments that are gone."""
    uri = _place()
    a = _history(uri)
    a.consolidate_commits()
    a.delete_fragments(until=20)
    a.write({"x": [9], "v": [90]}, at=50)
    return _files(open_store(uri))


def _merge() -> dict[str, bytes]:
    """A consolidation that stopped between its commit and its `.vac`."""
    files = dict(_vac())
    vac = next(key for key in files if key.endswith(".vac"))
    replaced = tuple(line.removeprefix("/") for line in files.pop(vac).decode().splitlines())
    name = vac.rpartition("/")[2].removesuffix(".vac")
    created = f"__fragments/{name}"
    files[f"__commits/{name}.merge"] = Merge((created,), replaced).pack()
    return files


NOW = {1: 10, 3: 31, 4: 0}


@pytest.mark.parametrize(
    ("suffix", "then", "without"),
    [(".del", 29, {**NOW, 2: 20}), (".upd", 39, {**NOW, 4: 40})],
)
def test_a_torn_condition_matters_from_its_instant_on_and_repair_gives_it_up(
    suffix: str, then: int, without: Cells
) -> None:
    files, _ = _commits()
    key = next(key for key in files if key.endswith(suffix))
    before = _cells(_commits()[1], at=then)
    for length in range(len(files[key])):
        uri = _place()
        store = _put(uri, {**files, key: files[key][:length]})
        with pytest.raises(tz.CorruptionError, match=re.escape(key)):
            tz.open(uri).read()

        assert _cells(uri, at=then) == before
        assert [finding.key for finding in tz.check(uri).of("error")] == [key]
        tz.repair(uri, dry_run=False)
        assert _cells(uri) == without
        assert tz.check(uri).ok
        assert open_store(uri + QUARANTINE).get(key) == files[key][:length]
        assert key not in _files(store)


def test_a_torn_con_matters_at_every_instant_and_repair_keeps_what_stands_before_the_damage() -> None:
    files = _con()
    key = next(key for key in files if key.endswith(".con"))
    states: list[Cells] = []
    sound = 0
    for length in range(len(files[key])):
        uri = _place()
        _put(uri, {**files, key: files[key][:length]})
        problem = None
        try:
            tz.open(uri).read()
        except tz.CorruptionError as error:
            problem = error
        if problem is None:
            sound += 1  # cut between two commits
        else:
            assert key in str(problem)
            with pytest.raises(tz.CorruptionError, match=re.escape(key)):
                tz.open(uri, at=15).read()
            tz.repair(uri, dry_run=False)
            assert open_store(uri + QUARANTINE).get(key) == files[key][:length]
        assert tz.check(uri, deep=True).ok
        if not states or states[-1] != _cells(uri):
            states.append(_cells(uri))

    assert states == [{}, {1: 10, 2: 20, 3: 30}, {1: 10, 2: 20, 3: 31, 4: 40}, {1: 10, 3: 31, 4: 40}]
    assert sound <= 8


@pytest.mark.parametrize("make", [_vac, _merge])
def test_a_torn_list_of_replaced_fragments_is_mended_without_losing_a_cell(make: object) -> None:
    files = make()  # type: ignore[operator]
    key = next(key for key in files if key.endswith((".vac", ".merge")))
    for length in range(len(files[key])):
        uri = _place()
        _put(uri, {**files, key: files[key][:length]})
        torn = length and files[key][length - 1 : length] != b"\n"
        if torn:
            with pytest.raises(tz.CorruptionError, match=re.escape(key)):
                tz.open(uri).read()
            assert _cells(uri, at=9) == {}
        tz.repair(uri, dry_run=False)

        assert _cells(uri) == NOW
        assert tz.check(uri, deep=True).ok


def test_a_torn_ignore_file_is_written_anew() -> None:
    files = _ign()
    key = next(key for key in files if key.endswith(".ign"))
    for length in range(len(files[key])):
        uri = _place()
        _put(uri, {**files, key: files[key][:length]})
        if not files[key][:length].endswith((b"\n", b".wrt")):
            with pytest.raises(tz.TerrazzoError, match=re.escape(key) if length else "its files are gone"):
                tz.open(uri).read()
        tz.repair(uri, dry_run=False)

        assert _cells(uri) == {9: 90}
        assert tz.check(uri).ok


def test_a_dry_run_tells_and_changes_nothing() -> None:
    files, _ = _commits()
    key = next(key for key in files if key.endswith(".del"))
    uri = _place()
    store = _put(uri, {**files, key: b"", "__meta/junk": b"1"})
    before = _files(store)

    report = tz.repair(uri)

    assert [text.partition(":")[0] for text in report.actions] == ["__meta/junk", key]
    assert report.ok
    assert "would do 2 things" in str(report)
    assert _files(store) == before
    assert not list(open_store(uri + QUARANTINE).list_recursive())


def test_foreign_files_that_keep_libtiledb_out_are_set_aside_and_the_others_stay(folder: str) -> None:
    _history(folder).consolidate_fragment_metadata()
    strange = ["__schema/junk", "__meta/junk", "__fragment_meta/junk.tmp", "__commits/junk.wrt"]
    harmless = ["__commits/x.tmp", "notes.txt"]
    for key in (*strange, *harmless):
        (Path(folder) / key).parent.mkdir(exist_ok=True)
        (Path(folder) / key).write_bytes(b"junk")
    report = tz.check(folder)

    assert {f.key for f in report.of("error")} == set(strange)
    assert {f.key for f in report.of("note")} == set(harmless)
    with pytest.raises(tiledb.TileDBError):
        tiledb.open(folder)
    assert tz.repair(folder, dry_run=False).ok
    assert _cells(folder) == NOW
    with tiledb.open(folder) as array:
        assert set(array[:]["x"]) == {1, 3}  # an update is a delete to libtiledb
    assert all((Path(folder + QUARANTINE) / key).read_bytes() == b"junk" for key in strange)
    assert all((Path(folder) / key).exists() for key in harmless)


def test_torn_footers_are_set_aside_and_written_anew(folder: str) -> None:
    a = _history(folder)
    a.consolidate_fragment_metadata()
    (meta,) = Path(folder, "__fragment_meta").iterdir()
    meta.write_bytes(meta.read_bytes()[:-7])

    assert not tz.check(folder).ok
    assert a.repair(dry_run=False).ok
    (fresh,) = Path(folder, "__fragment_meta").iterdir()
    assert fresh.name != meta.name
    with tiledb.open(folder) as array:
        assert set(array[:]["x"]) == {1, 3}


def test_a_commit_whose_fragment_is_gone_is_set_aside(folder: str) -> None:
    a = _history(folder)
    gone = a.fragments[1]
    for file in (Path(folder) / gone.key).iterdir():
        file.unlink()
    (Path(folder) / gone.key).rmdir()
    with pytest.raises(tz.ConflictError, match="its files are gone"):
        tz.open(folder).read()

    assert tz.repair(folder, dry_run=False).ok
    assert _cells(folder) == {1: 10, 3: 30}
    with tiledb.open(folder) as array:
        assert set(array[:]["x"]) == {1, 3}


def test_a_commit_in_a_con_whose_fragment_is_gone_is_ignored() -> None:
    files = {key: stored for key, stored in _con().items() if not key.startswith("__fragments/__20_")}
    uri = _place()
    store = _put(uri, files)
    with pytest.raises(tz.ConflictError):
        tz.open(uri).read()

    assert tz.repair(uri, dry_run=False).ok
    assert _cells(uri) == {1: 10, 3: 30}
    assert _one(store, ".ign")


def test_a_list_whose_fragment_was_never_committed_is_set_aside(folder: str) -> None:
    a = _history(folder)
    a.consolidate()
    consolidated = next(f for f in a.fragments if f.name.start_ms != f.name.end_ms)
    (Path(folder) / "__commits" / f"{consolidated.name}.wrt").unlink()

    (error,) = tz.check(folder).of("error")
    assert "never committed" in error.problem
    with tiledb.open(folder) as array:
        assert not len(array[:]["x"])  # its cells are gone for libtiledb
    assert tz.repair(folder, dry_run=False).ok
    assert _cells(folder) == NOW
    with tiledb.open(folder) as array:
        assert set(array[:]["x"]) == {1, 3}


def test_a_consolidation_that_was_never_committed_is_rolled_back_once_it_is_old() -> None:
    uri = _place()
    a = _history(uri)
    store = open_store(uri)
    name = tz.open(uri).fragments[0].name
    orphan = type(name)(10, 20, "f" * 32, 22)
    store.put(f"{fragment_key(orphan)}/a0.tdb", b"half")
    replaced = tuple(fragment.key for fragment in a.fragments)
    store.put(merge_key(orphan), Merge((fragment_key(orphan),), replaced).pack())

    assert not repair_array(store, None).actions
    assert _cells(uri) == NOW
    report = repair_array(store, None, dry_run=False, patience_ms=-1000)
    assert "roll back" in report.actions[0]
    assert not list(store.list_recursive(fragment_key(orphan)))
    assert merge_key(orphan) not in _files(store)
    assert _cells(uri) == NOW


def test_a_half_committed_consolidation_is_completed() -> None:
    """A `.con` that committed two fragments was cut off behind the first."""
    files = dict(_merge())
    merge = next(key for key in files if key.endswith(".merge"))
    name = merge.rpartition("/")[2].removesuffix(".merge")
    told = Merge.unpack(files[merge])
    twin = f"__fragments/__10_50_{'f' * 32}_22"
    files |= {
        f"{twin}/{key.rpartition('/')[2]}": stored
        for key, stored in files.items()
        if key.startswith(f"__fragments/{name}/")
    }
    files[merge] = Merge((*told.created, twin), told.replaced).pack()
    uri = _place()
    store = _put(uri, files)

    assert any("commit the 1 fragments" in text for text in tz.repair(uri, dry_run=False).actions)
    assert _cells(uri) == NOW
    assert len(tz.open(uri).fragments) == 2
    assert merge not in _files(store)


def test_a_committed_fragment_that_cannot_be_read_stays_unless_it_is_given_up(folder: str) -> None:
    a = _history(folder)
    key = a.fragments[1].key
    (Path(folder) / key / "__fragment_metadata.tdb").write_bytes(b"torn")
    report = tz.repair(folder, dry_run=False)

    assert not report.ok
    assert key in report.left[0].key
    with pytest.raises(tz.CorruptionError, match=key):
        tz.open(folder)
    assert tz.repair(folder, dry_run=False, damaged_fragments=True).ok
    assert _cells(folder) == {1: 10, 3: 30}
    assert (Path(folder + QUARANTINE) / key / "a0.tdb").exists()


def test_a_torn_schema_that_no_fragment_asks_for_is_set_aside(folder: str) -> None:
    a = _history(folder)
    a.evolve(add=[tz.Attr("w", "int32")])
    newest = max(Path(folder, "__schema").glob("__*_*_*"), key=lambda path: len(path.name))
    newest.write_bytes(newest.read_bytes()[:20])
    with pytest.raises(tz.CorruptionError, match=newest.name):
        tz.open(folder)

    assert tz.repair(folder, dry_run=False).ok
    assert _cells(folder) == NOW


def test_with_the_wrong_key_nothing_is_taken_for_torn(uri: str) -> None:
    a = tz.create(uri, SCHEMA, key="k" * 32, at=1)
    a.write({"x": [1], "v": [1]})
    before = _files(open_store(uri))

    with pytest.raises(tz.InvalidRequestError, match="right key"):
        tz.repair(uri, dry_run=False, key="w" * 32)
    with pytest.raises(tz.InvalidRequestError, match="encrypted"):
        tz.repair(uri, dry_run=False)
    assert _files(open_store(uri)) == before


def test_torn_metadata_leaves_the_cells_readable_and_goes_aside(uri: str) -> None:
    a = _history(uri)
    a.meta["one"] = 1
    a.meta["two"] = 2
    a.consolidate_metadata()
    store = open_store(uri)
    (vac,) = [entry.key for entry in store.list("__meta") if entry.key.endswith(".vac")]
    store.put(vac, store.get(vac)[:-5])

    assert _cells(uri) == NOW
    with pytest.raises(tz.CorruptionError, match=re.escape(vac)):
        dict(tz.open(uri).meta)
    assert tz.repair(uri, dry_run=False).ok
    assert dict(tz.open(uri).meta) == {"one": 1, "two": 2}


def test_half_a_name_that_only_one_fragment_has_is_enough_to_tell_it() -> None:
    uri = _place()
    a = tz.create(uri, replace(SCHEMA, allows_duplicates=True), at=1)
    for i in (1, 2, 3):
        a.write({"x": [i], "v": [i]}, at=10 * i)
    a.consolidate(until=20)
    files = _files(open_store(uri))
    key = next(key for key in files if key.endswith(".vac"))
    cut = files[key][:-20]
    told, short = _place(), _place()
    _put(told, {**files, key: cut})
    _put(short, {**files, key: cut[: cut.rindex(b"_") + 3]})

    assert tz.repair(told, dry_run=False).ok
    assert tz.open(told).count() == 3
    assert "twice" in str(
        tz.repair(short)
    )  # the times alone do not tell which: nothing is hidden by guessing
    assert tz.repair(short, dry_run=False).ok
    assert tz.open(short).count() == 4


def test_a_write_whose_line_in_a_con_was_cut_off_is_kept() -> None:
    uri = _place()
    a = tz.create(uri, SCHEMA, at=1)
    a.write({"x": [1], "v": [1]}, at=10)
    a.write({"x": [2], "v": [2]}, at=20)
    a.consolidate_commits()
    a.vacuum(retain=0)
    store = open_store(uri)
    key = _one(store, ".con")
    whole = store.get(key)
    store.put(key, whole[:-12])
    assert tz.repair(uri, dry_run=False).ok
    assert _cells(uri) == {1: 1, 2: 2}

    store.put(key, whole[:-40])
    store.delete([k for k in _files(store) if k.endswith(".con") and k != key])
    report = tz.repair(uri, dry_run=False)
    assert "copy them before vacuum takes them" in str(report)
    assert _cells(uri) == {1: 1}
