import pytest

from terrazzo.errors import CorruptionError, InvalidRequestError
from terrazzo.format.commits import Assignment, Commit, DeleteCommit, UpdateCommit
from terrazzo.format.condition import Combination, Combine, Compare, Op
from terrazzo.format.keys import CommitKind, TimestampedName

UUID = "0123456789abcdef0123456789abcdef"
LESS_THAN_3 = Compare(Op.LT, "a", b"\x03\0\0\0")


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (f"__commits/__1_2_{UUID}_22.wrt", CommitKind.WRITE),
        (f"__commits/__1_2_{UUID}_22.upd", CommitKind.UPDATE),
        (f"__commits/__1_2_{UUID}_22.con", CommitKind.CONSOLIDATED),
        (f"__1_2_{UUID}_7.ok", CommitKind.OK),
    ],
)
def test_a_commit_and_its_key_tell_each_other(key: str, kind: CommitKind) -> None:
    commit = Commit.parse(key)

    assert commit is not None
    assert (commit.kind, commit.key) == (kind, key)
    assert (commit.name.start_ms, commit.name.end_ms) == (1, 2)


@pytest.mark.parametrize(
    "key", [f"__1_2_{UUID}_22", f"__commits/__1_2_{UUID}_22.tmp", f"x/__1_2_{UUID}_22.wrt", "a.wrt"]
)
def test_other_keys_are_no_commits(key: str) -> None:
    assert Commit.parse(key) is None


def test_a_write_names_its_fragment() -> None:
    name = TimestampedName(1, 2, UUID, 22)

    assert Commit(name, CommitKind.WRITE).fragment_key == f"__fragments/{name}"


def test_a_delete_stores_what_it_keeps() -> None:
    stored = bytes.fromhex("01 03 01000000 61 0400000000000000 03000000")

    assert DeleteCommit.of(LESS_THAN_3).pack() == stored
    assert DeleteCommit.unpack(stored).matches == LESS_THAN_3


def test_a_delete_is_stored_flat() -> None:
    nested = Combine(Combination.OR, (LESS_THAN_3, Combine(Combination.OR, (LESS_THAN_3, LESS_THAN_3))))

    assert len(DeleteCommit.of(nested).condition.children) == 3


def test_bytes_behind_the_condition_of_a_delete_do_not_matter() -> None:
    assert DeleteCommit.unpack(DeleteCommit.of(LESS_THAN_3).pack() + b"more").matches == LESS_THAN_3


def test_an_update_is_a_condition_and_its_assignments() -> None:
    stored = bytes.fromhex(
        "01 03 01000000 61 0400000000000000 03000000"
        "0100000000000000 0100000000000000 62 0400000000000000 63000000"
    )
    update = UpdateCommit.of(LESS_THAN_3, (Assignment("b", b"\x63\0\0\0"),))

    assert update.pack() == stored
    assert UpdateCommit.unpack(stored) == update
    assert update.matches == LESS_THAN_3


def test_an_update_assigns_an_attribute_once() -> None:
    with pytest.raises(InvalidRequestError, match="assigned twice"):
        UpdateCommit(LESS_THAN_3, (Assignment("b", b""), Assignment("b", b"")))


def test_an_update_cut_short_is_damage() -> None:
    stored = UpdateCommit.of(LESS_THAN_3, (Assignment("b", b"\x63\0\0\0"),)).pack()

    for size in range(len(stored)):
        with pytest.raises(CorruptionError):
            UpdateCommit.unpack(stored[:size])
