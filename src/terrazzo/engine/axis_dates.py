"""Ticks of dates: on whole years, months, days, hours or fractions of a second, whichever the view has room for.

Everything is counted in attoseconds, of which Python's integers have no end.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

_SECOND = 10**18
_DAY = 86_400 * _SECOND
_MONDAY = 4 * _DAY  # weeks begin on one; 1970-01-01 was a Thursday
_UNITS = {
    "W": 7 * _DAY, "D": _DAY, "h": 3600 * _SECOND, "m": 60 * _SECOND, "s": _SECOND,
    "ms": 10**15, "us": 10**12, "ns": 10**9, "ps": 10**6, "fs": 10**3, "as": 1,
}  # fmt: skip
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_STEPS = (
    *(factor * 10**power for power in range(18) for factor in (1, 2, 5)),
    *(count * _SECOND for count in (1, 2, 5, 10, 15, 30)),
    *(60 * count * _SECOND for count in (1, 2, 5, 10, 15, 30)),
    *(3600 * count * _SECOND for count in (1, 2, 3, 6, 12)),
    *(count * _DAY for count in (1, 2, 7, 14)),
)
_MONTH_STEPS = (1, 2, 3, 6, *(12 * factor * 10**power for power in range(18) for factor in (1, 2, 5)))
_MONTH = 2_629_746 * _SECOND  # on average

Found = tuple[int, str, str]  # the value in its unit, the label, and what several labels share


def date_ticks(low: int, high: int, unit: str, most: int) -> list[Found]:
    most = max(most, 1)
    if unit in {"Y", "M"}:
        per_unit = 12 if unit == "Y" else 1
        step = next(s for s in _MONTH_STEPS if s >= per_unit and s * most >= (high - low) * per_unit)
        return [
            _month_tick(m // per_unit, m, step) for m in _multiples(low * per_unit, high * per_unit, step)
        ]
    size = _UNITS[unit]
    span = (high - low) * size
    for step in _STEPS:
        if step >= size and step * most >= span:
            origin = _MONDAY if step % (7 * _DAY) == 0 else 0
            found = _multiples(low * size - origin, high * size - origin, step)
            return [_moment_tick(at + origin, step, size) for at in found]
    step = next(s for s in _MONTH_STEPS if s * _MONTH * most >= span)
    first, last = (int(_in_unit(value, unit).astype("M8[M]").astype(np.int64)) for value in (low, high))
    ticks = []
    for month in _multiples(first, last, step):
        value = int(np.datetime64(month, "M").astype(f"M8[{unit}]").astype(np.int64))
        if low <= value <= high:
            ticks.append(_month_tick(value, month, step))
    return ticks


def _multiples(low: int, high: int, step: int) -> Iterator[int]:
    return iter(range(-(-low // step) * step, high + 1, step))


def _in_unit(value: int, unit: str) -> Any:
    return np.array(value, np.int64).astype(f"M8[{unit}]")


def _month_tick(value: int, month: int, step: int) -> Found:
    year = str(1970 + month // 12)
    return (value, year, "") if step % 12 == 0 else (value, _MONTHS[month % 12], year)


def _moment_tick(at: int, step: int, size: int) -> Found:
    day = np.datetime64(at // _DAY, "D")
    year, month, date = str(day).rsplit("-", 2)
    if step >= _DAY:
        return at // size, f"{int(date)} {_MONTHS[int(month) - 1]}", year
    seconds, fraction = divmod(at % _DAY, _SECOND)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}"
    if step < 60 * _SECOND:
        clock += f":{seconds % 60:02}"
    if step < _SECOND:
        clock += "." + f"{fraction:018}"[: 18 - (len(str(step)) - 1)]
    return at // size, clock, str(day)


def date_label(value: int, unit: str) -> str:
    """A moment alone, without what is zero at its end."""
    text = str(_in_unit(value, unit)).replace("T", " ")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text.removesuffix(":00") if text.count(":") == 2 else text
