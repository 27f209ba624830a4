"""Conditions of Spark's SQL as conditions of the engine, where both mean the same; see pushdown for NaN.

A condition is taken apart at AND and OR. What the engine cannot test is left out where that only lets more cells
through; the whole is `exact` if nothing was left out.
"""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
from sqlglot import exp

from terrazzo.engine.where import parse_where
from terrazzo.errors import InvalidRequestError
from terrazzo.format.attribute import Attr
from terrazzo.format.datatypes import Datatype
from terrazzo.format.schema import Schema
from terrazzo.spark.pushdown import literal, quoted

_OPS = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_OPPOSITES = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_NEVER_NAN = {"=", "<", "<="}
_MANY = 1000
_DIGITS = 18
_Type = exp.DataType.Type
_ZONED = {_Type.TIMESTAMP, _Type.TIMESTAMPTZ, _Type.TIMESTAMPLTZ}
NOTHING = object()
"""Stands for what is no literal: None is NULL."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """What of a condition the engine can test."""

    text: str | None
    exact: bool


_LEFT = Pushed(None, exact=False)


@dataclass(frozen=True, slots=True)
class Translator:
    schema: Schema
    owns: Callable[[Any], bool]  # whether a column is one of the array's
    utc: bool = False  # the session's zone is UTC, so that its timestamps are those of the array

    def translate(self, node: Any, *, negated: bool = False) -> Pushed:
        match node:
            case exp.Paren():
                return self.translate(node.this, negated=negated)
            case exp.Not():
                return self.translate(node.this, negated=not negated)
            case exp.And() | exp.Or():
                sides = [self.translate(side, negated=negated) for side in operands(node)]
                return _both(sides) if isinstance(node, exp.And) != negated else _either(sides)
            case exp.Boolean():
                return Pushed("TRUE" if bool(node.this) != negated else "FALSE", exact=True)
            case exp.Is() if isinstance(node.expression, exp.Null):
                field = self._field(node.this)
                return (
                    _LEFT
                    if field is None
                    else self._checked(f"{quoted(field.name)} IS {'NOT ' * negated}NULL")
                )
            case exp.Between():
                return self._between(node, negated=negated)
            case exp.In() if node.expressions and not node.args.get("query"):
                return self._in(node, negated=negated)
        op = _OPS.get(type(node))
        if op is None:
            return _LEFT
        left, right = _bare(node.this), _bare(node.expression)
        if self._field(left) is None:
            left, right, op = right, left, _MIRRORED.get(op, op)
        return self._test(left, _OPPOSITES[op] if negated else op, right)

    def _between(self, node: Any, *, negated: bool) -> Pushed:
        low, high = node.args["low"], node.args["high"]
        if negated:
            return _either([self._test(node.this, "<", low), self._test(node.this, ">", high)])
        # A NaN is above the upper end: no matter what the lower end says of it.
        return _both([self._test(node.this, ">=", low, nan=True), self._test(node.this, "<=", high)])

    def _in(self, node: Any, *, negated: bool) -> Pushed:
        field = self._field(node.this)
        if field is None or len(node.expressions) > _MANY or (negated and field.datatype.is_float):
            return _LEFT
        words = [_word(field, "=", value_of(each), utc=self.utc) for each in node.expressions]
        if None in words:
            return _LEFT
        members = ", ".join(str(word) for word in words)
        return self._checked(f"{quoted(field.name)} {'NOT ' * negated}IN ({members})")

    def _test(self, left: Any, op: str, right: Any, *, nan: bool = False) -> Pushed:
        field = self._field(left)
        if field is None or (field.datatype.is_float and op not in _NEVER_NAN and not nan):
            return _LEFT
        word = _word(field, op, value_of(right), utc=self.utc)
        return _LEFT if word is None else self._checked(f"{quoted(field.name)} {op} {word}")

    def _field(self, node: Any) -> Any:
        node = _bare(node)
        if not isinstance(node, exp.Column) or not self.owns(node):
            return None
        return field_named(node.name, self.schema)

    def _checked(self, text: str) -> Pushed:
        try:
            parse_where(text, self.schema)
        except InvalidRequestError:
            return _LEFT
        return Pushed(text, exact=True)


def field_named(name: str, schema: Schema) -> Any:
    """The field of a name in any case, as Spark looks for it; None if there is none, or more than one."""
    found = [field for field in schema.fields if field.name.casefold() == name.casefold()]
    return found[0] if len(found) == 1 else None


def _both(sides: list[Pushed]) -> Pushed:
    texts = [f"({side.text})" for side in sides if side.text is not None]
    return Pushed(" AND ".join(texts) or None, all(side.exact for side in sides))


def _either(sides: list[Pushed]) -> Pushed:
    if any(side.text is None for side in sides):
        return _LEFT
    return Pushed(" OR ".join(f"({side.text})" for side in sides), all(side.exact for side in sides))


def operands(node: Any) -> list[Any]:
    """The operands of `a AND b AND c …`, which arrives as a tree as deep as it is long."""
    kind, found, pending = type(node), [], [node]
    while pending:
        current = pending.pop()
        if type(current) is kind:
            pending += [current.expression, current.this]
        else:
            found.append(current)
    return found


def conjuncts(node: Any) -> list[Any]:
    """What has to be true together."""
    bare = _bare(node)
    return (
        [each for side in operands(bare) for each in conjuncts(side)] if isinstance(bare, exp.And) else [bare]
    )


def _bare(node: Any) -> Any:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def value_of(node: Any) -> Any:
    """The Python value that a literal spells; a mark of its own for anything else. None is NULL."""
    node = _bare(node)
    match node:
        case exp.Null():
            return None
        case exp.Boolean():
            return bool(node.this)
        case exp.Literal() if node.is_string:
            return str(node.this)
        case exp.Literal():
            return _number(str(node.this))
        case exp.Neg():
            value = value_of(node.this)
            return (
                -value
                if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
                else NOTHING
            )
        case exp.Cast() if isinstance(node.this, exp.Literal) and node.this.is_string:
            return _moment(str(node.this.this), node.to.this)
    return NOTHING


def is_value(value: Any) -> bool:
    return value is not NOTHING


def _number(text: str) -> Any:
    try:
        if text.isdigit():
            return int(text)
        return float(text) if "e" in text.lower() else Decimal(text)
    except (ValueError, InvalidOperation):
        return NOTHING


def _moment(text: str, kind: Any) -> Any:
    try:
        if kind is _Type.DATE:
            return dt.date.fromisoformat(text) if len(text) == len("2026-01-31") else NOTHING
        if kind in _ZONED or kind is _Type.TIMESTAMPNTZ:
            found = dt.datetime.fromisoformat(text)
            if found.tzinfo is None:
                return found if kind is _Type.TIMESTAMPNTZ else _Zoned(found)
    except ValueError:
        pass
    return NOTHING


@dataclass(frozen=True, slots=True)
class _Zoned:
    """A timestamp of the session's zone."""

    moment: dt.datetime


def _is_single(value: Any) -> bool:
    """Whether a number is one of float32: Spark compares with others as float64, the engine with their neighbour."""
    try:
        with np.errstate(over="ignore"):
            return bool(float(np.float32(float(value))) == value)
    except OverflowError:
        return False


def _word(field: Any, op: str, value: Any, *, utc: bool) -> str | None:
    """A value as the engine spells it, if Spark compares it with the field without turning it into something else."""
    datatype = field.datatype
    if isinstance(value, _Zoned):
        value = value.moment if utc else NOTHING
    if isinstance(field, Attr) and field.enum is not None:
        return literal(value) if isinstance(value, str) and op in {"=", "<>"} else None
    if field.cell_val_num != 1 and not field.is_var:
        return None
    match value:
        case bool():
            fits = datatype is Datatype.BOOL and op in {"=", "<>"}
        case int() | Decimal() if datatype.is_integer:
            fits = len(str(abs(value))) <= _DIGITS + 2
        case int() | Decimal() | float() if datatype.is_float:
            fits = datatype is Datatype.FLOAT64 or _is_single(value)
        case str():
            fits = datatype.is_text and field.is_var
        case dt.datetime():
            fits = datatype.is_datetime and datatype.unit in {"s", "ms", "us"}
        case dt.date():
            fits = datatype.is_datetime and datatype.unit == "D"
        case _:
            fits = False
    return literal(value) if fits else None
