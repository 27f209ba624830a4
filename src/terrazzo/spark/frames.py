"""DataFrames of an array's cells, with true column pruning: a task per scan task, through `mapInArrow`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from terrazzo.engine.columns import Column
from terrazzo.engine.plan import Request
from terrazzo.engine.reading import plan_tasks, run_task
from terrazzo.engine.request import make_request
from terrazzo.engine.sparse import result_schema, scan_columns, to_batches
from terrazzo.engine.view import View
from terrazzo.spark.options import DEFAULT_PARTITION
from terrazzo.spark.parcels import Parcel, parcel
from terrazzo.spark.types import arrow_schema_of, struct_of, to_spark

Cells = dict[str, Column]
_ROW = 8  # bytes that Spark counts for a row of a range


def frame_of(
    spark: Any, view: View, columns: Sequence[str] | None = None, where: str | None = None,
    region: Mapping[str, Any] | None = None, partition_size: int = DEFAULT_PARTITION,
) -> Any:  # fmt: skip
    """The cells that a read would return. The tasks are planned now: the DataFrame shows this view whenever it runs."""
    return frame_of_request(
        spark, view, make_request(view.schema, columns, where, region, None), partition_size
    )


def frame_of_request(
    spark: Any, view: View, request: Request, partition_size: int = DEFAULT_PARTITION,
    change: Callable[[Cells], Cells | None] | None = None,
) -> Any:  # fmt: skip
    """The cells of a request, of a sparse array also as `change` leaves them."""
    struct = struct_of(view.schema, request.columns)
    planned, tasks = plan_tasks(view, request, partition_size)
    if not tasks:
        return spark.createDataFrame([], struct)
    work = parcel((view, planned, tasks, change))
    each = _rows_per_task(spark, sum(getattr(task, "size", 8 * task.n_cells) for task in tasks), len(tasks))
    rows = spark.range(0, each * len(tasks), 1, len(tasks)).where(f"id % {each} = 0")
    return rows.mapInArrow(_scan(work, struct, each), struct)


def _rows_per_task(spark: Any, size: int, n_tasks: int) -> int:
    """How many rows stand for a task in the table that the cells are mapped from. The first of them goes to Python.

    Spark takes the size of the result from the size of that table. One row per task would make every array a small one,
    to be broadcast in joins until memory runs out. So the table is as large as the cells, to Spark's mind: it does not
    see that all but one are filtered out again, and counting up takes it no time. From some size on it no longer passes
    for small.
    """
    try:
        small = int(str(spark.conf.get("spark.sql.autoBroadcastJoinThreshold")).rstrip("bB"))
    except (TypeError, ValueError):
        small = 10 << 20
    enough = min(max(2 * small, 16 << 20), 1 << 30)
    return max(min(size, enough) // _ROW // n_tasks, 1)


def _scan(work: Parcel, struct: Any, rows_per_task: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        view, request, tasks, change = work.open()
        wanted = arrow_schema_of(struct)
        read = run_task if change is None else partial(_run_changed, change)
        for batch in batches:
            for row in batch.column(0).to_pylist():
                for found in read(view, request, tasks[row // rows_per_task]):
                    yield to_spark(found, wanted)

    return run


def _run_changed(
    change: Callable[[Cells], Cells | None], view: View, request: Request, task: Any
) -> Iterator[Any]:
    for columns in scan_columns(view, request, task):
        left = change(columns)
        if left is not None:
            yield from to_batches(left, view.schema, result_schema(request.columns, view.schema))
