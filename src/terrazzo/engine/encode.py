"""Cells in their final order to the files of a fragment, without putting them anywhere."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrazzo.engine.columns import Column, Mask
from terrazzo.engine.fragments import Fragment
from terrazzo.engine.layout import DELETE_CONDITION, DELETE_TIMESTAMPS, TIMESTAMPS
from terrazzo.engine.runner import run_all
from terrazzo.engine.statistics import Kind, TileStatistics, tile_statistics, with_statistics
from terrazzo.format import keys
from terrazzo.format.attribute import Attr
from terrazzo.format.bounds import Bound, BoundsTable
from terrazzo.format.datatypes import VAR, Datatype
from terrazzo.format.domain import Dim
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.fragment import Footer, Slots
from terrazzo.format.fragment_file import SlotMetadata, pack_metadata_file
from terrazzo.format.keys import TimestampedName
from terrazzo.format.rtree import RTree
from terrazzo.format.schema import Schema
from terrazzo.format.tile import PLACEHOLDER_OFFSETS, TileCodec
from terrazzo.format.versions import WRITTEN

Starts = NDArray[np.int64]
_TILES_PER_JOB_SIZE = 1 << 20
_DELETE_FILES = {
    TIMESTAMPS: keys.TIMESTAMPS_FILE,
    DELETE_TIMESTAMPS: keys.DELETE_TIMESTAMPS_FILE,
    DELETE_CONDITION: keys.DELETE_CONDITIONS_FILE,
}


@dataclass(frozen=True, slots=True)
class EncodedFragment:
    """Everything of a fragment but its commit."""

    fragment: Fragment
    files: Mapping[str, Sequence[bytes]] = field(repr=False)  # by file name; the pieces of each are its tiles
    metadata: bytes = field(repr=False)

    @property
    def size(self) -> int:
        return len(self.metadata) + sum(len(piece) for pieces in self.files.values() for piece in pieces)


@dataclass(slots=True)
class _Encoded:
    """One data file on its way: a piece per tile."""

    name: str
    pieces: list[bytes]

    @property
    def offsets(self) -> NDArray[np.uint64]:
        sizes = np.fromiter(map(len, self.pieces), np.uint64, len(self.pieces))
        return np.cumsum(sizes, dtype=np.uint64) - sizes

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces))


@dataclass(frozen=True, slots=True)
class _Field:
    """A field to be stored: its column and its slot."""

    name: str
    column: Column
    files: keys.DataFiles
    values: TileCodec
    kind: Kind


def encode_sparse(
    name: TimestampedName, schema: Schema, schema_name: str, columns: Mapping[str, Column], *,
    processed: Sequence[str] = (), cipher: Aes256Gcm | None = None,
) -> EncodedFragment:  # fmt: skip
    """Cells in global order, cut into tiles of `capacity`. Columns may include times and delete metadata."""
    n_cells = len(columns[schema.dims[0].name])
    starts = np.arange(0, n_cells, schema.capacity, dtype=np.int64)
    slots = Slots(len(schema.attrs), len(schema.dims), TIMESTAMPS in columns, DELETE_TIMESTAMPS in columns)
    leaves = BoundsTable([tile_bounds(columns[dim.name], starts) for dim in schema.dims])
    footer = _footer(schema_name, slots, dense=False, domain=leaves.whole(), n_tiles=len(starts),
                     last=n_cells - int(starts[-1]))  # fmt: skip
    return _encode(name, schema, footer, RTree(leaves), columns, starts, None, processed, cipher)


def encode_dense(
    name: TimestampedName, schema: Schema, schema_name: str, columns: Mapping[str, Column],
    domain: tuple[Bound, ...], tile_cells: int, counted: Mask | None, *, cipher: Aes256Gcm | None = None,
) -> EncodedFragment:  # fmt: skip
    """Whole tiles, padding included, one after the other; `counted` marks the cells that were written."""
    n_cells = len(next(iter(columns.values())))
    starts = np.arange(0, n_cells, tile_cells, dtype=np.int64)
    slots = Slots(len(schema.attrs), len(schema.dims))
    footer = _footer(schema_name, slots, dense=True, domain=domain, n_tiles=0, last=tile_cells)
    return _encode(name, schema, footer, None, columns, starts, counted, (), cipher)


def _footer(
    schema_name: str, slots: Slots, *, dense: bool, domain: tuple[Bound, ...], n_tiles: int, last: int
) -> Footer:
    none = (0,) * slots.count
    return Footer(WRITTEN, schema_name, dense, domain, n_tiles, last, slots, none, none, none)


def _encode(
    name: TimestampedName, schema: Schema, footer: Footer, rtree: RTree | None, columns: Mapping[str, Column],
    starts: Starts, counted: Mask | None, processed: Sequence[str], cipher: Aes256Gcm | None,
) -> EncodedFragment:  # fmt: skip
    slots = footer.slots
    metadata: list[SlotMetadata] = [SlotMetadata()] * slots.count
    sizes = [[0] * slots.count for _ in range(3)]
    files: dict[str, Sequence[bytes]] = {}
    jobs: list[Callable[[], None]] = []
    prepared = []
    for slot, item in _fields(schema, slots, columns, cipher):
        prepared.append((slot, item, _prepare(item, schema, starts, counted, cipher, jobs)))
    run_all(jobs)
    for slot, item, encoded in prepared:
        metadata[slot] = _slot(encoded, item, starts)
        for place, file in enumerate((encoded.fixed, encoded.var, encoded.validity)):
            if file is not None:
                files[file.name] = file.pieces
                sizes[place][slot] = file.size
    files_size, var_size, validity_size = (tuple(each) for each in sizes)
    whole = Footer(
        footer.version, footer.schema_name, footer.dense, footer.domain, footer.n_sparse_tiles,
        footer.last_tile_cells, slots, files_size, var_size, validity_size,
    )  # fmt: skip
    stored, packed = pack_metadata_file(whole, schema, rtree, metadata, processed, cipher)
    assert footer.schema_name is not None
    fragment = Fragment(
        name, footer.schema_name, Footer.unpack(packed, schema), stored if len(stored) <= 1 << 16 else None
    )
    return EncodedFragment(fragment, files, stored)


def _fields(
    schema: Schema, slots: Slots, columns: Mapping[str, Column], cipher: Aes256Gcm | None
) -> list[tuple[int, _Field]]:
    """What the fragment stores, by slot. A dense fragment has no coordinates."""
    found: list[tuple[int, _Field]] = []
    for index, attr in enumerate(schema.attrs):
        files = keys.attribute_files(index, attr.name, WRITTEN)
        found.append((index, _field(attr, schema, columns[attr.name], files, cipher)))
    for index, dim in enumerate(schema.dims):
        if dim.name in columns:
            files = keys.dimension_files(index, dim.name, WRITTEN)
            found.append((slots.dim(index), _field(dim, schema, columns[dim.name], files, cipher)))
    hidden = [(TIMESTAMPS, slots.timestamps)] if slots.has_timestamps else []
    if slots.has_delete_metadata:
        hidden += [(DELETE_TIMESTAMPS, slots.delete_timestamps), (DELETE_CONDITION, slots.delete_condition)]
    for name, slot in hidden:
        codec = TileCodec(schema.coords_filters, Datatype.UINT64, 8, cipher=cipher)
        files = keys.DataFiles.of(_DELETE_FILES[name].removesuffix(".tdb"))
        kind = Kind(Datatype.UINT64, 1, nullable=False, extremes=True)
        found.append((slot, _Field(name, columns[name], files, codec, kind)))
    return found


def _field(
    field: Attr | Dim, schema: Schema, column: Column, files: keys.DataFiles, cipher: Aes256Gcm | None
) -> _Field:
    size = field.datatype.size
    cell = size if field.is_var else size * field.cell_val_num
    codec = TileCodec(
        schema.filters_of(field), field.datatype, cell, var=field.is_var, cipher=cipher,
        schema_version=schema.version,
    )  # fmt: skip
    attr = isinstance(field, Attr)
    cell_val_num = VAR if field.is_var else field.cell_val_num
    kind = Kind(field.datatype, cell_val_num, nullable=attr and field.nullable, extremes=attr)
    return _Field(field.name, column, files, codec, kind)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The files of a field on their way, and the statistics of its tiles, a run of them per job."""

    fixed: _Encoded
    var: _Encoded | None
    validity: _Encoded | None
    statistics: list[TileStatistics | None]


def _prepare(
    item: _Field, schema: Schema, starts: Starts, counted: Mask | None, cipher: Aes256Gcm | None,
    jobs: list[Callable[[], None]],
) -> _Prepared:  # fmt: skip
    """Append the jobs that encode a field's tiles; all is there once they have run."""
    n, column = len(starts), item.column
    ends = np.append(starts[1:], len(column))
    tile_size = max(column.nbytes // max(n, 1), 1)
    step = max(1, _TILES_PER_JOB_SIZE // tile_size)
    prepared = _Prepared(
        _Encoded(item.files.fixed, [b""] * n),
        _Encoded(item.files.var, [b""] * n) if column.offsets is not None else None,
        _Encoded(item.files.validity, [b""] * n) if item.kind.nullable else None,
        [None] * -(-n // step),
    )
    offsets_codec = TileCodec(schema.offsets_filters, Datatype.UINT64, 8, cipher=cipher)
    validity_codec = TileCodec(schema.validity_filters, Datatype.UINT8, 1, cipher=cipher)
    flags = None
    if item.kind.nullable:
        flags = np.ones(len(column), np.uint8) if column.validity is None else column.validity.view(np.uint8)

    def encode(tile: int) -> None:
        a, b = int(starts[tile]), int(ends[tile])
        if column.offsets is None:
            prepared.fixed.pieces[tile] = item.values.encode(_bytes(column.values[a:b]))
        else:
            assert prepared.var is not None
            places = column.offsets[a : b + 1]
            relative = (places[:-1] - places[0]).view(np.uint64)
            values = _bytes(column.values[places[0] : places[-1]])
            prepared.var.pieces[tile] = item.values.encode(values, relative)
            prepared.fixed.pieces[tile] = (
                PLACEHOLDER_OFFSETS if item.values.holds_offsets else offsets_codec.encode(_bytes(relative))
            )
        if prepared.validity is not None and flags is not None:
            prepared.validity.pieces[tile] = validity_codec.encode(flags[a:b])

    def run(job: int) -> None:
        first, last = job * step, min((job + 1) * step, n)
        for tile in range(first, last):
            encode(tile)
        a, b = int(starts[first]), int(ends[last - 1])
        prepared.statistics[job] = tile_statistics(
            column.slice(a, b), starts[first:last] - a, item.kind, None if counted is None else counted[a:b]
        )

    jobs += [partial(run, job) for job in range(len(prepared.statistics))]
    return prepared


def _slot(encoded: _Prepared, item: _Field, starts: Starts) -> SlotMetadata:
    changes: dict[str, Any] = {"tile_offsets": encoded.fixed.offsets}
    if encoded.var is not None:
        assert item.column.offsets is not None
        edges = item.column.offsets[np.append(starts, len(item.column))]
        changes |= {"var_offsets": encoded.var.offsets, "var_sizes": np.diff(edges).astype(np.uint64)}
    if encoded.validity is not None:
        changes["validity_offsets"] = encoded.validity.offsets
    runs = [run for run in encoded.statistics if run is not None]
    return with_statistics(SlotMetadata(**changes), runs, item.kind)


def _bytes(values: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def tile_bounds(column: Column, starts: Starts) -> tuple[NDArray[Any], NDArray[Any]]:
    if column.offsets is None:
        return np.minimum.reduceat(column.values, starts), np.maximum.reduceat(column.values, starts)
    import pyarrow.compute as pc  # noqa: PLC0415

    cells, ends = column.binary(), [*starts[1:].tolist(), len(column)]
    pairs = [pc.min_max(cells.slice(a, b - a)).as_py() for a, b in zip(starts.tolist(), ends, strict=True)]
    low, high = np.empty(len(pairs), object), np.empty(len(pairs), object)
    low[:], high[:] = [pair["min"] for pair in pairs], [pair["max"] for pair in pairs]
    return low, high
