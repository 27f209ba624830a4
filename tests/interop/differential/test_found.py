"""What random histories found, each as the smallest case that shows it."""

import numpy as np
import pyarrow as pa
import pytest

import terrazzo as tz
from differential import terrazzo_actor
from differential.history import Delete, Maintain, Member, Query, Test, Window
from differential.libtiledb import Libtiledb
from terrazzo.format.condition import Op


def numbers(table: pa.Table, name: str) -> list:
    return table.column(name).to_pylist()


def test_a_dense_dimension_reaches_to_the_end_of_64_bits(tmp_path):
    low, high = (1 << 64) - 20, (1 << 64) - 11
    schema = tz.Schema([tz.Dim("x", "uint64", (low, high), 5)], [tz.Attr("a", "int32")], sparse=False)
    array = tz.create(str(tmp_path / "a"), schema)
    array.write({"a": np.arange(10, dtype=np.int32)})

    assert numbers(array.read(), "x") == list(range(low, high + 1))
    assert numbers(array.read(where=f"x > {high - 2}"), "a") == [8, 9]


def test_an_added_attribute_is_read_alone_out_of_a_fragment_that_lacks_it(tmp_path):
    schema = tz.Schema([tz.Dim("x", "int32", (0, 9), 5)], [tz.Attr("a", "int32")], allows_duplicates=True)
    array = tz.create(str(tmp_path / "a"), schema)
    array.write({"x": [1, 2, 2], "a": [10, 20, 30]})
    array.evolve(add=[tz.Attr("b", "int32", fill=7)])

    assert numbers(array.read(columns=["b"]), "b") == [7, 7, 7]
    assert array.count(where="b = 7") == 3


def test_deletes_by_characters_of_a_fixed_length_mean_the_same_to_libtiledb(tmp_path):
    uri = str(tmp_path / "a")
    schema = tz.Schema(
        [tz.Dim("x", "int32", (0, 9), 5)], [tz.Attr("a", "char", values_per_cell=2, nullable=True)]
    )
    array = tz.create(uri, schema)
    array.write(
        {"x": range(6), "a": pa.array([b"aa", b"ab", b"ac", b"ba", None, b"\xe9a"], pa.binary(2))}, at=10
    )

    array.delete("a = 'ab'", at=20)
    assert cells(array) == theirs(uri) == [b"aa", b"ac", b"ba", None, b"\xe9a"]
    array.delete("a != 'ac' and x > 2", at=30)
    assert cells(array) == theirs(uri) == [b"aa", b"ac", None]
    with pytest.raises(tz.InvalidRequestError, match="first character"):
        array.delete("a < 'b'")
    Libtiledb().delete(uri, Delete(40, schema, Test(Op.EQ, "a", b"aZ")))
    assert cells(array.refresh()) == theirs(uri)


def cells(array: tz.Array) -> list:
    return numbers(array.read(order="row-major"), "a")


def theirs(uri: str) -> list:
    found = Libtiledb().look(uri, tz.open(uri).schema, Window(), [Query(("x", "a"), layout="row-major")])
    return found["cells"][0]["a"]


def test_infinities_are_written_without_a_warning(tmp_path):
    schema = tz.Schema(
        [tz.Dim("x", "int32", (0, 9), 5)], [tz.Attr("a", "float64"), tz.Attr("b", "float32")], capacity=3
    )
    array = tz.create(str(tmp_path / "a"), schema)
    endless = [float("inf"), float("-inf"), 1.0, 1e308]
    array.write({"x": range(4), "a": endless, "b": np.array([3e38, float("inf"), float("-inf"), 3e38], "f4")})

    assert numbers(array.read(), "a") == endless


def test_a_set_holds_both_zeros_and_a_stored_one_only_its_bytes(tmp_path):
    uri = str(tmp_path / "a")
    schema = tz.Schema([tz.Dim("x", "int32", (0, 9), 5)], [tz.Attr("a", "float64")])
    array = tz.create(uri, schema)
    zeros = [np.array(zero, "<f8").tobytes() for zero in (0.0, -0.0)]
    array.write({"x": range(4), "a": [0.0, -0.0, 1.0, 2.0]}, at=10)

    assert (
        numbers(array.read(where="a in (0, 1)"), "a")
        == numbers(array.read(where="a in (-0.0, 1)"), "a")
        == [0, 0, 1]
    )
    Libtiledb().delete(
        uri, Delete(20, schema, Member(Op.IN, "a", (zeros[0], np.array(2.0, "<f8").tobytes())))
    )
    assert str(cells(array.refresh())) == "[-0.0, 1.0]"
    assert theirs(uri) == [zeros[1], np.array(1.0, "<f8").tobytes()]
    array.delete("a in (0, 7)", at=30)
    assert cells(array) == [1.0]
    assert theirs(uri) == [np.array(1.0, "<f8").tobytes()]


def test_nulls_of_a_tile_that_was_written_in_part_are_no_minimum_to_libtiledb(tmp_path):
    uri = str(tmp_path / "a")
    attrs = [tz.Attr("a", "uint32", nullable=True), tz.Attr("b", "float64", nullable=True)]
    array = tz.create(uri, tz.Schema([tz.Dim("x", "int32", (0, 5), 2)], attrs, sparse=False))
    array.write({"a": [None, 6, 7], "b": [None, -2.5, -3.5]}, region={"x": (1, 3)})
    wanted = [("min", "a"), ("max", "b")]

    found = Libtiledb().look(uri, array.schema, Window(), [], [(Query(("x", "a", "b")), wanted)])

    assert found["aggregates"][0] == [np.array(6, "<u4").tobytes(), np.array(-2.5, "<f8").tobytes()]
    assert array.check(deep=True).ok


@pytest.mark.parametrize("ours", [False, True], ids=["read", "consolidated again"])
def test_a_cell_that_libtiledb_took_for_deleted_by_an_update_is_still_to_be_deleted(tmp_path, ours):
    """The update does not match the null, but libtiledb, which takes it for a delete, does not keep it either; and then
    it does not look at the delete that comes later."""
    uri = str(tmp_path / "a")
    attrs = [tz.Attr("a", "utf8", nullable=True), tz.Attr("b", "int32")]
    array = tz.create(uri, tz.Schema([tz.Dim("x", "int32", (0, 9), 5)], attrs))
    array.write({"x": [1, 2], "a": [None, "z"], "b": [5, 6]}, at=10)
    array.write({"x": [3], "a": ["c"], "b": [8]}, at=15)
    array.update({"b": 7}, "a >= 'y'", at=20)
    array.delete("b <= 5", at=30)
    Libtiledb().maintain(uri, Maintain("fragments", vacuum=True))
    array = tz.open(uri)
    if ours:
        array.write({"x": [4], "a": ["d"], "b": [9]}, at=40)
        array.consolidate()

    assert [f for f in array.fragments if f.footer.slots.has_delete_metadata]
    for at, shown in [(19, [5, 6, 8]), (25, [5, 7, 8]), (30, [7, 8])]:
        assert numbers(tz.open(uri, at=at).read(order="row-major"), "b") == shown, at


@pytest.mark.parametrize(
    "datatype", ["bool", "int8", "datetime64[D]", "datetime64[us]", "timedelta64[s]", "float32"]
)
def test_a_null_stands_for_several_values_of_any_type(tmp_path, datatype):
    attr = tz.Attr("a", datatype, values_per_cell=2, nullable=True)
    array = tz.create(str(tmp_path / "a"), tz.Schema([tz.Dim("x", "int32", (0, 9), 5)], [attr]))
    single = tz.open(str(tmp_path / "a")).read().schema.field("a").type.value_type
    array.write(
        {
            "x": [1, 2],
            "a": pa.array([[1, 0] if datatype != "bool" else [True, False], None], pa.list_(single, 2)),
        }
    )

    assert numbers(array.read(), "a")[1] is None
    assert len(numbers(array.read(), "a")[0]) == 2


@pytest.mark.parametrize("unit", ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"])
def test_an_update_takes_dates_of_every_unit(tmp_path, unit):
    attrs = [tz.Attr("a", f"datetime64[{unit}]"), tz.Attr("b", f"datetime64[{unit}]", values_per_cell=2)]
    attrs.append(tz.Attr("c", f"datetime64[{unit}]", var=True))
    array = tz.create(str(tmp_path / "a"), tz.Schema([tz.Dim("x", "int32", (0, 9), 5)], attrs))
    first, second = np.datetime64(3, unit), np.datetime64(-3, unit)
    zeros = {"x": [bytes(4)], "a": [bytes(8)], "b": [bytes(16)], "c": [bytes(8)]}
    array.write(terrazzo_actor.as_table(zeros, array.schema))
    array.update({"a": first, "b": [first, second], "c": [second, second, first]})

    (row,) = look(array, Query(("a", "b", "c")))
    assert row == tuple(np.array(counts, "<i8").tobytes() for counts in ([3], [3, -3], [-3, -3, 3]))


def look(array: tz.Array, query: Query) -> list:
    found = terrazzo_actor.look(array, array.schema, query)
    return list(zip(*found.values(), strict=True))
