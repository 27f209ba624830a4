"""The map of a picture: fragments over the domain, and in each of them its tiles.

What would be too much to see, or to send, is shown as a density instead: the file stays small for any array.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from terrazzo.engine.axes import Axis, NumberAxis, RowAxis, TextAxis
from terrazzo.engine.clock import as_text
from terrazzo.engine.picture_boxes import Boxes, density
from terrazzo.engine.picture_data import Piece, Pieces, box_lines, whole_box
from terrazzo.engine.picture_plot import Plot, colours, draw_axes
from terrazzo.engine.svg import Markup, Tooltips, count_text, joined, number, shortened, tag
from terrazzo.format.bounds import BoundsTable
from terrazzo.format.schema import Schema

MOST_BOXES = 1500
"""Tiles that are drawn one by one."""
MOST_FRAGMENTS = 600
"""Fragments that are drawn one by one."""
MOST_LINES = 4000
MOST_NOTES = 700_000
"""Bytes of all tooltips."""
_CLOSEST = 4.0  # pixels between the tiles of a dense array
_WIDEST_VIEW = 3  # a domain this many times as wide as what is in it is shown whole


@dataclass(frozen=True, slots=True)
class Map:
    svg: Markup
    notes: tuple[str, ...]  # what a reader should know to read it right
    legend: tuple[tuple[str, str], ...] = ()  # colours and what they mean
    levels: tuple[str, ...] = ()  # of a density, the lowest first


def draw_map(schema: Schema, gathered: Pieces, dims: tuple[int, ...]) -> Map:
    pieces = gathered.pieces
    axes = _axes(schema, pieces, dims)
    plot = Plot.around(axes, down=len(dims) > 1 and (schema.dense or schema.dims[dims[1]].is_var))
    if schema.dense and len(dims) > 1:
        plot = plot.shaped(axes)
    notes = _notes(schema, gathered, dims) if pieces else []
    drawn: list[Markup] = [draw_axes(plot, grid=schema.sparse)]
    levels: tuple[str, ...] = ()
    if not pieces:
        drawn.append(plot.message("nothing has been written yet"))
        return Map(plot.svg(drawn, _said(schema, gathered)), tuple(notes))
    table = BoundsTable.of([piece.domain for piece in pieces], schema.dims)
    boxes = Boxes.of(plot, table, dims, rows=np.arange(len(pieces)))
    tiles = _tile_boxes(plot, pieces, dims)
    n_boxes = sum(len(found.x0) for found in tiles.values())
    shades = colours(len(pieces)) if len(pieces) <= MOST_FRAGMENTS else []
    if len(pieces) > MOST_FRAGMENTS:
        svg, levels = density(plot, boxes, "fragment")
        drawn.append(svg)
        notes.append(f"{len(pieces):,} fragments are too many to draw; shades tell how many overlap")
    else:
        if n_boxes > MOST_BOXES:
            svg, levels = density(plot, Boxes.all(list(tiles.values())), "tile")
            drawn.append(svg)
            notes.append(f"{n_boxes:,} tiles are too many to draw; shades tell how many overlap")
            tiles = {}
        lines, hidden = _grid_lines(plot, schema, pieces, dims, boxes)
        if hidden:
            notes.append("tiles are too small to draw")
        drawn.append(_fragments(plot, pieces, boxes, tiles, lines, shades, filled=not levels))
    drawn.append(_frames(plot, schema, pieces, dims))
    legend = tuple(
        (shade, f"{as_text(piece.fragment.name.end_ms)} · {count_text(piece.n_cells, 'cell')}")
        for shade, piece in zip(shades, pieces, strict=False)
    )
    return Map(plot.svg(drawn, _said(schema, gathered)), tuple(notes), legend, levels)


# -- axes ---------------------------------------------------------------------------------------------


def _axes(schema: Schema, pieces: Sequence[Piece], dims: tuple[int, ...]) -> tuple[Axis, Axis]:
    found: list[Axis] = [_axis(schema, pieces, j) for j in dims]
    if len(found) == 1:
        times = [as_text(piece.fragment.name.end_ms) for piece in pieces]
        seconds = [time[5:19] for time in times]
        times = seconds if len(set(seconds)) == len(set(times)) else [time[11:] for time in times]
        found.append(RowAxis("fragments, newest on top", times))
    return found[0], found[1]


def _axis(schema: Schema, pieces: Sequence[Piece], j: int) -> Axis:
    dim = schema.dims[j]
    if dim.is_var:
        ends = [end for piece in pieces for end in piece.domain[j]]
        for piece in pieces:
            if piece.tiles is not None:
                ends += [*piece.tiles.columns[j][0], *piece.tiles.columns[j][1]]
        return TextAxis.of(dim, ends)
    assert dim.domain is not None
    low: Any
    high: Any
    low, high = schema.current_domain[j] if schema.current_domain is not None else dim.domain
    filled = whole_box(pieces, len(schema.dims))
    if filled is None:
        return NumberAxis(dim, low, high)
    room = 0 if dim.datatype.is_float else 1
    span = filled[j][1] - filled[j][0] + room
    if high - low + room > _WIDEST_VIEW * span:
        margin = (span * 0.05 or 1.0) if room == 0 else span // 20
        low, high = max(low, filled[j][0] - margin), min(high, filled[j][1] + margin)
    return NumberAxis(dim, min(low, filled[j][0]), max(high, filled[j][1]))


# -- boxes --------------------------------------------------------------------------------------------


def _tile_boxes(plot: Plot, pieces: Sequence[Piece], dims: tuple[int, ...]) -> dict[int, Boxes]:
    return {
        i: Boxes.of(plot, piece.tiles, dims, rows=np.full(len(piece.tiles), i))
        for i, piece in enumerate(pieces)
        if piece.tiles is not None and len(piece.tiles)
    }


def _fragments(
    plot: Plot, pieces: Sequence[Piece], boxes: Boxes, tiles: dict[int, Boxes], lines: dict[int, str],
    shades: Sequence[str], *, filled: bool,
) -> Markup:  # fmt: skip
    """Large ones first, so that the small ones can be pointed at."""
    areas = (boxes.x1 - boxes.x0) * (boxes.y1 - boxes.y0)
    opacity = max(0.03, 0.2 / max(1.0, len(pieces) / 3) ** 0.5) if filled else 0.0
    drawn, tips = [], Tooltips(MOST_NOTES)
    for i in np.argsort(-areas, kind="stable").tolist():
        piece = pieces[i]
        inside: list[Markup] = [boxes.rect(plot, i, tips.title(piece.told), "f")]
        if i in tiles and piece.tiles is not None:
            inside += [
                tiles[i].rect(plot, k, tips.title(_tile_told(piece, piece.tiles, k)), "t", 1.0)
                for k in range(len(piece.tiles))
            ]
        if i in lines:
            inside.append(tag("path", d=lines[i], class_="l"))
        drawn.append(tag("g", *inside, style=f"color:{shades[i]}"))
    thin = 1.6 if len(pieces) <= 40 else 0.8
    return tag("g", *drawn, class_="fragments", style=f"--fill:{opacity:.3f};--line:{thin}px")


def _tile_told(piece: Piece, tiles: BoundsTable, k: int) -> str:
    cells = piece.fragment.footer.cells_of_tile(piece.schema, k)
    bounds = [(low[k], high[k]) for low, high in tiles.columns]
    plain = [(low, high) if isinstance(low, bytes) else (low.item(), high.item()) for low, high in bounds]
    return "\n".join(
        [
            f"tile {k + 1:,} of {len(tiles):,}, {count_text(cells, 'cell')}",
            *box_lines(plain, piece.schema.dims),
            f"of the fragment of {as_text(piece.fragment.name.end_ms)}",
        ]
    )


def _grid_lines(
    plot: Plot, schema: Schema, pieces: Sequence[Piece], dims: tuple[int, ...], boxes: Boxes
) -> tuple[dict[int, str], bool]:
    """The tiles of dense fragments, as lines where the grid of the array crosses them."""
    found: dict[int, str] = {}
    n_lines, hidden = 0, False
    for i, piece in enumerate(pieces if schema.dense else ()):
        x, y, width, height = plot.box(boxes.x0[i], boxes.x1[i], boxes.y0[i], boxes.y1[i])
        path = []
        for side, j in enumerate(dims):
            axis, dim = plot.axes[side], schema.dims[j]
            assert isinstance(axis, NumberAxis) and dim.domain is not None  # noqa: PT018
            low, high = piece.domain[j]
            first = int(dim.domain[0])
            start = first + ((int(low) - first) // dim.extent + 1) * dim.extent
            apart = (axis.place(low + dim.extent) - axis.place(low)) * (plot.height if side else plot.width)
            if apart < _CLOSEST or n_lines > MOST_LINES:
                hidden = hidden or start <= high
                continue
            for edge in range(start, int(high) + 1, dim.extent):
                at = axis.place(edge)
                path.append(
                    f"M{number(plot.left + at * plot.width)} {number(y)}v{number(height)}"
                    if side == 0
                    else f"M{number(x)} {number(plot.top + (at if plot.down else 1 - at) * plot.height)}h{number(width)}"
                )
        n_lines += len(path)
        if path:
            found[i] = "".join(path)
    return found, hidden


# -- frames, words ---------------------------------------------------------------------------


def _frames(plot: Plot, schema: Schema, pieces: Sequence[Piece], dims: tuple[int, ...]) -> Markup:
    """The current domain and what is filled of it, where both lie within the view."""
    filled = whole_box(pieces, len(schema.dims))
    drawn = []
    for css, ranges, name in (
        ("current", schema.current_domain, "current domain"),
        ("filled", filled, "non-empty domain"),
    ):
        if ranges is None:
            continue
        sides = []
        for side, axis in enumerate(plot.axes):
            if isinstance(axis, NumberAxis):
                low, high = ranges[dims[side]]
                low_at, high_at = axis.place(low), axis.place(high, end=True)
                sides.append((max(0.0, low_at), min(1.0, high_at)))
            else:
                sides.append((0.0, 1.0))
        (x0, x1), (y0, y1) = sides
        if not plot.down:
            y0, y1 = 1 - y1, 1 - y0
        x, y, width, height = plot.box(x0, x1, y0, y1)
        told = "\n".join([name, *box_lines(ranges, schema.dims)])
        drawn.append(tag("rect", tag("title", told), x=x, y=y, width=width, height=height, class_=css))
    return joined(drawn)


def _notes(schema: Schema, gathered: Pieces, dims: tuple[int, ...]) -> list[str]:
    notes = []
    if others := [dim.name for j, dim in enumerate(schema.dims) if j not in dims]:
        notes.append(
            f"seen along {shortened(', '.join(others), 80)}, so boxes that overlap here may lie apart there"
        )
    if any(schema.dims[j].is_var for j in dims):
        notes.append("texts are spaced by rank")
    if gathered.n_unread:
        notes.append(f"tiles of {gathered.n_unread:,} older fragments are left out")
    if gathered.n_damaged:
        notes.append(f"tiles of {count_text(gathered.n_damaged, 'fragment')} cannot be read")
    return notes


def _said(schema: Schema, gathered: Pieces) -> str:
    """For those who do not see it."""
    names = ", ".join(dim.name for dim in schema.dims)
    return f"Map of {count_text(len(gathered.pieces), 'fragment')} over {names}"
