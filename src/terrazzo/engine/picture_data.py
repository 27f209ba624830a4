"""What the map of a picture is made of: fragments, their boxes and their tiles, as far as they are worth a request."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from terrazzo.engine.axes import shown
from terrazzo.engine.clock import as_text
from terrazzo.engine.fragments import Fragment
from terrazzo.engine.svg import bytes_text, count_text, shortened
from terrazzo.engine.view import View
from terrazzo.errors import InvalidRequestError, TerrazzoError
from terrazzo.format.bounds import Bound, BoundsTable
from terrazzo.format.domain import Dim
from terrazzo.format.schema import Schema

MOST_TREES = 64
"""R-trees that a picture reads."""
MOST_TILES = 100_000
"""Tiles that it reads of all of them together."""
_MOST_DIMS = 6  # in a tooltip


@dataclass(frozen=True, slots=True)
class Piece:
    """A fragment on the map."""

    fragment: Fragment
    schema: Schema
    domain: tuple[Bound, ...]
    tiles: BoundsTable | None = None  # of a sparse fragment of several tiles, if they were read

    @property
    def n_tiles(self) -> int:
        return self.fragment.footer.n_tiles(self.schema)

    @property
    def n_cells(self) -> int:
        return self.fragment.footer.n_cells(self.schema)

    @property
    def size(self) -> int:
        footer = self.fragment.footer
        return sum(footer.file_sizes) + sum(footer.var_file_sizes) + sum(footer.validity_file_sizes)

    @property
    def told(self) -> str:
        """For a tooltip."""
        return "\n".join(
            [
                span_text(self.fragment.name.start_ms, self.fragment.name.end_ms),
                f"{count_text(self.n_cells, 'cell')} in {count_text(self.n_tiles, 'tile')}, {bytes_text(self.size)}",
                *box_lines(self.domain, self.schema.dims),
                str(self.fragment.name),
            ]
        )


@dataclass(frozen=True, slots=True)
class Pieces:
    """All that the map shows, oldest first."""

    pieces: tuple[Piece, ...]
    n_unread: int = 0  # fragments of several tiles whose R-trees stayed where they are
    n_damaged: int = 0

    @property
    def n_tiles(self) -> int:
        return sum(piece.n_tiles for piece in self.pieces)

    @property
    def n_cells(self) -> int:
        return sum(piece.n_cells for piece in self.pieces)

    @property
    def size(self) -> int:
        return sum(piece.size for piece in self.pieces)


def gather(view: View) -> Pieces:
    """The fragments of a view, the newest with their tiles."""
    pieces: list[Piece] = []
    n_trees, n_tiles, n_unread, n_damaged = 0, 0, 0, 0
    for fragment in reversed(view.snapshot.fragments):
        if fragment.footer.domain is None:
            continue
        piece = Piece(fragment, view.snapshot.schema_of(fragment), fragment.footer.domain)
        tiles = None
        if not fragment.footer.dense and piece.n_tiles > 1:
            if n_trees < MOST_TREES and n_tiles + piece.n_tiles <= MOST_TILES:
                n_trees, n_tiles = n_trees + 1, n_tiles + piece.n_tiles
                try:
                    tiles = view.reader(fragment).sections.rtree.leaves
                except TerrazzoError:
                    n_damaged += 1  # the rest of the picture is still worth seeing
            else:
                n_unread += 1
        pieces.append(Piece(fragment, piece.schema, piece.domain, tiles))
    return Pieces(tuple(reversed(pieces)), n_unread, n_damaged)


def chosen_dims(schema: Schema, pieces: Sequence[Piece], wanted: Sequence[str] | None) -> tuple[int, ...]:
    """The dimension across and the one up or down; a single one of an array that has no more.

    By default the first two along which there is more than one coordinate. Text goes up, where labels have room,
    and dates across, where people look for them; rows of a dense array go down, as in any image of it.
    """
    names = [dim.name for dim in schema.dims]
    if wanted is not None:
        if isinstance(wanted, str) or not 1 <= len(set(wanted)) == len(wanted) <= 2:
            raise InvalidRequestError(f"dims={wanted!r}; the names of one or two dimensions are expected")
        if unknown := [name for name in wanted if name not in names]:
            raise InvalidRequestError(f"there is no dimension {unknown[0]!r}; there are {', '.join(names)}")
        return tuple(names.index(name) for name in wanted)
    if len(names) == 1:
        return (0,)
    wide = [j for j in range(len(names)) if len({end for piece in pieces for end in piece.domain[j]}) > 1]
    first, second = sorted((wide + [j for j in range(len(names)) if j not in wide])[:2])
    dims = schema.dims
    if dims[first].is_var != dims[second].is_var:
        return (second, first) if dims[first].is_var else (first, second)
    if dims[first].datatype.is_datetime != dims[second].datatype.is_datetime:
        return (first, second) if dims[first].datatype.is_datetime else (second, first)
    return (second, first) if schema.dense else (first, second)


def whole_box(pieces: Sequence[Piece], n_dims: int) -> tuple[Bound, ...] | None:
    """The non-empty domain, as stored."""
    if not pieces:
        return None
    domains: list[Any] = [piece.domain for piece in pieces]
    return tuple(
        (min(domain[j][0] for domain in domains), max(domain[j][1] for domain in domains))
        for j in range(n_dims)
    )


def box_lines(domain: Sequence[Bound], dims: Sequence[Dim]) -> list[str]:
    """A line for each of the first dimensions."""
    return [
        f"{shortened(dim.name, 60)}: {shown(bound[0], dim)} to {shown(bound[1], dim)}"
        for bound, dim in list(zip(domain, dims, strict=True))[:_MOST_DIMS]
    ]


def span_text(start_ms: int, end_ms: int) -> str:
    return as_text(start_ms) if start_ms == end_ms else f"{as_text(start_ms)} … {as_text(end_ms)}"
