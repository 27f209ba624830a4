"""What an array means, in plain Python: versions of cells and conditions by time, judged one at a time.

    which versions    those written in the window; without duplicates, per coordinates the one with the highest
                      (write time, fragment name), and no other, whatever becomes of it
    then              deletes and updates in order of (time, marker), those at or after the write time
    then              the condition of the caller

An update, and a caller's condition, follow SQL: a comparison with a null, or with a NaN, is neither true nor false.
A delete does what its stored form does, which also hits nulls, and most NaN: `stored_hits`. Cells that SQL would
keep are written again, one millisecond later: `spared`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Value = Any  # float, int, str, tuple of numbers, the number of a label, or None for null
Order = tuple[int, str]


@dataclass(frozen=True)
class Spec:
    """An attribute. Two attributes of a name hold the same cells if kind and nullability agree."""

    kind: str  # float64, int32, utf8, ascii, list, enum
    nullable: bool

    @property
    def fill(self) -> Value:
        if self.nullable:
            return None
        return {
            "float64": math.nan, "int32": -(2**31), "utf8": "\0", "ascii": "\0", "list": (-(2**15),), "enum": -128,
        }[self.kind]  # fmt: skip


Specs = Mapping[str, Spec]


# -- conditions ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Test:
    op: str  # < <= > >= = != in, not in, null, not null
    name: str
    value: Any = None

    __test__ = False


@dataclass(frozen=True)
class Node:
    how: str  # and, or
    children: tuple[Any, ...]


Tree = Test | Node | bool

_OPPOSITE = {
    "<": ">=", ">=": "<", ">": "<=", "<=": ">", "=": "!=", "!=": "=", "in": "not in", "not in": "in",
    "null": "not null", "not null": "null", "and": "or", "or": "and",
}  # fmt: skip


def negated(tree: Tree) -> Tree:
    if isinstance(tree, bool):
        return not tree
    if isinstance(tree, Test):
        return Test(_OPPOSITE[tree.op], tree.name, tree.value)
    return Node(_OPPOSITE[tree.how], tuple(negated(child) for child in tree.children))


def plain(tree: Tree, specs: Specs) -> Tree:
    """Without constants, without AND in AND and OR in OR. An attribute that cannot be null is never null."""
    if isinstance(tree, bool):
        return tree
    if isinstance(tree, Test):
        if tree.op in {"null", "not null"} and not (tree.name in specs and specs[tree.name].nullable):
            return tree.op == "not null"
        return tree
    children: list[Tree] = []
    for child in (plain(each, specs) for each in tree.children):
        children += child.children if isinstance(child, Node) and child.how == tree.how else (child,)
    decides = tree.how == "or"
    if decides in [child for child in children if isinstance(child, bool)]:
        return decides
    children = [child for child in children if not isinstance(child, bool)]
    return Node(tree.how, tuple(children)) if len(children) > 1 else children[0] if children else not decides


def names_of(tree: Tree) -> set[str]:
    if isinstance(tree, bool):
        return set()
    return {tree.name} if isinstance(tree, Test) else set().union(*map(names_of, tree.children))


def _compare(op: str, value: Value, wanted: Any) -> bool:
    if isinstance(value, str):
        value = value.encode()
        wanted = [w.encode() for w in wanted] if isinstance(wanted, tuple) else wanted.encode()
    match op:
        case "<":
            return value < wanted
        case "<=":
            return value <= wanted
        case ">":
            return value > wanted
        case ">=":
            return value >= wanted
        case "=":
            return value == wanted
        case "!=":
            return value != wanted
        case "in":
            return value in wanted
        case _:
            return value not in wanted


def _nothing(value: Value) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def truth(tree: Tree, cell: Mapping[str, Value]) -> bool | None:
    """SQL's answer: true, false or unknown."""
    if isinstance(tree, bool):
        return tree
    if isinstance(tree, Node):
        answers = [truth(child, cell) for child in tree.children]
        decides = tree.how == "or"
        return decides if decides in answers else None if None in answers else not decides
    value = cell[tree.name]
    if tree.op in {"null", "not null"}:
        return (value is None) == (tree.op == "null")
    return None if _nothing(value) else _compare(tree.op, value, tree.value)


def stored_hits(tree: Tree, cell: Mapping[str, Value], missing: set[str]) -> bool:
    """Whether a stored delete removes a cell: its stored opposite is not true of it."""
    return not _kept(negated(tree), cell, missing)


def _kept(stored: Tree, cell: Mapping[str, Value], missing: set[str]) -> bool:
    if isinstance(stored, bool):
        return stored
    if isinstance(stored, Test):
        return stored.name not in missing and _stored_test(stored, cell[stored.name])
    kept = stored.how == "and"
    for child in stored.children:
        if isinstance(child, Test) and child.name in missing:
            kept = False  # under an OR it also takes back what stood before it
        elif stored.how == "and":
            kept &= _kept(child, cell, missing)
        else:
            kept |= _kept(child, cell, missing)
    return kept


def _stored_test(stored: Test, value: Value) -> bool:
    # IS NULL is stored as a comparison that no value passes, so its opposite is true of all but nulls.
    if stored.op in {"null", "not null"}:
        return stored.op == "not null" and value is not None
    return value is not None and _compare(stored.op, value, stored.value)


# -- what happened -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    coords: tuple[Any, ...]
    values: Mapping[str, Value]


@dataclass(frozen=True, eq=False)
class Written:
    order: Order  # time and name of the fragment
    specs: Specs  # of the schema that it was written with
    cells: tuple[Cell, ...]
    where: Tree = False


@dataclass(frozen=True, eq=False)
class Changed:
    order: Order  # time and marker
    where: Tree
    specs: Specs
    values: Mapping[str, Value] | None  # None for a delete


Event = Written | Changed


@dataclass
class SchemaVersion:
    order: Order
    specs: dict[str, Spec]
    labels: tuple[str, ...]


@dataclass
class Log:
    """Everything that was committed, by anybody."""

    dims: tuple[str, ...]
    duplicates: bool
    schemas: list[SchemaVersion]
    events: list[Event] = field(default_factory=list)
    metadata: list[tuple[Order, str, Any]] = field(default_factory=list)  # None removes a key

    def schema_at(self, at_ms: int) -> SchemaVersion:
        ordered = sorted(self.schemas, key=lambda schema: schema.order)
        return ([schema for schema in ordered if schema.order[0] <= at_ms] or ordered[:1])[-1]

    def metadata_at(self, since_ms: int, at_ms: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for (time_ms, _), key, value in sorted(self.metadata, key=lambda item: item[0]):
            if since_ms <= time_ms <= at_ms:
                found.pop(key, None)
                if value is not None:
                    found[key] = value
        return found

    def rows(
        self, events: Iterable[Event], specs: Specs, since_ms: int, at_ms: int, where: Tree = True
    ) -> list[dict[str, Value]]:
        """The cells between two instants, as a reader of the schema `specs` sees them."""
        inside = [event for event in events if since_ms <= event.order[0] <= at_ms]
        changes = sorted((e for e in inside if isinstance(e, Changed)), key=lambda e: e.order)
        wide = {**self._dropped(changes, specs), **specs}
        found = []
        for order, cell, held in self._winners(e for e in inside if isinstance(e, Written)):
            coords = dict(zip(self.dims, cell.coords, strict=True))
            later = [change for change in changes if change.order[0] >= order[0]]
            values = _judged(cell, coords, held, wide, later)
            if values is not None:
                row = {**coords, **{name: values[name] for name in specs}}
                if truth(where, row):
                    found.append(row)
        return found

    def _winners(self, fragments: Iterable[Written]) -> list[tuple[Order, Cell, Specs]]:
        versions = [(f.order, cell, f.specs) for f in fragments for cell in f.cells]
        if self.duplicates:
            return versions
        newest: dict[tuple[Any, ...], tuple[Order, Cell, Specs]] = {}
        for version in sorted(versions, key=lambda version: version[0]):
            newest[version[1].coords] = version
        return list(newest.values())

    def _dropped(self, changes: Sequence[Changed], specs: Specs) -> dict[str, Spec]:
        """Attributes that a condition tests and the schema no longer has, or does not have yet."""
        tested = set().union(*(names_of(change.where) for change in changes)) - {*specs, *self.dims}
        found: dict[str, Spec] = {}
        for schema in sorted(self.schemas, key=lambda schema: schema.order):
            found |= {name: spec for name, spec in schema.specs.items() if name in tested}
        return found

    def spared(
        self, events: Iterable[Event], specs: Specs, where: Tree, time_ms: int
    ) -> list[dict[str, Value]]:
        """Cells that the stored form of a delete hits and SQL keeps."""
        rows = self.rows(events, specs, 0, time_ms)
        return [row for row in rows if stored_hits(where, row, set()) and not truth(where, row)]

    def as_cells(self, rows: Iterable[Mapping[str, Value]]) -> tuple[Cell, ...]:
        return tuple(
            Cell(tuple(row[d] for d in self.dims), {n: v for n, v in row.items() if n not in self.dims})
            for row in rows
        )


def _judged(
    cell: Cell, coords: Mapping[str, Value], held: Specs, wide: Specs, changes: Sequence[Changed]
) -> dict[str, Value] | None:
    """The values of a cell after the changes; None once it is deleted."""
    missing = {name for name, spec in wide.items() if held.get(name) != spec}
    values = {name: spec.fill if name in missing else cell.values[name] for name, spec in wide.items()}
    for change in changes:
        row = {**coords, **values}
        if change.values is None:
            if stored_hits(change.where, row, missing):
                return None
        elif truth(change.where, row):
            for name, value in change.values.items():
                if name in wide and change.specs[name] == wide[name]:
                    values[name] = value
                    missing.discard(name)
    return values
