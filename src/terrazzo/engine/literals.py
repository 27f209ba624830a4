"""Comparisons of a field with a plain value of Python: exact, also where the field's type cannot hold the value."""

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np

from terrazzo.engine.clock import moment
from terrazzo.engine.intake import ATTOSECONDS
from terrazzo.engine.predicate import FALSE, TRUE, NullTest, Predicate, Test, check_testable, is_bytes
from terrazzo.errors import InvalidRequestError
from terrazzo.format.attribute import Attr
from terrazzo.format.condition import Op
from terrazzo.format.datatypes import Datatype
from terrazzo.format.domain import Dim
from terrazzo.format.enumeration import Enumeration
from terrazzo.format.schema import Schema

Field = Attr | Dim

_NUMBERS = (int, float, Decimal, Fraction, np.integer, np.floating)
_INFINITY = Fraction(10) ** 400


def not_null(field: Field) -> Predicate:
    return NullTest(field.name, is_null=False) if isinstance(field, Attr) and field.nullable else TRUE


def compare_with(field: Field, op: Op, value: Any, schema: Schema) -> Predicate:
    """`field op value` for a number, a bool, text, bytes, a date or a span of time."""
    enum = schema.enums.get(field.enum) if isinstance(field, Attr) and field.enum else None
    if enum is not None:
        return _compare_label(field, op, value, enum)
    check_testable(field)
    if is_bytes(field):
        return _compare_text(field, op, value)
    if field.datatype.is_datetime:
        return _compare_number(field, op, _date_count(field, value))
    if field.datatype.is_time and isinstance(value, (timedelta, np.timedelta64)):
        value = _span_count(value, field.datatype)
    if field.datatype is Datatype.BOOL:
        return _compare_flag(field, op, value)
    if isinstance(value, (str, bytes)) and not _is_number(field.datatype):
        return _compare_character(field, op, value)
    # numpy's spans count as its integers.
    if isinstance(value, (bool, np.bool_, np.timedelta64)) or not isinstance(value, _NUMBERS):
        mismatch(field, value)
    return _compare_float(field, op, value) if field.datatype.is_float else _compare_number(field, op, value)


def _is_number(datatype: Datatype) -> bool:
    return datatype.is_integer or datatype.is_float or datatype.is_time


def mismatch(field: Field, value: Any) -> NoReturn:
    datatype = field.datatype
    if datatype.is_datetime:
        hint = "write DATE '2026-01-31' or TIMESTAMP '2026-01-31 12:00:00'"
    elif datatype.is_text:
        hint = "write text in single quotes"
    elif datatype is Datatype.BOOL:
        hint = "write TRUE or FALSE"
    elif _is_number(datatype):
        hint = "write a number"
    else:
        hint = "write bytes such as X'00ff'"
    shown = (
        repr(str(value))
        if isinstance(value, (date, np.datetime64, timedelta, np.timedelta64))
        else repr(value)
    )
    raise InvalidRequestError(f"{field.name!r} is {datatype.name} and does not compare with {shown}; {hint}")


def _compare_text(field: Field, op: Op, value: Any) -> Predicate:
    if not isinstance(value, (str, bytes)):
        mismatch(field, value)
    raw = value.encode() if isinstance(value, str) else value
    if field.is_var:
        return Test(op, field.name, raw)
    width = field.cell_val_num * field.datatype.size
    if len(raw) <= width:
        return Test(op, field.name, raw.ljust(width, b"\0"))
    if op in {Op.EQ, Op.NE}:  # no cell is that long
        return FALSE if op is Op.EQ else not_null(field)
    # Longer than any cell: what begins alike comes before it.
    return Test(Op.LE if op in {Op.LT, Op.LE} else Op.GT, field.name, raw[:width])


def _compare_character(field: Field, op: Op, value: str | bytes) -> Predicate:
    """A cell of one byte."""
    raw = value.encode() if isinstance(value, str) else value
    if len(raw) == 1:
        return Test(op, field.name, raw)
    if op not in {Op.EQ, Op.NE}:
        raise InvalidRequestError(f"{field.name!r} holds one byte per cell; {value!r} has {len(raw)}")
    return FALSE if op is Op.EQ else not_null(field)


def _compare_flag(field: Field, op: Op, value: Any) -> Predicate:
    if not isinstance(value, (bool, np.bool_)) and (not isinstance(value, _NUMBERS) or value not in {0, 1}):
        mismatch(field, value)
    return Test(op, field.name, b"\1" if value else b"\0")


def _exact(value: Any) -> Fraction | None:
    """The value as a fraction, infinities as something beyond all numbers; None for NaN."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (int, Fraction)):
        return Fraction(value)
    if math.isnan(value):
        return None
    if math.isinf(value):
        return _INFINITY if value > 0 else -_INFINITY
    if isinstance(value, Decimal) and value.adjusted() > 400:
        return _INFINITY if value > 0 else -_INFINITY
    if isinstance(value, Decimal) and value.adjusted() < -400:
        return Fraction(int(math.copysign(1, value)), 10**400)
    return Fraction(value)


def _compare_number(field: Field, op: Op, value: Any) -> Predicate:
    exact = _exact(value)
    if exact is None:
        return FALSE
    if exact.denominator != 1:
        if op is Op.EQ:
            return FALSE
        if op is Op.NE:
            return not_null(field)
        exact = Fraction(math.floor(exact))  # x < 2.5 is x <= 2, and x >= 2.5 is x > 2
        op = Op.LE if op in {Op.LT, Op.LE} else Op.GT
    info = np.iinfo(field.datatype.dtype)
    if info.min <= exact <= info.max:
        return Test(op, field.name, np.array(int(exact), field.datatype.dtype).tobytes())
    above = exact > info.max  # larger, or smaller, than all that the field can hold
    holds = op is Op.NE or op in ({Op.LT, Op.LE} if above else {Op.GT, Op.GE})
    return not_null(field) if holds else FALSE


def _compare_float(field: Field, op: Op, value: Any) -> Predicate:
    exact = _exact(value)
    if exact is None:
        return FALSE
    dtype, given_infinity = (
        field.datatype.dtype,
        abs(exact) == _INFINITY and not isinstance(value, (int, Decimal)),
    )
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if exact > 0 else -math.inf
    with np.errstate(over="ignore"):
        stored = np.array(number, dtype)
    if np.isfinite(stored) or given_infinity:
        return Test(op, field.name, stored.tobytes())
    if op is Op.EQ:  # beyond every number of the type, and yet not infinite
        return FALSE
    inside = {Op.LT, Op.LE} if exact > 0 else {Op.GT, Op.GE}
    if op is Op.NE:
        return Test(Op.LE, field.name, np.array(math.inf, dtype).tobytes())  # all but NaN
    if op in inside:
        return Test(Op.LT if exact > 0 else Op.GT, field.name, stored.tobytes())
    return Test(Op.EQ, field.name, stored.tobytes())


# -- labels --------------------------------------------------------------------------------------------


def _compare_label(field: Field, op: Op, value: Any, enum: Enumeration) -> Predicate:
    if op not in {Op.EQ, Op.NE} and not enum.ordered:
        raise InvalidRequestError(f"the labels of {field.name!r} have no order; compare it with = or !=")
    place = _place(field, value, enum)
    if place is not None:
        return Test(op, field.name, np.array(place, field.datatype.dtype).tobytes())
    if op is Op.EQ:
        return FALSE
    if op is Op.NE:
        return not_null(field)
    raise InvalidRequestError(
        f"{value!r} is no label of {field.name!r}, and so neither before nor after one; its labels are {_some(enum)}"
    )


def _place(field: Field, value: Any, enum: Enumeration) -> int | None:
    """Where in the enumeration a label is; None if it is none, an error if it could not be one."""
    datatype = enum.datatype
    if datatype.is_datetime:
        wanted: Any = _date_count(field, value, datatype)
        labels = np.frombuffer(enum.data, datatype.dtype).tolist()
    else:
        labels, wanted = enum.values.to_pylist(), value
        first = labels[0] if labels else None
        if isinstance(first, bytes) and isinstance(value, str):
            wanted = value.encode()
        elif isinstance(first, float) and isinstance(value, Decimal):
            wanted = float(value)
        fits = isinstance(wanted, type(first)) or (
            isinstance(first, (int, float)) and isinstance(wanted, _NUMBERS)
        )
        if first is not None and (not fits or isinstance(first, bool) != isinstance(wanted, bool)):
            raise InvalidRequestError(
                f"{value!r} cannot be a label of {field.name!r}; its labels are {_some(enum)}"
            )
    return labels.index(wanted) if wanted in labels else None


def _some(enum: Enumeration) -> str:
    labels = enum.values.slice(0, 5).to_pylist()
    return ", ".join(map(repr, labels)) + (f", … {len(enum)} in all" if len(enum) > 5 else "")


# -- dates ---------------------------------------------------------------------------------------------


def _date_count(field: Field, value: Any, datatype: Datatype | None = None) -> Fraction:
    if isinstance(value, str):
        try:
            value = moment(value)
        except ValueError:
            raise InvalidRequestError(
                f"{value!r} is no date or time; write '2026-01-31' or '2026-01-31 12:00:00'"
            ) from None
    if isinstance(value, Fraction):  # counted already
        return value
    if not isinstance(value, (date, np.datetime64)):
        mismatch(field, value)
    return count_of(value, datatype or field.datatype)


def count_of(value: np.datetime64 | date, datatype: Datatype) -> Fraction:
    """How many units of the datatype lie between 1970 and the moment, exactly but for years and months."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    exact = np.datetime64(value)
    if np.isnat(exact):
        raise InvalidRequestError("no date compares with NaT; test IS NULL, or compare with a date")
    if np.datetime_data(exact.dtype)[0] in {"Y", "M"}:
        exact = exact.astype("M8[D]")
    unit = ATTOSECONDS.get(datatype.unit)
    if unit is not None:
        return Fraction(int(exact.astype(np.int64)) * ATTOSECONDS[np.datetime_data(exact.dtype)[0]], unit)
    coarse = exact.astype(f"M8[{datatype.unit}]")
    whole = int(coarse.astype(np.int64))
    if coarse == exact:
        return Fraction(whole)
    if coarse > exact:  # numpy rounds years and months towards 1970
        whole -= 1
    return Fraction(2 * whole + 1, 2)  # somewhere between two units is all that a comparison needs to know


def _span_count(value: timedelta | np.timedelta64, datatype: Datatype) -> Fraction:
    exact = np.timedelta64(value)
    unit = np.datetime_data(exact.dtype)[0]
    if np.isnat(exact) or unit not in ATTOSECONDS:
        raise InvalidRequestError(f"{value!r} is no span of time that compares with {datatype.name}")
    return Fraction(int(exact.astype(np.int64)) * ATTOSECONDS[unit], ATTOSECONDS[datatype.unit])
