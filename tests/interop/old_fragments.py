"""Fragments as releases before 2.1 wrote them, formats 1 to 6, made by hand: nobody writes them any more.

    1, 2    __uuid_t1_t2/   one generic tile of metadata; files by attribute name; all coordinates in one file
    3, 4    __t1_t2_uuid/   sections and a footer without a length
    5, 6    __t1_t2_uuid_v/ a file per dimension, a commit <name>.ok at the root

libtiledb still reads them, so it can say whether they are right.
"""

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from terrazzo.engine.columns import Column
from terrazzo.engine.dense import to_tiles
from terrazzo.engine.encode import tile_bounds
from terrazzo.engine.order import argsort, sort_keys
from terrazzo.format.attribute import Attr
from terrazzo.format.bounds import BoundsTable, pack_bound
from terrazzo.format.datatypes import Datatype
from terrazzo.format.domain import Dim
from terrazzo.format.fragment import dense_tile_cells
from terrazzo.format.generic_tile import pack_generic_tile
from terrazzo.format.rtree import RTree
from terrazzo.format.schema import Schema
from terrazzo.format.tile import TileCodec
from terrazzo.format.wire import Writer

UUID = "0123456789abcdef0123456789abcdef"


class _File:
    """A data file under way."""

    def __init__(self) -> None:
        self.tiles: list[bytes] = []

    @property
    def offsets(self) -> list[int]:
        return [int(end) for end in np.cumsum([0, *map(len, self.tiles)])[:-1]]

    @property
    def size(self) -> int:
        return sum(map(len, self.tiles))


def create_old(root: Path, schema: Schema) -> None:
    root.mkdir(parents=True)
    (root / "__array_schema.tdb").write_bytes(pack_generic_tile(schema.pack()))


def write_old(
    root: Path,
    schema: Schema,
    columns: Mapping[str, Column],
    time: int,
    box: tuple[tuple[int, int], ...] | None = None,
) -> Path:
    """A fragment in the format of the schema; dense if there is a box."""
    version = schema.version
    if box is None:
        index = argsort(sort_keys([columns[dim.name] for dim in schema.dims], schema))
        cells = dict(columns) if index is None else {name: c.take(index) for name, c in columns.items()}
        step = schema.capacity
    else:
        cells, _ = to_tiles(columns, box, schema)
        step = dense_tile_cells(schema)
    n = len(next(iter(cells.values())))
    starts = np.arange(0, n, step)
    name = (
        f"__{UUID}_{time}_{time}"
        if version < 3
        else f"__{time}_{time}_{UUID}{f'_{version}' if version > 4 else ''}"
    )
    folder = root / name
    folder.mkdir()

    fixed: dict[str, _File] = {}
    var: dict[str, _File] = {}
    for each in (*schema.attrs, *(schema.dims if version >= 5 and box is None else ())):
        fixed[each.name], var[each.name] = _files(schema, each, cells[each.name], starts)
    if version < 5 and box is None:
        fixed["__coords"], var["__coords"] = _coords(schema, cells, starts), _File()
    for file_name, file in fixed.items():
        (folder / f"{file_name}.tdb").write_bytes(b"".join(file.tiles))
        if var[file_name].tiles:
            (folder / f"{file_name}_var.tdb").write_bytes(b"".join(var[file_name].tiles))

    attrs = [attr.name for attr in schema.attrs]
    # The slots: before format 5 only attributes have var files, and coordinates come last.
    slots = [*attrs, "__coords"] if version < 5 else [*attrs, "", *(dim.name for dim in schema.dims)]
    var_slots = attrs if version < 5 else slots
    lists = (
        [fixed[slot].offsets if slot in fixed else [] for slot in slots],
        [var[slot].offsets if slot in var else [] for slot in var_slots],
        [_var_sizes(cells[slot], starts) if slot in cells else [] for slot in var_slots],
    )
    sizes = (
        [fixed[slot].size if slot in fixed else 0 for slot in slots],
        [var[slot].size if slot in var else 0 for slot in var_slots],
    )
    boxes = (
        None
        if box is not None
        else BoundsTable([tile_bounds(cells[dim.name], starts) for dim in schema.dims])
    )
    domain = box if boxes is None else boxes.whole()
    last = step if boxes is None else n - int(starts[-1])
    pack = _first if version < 3 else _with_footer
    (folder / "__fragment_metadata.tdb").write_bytes(pack(schema, domain, boxes, lists, sizes, last))
    if version >= 5:
        (root / f"{name}.ok").touch()
    return folder


def _files(schema: Schema, field: Attr | Dim, column: Column, starts: np.ndarray) -> tuple[_File, _File]:
    fixed, var = _File(), _File()
    size = field.datatype.size
    codec = TileCodec(
        schema.filters_of(field), field.datatype, size if field.is_var else size * field.cell_val_num,
        schema.version, var=field.is_var,
    )  # fmt: skip
    offsets = TileCodec(schema.offsets_filters, Datatype.UINT64, 8, schema.version)
    for start, end in zip(starts, [*starts[1:], len(column)], strict=True):
        part = column.slice(int(start), int(end))
        if part.offsets is None:
            fixed.tiles.append(codec.encode(np.ascontiguousarray(part.values)))
        else:
            edges = part.offsets[:-1].astype(np.uint64)
            fixed.tiles.append(offsets.encode(edges))
            var.tiles.append(codec.encode(np.ascontiguousarray(part.values), edges))
    return fixed, var


def _var_sizes(column: Column, starts: np.ndarray) -> list[int]:
    if column.offsets is None:
        return []
    return np.diff(column.offsets[[*starts, len(column)]]).tolist()


def _coords(schema: Schema, cells: Mapping[str, Column], starts: np.ndarray) -> _File:
    """All dimensions of a tile: x,y,x,y… in format 1 without a compressor, else x,x,…,y,y,…, a chunk each."""
    file, n = _File(), len(cells[schema.dims[0].name])
    datatype = schema.dims[0].datatype
    codec = TileCodec(schema.coords_filters, datatype, datatype.size, schema.version)
    for start, end in zip(starts, [*starts[1:], n], strict=True):
        parts = [cells[dim.name].values[start:end] for dim in schema.dims]
        if schema.version == 1 and not schema.coords_filters.filters:
            file.tiles.append(codec.encode(np.ascontiguousarray(np.stack(parts, axis=1))))
        else:
            chunks = [codec.encode(np.ascontiguousarray(part)) for part in parts]
            count = sum(struct.unpack("<Q", chunk[:8])[0] for chunk in chunks)
            file.tiles.append(struct.pack("<Q", count) + b"".join(chunk[8:] for chunk in chunks))
    return file


def _put_lists(out: Writer, lists: Iterable[list[list[int]]]) -> None:
    for group in lists:
        for values in group:
            out.u64(len(values))
            out.u64s(values)


def _first(
    schema: Schema, domain: tuple, boxes: BoundsTable | None, lists: tuple, sizes: tuple, last: int
) -> bytes:
    out = Writer()
    out.u32(schema.version)
    out.u64(sum(2 * dim.datatype.size for dim in schema.dims))
    for bound, dim in zip(domain, schema.dims, strict=True):
        pack_bound(out, bound, dim)
    for _ in range(2):  # boxes, then first and last coordinates, which nobody reads
        out.u64(0 if boxes is None else len(boxes))
        if boxes is not None:
            boxes.pack(out, schema.dims)
    _put_lists(out, lists)
    out.u64(last)
    for group in sizes:
        out.u64s(group)
    return pack_generic_tile(bytes(out))


def _with_footer(
    schema: Schema, domain: tuple, boxes: BoundsTable | None, lists: tuple, sizes: tuple, last: int
) -> bytes:
    tiles: list[bytes] = []

    def put(body: bytes) -> int:
        tiles.append(pack_generic_tile(body))
        return sum(map(len, tiles[:-1]))

    tree = struct.pack("<II", 10, 0) if boxes is None else RTree(boxes).pack(schema.dims)
    if schema.version < 5:
        kind = struct.pack("<IIB", len(schema.dims), 10, schema.dims[0].datatype)
        tree = kind + tree[4:]
    places = [
        [put(tree)],
        *(
            [put(struct.pack(f"<{len(values) + 1}Q", len(values), *values)) for values in group]
            for group in lists
        ),
    ]
    out = Writer()
    out.u32(schema.version)
    out.u8(boxes is None)
    out.u8(0)
    for bound, dim in zip(domain, schema.dims, strict=True):
        pack_bound(out, bound, dim)
    out.u64(0 if boxes is None else len(boxes))
    out.u64(last)
    for group in (*sizes, *places):
        out.u64s(group)
    footer = bytes(out)
    if any(dim.is_var for dim in schema.dims):
        footer += struct.pack("<Q", len(footer))
    return b"".join((*tiles, footer))
