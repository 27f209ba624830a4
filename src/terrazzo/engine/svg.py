"""Markup that cannot be broken by what it says: every text is escaped, unless it is markup already.

tag("text", "a < b", x=3, class_="tick")    <text x="3" class="tick">a &lt; b</text>
"""

import re
from collections.abc import Iterable
from html import escape
from typing import Any

# XML has no place for these at all, not even escaped.
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_CHARACTER = 6.4
"""Width of a character at 11 pixels, a little more than most have."""
_SIZES = ("kB", "MB", "GB", "TB", "PB")
_WIDE = 0x1100  # from here on characters may be twice as wide


class Markup(str):
    """Text that is escaped already."""

    __slots__ = ()


def clean(text: object) -> str:
    return _NOT_XML.sub("\ufffd", str(text))


def escaped(text: object) -> Markup:
    return text if isinstance(text, Markup) else Markup(escape(clean(text), quote=True))


def joined(parts: Iterable[object]) -> Markup:
    return Markup("".join(escaped(part) for part in parts))


def tag(name: str, *children: object, **attributes: Any) -> Markup:
    """An element. `class_` is class, `stroke_width` is stroke-width; an attribute that is None is left out."""
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(number(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = joined(children)
    return Markup(f"<{name}{told}>{inside}</{name}>" if inside else f"<{name}{told}/>")


def number(value: Any) -> Any:
    """A coordinate to a tenth of a pixel; what is no number stays as it is."""
    if not isinstance(value, float):
        return value
    return f"{value:.1f}".removesuffix(".0")


def text_width(text: str) -> float:
    """About how wide a label is; rather too wide than too narrow."""
    return _CHARACTER * sum(2 if ord(character) >= _WIDE else 1 for character in text)


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


class Tooltips:
    """Titles of elements, until they take too much room together: the drawing is worth more than its notes."""

    def __init__(self, most: int) -> None:
        self._left = most

    def title(self, text: str) -> Markup:
        made = tag("title", text)
        self._left -= len(made.encode())
        return made if self._left >= 0 else Markup()


def bytes_text(size: int) -> str:
    if size < 1000:
        return f"{size} B"
    power = 1
    while size / 1000**power >= 999.5 and power < len(_SIZES):
        power += 1
    return f"{size / 1000**power:.3g} {_SIZES[power - 1]}"


def count_text(count: int, what: str) -> str:
    """`1 cell`, `2,000 cells`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
