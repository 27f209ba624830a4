"""The law of maintenance on histories by both libraries: every read at every instant is the same before and after, by
whomever it was written, consolidated and vacuumed; and libtiledb, in each of its readers, shows the same as we do, from
one millisecond after each update on.

`LAW_SEEDS` sets the histories: how many, or which ("100:200").
"""

import sys
from pathlib import Path

import pytest
import tiledb
from mixed import MODES, Mixed, MixedDense, run_theirs, theirs, theirs_dense

import terrazzo as tz

sys.path.insert(0, str(Path(__file__).parents[1] / "property"))
from histories import all_shown, differences, seeds, without_threads

ORDERS = ("U", "G", "C", "F")
N_SEEDS = 3


@pytest.fixture(autouse=True)
def serial(monkeypatch: pytest.MonkeyPatch) -> None:
    without_threads(monkeypatch)


def agrees(mixed: Mixed, before: dict[int, list[str]], orders: tuple[str, ...] = ORDERS) -> None:
    shared = {at: before[at] for at in mixed.shared_instants if at in before}
    for order in orders:
        found = {at: theirs(mixed.uri, at, order) for at in shared}
        assert differences(shared, found) == {}, (order, mixed.log)
    with tiledb.open(mixed.uri) as array:
        assert dict(array.meta) == dict(tz.open(mixed.uri).meta), mixed.log


@pytest.mark.parametrize("seed", seeds(N_SEEDS))
def test_histories_by_both_read_the_same_through_maintenance_by_both(tmp_path: Path, seed: int) -> None:
    mixed = Mixed(seed, tmp_path / "a")
    for _ in range(2):
        for _ in range(mixed.rnd.randint(3, 6)):
            mixed.step()
        before = all_shown(mixed.uri, mixed.instants)
        meta = dict(tz.open(mixed.uri).meta)
        for work in (mixed.maintain, mixed.vacuum):
            work()
            assert differences(before, all_shown(mixed.uri, before)) == {}, mixed.log
            assert dict(tz.open(mixed.uri).meta) == meta
        agrees(mixed, before, orders=(mixed.rnd.choice(ORDERS),))
    # With all updates worked in, libtiledb shows every instant, and goes on with what we left. A single fragment is
    # never rewritten, so there is one more.
    mixed.time += 4
    mixed.write(ours=mixed.rnd.random() < 0.5, at=mixed.time)
    before = all_shown(mixed.uri, mixed.instants)
    mixed._ours("consolidate all")

    assert differences(before, all_shown(mixed.uri, before)) == {}, mixed.log
    agrees(mixed, before)
    mixed.time += 4
    mixed.write(ours=False, at=mixed.time)
    before = all_shown(mixed.uri, mixed.instants)
    for mode in MODES:
        if mixed.can_run_theirs(mode):
            run_theirs(mixed.uri, mode)
    assert differences(before, all_shown(mixed.uri, before)) == {}, mixed.log
    agrees(mixed, before)
    assert tz.check(mixed.uri, deep=True).of("error") == ()


@pytest.mark.parametrize("seed", seeds(N_SEEDS))
def test_dense_histories_by_both_read_the_same_until_a_vacuum(tmp_path: Path, seed: int) -> None:
    mixed = MixedDense(seed, tmp_path / "a")
    lost: list[tuple[int, int]] = []
    for _ in range(2):
        for _ in range(mixed.rnd.randint(2, 4)):
            mixed.step()
        before = {at: rows for at, rows in mixed.all_shown().items() if not any(a <= at < b for a, b in lost)}
        mixed.maintain()
        assert differences(before, all_shown(mixed.uri, before)) == {}, mixed.log
        lost += mixed.vacuum()
        before = {at: rows for at, rows in before.items() if not any(a <= at < b for a, b in lost)}
        assert differences(before, all_shown(mixed.uri, before)) == {}, mixed.log
        for order in ("C", "F"):  # global order needs whole tiles, and there is no unordered one
            found = {at: theirs_dense(mixed.uri, at, order) for at in before}
            assert differences(before, found) == {}, (order, mixed.log)
