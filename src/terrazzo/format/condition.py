"""The condition tree and its stored form; neither parsed from text nor evaluated here.
Spec: format_spec/delete_commit_file.md.

    combination   u8 0 · u8 AND, OR or NOT · u64 children · the children
    comparison    u8 1 · u8 operator · str32 field · u64 size · value
                  IN and NOT_IN: the members end to end as the value, then u64 size · u64 offsets

A value is the bytes of one cell; one of no bytes tests for null, or for the empty text: they look the same.
Commits store the *negation* of what they match; `commits.py` knows that, this module does not care.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import pairwise

import numpy as np

from terrazzo.errors import CorruptionError, InvalidRequestError
from terrazzo.format.wire import Cursor, Writer

DEEPEST = 200
"""Levels that a stored tree may have: nobody writes them, and damage must not exhaust the stack."""

_COMBINATION, _COMPARISON = 0, 1
_SMALLEST_NODE = 10


class Op(IntEnum):
    LT = 0
    LE = 1
    GT = 2
    GE = 3
    EQ = 4
    NE = 5
    IN = 6
    NOT_IN = 7
    ALWAYS_TRUE = 253
    ALWAYS_FALSE = 254

    @property
    def negated(self) -> "Op":
        return _NEGATED[self]

    @property
    def takes_members(self) -> bool:
        return self in {Op.IN, Op.NOT_IN}


_PAIRS = (
    (Op.LT, Op.GE), (Op.GT, Op.LE), (Op.EQ, Op.NE), (Op.IN, Op.NOT_IN), (Op.ALWAYS_TRUE, Op.ALWAYS_FALSE),
)  # fmt: skip
_NEGATED = {a: b for one, other in _PAIRS for a, b in ((one, other), (other, one))}


class Combination(IntEnum):
    AND = 0
    OR = 1
    NOT = 2


@dataclass(frozen=True, slots=True)
class Compare:
    """One test of one field; `members` instead of `value` for IN and NOT_IN."""

    op: Op
    field: str
    value: bytes = b""
    members: tuple[bytes, ...] | None = None

    def __post_init__(self) -> None:
        if self.op.takes_members != (self.members is not None) or (self.members is not None and self.value):
            raise InvalidRequestError(
                f"{self.op.name} does not go with the value of the test of {self.field!r}"
            )

    @property
    def fields(self) -> frozenset[str]:
        return frozenset({self.field})


@dataclass(frozen=True, slots=True)
class Combine:
    combination: Combination
    children: "tuple[Condition, ...]"

    def __post_init__(self) -> None:
        if not self.children or (self.combination is Combination.NOT and len(self.children) != 1):
            raise InvalidRequestError(f"{self.combination.name} of {len(self.children)} conditions")

    @property
    def fields(self) -> frozenset[str]:
        """The names of every field tested below."""
        return frozenset().union(*(child.fields for child in self.children))


Condition = Compare | Combine


def negate(node: Condition) -> Condition:
    """The opposite, with the negation carried down to the tests; applied twice it gives `node` again."""
    if isinstance(node, Compare):
        return replace(node, op=node.op.negated)
    children = tuple(negate(child) for child in node.children)
    match node.combination:
        case Combination.AND:
            return Combine(Combination.OR, children)
        case Combination.OR:
            return Combine(Combination.AND, children)
        case Combination.NOT:
            return Combine(Combination.NOT, children)


def flatten(node: Condition) -> Condition:
    """The same tree without what libtiledb cannot read: NOT, combinations of one, AND in AND, OR in OR."""
    # Quirk: libtiledb gives wrong answers for OR directly inside OR, and refuses NOT and one-child nodes.
    if isinstance(node, Compare):
        return node
    if node.combination is Combination.NOT:
        return flatten(negate(node.children[0]))
    children: list[Condition] = []
    for child in _same_level(node):
        flat = flatten(child)
        if isinstance(flat, Combine) and flat.combination is node.combination:
            children.extend(flat.children)
        else:
            children.append(flat)
    return children[0] if len(children) == 1 else Combine(node.combination, tuple(children))


def _same_level(node: Combine) -> Iterator[Condition]:
    """Children, and those of children that combine in the same way; without recursion, because
    `a OR b OR c …` arrives as a chain as deep as it is long."""
    pending = [*reversed(node.children)]
    while pending:
        child = pending.pop()
        if isinstance(child, Combine) and child.combination is node.combination:
            pending.extend(reversed(child.children))
        else:
            yield child


def pack_condition(node: Condition, writer: Writer, *, depth: int = 0) -> None:
    if depth >= DEEPEST:
        raise InvalidRequestError(f"a condition of more than {DEEPEST} levels")
    if isinstance(node, Combine):
        writer.u8(_COMBINATION)
        writer.u8(node.combination)
        writer.u64(len(node.children))
        for child in node.children:
            pack_condition(child, writer, depth=depth + 1)
        return
    writer.u8(_COMPARISON)
    writer.u8(node.op)
    writer.str32(node.field)
    if node.members is None:
        writer.bytes64(node.value)
        return
    writer.bytes64(b"".join(node.members))
    sizes = np.fromiter(map(len, node.members), "<u8", len(node.members))
    writer.bytes64((np.cumsum(sizes, dtype="<u8") - sizes).tobytes())


def unpack_condition(cursor: Cursor, *, depth: int = 0) -> Condition:
    """Read a tree; the cursor is left behind it, where an update has its assignments."""
    start = cursor.offset
    if depth >= DEEPEST:
        raise CorruptionError(f"a condition of more than {DEEPEST} levels", offset=start)
    match cursor.u8():
        case 0:
            return _unpack_combination(cursor, depth)
        case 1:
            return _unpack_comparison(cursor)
        case kind:
            raise CorruptionError(f"there is no condition node of kind {kind}", offset=start)


def _unpack_combination(cursor: Cursor, depth: int) -> Combine:
    start = cursor.offset
    code = cursor.u8()
    n_children = cursor.count64(_SMALLEST_NODE, "conditions")
    if code > Combination.NOT or not n_children or (code == Combination.NOT and n_children != 1):
        raise CorruptionError(f"combination {code} of {n_children} conditions", offset=start)
    return Combine(
        Combination(code), tuple(unpack_condition(cursor, depth=depth + 1) for _ in range(n_children))
    )


def _unpack_comparison(cursor: Cursor) -> Compare:
    start = cursor.offset
    try:
        op = Op(cursor.u8())
    except ValueError:
        raise CorruptionError("unknown operator in a condition", offset=start) from None
    field, value = cursor.str32(), cursor.bytes64()
    if not op.takes_members:
        return Compare(op, field, value)
    start = cursor.offset
    size = cursor.u64()
    if size % 8:
        raise CorruptionError(f"{size} bytes of u64 offsets", offset=start)
    edges = np.append(cursor.array("<u8", size // 8), np.uint64(len(value)))
    if edges[0] != 0 or (edges[1:] < edges[:-1]).any():
        raise CorruptionError("the offsets of a set do not rise from 0 to its size", offset=start)
    bounds = edges.tolist()
    return Compare(op, field, b"", tuple(value[a:b] for a, b in pairwise(bounds)))
