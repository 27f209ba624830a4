"""Expressions of Spark's as values of an array's columns: what would lose data is an error, told by the task."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from terrazzo.errors import InvalidRequestError
from terrazzo.format.schema import Schema
from terrazzo.spark.failures import translated
from terrazzo.spark.types import struct_of

_INFINITE = (float("inf"), float("-inf"))


@contextmanager
def analysing(what: str) -> Iterator[None]:
    """Raise what Spark's analyser finds wrong as an error of one line."""
    try:
        yield
    except (AnalysisException, ParseException) as problem:
        if (told := translated(problem)) is not None:
            raise told from None
        lines = [line.strip() for line in str(problem).strip().splitlines() if line.strip()]
        raise InvalidRequestError(f"{what}: {lines[0].partition(' SQLSTATE')[0]}") from None


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def column(name: str, alias: str | None = None) -> Any:
    return F.col(quoted(name) if alias is None else f"{quoted(alias)}.{quoted(name)}")


def expression(given: Any) -> Any:
    """A Column, or SQL text as one."""
    if isinstance(given, Column):
        return given
    if not isinstance(given, str) or not given.strip():
        raise InvalidRequestError(f"{given!r} is no expression; SQL text or a Column is expected")
    return F.expr(given)


def fitted(frame: Any, expressions: Mapping[str, Any], schema: Schema, what: str) -> dict[str, Any]:
    """Expressions over the columns of `frame`, each cast to the type of the field that it is for."""
    with analysing(what):
        given = frame.select(*(each.alias(name) for name, each in expressions.items())).schema
        wanted = struct_of(schema, list(expressions))
        made = {
            name: _fitted(each, given[place].dataType, wanted[place].dataType, name)
            for place, (name, each) in enumerate(expressions.items())
        }
        _ = frame.select(*(each.alias(name) for name, each in made.items())).schema
    return made


def _fitted(each: Any, given: Any, wanted: Any, name: str) -> Any:
    if given == wanted:
        return each
    if isinstance(given, T.NullType) or isinstance(wanted, T.StringType):
        return each.cast(wanted)
    made = each.try_cast(wanted)
    lost = each.isNotNull() & made.isNull()
    if isinstance(wanted, (T.FloatType, T.DoubleType)):
        # Rounding is what floats do; a number that becomes infinite is another one.
        if isinstance(given, T.NumericType):
            lost |= made.isin(*_INFINITE) & ~each.cast("double").isin(*_INFINITE)
    elif not isinstance(given, T.StringType):
        lost |= made.cast(given) != each
    shown = F.coalesce(each.cast("string"), F.lit("NULL"))
    return F.when(lost, refusal(f"{name!r} cannot be set to ", shown, f" as {wanted.simpleString()} without loss")).otherwise(made)  # fmt: skip


def refusal(*parts: Any) -> Any:
    """An expression that raises the engine's error where it is evaluated, on a line of its own: see failures."""
    texts = [F.lit(part) if isinstance(part, str) else part for part in parts]
    return F.raise_error(F.concat(F.lit("\nterrazzo.errors.InvalidRequestError: "), *texts, F.lit("\n")))
