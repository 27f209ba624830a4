import pytest

from terrazzo.errors import CorruptionError, UnsupportedFeatureError
from terrazzo.format.group import GroupDetails, GroupMember, ObjectKind, live_members

MEMBER = "02 01 0300000000000000 617272 01 0100000000000000 41"


def test_a_member_has_a_kind_a_uri_and_maybe_a_name() -> None:
    details = GroupDetails((GroupMember("arr", ObjectKind.ARRAY, relative=True, name="A"),))
    stored = bytes.fromhex(f"02000000 0100000000000000 02000000 {MEMBER} 00")

    assert details.pack() == stored
    assert GroupDetails.unpack(stored) == details


def test_a_member_of_version_1_has_no_tombstone() -> None:
    stored = bytes.fromhex(f"01000000 0100000000000000 01000000 {MEMBER}")
    details = GroupDetails.unpack(stored)

    assert details.version == 1
    assert details.members[0].deleted is False
    assert details.pack() == stored


def test_members_are_added_and_removed_in_order_of_time() -> None:
    a = GroupMember("arr", ObjectKind.ARRAY, name="A")
    b = GroupMember("file:///b", ObjectKind.GROUP, relative=False)
    gone = GroupMember("arr", ObjectKind.ARRAY, name="A", deleted=True)

    assert live_members([GroupDetails((a, b)), GroupDetails((gone,))]) == {"file:///b": b}
    assert live_members([GroupDetails((a,)), GroupDetails((gone,)), GroupDetails((a,))]) == {"A": a}


def test_of_version_1_only_the_newest_file_counts() -> None:
    a, b = (GroupMember(name, ObjectKind.ARRAY) for name in "ab")

    assert live_members([GroupDetails((a,), 1), GroupDetails((b,), 1)]) == {"b": b}


def test_unknown_versions_and_kinds_are_refused() -> None:
    with pytest.raises(UnsupportedFeatureError):
        GroupDetails.unpack(bytes.fromhex("03000000 0000000000000000"))
    with pytest.raises(CorruptionError):
        GroupDetails.unpack(bytes.fromhex("00000000 0000000000000000"))
    with pytest.raises(CorruptionError, match="kind 3"):
        GroupDetails.unpack(bytes.fromhex(f"02000000 0100000000000000 02000000 03{MEMBER[2:]} 00"))
    with pytest.raises(CorruptionError):
        GroupDetails.unpack(bytes.fromhex("02000000 ffffffffffffffff"))
