"""`terrazzo export`: an array as a file, or as a folder of Parquet files."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from terrazzo.cli.on_spark import Master, OnSpark, Settings
from terrazzo.cli.options import (
    Access,
    ArrayUri,
    AsJson,
    At,
    Columns,
    DryRun,
    KeyFile,
    Memory,
    Overwrite,
    Regions,
    Since,
    Storage,
    Where,
    names,
    pairs,
    parse_bytes,
)

if TYPE_CHECKING:
    from terrazzo.cli.output import Report


def export(
    array: ArrayUri,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="a file, whose name tells the format; or a folder for Parquet files: parts/",
        ),
    ],
    columns: Columns = None,
    where: Where = None,
    region: Regions = None,
    at: At = None,
    since: Since = None,
    form: Annotated[
        str | None,
        typer.Option("--format", "-f", metavar="FORMAT", help="parquet, arrow, csv or json (lines)"),
    ] = None,
    file_size: Annotated[
        str, typer.Option("--file-size", metavar="SIZE", help="of each file, when a folder is written")
    ] = "512MiB",
    overwrite: Overwrite = False,
    memory: Memory = "256MiB",
    on_spark: OnSpark = False,
    master: Master = None,
    conf: Settings = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    key_file: KeyFile = None,
    storage: Storage = None,
) -> None:
    """Write the cells of an array to Parquet, CSV, Arrow or JSON, in bounded memory.

    The file appears under its name when it is complete: an export that fails leaves nothing behind.
    """
    from terrazzo.cli.output import print_report

    access = Access.of(array, key_file, storage)
    if on_spark or master:
        from terrazzo.cli.on_spark import export_on_spark

        report = export_on_spark(
            access, target, form, columns=names(columns), where=where, region=region, at=at, since=since,
            file_size=parse_bytes(file_size, "--file-size"), overwrite=overwrite, master=master,
            settings=pairs(conf, "--conf"), dry_run=dry_run,
        )  # fmt: skip
        print_report(report, as_json=as_json)
        return
    report = export_cells(
        access, target, form, columns=names(columns), where=where, region=region,
        at=at, since=since, file_size=file_size, overwrite=overwrite, memory=memory, dry_run=dry_run,
    )  # fmt: skip
    print_report(report, as_json=as_json)


def export_cells(
    access: Access, target: str, form: str | None, *, columns: Sequence[str] | None, where: str | None,
    region: Sequence[str] | None, at: str | None, since: str | None, file_size: str, overwrite: bool, memory: str,
    dry_run: bool,
) -> "Report":  # fmt: skip
    from terrazzo.cli.read import Cells, write_cells
    from terrazzo.cli.sinks import format_of, require_absent, write_folder
    from terrazzo.errors import InvalidRequestError

    folder = target.endswith("/")
    kind = format_of("x.parquet" if folder else target, form)
    if folder and kind != "parquet":
        raise InvalidRequestError(f"{target}: a folder is written as Parquet files; name a file for {kind}")
    size = parse_bytes(file_size, "--file-size")
    cells = Cells(access, columns, where, region, at, since, memory=memory)
    if dry_run:
        if not folder:
            require_absent(target, overwrite=overwrite)
        plan = cells.array.explain(columns, where, cells.region)
        return {
            "command": "export", "uri": cells.array.uri, "dry_run": True, "to": target, "format": kind,
            "cells_at_most": plan.n_cells, "bytes_to_read": plan.stored_bytes, "columns": list(cells.schema.names),
        }  # fmt: skip
    if not folder:
        return write_cells(cells, target, kind, overwrite=overwrite) | {"dry_run": False}
    rows, files = write_folder(target, cells.schema, cells.batches(), size=size)
    return {
        "command": "export", "uri": cells.array.uri, "dry_run": False, "to": target, "format": kind,
        "cells": rows, "files": files,
    }  # fmt: skip
