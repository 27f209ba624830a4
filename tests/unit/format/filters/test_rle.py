import numpy as np
import pytest

from terrazzo.errors import CorruptionError, InvalidRequestError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.base import Element, Parts
from terrazzo.format.filters.rle import Rle
from terrazzo.format.wire import Cursor

WORDS = [b"HG", b"HG", b"HG", b"A", b"", b"", b"HG"]


def of_cells(cell_size: int) -> Element:
    return Element(Datatype.UINT8, cell_size)


def joined_cells(cells: list[bytes]) -> tuple[bytes, np.ndarray]:
    return b"".join(cells), np.cumsum([0, *map(len, cells)][:-1], dtype=np.uint64)


def test_options_are_the_compressor_number_and_the_level() -> None:
    assert Rle().pack_options() == bytes.fromhex("04 ffffffff")
    assert Rle.unpack_options(Cursor(bytes.fromhex("04 07000000")), 22) == Rle(7)


def test_cells_are_stored_as_value_and_big_endian_run_length() -> None:
    values = np.array([7, 7, 7, 2, 2, 9], "<i2").tobytes()
    stored = Parts(
        (bytes.fromhex("00000000 01000000 0c000000 0c000000"),),
        (bytes.fromhex("0700 0003 0200 0002 0900 0001"),),
    )

    assert Rle().encode(Parts((), (values,)), of_cells(2)) == stored
    assert b"".join(Rle().decode(stored, of_cells(2), 12).data) == values


def test_runs_longer_than_65535_are_split_full_ones_first() -> None:
    values = bytes([5]) * 131_071 + bytes([6]) * 65_535 + bytes([7])

    encoded = Rle().encode(Parts((), (values,)), of_cells(1))

    assert bytes(encoded.data[0]) == bytes.fromhex("05ffff 05ffff 050001 06ffff 070001")
    assert b"".join(Rle().decode(encoded, of_cells(1), len(values)).data) == values


@pytest.mark.parametrize("cell_size", [1, 2, 3, 4, 5, 6, 8, 12, 24, 100])
@pytest.mark.parametrize("longest", [1, 3, 400])
def test_cells_of_any_size_come_back(cell_size: int, longest: int) -> None:
    rng = np.random.default_rng(cell_size)
    cells = rng.integers(0, 3, (50, cell_size), dtype=np.uint8)
    values = np.repeat(cells, rng.integers(1, longest + 1, 50), axis=0).tobytes()
    parts = Parts((), (values,))

    encoded = Rle().encode(parts, of_cells(cell_size))

    assert b"".join(Rle().decode(encoded, of_cells(cell_size), len(values)).data) == values
    assert encoded.size <= Rle().bound(len(values), of_cells(cell_size))


def test_a_part_that_is_no_multiple_of_a_cell_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="put it first in the pipeline"):
        Rle().encode(Parts((b"abc",), (b"abcd",)), of_cells(4))


@pytest.mark.parametrize(
    ("claimed", "data"), [(4, "05 0003"), (3, "05 0003 06"), (5, "05 0002 05 0002"), (1 << 31, "05 ffff")]
)
def test_runs_that_do_not_add_up_are_corruption(claimed: int, data: str) -> None:
    stored = bytes.fromhex(data)
    block = np.array([0, 1, claimed, len(stored)], "<u4").tobytes()

    with pytest.raises(CorruptionError):
        Rle().decode(Parts((block,), (stored,)), of_cells(1), 1 << 32)


def test_strings_are_stored_as_run_length_string_length_and_string() -> None:
    stored = Parts(
        (bytes.fromhex("00000000 01000000 09000000 0d000000 38000000 01 01"),),
        (bytes.fromhex("03 02 4847 01 01 41 02 00 01 02 4847"),),
    )
    data, offsets = joined_cells(WORDS)

    assert Rle().encode_strings(data, offsets) == stored
    content, found = Rle().decode_strings(stored, 7, 9)
    assert content.tobytes() == data
    assert found.tolist() == [0, 2, 4, 6, 7, 7, 7]


@pytest.mark.parametrize(
    "cells",
    [
        [],
        [b""],
        [b"", b""],
        [b"x" * 300],
        [b"short", b"x" * 300],  # the longest last: where libtiledb itself goes wrong
        [b"y" * 70_000, b"short"],
        [b"same"] * 300,
        [b"a", b"b"] * 40_000 + [b"a"] * 70_000,
    ],
    ids=lambda cells: str(len(cells)),
)
def test_widths_hold_the_longest_run_and_the_longest_string(cells: list[bytes]) -> None:
    data, offsets = joined_cells(cells)

    content, found = Rle().decode_strings(Rle().encode_strings(data, offsets), len(cells), len(data))

    assert content.tobytes() == data
    assert found.tolist() == offsets.tolist()


@pytest.mark.parametrize(
    ("metadata", "data"),
    [
        ("00000000 01000000 09000000 0d000000 30000000 01 01", "03 02 4847 01 01 41 02 00 01 02 4847"),
        ("00000000 01000000 09000000 0c000000 38000000 01 01", "03 02 4847 01 01 41 02 00 01 02 4847"),
        ("00000000 01000000 08000000 0d000000 38000000 01 01", "03 02 4847 01 01 41 02 00 01 02 4847"),
        ("00000000 01000000 09000000 0d000000 38000000 01 03", "03 02 4847 01 01 41 02 00 01 02 4847"),
        ("00000000 01000000 09000000 0d000000 38000000 00 01", "03 02 4847 01 01 41 02 00 01 02 4847"),
        ("01000000 01000000 09000000 0d000000 38000000 01 01", "03 02 4847 01 01 41 02 00 01 02 4847"),
        ("00000000 01000000 09000000 0d000000 38000000 01 01", "04 02 4847 01 01 41 02 00 01 02 4847"),
        ("00000000 01000000 09000000 0d000000 38000000 01 01", "03 02 4847 01 01 41 02 00 01 03 4847"),
        ("00000000 01000000 09000000 0d000000 38000000 08 01", "ffffffffffffffff 00 03 02 4847"),
        ("00000000 01000000 09000000 0d000000 38000000 01 01 00", "03 02 4847 01 01 41 02 00 01 02 4847"),
        ("00000000 01000000", "03 02 4847 01 01 41 02 00 01 02 4847"),
    ],
)
def test_string_runs_that_do_not_add_up_are_corruption(metadata: str, data: str) -> None:
    with pytest.raises(CorruptionError):
        Rle().decode_strings(Parts((bytes.fromhex(metadata),), (bytes.fromhex(data),)), 7, 9)
