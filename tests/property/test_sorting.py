"""Orders as numbers, beside the plain rules that they stand for."""

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import terrazzo as tz
from terrazzo.engine import texts
from terrazzo.engine.columns import Column, of_binary
from terrazzo.engine.hilbert import by_plane, by_table, positions
from terrazzo.engine.order import equals_previous, sets_of_runs, sort_cells, sort_keys
from terrazzo.engine.texts import text_numbers, word

_HIGHEST = [0, 1, 5, 1000, (1 << 32) - 1, (1 << 64) - 1]


@st.composite
def sets_of_keys(draw):
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    n = draw(st.integers(0, 300))
    highest = draw(st.lists(st.sampled_from(_HIGHEST), min_size=1, max_size=3))
    keys = [rng.integers(0, high, n, dtype=np.uint64, endpoint=True) for high in highest]
    if draw(st.booleans()):  # equal cells
        keys = [np.repeat(key[: n // 3 + 1], 3)[:n] for key in keys]
    if draw(st.booleans()):  # sorted runs
        for rows in np.array_split(np.arange(n), draw(st.integers(1, 6))):
            order = np.lexsort([key[rows] for key in keys[::-1]])
            for key in keys:
                key[rows] = key[rows][order]
    return keys


@settings(deadline=None)
@given(sets_of_keys())
def test_cells_are_sorted_as_by_one_key_after_the_other(keys):
    index, same = sort_cells(keys)
    plain = np.lexsort(keys[::-1])
    assert_array_equal(np.arange(len(plain)) if index is None else index, plain)
    assert_array_equal(same, equals_previous(keys, plain))


def test_sets_cut_by_the_first_of_several_keys_hold_every_row_once_and_no_cell_twice(monkeypatch):
    monkeypatch.setattr("terrazzo.engine.order._WORTH_CUTTING", 10)
    rng = np.random.default_rng(3)
    runs = [np.sort(rng.integers(0, 50, 400).astype(np.uint64)) for _ in range(3)]
    keys = [np.concatenate(runs), rng.integers(0, 5, 1200).astype(np.uint64)]
    sets = sets_of_runs(keys, [400, 800, 1200], largest=100)
    rows = [np.concatenate([np.arange(place.start, place.stop) for place in places]) for places in sets]
    assert len(sets) > 1
    assert_array_equal(np.sort(np.concatenate(rows)), np.arange(1200))
    found = [set(zip(keys[0][some].tolist(), keys[1][some].tolist(), strict=True)) for some in rows]
    assert sum(map(len, found)) == len(set.union(*found))


@pytest.mark.parametrize("n_dims", [1, 2, 3, 4])
def test_the_table_walks_the_curve_as_bit_after_bit_does(n_dims):
    bits = 63 // n_dims
    axes = np.random.default_rng(n_dims).integers(0, 1 << bits, (n_dims, 3000), dtype=np.uint64)
    axes[:, :2] = [0, (1 << bits) - 1]
    axes[0, 2], axes[-1, 3] = 0, (1 << bits) - 1
    assert_array_equal(by_table(list(axes), bits), by_plane(list(axes), bits))


@pytest.mark.parametrize(("n_dims", "bits"), [(2, 1), (2, 2), (2, 5), (3, 3), (4, 2), (5, 2), (6, 2)])
def test_a_hilbert_curve_visits_every_place_once_and_goes_to_a_neighbour(n_dims, bits):
    axes = [axis.reshape(-1).astype(np.uint64) for axis in np.indices((1 << bits,) * n_dims)]
    places = positions(axes, bits)
    assert_array_equal(np.sort(places), np.arange(1 << n_dims * bits))
    path = np.array(axes).astype(np.int64)[:, np.argsort(places)]
    assert (np.abs(np.diff(path)).sum(axis=0) == 1).all()


def _column(items):
    return of_binary(pa.array(items, pa.large_binary()))


_TEXTS = st.lists(
    st.binary(max_size=40) | st.sampled_from([b"", b"\0", b"a", b"a\0", b"chr1", b"chr10", b"\xff" * 9])
)


@pytest.mark.parametrize("alike", [False, True])
@settings(deadline=None)
@given(items=_TEXTS)
def test_numbers_of_texts_sort_as_their_bytes_do(alike, items):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "_mostly_alike", lambda _column: alike)
        numbers = text_numbers(_column(items))
    found = list(zip(*(each.tolist() for each in numbers), strict=True))
    assert sorted(range(len(items)), key=found.__getitem__) == sorted(
        range(len(items)), key=items.__getitem__
    )
    assert len(set(found)) == len(set(items))


def test_texts_that_repeat_are_ranked_and_others_taken_by_their_bytes():
    names = [b"chr%d" % (i % 20) for i in range(1000)]
    (ranks,) = text_numbers(_column(names))
    assert ranks.max() == 19
    (numbers,) = text_numbers(_column([b"%05d" % i for i in range(1000)]))
    assert numbers[7] == int.from_bytes(b"00007", "big")


@settings(deadline=None)
@given(_TEXTS, st.sampled_from([0, 8, 16]))
def test_a_word_of_a_text(items, place):
    wanted = [int.from_bytes(item[place : place + 8].ljust(8, b"\0"), "big") for item in items]
    assert word(_column(items), place).tolist() == wanted


_WORDS = st.sampled_from([b"", b"k", b"x", b"x\0", b"a" * 8, b"\xff" * 8, b"a" * 8 + b"\xff" * 8, b"b" * 40])


@settings(deadline=None)
@given(
    st.lists(st.tuples(_WORDS, st.integers(0, 9), _WORDS), min_size=1, max_size=30),
    st.sampled_from(["row-major", "col-major"]),
)
def test_keys_of_texts_and_numbers_sort_as_tuples_do(cells, order):
    schema = tz.Schema(
        [tz.Dim("a", "ascii"), tz.Dim("x", "int64", (0, 9)), tz.Dim("b", "ascii")], [tz.Attr("v", "int8")]
    )
    first, number, last = zip(*cells, strict=True)
    keys = sort_keys([_column(first), Column(np.array(number)), _column(last)], schema, order)
    found = list(zip(*(key.tolist() for key in keys), strict=True))
    expected = [cell if order == "row-major" else cell[::-1] for cell in cells]
    for one, two in zip(found, expected, strict=True):
        assert [one < other for other in found] == [two < other for other in expected]
        assert [one == other for other in found] == [two == other for other in expected]


@pytest.mark.parametrize("n_dims", [1, 2])
def test_sorting_cells_of_several_versions_holds_little_besides_their_keys(n_dims):
    n = 1 << 16
    rng = np.random.default_rng(n_dims)
    schema = tz.Schema([tz.Dim(f"d{j}", "ascii") for j in range(n_dims)], [tz.Attr("v", "int8")])
    coords = []
    for _ in range(n_dims):
        texts_ = rng.integers(97, 123, (n, 32), dtype=np.uint8)
        texts_[n // 2 :] = texts_[: n // 2]  # every cell is there twice
        coords.append(Column(texts_.reshape(-1), np.arange(n + 1) * 32))
    keys = sort_keys(coords, schema)
    tracemalloc.start()
    _, same = sort_cells(keys)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.count_nonzero(same) == n // 2
    assert peak < 96 * n
