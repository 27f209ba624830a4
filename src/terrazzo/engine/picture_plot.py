"""The area that a map is drawn in: its margins, axes and colours."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from terrazzo.engine.axes import Axis, NumberAxis, Tick
from terrazzo.engine.svg import Markup, joined, shortened, tag, text_width

WIDTH = 1080.0
HEIGHT = 420.0
_BELOW, _ABOVE, _RIGHT = 54.0, 10.0, 14.0
_LINE = 13.0
_SMALLEST = 2.0  # pixels of a box that is there
_FLATTEST = 4.0  # images longer than this are stretched

# Okabe and Ito's, without black, yellow a little darker: all eyes tell them apart, on light and on dark.
_DISTINCT = ("#1a80c4", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#c9b500", "#8c8c8c")
# Old to new where there are more: from blue to rust, with no red beside green.
_RAMP = ((0x35, 0x66, 0xB0), (0x4F, 0x9A, 0xB8), (0x9C, 0xA8, 0x74), (0xDB, 0xA4, 0x3C), (0xC9, 0x5A, 0x26))
GRADIENT = ", ".join(f"#{r:02x}{g:02x}{b:02x}" for r, g, b in _RAMP)
MOST_DISTINCT = len(_DISTINCT)


def colours(count: int) -> list[str]:
    """A colour for each fragment, oldest first."""
    return (
        list(_DISTINCT[:count]) if count <= MOST_DISTINCT else [_shade(i / (count - 1)) for i in range(count)]
    )


def _shade(at: float) -> str:
    step, part = divmod(at * (len(_RAMP) - 1), 1)
    low = _RAMP[int(step)]
    high = _RAMP[min(int(step) + 1, len(_RAMP) - 1)]
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in zip(low, high, strict=True))


@dataclass(frozen=True, slots=True)
class Plot:
    axes: tuple[Axis, Axis]  # across, and up or down
    down: bool
    left: float
    top: float
    width: float
    height: float

    @classmethod
    def around(cls, axes: tuple[Axis, Axis], *, down: bool) -> "Plot":
        labels = [_one_line(tick) for tick in axes[1].ticks(12)]
        left = 34.0 + max(map(text_width, labels), default=0.0)
        return cls(axes, down, left, _ABOVE, WIDTH - left - _RIGHT, HEIGHT)

    def shaped(self, axes: tuple[Axis, Axis]) -> "Plot":
        """With the proportions of an image, if they are those of one."""
        across, upward = axes
        if not (isinstance(across, NumberAxis) and isinstance(upward, NumberAxis)):
            return self
        ratio = float(across.high - across.low + 1) / float(upward.high - upward.low + 1)
        if not 1 / _FLATTEST <= ratio <= _FLATTEST:
            return self
        width = min(self.width, 1.15 * self.height * ratio)
        return replace(self, width=width, height=width / ratio)

    def box(self, x0: float, x1: float, y0: float, y1: float) -> tuple[float, float, float, float]:
        """Left, top, width and height in pixels; a box without width is still seen."""
        wide, high = max((x1 - x0) * self.width, _SMALLEST), max((y1 - y0) * self.height, _SMALLEST)
        x = min(self.left + x0 * self.width, self.left + self.width - wide)
        y = min(self.top + y0 * self.height, self.top + self.height - high)
        return float(x), float(y), float(wide), float(high)

    def message(self, text: str) -> Markup:
        x, y = self.left + self.width / 2, self.top + self.height / 2
        return tag("text", text, x=x, y=y, class_="message", text_anchor="middle")

    def svg(self, inside: Sequence[Markup], said: str) -> Markup:
        height = self.top + self.height + _BELOW - (0 if has_context(self) else _LINE)
        return tag(
            "svg",
            tag("title", said),
            *inside,
            viewBox=f"0 0 {WIDTH:.0f} {height:.0f}",
            role="img",
            class_="map",
        )


def draw_axes(plot: Plot, *, grid: bool) -> Markup:
    """Without a grid of their own where the tiles make one."""
    panel = tag("rect", x=plot.left, y=plot.top, width=plot.width, height=plot.height, class_="panel")
    return joined([panel, *_across(plot, grid=grid), *_upward(plot, grid=grid)])


def has_context(plot: Plot) -> bool:
    return any(tick.context for tick in _fitting(plot.axes[0], plot.width))


def _fitting(axis: Axis, length: float) -> list[Tick]:
    """As many ticks as have room for their labels."""
    for most in (10, 8, 6, 5, 4, 3, 2):
        ticks = axis.ticks(most)
        widths = [max(text_width(tick.label), text_width(tick.context)) + 14 for tick in ticks]
        places = [tick.at * length for tick in ticks]
        if all(
            later - earlier >= (a + b) / 2
            for earlier, later, a, b in zip(places, places[1:], widths, widths[1:], strict=False)
        ):
            return ticks
    return axis.ticks(1)[:1]


def _across(plot: Plot, *, grid: bool) -> list[Markup]:
    axis, bottom = plot.axes[0], plot.top + plot.height
    drawn, context = [], ""
    for tick in _fitting(axis, plot.width):
        if not 0 <= tick.at <= 1:
            continue
        x = plot.left + tick.at * plot.width
        half = max(text_width(tick.label), text_width(tick.context)) / 2
        at = min(max(x, half), WIDTH - half)  # a label never leaves the picture
        drawn.append(tag("path", d=f"M{x:.1f} {bottom:.1f}v{-plot.height if grid else 4:.1f}", class_="grid"))
        drawn.append(tag("text", tick.label, x=at, y=bottom + 16, class_="tick", text_anchor="middle"))
        if tick.context != context:
            context = tick.context
            drawn.append(
                tag("text", context, x=at, y=bottom + 16 + _LINE, class_="context", text_anchor="middle")
            )
    title = shortened(axis.title, int(plot.width / 7))
    drawn.append(
        tag(
            "text",
            title,
            x=plot.left + plot.width / 2,
            y=bottom + 36 + (_LINE if has_context(plot) else 0),
            class_="axis",
            text_anchor="middle",
        )
    )
    return drawn


def _upward(plot: Plot, *, grid: bool) -> list[Markup]:
    axis = plot.axes[1]
    drawn = []
    for tick in axis.ticks(max(2, min(12, int(plot.height / 26)))):
        if not 0 <= tick.at <= 1:
            continue
        y = plot.top + (tick.at if plot.down else 1 - tick.at) * plot.height
        drawn.append(
            tag("path", d=f"M{plot.left:.1f} {y:.1f}h{plot.width if grid else -4:.1f}", class_="grid")
        )
        drawn.append(tag("text", _one_line(tick), x=plot.left - 8, y=y + 4, class_="tick", text_anchor="end"))
    middle = plot.top + plot.height / 2
    title = shortened(axis.title, int(plot.height / 7))
    drawn.append(
        tag(
            "text", title, transform=f"translate(12 {middle:.1f}) rotate(-90)", class_="axis",
            text_anchor="middle",
        )
    )  # fmt: skip
    return drawn


def _one_line(tick: Tick) -> str:
    return f"{tick.context} {tick.label}".strip()
