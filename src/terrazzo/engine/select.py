"""Which fragments a consolidation brings together, by libtiledb's rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

from terrazzo.engine.dense import meet, shape_of, tile_box
from terrazzo.engine.fragments import Fragment
from terrazzo.errors import InvalidRequestError
from terrazzo.format.fragment import tile_grid
from terrazzo.format.schema import Schema

_PREFERENCE = 1.25  # a later run is taken only if it is that much smaller


@dataclass(frozen=True, slots=True)
class Selection:
    """How fragments are chosen, step by step; the defaults bring all of them together."""

    min_fragments: int = 2
    max_fragments: int | None = None
    size_ratio: float = 0.0  # smaller to larger, of neighbours in time
    steps: int | None = None
    amplification: float = 1.0  # dense: cells of the result to cells of its sources
    since_ms: int = 0
    until_ms: int = (1 << 64) - 1

    def check(self) -> None:
        if self.min_fragments < 2:
            raise InvalidRequestError(f"min_fragments={self.min_fragments}; two or more make a consolidation")
        if self.max_fragments is not None and self.max_fragments < self.min_fragments:
            raise InvalidRequestError(
                f"max_fragments={self.max_fragments} is below min_fragments={self.min_fragments}"
            )
        if not 0 <= self.size_ratio <= 1:
            raise InvalidRequestError(f"size_ratio={self.size_ratio}; between 0 and 1 expected")
        if self.steps is not None and self.steps < 1:
            raise InvalidRequestError(f"steps={self.steps}; 1 or more expected")
        if self.since_ms > self.until_ms:
            raise InvalidRequestError("the time range of the consolidation is empty")


def stored_size(fragment: Fragment) -> int:
    footer = fragment.footer
    return sum(footer.file_sizes) + sum(footer.var_file_sizes) + sum(footer.validity_file_sizes)


def select(
    fragments: Sequence[Fragment], schema: Schema, selection: Selection, without: Sequence[Fragment] = ()
) -> tuple[Fragment, ...]:
    """The next run of fragments to consolidate, in order of time; none if nothing qualifies."""
    selection.check()
    left_out = {fragment.key for fragment in without}
    candidates = [
        f
        for f in fragments
        if selection.since_ms <= f.name.start_ms
        and f.name.end_ms <= selection.until_ms
        and f.key not in left_out
    ]
    most = min(len(candidates), selection.max_fragments or len(candidates))
    least = min(selection.min_fragments, len(candidates))
    if len(candidates) < 2:
        return ()
    sizes = [stored_size(fragment) for fragment in candidates]
    for length in range(most, max(least, 2) - 1, -1):
        best: tuple[float, int] | None = None
        for start in range(len(candidates) - length + 1):
            run = slice(start, start + length)
            if not _similar(sizes[run], selection.size_ratio):
                continue
            if schema.dense and not dense_run_is_safe(fragments, candidates[run], schema, selection):
                continue
            if length < len(fragments) and tied_with(fragments, candidates[run], schema):
                continue
            total = sum(sizes[run])
            if best is None or total < best[0] / _PREFERENCE:
                best = total, start
        if best is not None:
            return tuple(candidates[best[1] : best[1] + length])
    return ()


def _similar(sizes: Sequence[int], ratio: float) -> bool:
    return all(min(a, b) >= ratio * max(a, b) for a, b in pairwise(sizes))


def named(fragments: Sequence[Fragment], names: Sequence[str]) -> tuple[Fragment, ...]:
    """Fragments by name or URI, in order of time."""
    wanted = {str(name).rstrip("/").rpartition("/")[2] for name in names}
    found = tuple(fragment for fragment in fragments if str(fragment.name) in wanted)
    if lacking := wanted - {str(fragment.name) for fragment in found}:
        raise InvalidRequestError(f"no visible fragment {', '.join(sorted(lacking))}; see fragments")
    if len(found) < 2:
        raise InvalidRequestError("two or more fragments make a consolidation")
    return found


def tied_with(fragments: Sequence[Fragment], run: Sequence[Fragment], schema: Schema) -> Fragment | None:
    """A fragment outside with cells of the same place and instant as some in the run. Of these the later name wins,
    and the name of the result is another one."""
    if schema.allows_duplicates:
        return None
    chosen, box, first = {fragment.key for fragment in run}, union_box(run), run[0]
    for other in fragments:
        domain: Any = other.footer.domain
        if other.key in chosen or not boxes_meet(domain, box):
            continue
        same = any(each.name.start_ms == other.name.start_ms for each in run)
        within = first.order < other.order and any(
            other.name.start_ms < each.name.start_ms <= other.name.end_ms for each in run
        )
        if same or within:
            return other
    return None


def boxes_meet(one: Any, other: Any) -> bool:
    return all(a <= d and c <= b for (a, b), (c, d) in zip(one, other, strict=True))


def union_box(fragments: Sequence[Fragment]) -> Any:
    domains: list[Any] = [fragment.footer.domain for fragment in fragments]
    return tuple(
        (min(d[j][0] for d in domains), max(d[j][1] for d in domains)) for j in range(len(domains[0]))
    )


def dense_run_is_safe(
    fragments: Sequence[Fragment], run: Sequence[Fragment], schema: Schema, selection: Selection
) -> bool:
    """Whether the box of the run hides nothing: no earlier fragment shows through its holes, and it is not much larger
    than what it holds."""
    box = union_box(run)
    chosen = {fragment.key for fragment in run}
    for other in fragments:
        domain: Any = other.footer.domain
        if other.key not in chosen and other.order < run[-1].order and meet(domain, box) is not None:
            return False
    held = sum(prod(shape_of(_expanded(fragment.footer.domain, schema))) for fragment in run)
    return prod(shape_of(box)) <= selection.amplification * held


def _expanded(domain: Any, schema: Schema) -> Any:
    """A box grown to whole tiles."""
    grid = tile_grid(domain, schema)
    first, last = tile_box([a for a, _ in grid], schema), tile_box([b for _, b in grid], schema)
    return tuple((low, high) for (low, _), (_, high) in zip(first, last, strict=True))
