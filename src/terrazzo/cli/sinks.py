"""Record batches into files of other formats: whole, or not at all."""

import gzip
import os
import re
import shutil
import sys
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from terrazzo.cli.json_lines import hexadecimal, iso_text, json_lines
from terrazzo.cli.options import WrongUsageError
from terrazzo.errors import ArrayExistsError, InvalidRequestError, MissingObjectError, StorageError

FORMATS = ("parquet", "arrow", "csv", "json")
_SUFFIXES = {
    "parquet": "parquet", "pq": "parquet", "arrow": "arrow", "feather": "arrow", "ipc": "arrow", "arrows": "arrow",
    "csv": "csv", "json": "json", "jsonl": "json", "ndjson": "json",
}  # fmt: skip
_ROW_GROUP = 250_000


def format_of(target: str, given: str | None) -> str:
    """The format that is asked for, or else the one that a name says."""
    if given is not None:
        if given not in FORMATS:
            raise WrongUsageError(f"--format {given}: there are {', '.join(FORMATS)}")
        return given
    suffix = target.removesuffix(".gz").rpartition(".")[2].lower()
    if suffix not in _SUFFIXES:
        raise InvalidRequestError(
            f"{target}: its name does not tell the format; end it in .parquet, .csv, .json or .arrow, or give --format"
        )
    return _SUFFIXES[suffix]


class Sink(Protocol):
    def write(self, batch: Any) -> None: ...

    def close(self) -> None: ...


class _Parquet:
    def __init__(self, out: Any, schema: Any) -> None:
        import pyarrow.parquet as pq

        self._writer = pq.ParquetWriter(out, schema, compression="zstd")
        self._schema = schema
        self._waiting: list[Any] = []
        self._rows = 0

    def write(self, batch: Any) -> None:
        self._waiting.append(batch)
        self._rows += batch.num_rows
        if self._rows >= _ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
        self._waiting, self._rows = [], 0

    def close(self) -> None:
        self._flush()
        self._writer.close()


class _Csv:
    def __init__(self, out: Any, schema: Any) -> None:
        import pyarrow.csv as pa_csv

        fields = [pa.field(field.name, _csv_type(field)) for field in schema]
        self._schema = pa.schema(fields)
        self._writer = pa_csv.CSVWriter(out, self._schema)

    def write(self, batch: Any) -> None:
        columns = [
            _csv_column(column, field.type) for column, field in zip(batch.columns, self._schema, strict=True)
        ]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


def _csv_type(field: Any) -> Any:
    kind, types = field.type, pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_nested(kind):
        raise InvalidRequestError(
            f"column {field.name!r} holds lists, which CSV has not; leave it out with --columns, or write JSON or Parquet"
        )
    if types.is_binary(kind) or types.is_fixed_size_binary(kind) or types.is_timestamp(kind):
        return pa.large_string()
    return pa.int64() if types.is_duration(kind) else kind


def _csv_column(column: Any, kind: Any) -> Any:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_binary(column.type) or pa.types.is_fixed_size_binary(column.type):
        return hexadecimal(column)
    if pa.types.is_timestamp(column.type):
        return iso_text(column)
    return column if column.type == kind else pc.cast(column, kind)


class _Json:
    def __init__(self, out: Any, _schema: Any) -> None:
        self._out = out

    def write(self, batch: Any) -> None:
        self._out.write(json_lines(batch))

    def close(self) -> None:
        pass


class _Arrow:
    def __init__(self, out: Any, schema: Any, *, stream: bool) -> None:
        options = pa.ipc.IpcWriteOptions(compression=None if stream else "lz4")
        make = pa.ipc.new_stream if stream else pa.ipc.new_file
        self._writer = make(out, schema, options=options)

    def write(self, batch: Any) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


@contextmanager
def open_sink(out: "Output", kind: str, schema: Any, *, stream: bool = False) -> Iterator[Sink]:
    """A block that raises leaves the output as it is: an end would make it look complete."""
    sink: Sink
    if kind == "parquet":
        sink = _Parquet(out, schema)
    elif kind == "arrow":
        sink = _Arrow(out, schema, stream=stream)
    else:
        sink = _Csv(out, schema) if kind == "csv" else _Json(out, schema)
    try:
        yield sink
    except BaseException:
        out.abandon()
        with suppress(pa.ArrowException, OSError):
            sink.close()
        raise
    sink.close()


def write_all(out: "Output", kind: str, schema: Any, batches: Iterable[Any], *, stream: bool = False) -> int:
    """All batches into an open file; how many rows there were."""
    rows = 0
    with open_sink(out, kind, schema, stream=stream) as sink:
        for batch in batches:
            sink.write(batch)
            rows += batch.num_rows
    return rows


def write_stdout(kind: str, schema: Any, batches: Iterable[Any]) -> int:
    """To a pipe, batch by batch."""
    if sys.stdout.isatty() and kind in {"parquet", "arrow"}:
        raise InvalidRequestError(f"{kind} is no text for a terminal; send it to a pipe, or give --to FILE")
    out = sys.stdout.buffer
    rows = write_all(Output(out), kind, schema, batches, stream=True)
    out.flush()
    return rows


class Output:
    """A file for Arrow's writers, which close what they are given, and ask where they are."""

    closed = False

    def __init__(self, out: Any) -> None:
        self._out, self._at, self._abandoned = out, 0, False

    def abandon(self) -> None:
        """Nothing more is to be written, whatever the writers add when they are closed."""
        self._abandoned = True

    def write(self, data: Any) -> int:
        if not self._abandoned:
            self._out.write(data)
        self._at += memoryview(data).nbytes
        return memoryview(data).nbytes

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


def write_file(target: str, kind: str, schema: Any, batches: Iterable[Any], *, overwrite: bool) -> int:
    """One file at a path or a URI."""
    with new_file(target, overwrite=overwrite) as out:
        stream = target.endswith(".arrows")
        if not target.endswith(".gz"):
            return write_all(Output(out), kind, schema, batches, stream=stream)
        if kind in {"parquet", "arrow"}:
            raise InvalidRequestError(f"{target}: {kind} is compressed within; leave out .gz")
        with gzip.GzipFile(filename="", mode="wb", fileobj=Output(out), compresslevel=6) as squeezed:
            return write_all(Output(squeezed), kind, schema, batches, stream=stream)


@contextmanager
def new_file(target: str, *, overwrite: bool) -> Iterator[Any]:
    """A file that appears under its name when the block ends, and not at all when it raises."""
    require_absent(target, overwrite=overwrite)
    if "://" in target:
        from terrazzo.storage import open_store

        folder, _, name = target.rpartition("/")
        with open_store(folder).open_writer(name) as writer:
            yield writer
        return
    path = Path(target)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        opened = part.open("xb")
    except OSError as problem:
        raise StorageError(f"{target}: cannot be written: {problem.strerror}; check the folder") from None
    try:
        with opened:
            yield opened
        part.replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            part.unlink()
        raise


def require_absent(target: str, *, overwrite: bool) -> None:
    if "://" in target:
        from terrazzo.storage import open_store

        folder, _, name = target.rpartition("/")
        with suppress(MissingObjectError):
            open_store(folder).size(name)
            if not overwrite:
                raise ArrayExistsError(f"{target} is there already; --overwrite replaces it")
        return
    path = Path(target)
    if path.is_dir():
        raise ArrayExistsError(
            f"{target} is a folder; end the name in / to write Parquet files into a new one"
        )
    if path.exists() and not overwrite:
        raise ArrayExistsError(f"{target} is there already; --overwrite replaces it")


def write_folder(target: str, schema: Any, batches: Iterable[Any], *, size: int) -> tuple[int, int]:
    """A new folder of Parquet files of about `size` bytes each; rows and files. It appears when all are written."""
    if "://" in target:
        raise InvalidRequestError(
            f"{target}: a folder of files is written to a local disk; name one file instead"
        )
    path = Path(re.sub(r"/+$", "", target))
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ArrayExistsError(f"{target} is there already; choose another folder, or remove it first")
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        part.mkdir(parents=True)
    except OSError as problem:
        raise StorageError(f"{target}: cannot be written: {problem.strerror}; check the folder") from None
    try:
        rows, files = _write_parts(part, schema, batches, size)
        if path.exists():
            path.rmdir()
        os.replace(part, path)  # noqa: PTH105
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return rows, files


def _write_parts(folder: Path, schema: Any, batches: Iterable[Any], size: int) -> tuple[int, int]:
    rows = files = 0
    source = iter(batches)
    batch = next(source, None)
    while batch is not None or not files:
        part = folder / f"part-{files:05}.parquet"
        with part.open("xb") as opened, open_sink(out := Output(opened), "parquet", schema) as sink:
            while batch is not None:
                sink.write(batch)
                rows += batch.num_rows
                batch = next(source, None)
                if out.tell() >= size:
                    break
        files += 1
    return rows, files
