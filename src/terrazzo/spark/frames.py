"""DataFrames of an array's cells, with true column pruning: a task per scan task, through `mapInArrow`."""

import pickle
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from terrazzo.engine.reading import plan_tasks, run_task
from terrazzo.engine.request import make_request
from terrazzo.engine.view import View
from terrazzo.spark.options import DEFAULT_PARTITION
from terrazzo.spark.types import arrow_schema_of, struct_of, to_spark


def frame_of(
    spark: Any, view: View, columns: Sequence[str] | None = None, where: str | None = None,
    region: Mapping[str, Any] | None = None, partition_size: int = DEFAULT_PARTITION,
) -> Any:  # fmt: skip
    """The cells that a read would return. The tasks are planned now: the DataFrame shows this view whenever it runs."""
    request = make_request(view.schema, columns, where, region, None)
    struct = struct_of(view.schema, request.columns)
    request, tasks = plan_tasks(view, request, partition_size)
    if not tasks:
        return spark.createDataFrame([], struct)
    work = zlib.compress(pickle.dumps((view, request, tasks)), 1)
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(_scan(work, struct), struct)


def _scan(work: bytes, struct: Any) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        view, request, tasks = pickle.loads(zlib.decompress(work))  # noqa: S301  # our own
        wanted = arrow_schema_of(struct)
        for batch in batches:
            for place in batch.column(0).to_pylist():
                for found in run_task(view, request, tasks[place]):
                    yield to_spark(found, wanted)

    return run
