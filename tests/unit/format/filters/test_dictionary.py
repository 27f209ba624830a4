import numpy as np
import pytest

from terrazzo.errors import CorruptionError, InvalidRequestError, UnsupportedFeatureError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.base import Element, Parts
from terrazzo.format.filters.dictionary import Dictionary
from terrazzo.format.wire import Cursor

WORDS = [b"HG", b"HG", b"HG", b"A", b"", b"", b"HG"]
BLOCK = "00000000 01000000 09000000 07000000 38000000 01 01 06000000"


def joined_cells(cells: list[bytes]) -> tuple[bytes, np.ndarray]:
    return b"".join(cells), np.cumsum([0, *map(len, cells)][:-1], dtype=np.uint64)


def test_the_compressor_number_is_not_that_of_the_filter() -> None:
    assert Dictionary().pack_options() == bytes.fromhex("07 ffffffff")
    assert Dictionary.unpack_options(Cursor(bytes.fromhex("07 ffffffff")), 22) == Dictionary()


def test_the_dictionary_is_metadata_and_the_data_are_ids_in_the_order_of_first_use() -> None:
    stored = Parts(
        (bytes.fromhex(BLOCK + "02 4847 01 41 00"),),
        (bytes.fromhex("00 00 00 01 02 02 00"),),
    )
    data, offsets = joined_cells(WORDS)

    assert Dictionary().encode_strings(data, offsets) == stored
    content, found = Dictionary().decode_strings(stored, 7, 9)
    assert content.tobytes() == data
    assert found.tolist() == [0, 2, 4, 6, 7, 7, 7]


def test_the_number_of_cells_decides_on_the_width_of_ids() -> None:
    data, offsets = joined_cells([b"a", b"b", b"c"] * 100)

    encoded = Dictionary().encode_strings(data, offsets)

    assert bytes(encoded.metadata[0])[20] == 2
    assert len(encoded.data[0]) == 600


@pytest.mark.parametrize(
    "cells",
    [[], [b""], [b"x" * 300, b""], [b"a"] * 255, [b"a"] * 256, [b"%d" % i for i in range(70_000)]],
    ids=lambda cells: str(len(cells)),
)
def test_strings_come_back(cells: list[bytes]) -> None:
    data, offsets = joined_cells(cells)

    encoded = Dictionary().encode_strings(data, offsets)
    content, found = Dictionary().decode_strings(encoded, len(cells), len(data))

    assert content.tobytes() == data
    assert found.tolist() == offsets.tolist()
    assert encoded.size <= Dictionary().strings_bound(len(data), len(cells))


@pytest.mark.parametrize(
    ("metadata", "data"),
    [
        (BLOCK + "02 4847 01 41 00", "00 00 00 01 02 03 00"),
        (BLOCK + "02 4847 01 41 00", "00 00 00 01 02 00 00"),
        (BLOCK + "02 4847 01 41 00", "00 00 00 01 02 02"),
        (BLOCK + "02 4847 02 41 00", "00 00 00 01 02 02 00"),
        (BLOCK + "02 4847 01 41", "00 00 00 01 02 02 00"),
        (BLOCK + "02 4847 01 41 00 00", "00 00 00 01 02 02 00"),
        (
            BLOCK.replace("01 01", "02 01") + "02 4847 01 41 00",
            "00 00 00 01 02 02 00",
        ),
        (
            BLOCK.replace("01 01", "01 05") + "02 4847 01 41 00",
            "00 00 00 01 02 02 00",
        ),
        (
            BLOCK.replace("09000000", "ffffffff") + "02 4847 01 41 00",
            "00 00 00 01 02 02 00",
        ),
        ("00000000 01000000 00000000 07000000 38000000 01 01 00000000", "00 00 00 00 00 00 00"),
        ("00000000 01000000", ""),
    ],
)
def test_what_does_not_add_up_is_corruption(metadata: str, data: str) -> None:
    with pytest.raises(CorruptionError):
        Dictionary().decode_strings(Parts((bytes.fromhex(metadata),), (bytes.fromhex(data),)), 7, 9)


def test_anything_but_var_text_at_the_front_is_refused() -> None:
    element = Element(Datatype.INT32, 4)

    with pytest.raises(InvalidRequestError, match="variable-length ASCII or UTF-8"):
        Dictionary().encode(Parts((), (b"abcd",)), element)
    with pytest.raises(UnsupportedFeatureError):
        Dictionary().decode(Parts((), (b"abcd",)), element, 4)
