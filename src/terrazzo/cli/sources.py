"""Files, folders and pipes of other formats as record batches, read as they are asked for.

All files of a source are of one format; columns that some of them lack are null there. What no file name tells is told
by the first bytes. A pipe that has to be read twice, or out of order, goes through a temporary file.
"""

import csv
import glob
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.json as pa_json

from terrazzo.cli.options import WrongUsageError
from terrazzo.errors import InvalidRequestError

FORMATS = ("parquet", "csv", "json", "arrow")
_SUFFIXES = {
    "parquet": "parquet", "pq": "parquet", "csv": "csv", "json": "json", "jsonl": "json", "ndjson": "json",
    "arrow": "arrow", "arrows": "arrow", "feather": "arrow", "ipc": "arrow",
}  # fmt: skip
_MAGIC = {b"PAR1": "parquet", b"ARRO": "arrow", b"\xff\xff\xff\xff": "arrow"}
_IPC_FILE = b"ARROW1"
_BATCH_ROWS = 1 << 17
_SAMPLE = 1 << 20
_BLOCK = 8 << 20

Types = Mapping[str, Any]
"""Arrow types by column, for formats that have none of their own."""


@dataclass(frozen=True, slots=True)
class Source:
    kind: str
    schema: Any
    files: tuple[str, ...]  # none for a pipe
    n_rows: int | None  # for text an estimate
    take: Callable[[Sequence[str] | None], Iterator[Any]]

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """All rows from the start; InvalidRequestError where a file is not what it should be."""
        try:
            yield from self.take(columns)
        except pa.ArrowException as problem:
            raise _unreadable(problem) from None


@contextmanager
def open_source(
    given: Sequence[str], form: str | None = None, types: Types | None = None, nulls: Sequence[str] = (), *,
    twice: bool = False,
) -> Iterator[Source]:  # fmt: skip
    """`twice` says that the batches will be asked for more than once."""
    if form is not None and form not in FORMATS:
        raise WrongUsageError(f"--format {form}: there are {', '.join(FORMATS)}")
    with ExitStack() as stack:
        try:
            if list(given) == ["-"]:
                yield _open_pipe(stack, form, types or {}, nulls, twice=twice)
            else:
                files = find_files(given, form)
                kind = form or _one_format(files)
                yield _open_files(stack, files, kind, types or {}, nulls)
        except pa.ArrowException as problem:
            raise _unreadable(problem) from None
        except OSError as problem:
            if problem.errno is None or not problem.strerror:
                raise
            raise InvalidRequestError(f"{problem.filename or 'the source'}: {problem.strerror}") from None


def _unreadable(problem: Exception) -> InvalidRequestError:
    """What Arrow says, without the ways it took to find out."""
    text = " ".join(str(problem).split())
    where = "the source"
    if found := re.search(
        r"(?:input source|schema from) '([^']+)'[^:]*: (?:Invalid: )?((?:(?!input source).)*)$", text
    ):
        where, text = found[1], found[2]
    if (told := re.match(r"In CSV column #(\d+): (.*)", text)) and (name := _header(where, int(told[1]))):
        text = f"column {name!r}: {told[2]}"
    text = text if len(text) < 300 else text[:299] + "…"
    way_out = "check the file"
    if "conversion error" in text or "changed from" in text:
        way_out = "correct it, say --type COLUMN=TYPE, or --null TEXT for what stands for no value"
    return InvalidRequestError(f"{where}: {text.rstrip('.')}; {way_out}")


def _header(file: str, place: int) -> str | None:
    """The name of a column of a CSV file."""
    try:
        with open(file, newline="", encoding="utf-8", errors="replace") as opened:  # noqa: PTH123
            return next(csv.reader(opened))[place]
    except (OSError, StopIteration, IndexError, csv.Error):
        return None


# -- which files ---------------------------------------------------------------------------------------


def find_files(given: Sequence[str], form: str | None) -> tuple[str, ...]:
    found: list[str] = []
    for each in given:
        if each == "-":
            raise InvalidRequestError("- is stdin, and is read alone; leave out the other sources")
        if "://" in each:
            raise InvalidRequestError(
                f"{each}: sources are files here, or - for a pipe; copy it, or pipe it in"
            )
        path = Path(each)
        if path.is_dir():
            found += _in_folder(path, form)
        elif path.exists():
            found.append(each)
        elif matches := sorted(glob.glob(each, recursive=True)):  # noqa: PTH207
            found += [match for match in matches if Path(match).is_file()]
        else:
            raise InvalidRequestError(f"{each}: there is no such file; check the path")
    return tuple(found)


def _in_folder(path: Path, form: str | None) -> list[str]:
    if (path / "__schema").is_dir():
        raise InvalidRequestError(f"{path} is an array, not a folder of data files; export it first")
    found = [
        str(file)
        for file in sorted(path.rglob("*"))
        if file.is_file()
        and not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
        and (form is not None or _told_by_name(file.name) is not None)
    ]
    if not found:
        raise InvalidRequestError(
            f"{path}: no Parquet, CSV, JSON or Arrow files in this folder; give --format"
        )
    return found


def _told_by_name(name: str) -> str | None:
    return _SUFFIXES.get(name.removesuffix(".gz").rpartition(".")[2].lower())


def _one_format(files: Sequence[str]) -> str:
    kinds = {_told_by_name(file) or _told_by_content(file) for file in files}
    if len(kinds) > 1:
        raise InvalidRequestError(
            f"the sources are of several formats ({', '.join(sorted(kinds))}); ingest one after the other"
        )
    return kinds.pop()


def _told_by_content(file: str) -> str:
    with open(file, "rb") as opened:  # noqa: PTH123
        kind = _MAGIC.get(opened.read(4))
    if kind is None:
        raise InvalidRequestError(
            f"{file}: its name does not tell the format; give --format {'|'.join(FORMATS)}"
        )
    return kind


# -- files ---------------------------------------------------------------------------------------------


def _open_files(
    stack: ExitStack, files: tuple[str, ...], kind: str, types: Types, nulls: Sequence[str]
) -> Source:
    if kind == "arrow" and not all(_is_ipc_file(file) for file in files):
        return _arrow_streams(stack, files)
    partitioned = any("=" in part for file in files for part in Path(file).parts[:-1])
    options = ds.FileSystemFactoryOptions()
    if partitioned:
        options.partitioning_factory = ds.HivePartitioning.discover()
    factory = ds.FileSystemDatasetFactory(
        pa.fs.LocalFileSystem(), [os.path.abspath(file) for file in files],  # noqa: PTH100
        _file_format(kind, types, nulls), options,
    )  # fmt: skip
    # All files: a column that only a later one has is not to be lost.
    schema = factory.inspect(promote_options="permissive", fragments=None)
    dataset = factory.finish(schema)

    def take(columns: Sequence[str] | None) -> Iterator[Any]:
        chosen = None if columns is None else list(columns)
        yield from dataset.to_batches(
            columns=chosen, batch_size=_BATCH_ROWS, batch_readahead=2, fragment_readahead=1
        )

    rows = dataset.count_rows() if kind in {"parquet", "arrow"} else _estimate(files)
    return Source(kind, dataset.schema, files, rows, take)


def _file_format(kind: str, types: Types, nulls: Sequence[str]) -> Any:
    if kind == "csv":
        return ds.CsvFileFormat(
            convert_options=_csv_options(types, nulls),
            read_options=pa_csv.ReadOptions(block_size=_BLOCK),
            parse_options=pa_csv.ParseOptions(newlines_in_values=True),
        )
    if kind == "json":
        explicit = pa.schema([pa.field(name, each) for name, each in types.items()]) if types else None
        return ds.JsonFileFormat(
            parse_options=pa_json.ParseOptions(explicit_schema=explicit),
            read_options=pa_json.ReadOptions(block_size=_BLOCK),
        )
    if kind == "parquet":
        # Ahead of time Arrow would hold all of a file; and a row group as a whole takes its stored bytes twice.
        return ds.ParquetFileFormat(pre_buffer=False, use_buffered_stream=True, buffer_size=1 << 20)
    return ds.IpcFileFormat()


def _csv_options(types: Types, nulls: Sequence[str]) -> Any:
    # Nothing between two commas is no value; two quotes with nothing between them are text of no length.
    return pa_csv.ConvertOptions(
        column_types=dict(types), null_values=["", *nulls], strings_can_be_null=True, quoted_strings_can_be_null=False,
    )  # fmt: skip


def _is_ipc_file(file: str) -> bool:
    with open(file, "rb") as opened:  # noqa: PTH123
        return opened.read(len(_IPC_FILE)) == _IPC_FILE


def _arrow_streams(stack: ExitStack, files: tuple[str, ...]) -> Source:
    with pa.ipc.open_stream(files[0]) as first:
        schema = first.schema

    def take(columns: Sequence[str] | None) -> Iterator[Any]:
        for file in files:
            opened = stack.enter_context(pa.OSFile(file))
            yield from _projected(pa.ipc.open_stream(opened), columns)

    return Source("arrow", schema, files, None, take)


def _projected(batches: Any, columns: Sequence[str] | None) -> Iterator[Any]:
    for batch in batches:
        yield batch if columns is None else batch.select(list(columns))


def _estimate(files: Sequence[str]) -> int | None:
    """Rows of text: as many as the first part has lines, in proportion to the size."""
    if any(file.endswith(".gz") for file in files):
        return None
    with open(files[0], "rb") as opened:  # noqa: PTH123
        sample = opened.read(_SAMPLE)
    lines = sample.count(b"\n")
    size = sum(os.path.getsize(file) for file in files)  # noqa: PTH202
    return size * lines // len(sample) if lines else None


# -- pipes ---------------------------------------------------------------------------------------------


def _open_pipe(
    stack: ExitStack, form: str | None, types: Types, nulls: Sequence[str], *, twice: bool
) -> Source:
    pipe: Any = sys.stdin.buffer
    if sys.stdin.isatty():
        raise InvalidRequestError(
            "- is stdin, and nothing is piped in; use: producer | terrazzo ingest ARRAY -"
        )
    start = pipe.peek(8)[:8] if hasattr(pipe, "peek") else b""
    if not start:
        raise InvalidRequestError("nothing came through the pipe; look at what the command before it says")
    kind = form or _MAGIC.get(start[:4]) or ("json" if start.lstrip()[:1] == b"{" else "csv")
    if twice or kind in {"parquet", "json"} or start[:4] == _IPC_FILE[:4]:
        spooled = stack.enter_context(tempfile.NamedTemporaryFile(prefix="terrazzo-", suffix=f".{kind}"))  # noqa: SIM115
        shutil.copyfileobj(pipe, spooled, 1 << 20)
        spooled.flush()
        found = _open_files(stack, (spooled.name,), kind, types, nulls)
        return Source(found.kind, found.schema, (), found.n_rows, found.take)
    if kind == "csv":
        reader: Any = pa_csv.open_csv(
            pipe,
            convert_options=_csv_options(types, nulls),
            read_options=pa_csv.ReadOptions(block_size=_BLOCK),
        )
    else:
        reader = pa.ipc.open_stream(pipe)
    return Source(kind, reader.schema, (), None, lambda columns: _projected(reader, columns))
