import numpy as np
import pyarrow as pa
import pytest

from terrazzo.errors import CorruptionError, InvalidRequestError, UnsupportedFeatureError
from terrazzo.format.datatypes import VAR, Datatype
from terrazzo.format.enumeration import Enumeration

FILE = "__00000000000000000000000000000080_0"


def test_numbers_are_stored_end_to_end() -> None:
    stored = (
        bytes.fromhex("00000000 04000000 6e756d73 24000000")
        + FILE.encode()
        + bytes.fromhex("01 01000000 00 1000000000000000 0a00000000000000 1400000000000000")
    )
    nums = Enumeration("nums", [10, 20])

    assert nums.pack(FILE) == stored
    assert Enumeration.unpack(stored) == (nums, FILE)
    assert nums.values.to_pylist() == [10, 20]


def test_text_is_stored_with_offsets() -> None:
    colours = Enumeration("c", ["red", "", "blue"], ordered=True)

    assert colours.pack("").endswith(
        bytes.fromhex("0c ffffffff 01 0700000000000000")
        + b"redblue"
        + bytes.fromhex("1800000000000000 0000000000000000 0300000000000000 0300000000000000")
    )
    assert Enumeration.unpack(colours.pack("f")) == (colours, "f")
    assert colours.values == pa.array(["red", "", "blue"])
    assert len(colours) == 3


@pytest.mark.parametrize(
    ("values", "datatype", "shown"),
    [
        (["a", "é"], Datatype.STRING_UTF8, pa.array(["a", "é"])),
        (np.array(["a", "bc"]), Datatype.STRING_UTF8, pa.array(["a", "bc"])),
        ([b"a", b"bc"], Datatype.STRING_ASCII, pa.array(["a", "bc"])),
        (np.array([1, 2], "u1"), Datatype.UINT8, pa.array([1, 2], pa.uint8())),
        ([1.5], Datatype.FLOAT64, pa.array([1.5])),
        ([True, False], Datatype.BOOL, pa.array([True, False])),
        (
            np.array(["2020-01-01"], "M8[ms]"),
            Datatype.DATETIME_MS,
            pa.array(np.array(["2020-01-01"], "M8[ms]")),
        ),
        (np.array([5], "m8[h]"), Datatype.TIME_HR, pa.array([5])),
        (pa.chunked_array([["a"], ["b"]]), Datatype.STRING_UTF8, pa.array(["a", "b"])),
        (pa.array(["x", "y", "z"]).slice(1), Datatype.STRING_UTF8, pa.array(["y", "z"])),
        (pa.array(["x", "y"]).dictionary_encode(), Datatype.STRING_UTF8, pa.array(["x", "y"])),
        (pa.array([1, 2], pa.int8()), Datatype.INT8, pa.array([1, 2], pa.int8())),
    ],
)
def test_values_come_from_lists_numpy_and_arrow(values: object, datatype: Datatype, shown: pa.Array) -> None:
    enum = Enumeration("e", values)

    assert enum.datatype is datatype
    assert enum.values.equals(shown)
    assert Enumeration.unpack(enum.pack(""))[0].values.equals(shown)


def test_a_datatype_can_be_asked_for() -> None:
    assert Enumeration("e", [1, 2], datatype="int8").data == b"\1\2"
    assert Enumeration("e", ["a"], datatype="blob").values.to_pylist() == [b"a"]
    assert Enumeration("e", [], datatype="utf8").cell_val_num == VAR
    assert len(Enumeration("e", [], datatype="int32")) == 0


@pytest.mark.parametrize(
    ("values", "datatype"),
    [
        (["a", "a"], None),
        ([1, 1], None),
        ([], None),
        (["a", None], None),
        ([1, "a"], None),
        ([300], "int8"),
        (["a"], "int8"),
        ([1], "utf8"),
        ([1.5], "int8"),
        (np.zeros((2, 2)), None),
    ],
)
def test_values_that_make_no_enumeration_are_refused(values: object, datatype: str | None) -> None:
    with pytest.raises(InvalidRequestError):
        Enumeration("e", values, datatype=datatype)


def test_extending_keeps_the_indices() -> None:
    assert Enumeration("e", ["a", "bc"]).extend(["d"]).values.to_pylist() == ["a", "bc", "d"]
    assert Enumeration("e", [1], datatype="uint8").extend([2]).data == b"\1\2"
    with pytest.raises(InvalidRequestError, match="twice"):
        Enumeration("e", ["a"]).extend(["a"])
    with pytest.raises(InvalidRequestError):
        Enumeration("e", ["a"]).extend([1])


def test_cells_of_several_values_are_lists() -> None:
    stored = bytearray(Enumeration("e", [1, 2, 3, 4], datatype="int8").pack(""))
    at = stored.index(bytes.fromhex("05 01000000"))
    stored[at + 1] = 2

    assert Enumeration.unpack(stored)[0].values.to_pylist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("size", range(52))
def test_a_file_cut_short_is_damage(size: int) -> None:
    stored = Enumeration("e", ["a", "b"]).pack("")

    with pytest.raises(CorruptionError):
        Enumeration.unpack(stored[:size])


def test_offsets_must_rise_and_versions_be_known() -> None:
    stored = bytearray(Enumeration("e", ["a", "b"]).pack(""))
    stored[-8] = 9
    with pytest.raises(CorruptionError, match="offsets"):
        Enumeration.unpack(stored)
    with pytest.raises(UnsupportedFeatureError):
        Enumeration.unpack(b"\1" + bytes(stored[1:]))
