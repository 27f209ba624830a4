"""The way in to the command `terrazzo`: exit codes, and every error as one line.

It imports nothing at all before it is called: the libraries of the command line may not be installed.
"""

import os
import sys
from collections.abc import Sequence

DONE, FAILED, WRONG_USAGE, PROBLEMS_FOUND, INTERRUPTED = 0, 1, 2, 3, 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and leave with its exit code."""
    code = run(list(sys.argv[1:] if arguments is None else arguments))
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        close_pipe()
    sys.exit(code)


def run(arguments: list[str]) -> int:
    try:
        from terrazzo.cli.app import app
    except ModuleNotFoundError as lacking:
        if (lacking.name or "").partition(".")[0] not in {"typer", "rich"}:
            raise
        print(
            f"terrazzo: the command line needs {lacking.name}, which is not installed; "
            "run: pip install 'terrazzo[cli]'",
            file=sys.stderr,
        )
        return FAILED
    # Where it stands does not matter to the one who adds it at the end of a line that failed.
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        app(args=arguments, prog_name="terrazzo")
    except SystemExit as done:  # typer reports a wrong command line by itself
        code = done.code if isinstance(done.code, int) else DONE
        if code == INTERRUPTED:
            print("terrazzo: interrupted", file=sys.stderr)
        return code
    except Exception as problem:
        if debug:
            raise
        return _say(problem)
    return DONE


def close_pipe() -> None:
    """The reader of our output has left: that is its right, and nothing more is sent."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(problem: Exception) -> int:
    from terrazzo.cli.options import WrongUsageError
    from terrazzo.cli.output import print_error
    from terrazzo.cli.words import in_options
    from terrazzo.errors import TerrazzoError

    if isinstance(problem, TerrazzoError):
        print_error(in_options(problem))
        return WRONG_USAGE if isinstance(problem, WrongUsageError) else FAILED
    print_error(f"{type(problem).__name__}: {problem}; this is a defect: report it with what --debug shows")
    return FAILED


if __name__ == "__main__":
    main()
