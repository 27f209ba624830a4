"""The command `terrazzo`: what each command shares, and nothing heavy at import."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from terrazzo.cli.demo import demo
from terrazzo.cli.inspect import inspect

_EXIT_CODES = """Exit codes: 0 done; 1 it failed, and the last line on stderr says what, where and what next;
2 the command line is wrong."""

app = typer.Typer(
    name="terrazzo",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback(epilog=_EXIT_CODES)
def terrazzo(
    debug: Annotated[bool, typer.Option("--debug", help="show the traceback of an error")] = False,
) -> None:
    """TileDB arrays: look at them, read and change them."""


for command in (demo, inspect):
    app.command(epilog=_EXIT_CODES)(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and leave with its exit code."""
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    # Where it stands does not matter to the one who adds it at the end of a line that failed.
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        app(args=arguments, prog_name="terrazzo")
    except SystemExit as done:  # typer reports a wrong command line, and a pipe that was closed, by itself
        return done.code if isinstance(done.code, int) else 0
    except KeyboardInterrupt:
        return 130
    except Exception as problem:
        if debug:
            raise
        _say(problem)
        return 1
    return 0


def _say(problem: Exception) -> None:
    from terrazzo.cli.output import print_error
    from terrazzo.errors import TerrazzoError

    if isinstance(problem, TerrazzoError):
        print_error(str(problem))
    else:
        print_error(
            f"{type(problem).__name__}: {problem}; this is a defect: report it with what --debug shows"
        )


if __name__ == "__main__":
    main()
