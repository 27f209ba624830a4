"""The picture of an array: what is in it, where its fragments and tiles lie, and what happened to it, on one page.

The page is one file with drawings in it; it runs no scripts and asks no network for anything.
"""

from collections.abc import Sequence
from itertools import starmap

from terrazzo.engine.clock import FOREVER, as_text, now_ms
from terrazzo.engine.events import Event, read_history
from terrazzo.engine.picture_data import Pieces, chosen_dims, gather, span_text
from terrazzo.engine.picture_map import Map, draw_map
from terrazzo.engine.picture_plot import GRADIENT, MOST_DISTINCT
from terrazzo.engine.picture_style import STYLE
from terrazzo.engine.picture_timeline import LANES, draw_timeline, icon, with_vacuums
from terrazzo.engine.svg import Markup, bytes_text, count_text, joined, shortened, tag
from terrazzo.engine.view import View

MOST_ROWS = 40
"""Commits in the table, the latest ones."""
_LONGEST_TEXT = 240
_MOST_LINES = 60


def render(view: View, dims: Sequence[str] | None = None) -> str:
    """The page. `dims` names one or two dimensions for the map, the one across first."""
    name = _name(view)
    head = joined(
        [
            Markup('<meta charset="utf-8"/>'),
            Markup('<meta name="viewport" content="width=device-width, initial-scale=1"/>'),
            Markup('<meta name="color-scheme" content="light dark"/>'),
            tag("title", f"{name} · terrazzo"),
            tag(
                "style", Markup("body{margin:0}@media (prefers-color-scheme:dark){body{background:#15181e}}")
            ),
        ]
    )
    page = tag("html", tag("head", head), tag("body", render_part(view, dims)), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def render_part(view: View, dims: Sequence[str] | None = None) -> Markup:
    """What is in the body of the page, for a notebook to put into its own."""
    gathered = gather(view)
    chosen = chosen_dims(view.schema, gathered.pieces, dims)
    known = {fragment.key: fragment for fragment in view.snapshot.fragments}
    history = read_history(view.store, view.cipher, known)
    return tag(
        "div",
        tag("style", Markup(STYLE)),
        _headline(view, gathered, history),
        *_map(
            draw_map(view.schema, gathered, chosen),
            gathered,
            has_current=view.schema.current_domain is not None,
        ),
        *_timeline(view, history),
        *_table(history),
        class_="terrazzo",
    )


def _name(view: View) -> str:
    return view.store.uri.rstrip("/").rpartition("/")[2] or view.store.uri


# -- headline -----------------------------------------------------------------------------------------


def _headline(view: View, gathered: Pieces, history: Sequence[Event]) -> Markup:
    waiting = [event for event in history if event.superseded]
    facts = [
        ("cells stored", f"{gathered.n_cells:,}"),
        ("of data", bytes_text(gathered.size)),
        (_plural("fragment", len(gathered.pieces)), f"{len(gathered.pieces):,}"),
        (_plural("tile", gathered.n_tiles), f"{gathered.n_tiles:,}"),
        (_plural("commit", len(history)), f"{len(history):,}"),
    ]
    if waiting:
        size = bytes_text(sum(event.size or 0 for event in waiting))
        facts.append((f"in {count_text(len(waiting), 'fragment')} to vacuum", size))
    shown_at = view.snapshot.window.at_ms
    place = view.store.uri
    if shown_at < now_ms() - 1000 and any(event.end_ms > shown_at for event in history):
        place += f" · as of {as_text(shown_at)} UTC"
    return tag(
        "header",
        tag("h1", _name(view)),
        tag("p", place, class_="uri"),
        tag("dl", *starmap(_fact, facts), class_="facts"),
        tag("pre", _schema_text(view)),
    )


def _schema_text(view: View) -> str:
    lines = str(view.schema).splitlines()
    left_out = [f"  and {len(lines) - _MOST_LINES:,} more"] if len(lines) > _MOST_LINES else []
    return "\n".join([*(shortened(line, _LONGEST_TEXT) for line in lines[:_MOST_LINES]), *left_out])


def _fact(name: str, value: str) -> Markup:
    return tag("div", tag("dt", name), tag("dd", value))


def _plural(what: str, count: int) -> str:
    return what if count == 1 else f"{what}s"


# -- map, timeline, table -----------------------------------------------------------------------------


def _map(drawn: Map, gathered: Pieces, *, has_current: bool) -> list[Markup]:
    swatch = [tag("i", Markup("&#8203;"), style=f"background:{colour}") for colour, _ in drawn.legend]
    items: list[Markup] = []
    if drawn.levels:
        fades = (0.13, 0.28, 0.45, 0.65, 0.9)
        for k, level in enumerate(drawn.levels):
            fade = fades[k * len(fades) // len(drawn.levels)]
            items.append(tag("li", _blank("shade", f"opacity:{fade}"), level))
    if len(drawn.legend) <= MOST_DISTINCT:
        items += [tag("li", mark, text) for mark, (_, text) in zip(swatch, drawn.legend, strict=True)]
    else:
        first, last = gathered.pieces[0].fragment.name, gathered.pieces[-1].fragment.name
        ramp = _blank("ramp", f"background:linear-gradient(90deg, {GRADIENT})")
        items.append(tag("li", as_text(first.end_ms), ramp, as_text(last.end_ms)))
    if gathered.pieces:
        items.append(tag("li", _blank("dots"), "non-empty domain"))
        if has_current:
            items.append(tag("li", _blank("box"), "current domain"))
    says = ["every fragment over its non-empty domain, thin lines around its tiles", *drawn.notes]
    note = " ".join(f"{text[0].upper()}{text[1:]}." for text in says) if gathered.pieces else ""
    return [
        tag("h2", "Fragments and tiles"),
        tag("p", note or "The domain, without a fragment.", class_="note"),
        drawn.svg,
        tag("ul", *items, class_="key") if items else Markup(),
    ]


def _blank(css: str, style: str | None = None) -> Markup:
    # HTML knows no empty elements of this name: a character without width keeps it open.
    return tag("i", Markup("&#8203;"), class_=css, style=style)


def _timeline(view: View, history: Sequence[Event]) -> list[Markup]:
    events = with_vacuums(history)
    if not events:
        return []
    kinds = [kind for kind in LANES if any(event.kind == kind for event in events)]
    items = [tag("li", _small(kind), _MEANINGS[kind]) for kind in kinds]
    if any(event.superseded for event in events):
        items.append(tag("li", _small("write", "old"), "replaced, to be vacuumed"))
    at_ms = view.snapshot.window.at_ms
    later = any(event.start_ms > at_ms for event in events)
    pale = " What came after the instant shown is pale." if later and at_ms < FOREVER else ""
    return [
        tag("h2", "Commits"),
        tag("p", f"In order, not to scale; dotted lines are pauses. Times are UTC.{pale}", class_="note"),
        draw_timeline(events, at_ms),
        tag("ul", *items, class_="key"),
    ]


_MEANINGS = {
    "create": "created", "evolve": "schema evolved", "write": "write, larger for more cells", "update": "update",
    "delete": "delete", "consolidate": "consolidation, from its oldest source on",
    "vacuum": "sources vacuumed", "metadata": "metadata",
}  # fmt: skip


def _small(kind: str, more: str = "") -> Markup:
    return tag(
        "svg", tag("g", icon(kind, 8.0, 8.0, 5.0), class_=f"e {kind} {more}".strip()), viewBox="0 0 16 16"
    )


def _table(history: Sequence[Event]) -> list[Markup]:
    latest = sorted(history, key=lambda event: (event.end_ms, event.name), reverse=True)[:MOST_ROWS]
    head = tag(
        "tr", tag("th", "time (UTC)"), tag("th", "commit"), tag("th", "cells", class_="n"),
        tag("th", "size", class_="n"), tag("th", "what"),
    )  # fmt: skip
    rows = [
        tag(
            "tr",
            tag("td", span_text(event.start_ms, event.end_ms).replace(" … ", " …\n")),
            tag("td", _small(event.kind, "old" if event.superseded else ""), " ", event.kind),
            tag("td", "" if event.n_cells is None else f"{event.n_cells:,}", class_="n"),
            tag("td", "" if event.size is None else bytes_text(event.size), class_="n"),
            tag("td", shortened(event.text, _LONGEST_TEXT), class_="what"),
            class_="gone" if event.superseded else None,
        )
        for event in latest
    ]
    left_out = len(history) - len(latest)
    note = [tag("p", f"The latest {len(latest)}; {left_out:,} earlier ones are left out.", class_="note")]
    return [
        tag("h2", "History"),
        *(note if left_out else []),
        tag("div", tag("table", tag("thead", head), tag("tbody", *rows)), class_="scroll"),
    ]
