import pytest

from terrazzo.errors import CorruptionError
from terrazzo.format.commits import Assignment, Commit, UpdateCommit
from terrazzo.format.condition import Compare, Op
from terrazzo.format.generic_tile import pack_generic_tile
from terrazzo.format.keys import CommitKind, TimestampedName
from terrazzo.format.ledgers import (
    ConsolidatedFooters,
    DeleteRecord,
    UpdateRecord,
    WriteRecord,
    pack_con,
    pack_ign,
    pack_vac,
    salvage_con,
    unpack_con,
    unpack_ign,
    unpack_vac,
)

UUID = "0123456789abcdef0123456789abcdef"
FIRST, SECOND, THIRD = (TimestampedName(ms, ms, UUID, 22) for ms in (1, 2, 3))
OLD = TimestampedName(1, 1, UUID, 11)


def test_consolidated_commits_are_names_and_payloads() -> None:
    records = (WriteRecord(FIRST), DeleteRecord(SECOND, b"a\nb"), WriteRecord(OLD))
    stored = (
        f"__commits/{FIRST}.wrt\n__commits/{SECOND}.del\n".encode()
        + b"\3\0\0\0\0\0\0\0a\nb"
        + f"{OLD}.ok\n".encode()
    )

    assert pack_con(records) == stored
    assert unpack_con(stored) == records


def test_updates_come_last_with_a_newline_behind_each() -> None:
    records = (UpdateRecord(FIRST, b"xyz"), WriteRecord(SECOND))
    stored = f"__commits/{SECOND}.wrt\n__commits/{FIRST}.upd\n".encode() + b"\4\0\0\0\0\0\0\0xyz\n"

    assert pack_con(records) == stored
    assert unpack_con(stored) == (WriteRecord(SECOND), UpdateRecord(FIRST, b"xyz"))


def test_a_payload_without_the_guard_keeps_a_newline_of_its_own() -> None:
    tile = next(tile for value in range(256) if (tile := _update_tile(value)).endswith(b"\n"))
    unguarded = f"__commits/{FIRST}.upd\n".encode() + len(tile).to_bytes(8, "little") + tile

    assert unpack_con(unguarded) == (UpdateRecord(FIRST, tile),)
    assert unpack_con(pack_con([UpdateRecord(FIRST, tile)])) == (UpdateRecord(FIRST, tile),)


def _update_tile(value: int) -> bytes:
    cell = value.to_bytes(4, "little")
    return pack_generic_tile(UpdateCommit.of(Compare(Op.EQ, "a", cell), (Assignment("b", b"0000"),)).pack())


@pytest.mark.parametrize("prefix", ["", "/", "/__commits/", "file:///some/where/__commits/"])
def test_a_line_may_be_spelled_otherwise_and_the_last_newline_may_be_missing(prefix: str) -> None:
    assert unpack_con(f"{prefix}{FIRST}.wrt\n{prefix}{SECOND}.wrt".encode()) == (
        WriteRecord(FIRST),
        WriteRecord(SECOND),
    )


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (f"__commits/{SECOND}.del\n".encode() + b"\5\0\0", "cut off before the size"),
        (f"__commits/{SECOND}.del\n".encode() + b"\5\0\0\0\0\0\0\0abc", "claims 5 bytes of which 3 are left"),
        (b"__commits/__2_2_0123", "names no commit"),
        (f"__commits/{SECOND}.vac\n".encode(), "has no place"),
        (b"\xff\xfe\n", "not text"),
        (f"__commits/__9_2_{UUID}_22.wrt\n".encode(), "begins after it ends"),
    ],
)
def test_what_stands_before_the_damage_can_be_had(damage: bytes, problem: str) -> None:
    sound = f"__commits/{FIRST}.wrt\n".encode()

    with pytest.raises(CorruptionError, match=problem):
        unpack_con(sound + damage)
    records, found = salvage_con(sound + damage)

    assert records == (WriteRecord(FIRST),)
    assert isinstance(found, CorruptionError)


def test_an_ignore_file_lists_commits() -> None:
    commits = (Commit(FIRST, CommitKind.WRITE), Commit(SECOND, CommitKind.WRITE))
    stored = f"__commits/{FIRST}.wrt\n__commits/{SECOND}.wrt\n".encode()

    assert pack_ign(commits) == stored
    assert unpack_ign(stored) == commits
    with pytest.raises(CorruptionError):
        unpack_ign(stored[:-6])


def test_a_vacuum_file_lists_keys_with_a_leading_slash() -> None:
    keys = (f"__fragments/{FIRST}", f"__fragments/{SECOND}")
    stored = f"/__fragments/{FIRST}\n/__fragments/{SECOND}\n".encode()

    assert pack_vac(keys) == stored
    assert unpack_vac(stored) == keys


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (f"s3://gone/array/__fragments/{FIRST}", f"__fragments/{FIRST}"),
        (f"s3://gone/__fragments/a/__fragments/{FIRST}", f"__fragments/{FIRST}"),
        (f"file:///gone/array/__meta/{FIRST}", f"__meta/{FIRST}"),
        (f"file:///gone/array/{OLD}", str(OLD)),
        (f"/{OLD}", str(OLD)),
    ],
)
def test_a_vacuum_file_survives_a_move_of_the_array(line: str, key: str) -> None:
    assert unpack_vac(f"{line}\n".encode()) == (key,)


def test_a_vacuum_line_without_a_slash_is_damage() -> None:
    with pytest.raises(CorruptionError, match="names no fragment"):
        unpack_vac(b"junk\n")


def test_consolidated_footers_are_found_by_their_offsets() -> None:
    footers = ConsolidatedFooters({"__f1": b"first", "__f2": b"second"})
    stored = bytes.fromhex("02000000") + b"".join(
        (4).to_bytes(8, "little") + name + offset.to_bytes(8, "little")
        for name, offset in ((b"__f1", 44), (b"__f2", 49))
    )

    assert footers.pack() == stored + b"firstsecond"
    assert ConsolidatedFooters.unpack(footers.pack()) == footers
    assert ConsolidatedFooters.unpack(bytes(4)) == ConsolidatedFooters({})
    for offset in (43, 56):
        with pytest.raises(CorruptionError):
            ConsolidatedFooters.unpack(stored[:-8] + offset.to_bytes(8, "little") + b"firstsecond")


def test_of_a_footer_that_comes_twice_the_first_counts() -> None:
    twice = bytearray(ConsolidatedFooters({"__f1": b"first", "__f2": b"second"}).pack())
    twice[twice.index(b"__f2") : twice.index(b"__f2") + 4] = b"__f1"

    assert ConsolidatedFooters.unpack(twice).footers == {"__f1": b"first"}
