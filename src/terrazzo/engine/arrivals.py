"""How far a reader of a growing array has come: which commits it has seen, and which come next.

Commits do not appear in the order of their times: a slow writer, a clock that lags or a write `at` an instant commits
behind what was seen already. So a mark is more than an instant:

    settled   everything up to this instant counts as seen; what appears at or before it later is not
    seen      of the instants after it, the commits that were seen, each by a short name

Consolidation takes the names of commits away but leaves every cell the time of its write. So the cells of consolidated
fragments count by their instant, under the name `*`.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from terrazzo.errors import ConflictError, InvalidRequestError

FOLDED = "*"
MOST_SEEN = 10_000
"""Names in a mark. Beyond it the oldest instants count as settled before their time is over."""

Seen = Mapping[int, frozenset[str]]


def short_name(name: object) -> str:
    return hashlib.sha256(str(name).encode()).hexdigest()[:10]


@dataclass(frozen=True, slots=True)
class Mark:
    settled: int = 0
    seen: Seen = field(default_factory=dict)

    def knows(self, time_ms: int, name: str) -> bool:
        return time_ms <= self.settled or name in self.seen.get(time_ms, ())

    def to_json(self) -> dict[str, Any]:
        seen = {str(time): " ".join(sorted(names)) for time, names in sorted(self.seen.items())}
        return {"settled": self.settled, "seen": seen}

    @classmethod
    def of_json(cls, told: Mapping[str, Any]) -> Self:
        try:
            seen = {int(time): frozenset(names.split()) for time, names in told["seen"].items()}
            return cls(int(told["settled"]), seen)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InvalidRequestError(
                f"{told!r} is no offset of an array; the checkpoint belongs to another source"
            ) from None


@dataclass(frozen=True, slots=True)
class Arrival:
    """A commit that is there."""

    time_ms: int
    name: str
    n_cells: int = 0


@dataclass(frozen=True, slots=True)
class Sight:
    """What is there at a moment, as far as it may be news."""

    now_ms: int
    visible: tuple[Arrival, ...] = ()  # fragments as they were written, and conditions
    superseded: tuple[Arrival, ...] = ()  # fragments that were consolidated, but not removed yet
    folded: Mapping[int, int] = field(default_factory=dict)  # cells of consolidated fragments by instant


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a step takes; a single instant is never divided."""

    commits: int | None = None
    cells: int | None = None


NO_LIMITS = Limits()


@dataclass(slots=True)
class _News:
    names: set[str] = field(default_factory=set)
    n_cells: int = 0


def advance(start: Mark, sight: Sight, lateness_ms: int, limits: Limits = NO_LIMITS) -> Mark:
    """The mark after the next step; `start` itself if nothing is new."""
    news = _news(start, sight)
    if not news:
        return start
    times = sorted(news)
    n_taken = _within(limits, [news[time].n_cells for time in times])
    settled = max(start.settled, sight.now_ms - lateness_ms)
    ceiling = times[n_taken] - 1 if n_taken < len(times) else sight.now_ms  # what is left must not settle
    settled = min(settled, max(ceiling, start.settled))
    seen = {time: names for time, names in start.seen.items() if time > settled}
    for time in times[:n_taken]:
        if time > settled:
            seen[time] = seen.get(time, frozenset()) | news[time].names
    return _bounded(Mark(settled, seen), max(ceiling, settled))


def _news(start: Mark, sight: Sight) -> dict[int, _News]:
    """What was not seen, by instant. What clocks ahead of ours stamped waits until we are there."""
    news: dict[int, _News] = {}

    def add(time_ms: int, name: str, n_cells: int) -> None:
        found = news.setdefault(time_ms, _News())
        found.names.add(name)
        found.n_cells += n_cells

    for time_ms, n_cells in sight.folded.items():
        if start.settled < time_ms <= sight.now_ms and time_ms not in start.seen:
            add(time_ms, FOLDED, n_cells)
    for each in sight.visible:
        if each.time_ms <= sight.now_ms and not start.knows(each.time_ms, each.name):
            add(each.time_ms, each.name, each.n_cells)
    for each in sight.superseded:
        if each.time_ms > sight.now_ms or start.knows(each.time_ms, each.name):
            continue
        if each.time_ms in start.seen:
            add(each.time_ms, each.name, each.n_cells)  # it came late, and its instant tells it from nothing
        elif each.time_ms in news and FOLDED in news[each.time_ms].names:
            news[each.time_ms].names.add(each.name)  # its cells are among the folded ones
    return news


def _within(limits: Limits, sizes: list[int]) -> int:
    """How many instants fit, one at least."""
    most = len(sizes) if limits.commits is None else min(limits.commits, len(sizes))
    if limits.cells is not None:
        total = 0
        for count, size in enumerate(sizes[:most]):
            total += size
            if total > limits.cells:
                return max(count, 1)
    return most


def _bounded(mark: Mark, ceiling: int) -> Mark:
    n_names = sum(map(len, mark.seen.values()))
    settled = mark.settled
    for time in sorted(mark.seen):
        if n_names <= MOST_SEEN or time > ceiling:
            break
        n_names -= len(mark.seen[time])
        settled = time
    return Mark(settled, {time: names for time, names in mark.seen.items() if time > settled})


@dataclass(frozen=True, slots=True)
class Step:
    """The cells between two marks: fragments to read whole, and instants to read of consolidated ones."""

    names: frozenset[str]
    after: int  # folded cells of (after, until], without some instants, and of some more
    until: int
    without: frozenset[int]
    also: frozenset[int]


def step(start: Mark, end: Mark, sight: Sight) -> Step:
    """What a reader at `start` must read to be at `end`, by what is there now: the same cells at any time."""
    names = {
        each.name
        for each in sight.visible
        if end.knows(each.time_ms, each.name) and not start.knows(each.time_ms, each.name)
    }
    names |= {
        each.name
        for each in sight.superseded
        if each.time_ms in start.seen
        and each.time_ms <= end.settled
        and each.name not in start.seen[each.time_ms]
    }
    there = _by_time((*sight.visible, *sight.superseded))
    also = set()
    for time, seen in end.seen.items():
        new = seen - start.seen.get(time, frozenset())
        if not new or time <= start.settled:
            continue
        if FOLDED not in new and new <= there.get(time, frozenset()):
            names |= new
        elif time in start.seen:
            raise ConflictError(
                f"commits of the instant {time} were consolidated and removed before they were read, and their cells "
                f"cannot be told from others of that instant; start a new stream with startAt={time}"
            )
        else:
            also.add(time)
    return Step(frozenset(names), start.settled, end.settled, frozenset(start.seen), frozenset(also))


def _by_time(arrivals: Iterable[Arrival]) -> dict[int, frozenset[str]]:
    found: dict[int, set[str]] = {}
    for each in arrivals:
        found.setdefault(each.time_ms, set()).add(each.name)
    return {time: frozenset(names) for time, names in found.items()}
