"""Reports on the terminal: one nested dictionary, told as text with tables or as JSON.

What a file holds may be hostile: nothing of it is taken for markup or sent to the terminal as a control code.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ROWS = 20
"""Rows of a table, or items of a list, that text shows; JSON has them all."""
UNLIMITED = frozenset({"files", "sections", "events", "fragments", "findings", "actions"})
_ITEMS = 6
"""Items of a list inside a table."""

_TITLE = ("command", "kind", "file", "uri")

Report = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shown:
    """A value that people and programs want in different words."""

    text: str
    data: Any


@dataclass(frozen=True, slots=True)
class Hidden:
    """A value for programs only."""

    data: Any


def print_report(report: Report, *, as_json: bool) -> None:
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    if as_json:
        print(json.dumps(_data(report), indent=2, allow_nan=False))
    else:
        _Text().report(report)


def print_error(message: str) -> None:
    print(f"terrazzo: {printable(' '.join(message.split()))}", file=sys.stderr)


def printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _data(value: Any) -> Any:
    match value:
        case Shown() | Hidden():
            return _data(value.data)
        case Mapping():
            return {str(key): _data(item) for key, item in value.items()}
        case list() | tuple():
            return [_data(item) for item in value]
    return value


def make_console() -> Any:
    from rich.console import Console

    terminal = sys.stdout.isatty()
    # Rich would fold tables at 80 columns in a pipe, where nobody looks at the width.
    return Console(
        file=sys.stdout,
        force_terminal=None if terminal else False,
        no_color=None if terminal else True,
        width=None if terminal else 10_000,
        highlight=False,
        markup=False,
        emoji=False,
    )


def print_tree(tree: Any) -> None:
    """A tree of rich, its labels being rich's Text, without the padding that rich adds."""
    console = make_console()
    with console.capture() as captured:
        console.print(tree)
    for line in captured.get().splitlines():
        print(line.rstrip())


class _Text:
    def __init__(self) -> None:
        self.console = make_console()

    def report(self, report: Report) -> None:
        title = " ".join(str(report[key]) for key in _TITLE if key in report)
        if report.get("dry_run"):
            title += " (dry run: nothing was changed)"
        self._line(title, style="bold")
        rest = {key: item for key, item in report.items() if key not in {*_TITLE, "dry_run"}}
        self._mapping(rest, 1)

    def _mapping(self, mapping: Mapping[str, Any], depth: int) -> None:
        simple = {key: value for key, value in mapping.items() if not _is_nested(value)}
        width = max((len(key) for key in simple), default=0)
        for key, value in mapping.items():
            label = key.replace("_", " ")
            if isinstance(value, Shown) and "\n" in value.text:
                self._line(f"{'  ' * depth}{label}", style="bold")
                for line in value.text.splitlines():
                    self._line(f"{'  ' * (depth + 1)}{line}")
            elif key in simple:
                self._line(f"{'  ' * depth}{label.ljust(width)}  {_line_of(value)}")
            elif isinstance(value, Mapping):
                self._line(f"{'  ' * depth}{label}", style="bold")
                self._mapping(value, depth + 1)
            else:
                self._table(key, value, depth)

    def _table(self, key: str, rows: list[Mapping[str, Any]], depth: int) -> None:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        self._line(f"{'  ' * depth}{key.replace('_', ' ')}: {len(rows)}", style="bold")
        shown = rows if key in UNLIMITED else rows[:ROWS]
        columns = list(
            dict.fromkeys(
                name for row in shown for name, value in row.items() if not isinstance(value, Hidden)
            )
        )
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for name in columns:
            numeric = all(isinstance(row.get(name), int | float | None) for row in shown)
            table.add_column(
                Text(name.removesuffix("_ms").replace("_", " ")),
                justify="right" if numeric else "left",
                overflow="fold",
            )
        for row in shown:
            table.add_row(*(Text(_line_of(row.get(name), _ITEMS)) for name in columns))
        with self.console.capture() as captured:
            self.console.print(table)
        for line in captured.get().splitlines():
            print(f"{'  ' * (depth + 1)}{line}".rstrip())  # rich pads every line to the last column
        if len(shown) < len(rows):
            self._line(f"{'  ' * depth}  … {len(rows) - len(shown)} more; --json has them all")

    def _line(self, text: str, style: str | None = None) -> None:
        self.console.print(printable(text), style=style, soft_wrap=True)


def _is_nested(value: Any) -> bool:
    if isinstance(value, Mapping):
        return bool(value)
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _line_of(value: Any, items: int = ROWS) -> str:
    match value:
        case Shown():
            return printable(value.text)
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            if not value:
                return "none"
            if len(value) > 3 and all(item == value[0] for item in value):
                return f"{len(value)} × {_line_of(value[0])}"
            head = ", ".join(_line_of(item) for item in value[:items])
            return head if len(value) <= items else f"{head}, … ({len(value)} in all)"
        case Mapping():
            return ", ".join(f"{key} {_line_of(item)}" for key, item in value.items()) or "none"
    return printable(str(value))
