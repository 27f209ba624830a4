"""Conditions as text: what is shown can be typed again, and means the same."""

import numpy as np
import pytest

from terrazzo.engine.condition_text import describe_condition, describe_value
from terrazzo.engine.predicate import to_condition
from terrazzo.engine.where import parse_where
from terrazzo.format.attribute import Attr
from terrazzo.format.condition import Combination, Combine, Compare, Op
from terrazzo.format.domain import Dim
from terrazzo.format.schema import Schema

SCHEMA = Schema(
    [Dim("x", "int64", (0, 99), 10)],
    [
        Attr("v", "float64"), Attr("f", "float32"), Attr("s", "utf8", nullable=True), Attr("n", "int32", nullable=True),
        Attr("ms", "datetime64[ms]"), Attr("day", "datetime64[D]"), Attr("hour", "datetime64[h]"),
        Attr("ns", "datetime64[ns]"), Attr("b", "bool"), Attr("k", "int8", enum="kinds"), Attr("raw", "blob"),
        Attr("my col", "int32"), Attr("code", "ascii", values_per_cell=4), Attr("or", "uint8"),
    ],
    enums={"kinds": ["low", "it's"]},
)  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "v < 3.5 AND (x >= 2 OR s = 'it\\'s')",
        "s IN ('a', 'b\\\\c')",
        "x NOT IN (1, 2, 3)",
        "ms > TIMESTAMP '2020-01-01 12:00:00.500'",
        "ns = TIMESTAMP '2020-01-01 00:00:00.123456789'",
        "hour <= TIMESTAMP '2020-01-02 03:00:00'",
        "day = DATE '2020-01-02'",
        "b = TRUE",
        "k = 'it\\'s'",
        "raw = X'00ff'",
        "`my col` != 3",
        "`or` >= 7",
        "code = 'ab'",
        "f = 0.1",
        "v = 1e+300",
    ],
)
def test_what_is_shown_is_what_was_typed(text) -> None:
    stored = to_condition(parse_where(text, SCHEMA), SCHEMA)

    assert describe_condition(stored, SCHEMA) == text


@pytest.mark.parametrize(
    "text", ["n IS NULL", "NOT (x = 1 AND v = 2)", "TRUE", "x BETWEEN 3 AND 5 OR n > -2"]
)
def test_what_is_shown_means_the_same(text) -> None:
    stored = to_condition(parse_where(text, SCHEMA), SCHEMA)
    shown = describe_condition(stored, SCHEMA)

    assert to_condition(parse_where(shown, SCHEMA), SCHEMA) == stored


def test_a_test_for_null_is_told_as_one() -> None:
    assert describe_condition(Compare(Op.EQ, "n"), SCHEMA) == "n IS NULL"
    assert describe_condition(Compare(Op.NE, "n"), SCHEMA) == "n IS NOT NULL"
    assert describe_condition(Compare(Op.EQ, "s"), SCHEMA) == "s = ''"


def test_nodes_that_are_never_typed_are_told_all_the_same() -> None:
    node = Combine(Combination.NOT, (Compare(Op.ALWAYS_TRUE, "x"),))

    assert describe_condition(node, SCHEMA) == "NOT (TRUE)"


def test_what_the_schema_does_not_know_is_told_as_bytes() -> None:
    assert describe_condition(Compare(Op.LT, "gone", b"\1\2"), SCHEMA) == "gone < X'0102'"
    assert describe_condition(Compare(Op.LT, "v", b"\1\2"), SCHEMA) == "v < X'0102'"
    assert describe_condition(Compare(Op.LT, "v", b"\1\2"), None) == "v < X'0102'"
    assert describe_value(b"\x63", SCHEMA.attr("k"), SCHEMA) == "99"
    assert describe_value(b"\xff", SCHEMA.attr("s")) == "X'ff'"


def test_numbers_that_sql_has_no_digits_for() -> None:
    assert describe_value(np.float64("nan").tobytes(), SCHEMA.attr("v")) == "CAST('NaN' AS DOUBLE)"
    assert describe_value(np.int64(-(2**63)).tobytes(), SCHEMA.attr("ms")) == "CAST('NaT' AS TIMESTAMP)"
