"""One key per cell sorts cells as their tiles and coordinates do, whatever the numbers."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import terrazzo as tz
from terrazzo.engine.columns import Column
from terrazzo.engine.grid import grid_key
from terrazzo.engine.order import sort_keys_of_parts


def plain(coords, schema, order):
    """The key as a tuple: tile per dimension, then coordinate per dimension."""
    tiles = [(at - int(dim.domain[0])) // int(dim.tile) for at, dim in zip(coords, schema.dims, strict=True)]
    turned = schema.cell_order.name == "COL_MAJOR" if order == "global" else order == "col-major"
    cells = coords[::-1] if turned else coords
    if order != "global":
        return cells
    return (tiles[::-1] if schema.tile_order.name == "COL_MAJOR" else tiles) + cells


@st.composite
def grids(draw):
    dims = []
    for j in range(draw(st.integers(1, 3))):
        kind = np.dtype(draw(st.sampled_from(["int8", "uint8", "int32", "int64", "uint64"])))
        info = np.iinfo(kind)
        low = draw(st.sampled_from([info.min, max(info.min, -7), 0, info.max - 90]))
        high = min(low + draw(st.sampled_from([80, 10_000, 2**62])), info.max - 20)
        low = min(low, high)
        extent = draw(st.integers(1, min(20, high - low + 1)))
        dims.append(tz.Dim(f"d{j}", kind.name, (low, high), extent))
    orders = st.sampled_from(["row-major", "col-major"])
    return tz.Schema(dims, [tz.Attr("v", "int8")], tile_order=draw(orders), cell_order=draw(orders))


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_keys_sort_as_tuples_do(data):
    schema = data.draw(grids())
    order = data.draw(st.sampled_from(["global", "row-major", "col-major"]))
    bounds = [tuple(map(int, dim.domain)) for dim in schema.dims]
    near = [st.integers(low, min(low + 60, high)) | st.integers(low, high) for low, high in bounds]
    cells = data.draw(st.lists(st.tuples(*near), min_size=1, max_size=60))
    edges = sorted({0, len(cells), *data.draw(st.lists(st.integers(0, len(cells)), max_size=12))})
    parts = [
        [
            Column(np.array([cell[j] for cell in cells[a:b]], dim.datatype.dtype))
            for j, dim in enumerate(schema.dims)
        ]
        for a, b in pairwise(edges)
    ]

    keys = sort_keys_of_parts(parts, schema, order)
    found = list(zip(*(key.tolist() for key in keys), strict=True))
    expected = [plain(list(cell), schema, order) for cell in cells]

    for i in range(len(cells)):
        for k in range(i):
            assert (found[i] < found[k]) == (expected[i] < expected[k])
            assert (found[i] == found[k]) == (cells[i] == cells[k])
    assert grid_key(parts, schema, order) is None or len(keys) == 1
