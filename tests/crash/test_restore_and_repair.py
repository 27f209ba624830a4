"""Restore, repair and the removal of fragments, stopped before every put and every delete."""

import uuid
from collections.abc import Callable
from contextlib import suppress
from itertools import count

import numpy as np
import pytest

import terrazzo as tz
from terrazzo.engine.consolidate import Merge
from terrazzo.engine.repair import repair_array
from terrazzo.storage import open_store
from terrazzo.storage.base import Store
from terrazzo.testing.stores import DyingStore

SPARSE = tz.Schema(
    dims=[tz.Dim("x", "int64", domain=(0, 99_999), tile=1000)],
    attrs=[tz.Attr("v", "int64")],
    sparse=True,
    capacity=500,
)
DENSE = tz.Schema(
    dims=[tz.Dim("x", "int64", domain=(0, 19_999), tile=1000)], attrs=[tz.Attr("v", "int64")], sparse=False
)
NOW, THEN = 20_000, 10_000


def _sparse(uri: str) -> None:
    a = tz.create(uri, SPARSE, at=1)
    a.write({"x": np.arange(THEN), "v": np.ones(THEN, np.int64)}, at=10)
    a.write({"x": np.arange(THEN, NOW), "v": np.ones(NOW - THEN, np.int64)}, at=20)


def _dense(uri: str) -> None:
    a = tz.create(uri, DENSE, at=1)
    a.write({"v": np.ones(THEN, np.int64)}, region={"x": (0, THEN - 1)}, at=10)
    a.write({"v": np.ones(NOW - THEN, np.int64)}, region={"x": (THEN, NOW - 1)}, at=20)


def _shown(store: Store) -> int:
    return tz.Array(store, None).count("v = 1")


@pytest.mark.parametrize("make", [_sparse, _dense])
def test_a_restore_that_stops_anywhere_shows_the_old_state_or_the_new_one(
    make: Callable[[str], None],
) -> None:
    seen = []
    for lives in count():
        uri = f"memory://{uuid.uuid4().hex}/array"
        make(uri)
        store = open_store(uri)
        dying = DyingStore(store, lives, deletes_count=True)
        with suppress(tz.StorageError):
            tz.Array(dying, None).restore(15, memory=1)
        seen.append(_shown(store))
        assert tz.check(uri, deep=True).ok
        if not dying.dead:
            break
        tz.open(uri).restore(15, memory=1)

        assert _shown(store) == THEN
        assert tz.open(uri, at=20).count("v = 1") == NOW
    assert seen == sorted(seen, reverse=True)
    assert set(seen) == {NOW, THEN}
    assert len(seen) > 6


def _damaged(uri: str) -> None:
    """One of each: a torn `.con`, `.del`, `.meta`, `.vac`, an unfinished consolidation, a foreign file, a fragment
    that is gone."""
    a = tz.create(uri, SPARSE, at=1)
    for i in range(5):
        a.write({"x": [i], "v": [1]}, at=10 + i)
    a.consolidate_commits()
    a.vacuum(retain=0)
    for i in range(5, 10):
        a.write({"x": [i], "v": [1]}, at=10 + i)
    a.consolidate_fragment_metadata()
    store = open_store(uri)
    a.consolidate(since=15, until=16)
    a.consolidate(since=17, until=18)
    a.delete("x = 9", at=40)
    (con,) = _keys(store, ".con")
    store.put(con, store.get(con) + b"__commits/__9_9_0")
    unfinished, torn = _keys(store, ".vac")
    lines = store.get(unfinished).decode().splitlines()
    name = unfinished.rpartition("/")[2].removesuffix(".vac")
    merge = Merge((f"__fragments/{name}",), tuple(line.removeprefix("/") for line in lines))
    store.put(f"__commits/{name}.merge", merge.pack())
    store.delete([unfinished])
    store.put(torn, store.get(torn)[:-3])
    (delete,) = _keys(store, ".del")
    store.put(delete, store.get(delete)[:30])
    (meta,) = (entry.key for entry in store.list("__fragment_meta"))
    store.put(meta, store.get(meta)[:40])
    store.put("__meta/junk", b"junk")
    store.delete_folder(next(f.key for f in tz.Array(store, None).fragments if f.name.end_ms == 19))


def _keys(store: Store, suffix: str) -> list[str]:
    return [entry.key for entry in store.list("__commits") if entry.key.endswith(suffix)]


def test_a_repair_that_stops_anywhere_is_simply_run_again() -> None:
    for lives in count():
        uri = f"memory://{uuid.uuid4().hex}/array"
        _damaged(uri)
        store = open_store(uri)
        aside = store.beside(".quarantine")
        held = {entry.key: store.get(entry.key) for entry in store.list_recursive()}
        dying = DyingStore(store, lives, deletes_count=True)
        with suppress(tz.StorageError):
            repair_array(dying, None, dry_run=False)
        left = {entry.key for entry in store.list_recursive()}
        # Whatever has left the array so far stands beside it, or was the list of a finished consolidation.
        for key in held.keys() - left:
            assert key.endswith(".merge") or aside.get(key) == held[key]
        report = repair_array(store, None, dry_run=False)

        assert report.ok
        assert sorted(tz.open(uri).read(["x"])["x"].to_pylist()) == list(range(9))
        assert tz.check(uri, deep=True).ok
        assert not repair_array(store, None).actions
        if not dying.dead:
            break
    assert lives > 15


def test_a_removal_of_fragments_that_stops_anywhere_can_be_run_again() -> None:
    for lives in count():
        uri = f"memory://{uuid.uuid4().hex}/array"
        a = tz.create(uri, SPARSE, at=1)
        for i in range(6):
            a.write({"x": [i], "v": [1]}, at=10 + i)
            if i == 1:
                a.consolidate_commits()
        a.consolidate(since=12, until=13)
        store = open_store(uri)
        dying = DyingStore(store, lives, deletes_count=True)
        with suppress(tz.StorageError):
            tz.Array(dying, None).delete_fragments(until=14)
        shown = tz.open(uri).read(["x"])["x"].to_pylist()
        assert 5 in shown
        assert len(shown) == len(set(shown))
        tz.open(uri).delete_fragments(until=14)

        assert tz.open(uri).read(["x"])["x"].to_pylist() == [5]
        assert tz.check(uri).ok
        if not dying.dead:
            break
    assert lives > 5
