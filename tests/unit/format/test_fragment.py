"""Footers and sections, with bytes made by hand."""

import struct

import pytest

from terrazzo.errors import CorruptionError, UnsupportedFeatureError
from terrazzo.format.attribute import Attr
from terrazzo.format.domain import Dim
from terrazzo.format.fragment import Footer, Section, Slots, footer_size, split_footer
from terrazzo.format.fragment_file import SectionMap
from terrazzo.format.schema import Schema

SCHEMA = Schema([Dim("x", "int32", (1, 100), 10), Dim("s", "ascii")], [Attr("a", "int32")])
NAME = "__1_1_0123456789abcdef0123456789abcdef"
N_SLOTS = 4  # a, the dead one, x, s


def u64(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


def footer(version: int, *, dense: int = 0, extensions: bytes = b"") -> bytes:
    """A footer of format 22 or 23: three tiles, sections at 100, 101, …"""
    sections = [1, *[N_SLOTS] * 8, 1, 1]
    first = [100 + sum(sections[:index]) for index in range(len(sections))]
    return b"".join(
        [
            struct.pack("<I", version), u64(len(NAME)), NAME.encode(), bytes([dense, 0]),
            struct.pack("<ii", 3, 55), u64(5, 2), b"aazzz",  # the domain: x 3 to 55, s "aa" to "zzz"
            u64(3, 7), b"\0\0",  # tiles, cells of the last; neither times nor deletes
            u64(32, 0, 57, 40), u64(0, 0, 0, 99), u64(0, 0, 0, 0),
            *[u64(*range(start, start + count)) for start, count in zip(first, sections, strict=True)],
            extensions,
        ]
    )  # fmt: skip


def bounds_extension(mins: tuple[int, int] = (500, 510), maxes: tuple[int, int] = (520, 530)) -> bytes:
    return u64(0) + struct.pack("<I", 32) + u64(*mins, *maxes)


def test_a_footer_of_format_23_names_the_bounds_in_global_order() -> None:
    stored = footer(23, extensions=struct.pack("<I", 1) + bounds_extension())
    found = Footer.unpack(stored, SCHEMA)

    assert found.version == 23
    assert found.domain == ((3, 55), (b"aa", b"zzz"))
    assert found.global_order_offsets == ((500, 510), (520, 530))
    assert found.file_sizes == (32, 0, 57, 40)
    assert found.offsets[Section.MINS] == (117, 118, 119, 120)
    assert found.offsets[Section.PROCESSED_CONDITIONS] == (134,)


def test_the_rest_of_a_footer_of_format_23_is_that_of_format_22() -> None:
    newer = Footer.unpack(footer(23, extensions=struct.pack("<I", 1) + bounds_extension()), SCHEMA)
    older = Footer.unpack(footer(22), SCHEMA)

    assert older.global_order_offsets is None
    for name in (
        "schema_name",
        "domain",
        "n_sparse_tiles",
        "last_tile_cells",
        "slots",
        "file_sizes",
        "offsets",
    ):
        assert getattr(newer, name) == getattr(older, name)
    assert older.pack(SCHEMA) == footer(22)


def test_extensions_that_are_not_known_are_stepped_over() -> None:
    unknown = u64(77) + struct.pack("<I", 5) + b"words"
    extensions = struct.pack("<I", 3) + unknown + bounds_extension() + unknown

    assert Footer.unpack(footer(23, extensions=extensions), SCHEMA).global_order_offsets == (
        (500, 510),
        (520, 530),
    )
    assert (
        Footer.unpack(footer(23, extensions=struct.pack("<I", 1) + unknown), SCHEMA).global_order_offsets
        is None
    )


@pytest.mark.parametrize("extensions", [b"", struct.pack("<I", 0)])
def test_a_footer_of_format_23_may_have_no_extension(extensions: bytes) -> None:
    assert Footer.unpack(footer(23, extensions=extensions), SCHEMA).global_order_offsets is None


def test_bounds_in_global_order_lie_between_other_sections() -> None:
    """They stand between the maxima and the sums: without them a section would seem to reach over them."""
    stored = footer(23, extensions=struct.pack("<I", 1) + bounds_extension((125, 1000), (1010, 1020)))
    places = SectionMap(Footer.unpack(stored, SCHEMA), 2000)

    assert places.span(Section.MAXES, 3) == (124, 1)
    assert places.span(Section.SUMS, 0) == (125, 1)
    assert places.span(Section.PROCESSED_CONDITIONS) == (134, 1000 - 134)


@pytest.mark.parametrize(
    "extensions",
    [
        struct.pack("<I", 9) + bounds_extension(),  # more than there is room for
        struct.pack("<I", 1) + bounds_extension()[:-1],
        struct.pack("<I", 1) + u64(0) + struct.pack("<I", 8) + u64(1),  # too short for two dimensions
        struct.pack("<I", 2) + bounds_extension(),
        b"\1",
    ],
)
def test_damaged_extensions_are_corruption(extensions: bytes) -> None:
    with pytest.raises(CorruptionError):
        Footer.unpack(footer(23, extensions=extensions), SCHEMA)


def test_bytes_behind_a_footer_of_format_22_are_left_alone() -> None:
    assert Footer.unpack(footer(22) + b"later", SCHEMA) == Footer.unpack(footer(22), SCHEMA)


def test_a_footer_of_format_24_asks_for_an_upgrade() -> None:
    with pytest.raises(UnsupportedFeatureError, match="upgrade"):
        Footer.unpack(footer(24), SCHEMA)


def test_every_cut_of_a_footer_is_corruption() -> None:
    stored = footer(22)
    for size in range(len(stored)):
        with pytest.raises(CorruptionError):
            Footer.unpack(stored[:size], SCHEMA)


@pytest.mark.parametrize(
    ("version", "size"),
    [(3, 94), (4, 94), (5, 158), (6, 158), (7, 206), (9, 206), (10, None)],
)
def test_the_size_of_an_old_footer_follows_from_its_schema(version: int, size: int | None) -> None:
    schema = Schema([Dim("x", "int32", (1, 100), 10)], [Attr("a", "int32")], version=version)

    assert footer_size(version, schema) == size


def test_a_footer_is_cut_off_the_end_of_its_file() -> None:
    file = b"sections" + b"footer" + u64(6)

    assert bytes(split_footer(file, 22, None)) == b"footer"
    assert split_footer(file[-10:], 22, None) == 14
    assert split_footer(b"short", 22, None) == 8


def test_slots_of_hidden_fields_come_last() -> None:
    slots = Slots(2, 3, has_timestamps=True, has_delete_metadata=True)

    assert (slots.coords, slots.dim(0), slots.timestamps) == (2, 3, 6)
    assert (slots.delete_timestamps, slots.delete_condition, slots.count) == (7, 8, 9)
    assert Slots(2, 3).count == 6
