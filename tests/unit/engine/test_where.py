"""Conditions: SQL text to rows, and what is said of text that is no condition."""

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

import terrazzo as tz
from terrazzo.engine.literals import compare_with, count_of
from terrazzo.engine.predicate import FALSE, TRUE, Some, Test
from terrazzo.engine.where import parse_where
from terrazzo.format.condition import Op

SCHEMA = tz.Schema(
    dims=[tz.Dim("x", "int64", (0, 99), 10), tz.Dim("sample", "ascii")],
    attrs=[
        tz.Attr("v", "float64"),
        tz.Attr("w", "float32", nullable=True),
        tz.Attr("n", "int32", nullable=True),
        tz.Attr("u", "uint64"),
        tz.Attr("b", "int8"),
        tz.Attr("flag", "bool", nullable=True),
        tz.Attr("tag", "utf8", nullable=True),
        tz.Attr("raw", "blob"),
        tz.Attr("code", "char", values_per_cell=2),
        tz.Attr("c", "char", var=False),
        tz.Attr("kind", "int8", enum="kinds", nullable=True),
        tz.Attr("size", "uint8", enum="sizes"),
        tz.Attr("year", "int32", enum="years"),
        tz.Attr("day", "datetime_day"),
        tz.Attr("t", "datetime_ms", nullable=True),
        tz.Attr("ns", "datetime_ns"),
        tz.Attr("yr", "datetime_year"),
        tz.Attr("ps", "datetime_ps"),
        tz.Attr("span", "time_sec"),
        tz.Attr("list", "int32", var=True, nullable=True),
        tz.Attr("pair", "int32", values_per_cell=2),
        tz.Attr("a b", "int32"),
        tz.Attr("u16", "string_utf16"),
    ],
    enums={
        "kinds": ["a", "b", "c"],
        "sizes": tz.Enumeration("sizes", ["s", "m", "l"], ordered=True),
        "years": [1999, 2024],
    },
    capacity=2,
)
ROWS = {
    "x": [0, 1, 2, 3, 4, 5],
    "sample": ["", "a", "a", "b", "b\\'", "c"],
    "v": [-1.5, 0.0, 0.5, 2.5, float("nan"), float("inf")],
    "w": pa.array([0.1, None, 1.5, float("nan"), -2.0, 3e38], pa.float32()),
    "n": [-5, None, 0, 7, 7, 2**31 - 1],
    "u": pa.array([0, 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1], pa.uint64()),
    "b": [-128, -1, 0, 1, 2, 127],
    "flag": [True, False, None, True, False, None],
    "tag": ["", "a", None, "é", "it's", "a\\b"],
    "raw": [b"", b"\0", b"\0\xff", b"a", b"ab", b"\xff"],
    "code": ["ab", "b", "", "zz", "a", "ba"],
    "c": ["a", "b", "c", "d", "e", "f"],
    "kind": ["a", "b", None, "c", "a", "b"],
    "size": ["s", "m", "l", "s", "m", "l"],
    "year": [1999, 2024, 1999, 2024, 1999, 2024],
    "day": np.array(["1969-12-31", "1970-01-01", "2024-02-29", "2024-03-01", "2024-03-02", "9999-12-31"], "M8[D]"),
    "t": pa.array([datetime(2024, 1, 1), None, datetime(2024, 1, 1, 12), datetime(2024, 1, 2),
                   datetime(1969, 12, 31, 23, 59, 59, 999_000), datetime(2100, 1, 1)], pa.timestamp("ms")),
    "ns": np.array(["2024-01-01T00:00:00.000000001", "2024-01-01", "1970-01-01", "2000-01-01", "2262-01-01",
                    "1678-01-01"], "M8[ns]"),
    "yr": np.array(["1969", "1970", "2023", "2024", "2025", "3000"], "M8[Y]"),
    "ps": np.array([-1, 0, 1, 2, 3, 2**62], "M8[ps]"),
    "span": np.array([-1, 0, 59, 60, 61, 86_400], "m8[s]"),
    "list": [[1], None, [], [1, 2], [3], None],
    "pair": np.arange(12).reshape(6, 2),
    "a b": [0, 1, 2, 3, 4, 5],
    "u16": [b"", b"a\0", b"b\0", b"c\0", b"d\0", b"e\0"],
}  # fmt: skip


@pytest.fixture(scope="module")
def array() -> tz.Array:
    a = tz.create(f"memory://{uuid4().hex}/where", SCHEMA)
    a.write(ROWS)
    return a


@pytest.fixture(scope="module")
def overlapping() -> tz.Array:
    """The same cells, in fragments that may hide one another, so that nothing is left out by its statistics."""
    a = tz.create(f"memory://{uuid4().hex}/overlapping", SCHEMA)
    table = pa.table(ROWS | {"pair": pa.FixedSizeListArray.from_arrays(pa.array(range(12)), 2),
                             "yr": ROWS["yr"].astype(np.int64), "ps": ROWS["ps"].astype(np.int64)})  # fmt: skip
    a.write(table.take(pa.array([0, 2, 4])))
    a.write(table.take(pa.array([1, 3, 5])))
    return a


CONDITIONS: dict[str, list[int]] = {
    # numbers
    "x = 3": [3],
    "3 = x": [3],
    "x != 3": [0, 1, 2, 4, 5],
    "x <> 3": [0, 1, 2, 4, 5],
    "x == 3": [3],
    "x > 3": [4, 5],
    "3 < x": [4, 5],
    "3 >= x": [0, 1, 2, 3],
    "x >= 3 AND x < 5": [3, 4],
    "x < 1 OR x > 4": [0, 5],
    "NOT (x < 1 OR x > 4)": [1, 2, 3, 4],
    "NOT NOT x = 3": [3],
    "x BETWEEN 2 AND 4": [2, 3, 4],
    "x NOT BETWEEN 2 AND 4": [0, 1, 5],
    "NOT x BETWEEN 2 AND 4": [0, 1, 5],
    "x BETWEEN 4 AND 2": [],
    "x IN (1, 3, 3, 99)": [1, 3],
    "x IN (3)": [3],
    "x NOT IN (1, 3)": [0, 2, 4, 5],
    "NOT x IN (1, 3)": [0, 2, 4, 5],
    "x = 2 AND x = 3": [],
    "((x) = ((3)))": [3],
    "x = -(-3)": [3],
    "x = 3L": [3],
    "x = 3.0": [3],
    "x = CAST(3 AS INT)": [3],
    "x = CAST(3.9 AS INT)": [3],
    "x = CAST('3' AS BIGINT)": [3],
    # fractions against whole numbers
    "x = 2.5": [],
    "x != 2.5": [0, 1, 2, 3, 4, 5],
    "x < 2.5": [0, 1, 2],
    "x <= 2.5": [0, 1, 2],
    "x > 2.5": [3, 4, 5],
    "x >= 2.5": [3, 4, 5],
    "b > -0.5": [2, 3, 4, 5],
    "b < -0.5": [0, 1],
    "n != 0.5": [0, 2, 3, 4, 5],
    "x IN (1, 2.5, 3)": [1, 3],
    "x NOT IN (2.5)": [0, 1, 2, 3, 4, 5],
    # numbers that the type cannot hold
    "b = 128": [],
    "b < 128": [0, 1, 2, 3, 4, 5],
    "b <= 1e30": [0, 1, 2, 3, 4, 5],
    "b > 1e30": [],
    "b >= -129": [0, 1, 2, 3, 4, 5],
    "b != 1000": [0, 1, 2, 3, 4, 5],
    "n < 99999999999": [0, 2, 3, 4, 5],
    "n != 99999999999": [0, 2, 3, 4, 5],
    "NOT n > 99999999999": [0, 2, 3, 4, 5],
    "u = 18446744073709551615": [5],
    "u > 9223372036854775807": [3, 4, 5],
    "u >= 9223372036854775807": [2, 3, 4, 5],
    "u < -1": [],
    "u > -1": [0, 1, 2, 3, 4, 5],
    "u IN (9223372036854775808, 18446744073709551616, -1)": [3],
    f"x < 1{'0' * 400}": [0, 1, 2, 3, 4, 5],
    "x < 1e999999": [0, 1, 2, 3, 4, 5],
    "x > 1e-999999": [1, 2, 3, 4, 5],
    "x > -1e-999999": [0, 1, 2, 3, 4, 5],
    # floats, NaN and infinities
    "v > 0": [2, 3, 5],
    "v >= 0.0": [1, 2, 3, 5],
    "v != 0": [0, 2, 3, 5],
    "NOT v > 0": [0, 1],
    "v = 0.5": [2],
    "v = -1.5": [0],
    "v < 1e400": [0, 1, 2, 3],
    "v > 1e400": [5],
    "v = 1e400": [],
    "v != 1e400": [0, 1, 2, 3, 5],
    "v > -1e400": [0, 1, 2, 3, 5],
    "v < -1e400": [],
    f"v < 1{'0' * 400}": [0, 1, 2, 3],
    "v = CAST('Infinity' AS DOUBLE)": [5],
    "v < CAST('Infinity' AS DOUBLE)": [0, 1, 2, 3],
    "v > -CAST('Infinity' AS DOUBLE)": [0, 1, 2, 3, 5],
    "v = CAST('NaN' AS DOUBLE)": [],
    "v != CAST('NaN' AS DOUBLE)": [],
    "x = CAST('NaN' AS DOUBLE)": [],
    "x < CAST('Infinity' AS DOUBLE)": [0, 1, 2, 3, 4, 5],
    "v IN (0.5, 2.5, 7)": [2, 3],
    "v NOT IN (0.5, 2.5)": [0, 1, 5],
    "w = 0.1": [0],
    "w > 0": [0, 2, 5],
    "w < 1e39": [0, 2, 4, 5],
    "w > 1e39": [],
    "w = 1e39": [],
    "w IS NULL": [1],
    "w IS NOT NULL": [0, 2, 3, 4, 5],
    # nulls
    "n IS NULL": [1],
    "n IS NOT NULL": [0, 2, 3, 4, 5],
    "NOT n IS NULL": [0, 2, 3, 4, 5],
    "NOT n IS NOT NULL": [1],
    "n = 7": [3, 4],
    "NOT n = 7": [0, 2, 5],
    "n != 7": [0, 2, 5],
    "n IS NULL OR n = 7": [1, 3, 4],
    "n IS NOT NULL AND n < 0": [0],
    "n NOT IN (7, 0)": [0, 5],
    "x IS NULL": [],
    "x IS NOT NULL": [0, 1, 2, 3, 4, 5],
    "v IS NULL": [],
    "list IS NULL": [1, 5],
    "list IS NOT NULL AND x > 2": [3, 4],
    # booleans
    "flag": [0, 3],
    "NOT flag": [1, 4],
    "!flag": [1, 4],
    "flag = TRUE": [0, 3],
    "flag = false": [1, 4],
    "flag != TRUE": [1, 4],
    "flag = 1": [0, 3],
    "flag IS TRUE": [0, 3],
    "flag IS NOT TRUE": [1, 2, 4, 5],
    "flag IS FALSE": [1, 4],
    "flag IS NULL": [2, 5],
    "flag IN (TRUE, FALSE)": [0, 1, 3, 4],
    "flag AND x > 0": [3],
    "TRUE": [0, 1, 2, 3, 4, 5],
    "FALSE": [],
    "NOT TRUE": [],
    "TRUE AND x = 1": [1],
    "FALSE OR x = 1": [1],
    "1 = 1 AND x = 1": [1],
    "NOT 1 = 2 AND x = 1": [1],
    "'a' < 'b' AND x = 1": [1],
    "1 > 2": [],
    # text
    "sample = ''": [0],
    "sample = 'a'": [1, 2],
    "sample > 'a'": [3, 4, 5],
    "sample >= 'a' AND sample < 'c'": [1, 2, 3, 4],
    "sample IN ('a', 'zzz', '')": [0, 1, 2],
    'sample = "b"': [3],
    "sample = 'b\\\\\\''": [4],
    "tag = ''": [0],
    "tag = 'é'": [3],
    "tag = 'it\\'s'": [4],
    "tag = 'a\\\\b'": [5],
    "tag != 'a'": [0, 3, 4, 5],
    "tag < 'b'": [0, 1, 5],
    "tag IN ('a', 'é')": [1, 3],
    "tag NOT IN ('a', 'é')": [0, 4, 5],
    "tag IS NULL": [2],
    "tag BETWEEN 'a' AND 'b'": [1, 5],
    "tag = CAST('a' AS STRING)": [1],
    # bytes
    "raw = X''": [0],
    "raw = X'00'": [1],
    "raw = X'00ff'": [2],
    "raw = 'a'": [3],
    "raw > X'00'": [2, 3, 4, 5],
    "raw IN (X'00FF', X'61')": [2, 3],
    # text of fixed length
    "code = 'ab'": [0],
    "code = 'b'": [1],
    "code = ''": [2],
    "code = 'abc'": [],
    "code != 'abc'": [0, 1, 2, 3, 4, 5],
    "code < 'abc'": [0, 2, 4],
    "code > 'abc'": [1, 3, 5],
    "code >= 'b'": [1, 3, 5],
    "c = 'c'": [2],
    "c > 'c'": [3, 4, 5],
    "c = 'cc'": [],
    # labels
    "kind = 'a'": [0, 4],
    "kind != 'a'": [1, 3, 5],
    "kind = 'zzz'": [],
    "kind != 'zzz'": [0, 1, 3, 4, 5],
    "kind IN ('a', 'c', 'zzz')": [0, 3, 4],
    "kind NOT IN ('a', 'c')": [1, 5],
    "kind IS NULL": [2],
    "size < 'l'": [0, 1, 3, 4],
    "size >= 'm'": [1, 2, 4, 5],
    "size BETWEEN 's' AND 'm'": [0, 1, 3, 4],
    "year = 2024": [1, 3, 5],
    "year = 2025": [],
    # dates
    "day = DATE '2024-02-29'": [2],
    "day = '2024-02-29'": [2],
    "day > DATE '2024-02-29'": [3, 4, 5],
    "day < '1970-01-01'": [0],
    "day < TIMESTAMP '2024-02-29 12:00:00'": [0, 1, 2],
    "day >= TIMESTAMP '2024-02-29 12:00:00'": [3, 4, 5],
    "day BETWEEN '2024-01-01' AND '2024-12-31'": [2, 3, 4],
    "day IN ('2024-02-29', DATE '2024-03-02')": [2, 4],
    "day = CAST('2024-02-29' AS DATE)": [2],
    "day = TO_DATE('2024-02-29')": [2],
    "t = TIMESTAMP '2024-01-01 12:00:00'": [2],
    "t = '2024-01-01T12:00:00Z'": [2],
    "t = TIMESTAMP '2024-01-01 14:00:00+02:00'": [2],
    "t >= DATE '2024-01-01' AND t < DATE '2024-01-02'": [0, 2],
    "t < '1970'": [4],
    "t > '2024-01'": [2, 3, 5],
    "t = TIMESTAMP '2024-01-01 12:00:00.0001'": [],
    "t > TIMESTAMP '2024-01-01 11:59:59.9999'": [2, 3, 5],
    "t IS NULL": [1],
    "t != DATE '2024-01-01'": [2, 3, 4, 5],
    "ns = TIMESTAMP '2024-01-01 00:00:00.000000001'": [0],
    "ns < DATE '3000-01-01'": [0, 1, 2, 3, 4, 5],
    "ns > DATE '1000-01-01'": [0, 1, 2, 3, 4, 5],
    "yr = '2024'": [3],
    "yr = '2024-01-01'": [3],
    "yr = '2024-06-01'": [],
    "yr < '2024-06-01'": [0, 1, 2, 3],
    "yr < '1970-06-01'": [0, 1],
    "yr >= '1969-06-01'": [1, 2, 3, 4, 5],
    "ps > DATE '1970-01-01'": [2, 3, 4, 5],
    "ps < DATE '2024-01-01'": [0, 1, 2, 3, 4, 5],
    # spans of time
    "span = 60": [3],
    "span >= INTERVAL '1' MINUTE": [3, 4, 5],
    "span = INTERVAL 1 DAY": [5],
    "span < INTERVAL '59500' MILLISECONDS": [0, 1, 2],
    # names
    "`a b` = 3": [3],
    "`x` = 3": [3],
}


@pytest.mark.parametrize("text", CONDITIONS)
def test_a_condition_selects_just_its_rows(text: str, array: tz.Array, overlapping: tz.Array) -> None:
    expected = CONDITIONS[text]

    assert sorted(array.read(["x"], where=text).column("x").to_pylist()) == expected
    assert array.count(text) == len(expected)
    assert sorted(overlapping.read(["x"], where=text).column("x").to_pylist()) == expected


# Where what is stored and what SQL says come apart: nulls, NaN, labels, text.
DELICATE = re.compile(r"\b(n|w|v|tag|kind|flag|t|code|raw|sample)\b")


ORDERED_CODE = re.compile(r"code [<>]")


@pytest.mark.parametrize("text", [text for text in CONDITIONS if ORDERED_CODE.search(text)])
def test_characters_of_a_fixed_length_are_not_deleted_by_their_order(text: str, uri: str) -> None:
    a = tz.create(uri, SCHEMA)
    a.write(ROWS)

    with pytest.raises(tz.InvalidRequestError, match="delete with = or IN instead"):
        a.delete(text)
    assert a.count() == 6


@pytest.mark.parametrize(
    "text", [text for text in CONDITIONS if DELICATE.search(text) and not ORDERED_CODE.search(text)]
)
def test_deleting_what_a_condition_selects_leaves_the_rest(text: str, uri: str) -> None:
    a = tz.create(uri, SCHEMA)
    a.write(ROWS)
    a.delete(text)
    left = sorted(set(range(6)) - set(CONDITIONS[text]))

    assert sorted(a.read(["x"]).column("x").to_pylist()) == left
    assert sorted(tz.open(uri).read(["x"]).column("x").to_pylist()) == left


REFUSED = {
    "": "where='' is no condition; write SQL such as \"x > 3",
    "nope = 1": r"there is no column 'nope'; there are 'x', 'sample', 'v'",
    "smaple = 'a'": "there is no column 'smaple'; did you mean 'sample'?",
    "V > 1": "there is no column 'V'; did you mean 'v'?",
    "X > 1": "there is no column 'X'; did you mean 'x'?",
    "t.x = 1": "'t.x': there are no tables here; write 'x' alone",
    "x = v": "'x = v' compares two columns; compare each with a value",
    "x = a": "'x = a' compares two columns",
    "x = 'a'": "'x' is INT64 and does not compare with 'a'; write a number",
    "x = TRUE": "'x' is INT64 and does not compare with True; write a number",
    "x = X'00'": r"'x' is INT64 and does not compare with b'\\x00'; write a number",
    "x = DATE '2024-01-01'": "'x' is INT64 and does not compare with '2024-01-01'; write a number",
    "v = 'much'": "'v' is FLOAT64 and does not compare with 'much'; write a number",
    "tag = 5": "'tag' is STRING_UTF8 and does not compare with 5; write text in single quotes",
    "sample > 5": "'sample' is STRING_ASCII and does not compare with 5; write text in single quotes",
    "raw = 5": "'raw' is BLOB and does not compare with 5; write bytes such as X'00ff'",
    "flag = 'true'": "'flag' is BOOL and does not compare with 'true'; write TRUE or FALSE",
    "flag > 5": "'flag' is BOOL and does not compare with 5; write TRUE or FALSE",
    "t > 5": "'t' is DATETIME_MS and does not compare with 5; write DATE '2026-01-31' or TIMESTAMP",
    "yr = 2024": "'yr' is DATETIME_YEAR and does not compare with 2024; write DATE",
    "t > 'yesterday'": "'yesterday' is no date or time; write '2026-01-31'",
    "t > DATE '2024-02-30'": "'2024-02-30' is no date or time; write '2026-01-31'",
    "span > DATE '2024-01-01'": "'span' is TIME_SEC and does not compare with '2024-01-01'",
    "x > INTERVAL 1 DAY": "'x' is INT64 and does not compare with '1 day",
    "list = 1": "'list' holds a list per cell; only IS NULL and IS NOT NULL can test it",
    "pair = 1": "'pair' holds 2 values per cell; only IS NULL and IS NOT NULL can test it",
    "u16 = 'a'": "'u16' is STRING_UTF16; only IS NULL and IS NOT NULL can test it",
    "c > 'ab'": "'c' holds one byte per cell; 'ab' has 2",
    "kind = 5": "5 cannot be a label of 'kind'; its labels are 'a', 'b', 'c'",
    "year = '2024'": "'2024' cannot be a label of 'year'; its labels are 1999, 2024",
    "kind < 'b'": "the labels of 'kind' have no order; compare it with = or !=",
    "size < 'xl'": "'xl' is no label of 'size', and so neither before nor after one; its labels are 's', 'm', 'l'",
    "n = NULL": 'nothing compares with NULL; write "n IS NULL"',
    "n IN (1, NULL)": 'a list with NULL in it decides nothing; write "n IS NULL"',
    "x": "'x' is INT64, not a condition; compare it with a value",
    "NOT tag": "'tag' is STRING_UTF8, not a condition",
    "5": "5 is not understood here; there are comparisons with a value, IN, BETWEEN",
    "x + 1 = 3": "x [+] 1 is not understood here",
    "x = 1 + 2": "1 [+] 2 is not understood here",
    "count(*) > 5": r"the aggregate COUNT\(\*\) is not understood here",
    "max(x) = 5": r"the aggregate MAX\(x\) is not understood here",
    "abs(x) = 5": r"the function ABS\(x\) is not understood here",
    "my_function(x) = 5": r"the function MY_FUNCTION\(x\) is not understood here",
    "tag = upper('a')": r"the function UPPER\('a'\) is not understood here",
    "tag LIKE 'a%'": "tag LIKE 'a%' is not understood here",
    "tag RLIKE 'a'": "is not understood here",
    "x <=> 5": "x IS NOT DISTINCT FROM 5 is not understood here",
    "x IN (SELECT 1)": r"x IN \(SELECT 1\) is not understood here",
    "x IN (y)": "'y' is a column; a value is expected here",
    "x = 1 = 1": "x = 1 is not understood here",
    "CASE WHEN x = 1 THEN TRUE END": "is not understood here",
    "x = ?": "[?] is not understood here",
    "x IS 5": "is not SQL|not understood",
    "x IS TRUE": "x IS TRUE is not understood here",
    "x BETWEEN SYMMETRIC 1 AND 2": "is not understood here",
    "SELECT 1": "SELECT 1 is not understood here",
    "x = 1; DROP TABLE t": "is not understood here",
    "x = CAST('a' AS INT)": r"'CAST\('a' AS INT\)' is no whole number|no whole number",
    "v = CAST('a' AS DOUBLE)": "is no number",
    "raw = X'0'": "X'0' is not made of pairs of hexadecimal digits|is not SQL",
    "'a' = 1 AND 'a' > 1": "'a' > 1 is not understood here",
    "x >": "is not SQL: something is missing after '>'",
    "x = 1 AND": "is not SQL: something is missing after 'AND'",
    "x = = 1": "is not SQL: something is missing before '='",
    "(x = 1": r"is not SQL: '\)' is missing after '1'",
    "x = 1)": r"is not SQL: '\)' is not expected there",
    "x IN (1": r"is not SQL: '\)' is missing after '1'",
    "x = 1 2": "is not SQL: '2' is not expected there",
    "tag = 'abc": "is not SQL: a quote or a comment is opened and not closed",
}


@pytest.mark.parametrize("text", REFUSED)
def test_text_that_is_no_condition_is_refused_in_one_line_before_anything_is_read(text: str) -> None:
    with pytest.raises(tz.InvalidRequestError, match=REFUSED[text]) as error:
        parse_where(text, SCHEMA)

    told = str(error.value)
    assert told.startswith(f"where={text!r}")
    assert "\n" not in told
    assert "<class" not in told
    assert len(told) < 420


@pytest.mark.parametrize("value", [None, 5, b"x = 1", ["x = 1"], "   "])
def test_what_is_no_text_is_no_condition(value: Any) -> None:
    with pytest.raises(tz.InvalidRequestError, match="is no condition; write SQL such as"):
        parse_where(value, SCHEMA) if value is not None else parse_where("", SCHEMA)


def test_a_long_condition_is_told_by_its_beginning() -> None:
    text = " OR ".join(f"x = {i}" for i in range(1000)) + " OR nope = 1"

    with pytest.raises(tz.InvalidRequestError) as error:
        parse_where(text, SCHEMA)
    assert len(str(error.value)) < 600
    assert "there is no column 'nope'" in str(error.value)


def test_chains_of_thousands_of_terms_are_one_test(array: tz.Array) -> None:
    equal = " OR ".join(f"x = {i}" for i in range(3, 5003))
    unequal = " AND ".join(f"x != {i}" for i in range(3, 503))
    mixed = " OR ".join(f"x = {i} AND v > {i}" for i in range(300))

    assert array.count(equal) == 3
    assert array.count(unequal) == 3
    assert array.count(mixed) == 1
    assert parse_where(equal, SCHEMA) == Test(
        Op.IN, "x", b"", tuple(i.to_bytes(8, "little") for i in range(3, 5003))
    )


def test_a_chain_of_floats_finds_both_zeros(uri: str) -> None:
    chain = " OR ".join(f"v = {i}" for i in range(20))
    a = tz.create(uri, tz.Schema([tz.Dim("x", "int8", (0, 9))], [tz.Attr("v", "float64")]))
    a.write({"x": range(5), "v": [0.0, -0.0, 3.0, 30.0, float("nan")]})

    assert a.read(where=chain, order="row-major").column("x").to_pylist() == [0, 1, 2]
    assert a.read(where=f"NOT ({chain})").column("x").to_pylist() == [3]
    a.delete(chain)
    assert a.read(order="row-major").column("x").to_pylist() == [3, 4]


def test_a_chain_of_thousands_of_terms_can_be_deleted_by(uri: str) -> None:
    a = tz.create(uri, SCHEMA)
    a.write(ROWS)
    a.delete(" OR ".join(f"x > {i} AND n > {i}" for i in range(2, 500)))

    assert tz.open(uri).count() == 3


def test_parentheses_without_end_are_an_error_and_not_a_crash() -> None:
    for text in (
        "(" * 3000 + "x = 1" + ")" * 3000,
        "NOT " * 5000 + "flag",
        "(x = 1 OR " * 2000 + "x = 1" + ")" * 2000,
    ):
        with pytest.raises(tz.InvalidRequestError, match="is nested too deeply; leave out parentheses"):
            parse_where(text, SCHEMA)


def test_a_few_alternatives_stay_as_they_are() -> None:
    assert isinstance(parse_where("x = 1 OR x = 2 OR sample = 'a'", SCHEMA), Some)


def test_values_of_python_compare_as_those_of_sql() -> None:
    def test(name: str, value: Any, op: Op = Op.EQ) -> Any:
        return compare_with(SCHEMA.field(name), op, value, SCHEMA)

    noon = datetime(2024, 1, 1, 12)
    assert test("t", noon) == parse_where("t = TIMESTAMP '2024-01-01 12:00:00'", SCHEMA)
    assert test("t", noon.replace(tzinfo=UTC)) == test("t", noon)
    assert test("t", np.datetime64(noon)) == test("t", noon)
    assert test("day", date(2024, 1, 1)) == test("day", "2024-01-01")
    assert test("span", timedelta(minutes=1)) == test("span", 60)
    assert test("span", np.timedelta64(1, "m")) == test("span", 60)
    assert (
        test("x", Decimal(3))
        == test("x", np.int8(3))
        == test("x", 3.0)
        == test("x", Fraction(3))
        == test("x", 3)
    )
    assert test("v", np.float32(0.5)) == test("v", 0.5)
    assert test("flag", np.True_) == test("flag", value=True)
    assert test("x", float("nan")) == FALSE
    assert test("x", float("inf"), Op.LT) == TRUE
    assert test("year", 2024) == Test(Op.EQ, "year", b"\1\0\0\0")


def test_labels_may_be_dates() -> None:
    labels = np.array(["2024-01-01", "2024-01-02"], "M8[ms]")
    schema = tz.Schema([tz.Dim("x", "int8", (0, 9))], [tz.Attr("d", "int8", enum="e")], enums={"e": labels})

    assert parse_where("d = DATE '2024-01-02'", schema) == Test(Op.EQ, "d", b"\1")
    assert parse_where("d = '2024-01-03'", schema) == FALSE


@pytest.mark.parametrize(
    ("moment", "datatype", "count"),
    [
        ("1970-01-01", "datetime_as", 0),
        ("2024-01-01", "datetime_as", 1_704_067_200 * 10**18),
        ("1969-12-31T23:59:59.9", "datetime_sec", Fraction(-1, 10)),
        ("1970-01-08", "datetime_week", 1),
        ("1970-01-04T12:00", "datetime_week", Fraction(1, 2)),
        ("1969-06-01", "datetime_year", Fraction(-1, 2)),
        ("1971-01-01", "datetime_year", 1),
        ("1970-01-31", "datetime_month", Fraction(1, 2)),
    ],
)
def test_moments_are_counted_exactly(moment: str, datatype: str, count: Any) -> None:
    assert count_of(np.datetime64(moment), tz.Datatype.parse(datatype)) == count
