"""A writer's side of an array: the time that a new commit takes, and the view that follows from it."""

from collections.abc import Iterable
from dataclasses import replace

from terrazzo.engine.clock import follow, instant, now_ms
from terrazzo.engine.fragments import Fragment
from terrazzo.engine.snapshot import Snapshot, StoredCondition
from terrazzo.engine.view import View, same_cells
from terrazzo.errors import InvalidRequestError


def next_time(snapshot: Snapshot, at: object = None) -> int:
    """When a new commit happens: at the instant asked for, or now, but after everything that can be seen.

    So a clock that goes backwards loses no write.
    """
    if at is not None:
        time_ms = instant(at)
        if time_ms < 1:
            raise InvalidRequestError(f"at={at!r}: the first instant is 1")
        names = [f.name for f in snapshot.fragments] + [c.commit.name for c in snapshot.conditions]
        follow(time_ms, (name.uuid for name in names if name.start_ms == time_ms))
        return time_ms
    return max(now_ms(), snapshot.newest_ms + 1)


def check_names(view: View, names: Iterable[str], time_ms: int) -> None:
    """That a change is told in terms of the schema in force at its instant: what it names must have been there."""
    then = view.snapshot.schema_at(time_ms)
    held = {attr.name: attr for attr in then.attrs}
    for attr in view.schema.attrs:
        if attr.name in names and not same_cells(attr, held.get(attr.name)):
            was = "another attribute" if attr.name in held else "not there"
            raise InvalidRequestError(f"{attr.name!r} was {was} at {time_ms}; choose a later instant")


def with_fragments(view: View, fragments: tuple[Fragment, ...]) -> View:
    return view.following(view.snapshot.with_fragments(*fragments)) if fragments else view


def with_change(view: View, conditions: tuple[StoredCondition, ...], fragments: tuple[Fragment, ...]) -> View:
    """The view after a commit of conditions and fragments together."""
    snapshot = view.snapshot
    if conditions:
        snapshot = snapshot.with_conditions(*conditions)
    if fragments:
        snapshot = snapshot.with_fragments(*fragments)
    return view.following(snapshot)


def reaching(view: View, at_ms: int) -> View:
    """The same view and schema, as of a given instant: without what was committed for later ones."""
    snapshot = view.snapshot
    window = replace(snapshot.window, at_ms=at_ms)
    fragments = tuple(f for f in snapshot.fragments if window.shows(f.name, dense=snapshot.schema.dense))
    conditions = tuple(c for c in snapshot.conditions if c.time_ms <= at_ms)
    return view.following(replace(snapshot, window=window, fragments=fragments, conditions=conditions))
