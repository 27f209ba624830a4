"""Requests of an open: a fixed number once commits and footers are consolidated, whatever the number of fragments.

`REQUEST_FRAGMENTS` sets the larger number.
"""

import os
import uuid
from dataclasses import replace

import pytest
from histories import without_threads

import terrazzo as tz
from terrazzo.engine.array import Array
from terrazzo.engine.clock import unique
from terrazzo.format.keys import CommitKind, commit_key, fragment_key
from terrazzo.testing.stores import CountingStore

FEW, MANY = 20, int(os.environ.get("REQUEST_FRAGMENTS", "10000"))


def array_of(n_fragments: int) -> tz.Array:
    """One fragment, and copies of its files under later names: to write as many takes minutes."""
    schema = tz.Schema([tz.Dim("x", "int32", (0, 1 << 20), 100)], [tz.Attr("k", "int32")])
    array = tz.create(f"memory://{uuid.uuid4().hex}", schema, at=1)
    array.write({"x": [0], "k": [0]}, at=10)
    array.delete("k = 9", at=2 * MANY)
    store, first = array._store, array.fragments[0]
    files = {entry.key.rpartition("/")[2]: store.get(entry.key) for entry in store.list(first.key)}
    for at in range(11, 10 + n_fragments):
        name = replace(first.name, start_ms=at, end_ms=at, uuid=unique(at))
        for file, content in files.items():
            store.put(f"{fragment_key(name)}/{file}", content)
        store.put(commit_key(name, CommitKind.WRITE), b"")
    return array


def requests_of_an_open(array: tz.Array, n_fragments: int) -> dict[str, int]:
    store = CountingStore(array._store)
    opened = Array(store, None)
    assert len(opened.fragments) == n_fragments
    return dict(store.counts)


def test_an_open_costs_the_same_for_few_fragments_and_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    without_threads(monkeypatch)
    counts = {}
    for n in (FEW, MANY):
        array = array_of(n)
        array.consolidate_commits()
        array.consolidate_fragment_metadata()
        kept = requests_of_an_open(array, n)
        array.vacuum(retain=0)
        counts[n] = kept, requests_of_an_open(array, n)

    assert counts[MANY] == counts[FEW]
    assert all(sum(each.values()) <= 9 for each in counts[FEW])
