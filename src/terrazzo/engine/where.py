"""SQL text to a predicate bound to a schema. Every name and every literal is checked before anything is read."""

import difflib
import math
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import sqlglot
from sqlglot import exp

from terrazzo.engine.predicate import (
    FALSE,
    TRUE,
    NullTest,
    Predicate,
    Test,
    both,
    check_testable,
    either,
    is_bytes,
)
from terrazzo.errors import InvalidRequestError
from terrazzo.format.attribute import Attr
from terrazzo.format.condition import Op
from terrazzo.format.datatypes import Datatype
from terrazzo.format.domain import Dim
from terrazzo.format.schema import Schema

Field = Attr | Dim

_OPS = {exp.LT: Op.LT, exp.LTE: Op.LE, exp.GT: Op.GT, exp.GTE: Op.GE, exp.EQ: Op.EQ, exp.NEQ: Op.NE}
_MIRRORED = {Op.LT: Op.GT, Op.GT: Op.LT, Op.LE: Op.GE, Op.GE: Op.LE}
_SUPPORTED = "comparisons with a value, IN, BETWEEN, IS [NOT] NULL, AND, OR, NOT"


def parse_where(text: object, schema: Schema) -> Predicate:
    """The predicate that `text` spells; InvalidRequestError says what is wrong with it."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidRequestError(
            f"where={text!r} is no condition; write SQL such as \"x > 3 AND tag = 'a'\""
        )
    try:
        tree = sqlglot.parse_one(text, dialect="spark")
    except sqlglot.errors.SqlglotError as problem:
        raise InvalidRequestError(f"where={text!r} is not SQL: {_reason(problem)}") from None
    return _Binder(schema, text).bind(tree, negated=False)


def _reason(problem: Exception) -> str:
    """What the parser found, in a few words and without its classes."""
    details = getattr(problem, "errors", None) or [{}]
    told, near = details[0].get("description") or "it does not parse", details[0].get("highlight")
    told = "something is missing" if "<class" in told else told.rstrip(".").lower()
    return f"{told} at {near!r}" if near else told


class _Binder:
    """Walks the syntax tree. NOT is carried down to the tests: none of them is true of a null either way."""

    def __init__(self, schema: Schema, text: str) -> None:
        self.schema, self.text = schema, text

    def bind(self, node: Any, *, negated: bool) -> Predicate:
        match node:
            case exp.Paren():
                return self.bind(node.this, negated=negated)
            case exp.Not():
                return self.bind(node.this, negated=not negated)
            case exp.And() | exp.Or():
                sides = [self.bind(side, negated=negated) for side in _chain(node)]
                return both(*sides) if isinstance(node, exp.And) != negated else either(*sides)
            case exp.Boolean():
                return TRUE if bool(node.this) != negated else FALSE
            case exp.Between():
                low = self._test(node.this, Op.GE, node.args["low"], negated=negated)
                high = self._test(node.this, Op.LE, node.args["high"], negated=negated)
                return either(low, high) if negated else both(low, high)
            case exp.In():
                return self._in(node, negated=negated)
            case exp.Is():
                return self._is(node, negated=negated)
            case exp.Column() | exp.Identifier():
                return self._flag(node, negated=negated)
        if type(node) in _OPS:
            return self._comparison(node, _OPS[type(node)], negated=negated)
        raise self._unsupported(node)

    def _comparison(self, node: Any, op: Op, *, negated: bool) -> Predicate:
        left, right = _bare(node.this), _bare(node.expression)
        if _is_column(left) and _is_column(right):
            raise InvalidRequestError(
                f"{node.sql('spark')!r} compares two columns; compare each with a value"
            )
        if _is_column(left):
            return self._test(left, op, right, negated=negated)
        if _is_column(right):
            return self._test(right, _MIRRORED.get(op, op), left, negated=negated)
        raise self._unsupported(node)

    def _field(self, node: Any) -> Field:
        bare = _bare(node)
        if not _is_column(bare):
            raise self._unsupported(node)
        name = bare.name
        if self.schema.has(name):
            return self.schema.field(name)
        names = [field.name for field in self.schema.fields]
        close = difflib.get_close_matches(name, names, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"the schema has {', '.join(map(repr, names))}"
        raise InvalidRequestError(f"where={self.text!r}: there is no column {name!r}; {hint}")

    def _test(self, column: Any, op: Op, literal: Any, *, negated: bool) -> Predicate:
        field = self._field(column)
        value = self._literal(literal, field)
        if value is None:
            raise InvalidRequestError(f'nothing compares with NULL; write "{field.name} IS NULL"')
        return compare_with(field, op.negated if negated else op, value, self.schema)

    def _in(self, node: Any, *, negated: bool) -> Predicate:
        field = self._field(node.this)
        if node.args.get("query") is not None or node.args.get("unnest") is not None:
            raise self._unsupported(node)
        values = [self._literal(item, field) for item in node.expressions]
        if any(value is None for value in values):
            raise InvalidRequestError(f'a list with NULL in it decides nothing; write "{field.name} IS NULL"')
        members: dict[bytes, None] = {}
        for value in values:
            test = compare_with(field, Op.EQ, value, self.schema)
            if isinstance(test, Test):  # a value that the field cannot hold is in no cell
                members[test.value] = None
                if field.datatype.is_float and not any(test.value[:-1]) and test.value[-1] in {0, 0x80}:
                    members |= dict.fromkeys((test.value[:-1] + b"\0", test.value[:-1] + b"\x80"))  # both zeros
        if not members:
            return _not_null(field) if negated else FALSE
        if len(members) == 1:
            return Test(Op.NE if negated else Op.EQ, field.name, next(iter(members)))
        return Test(Op.NOT_IN if negated else Op.IN, field.name, b"", tuple(members))

    def _is(self, node: Any, *, negated: bool) -> Predicate:
        field = self._field(node.this)
        wanted = node.expression
        if isinstance(wanted, exp.Not):
            wanted, negated = wanted.this, not negated
        if isinstance(wanted, exp.Null):
            if not (isinstance(field, Attr) and field.nullable):
                return TRUE if negated else FALSE
            return NullTest(field.name, is_null=not negated)
        if isinstance(wanted, exp.Boolean) and field.datatype is Datatype.BOOL:
            return self._test(node.this, Op.EQ, wanted, negated=negated)
        raise self._unsupported(node)

    def _flag(self, node: Any, *, negated: bool) -> Predicate:
        field = self._field(node)
        if field.datatype is not Datatype.BOOL:
            raise InvalidRequestError(
                f"{field.name!r} is {field.datatype.name}, not a condition; compare it with a value"
            )
        return Test(Op.EQ, field.name, b"\0" if negated else b"\1")

    def _literal(self, node: Any, field: Field) -> Any:
        bare = _bare(node)
        match bare:
            case exp.Null():
                return None
            case exp.Boolean():
                return bool(bare.this)
            case exp.Neg():
                value = self._literal(bare.this, field)
                if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
                    return -value
            case exp.Literal() if bare.is_string:
                return str(bare.this)
            case exp.Literal():
                text = str(bare.this)
                return int(text) if text.isdigit() else Decimal(text)
            case exp.HexString():
                return bytes.fromhex(str(bare.this)) if str(bare.this).strip() else b""
            case exp.Cast() | exp.TryCast():
                inner = self._literal(bare.this, field)
                kind = bare.to.this
                if isinstance(inner, str) and kind in _DATE_TYPES:
                    return _date(inner, field)
                return inner
            case exp.TsOrDsToDate() | exp.Date() | exp.Timestamp() | exp.TimeStrToTime() if (
                bare.this is not None
            ):
                inner = self._literal(bare.this, field)
                return _date(inner, field) if isinstance(inner, str) else inner
        raise self._unsupported(bare)

    def _unsupported(self, node: Any) -> InvalidRequestError:
        if isinstance(node, exp.Column):
            return InvalidRequestError(
                f"where={self.text!r}: {node.sql('spark')!r} is a column; a value is expected here"
            )
        what = node.sql("spark") if isinstance(node, exp.Expression) else repr(node)
        if isinstance(node, exp.AggFunc):
            what = f"the aggregate {what}"
        elif isinstance(node, exp.Func):
            what = f"the function {what}"
        return InvalidRequestError(
            f"where={self.text!r}: {what} is not understood here; there are {_SUPPORTED}"
        )


_DATE_TYPES = {
    exp.DataType.Type.DATE, exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPTZ,
    exp.DataType.Type.TIMESTAMPNTZ, exp.DataType.Type.TIMESTAMPLTZ, exp.DataType.Type.DATETIME,
}  # fmt: skip


def _chain(node: Any) -> list[Any]:
    """The operands of `a AND b AND c …`, which arrives as a tree as deep as it is long."""
    kind, operands, pending = type(node), [], [node]
    while pending:
        current = pending.pop()
        if type(current) is kind:
            pending += [current.expression, current.this]
        else:
            operands.append(current)
    return operands


def _bare(node: Any) -> Any:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _is_column(node: Any) -> bool:
    return isinstance(node, (exp.Column, exp.Identifier))


def _not_null(field: Field) -> Predicate:
    return NullTest(field.name, is_null=False) if isinstance(field, Attr) and field.nullable else TRUE


def compare_with(field: Field, op: Op, value: Any, schema: Schema) -> Predicate:
    """`field op value` for a plain value of Python: exact, also where the field's type cannot hold the value."""
    enum = schema.enums.get(field.enum) if isinstance(field, Attr) and field.enum else None
    if enum is not None:
        return _compare_label(field, op, value, enum)
    check_testable(field)
    if is_bytes(field):
        return Test(op, field.name, _text(value, field))
    if isinstance(value, str):
        value = _date(value, field) if field.datatype.is_datetime else _mismatch(field, value)
    if field.datatype is Datatype.BOOL:
        return _compare_flag(field, op, value)
    if isinstance(value, bool) or not isinstance(
        value, (int, float, Decimal, Fraction, np.integer, np.floating)
    ):
        _mismatch(field, value)
    return _compare_number(field, op, value)


def _mismatch(field: Field, value: Any) -> Any:
    raise InvalidRequestError(f"{field.name!r} is {field.datatype.name} and does not compare with {value!r}")


def _text(value: Any, field: Field) -> bytes:
    if isinstance(value, str):
        raw = value.encode()
    elif isinstance(value, bytes):
        raw = value
    else:
        _mismatch(field, value)
    if not field.is_var:
        width = field.cell_val_num * field.datatype.size
        if len(raw) > width:
            raise InvalidRequestError(f"{field.name!r} holds {width} bytes per cell; {value!r} is longer")
        raw = raw.ljust(width, b"\0")
    return raw


def _compare_flag(field: Field, op: Op, value: Any) -> Predicate:
    if not isinstance(value, (bool, np.bool_)) and value not in {0, 1}:
        _mismatch(field, value)
    return Test(op, field.name, b"\1" if value else b"\0")


def _compare_number(field: Field, op: Op, value: Any) -> Predicate:
    dtype = field.datatype.dtype
    if dtype.kind == "f":
        return Test(op, field.name, np.array(float(value), dtype).tobytes())
    if isinstance(value, (float, np.floating)) and not math.isfinite(value):
        return _beyond(field, op, above=bool(value > 0)) if not math.isnan(value) else FALSE
    exact = Fraction(value) if not isinstance(value, np.integer) else Fraction(int(value))
    if exact.denominator != 1:
        if op is Op.EQ:
            return FALSE
        if op is Op.NE:
            return _not_null(field)
        exact = Fraction(math.floor(exact))  # x < 2.5 is x <= 2, and x >= 2.5 is x > 2
        op = {Op.LT: Op.LE, Op.LE: Op.LE, Op.GT: Op.GT, Op.GE: Op.GT}[op]
    number, info = int(exact), np.iinfo(dtype)
    if number > info.max or number < info.min:
        return _beyond(field, op, above=number > info.max)
    return Test(op, field.name, np.array(number, dtype).tobytes())


def _beyond(field: Field, op: Op, *, above: bool) -> Predicate:
    """A comparison with a number that is larger, or smaller, than all that the field can hold."""
    holds = op is Op.NE or op in ({Op.LT, Op.LE} if above else {Op.GT, Op.GE})
    return _not_null(field) if holds else FALSE


def _compare_label(field: Field, op: Op, value: Any, enum: Any) -> Predicate:
    labels = enum.values.to_pylist()
    wanted = value.encode() if isinstance(value, str) and labels and isinstance(labels[0], bytes) else value
    if isinstance(value, Decimal):
        wanted = float(value)
    if op not in {Op.EQ, Op.NE} and not enum.ordered:
        raise InvalidRequestError(f"the labels of {field.name!r} have no order; compare it with = or !=")
    if wanted in labels:
        index = np.array(labels.index(wanted), field.datatype.dtype).tobytes()
        return Test(op, field.name, index)
    if op is Op.EQ:
        return FALSE
    if op is Op.NE:
        return _not_null(field)
    raise InvalidRequestError(f"{value!r} is no label of {field.name!r}")


def _date(text: Any, field: Field) -> Any:
    """A date or time in the field's unit, as a fraction where it falls between two."""
    if not isinstance(text, str) or not field.datatype.is_datetime:
        _mismatch(field, text)
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            from datetime import UTC  # noqa: PLC0415

            moment = moment.astimezone(UTC).replace(tzinfo=None)
        exact = (
            np.datetime64(moment, "us")
            if "." not in text or len(text.partition(".")[2]) <= 6
            else np.datetime64(text)
        )
    except ValueError:
        try:
            exact = np.datetime64(text)
        except ValueError:
            raise InvalidRequestError(
                f"{text!r} is no date or time; write '2026-01-31' or '2026-01-31 12:00:00'"
            ) from None
    return count_of(exact, field.datatype)


def count_of(moment: np.datetime64 | date, datatype: Datatype) -> Fraction:
    """How many units of the datatype lie between 1970 and the moment, exactly."""
    exact = np.datetime64(moment)
    unit = datatype.unit
    coarse = exact.astype(f"M8[{unit}]")
    whole = int(coarse.astype(np.int64))
    if coarse == exact:
        return Fraction(whole)
    if coarse > exact:  # numpy rounds years and months towards 1970
        whole -= 1
    return Fraction(2 * whole + 1, 2)  # somewhere between two units is all that a comparison needs to know
