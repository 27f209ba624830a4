"""Schemas inferred from data: every one takes the data that it was inferred from."""

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import tiledb

import terrazzo as tz


def round_trip(folder: str, data: Any, dims: Any, **options: Any) -> tuple[tz.Schema, pa.Table]:
    schema = tz.schema_of(data, dims, **options)
    a = tz.create(folder, schema)
    a.write(data)
    with tiledb.open(folder) as other:
        assert other.schema.sparse == schema.sparse
    return schema, a.read(order="row-major")


def test_columns_become_dimensions_and_attributes_of_their_kind(folder: str) -> None:
    data = pa.table(
        {
            "x": pa.array([1, 2], pa.int32()), "s": ["b", "a"], "i8": pa.array([1, 2], pa.int8()),
            "u64": pa.array([0, 2**64 - 1], pa.uint64()), "f32": pa.array([0.5, None], pa.float32()), "f64": [0.5, 1.5],
            "flag": [True, None], "text": ["é", ""], "bytes": [b"\xff", None],
            "fixed": pa.array([b"ab", b"cd"], pa.binary(2)), "day": [date(2024, 1, 1), date(2024, 1, 2)],
            "t": [datetime(2024, 1, 1), None], "ns": pa.array([1, 2], pa.timestamp("ns")),
            "span": [timedelta(1), timedelta(2)], "list": [[1], None], "pair": pa.array([[1, 2], [3, 4]], pa.list_(pa.int16(), 2)),
            "large": pa.array(["a", "b"], pa.large_string()), "kind": pa.array(["a", "b"]).dictionary_encode(),
            "number": pa.array([7, None]).dictionary_encode(),
        }
    )  # fmt: skip
    schema, found = round_trip(folder, data, ["x", "s"])

    assert [(dim.name, dim.datatype.name) for dim in schema.dims] == [("x", "INT32"), ("s", "STRING_ASCII")]
    assert [(a.name, a.datatype.name, a.cell_val_num, a.nullable, a.enum) for a in schema.attrs] == [
        ("i8", "INT8", 1, False, None), ("u64", "UINT64", 1, False, None), ("f32", "FLOAT32", 1, True, None),
        ("f64", "FLOAT64", 1, False, None), ("flag", "BOOL", 1, True, None), ("text", "STRING_UTF8", 2**32 - 1, False, None),
        ("bytes", "BLOB", 2**32 - 1, True, None), ("fixed", "BLOB", 2, False, None), ("day", "DATETIME_DAY", 1, False, None),
        ("t", "DATETIME_US", 1, True, None), ("ns", "DATETIME_NS", 1, False, None), ("span", "TIME_US", 1, False, None),
        ("list", "INT64", 2**32 - 1, True, None), ("pair", "INT16", 2, False, None),
        ("large", "STRING_UTF8", 2**32 - 1, False, None), ("kind", "INT8", 1, False, "kind"),
        ("number", "INT8", 1, True, "number"),
    ]  # fmt: skip
    assert found.to_pydict() == data.to_pydict()


@pytest.mark.parametrize("datatype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_the_domain_holds_the_data_wherever_in_the_type_they_lie(datatype: str, tmp_path: Any) -> None:
    info = np.iinfo(datatype)
    least, most = int(info.min), int(info.max)
    for number, span in enumerate(
        [(0, 1), (least, 0), (least, most - 1), (least + 1, most), (most - 1, most), (most, most)]
    ):
        data = {"x": np.unique(np.array(span, datatype)), "v": np.arange(len(set(span)))}
        schema, found = round_trip(str(tmp_path / str(number)), data, "x")

        assert found.column("x").to_pylist() == sorted(set(span))
        low, high = schema.dims[0].domain
        assert low <= span[0]
        assert span[1] <= high
    with pytest.raises(tz.InvalidRequestError, match=r"column 'x' goes from .* leaves no room in"):
        tz.schema_of({"x": np.array([least, most], datatype), "v": [1, 2]}, "x")


@pytest.mark.parametrize("tile", [1, 7, 100])
def test_a_tile_may_be_given(tile: int, folder: str) -> None:
    schema, _ = round_trip(folder, {"x": [1, 2**63 - 200], "v": [1, 2]}, "x", tile={"x": tile})

    assert schema.dims[0].tile == tile


def test_domains_may_be_given_or_whole_dimensions(uri: str) -> None:
    data = {"x": [1, 2], "t": np.array(["2024-01-01", "2024-01-02"], "M8[ms]"), "v": [1, 2]}
    days = (np.datetime64("2024-01-01"), np.datetime64("2024-12-31"))
    schema = tz.schema_of(
        data, ["x", "t"], domain={"x": (0, 9), "t": days}, tile={"x": 2, "t": timedelta(hours=1)}, capacity=7
    )

    assert schema.dims[0] == tz.Dim("x", "int64", (0, 9), 2)
    assert schema.dims[1] == tz.Dim("t", "datetime_ms", days, 3_600_000)
    assert schema.capacity == 7
    own = tz.Dim("x", "int8", (0, 5))
    assert tz.schema_of(data, [own, "t"]).dims[0] is own
    assert tz.schema_of(data, own).dims == (own,)


def test_floats_and_dense_arrays_span_what_the_data_span(folder: str) -> None:
    assert tz.schema_of({"x": [0.5, -1.5], "v": [1, 2]}, "x").dims[0].domain == (-1.5, 0.5)
    assert tz.schema_of({"x": [0.5], "v": [1]}, "x").dims[0].domain == (0.5, 1.5)
    data = {"x": [3, 4, 3, 4], "y": [-1, -1, 0, 0], "v": [1, 2, 3, 4]}
    schema, found = round_trip(folder, data, ["x", "y"], sparse=False)
    assert [dim.domain for dim in schema.dims] == [(3, 4), (-1, 0)]
    assert found.column("v").to_pylist() == [1, 3, 2, 4]


def test_units_that_arrow_lacks_are_kept(uri: str) -> None:
    data = {"x": [1], "h": np.array(["2024-01-01T05"], "M8[h]"), "m": np.array([3], "m8[m]")}
    a = tz.create(uri, tz.schema_of(data, "x"))
    a.write(data)
    again = tz.schema_of(a.read(), "x")

    assert [attr.datatype.name for attr in again.attrs] == ["DATETIME_HR", "TIME_MIN"]
    b = tz.create(uri + "2", again)
    b.write(a.read())
    assert b.read().equals(a.read())


def test_frames_are_taken_with_their_named_index(folder: str) -> None:
    frame = pd.DataFrame(
        {"v": [1.5, np.nan], "k": pd.Categorical(["a", None])}, index=pd.Index(["r", "s"], name="row")
    )
    schema, found = round_trip(folder, frame, "row")

    assert schema.attr("v").nullable
    assert found.to_pydict() == {"row": ["r", "s"], "v": [1.5, None], "k": ["a", None]}


def test_polars_frames_with_their_own_types(folder: str) -> None:
    frame = pl.DataFrame(
        {
            "x": [2, 1],
            "s": ["a", None],
            "c": ["u", "v"],
            "e": ["lo", "hi"],
            "l": [[1], [2, 3]],
            "d": [date(2024, 1, 1)] * 2,
        },
        schema_overrides={"c": pl.Categorical, "e": pl.Enum(["lo", "hi"]), "x": pl.UInt16},
    )
    _, found = round_trip(folder, frame, "x")

    assert found.to_pydict() == frame.sort("x").to_dict(as_series=False)


def test_an_empty_table_has_a_schema_too(uri: str) -> None:
    empty = pa.schema(
        [("x", pa.int64()), ("v", pa.float64()), ("k", pa.dictionary(pa.int8(), pa.string()))]
    ).empty_table()
    a = tz.create(uri, tz.schema_of(empty, "x"))
    a.write(empty)

    assert a.read().num_rows == 0
    assert a.read().column("k").type == pa.dictionary(pa.int8(), pa.string())


def test_large_enumerations_get_larger_indices() -> None:
    for n, datatype in ((127, "INT8"), (128, "INT16"), (40_000, "INT32")):
        labels = pa.array([f"label {i}" for i in range(n)]).dictionary_encode()
        schema = tz.schema_of(pa.table({"x": range(n), "k": labels}), "x")

        assert schema.attr("k").datatype.name == datatype


@pytest.mark.parametrize(
    ("data", "dims", "options", "told"),
    [
        ({"x": [1], "v": [1]}, ["y"], {}, "dims: the data lack 'y'; they have 'x', 'v'"),
        ({"x": [1], "v": [1]}, "x", {"domain": {"y": (0, 1)}}, "domain: the data lack 'y'"),
        ({"x": [1]}, "x", {}, "every column is a dimension; an array needs at least one attribute"),
        ([], "x", {}, "there are no data to take a schema from"),
        ({"x": [True], "v": [1]}, "x", {}, "column 'x' of bool cannot be a dimension"),
        ({"x": [b"a"], "v": [1]}, "x", {}, "column 'x' of binary cannot be a dimension"),
        ({"x": [], "v": []}, "x", {}, "column 'x' of null has no counterpart in an array; cast it first"),
        (pa.table({"x": pa.array([], pa.float64()), "v": pa.array([], pa.int8())}), "x", {}, "column 'x' is empty; give its domain"),
        ({"x": [float("nan")], "v": [1]}, "x", {}, "column 'x' holds NaN, which is no coordinate"),
        ({"x": [1], "v": [Decimal("1.5")]}, "x", {}, r"column 'v' of decimal128\(2, 1\) has no counterpart"),
        ({"x": [1], "v": [{"a": 1}]}, "x", {}, "column 'v' of struct<a: int64> has no counterpart"),
        ({"x": [1], "v": [["a"]]}, "x", {}, "column 'v': lists hold numbers, not string"),
        ({"x": [1], "v": [None]}, "x", {}, "column 'v' of null has no counterpart"),
        ([{"x": [1], "v": [1]}, {"x": ["a"], "v": [1]}], "x", {}, "the batches do not go together"),
        (5, "x", {}, "int cannot be written"),
    ],
)  # fmt: skip
def test_data_without_a_schema_are_refused(data: Any, dims: Any, options: Any, told: str) -> None:
    with pytest.raises(tz.InvalidRequestError, match=told):
        tz.schema_of(data, dims, **options)
