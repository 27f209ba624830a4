"""Axes of a picture: where a coordinate lies between the ends of a view, and which ticks help to read it.

Places are fractions of the axis. A whole number takes room from itself to the next one, a text takes the room of its
rank, so that what lies at one coordinate is still a box.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from terrazzo.engine.axis_dates import date_label, date_ticks
from terrazzo.engine.svg import clean, shortened
from terrazzo.format.domain import Dim

Places = NDArray[np.float64]
_LONGEST_LABEL = 18
_LONGEST_TEXT = 60
_FEW = 24
_SUFFIXES = ((10**12, "T"), (10**9, "G"), (10**6, "M"))


@dataclass(frozen=True, slots=True)
class Tick:
    at: float
    label: str
    context: str = ""  # said once for all ticks that share it: the day of an hour


class Axis(Protocol):
    @property
    def title(self) -> str: ...

    def places(self, lows: NDArray[Any], highs: NDArray[Any]) -> tuple[Places, Places]:
        """Where boxes begin and end."""
        ...

    def ticks(self, most: int) -> list[Tick]: ...


@dataclass(frozen=True, slots=True)
class NumberAxis:
    """Numbers and dates between two ends, both shown."""

    dim: Dim
    low: Any
    high: Any

    @property
    def _room(self) -> int:
        return 0 if self.dim.datatype.is_float else 1

    @property
    def _width(self) -> float:
        return float(self.high - self.low) + self._room or 1.0

    @property
    def title(self) -> str:
        is_span = self.dim.datatype.is_time
        return f"{self.dim.name} ({self.dim.datatype.unit})" if is_span else self.dim.name

    @property
    def middle(self) -> float:
        """Of few whole numbers each has a wide room, and its label stands in the middle of it."""
        return 0.5 / self._width if self._room and self._width <= _FEW else 0.0

    def place(self, value: Any, *, end: bool = False) -> float:
        return (float(value - self.low) + (self._room if end else 0)) / self._width

    def places(self, lows: NDArray[Any], highs: NDArray[Any]) -> tuple[Places, Places]:
        if self._room == 0:
            first, last = lows.astype(np.float64), highs.astype(np.float64)
            return (first - self.low) / self._width, (last - self.low) / self._width
        # Nanoseconds of this century have no exact float: differences are taken between whole numbers.
        limits = np.iinfo(lows.dtype)
        base = min(max(int(self.low), int(limits.min)), int(limits.max))
        shift = float(base - self.low)
        return tuple(  # type: ignore[return-value]
            (_differences(values, base) + shift + room) / self._width
            for values, room in ((lows, 0), (highs, 1))
        )

    def ticks(self, most: int) -> list[Tick]:
        if self.dim.datatype.is_datetime:
            found = date_ticks(int(self.low), int(self.high), self.dim.datatype.unit, most)
            return [Tick(self.place(value) + self.middle, label, context) for value, label, context in found]
        return _number_ticks(self, most)


def _differences(values: NDArray[Any], base: int) -> Places:
    wide = values.astype(np.uint64 if values.dtype.kind == "u" else np.int64).view(np.uint64)
    return (wide - np.uint64(base % (1 << 64))).astype(np.float64)


def _number_ticks(axis: NumberAxis, most: int) -> list[Tick]:
    span = float(axis.high - axis.low)
    if not isfinite(span) or span <= 0:
        return [Tick(axis.place(axis.low) + axis.middle, number_label(axis.low, 1))]
    rough = span / max(most, 1)
    power = floor(log10(rough))
    factor = next(factor for factor in (1, 2, 5, 10) if factor * 10.0**power >= rough * 0.999)
    if axis.dim.datatype.is_float:
        step = factor * 10.0**power
        first, last = ceil(axis.low / step), floor(axis.high / step)
        return [
            Tick(
                axis.place(i * step),
                f"{i * step:,.{max(0, -power)}f}" if -7 < power < 9 else f"{i * step:.3g}",
            )
            for i in range(first, min(last, first + 3 * most) + 1)
        ]
    whole = max(1, factor * 10**power if power >= 0 else 1)
    low, high = int(axis.low), int(axis.high)
    values = range(-(-low // whole) * whole, high + 1, whole)
    return [Tick(axis.place(value) + axis.middle, number_label(value, whole)) for value in values[: 3 * most]]


def number_label(value: Any, step: int) -> str:
    """`1,500`; where all ticks are multiples of a million, `20M`."""
    if isinstance(value, float):
        return f"{value:g}"
    for size, suffix in _SUFFIXES:
        if step % size == 0:
            scaled = value // size
            return "0" if not value else f"{scaled:,}{suffix}" if abs(scaled) < 10**6 else f"{value:.2e}"
    return f"{value:,}"


@dataclass(frozen=True, slots=True)
class TextAxis:
    """Texts at their ranks among all that begin or end a box."""

    dim: Dim
    values: NDArray[Any]  # bytes, each once, in order

    @classmethod
    def of(cls, dim: Dim, values: Sequence[bytes]) -> "TextAxis":
        ranked = sorted(set(values))
        column = np.empty(len(ranked), object)
        column[:] = ranked
        return cls(dim, column)

    @property
    def title(self) -> str:
        return self.dim.name

    def places(self, lows: NDArray[Any], highs: NDArray[Any]) -> tuple[Places, Places]:
        count = float(len(self.values) or 1)
        first = np.searchsorted(self.values, lows, side="left") / count
        return first, np.searchsorted(self.values, highs, side="right") / count

    def ticks(self, most: int) -> list[Tick]:
        every = ceil(len(self.values) / max(most, 1)) or 1
        return [
            Tick(
                (rank + 0.5) / len(self.values), shortened(shown(self.values[rank], self.dim), _LONGEST_LABEL)
            )
            for rank in range(0, len(self.values), every)
        ]


@dataclass(frozen=True, slots=True)
class RowAxis:
    """Fragments one above the other, oldest first."""

    title: str
    labels: Sequence[str]

    def places(self, lows: NDArray[Any], highs: NDArray[Any]) -> tuple[Places, Places]:
        count = float(len(self.labels) or 1)
        return (lows + 0.12) / count, (highs + 0.88) / count

    def ticks(self, most: int) -> list[Tick]:
        every = ceil(len(self.labels) / max(most, 1)) or 1
        return [
            Tick((row + 0.5) / len(self.labels), self.labels[row])
            for row in range(0, len(self.labels), every)
        ]


def shown(value: Any, dim: Dim) -> str:
    """A coordinate as people write it."""
    if isinstance(value, bytes):
        return shortened(clean(value[: 4 * _LONGEST_TEXT].decode("utf-8", "replace")), _LONGEST_TEXT)
    if dim.datatype.is_datetime:
        return date_label(int(value), dim.datatype.unit)
    if dim.datatype.is_time:
        return f"{value:,} {dim.datatype.unit}"
    return f"{value:.6g}" if isinstance(value, float) else f"{value:,}"
