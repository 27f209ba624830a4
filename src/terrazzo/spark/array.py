"""The object that Spark users hold: the verbs of `Array`, with the heavy ones on executors."""

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.types import StringType, StructField, StructType

from terrazzo.engine.array import Array, open_array
from terrazzo.engine.bulk import FRAGMENT_SIZE, Written, plan_bulk_write
from terrazzo.engine.plan import parse_size
from terrazzo.engine.predicate import TRUE
from terrazzo.engine.update import cell_values, storable
from terrazzo.engine.where import parse_where
from terrazzo.errors import InvalidRequestError
from terrazzo.format.schema import Schema
from terrazzo.spark.frames import frame_of
from terrazzo.spark.ingest import run_bulk_write
from terrazzo.spark.merging import Merge
from terrazzo.spark.options import DEFAULT_PARTITION
from terrazzo.spark.rewriting import update_by_rewriting
from terrazzo.spark.runner import SparkRunner
from terrazzo.spark.types import arrow_schema_of, struct_of, to_spark

_EVENT = (
    "timestamp timestamp, start_ms decimal(20,0), end_ms decimal(20,0), kind string, name string, text string, "
    "n_cells bigint, size bigint, superseded boolean"
)
_LAST_MOMENT = 253_402_300_799_999  # of the year 9999: what Spark's calendar ends with


class SparkArray:
    """An array and a session. It shows the present at each call, unless it was opened `at` an instant."""

    def __init__(
        self, spark: Any, uri: str, *, at: object = None, since: object = None, key: Any = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.spark = spark
        self._key, self._storage_options = key, storage_options
        self.array = open_array(uri, at=at, since=since, key=key, storage_options=storage_options)

    @property
    def uri(self) -> str:
        return self.array.uri

    @property
    def schema(self) -> Schema:
        return self.array.schema

    def __repr__(self) -> str:
        return repr(self.array).replace("<Array", "<SparkArray", 1)

    def refresh(self) -> "SparkArray":
        self.array.refresh()
        return self

    def to_df(
        self, columns: Sequence[str] | None = None, where: str | None = None, region: Mapping[str, Any] | None = None,
        at: object = None, *, partition_size: int | str = DEFAULT_PARTITION,
    ) -> Any:  # fmt: skip
        """Cells as a DataFrame. Only these columns are read, and only tiles that can hold a match."""
        seen = self.array.refresh() if at is None else self._opened(at)
        size = parse_size(partition_size, "partition_size")
        return frame_of(self.spark, seen.view, columns, where, region, size)

    def _opened(self, at: object) -> Array:
        return open_array(self.uri, at=at, key=self._key, storage_options=self._storage_options)

    def count(self, where: str | None = None, region: Mapping[str, Any] | None = None) -> int:
        return self.array.refresh().count(where, region)

    def write(
        self, df: Any, *, cluster: bool | None = None, partitions: int | None = None,
        fragment_size: int | str = FRAGMENT_SIZE, overwrite: bool = False,
    ) -> Written:  # fmt: skip
        """Append the rows of a DataFrame, or put them in place of all cells, under one commit."""
        view = self.array.refresh().view
        bulk = plan_bulk_write(
            view.store,
            view.cipher,
            None,
            replaces=overwrite,
            fragment_size=parse_size(fragment_size, "fragment_size"),
        )
        written = run_bulk_write(df, bulk, cluster=cluster, partitions=partitions)
        self.array.refresh()
        return written

    def upsert(self, df: Any, *, partitions: int | None = None) -> Written:
        """Write rows, replacing the cells that have their coordinates; two rows at the same ones are an error, since
        the rows of a DataFrame have no order in which one could be the last."""
        if self.schema.dense or self.schema.allows_duplicates:
            raise InvalidRequestError(
                "upsert needs a sparse array where coordinates identify a cell; write() to this one"
            )
        return self.write(df, cluster=True, partitions=partitions)

    def delete(self, where: str, *, at: object = None) -> None:
        """Delete the cells that match an SQL condition: one small commit, nothing is rewritten."""
        self.array.delete(where, at=at)

    def update(
        self,
        values: Mapping[str, Any],
        where: str | None = None,
        *,
        at: object = None,
        portable: bool = False,
    ) -> None:
        """Set attributes of the cells that match an SQL condition, under one commit. A Column is an expression over
        the cells as they are, evaluated by Spark: {"v": F.expr("v * 2")}; everything else is a constant, text too.
        Constants are stored as such; expressions, and constants with `portable`, write the cells again."""
        if self._stored_as_such(values, where, portable=portable):
            self.array.update(values, where, at=at)
        else:
            update_by_rewriting(self.spark, self.array, values, where, at)
            self.array.refresh()

    def _stored_as_such(self, values: Mapping[str, Any], where: str | None, *, portable: bool) -> bool:
        """Whether the engine does it with next to no memory: one small commit, or tiles of a dense array."""
        if any(isinstance(value, Column) for value in values.values()):
            return False
        if self.schema.dense:
            return True
        predicate = TRUE if where is None else parse_where(where, self.schema)
        return not portable and storable(predicate, cell_values(values, self.schema), self.schema)

    def merge(self, source: Any, *, on: Mapping[str, Any] | None = None) -> Merge:
        """Let the rows of a DataFrame meet the cells at their coordinates: add clauses, then `execute()`. `on` gives
        the coordinates of a row as SQL or Columns; otherwise its columns of the dimensions' names do."""
        if on is not None and set(on) != {dim.name for dim in self.schema.dims}:
            named = ", ".join(repr(dim.name) for dim in self.schema.dims)
            raise InvalidRequestError(f"on={sorted(on)!r}; give every dimension, and nothing else: {named}")
        return Merge(self, source, on)

    def history(self) -> Any:
        """Every commit, oldest first, as a DataFrame."""
        rows = [
            (
                dt.datetime.fromtimestamp(min(event.end_ms, _LAST_MOMENT) / 1000, dt.UTC), Decimal(event.start_ms),
                Decimal(event.end_ms), event.kind, event.name, event.text, event.n_cells, event.size,
                event.superseded,
            )
            for event in self.array.refresh().history()
        ]  # fmt: skip
        return self.spark.createDataFrame(rows, _EVENT)

    def changes(self, since: object, until: object = None) -> Any:
        """`Array.changes` as a DataFrame: rows inserted, deleted and updated, with the kind in `_change`."""
        table = self.array.refresh().changes(since, until)
        struct = StructType([StructField("_change", StringType(), nullable=False)])
        for each in struct_of(self.schema, table.schema.names[1:]):
            struct.add(each)
        wanted = arrow_schema_of(struct)
        rows = pa.Table.from_batches([to_spark(batch, wanted) for batch in table.to_batches()], wanted)
        return self.spark.createDataFrame(rows, struct)

    def restore(self, at: object, *, memory: int | str = "1GiB") -> None:
        """Show again the cells of an instant, under one new commit: the history is kept."""
        self.array.restore(at, memory=memory)

    def evolve(self, **changes: Any) -> None:
        """`Array.evolve`: add or drop attributes, extend enumerations, expand the current domain."""
        self.array.evolve(**changes)

    def explain(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        region: Mapping[str, Any] | None = None,
    ) -> Any:
        """What a read would take: fragments and tiles, which are left out and why, bytes and requests."""
        return self.array.refresh().explain(columns, where, region)

    def consolidate(self, **options: Any) -> Any:
        """`Array.consolidate` with each box on an executor."""
        return self.array.consolidate(**{"runner": SparkRunner(self.spark), **options})

    def consolidate_commits(self) -> None:
        self.array.refresh().consolidate_commits()

    def consolidate_fragment_metadata(self) -> None:
        self.array.refresh().consolidate_fragment_metadata()

    def consolidate_metadata(self) -> None:
        self.array.refresh().consolidate_metadata()

    def vacuum(self, **options: Any) -> Any:
        return self.array.refresh().vacuum(**options)

    def check(self, deep: bool = False) -> Any:
        return self.array.check(deep=deep)
