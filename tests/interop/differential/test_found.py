"""What random histories found, each as the smallest case that shows it."""

import numpy as np
import pyarrow as pa
import pytest
from differential.history import Delete, Query, Test, Window
from differential.libtiledb import Libtiledb

import terrazzo as tz
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
