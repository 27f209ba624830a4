"""The words that a case is written in: what is done to an array, when, and what is then asked of it.

A cell is the bytes that are stored for it, or None for a null; the cell of an enumerated attribute is the bytes
of its label. So both libraries, and the model, are compared in one currency, and NaN equals itself.
"""

from dataclasses import dataclass, field
from typing import Any

from terrazzo import Schema
from terrazzo.format.attribute import Attr
from terrazzo.format.condition import Op

Cell = bytes | None
Columns = dict[str, list[Cell]]
Row = tuple[Cell, ...]


# -- conditions: as the user means them, before any library has rewritten them ----------------------------


@dataclass(frozen=True, slots=True)
class Test:
    op: Op
    field: str
    value: bytes

    __test__ = False


@dataclass(frozen=True, slots=True)
class Member:
    op: Op  # IN or NOT_IN
    field: str
    members: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Null:
    field: str
    is_null: bool


@dataclass(frozen=True, slots=True)
class Joined:
    how: str  # "AND" or "OR"
    children: "tuple[Condition, ...]"


@dataclass(frozen=True, slots=True)
class Not:
    child: "Condition"


Condition = Test | Member | Null | Joined | Not


def fields_of(condition: Condition | None) -> set[str]:
    match condition:
        case None:
            return set()
        case Joined(children=children):
            return set().union(*map(fields_of, children))
        case Not(child):
            return fields_of(child)
        case Test(field=name) | Member(field=name) | Null(field=name):
            return {name}


# -- operations: each one commit, each with the schema that was in force ----------------------------------

Box = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Write:
    at: int
    schema: Schema = field(repr=False)
    cells: Columns
    box: Box | None = None  # dense: the cells are those of the box, in row-major order


@dataclass(frozen=True, slots=True)
class Delete:
    at: int
    schema: Schema = field(repr=False)
    where: Condition


@dataclass(frozen=True, slots=True)
class Update:
    at: int
    schema: Schema = field(repr=False)
    where: Condition
    values: dict[str, Cell]


@dataclass(frozen=True, slots=True)
class Evolve:
    at: int
    schema: Schema = field(repr=False)  # as it is afterwards
    add: tuple[Attr, ...] = ()
    drop: tuple[str, ...] = ()
    extend: dict[str, list[Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Put:
    """Metadata set, and as None removed."""

    at: int
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Maintain:
    """Consolidation by libtiledb, and perhaps the vacuum after it. It has no instant: it changes no cell."""

    mode: str  # fragments, commits, fragment_meta, array_meta
    vacuum: bool


Operation = Write | Delete | Update | Evolve | Put | Maintain


@dataclass(frozen=True, slots=True)
class Window:
    """What a reader looks at; `at=None` is now, `since=0` the beginning."""

    at: int | None = None
    since: int = 0


Ranges = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Query:
    """`region`: per dimension ranges with both ends included; a point is a range of one."""

    columns: tuple[str, ...]
    region: dict[str, Ranges] = field(default_factory=dict)
    where: Condition | None = None
    layout: str = "unordered"


@dataclass(frozen=True, slots=True)
class Case:
    seed: int
    schema: Schema
    operations: list[Operation]
    windows: list[Window]
    pools: list[list[bytes]] = field(repr=False)  # coordinates in use, per dimension
