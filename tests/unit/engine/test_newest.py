"""Versions of one cell in one fragment, which records when each was written."""

import numpy as np
import pyarrow as pa
import pytest

import terrazzo as tz
from terrazzo.engine.columns import Column, of_binary
from terrazzo.engine.newest import Cells, newest
from terrazzo.engine.runner import _BLOCK

N = 2 * _BLOCK + 5


def columns(kind, equal_to_previous=()):
    places = np.arange(N)
    for row in equal_to_previous:
        places[row:] -= 1
    if kind == "ascii":
        return of_binary(pa.array([b"%06d" % place for place in places], pa.large_binary()))
    return Column(places.astype(kind))


def schema(kind):
    domain = None if kind == "ascii" else (0, 1e6) if kind == "float64" else (0, 10**6)
    return tz.Schema([tz.Dim("x", kind, domain)], [tz.Attr("v", "int64")])


@pytest.mark.parametrize("kind", ["int64", "float64", "ascii"])
@pytest.mark.parametrize("row", [None, 1, _BLOCK - 1, _BLOCK, _BLOCK + 1, N - 1])
def test_the_later_of_two_neighbours_hides_the_other_wherever_they_lie(kind, row):
    times = np.full(N, 5, np.uint64)
    if row is not None:
        times[row] = 9
    cells = Cells({"x": columns(kind, [] if row is None else [row]), "v": Column(np.arange(N))}, times, None)
    (found,) = newest([cells], schema(kind))
    hidden = [] if row is None else [row - 1]
    assert found["v"].values.tolist() == np.delete(np.arange(N), hidden).tolist()


def test_what_did_not_pass_still_hides_an_older_version():
    times, passed = np.full(N, 5, np.uint64), np.ones(N, bool)
    times[_BLOCK], passed[_BLOCK] = 9, False
    cells = Cells({"x": columns("int64", [_BLOCK]), "v": Column(np.arange(N))}, times, passed)
    (found,) = newest([cells], schema("int64"))
    assert found["v"].values.tolist() == np.delete(np.arange(N), [_BLOCK - 1, _BLOCK]).tolist()


def test_two_coordinates_that_are_no_numbers_are_one():
    """libtiledb takes NaN for a coordinate."""
    x = Column(np.array([1.0, 2.0, np.nan, np.nan]))
    cells = Cells({"x": x, "v": Column(np.arange(4))}, np.array([5, 5, 9, 5], np.uint64), None)
    (found,) = newest([cells], schema("float64"))
    assert found["v"].values.tolist() == [0, 1, 2]
