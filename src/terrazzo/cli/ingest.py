"""`terrazzo ingest` and `terrazzo upsert`: cells out of files of other formats, under one commit."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from terrazzo.cli.on_spark import Master, OnSpark, Settings
from terrazzo.cli.options import (
    Access,
    ArrayUri,
    AsJson,
    Columns,
    DryRun,
    KeyFile,
    Storage,
    WriteAt,
    WrongUsageError,
    names,
    pairs,
    parse_bytes,
    parse_time,
)

if TYPE_CHECKING:
    from terrazzo.cli.output import Report
    from terrazzo.cli.progress import Bar
    from terrazzo.cli.schema_options import SchemaOptions
    from terrazzo.cli.sources import Source
    from terrazzo.format.schema import Schema

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE…", help="files, folders or globs of Parquet, CSV, JSON lines or Arrow; - is stdin"
    ),
]
Form = Annotated[
    str | None, typer.Option("--format", "-f", metavar="FORMAT", help="parquet, csv, json (lines) or arrow")
]
ColumnTypes = Annotated[
    list[str] | None,
    typer.Option(
        "--type", metavar="NAME=TYPE", help="type of a column of CSV or JSON, such as v=float64; repeatable"
    ),
]
Nulls = Annotated[
    list[str] | None,
    typer.Option(
        "--null", metavar="TEXT", help="text in CSV that stands for no value, besides nothing; repeatable"
    ),
]
FragmentSize = Annotated[
    str, typer.Option("--fragment-size", metavar="SIZE", help="how much is sorted in memory at a time")
]


def ingest(
    array: ArrayUri,
    sources: Sources,
    form: Form = None,
    columns: Columns = None,
    types: ColumnTypes = None,
    nulls: Nulls = None,
    dim: Annotated[
        list[str] | None,
        typer.Option(
            "--dim", "-d", metavar="NAME,…", help="create the array with these columns as dimensions"
        ),
    ] = None,
    domain: Annotated[
        list[str] | None,
        typer.Option("--domain", metavar="DIM=LOW:HIGH", help="what a dimension may hold; repeatable"),
    ] = None,
    tile: Annotated[
        list[str] | None,
        typer.Option("--tile", metavar="DIM=SIZE", help="tile extent of a dimension; repeatable"),
    ] = None,
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter", metavar="FILTERS", help="byteshuffle,zstd:3 for all, or v=zstd:9 for one; repeatable"
        ),
    ] = None,
    capacity: Annotated[
        int | None, typer.Option("--capacity", min=1, metavar="N", help="cells of a tile")
    ] = None,
    order: Annotated[
        str | None, typer.Option("--order", metavar="ORDER", help="of cells: row-major, col-major or hilbert")
    ] = None,
    tile_order: Annotated[
        str | None, typer.Option("--tile-order", metavar="ORDER", help="of tiles: row-major or col-major")
    ] = None,
    allow_duplicates: Annotated[
        bool, typer.Option("--allow-duplicates", help="several cells may have the same coordinates")
    ] = False,
    dense: Annotated[bool, typer.Option("--dense", help="a value in every cell of a box")] = False,
    fragment_size: FragmentSize = "256MiB",
    at: WriteAt = None,
    on_spark: OnSpark = False,
    master: Master = None,
    conf: Settings = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    key_file: KeyFile = None,
    storage: Storage = None,
) -> None:
    """Write the rows of files into an array, all under one commit: all of them become visible, or none.

    With --dim the array is created from the schema of the source; without it, it must be there.
    """
    from terrazzo.cli.output import print_report
    from terrazzo.cli.schema_options import SchemaOptions

    making = SchemaOptions(
        tuple(names(dim) or ()), tuple(domain or ()), tuple(tile or ()), tuple(filters or ()), capacity, order,
        tile_order, allow_duplicates, dense,
    )  # fmt: skip
    access = Access.of(array, key_file, storage)
    if on_spark or master:
        from terrazzo.cli.on_spark import ingest_on_spark

        _not_on_spark(types=types, at=at)
        report = ingest_on_spark(
            access, sources, making, form=form, columns=names(columns), nulls=nulls or (), master=master,
            settings=pairs(conf, "--conf"), dry_run=dry_run,
        )  # fmt: skip
        print_report(report, as_json=as_json)
        return
    report = ingest_files(
        access, sources, making, form=form, columns=names(columns),
        types=pairs(types, "--type"), nulls=nulls or (), fragment_size=fragment_size, at=at, dry_run=dry_run,
    )  # fmt: skip
    print_report(report, as_json=as_json)


def _not_on_spark(**given: Any) -> None:
    for name, value in given.items():
        if value:
            raise WrongUsageError(f"--{'type' if name == 'types' else name} and --spark do not go together")


def ingest_files(
    access: Access, sources: Sequence[str], making: "SchemaOptions", *, form: str | None = None,
    columns: Sequence[str] | None = None, types: Mapping[str, str] | None = None, nulls: Sequence[str] = (),
    fragment_size: str = "256MiB", at: str | None = None, dry_run: bool = False,
) -> "Report":  # fmt: skip
    from terrazzo.cli.progress import Bar
    from terrazzo.cli.sources import open_source
    from terrazzo.errors import ArrayExistsError, ArrayNotFoundError

    when, size = parse_time(at, "--at"), parse_bytes(fragment_size, "--fragment-size")
    there = access.exists()
    if there and making.any_given:
        raise ArrayExistsError(
            f"there is an array at {access.uri} already; leave out --dim and the other options of its schema to "
            "append, or choose another place"
        )
    if not there and not making.dims:
        raise ArrayNotFoundError(
            f"there is no array at {access.uri}; give --dim NAME,… to create it from the source"
        )
    opened = access.open() if there else None
    known = None if opened is None else opened.schema
    with open_source(sources, form, _column_types(types, known), nulls, twice=not there) as source:
        taken = _chosen(source, columns, known)
        schema = known
        if schema is None:
            from terrazzo.cli.schema_options import schema_for

            schema = schema_for(source, taken, making)
        if dry_run:
            return _plan(access, source, taken, schema, created=not there)
        before = set() if opened is None else {fragment.key for fragment in opened.fragments}
        with Bar(f"writing {access.uri}", source.n_rows, "rows") as bar:
            batches = bar.counting(_fitted(source, taken, schema))
            cells = batches if schema.sparse else _whole(batches)
            with _telling_rows(bar if schema.sparse else None):
                if opened is None:
                    _create_with(access, schema, cells, when, size)
                else:
                    opened.write(cells, at=when, fragment_size=size)
        array = opened or access.open()
        made = [fragment for fragment in array.fragments if fragment.key not in before]
        return {
            "command": "ingest", "uri": array.uri, "dry_run": False, "created": not there, "files": len(source.files),
            "rows": bar.count, "fragments": len(made), "committed_ms": _when(made),
        }  # fmt: skip


def upsert(
    array: ArrayUri,
    sources: Sources,
    form: Form = None,
    columns: Columns = None,
    types: ColumnTypes = None,
    nulls: Nulls = None,
    fragment_size: FragmentSize = "256MiB",
    at: WriteAt = None,
    on_spark: OnSpark = False,
    master: Master = None,
    conf: Settings = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    key_file: KeyFile = None,
    storage: Storage = None,
) -> None:
    """Write the rows of files into an array, replacing cells that have the same coordinates.

    Of several rows with the same coordinates the last counts.
    """
    from terrazzo.cli.output import print_report

    access = Access.of(array, key_file, storage)
    if on_spark or master:
        from terrazzo.cli.on_spark import ingest_on_spark
        from terrazzo.cli.schema_options import SchemaOptions

        _not_on_spark(types=types, at=at)
        report = ingest_on_spark(
            access, sources, SchemaOptions(), form=form, columns=names(columns), nulls=nulls or (), master=master,
            settings=pairs(conf, "--conf"), dry_run=dry_run, update=True,
        )  # fmt: skip
        print_report(report, as_json=as_json)
        return
    report = upsert_files(
        access, sources, form=form, columns=names(columns),
        types=pairs(types, "--type"), nulls=nulls or (), fragment_size=fragment_size, at=at, dry_run=dry_run,
    )  # fmt: skip
    print_report(report, as_json=as_json)


def upsert_files(
    access: Access, sources: Sequence[str], *, form: str | None = None, columns: Sequence[str] | None = None,
    types: Mapping[str, str] | None = None, nulls: Sequence[str] = (), fragment_size: str = "256MiB",
    at: str | None = None, dry_run: bool = False,
) -> "Report":  # fmt: skip
    from terrazzo.cli.progress import Bar
    from terrazzo.cli.sources import open_source

    when, size = parse_time(at, "--at"), parse_bytes(fragment_size, "--fragment-size")
    opened = access.open()
    known = opened.schema
    with open_source(sources, form, _column_types(types, known), nulls) as source:
        taken = _chosen(source, columns, known)
        if dry_run:
            return _plan(access, source, taken, known, created=False) | {"command": "upsert"}
        before = {fragment.key for fragment in opened.fragments}
        with Bar(f"writing {access.uri}", source.n_rows, "rows") as bar, _telling_rows(bar):
            opened.upsert(bar.counting(_fitted(source, taken, known)), at=when, fragment_size=size)
        made = [fragment for fragment in opened.fragments if fragment.key not in before]
        cells = sum(fragment.footer.n_cells(known) for fragment in made)
        return {
            "command": "upsert", "uri": opened.uri, "dry_run": False, "files": len(source.files), "rows": bar.count,
            "cells": cells, "fragments": len(made), "committed_ms": _when(made),
        }  # fmt: skip


# -- between the source and the array --------------------------------------------------------------------


def _column_types(given: Mapping[str, str] | None, known: "Schema | None") -> dict[str, Any]:
    """What text is to be read as: what the array holds, and what is asked for."""
    import pyarrow as pa

    from terrazzo.engine.arrow import arrow_type, value_type
    from terrazzo.errors import InvalidRequestError
    from terrazzo.format.datatypes import Datatype

    found: dict[str, Any] = {}
    for field in known.fields if known is not None else ():
        kind = arrow_type(field, known)  # type: ignore[arg-type]
        found[field.name] = kind.value_type if pa.types.is_dictionary(kind) else kind
    for name, text in (given or {}).items():
        try:
            datatype = Datatype.parse(text)
        except InvalidRequestError:
            raise InvalidRequestError(
                f"--type {name}={text}: there is no such type; write int64, float64, utf8, bool, datetime_ms, …"
            ) from None
        found[name] = value_type(datatype) or pa.string()
    return found


def _chosen(source: "Source", columns: Sequence[str] | None, known: "Schema | None") -> list[str]:
    """The columns to take, checked before any row is read."""
    from terrazzo.errors import InvalidRequestError

    there = list(source.schema.names)
    taken = there if columns is None else list(columns)
    if lacking := [name for name in taken if name not in there]:
        raise InvalidRequestError(f"the source has no column {', '.join(lacking)}; it has {', '.join(there)}")
    if known is None:
        return taken
    wanted = [field.name for field in known.fields]
    if lacking := [name for name in wanted if name not in taken]:
        raise InvalidRequestError(
            f"the source lacks {', '.join(lacking)}, which the array needs; it has {', '.join(taken)}"
        )
    if unknown := [name for name in taken if name not in wanted]:
        raise InvalidRequestError(
            f"the array has no {', '.join(unknown)}; leave it out with --columns {','.join(wanted)}"
        )
    return taken


def _fitted(source: "Source", columns: Sequence[str], schema: "Schema") -> Iterator[Any]:
    """The batches; text of CSV that is missing is text of no length where the array has no nulls."""
    import pyarrow as pa
    import pyarrow.compute as pc

    filled = (
        [attr.name for attr in schema.attrs if attr.is_var and not attr.nullable]
        if source.kind == "csv"
        else []
    )
    for batch in source.batches(columns):
        for name in filled:
            column = batch.column(name)
            if column.null_count and pa.types.is_string(column.type):
                batch = batch.set_column(columns.index(name), name, pc.fill_null(column, ""))  # noqa: PLW2901
        yield batch


@contextmanager
def _telling_rows(bar: "Bar | None") -> Iterator[None]:
    """Errors tell the row of the source, from 1: the engine counts from 0, and in what it was given at a time."""
    from terrazzo.errors import InvalidRequestError

    try:
        yield
    except InvalidRequestError as problem:
        before = 0 if bar is None else bar.count
        problem.args = (
            re.sub(r"\brow (\d+)", lambda told: f"row {before + int(told[1]) + 1:,}", str(problem.args[0])),
        )
        raise


def _whole(batches: Iterator[Any]) -> Any:
    """A dense array is written box by box: the cells of one are gathered."""
    import pyarrow as pa

    from terrazzo.errors import InvalidRequestError

    found = list(batches)
    if not found:
        raise InvalidRequestError(
            "the source has no rows, and a dense array is written by boxes of at least one cell"
        )
    return pa.Table.from_batches(found)


def _create_with(access: Access, schema: "Schema", cells: Any, at: int | None, fragment_size: int) -> None:
    """A new array with its first cells: it comes to be when they are all written, and not at all if that fails."""
    from terrazzo.engine.bulk import plan_bulk_write
    from terrazzo.engine.keys import as_cipher
    from terrazzo.storage import open_store

    store = open_store(access.uri, access.storage)
    write = plan_bulk_write(store, as_cipher(access.key), schema, fragment_size=fragment_size, at=at)
    write.commit([write.run(cells)])


def _plan(
    access: Access, source: "Source", columns: Sequence[str], schema: "Schema", *, created: bool
) -> "Report":
    from terrazzo.cli.info import schema_report
    from terrazzo.cli.output import Shown

    exact = source.kind in {"parquet", "arrow"}
    report: Report = {
        "command": "ingest", "uri": access.uri, "dry_run": True, "created": created, "format": source.kind,
        "files": len(source.files), "rows": source.n_rows if exact else None,
        "rows_estimated": source.n_rows, "columns": list(columns),
    }  # fmt: skip
    if created:
        report["schema"] = Shown(str(schema), schema_report(schema))
    return report


def _when(made: Sequence[Any]) -> Any:
    from terrazzo.cli.values import moment

    return moment(made[-1].name.end_ms) if made else None
