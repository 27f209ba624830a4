"""Commits, ledgers, metadata and groups that libtiledb wrote are read, and packed to the same bytes; what we
write, it reads."""

from pathlib import Path

import numpy as np
import pytest
import tiledb
from capi import write_update

from terrazzo.format.commits import Assignment, Commit, DeleteCommit, UpdateCommit
from terrazzo.format.condition import Combination, Combine, Compare, Condition, Op
from terrazzo.format.generic_tile import pack_generic_tile, unpack_generic_tile
from terrazzo.format.group import GroupDetails, GroupMember, ObjectKind, live_members
from terrazzo.format.keys import CommitKind, TimestampedName, unique_hex
from terrazzo.format.ledgers import (
    ConsolidatedFooters,
    DeleteRecord,
    UpdateRecord,
    WriteRecord,
    pack_con,
    pack_ign,
    pack_vac,
    unpack_con,
    unpack_ign,
    unpack_vac,
)
from terrazzo.format.metadata import Metadata, put, values


def i4(value: int) -> bytes:
    return np.int32(value).tobytes()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "array"
    attrs = (tiledb.Attr("a", dtype="int32"), tiledb.Attr("s", dtype="ascii", var=True, nullable=True))
    domain = tiledb.Domain(tiledb.Dim("x", domain=(1, 100), tile=10, dtype="int32"))
    tiledb.Array.create(str(path), tiledb.ArraySchema(domain, attrs, sparse=True))
    return path


def write(root: Path, timestamp: int, *cells: int) -> None:
    with tiledb.open(str(root), "w", timestamp=timestamp) as array:
        text = np.array([str(cell) for cell in cells], dtype=object)
        array[list(cells)] = {"a": np.array(cells, "int32"), "s": text}


def delete(root: Path, timestamp: int, condition: str) -> None:
    with tiledb.open(str(root), "d", timestamp=timestamp) as array:
        array.query(cond=condition).submit()


def cells(root: Path) -> list[int]:
    with tiledb.open(str(root)) as array:
        return sorted(array[:]["x"].tolist())


def files(root: Path, folder: str, suffix: str) -> list[Path]:
    return sorted((root / folder).glob(f"*{suffix}"))


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("a < 3", Compare(Op.LT, "a", i4(3))),
        ("s == 'abc'", Compare(Op.EQ, "s", b"abc")),
        ("a in [90, 60]", Compare(Op.IN, "a", members=(i4(90), i4(60)))),
        (
            "a == 40 or (a > 12 and s != 'x' and x <= 7)",
            Combine(
                Combination.OR,
                (
                    Compare(Op.EQ, "a", i4(40)),
                    Combine(
                        Combination.AND,
                        (Compare(Op.GT, "a", i4(12)), Compare(Op.NE, "s", b"x"), Compare(Op.LE, "x", i4(7))),
                    ),
                ),
            ),
        ),
    ],
)
def test_deletes_are_read_and_packed_alike(text: str, condition: Condition, root: Path) -> None:
    delete(root, 20, text)
    (path,) = files(root, "__commits", ".del")
    stored = path.read_bytes()
    commit = DeleteCommit.unpack(unpack_generic_tile(stored))

    assert commit.matches == condition
    assert pack_generic_tile(DeleteCommit.of(condition).pack()) == stored
    parsed = Commit.parse(f"__commits/{path.name}")
    assert (parsed.kind, parsed.name.start_ms, parsed.name.version) == (CommitKind.DELETE, 20, 22)


def test_updates_are_read_and_packed_alike(root: Path) -> None:
    condition = Combine(
        Combination.OR, (Compare(Op.LT, "a", i4(3)), Compare(Op.IN, "s", members=(b"x", b"yy", b"")))
    )
    write_update(str(root), condition, {"s": b"new", "a": i4(99)}, 20)
    (path,) = files(root, "__commits", ".upd")
    stored = path.read_bytes()
    update = UpdateCommit.unpack(unpack_generic_tile(stored))

    assert update.matches == condition
    assert update.assignments == (Assignment("s", b"new"), Assignment("a", i4(99)))
    assert pack_generic_tile(update.pack()) == stored
    assert path.name.startswith("__20_20_")


def test_null_is_assigned_as_no_bytes(root: Path) -> None:
    write_update(str(root), Compare(Op.LT, "a", i4(3)), {"s": None}, 20)
    (path,) = files(root, "__commits", ".upd")

    assert UpdateCommit.unpack(unpack_generic_tile(path.read_bytes())).assignments == (Assignment("s", b""),)


def test_libtiledb_applies_a_delete_of_ours(root: Path) -> None:
    write(root, 10, 1, 2, 3)
    commit = DeleteCommit.of(Compare(Op.IN, "a", members=(i4(1), i4(3))))
    name = TimestampedName(20, 20, unique_hex(1, bytes(12)), 22)
    (root / Commit(name, CommitKind.DELETE).key).write_bytes(pack_generic_tile(commit.pack()))

    assert cells(root) == [2]


def consolidated(root: Path, mode: str, *, vacuum: bool = False) -> None:
    config = tiledb.Config({"sm.consolidation.mode": mode, "sm.vacuum.mode": mode})
    tiledb.consolidate(str(root), config=config)
    if vacuum:
        tiledb.vacuum(str(root), config=config)


def test_consolidated_commits_are_read_and_packed_alike(root: Path) -> None:
    for timestamp in (10, 20, 40):
        write(root, timestamp, timestamp)
    delete(root, 30, "a < 15")
    payload = files(root, "__commits", ".del")[0].read_bytes()
    consolidated(root, "commits")
    (path,) = files(root, "__commits", ".con")
    records = unpack_con(path.read_bytes())

    assert [type(record) for record in records] == [WriteRecord, WriteRecord, DeleteRecord, WriteRecord]
    assert [record.name.start_ms for record in records] == [10, 20, 30, 40]
    assert records[2].payload == payload
    assert pack_con(records) == path.read_bytes()


def test_libtiledb_reads_consolidated_commits_of_ours_and_steps_over_updates(root: Path) -> None:
    for timestamp in (10, 20):
        write(root, timestamp, timestamp)
    delete(root, 30, "a < 15")
    write_update(str(root), Compare(Op.GT, "a", i4(15)), {"a": i4(7)}, 40)
    records = []
    for path in sorted((root / "__commits").iterdir()):
        commit = Commit.parse(f"__commits/{path.name}")
        kind = {"wrt": WriteRecord, "del": DeleteRecord, "upd": UpdateRecord}[commit.kind]
        records.append(kind(commit.name, path.read_bytes()) if path.stat().st_size else kind(commit.name))
        path.unlink()
    stored = pack_con(records)
    (root / "__commits" / f"__10_40_{unique_hex(1, bytes(12))}_22.con").write_bytes(stored)

    assert unpack_con(stored) == tuple(records)
    assert cells(root) == [20]


def test_vacuum_and_ignore_files_are_read_and_packed_alike(root: Path) -> None:
    for timestamp in (10, 20, 30):
        write(root, timestamp, timestamp)
    names = [path.stem for path in files(root, "__commits", ".wrt")]
    consolidated(root, "commits", vacuum=True)
    consolidated(root, "fragments")
    (path,) = files(root, "__commits", ".vac")
    keys = unpack_vac(path.read_bytes())

    assert keys == tuple(f"__fragments/{name}" for name in names)
    assert pack_vac(keys) == path.read_bytes()
    tiledb.vacuum(str(root), config=tiledb.Config({"sm.vacuum.mode": "fragments"}))
    (path,) = files(root, "__commits", ".ign")
    ignored = unpack_ign(path.read_bytes())

    assert {str(commit.name) for commit in ignored} == set(names)
    assert pack_ign(ignored) == path.read_bytes()


def test_consolidated_footers_are_read_and_packed_alike(root: Path) -> None:
    for timestamp in (10, 20, 30):
        write(root, timestamp, timestamp, timestamp + 1)
    consolidated(root, "fragment_meta")
    (path,) = files(root, "__fragment_meta", ".meta")
    stored = path.read_bytes()
    footers = ConsolidatedFooters.unpack(unpack_generic_tile(stored))

    assert pack_generic_tile(footers.pack()) == stored
    for fragment in (root / "__fragments").iterdir():
        own = (fragment / "__fragment_metadata.tdb").read_bytes()
        size = int.from_bytes(own[-8:], "little")
        assert footers.footers[fragment.name] == own[-8 - size : -8]


VALUES = {
    "int": 5, "bool": True, "float": 1.5, "text": "hé", "bytes": b"ab", "several": (1, 2, 3),
    "floats": (1.0, 2.0), "no text": "", "no bytes": b"", "nothing": (), "list": [1, 2],
    "array": np.arange(3, dtype="u2"), "matrix": np.arange(6, dtype="f4").reshape(2, 3),
    "point": np.array(3.0), "short": np.int16(3), "single": np.float32(2),
    "numpy text": np.str_("abc"), "numpy bytes": np.bytes_(b"abc"),
}  # fmt: skip


@pytest.mark.parametrize("key", VALUES)
def test_metadata_is_typed_alike_and_read_by_both(key: str, root: Path) -> None:
    with tiledb.open(str(root), "w") as array:
        array.meta[key] = VALUES[key]
    (path,) = files(root, "__meta", "")
    stored = path.read_bytes()
    theirs = Metadata.unpack(unpack_generic_tile(stored))
    ours = Metadata(put(key, VALUES[key]))
    helpers = {name for name in theirs.entries if "__np_shape___np" in name or "__np_flat___np" in name}

    assert pack_generic_tile(theirs.pack()) == stored
    assert ours.entries == {name: entry for name, entry in theirs.entries.items() if name not in helpers}
    path.write_bytes(pack_generic_tile(ours.pack()))
    with tiledb.open(str(root)) as array:
        np.testing.assert_array_equal(array.meta[key], values(ours.entries)[key])
        assert list(array.meta) == [key]


def test_vacuum_files_of_metadata(root: Path) -> None:
    for number in range(3):
        with tiledb.open(str(root), "w") as array:
            array.meta["k"] = number
    names = [path.name for path in files(root, "__meta", "")]
    consolidated(root, "array_meta")
    (path,) = files(root, "__meta", ".vac")
    keys = unpack_vac(path.read_bytes())

    assert sorted(keys) == [f"__meta/{name}" for name in sorted(names)]
    assert pack_vac(keys) == path.read_bytes()


def test_groups_are_read_and_packed_alike(root: Path, tmp_path: Path) -> None:
    group = tmp_path / "group"
    tiledb.Group.create(str(group))
    tiledb.Group.create(str(group / "inner"))
    with tiledb.Group(str(group), "w") as handle:
        handle.add("inner", name="I", relative=True)
        handle.add(str(root), name="A")
    with tiledb.Group(str(group), "w") as handle:
        handle.remove("A")
    details = []
    for path in files(group, "__group", ""):
        stored = path.read_bytes()
        details.append(GroupDetails.unpack(unpack_generic_tile(stored)))
        assert pack_generic_tile(details[-1].pack()) == stored
        assert TimestampedName.parse(path.name).version == 2

    assert [member.deleted for member in details[-1].members].count(True) == 1
    assert live_members(details) == {"I": GroupMember("inner", ObjectKind.GROUP, relative=True, name="I")}


def test_libtiledb_reads_a_group_of_ours(root: Path, tmp_path: Path) -> None:
    group = tmp_path / "group"
    (group / "__group").mkdir(parents=True)
    (group / "__tiledb_group.tdb").touch()
    members = (
        GroupMember("../array", ObjectKind.ARRAY, relative=True, name="A"),
        GroupMember(f"file://{root}", ObjectKind.ARRAY, relative=False),
    )
    name = TimestampedName(1700000000000, 1700000000000, unique_hex(1, bytes(12)), 2)
    (group / "__group" / str(name)).write_bytes(pack_generic_tile(GroupDetails(members).pack()))

    with tiledb.Group(str(group)) as handle:
        assert len(handle) == 2
        assert handle["A"].type is tiledb.Array
