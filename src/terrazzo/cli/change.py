"""`terrazzo delete` and `terrazzo update`: cells that match a condition, changed under one commit."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from terrazzo.cli.options import (
    Access,
    ArrayUri,
    AsJson,
    DryRun,
    KeyFile,
    Storage,
    WriteAt,
    WrongUsageError,
    pairs,
    parse_time,
)

if TYPE_CHECKING:
    from terrazzo.cli.output import Report
    from terrazzo.format.schema import Schema

NoCount = Annotated[
    bool, typer.Option("--no-count", help="do not count first: at once, whatever the size of the array")
]


def delete(
    array: ArrayUri,
    where: Annotated[
        str,
        typer.Option(
            "--where", "-w", metavar="SQL", help="which cells: \"v > 3 AND tag = 'a'\"; 1 = 1 is all"
        ),
    ],
    at: WriteAt = None,
    no_count: NoCount = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    key_file: KeyFile = None,
    storage: Storage = None,
) -> None:
    """Delete the cells that match a condition. Earlier instants still show them, until a purge."""
    from terrazzo.cli.output import print_report

    access = Access.of(array, key_file, storage)
    report = delete_cells(access, where, at=at, count=not no_count, dry_run=dry_run)
    print_report(report, as_json=as_json)


def delete_cells(access: Access, where: str, *, at: str | None, count: bool, dry_run: bool) -> "Report":
    from terrazzo.cli.progress import Bar

    opened, when = access.open(), parse_time(at, "--at")
    if opened.schema.dense:
        from terrazzo.errors import InvalidRequestError

        raise InvalidRequestError(
            f"{opened.uri}: a dense array has a value in every cell; set another one with update instead of deleting"
        )
    report: Report = {"command": "delete", "uri": opened.uri, "dry_run": dry_run, "where": where}
    with Bar(f"deleting from {access.uri}", steps=True):
        cells = opened.count(where) if count or dry_run else None
        if not dry_run and cells != 0:  # a condition that matches nothing would be tested for ever
            opened.delete(where, at=when)
    return report | {"cells": cells, "committed": not dry_run and cells != 0}


def update(
    array: ArrayUri,
    assignments: Annotated[
        list[str],
        typer.Option(
            "--set", "-s", metavar="NAME=VALUE", help="new value of an attribute; null is null; repeatable"
        ),
    ],
    where: Annotated[
        str | None, typer.Option("--where", "-w", metavar="SQL", help="which cells; all of them without it")
    ] = None,
    portable: Annotated[
        bool,
        typer.Option("--portable", help="write the cells again, so that libtiledb shows the new values too"),
    ] = False,
    at: WriteAt = None,
    no_count: NoCount = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    key_file: KeyFile = None,
    storage: Storage = None,
) -> None:
    """Set attributes of the cells that match a condition. Earlier instants still show the values of then."""
    from terrazzo.cli.output import print_report

    access = Access.of(array, key_file, storage)
    report = update_cells(
        access,
        pairs(assignments, "--set"),
        where,
        portable=portable,
        at=at,
        count=not no_count,
        dry_run=dry_run,
    )
    print_report(report, as_json=as_json)


def update_cells(
    access: Access, assignments: Mapping[str, str], where: str | None, *, portable: bool, at: str | None, count: bool,
    dry_run: bool,
) -> "Report":  # fmt: skip
    from terrazzo.cli.progress import Bar
    from terrazzo.engine.update import cell_values

    opened, when = access.open(), parse_time(at, "--at")
    values = {name: parse_assigned(name, text, opened.schema) for name, text in assignments.items()}
    cell_values(values, opened.schema)  # a dry run finds what is wrong, too
    report: Report = {
        "command": "update",
        "uri": opened.uri,
        "dry_run": dry_run,
        "set": values,
        "where": where,
    }
    with Bar(f"updating {access.uri}", steps=True):
        cells = opened.count(where) if count or dry_run else None
        if not dry_run and cells != 0:
            opened.update(values, where, at=when, portable=portable)
    return report | {"cells": cells, "committed": not dry_run and cells != 0}


def parse_assigned(name: str, text: str, schema: "Schema") -> Any:
    """The value that stands behind `name=`, by the type of the attribute."""
    if any(dim.name == name for dim in schema.dims):
        raise WrongUsageError(
            f"--set {name}={text}: {name} is a dimension, and the place of a cell is fixed; delete and ingest"
        )
    attr = schema.attr(name)  # says which there are
    if text.lower() == "null" and attr.nullable:
        return None
    if attr.enum is not None and attr.enum in schema.enums:
        datatype, many = schema.enums[attr.enum].datatype, False
    else:
        datatype, many = attr.datatype, attr.cell_val_num != 1
    if datatype.is_text or datatype.is_string or datatype.name == "BLOB":
        return quoted[1] if (quoted := re.fullmatch(r"'(.*)'", text, re.DOTALL)) else text
    if many:
        return _list(name, text)
    if datatype.name == "BOOL":
        if text.lower() not in {"true", "false"}:
            raise WrongUsageError(f"--set {name}={text}: write true or false")
        return text.lower() == "true"
    if datatype.is_datetime:
        return quoted[1] if (quoted := re.fullmatch(r"'(.*)'", text)) else text
    try:
        return float(text) if datatype.is_float else int(text)
    except ValueError:
        kind = "number" if datatype.is_float else "whole number"
        null = "" if attr.nullable or text.lower() != "null" else f", and {name} is not nullable"
        raise WrongUsageError(f"--set {name}={text}: {text!r} is no {kind}{null}") from None


def _list(name: str, text: str) -> Sequence[Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list):
        raise WrongUsageError(f"--set {name}={text}: a cell of {name} is a list; write {name}=[1,2,3]")
    return found
