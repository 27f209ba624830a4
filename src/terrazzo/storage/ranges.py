"""Byte ranges that lie close together, read as one.

A request costs as much as some bytes do: on an object store about a megabyte's worth of waiting, on a
local disk some kilobytes' worth of a system call. Ranges closer than that are fetched with what lies
between them and cut apart as views of the same memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from terrazzo.errors import InvalidRequestError
from terrazzo.storage.base import Buffers, Bytes


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes to fetch in one request, and which of the ranges asked for lie in them."""

    start: int
    stop: int
    members: tuple[int, ...]

    @property
    def size(self) -> int:
        return self.stop - self.start


def coalesce(ranges: Sequence[tuple[int, int]], *, gap: int, largest: int) -> list[Span]:
    """Spans that cover all (start, length) ranges, in order of their start.

    No span grows beyond `largest` bytes by joining: a view keeps its whole span alive, and spans are what
    is fetched in parallel. Ranges may overlap and come in any order; those of no bytes need no span.
    """
    if not ranges:
        return []
    if min(map(min, ranges)) < 0:
        raise InvalidRequestError("a byte range has a negative start or length")
    # Mostly one range, or a few in order: too few for numpy to be worth its calls.
    order = sorted(range(len(ranges)), key=lambda member: ranges[member][0])
    spans: list[Span] = []
    first, last, members = 0, 0, list[int]()
    for member in order:
        start, length = ranges[member]
        if not length:
            continue
        stop = start + length
        if members and (start - last > gap or max(stop, last) - first > largest):
            spans.append(Span(first, last, tuple(members)))
            members = []
        if not members:
            first, last = start, stop
        last = max(last, stop)
        members.append(member)
    if members:
        spans.append(Span(first, last, tuple(members)))
    return spans


def cut(ranges: Sequence[tuple[int, int]], spans: Sequence[Span], fetched: Sequence[Bytes]) -> Buffers:
    """The bytes of every range, as views of the spans' bytes; one that fills its span alone is that."""
    result: Buffers = [b""] * len(ranges)
    for span, buffer in zip(spans, fetched, strict=True):
        if len(span.members) == 1:
            result[span.members[0]] = buffer
            continue
        view = memoryview(buffer)
        for member in span.members:
            start, length = ranges[member]
            result[member] = view[start - span.start : start - span.start + length]
    return result
