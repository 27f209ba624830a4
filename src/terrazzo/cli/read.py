"""`terrazzo read`: cells as a table for people, or as Arrow, Parquet, CSV or JSON for programs."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from terrazzo.cli.options import (
    Access,
    ArrayUri,
    AsJson,
    At,
    Columns,
    KeyFile,
    Memory,
    Overwrite,
    Regions,
    Since,
    Storage,
    Where,
    WrongUsageError,
    names,
    parse_bytes,
    parse_regions,
)

if TYPE_CHECKING:
    from terrazzo.cli.output import Report

ROWS = 20
_FOLDED = 500  # rows
_WORTH_COUNTING = 50_000_000  # cells stored; beyond, whoever wants the number asks for it


def read(
    array: ArrayUri,
    columns: Columns = None,
    where: Where = None,
    region: Regions = None,
    at: At = None,
    since: Since = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", "-l", min=0, metavar="N", help=f"at most N cells; {ROWS} in a table, 0 is all"
        ),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(metavar="ORDER", help="row-major, col-major or global; reads all into memory"),
    ] = None,
    count: Annotated[
        bool, typer.Option("--count", help="print how many cells there are, and no cell")
    ] = False,
    to: Annotated[
        str | None, typer.Option("--to", metavar="FILE", help="write to a file; its name tells the format")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--format", "-f", metavar="FORMAT", help="parquet, arrow, csv or json (lines)"),
    ] = None,
    overwrite: Overwrite = False,
    memory: Memory = "256MiB",
    as_json: AsJson = False,
    key_file: KeyFile = None,
    storage: Storage = None,
) -> None:
    """Read cells: a table on the terminal, or a file or a pipe of another format.

    Without --to and --format a table of the first cells is printed, and how many more there are.
    """
    from terrazzo.cli.output import print_report
    from terrazzo.cli.sinks import format_of, write_stdout

    if count and (to or form or limit is not None):
        raise WrongUsageError("--count prints a number: leave out --to, --format and --limit")
    if as_json and (to is None and form is not None):
        raise WrongUsageError("--json prints one document: leave out --format, or give --to FILE")
    access = Access.of(array, key_file, storage)
    if count:
        report = count_cells(access, where, region, at, since)
        if as_json:
            print_report(report, as_json=True)
        else:
            print(report["cells"])
        return
    if order is not None and order not in (orders := ("row-major", "col-major", "global")):
        raise WrongUsageError(f"--order {order}: there are {', '.join(orders)}")
    cells = Cells(access, names(columns), where, region, at, since, limit, order, memory)
    if to is not None:
        report = write_cells(cells, to, format_of(to, form), overwrite=overwrite)
        print_report(report | {"command": "read"}, as_json=as_json)
    elif form is not None:
        write_stdout(format_of("", form), cells.schema, cells.batches())
    else:
        show_cells(cells, as_json=as_json)


class Cells:
    """The cells of a request, checked before anything is read, in batches under a memory bound."""

    def __init__(
        self, access: Access, columns: Sequence[str] | None, where: str | None, region: Sequence[str] | None,
        at: str | None, since: str | None, limit: int | None = None, order: str | None = None, memory: str = "256MiB",
    ) -> None:  # fmt: skip
        from terrazzo.cli.progress import Bar

        self.array = access.open(at, since)
        self.where, self.columns = where, columns
        self.region = parse_regions(region, self.array.schema)
        self.limit = limit
        self._bar = Bar(f"reading {access.uri}")
        self._table = None
        if order is not None:
            with self._bar:
                self._table = self.array.read(columns, where, self.region, order)
            self.schema = self._table.schema
        else:
            self._reader = self.array.scan(
                columns, where, self.region, parse_bytes(memory, "--memory"), progress=self._bar
            )
            self.schema = self._reader.schema

    def batches(self, limit: int | None = None) -> Iterator[Any]:
        """Up to the limit, which by default is the one asked for; 0 is none."""
        left = limit if limit is not None else self.limit
        if self._table is not None:
            yield from first_rows(self._table.to_batches(), left)
            return
        with self._bar:
            yield from self._bar.counting(first_rows(self._reader, left))

    @property
    def n_stored(self) -> int:
        snapshot = self.array._view.snapshot  # noqa: SLF001
        return sum(fragment.footer.n_cells(snapshot.schema_of(fragment)) for fragment in self.array.fragments)

    def count(self) -> int | None:
        """How many there are in all; None where counting would take long."""
        if self._table is not None:
            return int(self._table.num_rows)
        if self.n_stored > _WORTH_COUNTING:
            return None
        return self.array.count(self.where, self.region)


def first_rows(batches: Iterable[Any], limit: int | None) -> Iterator[Any]:
    left = limit or None
    for batch in batches:
        if left is not None and batch.num_rows >= left:
            yield batch.slice(0, left)
            return
        if left is not None:
            left -= batch.num_rows
        yield batch


def count_cells(
    access: Access, where: str | None, region: Sequence[str] | None, at: str | None, since: str | None
) -> "Report":
    from terrazzo.cli.progress import Bar

    opened = access.open(at, since)
    with Bar(f"counting {access.uri}", steps=True):
        cells = opened.count(where, parse_regions(region, opened.schema))
    return {"command": "read", "uri": opened.uri, "cells": cells}


def write_cells(cells: Cells, target: str, kind: str, *, overwrite: bool) -> "Report":
    """The cells as one file."""
    from terrazzo.cli.sinks import write_file

    rows = write_file(target, kind, cells.schema, cells.batches(), overwrite=overwrite)
    return {
        "command": "export",
        "uri": cells.array.uri,
        "to": target,
        "format": kind,
        "cells": rows,
        "files": 1,
    }


def show_cells(cells: Cells, *, as_json: bool) -> None:
    import pyarrow as pa

    from terrazzo.cli.output import print_report
    from terrazzo.cli.values import plain

    limit = ROWS if cells.limit is None else cells.limit
    table = pa.Table.from_batches(list(cells.batches(limit)), cells.schema)
    total = table.num_rows if not limit or table.num_rows < limit else cells.count()
    if as_json:
        report: Report = {
            "command": "read",
            "uri": cells.array.uri,
            "columns": [{"name": field.name, "type": str(field.type)} for field in table.schema],
            "rows": [{name: plain(value) for name, value in row.items()} for row in table.to_pylist()],
            "cells": total,
        }
        print_report(report, as_json=True)
        return
    print_table(table)
    if total is None:
        print(
            f"… and more, of up to {cells.n_stored:,} cells stored; --count counts them, --limit 0 shows all"
        )
    elif total > table.num_rows:
        print(
            f"… {total - table.num_rows:,} more of {total:,} cells; --limit shows more, --limit 0 all of them"
        )
    else:
        print(f"{total:,} cell{'' if total == 1 else 's'}")


def print_table(table: Any) -> None:
    import pyarrow as pa

    from terrazzo.cli.output import printable

    heads = [printable(field.name) for field in table.schema]
    right = [pa.types.is_integer(field.type) or pa.types.is_floating(field.type) for field in table.schema]
    columns = [[_text(value) for value in column.to_pylist()] for column in table.columns]
    if table.num_rows <= _FOLDED:
        _print_folded(heads, right, columns)
    else:
        _print_aligned(heads, right, columns)


def _print_folded(heads: list[str], right: list[bool], columns: list[list[str]]) -> None:
    """Cells that are too wide for the terminal go over several lines."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from terrazzo.cli.output import print_tree

    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for head, to_right in zip(heads, right, strict=True):
        shown.add_column(Text(head), justify="right" if to_right else "left", overflow="fold")
    for row in zip(*columns, strict=True):
        shown.add_row(*map(Text, row))
    print_tree(shown)


def _print_aligned(heads: list[str], right: list[bool], columns: list[list[str]]) -> None:
    """Many rows, of which rich would take long to make a table."""
    for place, (head, to_right) in enumerate(zip(heads, right, strict=True)):
        width = max(len(head), *map(len, columns[place]))
        moved = [head, "─" * width, *columns[place]]
        columns[place] = [text.rjust(width) if to_right else text.ljust(width) for text in moved]
    for row in zip(*columns, strict=True):
        print("   ".join(row).rstrip())


def _text(value: Any) -> str:
    from terrazzo.cli.output import printable
    from terrazzo.cli.values import raw

    if value is None:
        return "null"
    if isinstance(value, bytes):
        return raw(value)
    return printable(str(value))
