"""The streaming source: batches of cells written since the last one, or of changes.

Spark keeps one process per query for the offsets; tasks run elsewhere, so each takes its view of the array along.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from terrazzo.engine.arrivals import Limits, Mark
from terrazzo.engine.changes import CHANGE
from terrazzo.engine.clock import instant
from terrazzo.engine.increments import ChangeTask, Follower, plan_written
from terrazzo.engine.reading import ScanJob
from terrazzo.engine.request import make_request
from terrazzo.engine.spelling import parse_regions
from terrazzo.engine.vacuum import parse_age
from terrazzo.engine.view import View
from terrazzo.spark.options import DEFAULT_PARTITION, Options
from terrazzo.spark.types import arrow_schema_of, to_spark

LATENESS = {False: "1h", True: "10m"}
"""How far behind others a commit may be stamped and still be delivered; changes are told so much later."""

_BATCH_ROWS = 250_000


class Work(InputPartition):
    """A task with all that it needs."""

    def __init__(self, work: ScanJob | ChangeTask) -> None:
        super().__init__(None)
        self.work = work


class ArrayStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, struct: StructType, options: Options) -> None:
        self.struct, self.options = struct, options
        self.changes = options.flag("changes")
        start = options.instant("startat")
        self.start_ms = 0 if start is None else instant(start, "startAt")
        self.limits = Limits(options.number("maxcommitspertrigger"), options.number("maxcellspertrigger"))
        self.follower = Follower(
            options.store(), options.cipher(), changes=self.changes,
            lateness_ms=parse_age(options.get("lateness") or LATENESS[self.changes], "lateness"),
        )  # fmt: skip
        self._plan(
            self.follower.glance().view
        )  # what is wrong with the options is told before the query starts

    def _plan(self, view: View) -> Any:
        names = [name for name in self.struct.fieldNames() if name != CHANGE]
        return make_request(
            view.schema,
            names or [view.schema.dims[0].name],
            self.options.get("where"),
            parse_regions(self.options.family("region."), view.schema),
            None,
        )

    # -- offsets --------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        return Mark(max(self.start_ms - 1, 0)).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.limits.cells is not None:
            return ReadMaxRows(self.limits.cells)
        if self.limits.commits is not None:
            return ReadMaxFiles(self.limits.commits)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        # Spark hands back one limit of those it was told; the options know both.
        limits = Limits() if isinstance(limit, ReadAllAvailable) else self.limits
        return self.follower.next(Mark.of_json(start), limits).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        self.follower.freeze()

    # -- cells ----------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = Mark.of_json(start), Mark.of_json(end)
        if first == last:
            return []
        size = self.options.size("partition_size", DEFAULT_PARTITION)
        if self.changes:
            request = self._plan(self.follower.glance().view)
            tasks = self.follower.change_tasks(first, last, request.region, request.where, size)
            return [Work(task) for task in tasks]
        view = self.follower.written(first, last)
        return [Work(ScanJob(*task)) for task in plan_written(view, self._plan(view), size)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, Work):  # Spark's stand-in for no partition at all
            return
        wanted, found = arrow_schema_of(self.struct), partition.work()
        batches = found if isinstance(found, list) else found.to_batches(max_chunksize=_BATCH_ROWS)
        for batch in batches:
            if batch.num_rows:
                yield to_spark(batch, wanted)
