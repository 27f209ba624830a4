"""The timeline of a picture: every commit in its lane, in order.

Commits come in bursts, milliseconds apart and then not for weeks, so that one scale of time would show either the
bursts or the weeks. Here each commit takes one step, a long pause a gap that says how long it was, and the times
stand below.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, log10
from statistics import median

from terrazzo.engine.clock import as_text
from terrazzo.engine.events import Event
from terrazzo.engine.picture_data import span_text
from terrazzo.engine.picture_plot import WIDTH
from terrazzo.engine.svg import Markup, Tooltips, bytes_text, count_text, joined, shortened, tag, text_width

MOST_COLUMNS = 200
"""Commits that are drawn one by one; of more, neighbours share a mark."""
LANES = {
    "create": "schema", "evolve": "schema", "write": "writes", "update": "updates", "delete": "deletes",
    "consolidate": "consolidations", "vacuum": "vacuums", "metadata": "metadata",
}  # fmt: skip
_ORDER = list(dict.fromkeys(LANES.values()))
_LEFT, _RIGHT, _TOP, _LANE, _BELOW = 104.0, 20.0, 26.0, 30.0, 40.0
_NARROW = 18.0  # steps below it have room for bars only
_STEP, _PAUSE = 46.0, 1.1  # the widest step in pixels, and a pause in steps
_MOST_PAUSES, _LONG = 12, 12
_LONGEST_TEXT, _MOST_TOLD, _MOST_NOTES = 300, 6, 400_000
_UNITS = ((31_557_600_000, "y"), (86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms"))


@dataclass(frozen=True, slots=True)
class _Column:
    events: tuple[Event, ...]
    x: float = 0.0

    @property
    def time_ms(self) -> int:
        return self.events[0].end_ms

    @property
    def last_ms(self) -> int:
        return self.events[-1].end_ms


def with_vacuums(events: Sequence[Event]) -> list[Event]:
    """The events in the order in which they took effect, and behind each consolidation whose sources are gone, that
    they are. No file tells when they went."""
    waiting = [event for event in events if event.superseded]
    found: list[Event] = []
    swept: set[tuple[int, int]] = set()
    for event in sorted(events, key=lambda e: (e.end_ms, e.kind == "consolidate", e.start_ms, e.name)):
        found.append(event)
        span = (event.start_ms, event.end_ms)
        if event.kind != "consolidate" or span in swept:
            continue
        if not any(
            span[0] <= other.start_ms and other.end_ms <= span[1] for other in waiting if other is not event
        ):
            swept.add(span)
            found.append(
                Event(event.end_ms, event.end_ms, "vacuum", "", "what was brought together here is vacuumed")
            )
    return found


def draw_timeline(events: Sequence[Event], at_ms: int) -> Markup:
    """`events` with their vacuums; those after `at_ms`, which the map does not show, are pale."""
    lanes = [lane for lane in _ORDER if any(LANES.get(event.kind) == lane for event in events)]
    columns, pauses, step = _placed(_grouped(events))
    top = _TOP if pauses else 2.0
    rows = {lane: top + _LANE * (i + 0.5) for i, lane in enumerate(lanes)}
    bottom = top + _LANE * len(lanes)
    end = columns[-1].x + _RIGHT
    drawn: list[Markup] = []
    for lane, y in rows.items():
        drawn.append(tag("path", d=f"M{_LEFT} {y}H{end:.1f}", class_="lane"))
        drawn.append(tag("text", lane, x=_LEFT - 22, y=y + 4, class_="tick", text_anchor="end"))
    drawn += _pauses(pauses, bottom)
    drawn += _labels(columns, [x for x, _ in pauses], bottom)
    times = [(column.time_ms, column.x) for column in columns]
    tips = Tooltips(_MOST_NOTES)
    for column in columns:
        for kind in dict.fromkeys(event.kind for event in column.events):
            if kind in LANES:
                same = [event for event in column.events if event.kind == kind]
                drawn.append(_mark(kind, same, column.x, rows[LANES[kind]], times, step, at_ms, tips))
    said = f"Timeline of {count_text(len(events), 'commit')}"
    return tag(
        "svg", tag("title", said), *drawn, viewBox=f"0 0 {WIDTH:.0f} {bottom + _BELOW:.0f}", role="img",
        class_="timeline",
    )  # fmt: skip


# -- where things stand -------------------------------------------------------------------------------


def _grouped(events: Sequence[Event]) -> list[_Column]:
    """What one commit wrote stands together; neighbours do where there are too many."""
    groups: list[list[Event]] = []
    for event in events:
        if groups and (event.end_ms, event.kind) == (groups[-1][-1].end_ms, groups[-1][-1].kind):
            groups[-1].append(event)
        else:
            groups.append([event])
    columns = [_Column(tuple(group)) for group in groups]
    every = ceil(len(columns) / MOST_COLUMNS)
    if every <= 1:
        return columns
    joined_columns: list[_Column] = []
    room = 0
    for column, paused in zip(columns, _paused(columns), strict=True):
        if paused or not room:  # a mark never reaches over a pause
            joined_columns.append(column)
            room = every
        else:
            joined_columns[-1] = _Column((*joined_columns[-1].events, *column.events))
        room -= 1
    return joined_columns


def _paused(columns: Sequence[_Column]) -> list[bool]:
    """Before which columns there was a long wait, by what is usual here; of many waits the longest."""
    waits = [later.time_ms - earlier.last_ms for earlier, later in pairwise(columns)]
    usual = median(waits) if waits else 0
    long = sorted((w for w in waits if w > max(_LONG * usual, 1000)), reverse=True)[:_MOST_PAUSES]
    found, left = [False], len(long)
    for wait in waits:
        paused = bool(long) and wait >= long[-1] and left > 0
        left -= paused
        found.append(paused)
    return found


def _placed(columns: Sequence[_Column]) -> tuple[list[_Column], list[tuple[float, int]], float]:
    """Columns at their places, the pauses between them, where and how long, and what one step takes."""
    paused = _paused(columns)
    units = len(columns) - 1 + _PAUSE * sum(paused)
    step = min(_STEP, (WIDTH - _LEFT - _RIGHT - 16) / max(units, 1))
    placed, pauses, x = [], [], _LEFT + 8
    for i, column in enumerate(columns):
        if i:
            x += step * (1 + _PAUSE * paused[i])
        if paused[i]:
            pauses.append((x - step * (1 + _PAUSE) / 2, column.time_ms - columns[i - 1].last_ms))
        placed.append(_Column(column.events, x))
    return placed, pauses, step


def _pauses(pauses: Sequence[tuple[float, int]], bottom: float) -> list[Markup]:
    drawn, taken = [], 0.0
    for x, wait in pauses:
        text = duration_text(wait)
        drawn.append(
            tag(
                "path",
                tag("title", f"{text} without a commit"),
                d=f"M{x:.1f} {_TOP - 6}V{bottom}",
                class_="pause",
            )
        )
        half = text_width(text) / 2 + 3
        if x - half >= taken:
            drawn.append(tag("text", text, x=x, y=_TOP - 11, class_="context", text_anchor="middle"))
            taken = x + half
    return drawn


def _labels(columns: Sequence[_Column], pauses: Sequence[float], bottom: float) -> list[Markup]:
    """Times below: first where a burst begins, then wherever there is room."""
    texts = [as_text(column.time_ms) for column in columns]
    close = any(a != b and a[:19] == b[:19] for a, b in pairwise(texts))
    begins = [
        i
        for i, column in enumerate(columns)
        if i == 0 or any(columns[i - 1].x < pause < column.x for pause in pauses)
    ]
    chosen: list[int] = []
    half = text_width(texts[0][11:] if close else texts[0][11:19]) / 2 + 9 if texts else 0.0
    for i in (*begins, *range(len(columns))):
        if all(abs(columns[i].x - columns[k].x) >= 2 * half for k in chosen):
            chosen.append(i)
    drawn, day = [], ""
    for i in sorted(chosen):
        x, text = columns[i].x, texts[i]
        drawn.append(tag("path", d=f"M{x:.1f} {bottom}v5", class_="mark"))
        at = min(x, WIDTH - half)
        clock = text[11:] if close else text[11:19]
        drawn.append(tag("text", clock or text, x=at, y=bottom + 17, class_="tick", text_anchor="middle"))
        if clock and text[:10] != day:
            day = text[:10]
            drawn.append(tag("text", day, x=at, y=bottom + 31, class_="context", text_anchor="middle"))
    return drawn


def duration_text(ms: int) -> str:
    for size, unit in _UNITS:
        if ms >= size:
            return f"{ms / size:.2g} {unit}" if ms < 10 * size else f"{ms // size:,} {unit}"
    return "0 ms"


# -- marks --------------------------------------------------------------------------------------------


def _mark(
    kind: str, events: Sequence[Event], x: float, y: float, times: Sequence[tuple[int, float]], step: float,
    at_ms: int, tips: Tooltips,
) -> Markup:  # fmt: skip
    css = f"e {kind}"
    if all(event.superseded for event in events):
        css += " old"
    if all(event.start_ms > at_ms for event in events):
        css += " later"
    title = tips.title(told(kind, events))
    if kind == "consolidate":
        first = min(event.start_ms for event in events)
        begin = min((at for time, at in times if time >= first and at <= x), default=x)
        bar = tag("path", d=f"M{begin:.1f} {y + 5}V{y}H{x:.1f}", class_="span")
        return tag("g", title, bar, icon(kind, x, y, min(5.0, step / 2 + 1)), class_=css)
    cells = log10(1 + sum(event.n_cells or 0 for event in events))
    if kind == "write" and step < _NARROW:
        height = min(_LANE - 6, 4 + 2 * cells)
        bar = tag(
            "rect",
            x=x - 0.36 * step,
            y=y - height / 2,
            width=max(1.0, 0.72 * step),
            height=height,
        )
        return tag("g", title, bar, class_=css)
    size = min(9.0, 3.2 + 0.75 * cells) if kind == "write" else min(5.0, step / 2 + 1)
    many = tag("text", f"{len(events)}", x=x, y=y - 9, class_="many", text_anchor="middle")
    return tag(
        "g", title, icon(kind, x, y, size), many if len(events) > 1 and step >= _NARROW else "", class_=css
    )


def icon(kind: str, x: float, y: float, r: float) -> Markup:
    """A shape of its own for each kind: colour is never all that tells them apart."""
    match kind:
        case "write":
            return tag("circle", cx=x, cy=y, r=r)
        case "update":
            return tag("path", d=f"M{x:.1f} {y - r:.1f}l{r:.1f} {1.8 * r:.1f}h{-2 * r:.1f}z")
        case "delete":
            cross = f"M{x - r + 0.5:.1f} {y - r + 0.5:.1f}l{2 * r - 1:.1f} {2 * r - 1:.1f}m0 {1 - 2 * r:.1f}l{1 - 2 * r:.1f} {2 * r - 1:.1f}"
            return tag("path", d=cross, class_="stroke")
        case "consolidate":
            return tag("rect", x=x - r, y=y - r, width=2 * r, height=2 * r)
        case "vacuum":
            slash = tag(
                "path",
                d=f"M{x - 0.7 * r:.1f} {y + 0.7 * r:.1f}l{1.4 * r:.1f} {-1.4 * r:.1f}",
                class_="stroke",
            )
            return joined([tag("circle", cx=x, cy=y, r=r, class_="stroke"), slash])
        case "create" | "evolve":
            return tag(
                "path",
                d=f"M{x:.1f} {y - r - 1:.1f}l{r + 1:.1f} {r + 1:.1f}l{-r - 1:.1f} {r + 1:.1f}l{-r - 1:.1f} {-r - 1:.1f}z",
            )
    return tag("circle", cx=x, cy=y, r=min(r, 3.0))


def told(kind: str, events: Sequence[Event]) -> str:
    """For a tooltip."""
    if len(events) > 1:
        head = f"{len(events):,} × {kind}, {span_text(events[0].start_ms, events[-1].end_ms)}"
        rest = [] if len(events) <= _MOST_TOLD else [f"and {len(events) - _MOST_TOLD:,} more"]
        texts = [shortened(f"{as_text(e.end_ms)[11:]} {e.text}", 90) for e in events[:_MOST_TOLD]]
        return "\n".join([head, *texts, *rest])
    event = events[0]
    lines = [f"{kind}, {span_text(event.start_ms, event.end_ms)}", shortened(event.text, _LONGEST_TEXT)]
    if event.n_cells is not None:
        lines.append(f"{count_text(event.n_cells, 'cell')}, {bytes_text(event.size or 0)}")
    if event.superseded:
        lines.append("replaced by a consolidation; vacuum will remove it")
    if kind == "vacuum":
        lines[0] = f"vacuum, some time after {as_text(event.end_ms)}"
    return "\n".join(lines)
