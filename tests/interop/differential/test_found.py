"""What random histories found, each as the smallest case that shows it."""

import numpy as np
import pyarrow as pa

import terrazzo as tz


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
