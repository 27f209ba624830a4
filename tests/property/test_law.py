"""The law of maintenance: every read at every instant is the same before and after.

Purge is the exception: it keeps what shows now, and from then on. `LAW_SEEDS` sets the histories: how many, or which
("100:200"). Those of libtiledb and ours together are in tests/interop/test_mixed_law.py.
"""

import random
import uuid
from contextlib import suppress
from typing import Any

import pytest
from histories import History, all_shown, differences, seeds, shown, without_threads

import terrazzo as tz

SEEDS = seeds(12)


@pytest.fixture(autouse=True)
def serial(monkeypatch: pytest.MonkeyPatch) -> None:
    without_threads(monkeypatch)


def place() -> str:
    return f"memory://{uuid.uuid4().hex}"


def partial_consolidation(rnd: random.Random, history: History) -> dict[str, Any]:
    """Arguments of `consolidate` that take some of the fragments, or all of them in some other way."""
    names = history.fragment_names
    start, stop = sorted(rnd.sample(range(len(names) + 1), 2)) if len(names) > 1 else (0, 0)
    chosen = names[start:stop] if rnd.random() < 0.6 else [n for n in names if rnd.random() < 0.6]
    options: list[dict[str, Any]] = [
        {},
        {"max_fragments": 2},
        {"max_fragments": 3, "steps": 1},
        {"size_ratio": 0.7, "max_fragments": 2},
        {"since": rnd.randint(8, history.time)},
        {"until": rnd.randint(8, history.time)},
        {"max_fragment_size": rnd.choice([200, 1000])},
        {"amplification": 3.0},
    ]
    if len(chosen) > 1:
        options += [{"fragments": chosen}] * 4
    how = dict(rnd.choice(options))
    if rnd.random() < 0.5:
        how["memory"] = rnd.choice([600, 4000])
    return how


def maintain(rnd: random.Random, history: History) -> Any:
    how = partial_consolidation(rnd, history)
    try:
        report = history.array.consolidate(**how)
    except tz.InvalidRequestError as refused:
        assert "fragments" in how
        return how, str(refused)
    return how, str(report)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_instant_of_a_sparse_array_reads_as_before(seed: int) -> None:
    history = History.sparse(seed, place())
    rnd = random.Random(-seed)
    for _ in range(2):
        history.go_on(rnd.randint(3, 6))
        before = all_shown(history.uri, history.instants)

        history.log.append(maintain(rnd, history))
        assert differences(before, all_shown(history.uri, history.instants)) == {}, history.log
        compact(rnd, history.array)
        history.log.append(str(history.array.vacuum(retain=0)))
        assert differences(before, all_shown(history.uri, history.instants)) == {}, history.log


def compact(rnd: random.Random, array: tz.Array) -> None:
    if rnd.random() < 0.6:
        array.consolidate_commits()
    if rnd.random() < 0.6:
        array.consolidate_fragment_metadata()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_instant_of_a_dense_array_reads_as_before_until_vacuum(seed: int) -> None:
    history = History.dense(seed, place())
    rnd = random.Random(-seed)
    first = 2
    for _ in range(2):
        history.go_on(rnd.randint(2, 5))
        before = all_shown(history.uri, [at for at in history.instants if at >= first])

        history.log.append(maintain(rnd, history))
        assert differences(before, all_shown(history.uri, before)) == {}, history.log
        compact(rnd, history.array)
        lost = history.array.vacuum(retain=0).lost
        first = max([first, *(end for _, end in lost)])
        kept = {at: rows for at, rows in before.items() if not any(a <= at < b for a, b in lost)}
        assert differences(kept, all_shown(history.uri, kept)) == {}, history.log


@pytest.mark.parametrize("seed", SEEDS)
def test_a_purge_keeps_what_shows_now_and_later(seed: int) -> None:
    history = History.sparse(seed, place())
    rnd = random.Random(-seed)
    history.go_on(rnd.randint(4, 9))
    now = shown(history.uri, history.time + 4)
    with suppress(tz.InvalidRequestError):  # if no cell is left
        history.array.consolidate(purge=True, memory=rnd.choice([600, "1GiB"]))

    assert shown(history.uri, history.time + 4) == now, history.log
    history.array.vacuum(retain=0)
    assert shown(history.uri, history.time + 4) == now
    history.go_on(3)
    later = all_shown(history.uri, [history.time + 4])
    history.array.consolidate()
    history.array.vacuum(retain=0)
    assert differences(later, all_shown(history.uri, later)) == {}, history.log


def test_two_updates_and_a_delete_of_one_instant_are_judged_in_their_order() -> None:
    for duplicates in (True, False):
        schema = tz.Schema(
            [tz.Dim("x", "int32", (0, 9), 5)], [tz.Attr("k", "int32")], allows_duplicates=duplicates
        )
        array = tz.create(place(), schema, at=1)
        array.write({"x": [1, 2, 3], "k": [1, 2, 3]}, at=10)
        array.write({"x": [4], "k": [4]}, at=12)
        for values, where in (({"k": 5}, "k = 1"), ({"k": 6}, "k >= 2"), ({"k": 6}, "k = 5")):
            array.update(values, where, at=20)
        array.delete("k = 1", at=20)
        before = all_shown(array.uri, (10, 19, 20, 21))
        array.consolidate()

        assert before[20] == [str({"x": x, "k": k}) for x, k in ((1, 6), (2, 6), (3, 6), (4, 6))]
        assert all_shown(array.uri, before) == before


def test_what_dropped_attributes_held_shows_at_earlier_instants() -> None:
    array = tz.create(
        place(),
        tz.Schema([tz.Dim("x", "int32", (0, 9), 5)], [tz.Attr("a", "int32"), tz.Attr("b", "utf8")]),
        at=1,
    )
    array.write({"x": [1, 2], "a": [1, 2], "b": ["one", "two"]}, at=10)
    array.evolve(drop=["b"], at=20)
    array.write({"x": [2, 3], "a": [5, 6]}, at=30)
    array.evolve(add=[tz.Attr("c", "int8", fill=4)], at=40)
    before = all_shown(array.uri, (10, 19, 20, 30, 40))
    n_events = len(array.history())
    array.consolidate()
    array.vacuum(retain=0)

    assert all_shown(array.uri, before) == before
    assert len(tz.open(array.uri).fragments) == 1
    assert [attr.name for attr in tz.open(array.uri).schema.attrs] == ["a", "c"]
    assert len([e for e in array.history() if e.kind == "evolve"]) == 2 <= n_events


def test_a_name_that_means_another_attribute_now_keeps_its_fragments_apart() -> None:
    array = tz.create(
        place(),
        tz.Schema([tz.Dim("x", "int32", (0, 9), 5)], [tz.Attr("a", "int32"), tz.Attr("b", "utf8")]),
        at=1,
    )
    array.write({"x": [1], "a": [1], "b": ["one"]}, at=10)
    array.evolve(drop=["b"], at=20)
    array.evolve(add=[tz.Attr("b", "int64")], at=25)
    for at in (30, 31):
        array.write({"x": [at - 28], "a": [2], "b": [at]}, at=at)
    before = all_shown(array.uri, (10, 20, 25, 30, 31))
    names = [str(fragment.name) for fragment in array.fragments]
    with pytest.raises(tz.InvalidRequestError, match="another"):
        array.consolidate(fragments=names[:2])
    array.consolidate()
    array.vacuum(retain=0)

    assert all_shown(array.uri, before) == before
    assert len(tz.open(array.uri).fragments) == 2


def test_cells_of_one_place_and_instant_keep_their_order() -> None:
    array = tz.create(place(), tz.Schema([tz.Dim("x", "int32", (0, 9), 5)], [tz.Attr("a", "int32")]), at=1)
    for value, at in ((1, 10), (2, 10), (3, 20)):
        array.write({"x": [1, 1 + value], "a": [value, value]}, at=at)
    before = all_shown(array.uri, (10, 20))
    names = [str(fragment.name) for fragment in array.fragments]
    with pytest.raises(tz.InvalidRequestError, match="same instant"):
        array.consolidate(fragments=[names[0], names[2]])
    array.consolidate(max_fragments=2)

    assert all_shown(array.uri, before) == before


def test_consolidation_that_cannot_get_to_fewer_fragments_ends() -> None:
    history = History.sparse(3, place(), evolves=False)
    for _ in range(3):
        history.time += 2
        history.write()

    assert history.array.consolidate(max_fragments=2, memory=1).steps >= 1


def test_metadata_read_as_before_and_after_vacuum_from_the_last_change_on() -> None:
    uri = place()
    array = History.sparse(1, uri).array
    for key, said in (("a", 1), ("b", "two"), ("a", 3), ("c", 4)):
        array.meta[key] = said
    del array.meta["c"]
    last = array._view.snapshot.newest_ms
    first = min(name.start_ms for name in array._view.snapshot.metadata_names)
    before = {at: dict(tz.open(uri, at=at).meta) for at in range(first - 1, last + 2)}

    array.consolidate_metadata()
    assert {at: dict(tz.open(uri, at=at).meta) for at in before} == before
    array.consolidate_metadata()  # nothing more to do
    array.vacuum(retain=0)
    assert dict(tz.open(uri).meta) == dict(tz.open(uri, at=last).meta) == {"a": 3, "b": "two"}
    assert len(tz.open(uri)._view.snapshot.metadata_names) == 1
