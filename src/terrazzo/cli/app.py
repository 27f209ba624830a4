"""All commands of `terrazzo`, each with its examples. Nothing heavy is imported before a command runs."""

from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from terrazzo.cli.change import delete, update
from terrazzo.cli.check import check, repair
from terrazzo.cli.demo import demo
from terrazzo.cli.export import export
from terrazzo.cli.history import fragments, history
from terrazzo.cli.info import info, schema
from terrazzo.cli.ingest import ingest, upsert
from terrazzo.cli.inspect import inspect
from terrazzo.cli.maintain import consolidate, restore, vacuum
from terrazzo.cli.read import read

EXIT_CODES = """Exit codes: 0 done; 1 it failed, and the last line on stderr says what, where and what next;
2 the command line is wrong; 3 problems were found (check, repair); 130 interrupted, and nothing
was committed."""

app = typer.Typer(
    name="terrazzo",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        from terrazzo import __version__

        print(f"terrazzo {__version__}")
        raise typer.Exit


@app.callback(epilog=EXIT_CODES)
def terrazzo(
    version: Annotated[
        bool, typer.Option("--version", help="print the version", callback=_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show the traceback of an error")] = False,
) -> None:
    """TileDB arrays: look at them, read and change them.

    An ARRAY is a path or a URI (s3://bucket/readings). Keys of encrypted arrays come from --key-file or from
    the variable TERRAZZO_KEY; credentials of object stores come from the environment.
    """


_EXAMPLES: dict[Callable[..., None], str] = {
    info: """terrazzo info readings
        terrazzo info s3://bucket/readings --storage aws_region=eu-north-1 --json""",
    schema: """terrazzo schema readings
        terrazzo schema readings --at 2026-01-31""",
    history: """terrazzo history readings
        terrazzo history readings --html readings.html
        terrazzo history readings --json""",
    fragments: """terrazzo fragments readings""",
    read: """terrazzo read readings --where "temperature > 30" --columns station,temperature
        terrazzo read readings --region day=1:31 --region station=Oslo,Bergen --limit 100
        terrazzo read readings --format csv | head
        terrazzo read readings --at 2026-01-31T12:00:00 --to january.parquet
        terrazzo read readings --count --where "note IS NULL\"""",
    ingest: """terrazzo ingest readings data.parquet --dim station,day --filter byteshuffle,zstd:3
        terrazzo ingest readings more.csv
        terrazzo ingest readings 'logs/*.jsonl' --dry-run
        zcat big.csv.gz | terrazzo ingest readings - --format csv
        terrazzo ingest s3://bucket/readings 's3a://lake/raw/*.parquet' --master spark://host:7077""",
    upsert: """terrazzo upsert readings corrections.csv""",
    export: """terrazzo export readings readings.parquet
        terrazzo export readings parts/ --file-size 256MiB
        terrazzo export readings hot.csv --where "temperature > 30" --overwrite
        terrazzo export readings parts --spark""",
    delete: """terrazzo delete readings --where "day > 360" --dry-run
        terrazzo delete readings --where "station = 'Oslo' AND day = 3\"""",
    update: """terrazzo update readings --set temperature=9.5 --set note=null --where "temperature > 60\"""",
    consolidate: """terrazzo consolidate readings --dry-run
        terrazzo consolidate readings --memory 2GiB
        terrazzo consolidate readings --what all
        terrazzo consolidate readings --spark --max-fragment-size 1GiB""",
    vacuum: """terrazzo vacuum readings --dry-run
        terrazzo vacuum readings --retain 12h""",
    restore: """terrazzo restore readings --at 2026-01-31T12:00:00 --dry-run""",
    check: """terrazzo check readings
        terrazzo check readings --deep || echo "look at it\"""",
    repair: """terrazzo repair readings --dry-run
        terrazzo repair readings""",
    inspect: """terrazzo inspect readings
        terrazzo inspect readings/__fragments/__1_1_…_22/a0.tdb --values 10""",
    demo: """terrazzo demo
        terrazzo demo tour""",
}


def _quiet(command: Callable[..., None]) -> Callable[..., None]:
    """`terrazzo read … | head` ends without a word once `head` has had enough."""

    @wraps(command)
    def wrapped(**options: Any) -> None:
        try:
            command(**options)
        except BrokenPipeError:
            from terrazzo.cli.main import close_pipe

            close_pipe()
            raise typer.Exit(0) from None

    return wrapped


for _command, _shown in _EXAMPLES.items():
    _lines = "\n".join(f"  {line.strip()}" for line in _shown.splitlines())
    app.command(epilog=f"\b\nExamples:\n{_lines}\n\n{EXIT_CODES}")(_quiet(_command))
