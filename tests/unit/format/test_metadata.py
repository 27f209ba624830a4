import numpy as np
import pytest

from terrazzo.errors import CorruptionError, InvalidRequestError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.metadata import Metadata, MetadataValue, put, remove, values


@pytest.mark.parametrize(
    ("entries", "stored"),
    [
        ({"i": MetadataValue.of(5)}, "01000000 69 00 01 01000000 0500000000000000"),
        ({"i": None}, "01000000 69 01"),
        ({"empty": MetadataValue.of("")}, "05000000 656d707479 00 0c 00000000"),
    ],
)
def test_an_entry_is_a_key_and_a_typed_value_or_a_tombstone(
    entries: dict[str, MetadataValue | None], stored: str
) -> None:
    assert Metadata(entries).pack() == bytes.fromhex(stored)
    assert Metadata.unpack(bytes.fromhex(stored)) == Metadata(entries)


def test_entries_are_sorted_by_the_bytes_of_their_keys() -> None:
    unsorted = Metadata({"é": None, "b": None, "Z": None, "\udcff": None})

    assert list(Metadata.unpack(unsorted.pack()).entries) == ["Z", "b", "é", "\udcff"]


@pytest.mark.parametrize(
    ("value", "datatype", "count"),
    [
        (5, Datatype.INT64, 1),
        (True, Datatype.INT64, 1),
        (1.5, Datatype.FLOAT64, 1),
        ("hé", Datatype.STRING_UTF8, 3),
        (b"ab", Datatype.BLOB, 2),
        (b"", Datatype.BLOB, 0),
        ((1, 2, 3), Datatype.INT64, 3),
        ([1.0, 2.0], Datatype.FLOAT64, 2),
        ((), Datatype.INT32, 0),
        (np.int16(3), Datatype.INT16, 1),
        (np.float32(2), Datatype.FLOAT32, 1),
        (np.bytes_(b"abc"), Datatype.CHAR, 3),
        (np.str_("hé"), Datatype.STRING_UTF8, 3),
        (np.datetime64("2020-01-01", "D"), Datatype.DATETIME_DAY, 1),
        (np.bool_(True), Datatype.BOOL, 1),
    ],
)
def test_values_are_typed_as_tiledb_py_types_them(value: object, datatype: Datatype, count: int) -> None:
    stored = MetadataValue.of(value)

    assert (stored.datatype, stored.count) == (datatype, count)
    assert stored.value == (tuple(value) if isinstance(value, list) else value)


@pytest.mark.parametrize("value", [None, {}, (1, 2.0), ("a", "b"), 1 << 64, object()])
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(InvalidRequestError):
        MetadataValue.of(value)


def test_an_array_is_kept_flat_with_its_shape_beside_it() -> None:
    matrix = np.arange(6, dtype="f4").reshape(2, 3)
    entries = put("m", matrix)

    assert entries["m"] is None
    assert entries["__np_flat_m"].datatype is Datatype.FLOAT32
    assert entries["__np_shape_m"].value == (2, 3)
    np.testing.assert_array_equal(values(entries)["m"], matrix)


@pytest.mark.parametrize(
    "array", [np.arange(3), np.array(3.0), np.array([], "i4"), np.array(["2020"], "M8[D]"), np.array([True])]
)
def test_arrays_of_any_shape_come_back(array: np.ndarray) -> None:
    shown = values(put("k", array))["k"]

    np.testing.assert_array_equal(shown, array)
    assert (shown.dtype, shown.shape) == (array.dtype, array.shape)


def test_setting_a_key_clears_what_another_kind_of_value_left() -> None:
    assert put("k", 1).keys() == put("k", np.arange(2)).keys() == remove("k").keys()
    assert values(put("k", np.arange(2)) | put("k", 1)) == {"k": 1}
    assert values(put("k", 1) | remove("k")) == {}


def test_a_shape_that_does_not_fit_is_not_applied() -> None:
    entries = put("m", np.arange(6).reshape(2, 3)) | {"__np_shape_m": MetadataValue.of((4, 4))}

    assert values(entries)["m"].shape == (6,)


def test_helper_keys_cannot_be_set() -> None:
    with pytest.raises(InvalidRequestError, match="reserved"):
        put("__np_flat_x", 1)


def test_the_later_file_has_the_last_word() -> None:
    merged = Metadata(put("a", 1)) | Metadata(put("a", 2)) | Metadata(put("b", 3))

    assert values(merged.entries) == {"a": 2, "b": 3}


@pytest.mark.parametrize(
    "stored", ["01000000", "01000000 69 02", "01000000 69 00 63 00000000", "01000000 69 00 01 ffffffff"]
)
def test_damage_is_found(stored: str) -> None:
    with pytest.raises(CorruptionError):
        Metadata.unpack(bytes.fromhex(stored))
