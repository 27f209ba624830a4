"""Options that several commands share, and how their text becomes what the engine takes."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from terrazzo.errors import InvalidRequestError

if TYPE_CHECKING:
    from terrazzo.engine.array import Array
    from terrazzo.format.datatypes import Datatype
    from terrazzo.format.schema import Schema

KEY_VARIABLE = "TERRAZZO_KEY"

ArrayUri = Annotated[
    str, typer.Argument(metavar="ARRAY", help="path or URI of an array: readings, s3://bucket/readings")
]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document, for programs")]
KeyFile = Annotated[
    str | None,
    typer.Option(
        "--key-file",
        metavar="FILE",
        help=f"file with the key of an encrypted array; without it the variable {KEY_VARIABLE} counts",
    ),
]
Storage = Annotated[
    list[str] | None,
    typer.Option(
        "--storage", metavar="NAME=VALUE", help="storage option, such as aws_region=eu-north-1; repeatable"
    ),
]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="the array as it was then: 2026-01-31T12:00:00 (UTC), or ms"),
]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="only what was written from then on")
]
WriteAt = Annotated[
    str | None, typer.Option("--at", metavar="TIME", help="commit as of this time, and not of now")
]
Columns = Annotated[
    list[str] | None,
    typer.Option("--columns", "-c", metavar="NAME,…", help="these columns only; repeatable"),
]
Where = Annotated[
    str | None,
    typer.Option("--where", "-w", metavar="SQL", help="condition on columns: \"v > 3 AND tag = 'a'\""),
]
Regions = Annotated[
    list[str] | None,
    typer.Option(
        "--region",
        "-r",
        metavar="DIM=RANGE",
        help="x=10:20 (both included), x=5, x=1:3,8, x=10: ; dates: t=2026-01-01..2026-01-31; repeatable",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="tell what would be done, and change nothing")]
Memory = Annotated[str, typer.Option("--memory", metavar="SIZE", help="how much to hold at a time")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="replace a file that is there")]


class WrongUsageError(InvalidRequestError):
    """The command line itself is wrong: exit code 2."""


@dataclass(frozen=True, slots=True)
class Access:
    """An array, and what it takes to reach it."""

    uri: str
    key: Any = field(default=None, repr=False)
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, uri: str, key_file: str | None, storage: Sequence[str] | None) -> "Access":
        return cls(uri, read_key(key_file), pairs(storage, "--storage"))

    def open(self, at: str | None = None, since: str | None = None) -> "Array":
        """The array; one of a time when there was none is empty, and a note says so."""
        import terrazzo as tz

        at_ms, since_ms = parse_time(at, "--at"), parse_time(since, "--since")
        if at_ms is not None and since_ms is not None and since_ms > at_ms:
            raise WrongUsageError(f"--since {since} is later than --at {at}")
        opened = tz.open(self.uri, at=at_ms, since=since_ms, key=self.key, storage_options=self.storage)
        if at_ms is not None and at_ms < (first_ms := begins_ms(opened)):
            from terrazzo.cli.output import print_error
            from terrazzo.engine.clock import as_text

            print_error(f"note: at {as_text(at_ms)} there was no array; it begins at {as_text(first_ms)}")
        return opened

    def exists(self) -> bool:
        import terrazzo as tz

        return tz.exists(self.uri, storage_options=self.storage)


def begins_ms(opened: "Array") -> int:
    """When the array was created."""
    from terrazzo.format.keys import TimestampedName

    named = map(TimestampedName.parse, opened._view.snapshot.schemas)  # noqa: SLF001
    return min((name.start_ms for name in named if name is not None), default=0)


def parse_bytes(text: str, option: str) -> int:
    """A size such as 256MiB."""
    from terrazzo.engine.plan import parse_size

    try:
        return parse_size(text, option)
    except InvalidRequestError:
        raise WrongUsageError(f"{option} {text}: this is no size; write bytes, or 256MiB") from None


def read_key(key_file: str | None) -> Any:
    """The key: of the file, or else of the environment. It is never on a command line, where others see it."""
    if key_file is None:
        return os.environ.get(KEY_VARIABLE) or None
    try:
        with open(key_file, "rb") as opened:  # noqa: PTH123
            content = opened.read(4096)
    except OSError as problem:
        raise InvalidRequestError(f"--key-file: {problem.strerror}: {key_file}") from None
    return content if len(content) == 32 else content.strip().decode("ascii", "replace")


def pairs(given: Iterable[str] | None, option: str) -> dict[str, str]:
    """NAME=VALUE, each name once."""
    found: dict[str, str] = {}
    for item in given or ():
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            # What was given may be a secret without its name: it is not repeated.
            raise WrongUsageError(f"{option} takes NAME=VALUE")
        if name.strip() in found:
            raise WrongUsageError(f"{option}: {name.strip()} is given twice")
        found[name.strip()] = value
    return found


def names(given: Sequence[str] | None) -> list[str] | None:
    """Column names of a repeatable option that takes several at once."""
    if not given:
        return None
    return [name.strip() for item in given for name in item.split(",") if name.strip()]


def parse_time(text: str | None, option: str) -> int | None:
    """Milliseconds since 1970, or ISO 8601 text; eight digits are a date."""
    if text is None:
        return None
    from terrazzo.engine.clock import instant

    try:
        return instant(int(text) if re.fullmatch(r"\d+", text) and len(text) != 8 else text, option)
    except InvalidRequestError:
        raise WrongUsageError(
            f"{option} {text}: this is no time; write 2026-01-31T12:00:00 (UTC, or with a zone), or milliseconds "
            "since 1970"
        ) from None


def parse_regions(given: Sequence[str] | None, schema: "Schema") -> dict[str, list[Any]] | None:
    """`x=10:20` and the like, as the region that the engine takes; ranges of one dimension add up."""
    if not given:
        return None
    region: dict[str, list[Any]] = {}
    for item in given:
        name, equals, text = item.partition("=")
        name = name.strip()
        if not equals or not name:
            raise WrongUsageError(f"--region {item}: write DIM=LOW:HIGH, such as x=10:20")
        datatype = schema.dim(name).datatype  # says which dimensions there are
        region.setdefault(name, []).extend(
            parse_range(part.strip(), datatype, f"--region {item}") for part in text.split(",")
        )
    return region


def parse_range(text: str, datatype: "Datatype", what: str) -> Any:
    """LOW:HIGH or LOW..HIGH as a tuple, either end may be left out; or one value."""
    from terrazzo.engine import spelling

    with _usage():
        return spelling.parse_range(text, datatype, what)


def parse_value(text: str, datatype: "Datatype", what: str) -> Any:
    """One coordinate."""
    from terrazzo.engine import spelling

    with _usage():
        return spelling.parse_value(text, datatype, what)


def parse_filters(text: str, what: str) -> list[Any]:
    """Filters by name, in the order in which they are applied."""
    from terrazzo.engine import spelling

    with _usage():
        return spelling.parse_filters(text, what)


@contextmanager
def _usage() -> Iterator[None]:
    """What is wrong with a text that stands on the command line is wrong with the command line."""
    try:
        yield
    except InvalidRequestError as problem:
        raise WrongUsageError(str(problem)) from None
