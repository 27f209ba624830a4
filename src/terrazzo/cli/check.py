"""`terrazzo check` and `terrazzo repair`: whether an array is sound, and what can be done if it is not."""

from typing import TYPE_CHECKING, Annotated

import typer

from terrazzo.cli.main import PROBLEMS_FOUND
from terrazzo.cli.options import Access, ArrayUri, AsJson, DryRun, KeyFile, Storage

if TYPE_CHECKING:
    from terrazzo.cli.output import Report


def check(
    array: ArrayUri,
    deep: Annotated[bool, typer.Option("--deep", help="decode every cell, too")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="exit code 3 for warnings, too")] = False,
    as_json: AsJson = False,
    key_file: KeyFile = None,
    storage: Storage = None,
) -> None:
    """Tell what is wrong with the files of an array, and where libtiledb would read something else.

    Nothing is changed. The exit code is 3 if there is an error.
    """
    from terrazzo.cli.output import print_report

    report = check_array(Access.of(array, key_file, storage), deep=deep)
    print_report(report, as_json=as_json)
    if report["errors"] or (strict and report["warnings"]):
        raise typer.Exit(PROBLEMS_FOUND)


def check_array(access: Access, *, deep: bool) -> "Report":
    import terrazzo as tz
    from terrazzo.cli.progress import Bar

    with Bar(f"checking {access.uri}", steps=True):
        found = tz.check(access.uri, deep=deep, key=access.key, storage_options=access.storage)
    return {
        "command": "check",
        "uri": found.uri,
        "ok": found.ok,
        "deep": deep,
        "fragments_checked": found.n_fragments,
        "cells_checked": found.n_cells if deep else None,
        "errors": len(found.of("error")),
        "warnings": len(found.of("warning")),
        "notes": len(found.of("note")),
        "findings": [
            {"severity": str(each.severity), "key": each.key, "problem": each.problem, "advice": each.advice}
            for each in found.findings
        ],
    }


def repair(
    array: ArrayUri,
    damaged_fragments: Annotated[
        bool,
        typer.Option("--damaged-fragments", help="give up fragments that cannot be read, and their cells"),
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    key_file: KeyFile = None,
    storage: Storage = None,
) -> None:
    """Set aside what is torn, in ARRAY.quarantine, and finish what was interrupted.

    No committed cell goes, unless --damaged-fragments says so. The exit code is 3 if errors are left.
    """
    from terrazzo.cli.output import print_report

    report = repair_array(
        Access.of(array, key_file, storage), damaged_fragments=damaged_fragments, dry_run=dry_run
    )
    print_report(report, as_json=as_json)
    if report["left"]:
        raise typer.Exit(PROBLEMS_FOUND)


def repair_array(access: Access, *, damaged_fragments: bool, dry_run: bool) -> "Report":
    import terrazzo as tz
    from terrazzo.cli.progress import Bar

    with Bar(f"repairing {access.uri}", steps=True):
        done = tz.repair(
            access.uri, dry_run=dry_run, damaged_fragments=damaged_fragments, key=access.key,
            storage_options=access.storage,
        )  # fmt: skip
    return {
        "command": "repair",
        "uri": done.uri,
        "dry_run": dry_run,
        "ok": done.ok,
        "actions": [{"action": text} for text in done.actions],
        "left": [
            {"severity": str(each.severity), "key": each.key, "problem": each.problem, "advice": each.advice}
            for each in done.left
        ],
    }
