"""Predicates over cells: what a `where` means once it is bound to a schema, and how it is decided.

A test never matches a null, and none but an IS NULL asks for one. A NaN matches no comparison either, `!=`
included: so reads, deletes and updates agree on which cells a condition is about.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from terrazzo.engine.buffers import binaries, binary, mask_of
from terrazzo.engine.columns import Column, Mask
from terrazzo.errors import CorruptionError, InvalidRequestError
from terrazzo.format.attribute import Attr
from terrazzo.format.condition import Combination, Combine, Compare, Condition, Op, negate
from terrazzo.format.datatypes import Datatype
from terrazzo.format.domain import Dim
from terrazzo.format.schema import Schema

Field = Attr | Dim
Columns = Mapping[str, Column]


@dataclass(frozen=True, slots=True)
class Test:
    """A comparison with stored bytes: of one value, or of each member for IN and NOT_IN."""

    op: Op
    field: str
    value: bytes = b""
    members: tuple[bytes, ...] | None = None

    __test__ = False  # not one of pytest's


@dataclass(frozen=True, slots=True)
class NullTest:
    field: str
    is_null: bool


@dataclass(frozen=True, slots=True)
class Constant:
    value: bool


@dataclass(frozen=True, slots=True)
class All:
    children: "tuple[Predicate, ...]"


@dataclass(frozen=True, slots=True)
class Some:
    children: "tuple[Predicate, ...]"


Predicate = Test | NullTest | Constant | All | Some
TRUE, FALSE = Constant(value=True), Constant(value=False)


def both(*children: Predicate) -> Predicate:
    """AND, without what is always true."""
    kept = [child for child in children if child != TRUE]
    if FALSE in kept:
        return FALSE
    return TRUE if not kept else kept[0] if len(kept) == 1 else All(tuple(kept))


def either(*children: Predicate) -> Predicate:
    """OR, without what is always false."""
    kept = [child for child in children if child != FALSE]
    if TRUE in kept:
        return TRUE
    return FALSE if not kept else kept[0] if len(kept) == 1 else Some(tuple(kept))


def fields_of(predicate: Predicate) -> frozenset[str]:
    match predicate:
        case Test(field=name) | NullTest(field=name):
            return frozenset({name})
        case All(children) | Some(children):
            return frozenset().union(*(fields_of(child) for child in children))
        case _:
            return frozenset()


def evaluate(predicate: Predicate, columns: Columns, schema: Schema, n: int) -> Mask:
    """Whether the predicate is true, cell by cell."""
    match predicate:
        case Constant(value):
            return np.full(n, value)
        case NullTest(name, is_null):
            validity = columns[name].validity
            if validity is None:
                return np.full(n, not is_null)
            return ~validity if is_null else validity.copy()
        case Test(op, name, value, members):
            column, field = columns[name], schema.field(name)
            mask = compare(column, field, op, value, _with_both_zeros(members, field))
            if field.datatype.is_float and op in {Op.NE, Op.NOT_IN}:
                mask &= ~np.isnan(column.values)
            return mask
        case All(children):
            mask = evaluate(children[0], columns, schema, n)
            for child in children[1:]:
                mask &= evaluate(child, columns, schema, n)
            return mask
        case Some(children):
            mask = evaluate(children[0], columns, schema, n)
            for child in children[1:]:
                mask |= evaluate(child, columns, schema, n)
            return mask


_NUMPY: dict[Op, Callable[[Any, Any], Any]] = {
    Op.LT: np.less, Op.LE: np.less_equal, Op.GT: np.greater, Op.GE: np.greater_equal,
    Op.EQ: np.equal, Op.NE: np.not_equal,
}  # fmt: skip
_ARROW = {
    Op.LT: "less", Op.LE: "less_equal", Op.GT: "greater", Op.GE: "greater_equal",
    Op.EQ: "equal", Op.NE: "not_equal",
}  # fmt: skip


def compare(column: Column, field: Field, op: Op, value: bytes, members: tuple[bytes, ...] | None) -> Mask:
    """One test as libtiledb decides it: false for nulls; IEEE rules for NaN."""
    if op in {Op.ALWAYS_TRUE, Op.ALWAYS_FALSE}:
        return np.full(len(column), op is Op.ALWAYS_TRUE)
    if is_bytes(field):
        mask = _compare_bytes(column, field, op, value, members)
    else:
        mask = _compare_numbers(column.values, field, op, value, members)
    return mask if column.validity is None else mask & column.validity


def is_bytes(field: Field) -> bool:
    """Whether cells compare as strings of bytes and not as numbers."""
    return field.is_var or field.cell_val_num > 1 or field.datatype.is_string


def _compare_numbers(
    values: NDArray[Any], field: Field, op: Op, value: bytes, members: tuple[bytes, ...] | None
) -> Mask:
    dtype = field.datatype.dtype
    if members is not None:
        wanted = np.array([number_of(member, field) for member in members], dtype)
        if dtype.kind == "f":
            # Quirk: libtiledb looks floats up by their bytes, so a set holds 0.0 without -0.0, and NaN.
            bits = f"<u{dtype.itemsize}"
            values, wanted = np.ascontiguousarray(values).view(bits), wanted.view(bits)
        mask = np.isin(values, wanted)
        return mask if op is Op.IN else ~mask
    return np.asarray(_NUMPY[op](values, dtype.type(number_of(value, field))))


def _with_both_zeros(members: tuple[bytes, ...] | None, field: Field) -> tuple[bytes, ...] | None:
    """A set of floats as SQL means it, for who looks members up by their bytes."""
    if members is None or not field.datatype.is_float:
        return members
    zeros = tuple(np.array(zero, field.datatype.dtype).tobytes() for zero in (0.0, -0.0))
    return tuple(dict.fromkeys((*members, *zeros))) if set(zeros) & set(members) else members


def number_of(value: bytes, field: Field) -> Any:
    if len(value) != field.datatype.size:
        raise CorruptionError(
            f"a condition compares {field.name!r} ({field.datatype.name}) with {len(value)} bytes"
        )
    return np.frombuffer(value, field.datatype.dtype)[0]


def _compare_bytes(
    column: Column, field: Field, op: Op, value: bytes, members: tuple[bytes, ...] | None
) -> Mask:
    if column.is_var:
        cells = column.binary()
    else:
        width = field.cell_val_num * field.datatype.size
        flat = pa.py_buffer(np.ascontiguousarray(column.values))
        cells = (
            pa.Array.from_buffers(pa.binary(width), len(column), [None, flat])
            .cast(pa.binary())
            .cast(pa.large_binary())
        )
    import pyarrow.compute as pc  # noqa: PLC0415  # takes a while to import, and few need it

    if members is not None:
        found = pc.is_in(cells, value_set=binaries(members))
        mask = mask_of(found)
        return mask if op is Op.IN else np.asarray(~mask)
    return mask_of(getattr(pc, _ARROW[op])(cells, binary(value)))


# -- predicates and stored conditions ------------------------------------------------------------------


def of_condition(node: Condition) -> Predicate:
    """The predicate that a stored tree spells, with our rules for nulls and NaN."""
    if isinstance(node, Compare):
        if node.op in {Op.ALWAYS_TRUE, Op.ALWAYS_FALSE}:
            return TRUE if node.op is Op.ALWAYS_TRUE else FALSE
        return Test(node.op, node.field, node.value, node.members)
    if node.combination is Combination.NOT:
        return of_condition(negate(node.children[0]))
    children = tuple(of_condition(child) for child in node.children)
    return both(*children) if node.combination is Combination.AND else either(*children)


def to_condition(predicate: Predicate, schema: Schema) -> Condition:
    """The tree to store, positive: a commit stores its negation.

    What libtiledb chokes on is spelled otherwise. Since no comparison is true of a null, "less than the least"
    is stored for IS NULL: its negation holds for all but nulls.
    """
    match predicate:
        case Test(op, name, value, members):
            if compares_first_only(schema.field(name)):
                if op in {Op.EQ, Op.NE}:
                    return Compare(Op.IN if op is Op.EQ else Op.NOT_IN, name, members=(value,))
            elif members is not None and len(members) == 1:
                return Compare(Op.EQ if op is Op.IN else Op.NE, name, members[0])
            return Compare(op, name, value, _with_both_zeros(members, schema.field(name)))
        case NullTest(name, is_null):
            never = _never(schema.field(name))
            return never if is_null else negate(never)
        case All(children) | Some(children):
            how = Combination.AND if isinstance(predicate, All) else Combination.OR
            return Combine(how, tuple(to_condition(child, schema) for child in children))
        case Constant(value):
            never = _never(schema.dims[0])
            return negate(never) if value else never


def compares_first_only(field: Field) -> bool:
    """Whether libtiledb compares the first character alone.

    # Quirk: so it does for CHAR of a fixed number (numpy's "S3"), as signed bytes; sets compare as a whole.
    """
    return field.datatype is Datatype.CHAR and not field.is_var and field.cell_val_num > 1


def _never(field: Field) -> Condition:
    """A test that is false of every value of a field."""
    if compares_first_only(field):
        some = (bytes(field.cell_val_num),)
        tests = Compare(Op.IN, field.name, members=some), Compare(Op.NOT_IN, field.name, members=some)
        return Combine(Combination.AND, tests)
    if is_bytes(field):
        return Compare(Op.LT, field.name, b"")
    dtype = field.datatype.dtype
    if dtype.kind == "f":
        zero = np.zeros(1, dtype).tobytes()
        return Combine(Combination.AND, (Compare(Op.EQ, field.name, zero), Compare(Op.NE, field.name, zero)))
    return Compare(Op.LT, field.name, np.array(np.iinfo(dtype).min, dtype).tobytes())


def check_testable(field: Field) -> None:
    """That cells of the field can be compared at all."""
    if field.datatype.is_string and not field.datatype.is_text:
        raise InvalidRequestError(
            f"{field.name!r} is {field.datatype.name}; only IS NULL and IS NOT NULL can test it"
        )
    if field.is_var and not (field.datatype.is_text or field.datatype is Datatype.BLOB):
        raise InvalidRequestError(
            f"{field.name!r} holds a list per cell; only IS NULL and IS NOT NULL can test it"
        )
    if field.cell_val_num > 1 and not field.is_var and not field.datatype.is_text:
        raise InvalidRequestError(
            f"{field.name!r} holds {field.cell_val_num} values per cell; only IS NULL and IS NOT NULL can test it"
        )
