"""Upserts: of several cells at the same coordinates in the input, the last counts."""

from dataclasses import replace
from typing import Any

from terrazzo.engine.commit import commit_fragments
from terrazzo.engine.consolidate import plan_consolidation
from terrazzo.engine.fragments import Fragment
from terrazzo.engine.reading import count_cells
from terrazzo.engine.request import make_request
from terrazzo.engine.select import Selection
from terrazzo.engine.view import View
from terrazzo.engine.write import put_sparse, take_back

_LEAST = 64 << 20  # bytes of memory: with less, small pieces would become many smaller ones


def upsert(view: View, data: Any, time_ms: int, fragment_size: int) -> tuple[Fragment, ...]:
    """Write and commit."""
    schema, name = view.schema, view.snapshot.schema_name
    written = put_sparse(view.store, schema, name, data, time_ms, view.cipher, fragment_size, last_wins=True)
    if len(written) > 1:
        written = _untied(view, written, fragment_size)
    commit_fragments(view.store, [fragment.name for fragment in written])
    return written


def _untied(view: View, written: tuple[Fragment, ...], memory: int) -> tuple[Fragment, ...]:
    """Fragments of which no two hold the same cell. Between versions of one instant we choose by name; libtiledb does
    so in small arrays only, and in others by chance."""
    snapshot = view.snapshot.with_fragments(*written)  # of which the rest has no bearing on these
    snapshot = replace(snapshot, fragments=written, conditions=(), problems=())
    alone, memory = view.following(snapshot), max(memory, _LEAST)
    request = make_request(view.schema, [view.schema.dims[0].name], None, None, None)
    put = [*written]
    try:
        if count_cells(alone, request, memory) == sum(f.footer.n_cells(view.schema) for f in written):
            return written
        names = [str(fragment.name) for fragment in written]
        plan = plan_consolidation(alone, Selection(), fragments=names, purge=True, memory=memory)
        for task in plan.tasks:
            created = task()
            if created is not None:
                put.append(created)
    except BaseException:
        take_back(view.store, put)
        raise
    take_back(view.store, written)
    return tuple(put[len(written) :])
