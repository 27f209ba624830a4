"""Boxes on a map, one by one or as a density where there are too many of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from terrazzo.engine.axes import Places
from terrazzo.engine.picture_plot import Plot
from terrazzo.engine.svg import Markup, count_text, number, tag
from terrazzo.format.bounds import BoundsTable

_ACROSS, _UP, _LEVELS = 108, 46, 5


@dataclass(frozen=True, slots=True)
class Boxes:
    """Many boxes, as fractions of the plot from its left and its top."""

    x0: Places
    x1: Places
    y0: Places
    y1: Places

    @classmethod
    def of(cls, plot: Plot, table: BoundsTable, dims: tuple[int, ...], rows: NDArray[np.intp]) -> "Boxes":
        across, upward = plot.axes
        x0, x1 = across.places(*table.columns[dims[0]])
        y0, y1 = upward.places(*(table.columns[dims[1]] if len(dims) > 1 else (rows, rows)))
        if not plot.down:
            y0, y1 = 1 - y1, 1 - y0
        return cls(*(np.clip(np.nan_to_num(places), 0, 1) for places in (x0, x1, y0, y1)))

    @classmethod
    def all(cls, parts: Sequence["Boxes"]) -> "Boxes":
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__))

    def rect(self, plot: Plot, i: int, title: Markup, css: str, inset: float = 0.0) -> Markup:
        x, y, width, height = plot.box(self.x0[i], self.x1[i], self.y0[i], self.y1[i])
        inset = min(inset, width / 4, height / 4)
        return tag(
            "rect", title, x=x + inset, y=y + inset, width=width - 2 * inset,
            height=height - 2 * inset, class_=css,
        )  # fmt: skip


def density(plot: Plot, boxes: Boxes, what: str) -> tuple[Markup, tuple[str, ...]]:
    """How many boxes overlap, on a coarse grid: a path for each of a few shades."""
    corners = np.zeros((_UP + 1, _ACROSS + 1), np.int64)
    left = np.minimum((boxes.x0 * _ACROSS).astype(np.intp), _ACROSS - 1)
    top = np.minimum((boxes.y0 * _UP).astype(np.intp), _UP - 1)
    right = np.maximum(np.ceil(boxes.x1 * _ACROSS).astype(np.intp), left + 1)
    bottom = np.maximum(np.ceil(boxes.y1 * _UP).astype(np.intp), top + 1)
    for y, x, sign in ((top, left, 1), (top, right, -1), (bottom, left, -1), (bottom, right, 1)):
        np.add.at(corners, (y, x), sign)
    counts = corners.cumsum(0).cumsum(1)[:_UP, :_ACROSS]
    most = int(counts.max())
    n_levels = min(_LEVELS, most)
    ends = [max(k + 1, round(most ** ((k + 1) / n_levels))) for k in range(n_levels)]
    shades = np.searchsorted(ends, counts)
    wide, high = plot.width / _ACROSS, plot.height / _UP
    drawn, told, low = [], [], 1
    for k, end in enumerate(ends):
        text = count_text(low, what) if low == end else f"{low:,} to {end:,} {what}s"
        path = []
        for row in range(_UP):
            marked = np.flatnonzero(
                np.diff(np.concatenate(([0], (counts[row] > 0) & (shades[row] == k), [0])))
            )
            for start, stop in marked.reshape(-1, 2).tolist():
                path.append(
                    f"M{number(plot.left + start * wide)} {number(plot.top + row * high)}"
                    f"h{number((stop - start) * wide)}v{number(high)}h{number((start - stop) * wide)}z"
                )
        drawn.append(
            tag("path", tag("title", f"{text} here"), d="".join(path), class_=f"d d{k * _LEVELS // n_levels}")
        )
        told.append(text)
        low = end + 1
    return tag("g", *drawn), tuple(told)
