"""Marks: which commits were seen, which come next, and the same cells whenever a step is taken again."""

import json

import pytest

from terrazzo.engine import arrivals
from terrazzo.engine.arrivals import FOLDED, Arrival, Limits, Mark, Sight, advance, short_name, step
from terrazzo.errors import ConflictError, InvalidRequestError

HOUR = 3_600_000
NOW = 10 * HOUR


def sight(*visible, superseded=(), folded=None, now=NOW):
    return Sight(
        now,
        tuple(Arrival(*each) for each in visible),
        tuple(Arrival(*each) for each in superseded),
        folded or {},
    )


def test_nothing_new_leaves_the_mark_where_it_is():
    mark = advance(Mark(), sight((100, "a", 1)), HOUR)

    assert advance(mark, sight((100, "a", 1), now=NOW + HOUR), HOUR) == mark


def test_what_is_older_than_the_lateness_settles_and_the_rest_is_remembered():
    mark = advance(Mark(), sight((100, "a", 1), (NOW - 5, "b", 1)), HOUR)

    assert mark == Mark(NOW - HOUR, {NOW - 5: frozenset({"b"})})


def test_a_late_commit_within_the_lateness_is_new():
    seen = sight((NOW - 5, "b", 1))
    mark = advance(Mark(), seen, HOUR)

    later = advance(mark, sight((NOW - 5, "b", 1), (NOW - 60, "late", 1)), HOUR)
    assert step(mark, later, sight((NOW - 5, "b", 1), (NOW - 60, "late", 1))).names == {"late"}


def test_a_commit_at_the_instant_of_one_that_was_seen_is_new():
    mark = advance(Mark(), sight((NOW, "a", 1)), HOUR)
    both = sight((NOW, "a", 1), (NOW, "b", 1))

    assert step(mark, advance(mark, both, HOUR), both).names == {"b"}


def test_what_a_clock_ahead_stamped_waits_for_its_time():
    ahead = sight((NOW + 5, "a", 1))

    assert advance(Mark(), ahead, HOUR) == Mark()
    assert NOW + 5 in advance(Mark(), sight((NOW + 5, "a", 1), now=NOW + 5), HOUR).seen


@pytest.mark.parametrize(
    ("limits", "taken"),
    [
        (Limits(), [100, 200, 300]),
        (Limits(commits=2), [100, 200]),
        (Limits(cells=25), [100, 200]),
        (Limits(cells=5), [100]),
        (Limits(commits=1, cells=25), [100]),
        (Limits(commits=9, cells=900), [100, 200, 300]),
    ],
)
def test_limits_take_the_oldest_first_and_one_at_least(limits, taken):
    mark = advance(Mark(), sight((200, "b", 10), (100, "a", 10), (300, "c", 10)), 20 * HOUR, limits)

    assert sorted(mark.seen) == taken


def test_what_a_limit_leaves_does_not_settle():
    there = sight((100, "a", 1), (200, "b", 1), (300, "c", 1))
    mark = advance(Mark(), there, HOUR, Limits(commits=1))

    assert mark == Mark(199)
    assert step(mark, advance(mark, there, HOUR, Limits(commits=1)), there).names == {"b"}


def test_a_mark_never_goes_back():
    mark = advance(Mark(NOW), sight((NOW + 7, "a", 1), now=NOW + 7), HOUR)

    assert mark.settled == NOW


def test_a_mark_does_not_grow_without_bound(monkeypatch):
    monkeypatch.setattr(arrivals, "MOST_SEEN", 3)
    mark = advance(Mark(), sight(*((NOW - 10 + i, f"f{i}", 1) for i in range(9))), HOUR)

    assert mark == Mark(NOW - 5, {NOW - 10 + i: frozenset({f"f{i}"}) for i in (6, 7, 8)})


def test_cells_of_consolidated_fragments_count_by_their_instant():
    mark = advance(Mark(), sight((NOW - 9, "a", 1)), HOUR)
    there = sight(superseded=[(NOW - 9, "a"), (NOW - 5, "b")], folded={NOW - 9: 1, NOW - 5: 1})
    later = advance(mark, there, HOUR)

    assert later.seen[NOW - 5] == {FOLDED, "b"}
    found = step(mark, later, there)
    assert (found.names, found.also) == (set(), {NOW - 5})
    assert advance(later, there, HOUR) == later


def test_a_late_commit_that_was_consolidated_with_its_instant_is_read_where_it_was_written():
    mark = advance(Mark(), sight((NOW - 9, "a", 1)), HOUR)
    there = sight(superseded=[(NOW - 9, "a"), (NOW - 9, "late")], folded={NOW - 9: 2})

    found = step(mark, advance(mark, there, HOUR), there)
    assert (found.names, found.also) == ({"late"}, set())


def test_a_step_is_the_same_after_its_commits_were_consolidated_and_removed():
    there = sight((NOW - 9, "a", 1), (NOW - 5, "b", 1))
    mark = advance(Mark(), there, HOUR)

    assert step(Mark(), mark, there).names == {"a", "b"}
    replaced = step(Mark(), mark, sight(superseded=[(NOW - 9, "a"), (NOW - 5, "b")]))
    assert (replaced.names, replaced.also) == ({"a", "b"}, set())
    removed = step(Mark(), mark, sight())
    assert (removed.names, removed.also) == (set(), {NOW - 9, NOW - 5})


def test_cells_that_can_no_longer_be_told_apart_are_an_error_and_not_a_guess():
    start, end = Mark(0, {5: frozenset({"a"})}), Mark(0, {5: frozenset({"a", "b"})})

    with pytest.raises(ConflictError, match="startAt=5"):
        step(start, end, sight())


def test_a_mark_survives_json_and_a_foreign_one_is_refused():
    mark = advance(Mark(), sight((100, "a", 1), (NOW, short_name("b"), 1), (NOW, "c", 1)), HOUR)

    assert Mark.of_json(json.loads(json.dumps(mark.to_json()))) == mark
    with pytest.raises(InvalidRequestError, match="another source"):
        Mark.of_json({"offset": 7})
