"""SQL text to a predicate bound to a schema. Every name and every literal is checked before anything is read."""

import difflib
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from operator import eq, ge, gt, le, lt, ne
from typing import Any

import numpy as np
import sqlglot
from sqlglot import exp

from terrazzo.engine.clock import moment
from terrazzo.engine.literals import Field, compare_with, not_null
from terrazzo.engine.predicate import FALSE, TRUE, NullTest, Predicate, Test, both, either
from terrazzo.errors import InvalidRequestError
from terrazzo.format.attribute import Attr
from terrazzo.format.condition import Op
from terrazzo.format.datatypes import Datatype
from terrazzo.format.schema import Schema

_OPS = {exp.LT: Op.LT, exp.LTE: Op.LE, exp.GT: Op.GT, exp.GTE: Op.GE, exp.EQ: Op.EQ, exp.NEQ: Op.NE}
_MIRRORED = {Op.LT: Op.GT, Op.GT: Op.LT, Op.LE: Op.GE, Op.GE: Op.LE}
_PYTHON = {Op.LT: lt, Op.LE: le, Op.GT: gt, Op.GE: ge, Op.EQ: eq, Op.NE: ne}
_SUPPORTED = "comparisons with a value, IN, BETWEEN, IS [NOT] NULL, AND, OR, NOT"
_SHOWN = 120
_FEW = 8

_Type = exp.DataType.Type
_DATES = {
    _Type.DATE, _Type.TIMESTAMP, _Type.TIMESTAMPTZ, _Type.TIMESTAMPNTZ, _Type.TIMESTAMPLTZ, _Type.DATETIME,
}  # fmt: skip
_WHOLE = {_Type.TINYINT, _Type.SMALLINT, _Type.INT, _Type.BIGINT}
_FRACTIONS = {_Type.FLOAT, _Type.DOUBLE, _Type.DECIMAL}
_TEXT = {_Type.TEXT, _Type.VARCHAR, _Type.CHAR}
_SPANS = {
    "WEEK": "W", "DAY": "D", "HOUR": "h", "MINUTE": "m", "SECOND": "s", "MILLISECOND": "ms", "MICROSECOND": "us",
    "NANOSECOND": "ns",
}  # fmt: skip


def parse_where(text: object, schema: Schema) -> Predicate:
    """The predicate that `text` spells; InvalidRequestError says what is wrong with it."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidRequestError(
            f"where={text!r} is no condition; write SQL such as \"x > 3 AND tag = 'a'\""
        )
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    try:
        return _Binder(schema).bind(sqlglot.parse_one(text, dialect="spark"), negated=False)
    except sqlglot.errors.SqlglotError as problem:
        raise InvalidRequestError(f"where={shown!r} is not SQL: {_reason(problem, text)}") from None
    except RecursionError:
        raise InvalidRequestError(
            f"where={shown!r} is nested too deeply; leave out parentheses that change nothing, or use IN"
        ) from None
    except InvalidRequestError as problem:
        raise InvalidRequestError(f"where={shown!r}: {problem}") from None


def _reason(problem: Exception, text: str) -> str:
    """What the parser found, in a few words and without its classes."""
    details = (getattr(problem, "errors", None) or [{}])[0]
    told, near = str(details.get("description") or ""), details.get("highlight")
    if isinstance(problem, sqlglot.errors.TokenError):
        return "a quote or a comment is opened and not closed"
    if "<class" in told:
        before = str(details.get("start_context") or "").rstrip()
        at_end = not str(details.get("end_context") or "").strip()
        return f"something is missing {f'after {near!r}' if at_end or not before else f'before {near!r}'}"
    if told.startswith("Expecting ") and near:
        return f"{told.removeprefix('Expecting ')!r} is missing after {near!r}"
    return f"{near!r} is not expected there" if near else f"{text.strip()!r} does not parse"


class _Binder:
    """Walks the syntax tree. NOT is carried down to the tests: none of them is true of a null either way."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def bind(self, node: Any, *, negated: bool) -> Predicate:
        match node:
            case exp.Paren():
                return self.bind(node.this, negated=negated)
            case exp.Not():
                return self.bind(node.this, negated=not negated)
            case exp.And() | exp.Or():
                sides = [self.bind(side, negated=negated) for side in _chain(node)]
                if isinstance(node, exp.And) != negated:
                    return both(*_gathered(sides, Op.NE, Op.NOT_IN, self.schema))
                return either(*_gathered(sides, Op.EQ, Op.IN, self.schema))
            case exp.Boolean():
                return TRUE if bool(node.this) != negated else FALSE
            case exp.Between() if not node.args.get("symmetric"):
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
        raise _unsupported(node)

    def _comparison(self, node: Any, op: Op, *, negated: bool) -> Predicate:
        left, right = _bare(node.this), _bare(node.expression)
        if _is_column(left) and _is_column(right):
            raise InvalidRequestError(
                f"{_sql(node)!r} compares two columns; compare each with a value (text is in single quotes)"
            )
        if _is_column(left):
            return self._test(left, op, right, negated=negated)
        if _is_column(right):
            return self._test(right, _MIRRORED.get(op, op), left, negated=negated)
        try:  # two values, such as 1 = 1
            holds = bool(_PYTHON[op](_literal(left), _literal(right)))
        except TypeError:
            raise _unsupported(node) from None
        return TRUE if holds != negated else FALSE

    def _field(self, node: Any) -> Field:
        bare = _bare(node)
        if not _is_column(bare):
            raise _unsupported(bare)
        name = bare.name
        if isinstance(bare, exp.Column) and bare.table:
            raise InvalidRequestError(f"{_sql(bare)!r}: there are no tables here; write {name!r} alone")
        if self.schema.has(name):
            return self.schema.field(name)
        names = {field.name.casefold(): field.name for field in self.schema.fields}
        close = difflib.get_close_matches(name.casefold(), names, 1)
        known = ", ".join(map(repr, names.values()))
        hint = f"did you mean {names[close[0]]!r}?" if close else f"there are {known}"
        raise InvalidRequestError(f"there is no column {name!r}; {hint}")

    def _test(self, column: Any, op: Op, literal: Any, *, negated: bool) -> Predicate:
        field = self._field(column)
        value = _literal(literal)
        if value is None:
            raise InvalidRequestError(f'nothing compares with NULL; write "{field.name} IS NULL"')
        return compare_with(field, op.negated if negated else op, value, self.schema)

    def _in(self, node: Any, *, negated: bool) -> Predicate:
        field = self._field(node.this)
        if any(node.args.get(part) is not None for part in ("query", "unnest", "field")):
            raise _unsupported(node)
        values = [_literal(item) for item in node.expressions]
        if any(value is None for value in values):
            raise InvalidRequestError(f'a list with NULL in it decides nothing; write "{field.name} IS NULL"')
        tests = [compare_with(field, Op.EQ, value, self.schema) for value in values]
        # A value that the field cannot hold is in no cell.
        members = _members(field, [test.value for test in tests if isinstance(test, Test)])
        if not members:
            return not_null(field) if negated else FALSE
        if len(members) == 1:
            return Test(Op.NE if negated else Op.EQ, field.name, members[0])
        return Test(Op.NOT_IN if negated else Op.IN, field.name, b"", members)

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
            # Of a null, IS TRUE is false and not unknown: IS NOT TRUE is true of it.
            test = self._test(node.this, Op.EQ, wanted, negated=negated)
            absent = not_null(field)
            return either(test, NullTest(field.name, is_null=True)) if negated and absent != TRUE else test
        raise _unsupported(node)

    def _flag(self, node: Any, *, negated: bool) -> Predicate:
        field = self._field(node)
        if field.datatype is not Datatype.BOOL or (isinstance(field, Attr) and field.enum):
            raise InvalidRequestError(
                f"{field.name!r} is {field.datatype.name}, not a condition; compare it with a value"
            )
        return Test(Op.EQ, field.name, b"\0" if negated else b"\1")


def _members(field: Field, values: Iterable[bytes]) -> tuple[bytes, ...]:
    """A set of values; sets go by bytes, so where there is one zero of a float there are both."""
    members = dict.fromkeys(values)
    if field.datatype.is_float:
        for raw in list(members):
            if not any(raw[:-1]) and raw[-1] in {0, 0x80}:
                members |= dict.fromkeys((raw[:-1] + b"\0", raw[:-1] + b"\x80"))
    return tuple(members)


def _gathered(sides: list[Predicate], one: Op, many: Op, schema: Schema) -> list[Predicate]:
    """`x = 1 OR x = 2 OR …`, if long, as one test with a set; the same of `x != 1 AND x != 2 AND …`."""
    sets: dict[str, dict[bytes, None]] = {}
    for side in sides:
        if isinstance(side, Test) and side.op is one:
            sets.setdefault(side.field, {})[side.value] = None
    long = {name for name, members in sets.items() if len(members) > _FEW}
    if not long:
        return sides
    kept = [side for side in sides if not (isinstance(side, Test) and side.op is one and side.field in long)]
    tests = [Test(many, name, b"", _members(schema.field(name), sets[name])) for name in sets if name in long]
    return [*kept, *tests]


# -- the syntax tree -----------------------------------------------------------------------------------


def _literal(node: Any) -> Any:
    """The Python value that a literal spells."""
    bare = _bare(node)
    match bare:
        case exp.Null():
            return None
        case exp.Boolean():
            return bool(bare.this)
        case exp.Neg():
            value = _literal(bare.this)
            if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
                return -value
        case exp.Literal() if bare.is_string:
            return str(bare.this)
        case exp.Literal():
            return _number(str(bare.this))
        case exp.HexString():
            return _hex(str(bare.this))
        case exp.Cast() | exp.TryCast():
            return _typed(_literal(bare.this), bare)
        case exp.TsOrDsToDate() | exp.Date() | exp.Timestamp() | exp.TimeStrToTime() if bare.this is not None:
            return _date(_literal(bare.this))
        case exp.Interval() if str(bare.args.get("unit")).upper().removesuffix("S") in _SPANS:
            count = _literal(bare.this)
            unit: Any = _SPANS[str(bare.args["unit"]).upper().removesuffix("S")]
            return np.timedelta64(_whole(count, bare), unit)
    raise _unsupported(bare)


def _number(text: str) -> int | Decimal:
    try:
        return int(text) if text.isdigit() else Decimal(text)
    except (ValueError, InvalidOperation):
        raise InvalidRequestError(f"{text[:_SHOWN]} is no number that can be read") from None


def _hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise InvalidRequestError(f"X'{text}' is not made of pairs of hexadecimal digits") from None


def _date(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return moment(value)
    except ValueError:
        raise InvalidRequestError(
            f"{value!r} is no date or time; write '2026-01-31' or '2026-01-31 12:00:00'"
        ) from None


def _whole(value: Any, node: Any) -> int:
    try:
        return int(Decimal(value) if isinstance(value, str) else value)
    except (InvalidOperation, ValueError, TypeError, OverflowError):
        raise InvalidRequestError(f"{_sql(node)!r} is no whole number") from None


def _typed(value: Any, node: Any) -> Any:
    """A literal as the type that it is cast to."""
    kind = node.to.this
    if value is None or kind in _DATES:
        return _date(value)
    if kind in _WHOLE and not isinstance(value, (bytes, bool)):
        return _whole(value, node)
    if kind in _FRACTIONS and isinstance(value, str):
        try:
            number = Decimal(value.strip())
        except InvalidOperation:
            raise InvalidRequestError(f"{_sql(node)!r} is no number") from None
        return number if number.is_finite() else float(number)
    if kind in _FRACTIONS and not isinstance(value, (bytes, bool)):
        return value
    if kind in _TEXT and isinstance(value, (str, int, Decimal)):
        return str(value)
    if kind is _Type.BINARY and isinstance(value, (str, bytes)):
        return value.encode() if isinstance(value, str) else value
    if kind is _Type.BOOLEAN and isinstance(value, bool):
        return value
    raise _unsupported(node)


def _unsupported(node: Any) -> InvalidRequestError:
    if isinstance(node, exp.Column):
        return InvalidRequestError(f"{_sql(node)!r} is a column; a value is expected here")
    what = _sql(node)
    if isinstance(node, exp.AggFunc):
        what = f"the aggregate {what}"
    elif isinstance(node, exp.Func) and not isinstance(node, (exp.Cast, exp.Binary)):
        what = f"the function {what}"
    return InvalidRequestError(f"{what} is not understood here; there are {_SUPPORTED}")


def _sql(node: Any) -> str:
    text = node.sql("spark") if isinstance(node, exp.Expression) else repr(node)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


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
