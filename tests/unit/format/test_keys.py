import pytest

from terrazzo.errors import CorruptionError
from terrazzo.format.keys import (
    CommitKind,
    DataFiles,
    TimestampedName,
    attribute_files,
    commit_key,
    dimension_files,
    enumeration_key,
    enumeration_name,
    footers_key,
    fragment_key,
    group_key,
    metadata_key,
    schema_key,
    unique_hex,
)

UUID = "0123456789abcdef0123456789abcdef"
NAME = TimestampedName(1700000000000, 1700000000005, UUID, 22)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (f"__1_2_{UUID}_22", TimestampedName(1, 2, UUID, 22)),
        (f"__1_2_{UUID}", TimestampedName(1, 2, UUID)),
        (f"__{UUID}_7", TimestampedName(7, 7, UUID, uuid_first=f"__{UUID}_7")),
        (f"__{UUID}_7_9", TimestampedName(7, 9, UUID, uuid_first=f"__{UUID}_7_9")),
        (f"__{UUID}_7_7", TimestampedName(7, 7, UUID, uuid_first=f"__{UUID}_7_7")),
    ],
)
def test_names_of_every_generation_are_read_and_written_alike(text: str, name: TimestampedName) -> None:
    assert TimestampedName.parse(text) == name
    assert str(name) == text


@pytest.mark.parametrize(
    "text", ["", "x", "__", "__a", f"_1_2_{UUID}_22", f"__1_2_{UUID}_22.wrt", f"__1_2_{UUID}_v"]
)
def test_a_name_of_another_shape_is_none_of_ours(text: str) -> None:
    assert TimestampedName.parse(text) is None


def test_a_name_that_begins_after_it_ends_is_damage() -> None:
    with pytest.raises(CorruptionError, match="begins after it ends"):
        TimestampedName.parse(f"__5_4_{UUID}_22")


def test_names_are_ordered_by_start_and_then_as_text() -> None:
    names = [
        TimestampedName(10, 10, UUID, 22),
        TimestampedName(9, 99, UUID, 22),
        TimestampedName(9, 100, UUID, 22),
    ]

    assert [name.end_ms for name in sorted(names, key=lambda name: name.order)] == [100, 99, 10]


def test_a_unique_name_begins_with_its_counter() -> None:
    assert unique_hex(0x1B95EE0F, bytes(range(12))) == "1b95ee0f000102030405060708090a0b"

    with pytest.raises(ValueError, match="counter"):
        unique_hex(1 << 31, bytes(12))


def test_fragments_and_commits_have_folders_since_format_12() -> None:
    old = TimestampedName(1, 1, UUID, 11)

    assert fragment_key(NAME) == f"__fragments/{NAME}"
    assert commit_key(NAME, CommitKind.WRITE) == f"__commits/{NAME}.wrt"
    assert footers_key(NAME) == f"__fragment_meta/{NAME}.meta"
    assert fragment_key(old) == str(old)
    assert commit_key(old, CommitKind.WRITE) == f"{old}.ok"
    assert commit_key(old, CommitKind.VACUUM) == f"{old}.vac"
    assert footers_key(old) == f"{old}.meta"


def test_other_keys() -> None:
    assert schema_key("__1_1_x") == "__schema/__1_1_x"
    assert schema_key("__array_schema.tdb") == "__array_schema.tdb"
    assert enumeration_key(enumeration_name(UUID)) == f"__schema/__enumerations/__{UUID}_0"
    assert metadata_key(TimestampedName(1, 1, UUID)) == f"__meta/__1_1_{UUID}"
    assert group_key(TimestampedName(1, 1, UUID, 2)) == f"__group/__1_1_{UUID}_2"


def test_data_files_are_numbered_since_format_9() -> None:
    assert attribute_files(2, "v", 22) == DataFiles("a2.tdb", "a2_var.tdb", "a2_validity.tdb")
    assert dimension_files(0, "x", 9).fixed == "d0.tdb"


def test_data_files_carry_the_field_name_before_format_9() -> None:
    assert attribute_files(2, "a/b<c", 7).fixed == "a/b<c.tdb"
    assert attribute_files(2, "a/b<c d", 8).var == "a%2Fb%20c d_var.tdb"
    assert attribute_files(0, '!|"\\>', 8).fixed == "%21%3C%22%30%2D.tdb"
    assert dimension_files(1, "y", 5).fixed == "y.tdb"


def test_coordinates_share_a_file_before_format_5() -> None:
    assert dimension_files(1, "y", 4).fixed == "__coords.tdb"
