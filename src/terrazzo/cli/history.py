"""`terrazzo history` and `terrazzo fragments`: what happened to an array, and what it consists of."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from terrazzo.cli.options import Access, ArrayUri, AsJson, At, KeyFile, Since, Storage

if TYPE_CHECKING:
    from terrazzo.cli.output import Report
    from terrazzo.engine.fragments import Fragment


def history(
    array: ArrayUri,
    html: Annotated[
        str | None,
        typer.Option("--html", metavar="FILE", help="draw it: fragments, tiles and commits as one page"),
    ] = None,
    as_json: AsJson = False,
    key_file: KeyFile = None,
    storage: Storage = None,
) -> None:
    """List every commit, oldest first: what happened, when, how many cells, how many bytes."""
    from terrazzo.cli.output import print_report

    opened = Access.of(array, key_file, storage).open()
    if html is not None:
        from terrazzo.cli.sinks import new_file

        with new_file(html, overwrite=True) as out:
            out.write(opened.picture().encode())
        print_report({"command": "history", "uri": opened.uri, "to": html}, as_json=as_json)
        return
    print_report(history_report(opened.uri, opened.history()), as_json=as_json)


def history_report(uri: str, events: list[Any]) -> "Report":
    from terrazzo.cli.output import Hidden, Shown
    from terrazzo.engine.clock import as_text

    merged = any(event.start_ms != event.end_ms for event in events)
    return {
        "command": "history",
        "uri": uri,
        "events": [
            {
                "start_ms": Shown(as_text(event.start_ms), event.start_ms),
                "end_ms": Shown(as_text(event.end_ms), event.end_ms) if merged else Hidden(event.end_ms),
                "kind": event.kind,
                "cells": event.n_cells,
                "bytes": event.size,
                "text": Shown(event.text + (" (superseded)" if event.superseded else ""), event.text),
                "superseded": Hidden(event.superseded),
                "name": Hidden(event.name),
            }
            for event in events
        ],
    }


def fragments(
    array: ArrayUri,
    at: At = None,
    since: Since = None,
    as_json: AsJson = False,
    key_file: KeyFile = None,
    storage: Storage = None,
) -> None:
    """List the fragments that a read looks at, in the order in which later ones win."""
    from terrazzo.cli.output import print_report

    opened = Access.of(array, key_file, storage).open(at, since)
    print_report(fragments_report(opened), as_json=as_json)


def fragments_report(opened: Any) -> "Report":
    from terrazzo.cli.output import Hidden, Shown
    from terrazzo.cli.values import pair
    from terrazzo.engine.clock import as_text

    snapshot = opened._view.snapshot  # noqa: SLF001
    rows = []
    for fragment in opened.fragments:
        known = snapshot.schema_of(fragment)
        box = {
            dim.name: pair(low, high, dim.datatype)
            for dim, (low, high) in zip(known.dims, fragment.footer.domain or (), strict=False)
        }
        rows.append(
            {
                "name": str(fragment.name),
                "start_ms": Shown(as_text(fragment.name.start_ms), fragment.name.start_ms),
                "end_ms": Shown(as_text(fragment.name.end_ms), fragment.name.end_ms),
                "cells": fragment.footer.n_cells(known),
                "bytes": stored_bytes(fragment),
                "format": fragment.footer.version,
                "domain": box,
                "schema": Hidden(fragment.schema_name)
                if fragment.schema_name == snapshot.schema_name
                else Shown("older", fragment.schema_name),
            }
        )
    return {"command": "fragments", "uri": opened.uri, "fragments": rows}


def stored_bytes(fragment: "Fragment") -> int:
    footer = fragment.footer
    return sum(footer.file_sizes) + sum(footer.var_file_sizes) + sum(footer.validity_file_sizes)
