"""What a vacuum tells, and what it takes from those at work."""

import uuid
from typing import Any

import pytest

import terrazzo as tz
from terrazzo.engine import commit
from terrazzo.engine.array import Array
from terrazzo.engine.consolidate import commit_consolidation, plan_consolidation, run_consolidation
from terrazzo.engine.select import Selection
from terrazzo.errors import ConflictError
from terrazzo.testing.stores import CountingStore, Request, WrappedStore


def new_array(*, sparse: bool = True, duplicates: bool = False) -> Array:
    schema = tz.Schema(
        [tz.Dim("x", "int32", (0, 9), 5)],
        [tz.Attr("k", "int32", nullable=True)],
        sparse=sparse,
        allows_duplicates=duplicates,
    )
    return tz.create(f"memory://{uuid.uuid4().hex}", schema, at=1)


def stored(array: Array) -> set[str]:
    return {entry.key for entry in array._store.list_recursive("")}


# -- what the report says ------------------------------------------------------------------------------


@pytest.mark.parametrize("dry_run", [True, False])
def test_the_report_names_the_instants_of_a_dense_array_that_are_lost(dry_run: bool) -> None:
    array = new_array(sparse=False)
    for at in (1000, 2000):
        array.write({"k": [at] * 10}, region={"x": (0, 9)}, at=at)
    array.consolidate()
    report = array.vacuum(retain=0, dry_run=dry_run)

    assert report.lost == ((1000, 2000),)
    goes = "will no longer be" if dry_run else "can no longer be"
    assert f"instants from 1970-01-01 00:00:01.000 to before 1970-01-01 00:00:02.000 {goes} read" in str(
        report
    )


@pytest.mark.parametrize("dry_run", [True, False])
def test_the_report_names_the_instants_whose_metadata_are_lost(dry_run: bool) -> None:
    array = new_array()
    array.meta["a"] = 1
    array.meta["a"] = 2
    first, last = (name.start_ms for name in array._view.snapshot.metadata_names)
    array.consolidate_metadata()
    report = array.vacuum(retain=0, dry_run=dry_run)

    assert (report.lost, report.lost_metadata) == ((), ((first, last),))
    assert "metadata from" in str(report)
    if not dry_run:
        assert (dict(tz.open(array.uri, at=first).meta), dict(tz.open(array.uri, at=last).meta)) == (
            {},
            {"a": 2},
        )


def test_the_report_says_that_readers_and_writers_at_work_lose_files() -> None:
    array = new_array()
    for x in (1, 2):
        array.write({"x": [x], "k": [x]})
    plan = plan_consolidation(array._everything(), Selection())
    run_consolidation(plan)
    array.consolidate()
    report = array.vacuum(retain=0, dry_run=True)

    assert len(report.orphans) == 1
    assert "readers that opened the array before" in str(report)
    assert "the 1 fragments without a commit may be those of a writer or a consolidation at work" in str(
        report
    )
    assert array.vacuum(retain="7d", dry_run=True).breaks == ()


def test_a_vacuum_that_removes_nothing_breaks_nothing() -> None:
    array = new_array()
    array.write({"x": [1], "k": [1]})

    assert array.vacuum(retain=0, dry_run=True).breaks == ()
    assert str(array.vacuum(retain=0)) == "removed nothing"


# -- writers whose files are gone ----------------------------------------------------------------------


class Meddling(WrappedStore):
    """Removes every fragment folder right behind the put of a fragment's metadata."""

    def after(self, request: Request, n_bytes: int) -> None:
        if request.kind == "put" and request.key.endswith("__fragment_metadata.tdb"):
            self.inner.delete_folder(request.key.rpartition("/")[0])


class Forgetful(dict[str, float]):
    """Of what was put: as if that had been long ago, or by another process."""

    def __setitem__(self, key: str, value: float) -> None: ...


WRITES: dict[str, Any] = {
    "write": lambda array: array.write({"x": [5], "k": [6]}),
    "delete that spares nulls": lambda array: array.delete("k > 0"),
    "portable update": lambda array: array.update({"k": 3}, "k = 2", portable=True),
    "restore": lambda array: array.restore(10),
}


@pytest.mark.parametrize("duplicates", [True, False])
@pytest.mark.parametrize("kind", WRITES)
def test_a_writer_whose_fragment_a_vacuum_removed_is_told_and_commits_nothing(
    kind: str, duplicates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = new_array(duplicates=duplicates)
    array.write({"x": [1, 2], "k": [1, None]}, at=10)
    array.write({"x": [1], "k": [2]}, at=20)
    before = stored(array)
    monkeypatch.setattr(commit, "_put", Forgetful())

    with pytest.raises(ConflictError, match="nothing was committed"):
        WRITES[kind](Array(Meddling(array._store), None))
    assert stored(array) == before
    WRITES[kind](array)
    assert stored(array) > before


def test_a_dense_write_whose_fragment_is_gone_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    array = new_array(sparse=False)
    before = stored(array)
    monkeypatch.setattr(commit, "_put", Forgetful())

    with pytest.raises(ConflictError, match="nothing was committed"):
        Array(Meddling(array._store), None).write({"k": [1] * 10}, region={"x": (0, 9)})
    assert stored(array) == before


def test_a_consolidation_whose_fragment_a_vacuum_removed_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    array = new_array()
    for x in (1, 2):
        array.write({"x": [x], "k": [x]})
    before, view = stored(array), array._everything()
    plan = plan_consolidation(view, Selection())
    made = run_consolidation(plan)
    array.vacuum(retain=0)
    monkeypatch.setattr(commit, "_FRESH_S", -1.0)

    with pytest.raises(ConflictError, match="removed meanwhile"):
        commit_consolidation(view, plan, made)
    assert stored(array) == before
    array.consolidate()
    assert len(array.fragments) == 1


def test_a_fragment_whose_first_files_went_while_the_last_were_put_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Removing(WrappedStore):
        def before(self, request: Request) -> None:
            if request.kind == "put" and request.key.endswith("__fragment_metadata.tdb"):
                self.inner.delete_folder(request.key.rpartition("/")[0])

    array = new_array()
    monkeypatch.setattr(commit, "_FRESH_S", -1.0)

    with pytest.raises(ConflictError, match="removed meanwhile"):
        Array(Removing(array._store), None).write({"x": [5], "k": [6]})
    assert tz.open(array.uri).fragments == ()


def test_a_write_that_takes_no_time_does_not_look_for_its_files() -> None:
    array = new_array()
    store = CountingStore(array._store)
    writer = Array(store, None)
    store.reset()
    writer.write({"x": [5], "k": [6]})

    assert set(store.counts) == {"put"}
