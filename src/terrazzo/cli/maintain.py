"""`terrazzo consolidate`, `vacuum` and `restore`: an array kept small, and taken back to an instant."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from terrazzo.cli.on_spark import Master, OnSpark, Settings
from terrazzo.cli.options import (
    Access,
    ArrayUri,
    AsJson,
    DryRun,
    KeyFile,
    Memory,
    Storage,
    WrongUsageError,
    begins_ms,
    pairs,
    parse_bytes,
    parse_time,
)

if TYPE_CHECKING:
    from terrazzo.cli.output import Report

_WHAT = ("fragments", "commits", "footers", "metadata")


def consolidate(
    array: ArrayUri,
    what: Annotated[
        str, typer.Option("--what", metavar="WHAT", help=f"{', '.join(_WHAT)}, several with commas, or all")
    ] = "fragments",
    purge: Annotated[
        bool,
        typer.Option("--purge", help="drop what is not shown now: earlier instants can no longer be read"),
    ] = False,
    max_fragment_size: Annotated[
        str | None, typer.Option("--max-fragment-size", metavar="SIZE", help="of each fragment that is made")
    ] = None,
    min_fragments: Annotated[
        int, typer.Option("--min-fragments", min=2, metavar="N", help="at least so many at once")
    ] = 2,
    max_fragments: Annotated[
        int | None, typer.Option("--max-fragments", min=2, metavar="N", help="at most so many at once")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="fragments from then on only")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="fragments up to then only")
    ] = None,
    memory: Memory = "1GiB",
    on_spark: OnSpark = False,
    master: Master = None,
    conf: Settings = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    key_file: KeyFile = None,
    storage: Storage = None,
) -> None:
    """Bring fragments together, so that reads and opens touch fewer files. Every instant reads as before."""
    from terrazzo.cli.output import print_report

    chosen = _WHAT if what == "all" else tuple(part.strip() for part in what.split(","))
    if unknown := [part for part in chosen if part not in _WHAT]:
        raise WrongUsageError(f"--what {unknown[0]}: there are {', '.join(_WHAT)} and all")
    with _runner(
        pairs(conf, "--conf"), master, on_spark=(on_spark or bool(master)) and not dry_run
    ) as runner:
        report = consolidate_array(
            Access.of(array, key_file, storage), chosen, purge=purge, max_fragment_size=max_fragment_size,
            min_fragments=min_fragments, max_fragments=max_fragments, since=since, until=until, memory=memory,
            dry_run=dry_run, runner=runner,
        )  # fmt: skip
    print_report(report, as_json=as_json)


@contextmanager
def _runner(settings: Mapping[str, str], master: str | None, *, on_spark: bool) -> Iterator[Any]:
    if not on_spark:
        yield None
        return
    from terrazzo.cli.on_spark import spark_session

    with spark_session(master, settings) as spark:
        from terrazzo.spark import SparkRunner

        yield SparkRunner(spark)


def consolidate_array(
    access: Access, what: tuple[str, ...], *, purge: bool, max_fragment_size: str | None, min_fragments: int,
    max_fragments: int | None, since: str | None, until: str | None, memory: str, dry_run: bool,
    runner: Any = None,
) -> "Report":  # fmt: skip
    from terrazzo.cli.progress import Bar

    size = None if max_fragment_size is None else parse_bytes(max_fragment_size, "--max-fragment-size")
    opened = access.open()
    report: Report = {"command": "consolidate", "uri": opened.uri, "dry_run": dry_run, "what": list(what)}
    if "fragments" in what:
        with Bar(f"consolidating {access.uri}") as bar:
            done = opened.consolidate(
                purge=purge, max_fragment_size=size, min_fragments=min_fragments,
                max_fragments=max_fragments, since=parse_time(since, "--since"), until=parse_time(until, "--until"),
                memory=parse_bytes(memory, "--memory"), progress=bar, dry_run=dry_run, runner=runner,
            )  # fmt: skip
        if dry_run:
            report |= {
                "sources": [str(fragment.name) for fragment in done.sources], "fragments_made": len(done.tasks),
                "cells": done.n_cells, "bytes": done.stored_bytes, "updates_left_pending": done.pending,
            }  # fmt: skip
        else:
            report |= {
                "fragments_merged": done.n_sources, "fragments_made": done.n_created, "cells": done.n_cells,
                "steps": done.steps,
            }  # fmt: skip
        report["result"] = str(done).splitlines()[0]
    if not dry_run:
        with Bar(f"consolidating {access.uri}"):
            if "commits" in what:
                opened.consolidate_commits()
            if "footers" in what:
                opened.consolidate_fragment_metadata()
            if "metadata" in what:
                opened.consolidate_metadata()
    return report


def vacuum(
    array: ArrayUri,
    retain: Annotated[
        str,
        typer.Option(
            "--retain", metavar="AGE", help="keep what is younger: 7d, 12h; 0 if nobody else is at work"
        ),
    ] = "7d",
    dry_run: DryRun = False,
    as_json: AsJson = False,
    key_file: KeyFile = None,
    storage: Storage = None,
) -> None:
    """Remove what consolidation replaced, and what crashed writers left."""
    from terrazzo.cli.output import print_report

    report = vacuum_array(Access.of(array, key_file, storage), retain, dry_run=dry_run)
    print_report(report, as_json=as_json)


def vacuum_array(access: Access, retain: str, *, dry_run: bool) -> "Report":
    from terrazzo.cli.output import Shown
    from terrazzo.cli.progress import Bar
    from terrazzo.engine.clock import as_text
    from terrazzo.engine.vacuum import parse_age
    from terrazzo.errors import InvalidRequestError

    try:
        age = parse_age(retain)
    except InvalidRequestError:
        raise WrongUsageError(f"--retain {retain}: this is no age; write 7d, 12h or 30min") from None
    opened = access.open()
    with Bar(f"vacuuming {access.uri}", steps=True):
        done = opened.vacuum(retain=age, dry_run=dry_run)
    groups = {
        "fragments": done.fragments, "commits": done.commits, "footers": done.footers, "metadata": done.metadata,
        "leftovers": done.orphans,
    }  # fmt: skip
    return {
        "command": "vacuum",
        "uri": opened.uri,
        "dry_run": dry_run,
        "result": str(done).splitlines()[0],
        "n_files": done.n_removed,
        "kept": done.kept,
        "files": [{"kind": kind, "key": key} for kind, found in groups.items() for key in found],
        "lost_instants": [
            {"from_ms": Shown(as_text(start), start), "before_ms": Shown(as_text(end), end)}
            for start, end in done.lost
        ],
    }


def restore(
    array: ArrayUri,
    at: Annotated[
        str, typer.Option("--at", metavar="TIME", help="the instant: 2026-01-31T12:00:00 (UTC), or ms")
    ],
    memory: Memory = "1GiB",
    dry_run: DryRun = False,
    as_json: AsJson = False,
    key_file: KeyFile = None,
    storage: Storage = None,
) -> None:
    """Show again the cells that the array showed at an instant, as a new commit: the history is kept."""
    from terrazzo.cli.output import print_report

    report = restore_array(Access.of(array, key_file, storage), at, memory=memory, dry_run=dry_run)
    print_report(report, as_json=as_json)


def restore_array(access: Access, at: str, *, memory: str, dry_run: bool) -> "Report":
    from terrazzo.cli.progress import Bar
    from terrazzo.cli.values import moment
    from terrazzo.engine.clock import as_text
    from terrazzo.errors import InvalidRequestError

    at_ms = parse_time(at, "--at")
    assert at_ms is not None
    opened = access.open()
    if at_ms < (first_ms := begins_ms(opened)):
        raise InvalidRequestError(
            f"--at {at}: there was no array then; it begins at {as_text(first_ms)}. To empty it: delete --where '1 = 1'"
        )
    with Bar(f"restoring {access.uri}", steps=True):
        report: Report = {
            "command": "restore", "uri": opened.uri, "dry_run": dry_run, "at_ms": moment(at_ms),
            "cells_now": opened.count(), "cells_then": access.open(str(at_ms)).count(),
        }  # fmt: skip
        if not dry_run:
            opened.restore(at_ms, memory=parse_bytes(memory, "--memory"))
    return report
