"""`--spark`: the same commands as jobs on a Spark session, local or on a cluster."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from terrazzo.cli.options import Access, WrongUsageError

if TYPE_CHECKING:
    from terrazzo.cli.output import Report
    from terrazzo.cli.schema_options import SchemaOptions

OnSpark = Annotated[bool, typer.Option("--spark", help="run it as a job on Spark")]
Master = Annotated[
    str | None,
    typer.Option(
        "--master", metavar="URL", help="Spark's master, such as spark://host:7077; implies --spark"
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="setting of the Spark session; repeatable"),
]

_FORMS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".orc": "orc",
    ".avro": "avro",
}


@contextmanager
def spark_session(master: str | None, settings: Mapping[str, str]) -> Iterator[Any]:
    """A session for one command; one that runs already is used, and left running."""
    from terrazzo.spark.sessions import running, session

    there = running()
    made = there or session(master, settings={"spark.ui.showConsoleProgress": "false", **settings})
    try:
        yield made
    finally:
        if there is None:
            made.stop()


def form_of(sources: Sequence[str], form: str | None) -> str:
    """The format of files, by their names if it is not given."""
    if form is not None:
        return "json" if form == "jsonl" else form
    found = {_FORMS[end] for end in _FORMS for source in sources if end in source.lower()}
    if len(found) != 1:
        raise WrongUsageError(
            "the names of the sources do not tell their format; say --format parquet, csv, json, …"
        )
    return found.pop()


def ingest_on_spark(
    access: Access, sources: Sequence[str], making: "SchemaOptions", *, form: str | None,
    columns: Sequence[str] | None, nulls: Sequence[str], master: str | None, settings: Mapping[str, str],
    dry_run: bool, update: bool = False,
) -> "Report":  # fmt: skip
    """Files of any format that Spark reads, into a new array or an old one, under one commit."""
    from terrazzo.cli.progress import Bar
    from terrazzo.errors import ArrayExistsError, ArrayNotFoundError

    if "-" in sources:
        raise WrongUsageError("Spark cannot read standard input; leave out --spark, or name files")
    kind, there = form_of(sources, form), access.exists()
    if there and making.any_given:
        raise ArrayExistsError(f"there is an array at {access.uri} already; leave out --dim to append to it")
    if not there and not making.dims:
        raise ArrayNotFoundError(
            f"there is no array at {access.uri}; give --dim NAME,… to create it from the source"
        )
    with spark_session(master, settings) as spark:
        from terrazzo.spark.creation import schema_from_options
        from terrazzo.spark.jobs import read_files, written_files

        known = access.open().schema if there else None
        reading = {"nullValue": nulls[0]} if nulls else {}
        df = read_files(spark, sources, kind, options=reading, columns=columns, schema=known)
        schema = known or schema_from_options(df.schema, making_options(access, making))
        assert schema is not None, "--dim was asked for above"
        told: Report = {
            "command": "upsert" if update else "ingest", "uri": access.uri, "dry_run": dry_run, "created": not there,
            "format": kind, "columns": df.columns,
        }  # fmt: skip
        if dry_run:
            from terrazzo.cli.info import schema_report
            from terrazzo.cli.output import Shown

            return told if there else told | {"schema": Shown(str(schema), schema_report(schema))}
        with Bar(f"writing {access.uri}") as bar:
            done = written_files(
                spark, df, access.uri, schema=schema, update=update, key=access.key,
                storage_options=access.storage or None, progress=bar,
            )  # fmt: skip
        return told | _summary(done, "fragments")


def _summary(done: Any, pieces: str) -> "Report":
    return {
        "cells": done.cells, "bytes": done.size, pieces: done.pieces, "seconds": round(done.seconds, 3),
        "cells_per_second": round(done.rate),
    }  # fmt: skip


def making_options(access: Access, making: "SchemaOptions") -> Any:
    """What the command line says of a new array, as the options of Spark's sink."""
    from terrazzo.cli.options import pairs
    from terrazzo.spark.options import WRITE, Options

    given: dict[str, Any] = {"path": access.uri, "dims": ",".join(making.dims)}
    given |= {f"domain.{name}": text for name, text in pairs(making.domain, "--domain").items()}
    given |= {f"tile.{name}": text for name, text in pairs(making.tile, "--tile").items()}
    for text in making.filters:
        name, mark, chain = text.partition("=")
        given[f"filters.{name}" if mark else "filters"] = chain if mark else text
    for name in ("capacity", "order", "tile_order"):
        if (value := getattr(making, name)) is not None:
            given[name] = value
    given |= {"allows_duplicates": making.allow_duplicates, "dense": making.dense}
    return Options.of(given, WRITE)


def export_on_spark(
    access: Access, target: str, form: str | None, *, columns: Sequence[str] | None, where: str | None,
    region: Sequence[str] | None, at: str | None, since: str | None, file_size: int, overwrite: bool,
    master: str | None, settings: Mapping[str, str], dry_run: bool,
) -> "Report":  # fmt: skip
    """A folder of files, each written by the task that read its cells."""
    from terrazzo.cli.options import parse_regions
    from terrazzo.cli.progress import Bar

    opened = access.open(at, since)
    box = parse_regions(region, opened.schema)
    kind = form or "parquet"
    told: Report = {"command": "export", "uri": opened.uri, "dry_run": dry_run, "to": target, "format": kind}
    if dry_run:
        plan = opened.explain(columns, where, box)
        return told | {"cells_at_most": plan.n_cells, "bytes_to_read": plan.stored_bytes}
    with spark_session(master, settings) as spark:
        from terrazzo.spark.jobs import export_files

        with Bar(f"exporting {access.uri}") as bar:
            done = export_files(
                spark, opened, target, kind, columns=columns, where=where, region=box, file_size=file_size,
                overwrite=overwrite, storage_options=access.storage or None, progress=bar,
            )  # fmt: skip
        return told | _summary(done, "files")
