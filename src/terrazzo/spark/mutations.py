"""INSERT, DELETE and UPDATE: Spark's meaning of each, one commit."""

from typing import Any

from pyspark.sql import functions as F  # noqa: N812
from sqlglot import exp

from terrazzo.engine.basis import Basis, committed
from terrazzo.engine.plan import Request
from terrazzo.engine.where import parse_where
from terrazzo.errors import InvalidRequestError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.schema import Schema
from terrazzo.spark.casting import column, fitted, quoted
from terrazzo.spark.conditions import NOTHING, Pushed, Translator, field_named, is_value, value_of
from terrazzo.spark.demand import demand, owned_by
from terrazzo.spark.frames import frame_of, frame_of_request
from terrazzo.spark.outcome import ACTION, DELETE, KEEP, SOURCES, UPDATE, MergeResult, apply_outcome
from terrazzo.spark.queries import demands, is_utc, query, run
from terrazzo.spark.references import Statement, parsed
from terrazzo.spark.rewriting import update_by_rewriting, written_region
from terrazzo.spark.types import struct_of

_NEW = "__terrazzo_new"


def sql_of(node: Any) -> str:
    return str(node.sql("spark"))


def with_clause(node: Any) -> str:
    """The WITH in front of a statement."""
    found = node.args.get("with_") or node.args.get("with")
    return f"{sql_of(found)} " if found is not None else ""


# -- INSERT --------------------------------------------------------------------------------------------


def insert(statement: Statement, node: Any) -> Any:
    for part in ("partition", "where", "exists", "conflict", "returning"):
        if node.args.get(part):
            raise InvalidRequestError(
                f"INSERT with {part.upper()} is not understood for arrays; write a plain INSERT"
            )
    table = node.this.this if isinstance(node.this, exp.Schema) else node.this
    array = statement.found[table.name].open(statement.spark)
    array.array.latest()
    schema = array.schema
    rows = query(statement, with_clause(node) + sql_of(node.expression))
    listed = [each.name for each in node.this.expressions] if isinstance(node.this, exp.Schema) else None
    frame = _placed(rows, listed, schema, by_name=bool(node.args.get("by_name")))
    written = array.write(frame, overwrite=bool(node.args.get("overwrite")))
    return counts(statement.spark, affected=written.n_cells, inserted=written.n_cells)


def _placed(rows: Any, listed: list[str] | None, schema: Schema, *, by_name: bool) -> Any:
    """The rows as columns of the array: by position, as SQL has it, or by name."""
    names = rows.columns if by_name else listed if listed is not None else [f.name for f in schema.fields]
    if len(names) != len(rows.columns):
        raise InvalidRequestError(
            f"INSERT: the query has {len(rows.columns)} columns, and {len(names)} are to be filled: {', '.join(names)}"
        )
    found: dict[str, str] = {}
    for place, name in enumerate(names):
        each = field_named(name, schema) or schema.field(name)
        if each.name in found:
            raise InvalidRequestError(f"INSERT: the column {name!r} is named twice")
        found[each.name] = f"{_NEW}{place}"
    rows = rows.toDF(*(f"{_NEW}{place}" for place in range(len(names))))
    values = {}
    for each in schema.fields:
        if each.name in found:
            values[each.name] = column(found[each.name])
        elif each.nullable:
            values[each.name] = F.lit(None)
        else:
            raise InvalidRequestError(f"INSERT: there is no value for {each.name!r}, which is not nullable")
    made = fitted(rows, values, schema, "INSERT")
    return rows.select(*(each.alias(name) for name, each in made.items()))


# -- DELETE and UPDATE ---------------------------------------------------------------------------------


def _target(statement: Statement, node: Any) -> tuple[Any, str, Pushed]:
    """The array, what it is called, and what of the condition the engine can test."""
    array = statement.found[node.this.name].open(statement.spark)
    array.array.latest()
    alias = node.this.alias or node.this.name
    where = node.args.get("where")
    if where is None:
        return array, alias, Pushed(None, exact=True)
    translator = Translator(array.schema, owned_by(alias, array.schema), is_utc(statement.spark))
    return array, alias, translator.translate(where.this)


def delete(statement: Statement, node: Any) -> Any:
    array, alias, pushed = _target(statement, node)
    if array.schema.dense:
        raise InvalidRequestError(
            "a dense array has a value in every cell: set its cells with UPDATE instead of deleting them"
        )
    if pushed.exact:
        where = pushed.text or "TRUE"
        n = array.count(where)
        if n:
            array.delete(where)
    else:
        n = _by_spark(statement, node, array, alias, pushed, {}).deleted
    return counts(statement.spark, affected=n, deleted=n)


def update(statement: Statement, node: Any) -> Any:
    array, alias, pushed = _target(statement, node)
    if node.args.get("from_") or node.args.get("from"):
        raise InvalidRequestError(
            "UPDATE … FROM is not understood; write MERGE INTO … WHEN MATCHED THEN UPDATE"
        )
    given = {}
    for each in node.expressions:
        target = each.this
        found = field_named(target.name, array.schema) or array.schema.field(target.name)
        if any(dim.name == found.name for dim in array.schema.dims):
            raise InvalidRequestError(
                f"{found.name!r} is a dimension: the place of a cell cannot be updated; delete and insert"
            )
        given[found.name] = each.expression
    constants = {name: _constant(value, array.schema.attr(name)) for name, value in given.items()}
    subqueries = any(value.find(exp.Query) for value in given.values())
    if pushed.exact and all(is_value(value) for value in constants.values()):
        n = array.count(pushed.text)
        if n:
            array.update(constants, pushed.text)
    elif pushed.exact and not subqueries:
        values = {name: F.expr(_unqualified(value, alias)) for name, value in given.items()}
        n = update_by_rewriting(statement.spark, array.array, values, pushed.text)
    else:
        n = _by_spark(statement, node, array, alias, pushed, given).updated
    return counts(statement.spark, affected=n, updated=n)


def _constant(node: Any, attr: Any) -> Any:
    """The value of a literal, if the engine takes it for the attribute as Spark does."""
    value = value_of(node)
    datatype = attr.datatype
    if attr.cell_val_num != 1 and not (attr.is_var and datatype.is_text):
        return NOTHING
    match value:
        case bool():
            fits = datatype is Datatype.BOOL
        case int():
            fits = (datatype.is_integer or datatype.is_float) and attr.enum is None
        case str():
            fits = datatype.is_text or attr.enum is not None
        case None:
            fits = attr.nullable
        case _:
            fits = datatype.is_float and is_value(value) and not hasattr(value, "year") and attr.enum is None
            value = float(value) if fits else value
    return value if fits else NOTHING


def _unqualified(node: Any, alias: str) -> str:
    """The expression with bare names: it is evaluated over the cells alone."""
    node = node.copy()
    for each in list(node.find_all(exp.Column)):
        if each.table.casefold() == alias.casefold():
            each.set("table", None)
    return sql_of(node)


def _by_spark(
    statement: Statement, node: Any, array: Any, alias: str, pushed: Pushed, given: dict[str, Any]
) -> MergeResult:
    """A change of the cells that Spark selects, whatever the condition."""
    spark = statement.spark
    ledger = committed(array.array.view.store)
    basis = Basis.of(array.array.latest(), ledger)
    schema = basis.view.schema
    if schema.dense and not basis.view.snapshot.fragments:
        return MergeResult(0, 0, 0)
    name, alias = node.this.name, quoted(alias)
    fields, dims = [field.name for field in schema.fields], [dim.name for dim in schema.dims]
    whole = bool(given) or schema.allows_duplicates
    new = [f"{sql_of(value)} AS {_NEW}{place}" for place, value in enumerate(given.values())]
    shown = [f"{alias}.{quoted(each)}" for each in (fields if whole else dims)] + new
    where = node.args.get("where")
    hit = "" if where is None else f" WHERE {sql_of(where.this)}"
    text = f"{with_clause(node)}SELECT {', '.join(shown)} FROM {name} AS {alias}{hit}"  # noqa: S608
    frames = {
        key: frame_of(spark, statement.view(reference), each.columns, each.where)
        for key, (reference, each) in demands(statement, text).items()
        if key != name
    }
    wanted = demand(parsed(text), name, schema, utc=is_utc(spark))
    predicate = None if pushed.text is None else parse_where(pushed.text, schema)
    frames[name] = frame_of_request(
        spark, basis.view, Request(wanted.columns, written_region(basis.view), predicate)
    )
    hits = run(spark, text, frames)
    made = fitted(
        hits, {each: column(f"{_NEW}{place}") for place, each in enumerate(given)}, schema, "UPDATE"
    )
    types = {each.name: each.dataType for each in struct_of(schema, fields)}
    outcome = hits.select(
        *(
            (made[each] if each in made else column(each) if whole or each in dims else F.lit(None).cast(types[each]))
            .alias(each)
            for each in fields
        ),
        F.lit(UPDATE if given else DELETE).alias(ACTION),
    )  # fmt: skip
    if schema.allows_duplicates:
        # Cells beside those that were hit, at the same places: they are deleted with them and written again.
        cells = hits.select(*map(column, fields))
        near = frame_of(spark, basis.view).join(
            cells.select(*map(column, dims)).distinct(), dims, "left_semi"
        )
        kept = near.select(*map(column, fields)).exceptAll(cells)
        outcome = outcome.unionByName(kept.withColumn(ACTION, F.lit(KEEP)))
    outcome = outcome.withColumn(SOURCES, F.lit(1))
    return apply_outcome(spark, basis, outcome)


def counts(spark: Any, **numbers: int) -> Any:
    """One row of counts, under the names that Delta gives them."""
    names = [f"num_{what}_rows" for what in numbers]
    return spark.createDataFrame([tuple(numbers.values())], ", ".join(f"{name} bigint" for name in names))
