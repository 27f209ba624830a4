"""Requests of an open: a fixed number once commits and footers are consolidated, whatever the number of fragments.

`REQUEST_FRAGMENTS` sets the larger number.
"""

import os
import uuid
from typing import Any

import numpy as np
import pytest

import terrazzo as tz
from terrazzo.engine.array import Array
from terrazzo.engine.commit import put_fragment
from terrazzo.engine.write import sparse_fragment
from terrazzo.format.keys import CommitKind, commit_key
from terrazzo.testing.stores import CountingStore

MANY = int(os.environ.get("REQUEST_FRAGMENTS", "200"))


def array_of(n_fragments: int) -> tz.Array:
    """Fragments without any reader in between, which is what takes time."""
    schema = tz.Schema([tz.Dim("x", "int32", (0, 1 << 20), 100)], [tz.Attr("k", "int32")])
    array = tz.create(f"memory://{uuid.uuid4().hex}", schema, at=1)
    array.write({"x": [0], "k": [0]}, at=10)
    columns = _columns(array)
    snapshot = array._view.snapshot
    for number in range(1, n_fragments):
        moved = {**columns, "x": type(columns["x"])(columns["x"].values + np.int32(number))}
        encoded = sparse_fragment(moved, schema, snapshot.schema_name, 10 + number, None)
        put_fragment(array._store, encoded)
        array._store.put(commit_key(encoded.fragment.name, CommitKind.WRITE), b"")
    array.refresh()
    return array


def _columns(array: tz.Array) -> Any:
    reader = array._view.reader(array.fragments[0])
    return reader.read(["x", "k"], reader.all_tiles())


def requests_of_an_open(array: tz.Array) -> dict[str, int]:
    store = CountingStore(array._store)
    opened = Array(store, None)
    assert len(opened.fragments) == len(array.fragments)
    return dict(store.counts)


@pytest.mark.parametrize("vacuumed", [False, True])
def test_an_open_costs_the_same_for_few_fragments_and_for_many(vacuumed: bool) -> None:
    counts = []
    for n in (20, MANY):
        array = array_of(n)
        assert len(array.fragments) == n
        array.delete("k = 9", at=10 * MANY)
        array.consolidate_commits()
        array.consolidate_fragment_metadata()
        if vacuumed:
            array.vacuum(retain=0)
        counts.append(requests_of_an_open(array))

    assert counts[0] == counts[1]
    assert sum(counts[0].values()) <= 9
