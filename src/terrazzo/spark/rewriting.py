"""Updates that write cells again: by expressions that Spark evaluates, or for readers that know no updates."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F  # noqa: N812

from terrazzo.engine.basis import Basis, committed
from terrazzo.engine.clock import new_name
from terrazzo.engine.columns import Column
from terrazzo.engine.commit import condition_record
from terrazzo.engine.delete import delete_body, may_spare, spared_cells
from terrazzo.engine.plan import Request
from terrazzo.engine.predicate import FALSE, TRUE, Predicate, fields_of
from terrazzo.engine.region import Region, everything
from terrazzo.engine.select import union_box
from terrazzo.engine.session import check_names
from terrazzo.engine.update import Values, assigned, cell_values
from terrazzo.engine.view import View
from terrazzo.engine.where import parse_where
from terrazzo.errors import InvalidRequestError
from terrazzo.format.commits import DeleteCommit
from terrazzo.format.keys import CommitKind
from terrazzo.format.ledgers import Record
from terrazzo.format.schema import Schema
from terrazzo.spark.casting import column, fitted
from terrazzo.spark.failures import telling
from terrazzo.spark.frames import frame_of_request
from terrazzo.spark.ingest import run_bulk_write
from terrazzo.spark.outcome import write_dense

Cells = dict[str, Column]


@dataclass(frozen=True, slots=True)
class Assigned:
    """Cells with constants set."""

    values: Values
    schema: Schema

    def __call__(self, columns: Cells) -> Cells:
        return assigned(columns, self.values, self.schema)


@dataclass(frozen=True, slots=True)
class Spared:
    """Cells that a stored delete hits although nobody asked for it."""

    where: Predicate
    body: DeleteCommit
    schema: Schema

    def __call__(self, columns: Cells) -> Cells | None:
        return spared_cells(columns, self.where, self.body, self.schema)


def update_by_rewriting(
    spark: Any, array: Any, values: Mapping[str, Any], where: str | None, at: object = None
) -> int:
    """Write the cells that match again, with their new values, under one commit; how many there were."""
    ledger = committed(array.view.store)
    view = array.latest()
    schema = view.schema
    if not values:
        raise InvalidRequestError("an update needs at least one value to set")
    for name in values:
        if any(dim.name == name for dim in schema.dims):
            raise InvalidRequestError(
                f"{name!r} is a dimension: the place of a cell cannot be updated; delete and write"
            )
        schema.attr(name)  # says which there are
    predicate = TRUE if where is None else parse_where(where, schema)
    basis = Basis.of(view, ledger, at)
    if predicate == FALSE or not basis.view.snapshot.fragments:
        return 0
    check_names(view, {*values, *fields_of(predicate)}, basis.time_ms)
    if schema.dense and basis.time_ms <= view.snapshot.newest_ms:
        raise InvalidRequestError(
            f"a dense update writes whole tiles again as they are now: it cannot be dated {basis.time_ms}, before "
            f"the latest commit at {view.snapshot.newest_ms}"
        )
    cells = _changed(spark, basis.view, values, predicate)
    with telling():
        if schema.dense:
            cells = cells.persist()
            try:
                write_dense(spark, basis, cells)
                return int(cells.count())
            finally:
                cells.unpersist()
        return _commit(spark, basis, cells, predicate)


def _changed(spark: Any, view: View, values: Mapping[str, Any], where: Predicate) -> Any:
    """The matching cells with their new values."""
    schema = view.schema
    names = tuple(field.name for field in schema.fields)
    request = Request(names, written_region(view), where)
    if schema.sparse and not any(isinstance(value, SparkColumn) for value in values.values()):
        return frame_of_request(spark, view, request, change=Assigned(cell_values(values, schema), schema))
    cells = frame_of_request(spark, view, request)
    given = {name: _as_column(name, value) for name, value in values.items()}
    new = fitted(cells, given, schema, "update")
    return cells.select(*(new[name].alias(name) if name in new else column(name) for name in names))


def written_region(view: View) -> Region:
    """Everything; of a dense array, as far as it was written."""
    region = everything(view.schema)
    if view.schema.dense:
        for j, bound in enumerate(union_box(view.snapshot.fragments)):
            region = region.restricted(j, bound)
    return region


def _as_column(name: str, value: Any) -> Any:
    """A constant beside expressions; a date as its text, which Spark reads without a zone."""
    if isinstance(value, SparkColumn):
        return value
    if isinstance(value, dt.datetime) and value.tzinfo is None:
        return F.lit(value.isoformat(sep=" ")).cast("timestamp_ntz")
    if value is None or isinstance(value, (bool, int, float, str, bytes, dt.date)):
        return F.lit(value)
    raise InvalidRequestError(f"{name!r}: {value!r} stands beside expressions; give it as a Column too")


def _commit(spark: Any, basis: Basis, cells: Any, where: Predicate) -> int:
    """Newer versions hide the older ones; where duplicates are allowed, the older ones are deleted."""
    view, schema = basis.view, basis.view.schema
    records: list[Record] = []
    spared = None
    if schema.allows_duplicates:
        body = delete_body(view, where, basis.time_ms)
        if cells.isEmpty():
            return 0
        name = new_name(basis.time_ms)
        records = [condition_record(name, CommitKind.DELETE, body.pack(), view.cipher)]
        if may_spare(where, schema):
            request = Request(tuple(field.name for field in schema.fields), everything(schema))
            spared = frame_of_request(spark, view, request, change=Spared(where, body, schema))
    rows = cells if spared is None else cells.unionByName(spared)
    # The cells come in boxes that do not overlap: to sort them again would cost more than it saves.
    written = run_bulk_write(
        rows, basis.bulk(later=len(records)), cluster=False, also=records, check=basis.check
    )
    return written.n_cells - (0 if spared is None else spared.count())
