"""Reads: the engine's scan tasks as Spark's partitions."""

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from terrazzo.engine.plan import Request
from terrazzo.engine.reading import plan_tasks, run_task
from terrazzo.engine.request import make_request
from terrazzo.engine.spelling import parse_flag, parse_regions
from terrazzo.engine.view import View
from terrazzo.errors import InvalidRequestError
from terrazzo.spark.options import DEFAULT_PARTITION, Options
from terrazzo.spark.pushdown import condition_of
from terrazzo.spark.types import arrow_schema_of, to_spark

_LEAST_TASK = 1 << 20


def columns_asked(options: Options, view: View) -> tuple[str, ...]:
    """The columns of the option `columns`, or all."""
    text = options.get("columns")
    if text is None:
        return tuple(field.name for field in view.schema.fields)
    names = [name.strip() for name in text.split(",") if name.strip()]
    return make_request(view.schema, names, None, None, None).columns


def planned(view: View, request: Request, options: Options) -> tuple[Request, tuple[Any, ...]]:
    """The tasks of a read: as many as asked for, about, or as large."""
    size = options.size("partition_size", DEFAULT_PARTITION)
    wanted = options.number("partitions")
    if wanted is None:
        return plan_tasks(view, request, size)
    if options.get("partition_size") is not None:
        raise InvalidRequestError("give partitions or partition_size, not both")
    whole = sum(
        getattr(task, "size", 0) or task.n_cells * 8 for task in plan_tasks(view, request, 1 << 62)[1]
    )
    return plan_tasks(view, request, max(-(-whole // wanted), _LEAST_TASK if wanted == 1 else 1))


class Task(InputPartition):
    """One task of the engine, with the request: Spark pickles the reader before it asks for the partitions."""

    def __init__(self, request: Request, task: Any) -> None:
        super().__init__(None)
        self.request, self.task = request, task


class _Push:
    """`pushFilters` of a reader.

    Quirk: Spark refuses a reader that overrides `pushFilters` in every session that has not enabled the push-down
    of filters, and tells an override by `__func__`. Looking like the original, it serves both kinds of session.
    """

    def __init__(self, reader: "ArrayReader") -> None:
        self.reader = reader
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> Iterator[Filter]:
        return iter(self.reader.take_filters(filters))


class ArrayReader(DataSourceReader):
    """Holds the view, and so goes to every task with what the driver saw: all of them read the same instant."""

    def __init__(self, view: View, struct: StructType, options: Options) -> None:
        self.view, self.struct, self.options = view, struct, options
        for name in struct.fieldNames():
            view.schema.field(name)  # says which there are
        self.where = options.get("where")
        self.pushdown = parse_flag(options.get("pushdown") or "false", "pushdown")
        self.pushFilters = _Push(self)

    def take_filters(self, filters: Sequence[Filter]) -> list[Filter]:
        """Filters that Spark has to apply itself: all of them, unless the option `pushdown` says otherwise.

        Quirk: Spark 4.3 keeps the plan of the scan that filters were last pushed to, and uses it for every other scan
        of the same DataFrame or view: these would miss cells. tests/spark/test_source.py
        """
        if not self.pushdown:
            return list(filters)
        taken: list[str] = []
        left: list[Filter] = []
        for each in filters:
            text = condition_of(each, self.view.schema)
            if text is None:
                left.append(each)
            else:
                taken.append(text)
        clauses = [f"({text})" for text in [self.where, *taken] if text is not None]
        self.where = " AND ".join(clauses) or None
        return left

    def partitions(self) -> list[InputPartition]:
        request = make_request(
            self.view.schema,
            self.struct.fieldNames() or [self.view.schema.dims[0].name],
            self.where,
            parse_regions(self.options.family("region."), self.view.schema),
            None,
        )
        request, tasks = planned(self.view, request, self.options)
        return [Task(request, task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, Task):  # Spark's stand-in for no partition at all
            return
        wanted = arrow_schema_of(self.struct)
        for batch in run_task(self.view, partition.request, partition.task):
            yield to_spark(batch, wanted)
