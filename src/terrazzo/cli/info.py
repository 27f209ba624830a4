"""`terrazzo info` and `terrazzo schema`: what an array is."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from terrazzo.cli.options import Access, ArrayUri, AsJson, At, KeyFile, Storage

if TYPE_CHECKING:
    from terrazzo.cli.output import Report
    from terrazzo.format.schema import Schema

_LABELS = 8  # of an enumeration that the tree shows


def info(
    array: ArrayUri,
    at: At = None,
    count: Annotated[
        bool, typer.Option("--count", help="count the cells that a read shows; may have to read coordinates")
    ] = False,
    as_json: AsJson = False,
    key_file: KeyFile = None,
    storage: Storage = None,
) -> None:
    """Tell what an array is: kind, size, times, domain written, pending changes, metadata."""
    from terrazzo.cli.output import print_report

    print_report(array_info(Access.of(array, key_file, storage), at, count=count), as_json=as_json)


def array_info(access: Access, at: str | None, *, count: bool) -> "Report":
    from terrazzo.cli.history import stored_bytes
    from terrazzo.cli.output import Shown
    from terrazzo.cli.progress import Bar
    from terrazzo.cli.values import moment, pair, plain

    opened = access.open(at)
    known, snapshot = opened.schema, opened._view.snapshot  # noqa: SLF001
    kinds = [condition.commit.kind.value for condition in snapshot.conditions]
    cells = [fragment.footer.n_cells(snapshot.schema_of(fragment)) for fragment in opened.fragments]
    written = [fragment.footer.domain for fragment in opened.fragments if fragment.footer.domain is not None]
    size = sum(map(stored_bytes, opened.fragments))
    report: Report = {
        "command": "info",
        "uri": opened.uri,
        "array": "sparse" if known.sparse else "dense",
        "encrypted": access.key is not None,
        "dimensions": [dim.name for dim in known.dims],
        "attributes": [attr.name for attr in known.attrs],
        "schemas": len(snapshot.schemas),
        "fragments": len(opened.fragments),
        "cells_stored": Shown(f"{sum(cells):,}", sum(cells)),
        "bytes_stored": Shown(f"{size:,}", size),
        "pending_deletes": kinds.count("del"),
        "pending_updates": kinds.count("upd"),
        "last_change_ms": moment(snapshot.newest_ms) if snapshot.newest_ms else None,
        "written": {
            dim.name: pair(
                min(domain[place][0] for domain in written),
                max(domain[place][1] for domain in written),
                dim.datatype,
            )
            for place, dim in enumerate(known.dims)
        }
        if written
        else None,
        "metadata": {key: plain(value) for key, value in opened.meta.items()},
    }
    if count:
        with Bar("counting", steps=True):
            cells_shown = opened.count()
        report["cells"] = Shown(f"{cells_shown:,}", cells_shown)
    return report


def schema(
    array: ArrayUri,
    at: At = None,
    as_json: AsJson = False,
    key_file: KeyFile = None,
    storage: Storage = None,
) -> None:
    """Show the dimensions and attributes of an array, with types, domains, filters and labels."""
    from terrazzo.cli.output import print_report, print_tree

    opened = Access.of(array, key_file, storage).open(at)
    if as_json:
        print_report({"command": "schema", "uri": opened.uri} | schema_report(opened.schema), as_json=True)
    else:
        print_tree(schema_tree(opened.schema, opened.uri))


def schema_report(known: "Schema") -> "Report":
    from terrazzo.cli.describe import describe_schema
    from terrazzo.cli.values import plain

    report: Report = {}
    describe_schema(known, report)
    report["enumerations"] = [
        {
            "name": name,
            "ordered": enum.ordered,
            "values": [plain(value) for value in enum.values.to_pylist()],
        }
        for name, enum in known.enums.items()
    ]
    return report


def schema_tree(known: "Schema", title: str) -> Any:
    from rich.text import Text
    from rich.tree import Tree

    from terrazzo.cli.output import printable

    def label(text: str, style: str = "") -> Text:
        return Text(printable(text), style=style)

    notes = [f"{known.cell_order} cells", f"{known.tile_order} tiles"]
    if known.sparse:
        notes += [
            f"capacity {known.capacity:,}",
            f"duplicates {'' if known.allows_duplicates else 'not '}allowed",
        ]
    tree = Tree(
        label(f"{title}: {'sparse' if known.sparse else 'dense'} array, format {known.version}", "bold")
    )
    tree.add(label(", ".join(notes)))
    dims = tree.add(label("dimensions", "bold"))
    for line in _dimension_lines(known):
        dims.add(label(line))
    attrs = tree.add(label("attributes", "bold"))
    for line in _attribute_lines(known):
        attrs.add(label(line))
    if known.enums:
        enums = tree.add(label("enumerations", "bold"))
        for name, enum in known.enums.items():
            shown = [str(value) for value in enum.values[:_LABELS].to_pylist()]
            more = f", … ({len(enum)} in all)" if len(enum) > _LABELS else ""
            enums.add(label(f"{name}{' (ordered)' if enum.ordered else ''}: {', '.join(shown)}{more}"))
    return tree


def _dimension_lines(known: "Schema") -> list[str]:
    from terrazzo.cli.values import cell_type, pair, pipeline

    rows = []
    for place, dim in enumerate(known.dims):
        extent = "" if dim.domain is None else pair(*dim.domain, dim.datatype).text
        if dim.tile is not None:
            extent += f" tile {dim.tile}"
        if known.current_domain is not None and dim.domain is not None:
            low, high = known.current_domain[place]
            extent += f" now {pair(low, high, dim.datatype).text}"
        rows.append((dim.name, cell_type(dim), extent, pipeline(known.filters_of(dim)).text))
    return _aligned(rows)


def _attribute_lines(known: "Schema") -> list[str]:
    from terrazzo.cli.values import cell_type, pipeline

    rows = []
    for attr in known.attrs:
        notes = ["nullable"] if attr.nullable else []
        notes += [f"enumeration {attr.enum}"] if attr.enum is not None else []
        rows.append((attr.name, cell_type(attr), ", ".join(notes), pipeline(known.filters_of(attr)).text))
    return _aligned(rows)


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    if not rows:
        return ["none"]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
