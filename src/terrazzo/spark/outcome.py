"""Cells that Spark decided to write, to change and to delete, made so under one commit.

A delete is stored as a condition over the dimensions: the places themselves if they are few; otherwise their box, of
which all other cells are written again one millisecond later. Where duplicates are allowed, a newer version does not
hide the older one: there an update is a delete too.
"""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F  # noqa: N812

from terrazzo.engine.basis import Basis
from terrazzo.engine.clock import new_name
from terrazzo.engine.commit import commit_condition, condition_record
from terrazzo.engine.delete import delete_body
from terrazzo.engine.plan import Request
from terrazzo.errors import InvalidRequestError
from terrazzo.format.keys import CommitKind
from terrazzo.spark.casting import column
from terrazzo.spark.coordinates import among, box_of, region_of, within
from terrazzo.spark.failures import telling
from terrazzo.spark.frames import frame_of_request
from terrazzo.spark.ingest import run_bulk_write

ACTION, SOURCES = "__terrazzo_action", "__terrazzo_sources"
INSERT, UPDATE, DELETE, KEEP = "insert", "update", "delete", "keep"
FEW = 1000


@dataclass(frozen=True, slots=True)
class MergeResult:
    """How many cells came, changed and went."""

    inserted: int
    updated: int
    deleted: int


def apply_outcome(spark: Any, basis: Basis, outcome: Any) -> MergeResult:
    """Commit the rows of `outcome`: all fields of the array, what to do in ACTION, and in SOURCES how many rows of a
    source speak of the cell. Of an array with duplicates it also holds the cells that are kept at the same places."""
    outcome = outcome.persist()
    try:
        with telling():
            return _applied(spark, basis, outcome)
    finally:
        outcome.unpersist()


def _applied(spark: Any, basis: Basis, outcome: Any) -> MergeResult:
    rows = (
        outcome.groupBy(ACTION).agg(F.count(F.lit(1)).alias("n"), F.max(SOURCES).alias("sources")).collect()
    )
    counts = {row[ACTION]: row["n"] for row in rows}
    done = MergeResult(counts.get(INSERT, 0), counts.get(UPDATE, 0), counts.get(DELETE, 0))
    if any(row["sources"] > 1 for row in rows if row[ACTION] in {UPDATE, DELETE}):
        _refuse_many(basis, outcome)
    if done == MergeResult(0, 0, 0):
        return done
    if basis.view.schema.dense:
        write_dense(spark, basis, outcome.where(column(ACTION) == UPDATE))
    else:
        _commit(spark, basis, outcome, done)
    return done


def _refuse_many(basis: Basis, outcome: Any) -> None:
    dims = [dim.name for dim in basis.view.schema.dims]
    several = outcome.where((column(SOURCES) > 1) & column(ACTION).isin(UPDATE, DELETE))
    place = several.select(*map(column, dims)).first()
    told = ", ".join(f"{name}={value!r}" for name, value in zip(dims, place, strict=True))
    raise InvalidRequestError(
        f"several rows of the source speak of the cell at {told}; let the source have one row per cell"
    )


def _commit(spark: Any, basis: Basis, outcome: Any, done: MergeResult) -> None:
    view, schema = basis.view, basis.view.schema
    dims, names = [dim.name for dim in schema.dims], [field.name for field in schema.fields]
    removing = [DELETE, UPDATE] if schema.allows_duplicates else [DELETE]
    written = outcome.where(column(ACTION).isin(UPDATE, INSERT)).select(*map(column, names))
    writes = done.inserted + done.updated > 0
    records = []
    if done.deleted or (done.updated and schema.allows_duplicates):
        going = outcome.where(column(ACTION).isin(*removing)).select(*map(column, dims)).distinct()
        places = going.limit(FEW + 1).toArrow()
        if places.num_rows <= FEW:
            where = among(places, schema)
        else:
            box = box_of(going, schema, dims)
            assert box is not None
            where, writes = within(box, schema), True
            there = frame_of_request(spark, view, Request(tuple(names), region_of(box, schema)))
            written = written.unionByName(there.join(going, dims, "left_anti"))
        if schema.allows_duplicates:
            kept = outcome.where(column(ACTION) == KEEP).select(*map(column, names))
            written, writes = written.unionByName(kept.join(going, dims, "left_semi")), True
        body, name = delete_body(view, where, basis.time_ms).pack(), new_name(basis.time_ms)
        if not writes:
            basis.check()
            commit_condition(view.store, name, CommitKind.DELETE, body, view.cipher)
            return
        records = [condition_record(name, CommitKind.DELETE, body, view.cipher)]
    run_bulk_write(written, basis.bulk(later=len(records)), also=records, check=basis.check)


def write_dense(spark: Any, basis: Basis, changed: Any) -> None:
    """Write the box of the changed cells again: a dense fragment has a value for each of its cells."""
    schema = basis.view.schema
    dims, attrs = [dim.name for dim in schema.dims], [attr.name for attr in schema.attrs]
    box = box_of(changed, schema, dims)
    if box is None:
        return
    there = frame_of_request(spark, basis.view, Request(tuple(dims + attrs), region_of(box, schema))).alias(
        "there"
    )
    changed = changed.select(*map(column, dims + attrs)).alias("changed")
    same = [column(name, "there") == column(name, "changed") for name in dims]
    hit = column(dims[0], "changed").isNotNull()
    cells = there.join(changed, same, "left").select(
        *(column(name, "there") for name in dims),
        *(
            F.when(hit, column(name, "changed")).otherwise(column(name, "there")).alias(name)
            for name in attrs
        ),
    )
    run_bulk_write(cells, basis.bulk(), check=basis.check)
