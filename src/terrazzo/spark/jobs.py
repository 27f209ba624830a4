"""Whole jobs, as the command line and spark-submit run them: files in, files out, maintenance."""

import io
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from terrazzo.engine.array import Array
from terrazzo.engine.plan import Request
from terrazzo.engine.reading import plan_tasks, run_task
from terrazzo.engine.request import make_request
from terrazzo.engine.runner import Progress
from terrazzo.engine.sparse import result_schema
from terrazzo.engine.view import View
from terrazzo.errors import ArrayExistsError, InvalidRequestError
from terrazzo.format.schema import Schema
from terrazzo.spark.array import SparkArray
from terrazzo.spark.failures import telling
from terrazzo.spark.frames import frame_of
from terrazzo.spark.ingest import write
from terrazzo.spark.runner import SparkRunner, watching
from terrazzo.spark.types import struct_of
from terrazzo.storage import Store, open_store

_DONE = "_SUCCESS"


@dataclass(frozen=True, slots=True)
class Summary:
    """What a job did."""

    cells: int
    size: int  # bytes stored
    pieces: int  # fragments or files
    seconds: float

    @property
    def rate(self) -> float:
        """Cells per second."""
        return self.cells / self.seconds if self.seconds else 0.0


@contextmanager
def _clock() -> Iterator[Callable[[], float]]:
    start = time.monotonic()
    yield lambda: time.monotonic() - start


def read_files(
    spark: Any, sources: Sequence[str], form: str, *, options: Mapping[str, str] | None = None,
    columns: Sequence[str] | None = None, schema: Schema | None = None,
) -> Any:  # fmt: skip
    """Files of any format that Spark reads. Text gets the types of the array that it goes to, or those it looks like."""
    reader = spark.read.format(form)
    if form == "csv":
        reader = reader.option("header", "true")
        if schema is None:
            reader = reader.option("inferSchema", "true")
    for name, value in (options or {}).items():
        reader = reader.option(name, value)
    with telling():
        df = reader.load(list(sources))
    if columns is not None:
        if unknown := [name for name in columns if name not in df.columns]:
            raise InvalidRequestError(
                f"the source has no column {', '.join(unknown)}; it has {', '.join(df.columns)}"
            )
        df = df.select(*(f"`{name}`" for name in columns))
    return df if schema is None else _cast(df, schema)


def _cast(df: Any, schema: Schema) -> Any:
    """The columns of an array in its types, where text or wider numbers stand for them."""
    held = [name for name in df.columns if schema.has(name)]
    wanted = {field.name: field.dataType for field in struct_of(schema, held).fields}
    given = {field.name: field.dataType for field in df.schema.fields}
    chosen = []
    for name in df.columns:
        column = df[f"`{name}`"]
        if name in wanted and given[name] != wanted[name] and given[name].typeName() == "string":
            column = column.cast(wanted[name]).alias(name)
        chosen.append(column)
    return df.select(*chosen)


def written_files(
    spark: Any, df: Any, uri: str, *, schema: Schema, update: bool = False, key: Any = None,
    storage_options: Mapping[str, str] | None = None, partitions: int | None = None,
    progress: Progress | None = None,
) -> Summary:  # fmt: skip
    """Write rows into an array under one commit; into a new one of that schema if there is none. With `update`, cells
    that have the coordinates of a row are replaced."""
    with _clock() as passed, watching(spark, None, progress):
        if update:
            array = SparkArray(spark, uri, key=key, storage_options=storage_options)
            written = array.upsert(df, partitions=partitions)
        else:
            written = write(
                df,
                uri,
                mode="append",
                schema=schema,
                key=key,
                storage_options=storage_options,
                partitions=partitions,
            )
        return Summary(written.n_cells, written.size, len(written.names), passed())


@dataclass(frozen=True, slots=True)
class ExportTask:
    """One scan task to one Parquet file. The file is put whole: running it twice leaves one."""

    view: View
    request: Request
    task: Any
    store: Store
    name: str

    def __call__(self) -> tuple[int, int]:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415

        schema = result_schema(self.request.columns, self.view.schema)
        table = pa.Table.from_batches(run_task(self.view, self.request, self.task), schema)
        if not table.num_rows:
            return 0, 0
        out = io.BytesIO()
        pq.write_table(table, out, compression="zstd")
        content = out.getbuffer()
        self.store.put(self.name, content)
        return table.num_rows, len(content)


def export_files(
    spark: Any, array: Array, target: str, form: str = "parquet", *, columns: Sequence[str] | None = None,
    where: str | None = None, region: Mapping[str, Any] | None = None, file_size: int = 256 << 20,
    overwrite: bool = False, storage_options: Mapping[str, str] | None = None, progress: Progress | None = None,
) -> Summary:  # fmt: skip
    """The cells as a folder of files. Parquet is written by the tasks that read the cells, so that no cell enters
    Java; other formats are Spark's own."""
    store = open_store(target, storage_options)
    there = store.list_level()
    if (there.files or there.folders) and not overwrite:
        raise ArrayExistsError(f"{store.uri} is not empty; choose another place, or say overwrite")
    with _clock() as passed:
        if form != "parquet":
            df = frame_of(spark, array.view, columns, where, region)
            with telling(), watching(spark, None, progress):
                df.write.format(form).mode("overwrite").option("header", "true").save(target)
            files = [each for each in store.list() if not each.key.startswith(("_", "."))]
            return Summary(array.count(where, region), sum(f.size for f in files), len(files), passed())
        before = [each.key for each in there.files]
        request = make_request(array.schema, columns, where, region, None)
        request, tasks = plan_tasks(array.view, request, file_size)
        jobs = [
            ExportTask(array.view, request, task, store, f"part-{place:05}.parquet")
            for place, task in enumerate(tasks)
        ]
        try:
            results = list(SparkRunner(spark).map(ExportTask.__call__, jobs, progress))
        except BaseException:
            store.delete([job.name for job in jobs if job.name not in before])
            raise
        names = {job.name for job, (rows, _) in zip(jobs, results, strict=True) if rows}
        store.put(_DONE, b"")
        store.delete([key for key in before if key not in names and key != _DONE])
        return Summary(
            sum(rows for rows, _ in results), sum(size for _, size in results), len(names), passed()
        )
