"""The object that Spark users hold: the verbs of `Array`, with the heavy ones on executors."""

from collections.abc import Mapping, Sequence
from typing import Any

from terrazzo.engine.array import Array, open_array
from terrazzo.engine.bulk import FRAGMENT_SIZE, Written, plan_bulk_write
from terrazzo.engine.plan import parse_size
from terrazzo.errors import InvalidRequestError
from terrazzo.format.schema import Schema
from terrazzo.spark.frames import frame_of
from terrazzo.spark.ingest import run_bulk_write
from terrazzo.spark.options import DEFAULT_PARTITION
from terrazzo.spark.runner import SparkRunner


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
