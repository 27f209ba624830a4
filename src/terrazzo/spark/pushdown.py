"""Spark's filters as conditions of the engine, where both mean the same.

Spark orders NaN above all numbers and takes it for equal to itself; to the engine it matches no comparison. So of the
comparisons of floats only those go down that no NaN can pass in Spark either.
"""

import datetime as dt
from decimal import Decimal
from typing import Any

from pyspark.sql import datasource as spark

from terrazzo.engine.where import parse_where
from terrazzo.errors import InvalidRequestError
from terrazzo.format.schema import Schema

_OPS: dict[type, str] = {
    spark.EqualTo: "=", spark.LessThan: "<", spark.LessThanOrEqual: "<=", spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
}  # fmt: skip
_OPPOSITES = {"=": "<>", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_NEVER_NAN = {"=", "<", "<="}
_MANY = 1000


def condition_of(each: Any, schema: Schema) -> str | None:
    """The filter as SQL text of the engine, or None if Spark has to apply it."""
    negated = isinstance(each, spark.Not)
    inner = each.child if negated else each
    column: tuple[str, ...] = getattr(inner, "attribute", ())
    if len(column) != 1 or not schema.has(column[0]):
        return None
    field = schema.field(column[0])
    text = _spelled(inner, quoted(column[0]), negated=negated, floats=field.datatype.is_float)
    if text is None:
        return None
    try:
        parse_where(text, schema)
    except InvalidRequestError:  # a type that the engine does not compare: Spark does
        return None
    return text


def _spelled(inner: Any, name: str, *, negated: bool, floats: bool) -> str | None:
    match inner:
        case spark.IsNull():
            return f"{name} IS {'NOT ' if negated else ''}NULL"
        case spark.IsNotNull():
            return f"{name} IS {'' if negated else 'NOT '}NULL"
        case spark.In(value=values):
            members = [literal(value) for value in values]
            # A null among the members makes NOT IN true of nothing, and a long list is cheaper for Spark's own set.
            if None in members or not members or len(members) > _MANY or (negated and floats):
                return None
            return f"{name} {'NOT ' if negated else ''}IN ({', '.join(map(str, members))})"
    op = _OPS.get(type(inner))
    value = literal(getattr(inner, "value", None))
    if op is None or value is None:
        return None
    op = _OPPOSITES[op] if negated else op
    return None if floats and op not in _NEVER_NAN else f"{name} {op} {value}"


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def literal(value: Any) -> str | None:
    """A value as the engine's SQL spells it; None for those it has no word for."""
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case float():
            # The shortest text that reads back as the same number; nan and inf have none.
            return repr(value) if value - value == 0 else None
        case Decimal():
            return str(value) if value.is_finite() else None
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case dt.datetime():
            return None if value.tzinfo is not None else f"TIMESTAMP '{value.isoformat(sep=' ')}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
        case _:
            return None
