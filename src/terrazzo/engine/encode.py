"""Cells in their final order to the files of a fragment, each file piece by piece while its tiles are encoded."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrazzo.engine.columns import Column, Mask
from terrazzo.engine.fragments import TAIL, Fragment
from terrazzo.engine.layout import DELETE_CONDITION, DELETE_TIMESTAMPS, TIMESTAMPS
from terrazzo.engine.runner import start_all
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
from terrazzo.format.wire import Bytes

Starts = NDArray[np.int64]
_TILES_PER_JOB_SIZE = 1 << 20
_DELETE_FILES = {
    TIMESTAMPS: keys.TIMESTAMPS_FILE,
    DELETE_TIMESTAMPS: keys.DELETE_TIMESTAMPS_FILE,
    DELETE_CONDITION: keys.DELETE_CONDITIONS_FILE,
}


Pieces = list[Bytes]


@dataclass(slots=True, eq=False)
class _Run:
    """What a job makes of a run of tiles: per file of the field the pieces of each tile; and their statistics."""

    files: list[list[Pieces]]
    statistics: TileStatistics


class DataFile:
    """A data file on its way. Iterating gives the bytes of one run of tiles after the other, each as soon as it is
    encoded, and once only: what was taken is no longer held, and asking again is an error."""

    def __init__(self, name: str, runs: Sequence[Future[_Run]], place: int) -> None:
        self.name, self._runs, self._place = name, runs, place
        self.sizes: list[int] = []  # of the tiles that were taken

    def __iter__(self) -> Iterator[Pieces]:
        if self.sizes:
            raise RuntimeError(f"the bytes of {self.name} have been taken already")
        for run in self._runs:
            made = run.result()
            tiles, made.files[self._place] = made.files[self._place], []
            self.sizes += [sum(map(len, pieces)) for pieces in tiles]
            yield [piece for pieces in tiles for piece in pieces]

    @property
    def offsets(self) -> NDArray[np.uint64]:
        sizes = np.array(self.sizes, np.uint64)
        return np.cumsum(sizes, dtype=np.uint64) - sizes

    @property
    def size(self) -> int:
        return sum(self.sizes)


class EncodedFragment:
    """Everything of a fragment but its commit. Tiles are encoded from when `files` is first asked for; `metadata` and
    `fragment` are there once all files have been taken, and an error before."""

    def __init__(
        self, name: TimestampedName, schema: Schema, footer: Footer, fields: Sequence["_Field"],
        cells: "_Cut", rtree: RTree | None, processed: Sequence[str], cipher: Aes256Gcm | None,
    ) -> None:  # fmt: skip
        self.name, self.key = name, keys.fragment_key(name)
        self._schema, self._footer, self._fields, self._cells = schema, footer, fields, cells
        self._rtree, self._processed, self._cipher = rtree, processed, cipher

    @cached_property
    def _started(self) -> list["_Started"]:
        jobs = [_jobs(item, self._schema, self._cells, self._cipher) for item in self._fields]
        futures = iter(start_all(chain.from_iterable(jobs)))
        return [
            _started(item, list(islice(futures, len(own))))
            for item, own in zip(self._fields, jobs, strict=True)
        ]

    @property
    def files(self) -> list[DataFile]:
        return [file for started in self._started for file in started.files.values()]

    def stop(self) -> None:
        """Encode nothing more: the fragment is given up."""
        for started in vars(self).get("_started", ()):
            for run in started.runs:
                run.cancel()

    @cached_property
    def _finished(self) -> tuple[Fragment, bytes]:
        slots = self._footer.slots
        metadata: list[SlotMetadata] = [SlotMetadata()] * slots.count
        sizes = [[0] * slots.count for _ in range(3)]
        for item, started in zip(self._fields, self._started, strict=True):
            for place, file in started.files.items():
                if len(file.sizes) != len(self._cells.starts):
                    raise RuntimeError(f"{file.name} of {self.key} has not been put")
                sizes[place][item.slot] = file.size
            metadata[item.slot] = _slot(started, item, self._cells.starts)
        files_size, var_size, validity_size = (tuple(each) for each in sizes)
        whole = replace(
            self._footer,
            file_sizes=files_size,
            var_file_sizes=var_size,
            validity_file_sizes=validity_size,
        )
        stored, packed = pack_metadata_file(
            whole, self._schema, self._rtree, metadata, self._processed, self._cipher
        )
        assert whole.schema_name is not None
        tail = stored if len(stored) <= TAIL else None
        return Fragment(self.name, whole.schema_name, Footer.unpack(packed, self._schema), tail), stored

    @property
    def fragment(self) -> Fragment:
        return self._finished[0]

    @property
    def metadata(self) -> bytes:
        return self._finished[1]


@dataclass(frozen=True, slots=True, eq=False)
class _Cut:
    """Where tiles begin, and which cells count for statistics; None for all."""

    starts: Starts
    counted: Mask | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Started:
    """A field that is being encoded, and its files: 0 for values or offsets, 1 for values of any length, 2 for
    validity."""

    runs: list[Future[_Run]]
    files: dict[int, DataFile]


@dataclass(frozen=True, slots=True)
class _Field:
    """A field to be stored: its column and its slot."""

    slot: int
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
    fields = _fields(schema, slots, columns, cipher)
    return EncodedFragment(name, schema, footer, fields, _Cut(starts), RTree(leaves), processed, cipher)


def encode_dense(
    name: TimestampedName, schema: Schema, schema_name: str, columns: Mapping[str, Column],
    domain: tuple[Bound, ...], tile_cells: int, counted: Mask | None, *, cipher: Aes256Gcm | None = None,
) -> EncodedFragment:  # fmt: skip
    """Whole tiles, padding included, one after the other; `counted` marks the cells that were written."""
    n_cells = len(next(iter(columns.values())))
    starts = np.arange(0, n_cells, tile_cells, dtype=np.int64)
    slots = Slots(len(schema.attrs), len(schema.dims))
    footer = _footer(schema_name, slots, dense=True, domain=domain, n_tiles=0, last=tile_cells)
    fields = _fields(schema, slots, columns, cipher)
    return EncodedFragment(name, schema, footer, fields, _Cut(starts, counted), None, (), cipher)


def _footer(
    schema_name: str, slots: Slots, *, dense: bool, domain: tuple[Bound, ...], n_tiles: int, last: int
) -> Footer:
    none = (0,) * slots.count
    return Footer(WRITTEN, schema_name, dense, domain, n_tiles, last, slots, none, none, none)


def _fields(
    schema: Schema, slots: Slots, columns: Mapping[str, Column], cipher: Aes256Gcm | None
) -> list[_Field]:
    """What the fragment stores. A dense fragment has no coordinates."""
    found: list[_Field] = []
    for index, attr in enumerate(schema.attrs):
        files = keys.attribute_files(index, attr.name, WRITTEN)
        found.append(_field(index, attr, schema, columns[attr.name], files, cipher))
    for index, dim in enumerate(schema.dims):
        if dim.name in columns:
            files = keys.dimension_files(index, dim.name, WRITTEN)
            found.append(_field(slots.dim(index), dim, schema, columns[dim.name], files, cipher))
    hidden = [(TIMESTAMPS, slots.timestamps)] if slots.has_timestamps else []
    if slots.has_delete_metadata:
        hidden += [(DELETE_TIMESTAMPS, slots.delete_timestamps), (DELETE_CONDITION, slots.delete_condition)]
    for name, slot in hidden:
        codec = TileCodec(schema.coords_filters, Datatype.UINT64, 8, cipher=cipher)
        files = keys.DataFiles.of(_DELETE_FILES[name].removesuffix(".tdb"))
        kind = Kind(Datatype.UINT64, 1, nullable=False, extremes=True)
        found.append(_Field(slot, columns[name], files, codec, kind))
    return found


def _field(
    slot: int, field: Attr | Dim, schema: Schema, column: Column, files: keys.DataFiles,
    cipher: Aes256Gcm | None,
) -> _Field:  # fmt: skip
    size = field.datatype.size
    cell = size if field.is_var else size * field.cell_val_num
    codec = TileCodec(
        schema.filters_of(field), field.datatype, cell, var=field.is_var, cipher=cipher,
        schema_version=schema.version,
    )  # fmt: skip
    attr = isinstance(field, Attr)
    cell_val_num = VAR if field.is_var else field.cell_val_num
    kind = Kind(field.datatype, cell_val_num, nullable=attr and field.nullable, extremes=attr)
    return _Field(slot, column, files, codec, kind)


def _jobs(item: _Field, schema: Schema, cells: _Cut, cipher: Aes256Gcm | None) -> list[Callable[[], _Run]]:
    """Jobs that encode about a megabyte of a field each."""
    n, column, codec = len(cells.starts), item.column, item.values
    edges = np.append(cells.starts, len(column)).tolist()
    step = max(1, _TILES_PER_JOB_SIZE // max(column.nbytes // max(n, 1), 1))
    offsets_codec = TileCodec(schema.offsets_filters, Datatype.UINT64, 8, cipher=cipher)
    validity_codec = TileCodec(schema.validity_filters, Datatype.UINT8, 1, cipher=cipher)

    def run(first: int, last: int) -> _Run:
        start, stop = edges[first], edges[last]
        part = column.slice(start, stop)  # made once, of cells that are still to be folded into tiles
        made: list[list[Pieces]] = [[], [], []]
        for a, b in pairwise([edge - start for edge in edges[first : last + 1]]):
            if part.offsets is None:
                made[0].append(codec.encode_pieces(_bytes(part.values[a:b])))
            else:
                places = part.offsets[a : b + 1]
                relative = (places[:-1] - places[0]).view(np.uint64)
                made[1].append(codec.encode_pieces(_bytes(part.values[places[0] : places[-1]]), relative))
                made[0].append(
                    [PLACEHOLDER_OFFSETS]
                    if codec.holds_offsets
                    else offsets_codec.encode_pieces(_bytes(relative))
                )
            if item.kind.nullable:
                valid = (
                    np.ones(b - a, np.uint8) if part.validity is None else part.validity[a:b].view(np.uint8)
                )
                made[2].append(validity_codec.encode_pieces(valid))
        counted = None if cells.counted is None else cells.counted[start:stop]
        return _Run(made, tile_statistics(part, cells.starts[first:last] - start, item.kind, counted))

    return [partial(run, first, min(first + step, n)) for first in range(0, n, step)]


def _started(item: _Field, runs: list[Future[_Run]]) -> _Started:
    files = {0: DataFile(item.files.fixed, runs, 0)}
    if item.column.offsets is not None:
        files[1] = DataFile(item.files.var, runs, 1)
    if item.kind.nullable:
        files[2] = DataFile(item.files.validity, runs, 2)
    return _Started(runs, files)


def _slot(started: _Started, item: _Field, starts: Starts) -> SlotMetadata:
    changes: dict[str, Any] = {"tile_offsets": started.files[0].offsets}
    if item.column.offsets is not None:
        edges = item.column.offsets[np.append(starts, len(item.column))]
        changes |= {"var_offsets": started.files[1].offsets, "var_sizes": np.diff(edges).astype(np.uint64)}
    if 2 in started.files:
        changes["validity_offsets"] = started.files[2].offsets
    runs = [run.result().statistics for run in started.runs]
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
