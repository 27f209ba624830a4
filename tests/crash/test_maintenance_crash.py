"""Maintenance that dies, that meets another, and that meets writers and readers: every instant reads as it did."""

import random
import sys
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import terrazzo as tz
from terrazzo.engine.array import Array
from terrazzo.engine.consolidate import commit_consolidation, plan_consolidation, run_consolidation
from terrazzo.engine.select import Selection
from terrazzo.engine.vacuum import vacuum
from terrazzo.errors import ConflictError, StorageError
from terrazzo.storage import open_store
from terrazzo.testing.stores import DyingStore, Request, WrappedStore

sys.path.insert(0, str(Path(__file__).parents[1] / "property"))
from histories import all_shown

INSTANTS = (9, 10, 11, 20, 21, 25, 30, 31, 40, 41, 45, 99)
CHANGES = (10, 20, 25, 30, 40, 45, 46)


def small_array(*, duplicates: bool = True, uri: str | None = None) -> Array:
    """Writes, a delete, an update and metadata; duplicates show whatever is counted twice."""
    schema = tz.Schema(
        [tz.Dim("x", "int32", (0, 30), 5)], [tz.Attr("k", "int32")], allows_duplicates=duplicates, capacity=4
    )
    array = tz.create(uri or f"memory://{uuid.uuid4().hex}", schema, at=1)
    rnd = random.Random(1)
    for at in (10, 20, 25, 40):
        array.write({"x": rnd.sample(range(31), 9), "k": [rnd.randint(0, 3) for _ in range(9)]}, at=at)
    array.delete("k = 1", at=30)
    array.update({"k": 7}, "k = 2", at=45)
    array.meta["a"] = 1
    array.meta["b"] = 2
    return array


def twice_consolidated(array: Array) -> None:
    """Fragments that replaced others, and were replaced in their turn; commits that stand in a `.con`."""
    names = [str(fragment.name) for fragment in array.fragments]
    array.consolidate(fragments=names[:2])
    array.consolidate_commits()
    array.consolidate()
    array.consolidate_metadata()


KINDS = {
    "consolidate": lambda array: array.consolidate(),
    "consolidate in boxes": lambda array: array.consolidate(memory=700),
    "consolidate commits": lambda array: array.consolidate_commits(),
    "consolidate fragment metadata": lambda array: array.consolidate_fragment_metadata(),
    "consolidate metadata": lambda array: array.consolidate_metadata(),
    "vacuum": lambda array: array.vacuum(retain=0),
}


def objects(array: Array) -> set[str]:
    return {entry.key for entry in array._store.list_recursive("")}


def copied(array: Array) -> Array:
    """The same files elsewhere, which is quicker than to write them again."""
    copy = open_store(f"memory://{uuid.uuid4().hex}")
    for entry in array._store.list_recursive(""):
        copy.put(entry.key, array._store.get(entry.key))
    return Array(copy, None)


@pytest.mark.parametrize("kind", KINDS)
def test_maintenance_killed_before_any_put_or_delete_changes_no_instant(kind: str) -> None:
    original = small_array()
    if kind == "vacuum":
        twice_consolidated(original)
    before, meta = all_shown(original.uri, CHANGES), dict(original.meta)
    lives, died = -1, True
    while died:
        lives += 1
        array = copied(original)
        dying = DyingStore(array._store, puts_left=lives, deletes_count=True)
        with suppress(StorageError):
            KINDS[kind](Array(dying, None))
        died = dying.dead

        assert all_shown(array.uri, CHANGES) == before, (kind, lives)
        again = tz.open(array.uri)
        assert dict(again.meta) == meta
        try:
            KINDS[kind](again)  # a second run completes it
        except ConflictError:  # unless the first may still be at work
            again.vacuum(retain=0)
            KINDS[kind](again)
        again.vacuum(retain=0)
        assert all_shown(array.uri, CHANGES) == before, (kind, lives)
        assert dict(tz.open(array.uri).meta) == meta
        assert leftovers(again) == set()
    assert lives >= 1


def leftovers(array: Array) -> set[str]:
    """Folders of fragments that nobody sees, and files of maintenance that is over."""
    visible = {fragment.key for fragment in array._everything().snapshot.fragments}
    folders = set(array._store.list_level("__fragments").folders)
    return (folders - visible) | {key for key in objects(array) if key.endswith((".merge", ".vac"))}


def test_a_consolidation_that_died_long_ago_is_in_nobody_s_way(monkeypatch: pytest.MonkeyPatch) -> None:
    array = small_array()
    before = all_shown(array.uri, INSTANTS)
    dying = Meanwhile(array._store, lambda r: r.kind == "put" and r.key.endswith(".wrt"), _die)
    with pytest.raises(StorageError):
        Array(dying, None).consolidate()
    monkeypatch.setattr("terrazzo.engine.consolidate._ABOUT_TO_MS", 0)
    array.consolidate()

    assert all_shown(array.uri, INSTANTS) == before
    array.vacuum(retain=0)
    assert leftovers(array) == set()


def _die() -> None:
    raise StorageError("the writer died")


def started(array: Array, **how: Any) -> tuple[Any, Any, Any]:
    view = array._everything()
    plan = plan_consolidation(view, Selection(), **how)
    return view, plan, run_consolidation(plan)


@pytest.mark.parametrize("duplicates", [True, False])
def test_of_two_consolidations_at_once_one_wins_and_the_other_leaves_nothing(duplicates: bool) -> None:
    array = small_array(duplicates=duplicates)
    before = all_shown(array.uri, INSTANTS)
    first, second = started(array), started(array, memory=700)

    commit_consolidation(*first)
    with pytest.raises(ConflictError, match="another process"):
        commit_consolidation(*second)
    assert all_shown(array.uri, INSTANTS) == before
    array.vacuum(retain=0)
    assert all_shown(array.uri, INSTANTS) == before
    assert leftovers(array) == set()


class Meanwhile(WrappedStore):
    """Lets something else happen before a request of ours."""

    def __init__(self, inner: Any, picks: Any, happens: Any) -> None:
        super().__init__(inner)
        self.picks, self.happens = picks, happens

    def before(self, request: Request) -> None:
        if self.happens is not None and self.picks(request):
            happens, self.happens = self.happens, None
            happens()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for another here waits in vain: it is dead, or it goes on when we are done."""
    monkeypatch.setattr("terrazzo.engine.consolidate._PATIENCE_S", 0.0)


@pytest.mark.parametrize("name", ["earlier", "later"])
@pytest.mark.parametrize("suffix", [".merge", ".wrt", ".vac"])
def test_two_consolidations_interleaved_at_any_step_never_double_a_row(suffix: str, name: str) -> None:
    array = small_array()
    before = all_shown(array.uri, INSTANTS)
    outcomes = []
    some = [
        str(fragment.name) for fragment in array.fragments[1:]
    ]  # what is made of these sorts behind the other

    def attempt(who: Array, fragments: list[str] | None = None) -> None:
        try:
            who.consolidate(fragments=fragments)
            outcomes.append("won")
        except (ConflictError, tz.InvalidRequestError):
            outcomes.append("lost")

    store = Meanwhile(
        array._store,
        lambda r: r.kind == "put" and r.key.endswith(suffix),
        lambda: attempt(tz.open(array.uri)),
    )
    attempt(Array(store, None), some if name == "earlier" else None)

    assert "won" in outcomes
    assert all_shown(array.uri, INSTANTS) == before
    tz.open(array.uri).vacuum(retain=0)
    assert all_shown(array.uri, INSTANTS) == before


def test_consolidation_leaves_alone_what_is_written_meanwhile() -> None:
    array = small_array()
    view, plan, made = started(array)
    tz.open(array.uri).write(
        {"x": [1, 2], "k": [5, 6]}, at=26
    )  # a late one, which the delete and the update see
    tz.open(array.uri).delete("k = 3", at=50)
    before = all_shown(array.uri, (*INSTANTS, 50, 51))

    commit_consolidation(view, plan, made)
    assert all_shown(array.uri, before) == before
    tz.open(array.uri).vacuum(retain=0)
    assert all_shown(array.uri, before) == before


def test_a_reader_whose_files_a_vacuum_removed_is_told_to_open_again(tmp_path: Path) -> None:
    array = small_array(uri=str(tmp_path / "a"))
    reader = tz.open(array.uri)
    expected = sorted(map(repr, reader.read().to_pylist()))
    idle = tz.open(array.uri)
    array.consolidate()
    array.vacuum(retain=0)

    with pytest.raises(ConflictError, match="open"):
        idle.read()
    assert sorted(map(repr, idle.refresh().read().to_pylist())) == expected


def test_commits_gathered_while_a_vacuum_removes_some_do_not_bring_them_back() -> None:
    for who in ("vacuum first", "gathering first"):
        array = small_array()
        array.consolidate()
        before = all_shown(array.uri, INSTANTS)
        con = lambda r: r.kind == "put" and r.key.endswith(".con")  # noqa: E731
        wrt = lambda r: r.kind == "delete" and r.key.endswith(".wrt")  # noqa: E731
        if who == "vacuum first":
            store = Meanwhile(array._store, con, lambda: tz.open(array.uri).vacuum(retain=0))
            Array(store, None).consolidate_commits()
        else:
            store = Meanwhile(array._store, wrt, lambda: tz.open(array.uri).consolidate_commits())
            vacuum(Array(store, None)._view, retain_ms=0, dry_run=False)

        assert all_shown(array.uri, INSTANTS) == before, who


def test_vacuum_with_its_retention_takes_nothing_from_a_writer_at_work(tmp_path: Path) -> None:
    array = small_array(uri=str(tmp_path / "a"))
    view, plan, made = started(array)
    array.vacuum()

    commit_consolidation(view, plan, made)
    assert np.array_equal(len(tz.open(array.uri).fragments), 1)
    assert open_store(array.uri).list_level("__fragments").folders
