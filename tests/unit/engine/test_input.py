"""What can be written: every kind of container and of column, and what is refused."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import tiledb

import terrazzo as tz


def sparse(uri: str, *attrs: tz.Attr, **options: Any) -> tz.Array:
    return tz.create(uri, tz.Schema([tz.Dim("x", "int64", (-1000, 1000), 100)], attrs, **options))


def written(uri: str, attr: tz.Attr, values: Any, **options: Any) -> list[Any]:
    """The values as they are read again."""
    a = sparse(uri, attr, **options)
    a.write({"x": np.arange(len(values)), attr.name: values})
    return a.read([attr.name], order="row-major").column(0).to_pylist()


ROWS = {"x": [3, 1, 2], "v": [0.5, 1.5, 2.5], "s": ["c", "a", None]}
TABLE = pa.table({"x": pa.array(ROWS["x"], pa.int64()), "v": ROWS["v"], "s": ROWS["s"]})


def frame(**options: Any) -> pd.DataFrame:
    return pd.DataFrame(ROWS, **options)


def batches() -> Iterator[pa.RecordBatch]:
    yield from TABLE.to_batches(max_chunksize=1)


class Stream:
    """What DuckDB and others hand out: nothing but the Arrow interface."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return TABLE.__arrow_c_stream__(requested_schema)


CONTAINERS = {
    "table": lambda: TABLE,
    "sliced table": lambda: pa.concat_tables([TABLE, TABLE, TABLE]).slice(3, 3),
    "chunked table": lambda: pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1, 2)]),
    "batch": lambda: TABLE.to_batches()[0],
    "sliced batch": lambda: pa.concat_tables([TABLE, TABLE]).combine_chunks().to_batches()[0].slice(3),
    "reader": lambda: pa.RecordBatchReader.from_batches(TABLE.schema, batches()),
    "generator of batches": batches,
    "list of tables": lambda: [TABLE.slice(0, 2), TABLE.slice(2)],
    "columns in another order": lambda: TABLE.select(["s", "v", "x"]),
    "dict of lists": lambda: ROWS,
    "dict of numpy": lambda: {
        "x": np.array([3, 1, 2]), "v": np.array([0.5, 1.5, 2.5]), "s": np.array(["c", "a", None], object)
    },
    "dict of Arrow": lambda: {name: TABLE.column(name) for name in TABLE.column_names},
    "dict of pandas series": lambda: dict(frame().items()),
    "dict of polars series": lambda: {name: pl.Series(values) for name, values in ROWS.items()},
    "dict of a range, a tuple and a generator": lambda: {
        "x": range(1, 4), "v": (1.5, 2.5, 0.5), "s": (each for each in ("a", None, "c"))
    },
    "list of dicts of columns": lambda: [{k: v[:1] for k, v in ROWS.items()}, {k: v[1:] for k, v in ROWS.items()}],
    "pandas": frame,
    "pandas with its own index": lambda: frame(index=[7, 8, 9]),
    "pandas with a named index": lambda: frame().set_index("x"),
    "pandas with an index of two levels": lambda: frame().set_index(["x", "s"]),
    "pandas nullable types": lambda: frame().convert_dtypes(),
    "pandas on Arrow": lambda: frame().convert_dtypes(dtype_backend="pyarrow"),
    "polars": lambda: pl.DataFrame(ROWS),
    "polars in chunks": lambda: pl.concat([pl.DataFrame(ROWS)[:1], pl.DataFrame(ROWS)[1:]], rechunk=False),
    "Arrow stream": Stream,
}  # fmt: skip


@pytest.mark.parametrize("kind", CONTAINERS)
def test_every_container_of_columns_can_be_written(kind: str, uri: str) -> None:
    a = sparse(uri, tz.Attr("v", "float64"), tz.Attr("s", "utf8", nullable=True))
    a.write(CONTAINERS[kind]())

    assert a.read(order="row-major").to_pydict() == {
        "x": [1, 2, 3],
        "v": [1.5, 2.5, 0.5],
        "s": ["a", None, "c"],
    }
    assert len(a.fragments) == 1


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (None, "NoneType cannot be written"),
        ("x", "str cannot be written"),
        (np.arange(3), "ndarray cannot be written"),
        (pd.Series([1]), "Series cannot be written"),
        ({"x": [1], "v": [1.0]}, "the data lack 's'; they have 'x', 'v'"),
        ({"x": [1], "v": [1.0], "s": ["a"], "more": [2]}, "the array has no 'more'; it has 'x', 'v', 's'"),
        ({"x": [1, 2], "v": [1.0], "s": ["a"]}, "the columns differ in length: 'x' 2, 'v' 1, 's' 1"),
        ({"x": 1, "v": 1.0, "s": "a"}, "column 'x' is 1; a list or an array is expected"),
        ({"x": [1], "v": [1.0], "s": "a"}, "column 's' is 'a'; a list or an array is expected"),
        ({"x": [1], "v": [object()], "s": ["a"]}, "column 'v' cannot be read"),
        ({"x": np.zeros((1, 1, 1)), "v": [1.0], "s": ["a"]}, "column 'x' cannot be read"),
        (pd.DataFrame({"x": [1, 2], "v": [1.0, 2.0], "s": ["a", 5]}), "the frame cannot be read: .*column s"),
        (pd.DataFrame([[1, 1.0, "a", 3]], columns=["x", "v", "s", "x"]), "the frame cannot be read"),
        (pa.table([[1], [1.0], ["a"], [3]], ["x", "v", "s", "x"]), "the data have a column twice: x, v, s, x"),
        ([5], "int cannot be written"),
    ],
)  # fmt: skip
def test_data_that_are_no_columns_of_the_array_are_refused_in_one_line(
    data: Any, told: str, uri: str
) -> None:
    a = sparse(uri, tz.Attr("v", "float64"), tz.Attr("s", "utf8", nullable=True))

    with pytest.raises(tz.InvalidRequestError, match=told) as error:
        a.write(data)
    assert "\n" not in str(error.value)
    assert not a.fragments


NOTHING = {
    "table": TABLE.slice(0, 0),
    "table without chunks": TABLE.schema.empty_table(),
    "reader": pa.RecordBatchReader.from_batches(TABLE.schema, iter(())),
    "no batches": iter(()),
    "dict": {"x": [], "v": [], "s": []},
    "dict of numpy": {"x": np.empty(0, np.int64), "v": np.empty(0), "s": np.empty(0, object)},
    "pandas": frame().iloc[:0],
    "polars": pl.DataFrame(ROWS).clear(),
}


@pytest.mark.parametrize("kind", NOTHING)
def test_no_rows_leave_nothing_behind(kind: str, uri: str) -> None:
    a = sparse(uri, tz.Attr("v", "float64"), tz.Attr("s", "utf8", nullable=True))
    a.write(NOTHING[kind])

    assert not tz.open(uri).fragments
    assert a.read().num_rows == 0
    assert a.read().schema == pa.schema(
        [
            pa.field("x", pa.int64(), nullable=False),
            pa.field("v", pa.float64(), nullable=False),
            ("s", pa.string()),
        ]
    )


# -- columns -------------------------------------------------------------------------------------------

FITTING = {
    "int32 into int64": ("int64", pa.array([1, -2], pa.int32()), [1, -2]),
    "int64 into int8": ("int8", pa.array([127, -128], pa.int64()), [127, -128]),
    "uint64 beyond int64": ("uint64", pa.array([2**64 - 1, 2**63], pa.uint64()), [2**64 - 1, 2**63]),
    "uint64 into int64": ("int64", pa.array([2**63 - 1], pa.uint64()), [2**63 - 1]),
    "int64 into float64": ("float64", pa.array([2**53, -3], pa.int64()), [2.0**53, -3.0]),
    "whole floats into int16": ("int16", pa.array([5.0, -7.0]), [5, -7]),
    "decimals into float64": ("float64", [Decimal("1.25"), Decimal(-3)], [1.25, -3.0]),
    "float64 into float32": ("float32", [0.5, np.inf, -np.inf], [0.5, np.inf, -np.inf]),
    "float16": ("float32", np.array([0.5, 1.5], np.float16), [0.5, 1.5]),
    "big-endian numbers": ("int32", np.array([1, -2], ">i4"), [1, -2]),
    "numbers that are not side by side": ("int32", np.arange(6, dtype=np.int32)[::2], [0, 2, 4]),
    "numpy booleans": ("bool", np.array([True, False]), [True, False]),
    "booleans into int8": ("int8", [True, False], [1, 0]),
    "0 and 1 into bool": ("bool", [1, 0], [True, False]),
    "text": ("utf8", ["", "é", "日本"], ["", "é", "日本"]),
    "large text": ("utf8", pa.array(["a", ""], pa.large_string()), ["a", ""]),
    "text views": ("utf8", pa.array(["a", "far too long to be kept inside a view"], pa.string_view()),
                   ["a", "far too long to be kept inside a view"]),
    "numpy text": ("utf8", np.array(["ab", "c"]), ["ab", "c"]),
    "bytes that are text": ("utf8", [b"ab", "é".encode()], ["ab", "é"]),
    "text into ascii": ("ascii", ["a", ""], ["a", ""]),
    "bytes": ("blob", [b"\xff\0", b""], [b"\xff\0", b""]),
    "bytes of fixed length": ("blob", pa.array([b"ab", b"cd"], pa.binary(2)), [b"ab", b"cd"]),
    "text into bytes": ("blob", ["é"], ["é".encode()]),
    "a dictionary of numbers": ("int32", pa.array([7, 7, 9]).dictionary_encode(), [7, 7, 9]),
    "a dictionary of text": ("utf8", pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
    "runs": ("int32", pa.RunEndEncodedArray.from_arrays([2, 3], [5, 6]), [5, 5, 6]),
    "days": ("datetime_day", [date(1969, 12, 31), date(2024, 2, 29)], [date(1969, 12, 31), date(2024, 2, 29)]),
    "midnights into days": ("datetime_day", [datetime(2024, 2, 29)], [date(2024, 2, 29)]),
    "counts of days": ("datetime_day", [-1, 1], [date(1969, 12, 31), date(1970, 1, 2)]),
    "datetimes": ("datetime_us", [datetime(2024, 1, 1, 12, 0, 0, 5)], [datetime(2024, 1, 1, 12, 0, 0, 5)]),
    "datetimes with a zone": ("datetime_ms", pa.array([datetime(2024, 1, 1, 12)], pa.timestamp("ns", "Asia/Tokyo")),
                              [datetime(2024, 1, 1, 12)]),
    "ISO text into datetimes": ("datetime_sec", ["2024-01-01T12:00:00", "2024-01-02"],
                                [datetime(2024, 1, 1, 12), datetime(2024, 1, 2)]),
    "nanoseconds into seconds": ("datetime_sec", np.array(["2024-01-01"], "M8[ns]"), [datetime(2024, 1, 1)]),
    "tens of milliseconds": ("datetime_ms", np.array([3], "M8[10ms]"), [datetime(1970, 1, 1, 0, 0, 0, 30_000)]),
    "hours": ("datetime_hr", np.array(["2024-01-01T05"], "M8[h]"), [473_357]),
    "hours into milliseconds": ("datetime_ms", np.array(["2024-01-01T05"], "M8[h]"), [datetime(2024, 1, 1, 5)]),
    "seconds into hours": ("datetime_hr", np.array(["1970-01-02T05:00:00"], "M8[s]"), [29]),
    "days into years": ("datetime_year", np.array(["2024-01-01"], "M8[D]"), [54]),
    "seconds into attoseconds": ("datetime_as", np.array([-9, 9], "M8[s]"), [-9 * 10**18, 9 * 10**18]),
    "attoseconds into seconds": ("datetime_sec", np.array([-9 * 10**18], "M8[as]"), [datetime(1969, 12, 31, 23, 59, 51)]),
    "picoseconds": ("datetime_ps", np.array([1, -1], "M8[ps]"), [1, -1]),
    "durations": ("time_ms", [timedelta(seconds=5), timedelta(0)], [timedelta(seconds=5), timedelta(0)]),
    "hours of duration": ("time_min", np.array([2], "m8[h]"), [120]),
    "minutes into milliseconds": ("time_ms", np.array([2], "m8[m]"), [timedelta(minutes=2)]),
}  # fmt: skip


@pytest.mark.parametrize("case", FITTING)
def test_values_that_fit_are_taken_as_they_are(case: str, uri: str) -> None:
    datatype, values, expected = FITTING[case]

    assert written(uri, tz.Attr("v", datatype), values) == expected


MISFITS = {
    "int64 beyond int32": (
        "int32",
        [2**31],
        r"int64 does not fit INT32: Integer value 2147483648 not in range",
    ),
    "negative into unsigned": ("uint8", [-1], "int64 does not fit UINT8: Integer value -1 not in range"),
    "uint64 beyond int64": ("int64", pa.array([2**63], pa.uint64()), "uint64 does not fit INT64"),
    "int64 beyond the whole floats": ("float64", [2**60 + 1], "int64 does not fit FLOAT64"),
    "fractions into whole numbers": (
        "int32",
        [1.5],
        "double does not fit INT32: Float value 1.500000 was truncated",
    ),
    "NaN into whole numbers": ("int32", [float("nan")], "double does not fit INT32"),
    "float64 beyond float32": (
        "float32",
        [1e300],
        "double does not fit FLOAT32: 1e[+]300 is out of its range",
    ),
    "text into numbers": ("int32", ["5"], "string does not fit INT32"),
    "text into bool": ("bool", ["true"], "string does not fit BOOL"),
    "text that is no date": ("datetime_ms", ["yesterday"], "string does not fit DATETIME_MS"),
    "text into hours": ("datetime_hr", ["2024-01-01"], "string does not fit DATETIME_HR"),
    "numbers into text": ("utf8", [5], "int64 does not fit STRING_UTF8"),
    "numbers into bytes": ("blob", [5], "int64 does not fit BLOB"),
    "2 into bool": ("bool", [2], "int64 does not fit BOOL: 2 is out of its range"),
    "bool into text": ("utf8", [True], "bool does not fit STRING_UTF8"),
    "dates into numbers": ("int64", [datetime(2024, 1, 1)], r"timestamp\[us\] does not fit INT64"),
    "durations into dates": ("datetime_ms", [timedelta(1)], r"duration\[us\] does not fit DATETIME_MS"),
    "dates into durations": ("time_ms", [datetime(2024, 1, 1)], r"timestamp\[us\] does not fit TIME_MS"),
    "noon into days": (
        "datetime_day",
        [datetime(2024, 1, 1, 12)],
        r"timestamp\[us\] does not fit DATETIME_DAY",
    ),
    "microseconds into milliseconds": (
        "datetime_ms",
        [datetime(2024, 1, 1, 0, 0, 0, 1)],
        "does not fit DATETIME_MS",
    ),
    "minutes into hours": (
        "datetime_hr",
        np.array(["2024-01-01T05:30"], "M8[m]"),
        "is no whole number of DATETIME_HR",
    ),
    "days into attoseconds": (
        "datetime_as",
        np.array(["2024-01-01"], "M8[D]"),
        "no whole number of DATETIME_AS",
    ),
    "hours into whole numbers": ("int64", np.array([5], "M8[h]"), "DATETIME_HR does not fit INT64"),
    "hours into durations": ("time_ms", np.array([5], "M8[h]"), "DATETIME_HR does not fit TIME_MS"),
    "a list into a number": ("int32", [[1]], "list<item: int64> does not fit INT32"),
    "a struct": ("int32", [{"a": 1}], "struct<a: int64> does not fit INT32"),
    "bytes that are no text": ("utf8", [b"\xff"], "binary does not fit STRING_UTF8: not all of it is UTF-8"),
    "other characters into ascii": ("ascii", ["é"], "is ASCII, but holds other characters"),
    "a null": (
        "int32",
        [1, None],
        "attribute 'v' is not nullable, but row 1 is null; fill the nulls, or declare",
    ),
    "a null in a dictionary": (
        "utf8",
        pa.DictionaryArray.from_arrays([0, 1], ["a", None]),
        "but row 1 is null",
    ),
    "text into UTF-16": ("string_utf16", ["a"], "string does not fit STRING_UTF16: give its encoded bytes"),
    "an odd number of bytes into UTF-16": (
        "string_utf16",
        [b"abc"],
        "a cell of STRING_UTF16 is a multiple of 2 bytes",
    ),
}


@pytest.mark.parametrize("case", MISFITS)
def test_values_that_do_not_fit_are_refused_with_the_name_of_the_column(case: str, uri: str) -> None:
    datatype, values, told = MISFITS[case]
    a = sparse(uri, tz.Attr("v", datatype))

    with pytest.raises(tz.InvalidRequestError, match=told) as error:
        a.write({"x": np.arange(len(values)), "v": values})
    assert "'v'" in str(error.value)
    assert "\n" not in str(error.value)
    assert not tz.open(uri).fragments


def test_cells_of_several_values_come_from_matrices_and_lists(uri: str) -> None:
    attr = tz.Attr("p", "float32", values_per_cell=2)
    expected = [[1.0, 2.0], [3.0, 4.0]]

    assert written(uri + "1", attr, np.array(expected)) == expected
    assert written(uri + "2", attr, np.array(expected).T.copy().T) == expected
    assert written(uri + "3", attr, expected) == expected
    assert written(uri + "4", attr, pa.array(expected, pa.list_(pa.float64(), 2)).slice(0)) == expected
    assert (
        written(uri + "5", attr, pa.array([[0, 0], *expected], pa.list_(pa.float32(), 2)).slice(1))
        == expected
    )
    dates = np.array([["2024-01-01", "2024-01-02"]], "M8[D]")
    assert written(uri + "6", tz.Attr("d", "datetime_day", values_per_cell=2), dates) == [
        [date(2024, 1, 1), date(2024, 1, 2)]
    ]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([[1.0, 2.0, 3.0]], "does not fit 2 FLOAT32"),
        ([[1.0]], "does not fit 2 FLOAT32"),
        ([1.0], "double does not fit 2 FLOAT32"),
        ([[1.0, None]], "column 'p' has nulls inside its lists"),
        ([["a", "b"]], "does not fit 2 FLOAT32"),
        (np.zeros((1, 3)), "does not fit 2 FLOAT32"),
    ],
)
def test_cells_of_several_values_take_just_as_many(values: Any, told: str, uri: str) -> None:
    a = sparse(uri, tz.Attr("p", "float32", values_per_cell=2))

    with pytest.raises(tz.InvalidRequestError, match=told):
        a.write({"x": [1], "p": values})


def test_lists_may_be_empty_sliced_and_null(uri: str) -> None:
    lists = pa.array([[9], [1, 2], [], None, [3]], pa.list_(pa.int64())).slice(1)
    attr = tz.Attr("l", "int16", var=True, nullable=True)

    assert written(uri + "1", attr, lists) == [[1, 2], [], None, [3]]
    assert written(uri + "2", attr, lists.cast(pa.large_list(pa.int64()))) == [[1, 2], [], None, [3]]
    assert written(uri + "3", attr, [None, None]) == [None, None]
    with pytest.raises(tz.InvalidRequestError, match="column 'l' has nulls inside its lists"):
        written(uri + "4", attr, [[1, None]])
    with pytest.raises(
        tz.InvalidRequestError, match=r"list<item: double> does not fit a list of INT16: Float value 0.500000"
    ):
        written(uri + "5", attr, [[0.5]])


@pytest.mark.parametrize("count", [{"var": True}, {"values_per_cell": 2}])
def test_lists_hold_numbers_beyond_63_bits(count: dict[str, Any], uri: str) -> None:
    attr = tz.Attr("v", "uint64", nullable=True, **count)
    assert written(uri, attr, [[2**64 - 1, 0], None, [1, 2**63]]) == [[2**64 - 1, 0], None, [1, 2**63]]
    array = tz.open(uri)
    array.update({"v": [3, 2**64 - 1]}, "x = 0")
    assert array.read(where="x = 0")["v"].to_pylist() == [[3, 2**64 - 1]]


def test_text_of_fixed_length_is_filled_up_and_never_cut(uri: str) -> None:
    attr = tz.Attr("c", "char", values_per_cell=3)

    assert written(uri + "1", attr, np.array([b"abc", b"d", b""], "S3")) == [b"abc", b"d\0\0", b"\0\0\0"]
    assert written(uri + "2", attr, ["abc", "xyz"]) == [b"abc", b"xyz"]
    with pytest.raises(tz.InvalidRequestError, match=r"column 'c': .* a cell of 4 bytes, where it takes 3"):
        written(uri + "3", attr, ["abcd"])
    with pytest.raises(tz.InvalidRequestError, match=r"column 'b': .* a cell of 1 bytes, where it takes 2"):
        written(uri + "4", tz.Attr("b", "blob", values_per_cell=2), [b"a"])
    nullable = tz.Attr("b", "blob", values_per_cell=2, nullable=True)
    assert written(uri + "5", nullable, [b"ab", None]) == [b"ab", None]


def test_masked_arrays_are_nulls_where_they_are_masked(uri: str) -> None:
    one = np.ma.MaskedArray([1, 2, 3], [False, True, False])
    pairs = np.ma.MaskedArray([[1, 2], [3, 4]], [[False, False], [True, True]])

    assert written(uri + "1", tz.Attr("v", "int8", nullable=True), one) == [1, None, 3]
    assert written(uri + "2", tz.Attr("v", "int8", values_per_cell=2, nullable=True), pairs) == [[1, 2], None]
    with pytest.raises(tz.InvalidRequestError, match="row 1 is null"):
        written(uri + "3", tz.Attr("v", "int8"), one)


def test_nan_of_pandas_is_a_null_where_nulls_are_and_itself_where_they_are_not(uri: str) -> None:
    a = sparse(uri, tz.Attr("plain", "float64"), tz.Attr("nullable", "float64", nullable=True))
    rows = pd.DataFrame({"x": [1, 2], "plain": [np.nan, 1.0], "nullable": [np.nan, 2.0]})
    a.write(rows)
    a.write(dict(rows.assign(x=[3, 4]).items()))
    found = a.read(order="row-major").to_pydict()

    assert [v != v for v in found["plain"]] == [True, False, True, False]  # noqa: PLR0124 - NaN
    assert found["nullable"] == [None, 2.0, None, 2.0]


def test_a_missing_value_of_a_pandas_extension_type_is_a_null_for_all(uri: str) -> None:
    a = sparse(uri, tz.Attr("v", "float64"))

    with pytest.raises(tz.InvalidRequestError, match="attribute 'v' is not nullable, but row 1 is null"):
        a.write(pd.DataFrame({"x": [1, 2], "v": pd.array([1.0, None], "Float64")}))


def test_numpy_nan_stays_nan_even_where_nulls_are(uri: str) -> None:
    (value,) = written(uri, tz.Attr("v", "float64", nullable=True), np.array([np.nan]))

    assert np.isnan(value)


def test_pandas_columns_of_every_kind_come_back_as_they_were(uri: str) -> None:
    given = pd.DataFrame(
        {
            "x": pd.array([1, 2, 3], "Int64"),
            "small": pd.array([1, None, 3], "Int8"),
            "flag": pd.array([True, None, False], "boolean"),
            "text": pd.array(["a", None, "c"], "string"),
            "object": ["a", None, "b"],
            "bytes": [b"a", b"", None],
            "category": pd.Categorical(["u", None, "v"]),
            "ordered": pd.Categorical(["lo", "hi", "lo"], ["lo", "hi"], ordered=True),
            "moment": pd.to_datetime(
                ["2024-01-01 00:00:00", None, "2024-01-03 12:00:00.000000001"], format="ISO8601"
            ),
            "zoned": pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-03"]).tz_localize("Europe/Berlin"),
            "span": pd.to_timedelta(["1s", None, "3s"]),
        }
    )
    a = tz.create(uri, tz.schema_of(given, dims=["x"]))
    a.write(given)
    found = a.read(order="row-major")

    assert found.column("small").to_pylist() == [1, None, 3]
    assert found.column("flag").to_pylist() == [True, None, False]
    assert found.column("text").to_pylist() == ["a", None, "c"]
    assert found.column("object").to_pylist() == ["a", None, "b"]
    assert found.column("bytes").to_pylist() == [b"a", b"", None]
    assert found.column("category").to_pylist() == ["u", None, "v"]
    assert found.column("ordered").to_pylist() == ["lo", "hi", "lo"]
    assert found.column("ordered").type.ordered
    back = found.to_pandas()
    assert back["moment"].equals(given["moment"].astype(back["moment"].dtype))
    assert back["zoned"].equals(given["zoned"].dt.tz_convert("UTC").dt.tz_localize(None))
    assert back["span"].equals(given["span"].astype(back["span"].dtype))
    assert back["ordered"].cat.ordered


def test_enumerations_take_labels_dictionaries_and_categories(uri: str) -> None:
    a = sparse(
        uri, tz.Attr("k", "int8", enum="kinds", nullable=True), enums={"kinds": ["a", "b", "c"]},
    )  # fmt: skip
    a.write({"x": [1, 2], "k": ["c", None]})
    a.write({"x": [3, 4], "k": pa.DictionaryArray.from_arrays([1, 0], ["c", "b"])})
    a.write({"x": [5, 6], "k": pd.Categorical(["a", None], ["b", "a"])})
    a.write({"x": [7, 8, 9], "k": pa.DictionaryArray.from_arrays([0, 1, None], ["a", None])})
    a.write({"x": [10], "k": [None]})
    chunks = [pa.array(["a", "b"]).dictionary_encode(), pa.array(["c", "a"]).dictionary_encode()]
    a.write({"x": [11, 12, 13, 14], "k": pa.chunked_array(chunks)})

    assert a.read(order="row-major").column("k").to_pylist() == [
        "c", None, "b", "c", "a", None, "a", None, None, None, "a", "b", "c", "a",
    ]  # fmt: skip
    with pytest.raises(
        tz.InvalidRequestError, match="column 'k': 'd' is no label of its enumeration; add it with evolve"
    ):
        a.write({"x": [1], "k": ["d"]})
    with pytest.raises(tz.InvalidRequestError, match="column 'k': 'd' is no label"):
        a.write({"x": [1], "k": pa.DictionaryArray.from_arrays([0], ["d"])})
    with pytest.raises(tz.InvalidRequestError, match="column 'k': int64 does not fit labels of string"):
        a.write({"x": [1], "k": [0]})


def test_enumerations_of_numbers_dates_and_bits(uri: str) -> None:
    a = sparse(
        uri, tz.Attr("n", "uint8", enum="numbers"), tz.Attr("b", "bool", enum="sides"), tz.Attr("d", "int32", enum="days"),
        enums={"numbers": [10, 20], "sides": ["left", "right"],
               "days": np.array(["2024-01-01", "2024-01-02"], "M8[ms]")},
    )  # fmt: skip
    a.write(
        {
            "x": [1, 2],
            "n": [20, 10],
            "b": ["right", "left"],
            "d": [datetime(2024, 1, 2), datetime(2024, 1, 1)],
        }
    )
    found = a.read(order="row-major").to_pydict()

    assert found["n"] == [20, 10]
    assert found["b"] == ["right", "left"]
    assert found["d"] == [datetime(2024, 1, 2), datetime(2024, 1, 1)]


def test_more_labels_than_the_attribute_can_count_are_refused(uri: str) -> None:
    a = sparse(uri, tz.Attr("k", "int8", enum="e"), enums={"e": [f"l{i}" for i in range(127)]})

    with pytest.raises(
        tz.InvalidRequestError, match="'k' is INT8 and counts up to 128 labels; 'e' would have 129"
    ):
        a.evolve(extend_enum={"e": ["one", "more"]})
    with pytest.raises(
        tz.InvalidRequestError, match="'k' is INT8 and counts up to 128 labels; 'e' would have 200"
    ):
        sparse(uri + "2", tz.Attr("k", "int8", enum="e"), enums={"e": [f"l{i}" for i in range(200)]})


# -- coordinates ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dim", "coordinates"),
    [
        (tz.Dim("d", "int64", (-(2**63), 2**63 - 2), 1), [-(2**63), -1, 0, 2**63 - 2]),
        (tz.Dim("d", "int64", (-(2**63) + 1, 2**63 - 1), 1), [-(2**63) + 1, 2**63 - 1]),
        (tz.Dim("d", "uint64", (0, 2**64 - 2), 1), [0, 2**63 - 1, 2**63, 2**64 - 2]),
        (tz.Dim("d", "uint64", (2**63, 2**63 + 100), 7), [2**63, 2**63 + 99]),
        (tz.Dim("d", "int8", (-128, 126), 16), [-128, 0, 126]),
        (tz.Dim("d", "int16", (-50, -10), 9), [-50, -33, -10]),
        (tz.Dim("d", "float64", (-8e307, 8e307)), [-8e307, -1.5, 0.0, 1e-320, 8e307]),
        (tz.Dim("d", "float32", (-10, 10), 3), [-10.0, -0.5, 0.25, 10.0]),
        (tz.Dim("d", "ascii"), ["", "a", "a\0", "a\0b", "b"]),
    ],
)
def test_coordinates_at_the_edges_are_found_again(dim: tz.Dim, coordinates: list[Any], uri: str) -> None:
    a = tz.create(uri, tz.Schema([dim], [tz.Attr("v", "int64")], capacity=2))
    a.write({"d": coordinates[::-1], "v": np.arange(len(coordinates))[::-1]})

    assert a.read(order="row-major").column("d").to_pylist() == coordinates
    assert a.read(order="global").column("v").to_pylist() == list(range(len(coordinates)))
    for value, coordinate in enumerate(coordinates):
        assert a.read(["v"], region={"d": [coordinate]}).column("v").to_pylist() == [value]
        assert a.count(region={"d": (coordinate, None)}) == len(coordinates) - value
        assert a.count(region={"d": (None, coordinate)}) == value + 1
    assert a.nonempty_domain() == {"d": (coordinates[0], coordinates[-1])}


def test_dates_are_coordinates_of_every_unit(uri: str) -> None:
    for unit in ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"):
        moments = np.array([-3, 0, 5], f"M8[{unit}]")
        dim = tz.Dim("t", moments.dtype, (moments[0], moments[2]), 2)
        a = tz.create(f"{uri}/{unit}", tz.Schema([dim], [tz.Attr("v", "int64")]))
        a.write({"t": moments, "v": [1, 2, 3]})

        assert a.read(["v"], region={"t": (moments[1], moments[2])}).column("v").to_pylist() == [2, 3], unit
        assert a.read(["v"], region={"t": [moments[0]]}).column("v").to_pylist() == [1]
        assert a.nonempty_domain() == {"t": (moments[0], moments[2])}


def test_minus_zero_is_zero(uri: str) -> None:
    a = tz.create(uri, tz.Schema([tz.Dim("d", "float64", (-1, 1))], [tz.Attr("v", "int8")]))

    with pytest.raises(tz.InvalidRequestError, match=r"two cells at d="):
        a.write({"d": [0.0, -0.0], "v": [1, 2]})
    a.write({"d": [-0.0], "v": [1]})
    a.write({"d": [0.0], "v": [2]})
    assert a.read(["v"]).column("v").to_pylist() == [2]


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ({"x": [1, 1001], "v": [1, 2]}, "row 1: x = 1001 lies outside the domain -1000 to 1000"),
        ({"x": [-1001], "v": [1]}, "row 0: x = -1001 lies outside the domain -1000 to 1000"),
        ({"x": [2**63], "v": [1]}, "column 'x': uint64 does not fit INT64"),
        ({"x": [1.5], "v": [1]}, "column 'x': double does not fit INT64"),
        ({"x": [1, None], "v": [1, 2]}, "dimension 'x' is not nullable, but row 1 is null; fill the nulls$"),
        (
            {"x": [5, 7, 5], "v": [1, 2, 3]},
            "two cells at x=5; drop one of them, or create .* allows_duplicates=True",
        ),
    ],
)
def test_coordinates_that_are_none_are_refused(rows: dict[str, Any], told: str, uri: str) -> None:
    a = sparse(uri, tz.Attr("v", "int64"))

    with pytest.raises(tz.InvalidRequestError, match=told):
        a.write(rows)
    assert not tz.open(uri).fragments


def test_floats_beyond_the_domain_and_nan_are_no_coordinates(uri: str) -> None:
    a = tz.create(uri, tz.Schema([tz.Dim("d", "float64", (0, 1))], [tz.Attr("v", "int8")]))

    for value, told in (
        (float("nan"), "row 1: NaN is no coordinate of 'd'"),
        (float("inf"), "row 1: d = inf lies outside"),
    ):
        with pytest.raises(tz.InvalidRequestError, match=told):
            a.write({"d": [0.5, value], "v": [1, 2]})


def test_the_current_domain_bounds_what_is_written(uri: str) -> None:
    schema = tz.Schema(
        [tz.Dim("x", "int64", (0, 999), 10), tz.Dim("s", "ascii")], [tz.Attr("v", "int8")],
        current_domain={"x": (0, 9), "s": ("b", "d")},
    )  # fmt: skip
    a = tz.create(uri, schema)
    a.write({"x": [9], "s": ["d"], "v": [1]})

    with pytest.raises(tz.InvalidRequestError, match="row 0: x = 10 lies outside the domain 0 to 9"):
        a.write({"x": [10], "s": ["c"], "v": [1]})
    with pytest.raises(
        tz.InvalidRequestError, match="row 0: s = b'a' lies outside the current domain b'b' to b'd'"
    ):
        a.write({"x": [1], "s": ["a"], "v": [1]})
    a.evolve(expand_domain={"x": (0, 99), "s": ("a", "d")})
    a.write({"x": [10], "s": ["a"], "v": [2]})
    assert a.read(order="row-major").column("v").to_pylist() == [1, 2]


# -- several fragments ---------------------------------------------------------------------------------


def ten_batches() -> pa.RecordBatchReader:
    def make() -> Iterator[pa.RecordBatch]:
        for i in range(10):
            yield pa.record_batch({"x": np.arange(i, 1000, 10), "v": np.arange(i, 1000, 10) * 0.5})

    schema = pa.schema([("x", pa.int64()), ("v", pa.float64())])
    return pa.RecordBatchReader.from_batches(schema, make())


def test_a_long_input_becomes_several_fragments_under_one_commit(folder: str) -> None:
    a = sparse(folder, tz.Attr("v", "float64"))
    a.write(ten_batches(), fragment_size=3000)

    assert len(a.fragments) == 5
    assert len({fragment.name.start_ms for fragment in a.fragments}) == 1
    assert [path.suffix for path in Path(folder, "__commits").iterdir()] == [".con"]
    assert a.count() == 1000
    assert a.read(order="row-major").column("v").to_pylist() == [i / 2 for i in range(1000)]
    with tiledb.open(folder) as other:
        assert (np.sort(other[:]["x"]) == np.arange(1000)).all()


def test_an_input_that_goes_wrong_late_leaves_nothing_behind(folder: str) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        yield {"x": [1, 2], "v": [1.0, 2.0]}
        yield {"x": [3, 4], "v": [1.0, 2.0]}
        yield {"x": [5, 5000], "v": [1.0, 2.0]}

    a = sparse(folder, tz.Attr("v", "float64"))
    before = sorted(Path(folder).rglob("*"))
    with pytest.raises(tz.InvalidRequestError, match="x = 5000 lies outside"):
        a.write(rows(), fragment_size=1)

    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    assert files == [path for path in before if path.is_file()]
    assert not a.fragments
    assert not tz.open(folder).fragments


@pytest.mark.parametrize("size", [0, -1, "much", None.__class__, True, "5 apples"])
def test_a_fragment_size_that_is_none_is_refused(size: Any, uri: str) -> None:
    a = sparse(uri, tz.Attr("v", "float64"))

    with pytest.raises(tz.InvalidRequestError, match=r"fragment_size=.* is no size"):
        a.write({"x": [1], "v": [1.0]}, fragment_size=size)


def test_statistics_of_floats_take_infinities_and_overflow_in_their_stride(uri: str) -> None:
    values = [np.inf, -np.inf, np.nan, 1e308, 1e308, -1e308, 0.0]

    found = written(uri, tz.Attr("v", "float64"), values)
    np.testing.assert_array_equal(found, values)
    assert tz.open(uri).count("v > 1e307") == 3


def test_no_time_at_all_is_a_value_of_times_and_reads_as_null(folder: str) -> None:
    a = sparse(
        folder, tz.Attr("t", "datetime_ms"), tz.Attr("d", "datetime_day"), tz.Attr("s", "time_sec"),
        tz.Attr("n", "datetime_ns", nullable=True),
    )  # fmt: skip
    nat = np.array(["2024-01-01", "NaT"], "M8[ms]")
    spans = np.array([1, "NaT"], "m8[s]")
    a.write({"x": [1, 2], "t": nat, "d": nat.astype("M8[D]"), "s": spans, "n": nat.astype("M8[ns]")})
    a.write(
        pd.DataFrame({"x": [3], "t": [pd.NaT], "d": [pd.NaT], "s": pd.to_timedelta([pd.NaT]), "n": [pd.NaT]})
    )
    a.write(a.read(order="row-major").set_column(0, "x", pa.array([4, 5, 6])))
    found = a.read(order="row-major")

    for name in "tdsn":
        assert [value is None for value in found.column(name).to_pylist()] == [False, True, True] * 2, name
    with tiledb.open(folder) as other:
        assert np.isnat(other[:]["t"]).tolist() == [False, True, True] * 2
    with pytest.raises(tz.InvalidRequestError, match="dimension 'x' is not nullable, but row 0 is null"):
        a.write({"x": [None], "t": [None], "d": [None], "s": [None], "n": [None]})


def test_aware_datetimes_are_stored_as_utc(uri: str) -> None:
    moment = datetime(2024, 1, 1, 12, tzinfo=UTC)

    assert written(uri, tz.Attr("t", "datetime_ms"), [moment]) == [datetime(2024, 1, 1, 12)]
