"""Joining ranges, and cutting them apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terrazzo.errors import InvalidRequestError
from terrazzo.storage.ranges import Span, coalesce, cut


def test_ranges_closer_than_the_gap_are_one_span() -> None:
    ranges = [(30, 5), (0, 10), (12, 3), (100, 1)]

    assert coalesce(ranges, gap=2, largest=1000) == [
        Span(0, 15, (1, 2)),
        Span(30, 35, (0,)),
        Span(100, 101, (3,)),
    ]
    assert coalesce(ranges, gap=65, largest=1000) == [Span(0, 101, (1, 2, 0, 3))]


def test_a_span_does_not_grow_beyond_the_largest_but_a_range_is_never_split() -> None:
    ranges = [(0, 10), (10, 10), (20, 100), (120, 1)]

    assert [(s.start, s.stop) for s in coalesce(ranges, gap=0, largest=20)] == [
        (0, 20),
        (20, 120),
        (120, 121),
    ]


def test_views_share_the_memory_of_their_span() -> None:
    content = bytearray(b"abcdef")
    views = cut([(0, 2), (3, 3)], [Span(0, 6, (0, 1))], [content])
    content[0:1] = b"X"

    assert [bytes(view) for view in views] == [b"Xb", b"def"]


@pytest.mark.parametrize("ranges", [[(-1, 1)], [(0, -1)], [(0, 1), (5, -3)]])
def test_negative_ranges_are_refused(ranges) -> None:
    with pytest.raises(InvalidRequestError):
        coalesce(ranges, gap=0, largest=10)


@given(
    ranges=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 80)), max_size=30),
    gap=st.integers(-1, 50),
    largest=st.integers(1, 400),
)
def test_joined_and_cut_apart_every_range_has_its_own_bytes(ranges, gap, largest) -> None:
    content = bytes(i % 251 for i in range(400))
    spans = coalesce(ranges, gap=gap, largest=largest)

    found = cut(ranges, spans, [content[span.start : span.stop] for span in spans])

    assert [bytes(part) for part in found] == [content[start : start + length] for start, length in ranges]
    assert sorted(m for s in spans for m in s.members) == [
        i for i, (_, length) in enumerate(ranges) if length
    ]
    assert all(len(s.members) == 1 or s.size <= largest for s in spans)
