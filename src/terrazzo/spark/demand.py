"""What a query wants of one of its tables: the columns that it names, and conditions that speak of it alone.

Both are savings only. The query keeps its conditions, so that too little said here costs time and never a row; where
a query is not understood, it wants everything.
"""

from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from terrazzo.format.schema import Schema
from terrazzo.spark.conditions import Translator, conjuncts, field_named

_INNER = {"", "INNER", "CROSS"}


@dataclass(frozen=True, slots=True)
class Demand:
    columns: tuple[str, ...]
    where: str | None = None


def demand(tree: Any, name: str, schema: Schema, *, utc: bool) -> Demand:
    """What a query wants of the table that it calls `name`."""
    whole = Demand(tuple(field.name for field in schema.fields))
    tables = [] if tree is None else [each for each in tree.find_all(exp.Table) if each.name == name]
    if len(tables) != 1:
        return whole
    table = tables[0]
    select = table.parent.parent if isinstance(table.parent, (exp.From, exp.Join)) else None
    odd = any(table.args.get(part) for part in ("joins", "pivots", "sample", "laterals"))
    named = table.args.get("alias")
    if not isinstance(select, exp.Select) or odd or (named is not None and named.args.get("columns")):
        return whole
    joins = select.args.get("joins") or []
    if any(_text(join, "method") for join in joins):  # NATURAL and their like name no columns
        return whole
    alias = (table.alias or name).casefold()
    where = _conditions(table, select, joins, alias, schema, utc=utc)
    if _has_star(select, alias):
        return Demand(whole.columns, where)
    return Demand(_used(tree, alias, schema), where)


def _text(node: Any, part: str) -> str:
    return str(node.args.get(part) or "").upper()


def _has_star(select: Any, alias: str) -> bool:
    for star in select.find_all(exp.Star):
        if star.find_ancestor(exp.Select) is not select or isinstance(star.parent, exp.Count):
            continue
        if not isinstance(star.parent, exp.Column) or star.parent.table.casefold() in {alias, ""}:
            return True
    return False


def _used(tree: Any, alias: str, schema: Schema) -> tuple[str, ...]:
    """Fields whose name occurs anywhere, but for names that are said to be of another table."""
    names = set()
    for word in tree.find_all(exp.Identifier):
        holder = word.parent
        elsewhere = (
            isinstance(holder, exp.Column)
            and holder.this is word
            and holder.table.casefold() not in {alias, ""}
        )
        if not elsewhere:
            names.add(word.name.casefold())
    used = tuple(field.name for field in schema.fields if field.name.casefold() in names)
    return used or (schema.dims[0].name,)


def _conditions(
    table: Any, select: Any, joins: list[Any], alias: str, schema: Schema, *, utc: bool
) -> str | None:
    """Those that a row of the table has to meet to count for anything."""
    found: list[Any] = []
    own = next((place for place, join in enumerate(joins) if join.this is table), None)
    where = select.args.get("where")
    later = joins if own is None else joins[own + 1 :]
    kept = own is None or (
        _text(joins[own], "side") in {"", "RIGHT"} and _text(joins[own], "kind") in {*_INNER, "OUTER"}
    )
    # A join that fills up with nulls what finds no partner must see all rows there are.
    if where is not None and kept and not any(_text(join, "side") in {"RIGHT", "FULL"} for join in later):
        found += conjuncts(where.this)
    if all(not _text(join, "side") and _text(join, "kind") in _INNER for join in joins):
        found += [each for join in joins if join.args.get("on") for each in conjuncts(join.args["on"])]
    elif own is not None and _text(joins[own], "side") in {"", "LEFT"} and joins[own].args.get("on"):
        found += conjuncts(joins[own].args["on"])
    bare = not select.args.get("laterals") and not any(isinstance(join.this, exp.Lateral) for join in joins)

    def owns(column: Any) -> bool:
        if column.args.get("db"):
            return False
        return column.table.casefold() == alias or (not column.table and bare)

    translator = Translator(schema, owns, utc)
    texts = [text for each in found if (text := translator.translate(each).text) is not None]
    return " AND ".join(f"({text})" for text in texts) or None


def owned_by(alias: str, schema: Schema) -> Any:
    """Columns of a statement about one table."""
    return lambda column: (
        column.table.casefold() in {alias.casefold(), ""} and field_named(column.name, schema) is not None
    )
