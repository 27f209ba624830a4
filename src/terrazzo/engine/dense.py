"""Dense arrays: boxes of cells out of tiles, later fragments over earlier ones, and tiles out of boxes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrazzo.engine.columns import Column, Mask, concat
from terrazzo.engine.fetch import FragmentReader
from terrazzo.engine.region import Region
from terrazzo.engine.runner import run_all
from terrazzo.engine.sparse import absent
from terrazzo.engine.view import View
from terrazzo.errors import InvalidRequestError, UnsupportedFeatureError
from terrazzo.format.attribute import Attr
from terrazzo.format.fragment import dense_tile_cells, tile_grid
from terrazzo.format.orders import Layout
from terrazzo.format.schema import Schema

Box = tuple[tuple[int, int], ...]
"""First and last coordinate per dimension, both included."""


def shape_of(box: Box) -> tuple[int, ...]:
    return tuple(high - low + 1 for low, high in box)


def domain_box(schema: Schema) -> Box:
    """The whole domain, or the current domain where there is one."""
    if schema.current_domain is not None:
        return tuple((int(low), int(high)) for low, high in schema.current_domain)
    return tuple((int(dim.domain[0]), int(dim.domain[1])) for dim in schema.dims if dim.domain is not None)


def check_box(box: Box, schema: Schema) -> Box:
    for (low, high), (first, last), dim in zip(box, domain_box(schema), schema.dims, strict=True):
        if low > high:
            raise InvalidRequestError(f"nothing is selected of {dim.name!r}: {low} is above {high}")
        if low < first or high > last:
            outside = f"{low} to {high} lies" if low != high else f"{low} lies"
            raise InvalidRequestError(f"{dim.name!r} goes from {first} to {last}; {outside} outside")
    return box


def one_box(region: Region, schema: Schema) -> Box:
    """The box that a region is; an error where it is several, none, or reaches beyond the domain."""
    box = []
    for ranges, (first, last), dim in zip(region.ranges, domain_box(schema), schema.dims, strict=True):
        chosen = ((first, last),) if ranges is None else ranges
        if len(chosen) != 1:
            raise InvalidRequestError(
                f"a dense write fills one box: give one range of {dim.name!r}, not {len(chosen)}"
            )
        low, high = chosen[0]
        box.append((first if low is None else int(low), last if high is None else int(high)))
    return check_box(tuple(box), schema)


def placed(columns: Mapping[str, Column], schema: Schema) -> tuple[dict[str, Column], Box]:
    """Cells that come with coordinates, in row-major order, and the box that they fill."""
    coords = [columns[dim.name].values for dim in schema.dims]
    n = len(coords[0])
    if not n:
        raise InvalidRequestError("there are no cells to write")
    box = check_box(tuple((int(each.min()), int(each.max())) for each in coords), schema)
    shape = shape_of(box)
    place = np.zeros(n, np.int64)
    if prod(shape) == n:
        for each, (low, _), size in zip(coords, box, shape, strict=True):
            place = place * size + (each - each.dtype.type(low)).astype(np.int64)
    source = np.full(n, -1, np.int64)
    source[place] = np.arange(n)
    if prod(shape) != n or (source < 0).any():
        raise InvalidRequestError(
            f"{n} cells do not fill the box of {' × '.join(map(str, shape))} that they span; a dense array is "
            f"written box by box"
        )
    return {attr.name: columns[attr.name].take(source) for attr in schema.attrs}, box


def meet(one: Box, other: Box) -> Box | None:
    both = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))
    return None if any(low > high for low, high in both) else both


def tile_box(place: Sequence[int], schema: Schema) -> Box:
    """The cells of a space tile; the last one may reach beyond the domain."""
    edges = []
    for index, dim in zip(place, schema.dims, strict=True):
        assert dim.domain is not None
        low = int(dim.domain[0]) + index * dim.extent
        edges.append((low, low + dim.extent - 1))
    return tuple(edges)


def tiles_of(box: Box, schema: Schema) -> Iterator[tuple[int, ...]]:
    """Space tiles that a box touches, in the tile order of the schema."""
    grid = tile_grid(box, schema)
    if schema.tile_order is Layout.COL_MAJOR:
        for place in product(*(range(a, b + 1) for a, b in reversed(grid))):
            yield place[::-1]
    else:
        yield from product(*(range(a, b + 1) for a, b in grid))


def tile_number(place: Sequence[int], grid: Sequence[tuple[int, int]], schema: Schema) -> int:
    """Which tile of a fragment, whose tiles fill `grid`, a space tile is."""
    pairs = list(zip(place, grid, strict=True))
    if schema.tile_order is Layout.COL_MAJOR:
        pairs.reverse()
    number = 0
    for index, (first, last) in pairs:
        number = number * (last - first + 1) + index - first
    return number


def _slices(part: Box, within: Box) -> tuple[slice, ...]:
    return tuple(slice(a - c, b - c + 1) for (a, b), (c, _) in zip(part, within, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """A fragment as a source of tiles."""

    reader: FragmentReader
    box: Box
    grid: tuple[tuple[int, int], ...]
    missing: frozenset[str]


def _layers(view: View, box: Box) -> list[_Layer]:
    layers = []
    for fragment in view.snapshot.fragments:
        if not fragment.footer.dense:
            raise UnsupportedFeatureError(
                f"{fragment.key} holds sparse cells in a dense array, as releases before 2.0 wrote them; "
                f"consolidate the array with one of those first"
            )
        domain: Any = fragment.footer.domain
        if domain is not None and meet(domain, box) is not None:
            reader = view.reader(fragment)
            layers.append(_Layer(reader, domain, tile_grid(domain, reader.schema), view.missing(fragment)))
    return layers


def _visible(layers: list[_Layer], part: Box) -> list[_Layer]:
    """Layers that show in a box, oldest first: none below one that covers all of it."""
    shown: list[_Layer] = []
    for layer in reversed(layers):
        common = meet(layer.box, part)
        if common is not None:
            shown.append(layer)
            if common == part:
                break
    return shown[::-1]


def read_box(view: View, box: Box, names: Sequence[str]) -> dict[str, Column]:
    """Attributes over a box, cells in row-major order; what nobody wrote reads as the fill value."""
    layers = _layers(view, box)
    columns: dict[str, Column] = {}
    for name in names:
        attr = view.schema.attr(name)
        columns[name] = (
            _read_var(view, layers, box, attr) if attr.is_var else _read_fixed(view, layers, box, attr)
        )
    return columns


def _read_fixed(view: View, layers: list[_Layer], box: Box, attr: Attr) -> Column:
    schema, shape = view.schema, shape_of(box)
    cell = () if attr.cell_val_num == 1 else (attr.cell_val_num,)
    values = np.empty((*shape, *cell), attr.datatype.dtype)
    validity = np.empty(shape, bool) if attr.nullable else None
    fill = absent(attr, 1)

    def one(place: tuple[int, ...]) -> None:
        whole = tile_box(place, schema)
        part = meet(whole, box)
        assert part is not None
        target = _slices(part, box)
        shown = _visible(layers, part)
        if not shown or meet(shown[0].box, part) != part:
            values[target] = fill.values[0]
            if validity is not None and fill.validity is not None:
                validity[target] = fill.validity[0]
        for layer in shown:
            common = meet(layer.box, part)
            assert common is not None
            into, out_of = _slices(common, box), _slices(common, whole)
            if attr.name in layer.missing:
                column = fill
                values[into] = fill.values[0]
            else:
                tiles = np.array([tile_number(place, layer.grid, schema)])
                column = layer.reader.read_here((attr.name,), tiles)[attr.name]
                values[into] = _unfolded(column.values, schema, cell)[out_of]
            if validity is not None and column.validity is not None:
                validity[into] = (
                    column.validity[0] if column is fill else _unfolded(column.validity, schema, ())[out_of]
                )

    run_all([lambda place=place: one(place) for place in tiles_of(box, schema)])  # type: ignore[misc]
    return Column(values.reshape(-1, *cell), None, None if validity is None else validity.reshape(-1))


def _unfolded(cells: NDArray[Any], schema: Schema, cell: tuple[int, ...]) -> NDArray[Any]:
    """The cells of a whole tile as a box, whichever order they are stored in."""
    extents = tuple(dim.extent for dim in schema.dims)
    if schema.cell_order is Layout.COL_MAJOR:
        turned = cells.reshape(*extents[::-1], *cell)
        axes = tuple(range(len(extents)))[::-1]
        return turned.transpose(*axes, *range(len(extents), len(extents) + len(cell)))
    return cells.reshape(*extents, *cell)


def _read_var(view: View, layers: list[_Layer], box: Box, attr: Attr) -> Column:
    """Cells of any length cannot be put in place: gather pieces first, then pick the last one for each cell."""
    schema, n_cells = view.schema, prod(shape_of(box))
    flat = np.arange(n_cells).reshape(shape_of(box))
    wanted: list[tuple[_Layer, Box, tuple[int, ...]]] = []
    for place in tiles_of(box, schema):
        part = meet(tile_box(place, schema), box)
        assert part is not None
        wanted += [(layer, part, place) for layer in _visible(layers, part)]
    pieces: list[Column] = [absent(attr, 1)] * len(wanted)

    def one(index: int) -> None:
        layer, _, place = wanted[index]
        if attr.name not in layer.missing:
            tiles = np.array([tile_number(place, layer.grid, schema)])
            pieces[index] = layer.reader.read_here((attr.name,), tiles)[attr.name]

    run_all([lambda index=index: one(index) for index in range(len(wanted))])  # type: ignore[misc]
    source = np.zeros(n_cells, np.int64)  # cell 0 of all pieces together is the fill value
    start = 1
    tile_cells = np.arange(dense_tile_cells(schema))
    for (layer, part, place), piece in zip(wanted, pieces, strict=True):
        common = meet(layer.box, part)
        assert common is not None
        here = flat[_slices(common, box)]
        if attr.name in layer.missing:
            source[here] = 0
        else:
            source[here] = start + _unfolded(tile_cells, schema, ())[_slices(common, tile_box(place, schema))]
        start += len(piece)
    return concat([absent(attr, 1), *pieces]).take(source)


def coordinates(box: Box, schema: Schema, names: Sequence[str]) -> dict[str, Column]:
    """Coordinates of every cell of a box, in row-major order."""
    shape, found = shape_of(box), {}
    for axis, (dim, (low, high)) in enumerate(zip(schema.dims, box, strict=True)):
        if dim.name in names:
            # Counted in 64 bits that wrap: arange itself turns numbers beyond int64 into floats.
            count = np.arange(high - low + 1, dtype=np.uint64) + np.uint64(low % (1 << 64))
            line = (count if dim.datatype.is_unsigned else count.view(np.int64)).astype(dim.datatype.dtype)
            spread = line.reshape([-1 if each == axis else 1 for each in range(len(shape))])
            found[dim.name] = Column(np.ascontiguousarray(np.broadcast_to(spread, shape)).reshape(-1))
    return found


# -- writing -------------------------------------------------------------------------------------------


def to_tiles(
    columns: Mapping[str, Column], box: Box, schema: Schema
) -> tuple[dict[str, Column], Mask | None]:
    """Cells of a box in row-major order to whole tiles, in tile and cell order; and which cells were written,
    None for all. Cells beside the box are zero, and of one zero element where the length varies."""
    places = list(tiles_of(box, schema))
    whole = all(tile_box(place, schema) == meet(tile_box(place, schema), box) for place in places)
    written = None if whole else _folded(np.ones(prod(shape_of(box)), bool), box, places, schema)
    tiled: dict[str, Column] = {}
    for name, column in columns.items():
        if column.offsets is not None:
            tiled[name] = _folded_var(column, schema.attr(name), box, places, schema)
        elif whole:
            validity = None if column.validity is None else _folded(column.validity, box, places, schema)
            tiled[name] = Column(_Tiles(column.values, box, places, schema), None, validity)  # type: ignore[arg-type]
        else:
            values = _folded(column.values, box, places, schema)
            validity = None if column.validity is None else _folded(column.validity, box, places, schema)
            tiled[name] = Column(values, None, validity)
    return tiled, written


def _folded(cells: NDArray[Any], box: Box, places: list[tuple[int, ...]], schema: Schema) -> NDArray[Any]:
    """Cells of fixed size, tile after tile; zero beside the box."""
    shape, cell = shape_of(box), cells.shape[1:]
    block = cells.reshape(*shape, *cell)
    tiles = np.zeros((len(places), dense_tile_cells(schema), *cell), cells.dtype)

    def one(row: int) -> None:
        whole = tile_box(places[row], schema)
        part = meet(whole, box)
        assert part is not None
        _unfolded(tiles[row], schema, cell)[_slices(part, whole)] = block[_slices(part, box)]

    run_all([lambda row=row: one(row) for row in range(len(places))])  # type: ignore[misc]
    return tiles.reshape(-1, *cell)


class _Tiles:
    """Cells of whole tiles, folded when they are asked for: the array in between would cost more than the work."""

    def __init__(self, cells: NDArray[Any], box: Box, places: list[tuple[int, ...]], schema: Schema) -> None:
        self.box, self.places, self.schema = box, places, schema
        self.cell = cells.shape[1:]
        self.block = cells.reshape(*shape_of(box), *self.cell)
        self.tile_cells = dense_tile_cells(schema)
        self.shape = (len(places) * self.tile_cells, *self.cell)
        self.dtype, self.ndim, self.nbytes = cells.dtype, cells.ndim, cells.nbytes

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, wanted: slice) -> NDArray[Any]:
        """Whole tiles, from the first cell of one to the last of another."""
        first, last = wanted.start // self.tile_cells, wanted.stop // self.tile_cells
        out = np.empty((last - first, self.tile_cells, *self.cell), self.dtype)
        for row, place in enumerate(self.places[first:last]):
            _unfolded(out[row], self.schema, self.cell)[...] = self.block[
                _slices(tile_box(place, self.schema), self.box)
            ]
        return out.reshape(-1, *self.cell)


def _folded_var(
    column: Column, attr: Attr, box: Box, places: list[tuple[int, ...]], schema: Schema
) -> Column:
    n = len(column)
    source = _folded(np.arange(1, n + 1), box, places, schema) - 1  # -1 beside the box
    validity = None if column.validity is None else np.zeros(1, bool)
    padding = Column(np.zeros(attr.datatype.size, np.uint8), np.array([0, attr.datatype.size]), validity)
    return concat([column, padding]).take(np.where(source < 0, n, source))
