"""Orders of cells as sortable integers.

Coordinates become components, most significant first: in global order the space tile per dimension, then the
coordinate per dimension, which for a text is one number or several. Components are packed into as few unsigned 64-bit
keys as they need, measured on the cells at hand and not on the domain: mostly that is one.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from terrazzo.engine.columns import Column, Index, concat
from terrazzo.engine.grid import grid_key, unsigned
from terrazzo.engine.hilbert import hilbert_values
from terrazzo.engine.runner import cpu_count
from terrazzo.engine.texts import text_numbers
from terrazzo.format.domain import Dim
from terrazzo.format.orders import Layout
from terrazzo.format.schema import Schema

Keys = list[NDArray[np.uint64]]


_FEW_RUNS = 4  # sorting anew is faster than merging more
_WORTH_CUTTING = 1 << 20
_SAMPLE = 1 << 14
_IN_CACHE = 1 << 18  # keys that are sorted without leaving it
_STRETCH = 1 << 10  # rows of one run in a set, at least: fewer are not worth their calls


class Component(NamedTuple):
    values: NDArray[np.uint64]  # from 0
    bound: int  # they are all below this


def sort_keys(coords: Sequence[Column], schema: Schema, order: str = "global") -> Keys:
    """Keys whose order, first key first, is that of the cells. `order`: global, row-major or col-major."""
    return sort_keys_of_parts([coords], schema, order)


def sort_keys_of_parts(parts: Sequence[Sequence[Column]], schema: Schema, order: str = "global") -> Keys:
    """Keys of cells that lie in several sets of columns, one after the other."""
    hilbert = order == "global" and schema.cell_order is Layout.HILBERT
    if not hilbert:
        key = grid_key(parts, schema, order)
        if key is not None:
            return [key]
    coords = [concat([part[j] for part in parts]) for j in range(len(schema.dims))]
    ranked = [_ranked(column, dim) for column, dim in zip(coords, schema.dims, strict=True)]
    if hilbert:
        return _packed([Component(hilbert_values(coords, schema), 1 << 63), *chain(*ranked)])
    if order != "global":
        return _packed([*chain(*_in_order(ranked, Layout.parse(order)))])
    tiles = [_tile(column, dim) for column, dim in zip(coords, schema.dims, strict=True)]
    present = [tile for tile in _in_order(tiles, schema.tile_order) if tile is not None and tile.bound > 1]
    return _packed([*present, *chain(*_in_order(ranked, schema.cell_order))])


def argsort(keys: Keys) -> Index | None:
    """The stable order of the cells; None where they are in order already."""
    return sort_cells(keys)[0]


def sort_cells(keys: Keys) -> tuple[Index | None, NDArray[np.bool_]]:
    """The stable order of the cells, None where they are in order already; and in that order, which cells have the
    coordinates of the cell before them."""
    n_runs = int(np.count_nonzero(keys[0][1:] < keys[0][:-1])) + 1
    if n_runs == 1 and is_sorted(keys):
        return None, equals_previous(keys, None)
    if n_runs <= _FEW_RUNS and len(keys) == 1:
        # Timsort finds the sorted runs of fragments laid end to end and merges them.
        index = np.argsort(keys[0], kind="stable")
        return index, equals_previous(keys, index)
    return _sort_packed(keys)


def _sort_packed(keys: Keys) -> tuple[Index, NDArray[np.bool_]]:
    """Numbers sort several times as fast as indices: the row goes behind as many bits of the keys as leave room for it.
    Cells that are alike in these, though not in all, are sorted again by the bits that follow."""
    left = [int(key.max()).bit_length() for key in keys]  # of each key, the low bits that were not looked at
    index, same = _sort_by_some_bits(keys, left)
    alike = same
    while any(left) and len(places := _unsettled(keys, left, index, alike)):
        rows, groups = index[places], np.cumsum(~alike[places], dtype=np.uint64)
        order, found = _sort_by_some_bits(keys, left, rows, groups)
        index[places], same[places] = rows[order], found
        alike = np.zeros_like(same)
        alike[places] = found
    return index, same


def _sort_by_some_bits(
    keys: Keys, left: list[int], rows: Index | None = None, groups: NDArray[np.uint64] | None = None
) -> tuple[Index, NDArray[np.bool_]]:
    """The order of some rows by their groups and then by as many bits of their keys as have room, and which of them are
    alike in these; `left` is told."""
    n = len(keys[0]) if rows is None else len(rows)
    for_rows = (n - 1).bit_length()
    room, packed = 64 - for_rows, np.arange(n, dtype=np.uint64)
    if groups is not None:
        room -= int(groups[-1]).bit_length()
        packed |= groups << np.uint64(for_rows + room)
    for place, key in enumerate(keys):
        if taken := min(left[place], room):
            left[place] -= taken
            room -= taken
            bits = key if rows is None else key[rows]
            if left[place]:
                bits = bits >> np.uint64(left[place])
            if rows is not None:  # the bits above were looked at before
                bits &= np.uint64((1 << taken) - 1)
            packed |= bits << np.uint64(for_rows + room)
    packed.sort()
    same = equals_previous([packed >> np.uint64(for_rows)], None)
    packed &= np.uint64((1 << for_rows) - 1)
    return packed.view(np.int64), same


def _unsettled(keys: Keys, left: list[int], index: Index, alike: NDArray[np.bool_]) -> Index:
    """Places of cells that are alike so far, in groups whose members are not the same cell: those are in order."""
    places = np.flatnonzero(alike | np.append(alike[1:], False))
    rows, begins = index[places], ~alike[places]
    differs = np.zeros(len(places), bool)
    for key, bits in zip(keys, left, strict=True):
        if bits:
            some = key[rows]
            differs[1:] |= some[1:] != some[:-1]
    differs &= ~begins
    groups = np.cumsum(begins) - 1
    mixed = np.zeros(int(groups[-1]) + 1 if len(groups) else 0, bool)
    mixed[groups[differs]] = True
    return places.compress(mixed[groups])


def sets_of_runs(keys: Keys, ends: Sequence[int], largest: int | None = None) -> list[list[slice]]:
    """Rows in sets that hold no equal keys between them: sorted runs are cut at the same places of the first key, into a
    few sets per core and none of them large, or of about `largest` rows. Where there is nothing to cut, all rows are one
    set."""
    n = len(keys[0])
    runs = [(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True) if b > a]
    largest = largest or max(_IN_CACHE, _STRETCH * len(runs))
    n_sets = max(2 * cpu_count() if cpu_count() > 1 else 1, n // largest)
    if n < _WORTH_CUTTING or len(runs) < 2 or n_sets == 1:
        return [[slice(0, n)]]
    key = keys[0]
    if any((key[a + 1 : b] < key[a : b - 1]).any() for a, b in runs):
        return [[slice(0, n)]]
    sample = np.sort(key[:: max(n // _SAMPLE, 1)])
    cuts = sample[[len(sample) * j // n_sets for j in range(1, n_sets)]]
    edges = [[a, *(a + np.searchsorted(key[a:b], cuts)).tolist(), b] for a, b in runs]
    return [[slice(edge[j], edge[j + 1]) for edge in edges] for j in range(n_sets)]


def is_sorted(keys: Keys) -> bool:
    if len(keys) == 1:
        return bool((keys[0][1:] >= keys[0][:-1]).all())
    undecided = np.ones(max(len(keys[0]) - 1, 0), bool)
    for key in keys:
        if (undecided & (key[1:] < key[:-1])).any():
            return False
        undecided &= key[1:] == key[:-1]
    return True


def equals_previous(keys: Keys, index: Index | None) -> NDArray[np.bool_]:
    """Per cell in the order of `index`: whether it has the coordinates of the cell before it."""
    same = np.zeros(len(keys[0]), bool)
    for position, key in enumerate(keys):
        ordered = key if index is None else key[index]
        equal = ordered[1:] == ordered[:-1]
        same[1:] = equal if position == 0 else same[1:] & equal
    return same


def _in_order(items: list[Any], order: Layout) -> list[Any]:
    return items[::-1] if order is Layout.COL_MAJOR else items


def _tile(column: Column, dim: Dim) -> Component | None:
    if dim.is_var or dim.tile is None or dim.domain is None or not len(column):
        return None
    low, high = dim.domain
    if dim.datatype.is_float:
        # In the dimension's own precision, as libtiledb computes it: a value on a border starts a tile.
        scalar = column.values.dtype.type
        with np.errstate(invalid="ignore"):  # NaN, which libtiledb takes for a coordinate, is in any tile
            tiles = ((column.values - scalar(low)) / scalar(dim.tile)).astype(np.uint64)
    else:
        if high - low < dim.tile:
            return None
        tiles = unsigned(column.values, int(low)) // np.uint64(int(dim.tile))
    return _from_zero(tiles)


def _ranked(column: Column, dim: Dim) -> list[Component]:
    if column.is_var:
        return [_from_zero(numbers) for numbers in text_numbers(column)]
    values = column.values
    if dim.datatype.is_float:
        return [_from_zero(_float_bits(values))]
    if not len(values):
        return [Component(np.empty(0, np.uint64), 1)]
    low, high = int(values.min()), int(values.max())
    return [Component(unsigned(values, low), high - low + 1)]


def _float_bits(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Unsigned integers in the order of the floats: negative ones are turned round."""
    unsigned = np.dtype(f"<u{values.dtype.itemsize}")
    sign = unsigned.type(1 << (8 * unsigned.itemsize - 1))
    bits = (values + values.dtype.type(0)).view(unsigned)  # adding 0 makes one zero of two
    return np.asarray(np.where(bits & sign, ~bits, bits | sign), np.uint64)


def _from_zero(values: NDArray[np.uint64]) -> Component:
    if not len(values):
        return Component(values, 1)
    low = values.min()
    return Component(values - low, int(values.max() - low) + 1)


def _packed(components: list[Component]) -> Keys:
    """Neighbouring components share a key as long as their bounds multiply to 64 bits at most. What is the same for all
    cells needs none."""
    keys: Keys = []
    room = 0
    for values, bound in components:
        if bound == 1:
            continue
        if keys and room >= bound:
            keys[-1] = keys[-1] * np.uint64(bound) + values
            room //= bound
        else:
            keys.append(values)
            room = (1 << 64) // bound
    return keys or [components[0].values]
