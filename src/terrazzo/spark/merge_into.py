"""MERGE INTO: the clauses of SQL for `SparkArray.merge`."""

from typing import Any

from sqlglot import exp

from terrazzo.errors import InvalidRequestError
from terrazzo.format.schema import Schema
from terrazzo.spark.conditions import conjuncts
from terrazzo.spark.merging import Merge
from terrazzo.spark.mutations import counts, sql_of, with_clause
from terrazzo.spark.queries import query
from terrazzo.spark.references import Statement


def merge(statement: Statement, node: Any) -> Any:
    array = statement.found[node.this.name].open(statement.spark)
    array.array.latest()
    target = node.this.alias or node.this.name
    using = node.args["using"]
    source = using.alias or getattr(using, "name", "") or "source"
    rows = query(statement, f"{with_clause(node)}SELECT * FROM {sql_of(using)}")  # noqa: S608
    on = _coordinates(node.args["on"], array.schema, target)
    made = Merge(array, rows, on, (target, source))
    whens = node.args["whens"].expressions if node.args.get("whens") else node.expressions
    for when in whens:
        made = _clause(made, when, array.schema)
    done = made.execute()
    return counts(
        statement.spark, affected=done.inserted + done.updated + done.deleted, updated=done.updated,
        deleted=done.deleted, inserted=done.inserted,
    )  # fmt: skip


def _coordinates(on: Any, schema: Schema, target: str) -> dict[str, Any]:
    """What gives each dimension, out of `t.x = s.a AND t.y = s.b`."""
    found: dict[str, Any] = {}
    dims = {dim.name.casefold(): dim.name for dim in schema.dims}
    for each in conjuncts(on):
        sides = [each.this, each.expression] if isinstance(each, exp.EQ) else []
        own = [
            side for side in sides
            if isinstance(side, exp.Column) and side.table.casefold() == target.casefold()
            and side.name.casefold() in dims
        ]  # fmt: skip
        if len(own) != 1 or dims[own[0].name.casefold()] in found:
            wanted = " AND ".join(f"{target}.{dim.name} = …" for dim in schema.dims)
            raise InvalidRequestError(
                f"MERGE … ON {sql_of(each)!r}: cells are found by their coordinates; write ON {wanted}, and other "
                f"conditions behind WHEN MATCHED AND"
            )
        other = sides[1] if own[0] is sides[0] else sides[0]
        found[dims[own[0].name.casefold()]] = sql_of(other)
    if lacking := [dim.name for dim in schema.dims if dim.name not in found]:
        raise InvalidRequestError(f"MERGE … ON lacks the dimensions {', '.join(map(repr, lacking))}")
    return found


def _clause(made: Merge, when: Any, schema: Schema) -> Merge:
    condition = None if when.args.get("condition") is None else sql_of(when.args["condition"])
    then, by_source = when.args["then"], bool(when.args.get("source"))
    matched = bool(when.args.get("matched"))
    if isinstance(then, exp.Var) and then.name.upper() == "DELETE":
        return (
            made.when_matched_delete(condition)
            if matched
            else made.when_not_matched_by_source_delete(condition)
        )
    if isinstance(then, exp.Update):
        if any(isinstance(each, exp.Star) for each in then.expressions):
            held = {name.casefold() for name in made.source.columns}
            if lacking := [attr.name for attr in schema.attrs if attr.name.casefold() not in held]:
                raise InvalidRequestError(f"UPDATE SET *: the source lacks {', '.join(map(repr, lacking))}")
            return made.when_matched_update(None, condition)
        values = {each.this.name: sql_of(each.expression) for each in then.expressions}
        if matched:
            return made.when_matched_update(values, condition)
        return made.when_not_matched_by_source_update(values, condition)
    if isinstance(then, exp.Insert) and not matched and not by_source:
        if isinstance(then.this, exp.Star) or then.this is None:
            return made.when_not_matched_insert(None, condition)
        names = [each.name for each in then.this.expressions]
        values = dict(zip(names, map(sql_of, then.expression.expressions), strict=True))
        return made.when_not_matched_insert(values, condition)
    raise InvalidRequestError(f"MERGE: {sql_of(when)!r} is not understood")
