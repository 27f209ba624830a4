"""Tiles of a fragment to columns: coalesced range reads, decoded on every core straight into place."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrazzo.engine.columns import Column
from terrazzo.engine.fragments import LARGEST, Fragment, Sections
from terrazzo.engine.runner import run_all
from terrazzo.errors import ConflictError, CorruptionError, FormatError, MissingObjectError
from terrazzo.format import keys, versions
from terrazzo.format.attribute import Attr
from terrazzo.format.datatypes import Datatype
from terrazzo.format.domain import Dim
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.filters.base import FilterCode
from terrazzo.format.fragment import Section
from terrazzo.format.schema import Schema
from terrazzo.format.tile import TileCodec
from terrazzo.storage.base import Store

TIMESTAMPS = "__timestamps"
DELETE_TIMESTAMPS = "__delete_timestamps"
DELETE_CONDITION = "__delete_condition_index"
_HIDDEN = {
    TIMESTAMPS: keys.TIMESTAMPS_FILE,
    DELETE_TIMESTAMPS: keys.DELETE_TIMESTAMPS_FILE,
    DELETE_CONDITION: keys.DELETE_CONDITIONS_FILE,
}

Tiles = NDArray[np.int64]
Job = Callable[[], None]
_JOB_SIZE = 1 << 20
_MOST_STRINGS = 1 << 29  # of a tile that holds its offsets: they take 32 bits' worth of bytes
_COMPRESSORS = frozenset(
    {
        FilterCode.GZIP,
        FilterCode.ZSTD,
        FilterCode.LZ4,
        FilterCode.RLE,
        FilterCode.BZIP2,
        FilterCode.DOUBLE_DELTA,
    }
)


@dataclass(frozen=True, slots=True)
class _File:
    """One data file of a field: where its tiles lie, and how they are stored."""

    name: str
    codec: TileCodec
    offsets: NDArray[np.uint64]
    size: int
    uri: str

    def spans(self, tiles: Tiles) -> list[tuple[int, int]]:
        starts, sizes = self._places(tiles)
        return list(zip(starts.tolist(), sizes.tolist(), strict=True))

    def room(self, tiles: Tiles, size: int, repeats: int = 1) -> NDArray[np.uint8]:
        """Space for what these tiles decode to, if the bytes stored of them can become that many.

        `repeats`: how often a byte may count; in a dictionary all cells can be one string.
        """
        stored = int(self._places(tiles)[1].sum())
        if size > min(stored * self.codec.expansion * repeats, LARGEST):
            raise CorruptionError(f"{stored} bytes cannot hold {size} bytes of cells", key=self.uri)
        return np.empty(size, np.uint8)

    def _places(self, tiles: Tiles) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        ends = np.append(self.offsets[1:], np.uint64(self.size))[tiles]
        starts = self.offsets[tiles]
        if (ends < starts).any() or (ends > self.size).any() or self.size >> 62:
            raise CorruptionError(f"the tiles overlap or lie outside of {self.size} bytes", key=self.uri)
        return starts, ends - starts


class FragmentReader:
    """Reads columns of one fragment, in its own schema."""

    def __init__(self, store: Store, fragment: Fragment, schema: Schema, cipher: Aes256Gcm | None) -> None:
        self.store, self.fragment, self.schema, self.cipher = store, fragment, schema, cipher
        self.sections = Sections(store, fragment, schema, cipher)

    @cached_property
    def cells(self) -> NDArray[np.int64]:
        """Cells per tile."""
        n_tiles = self.sections.n_tiles
        counts = np.full(
            n_tiles, self.fragment.footer.cells_of_tile(self.schema, 0) if n_tiles else 0, np.int64
        )
        if n_tiles:
            counts[-1] = self.fragment.footer.cells_of_tile(self.schema, n_tiles - 1)
        return counts

    @property
    def n_cells(self) -> int:
        return int(self.cells.sum())

    def all_tiles(self) -> Tiles:
        return np.arange(self.sections.n_tiles, dtype=np.int64)

    def has(self, name: str) -> bool:
        if name == TIMESTAMPS:
            return self.fragment.has_timestamps
        if name in _HIDDEN:
            return self.fragment.footer.slots.has_delete_metadata
        return self.schema.has(name)

    def tile_sizes(self, name: str, tiles: Tiles, cells: NDArray[np.int64]) -> NDArray[np.int64]:
        """Bytes in memory of a column, per tile; `cells` are those of the tiles."""
        field = self._field(name)
        if field is None:
            return cells * 8
        if field.is_var:
            values = self.sections.per_tile(Section.VAR_SIZES, self._slot(name))[tiles].astype(np.int64)
            sizes = values + cells * 8
        else:
            sizes = cells * (field.cell_val_num * field.datatype.size)
        return sizes + cells if self._nullable(field) else sizes

    def cost(self, names: Iterable[str], tiles: Tiles) -> tuple[int, int]:
        """Bytes and requests that reading these tiles takes from the store."""
        size = requests = 0
        for name in names:
            for file in self._files(name):
                spans = file.spans(tiles)
                size += sum(length for _, length in spans)
                requests += len(_job_edges(np.array([length for _, length in spans], np.int64))) - 1
        return size, requests

    def read(self, names: Sequence[str], tiles: Tiles) -> dict[str, Column]:
        """The named columns of these tiles, one after the other."""
        jobs: list[Job] = []
        finish = self.prepare(names, tiles, jobs)
        run_all(jobs)
        return finish()

    def read_here(self, names: Sequence[str], tiles: Tiles) -> dict[str, Column]:
        """`read` on this thread alone, for callers that are a job themselves."""
        jobs: list[Job] = []
        finish = self.prepare(names, tiles, jobs)
        for job in jobs:
            job()
        return finish()

    def prepare(self, names: Sequence[str], tiles: Tiles, jobs: list[Job]) -> Callable[[], dict[str, Column]]:
        """Append the jobs that decode these columns; call the result for them once the jobs have run."""
        finishers = {name: self._prepare(name, tiles, jobs) for name in names}
        return lambda: {name: finish() for name, finish in finishers.items()}

    # -- one field ------------------------------------------------------------------------------------

    def _field(self, name: str) -> Attr | Dim | None:
        return None if name in _HIDDEN else self.schema.field(name)

    def _slot(self, name: str) -> int:
        slots = self.fragment.footer.slots
        match name:
            case "__timestamps":
                return slots.timestamps
            case "__delete_timestamps":
                return slots.delete_timestamps
            case "__delete_condition_index":
                return slots.delete_condition
        for index, attr in enumerate(self.schema.attrs):
            if attr.name == name:
                return index
        if self.fragment.version < versions.SPLIT_DIMENSIONS:
            return slots.coords
        return slots.dim(next(j for j, dim in enumerate(self.schema.dims) if dim.name == name))

    def _prepare(self, name: str, tiles: Tiles, jobs: list[Job]) -> Callable[[], Column]:
        """Append the jobs that decode a column; the result is there once they have run."""
        field = self._field(name)
        if isinstance(field, Dim) and self.fragment.version < versions.SPLIT_DIMENSIONS:
            return self._prepare_joint(field, tiles, jobs)
        cells = self.cells[tiles]
        files = self._files(name)
        validity = files[-1].room(tiles, int(cells.sum())) if self._nullable(field) else None
        if validity is not None:
            jobs += self._decode(files[-1], tiles, cells, validity)
        if field is not None and field.is_var:
            values, offsets = self._prepare_var(files, tiles, cells, jobs)
            return lambda: Column(values, offsets, None if validity is None else validity != 0)
        datatype = Datatype.UINT64 if field is None else field.datatype
        per_cell = 1 if field is None else field.cell_val_num
        raw = files[0].room(tiles, int(cells.sum()) * per_cell * datatype.size)
        jobs += self._decode(files[0], tiles, cells * (per_cell * datatype.size), raw)
        values = raw.view(datatype.dtype)
        if per_cell > 1:
            values = values.reshape(-1, per_cell)
        return lambda: Column(values, None, None if validity is None else validity != 0)

    def _prepare_var(
        self, files: list[_File], tiles: Tiles, cells: NDArray[np.int64], jobs: list[Job]
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        fixed, var = files[0], files[1]
        slot = self._slot_of_file[fixed.name]
        sizes = self.sections.per_tile(Section.VAR_SIZES, slot)[tiles].astype(np.int64)
        if var.codec.holds_offsets:
            if len(cells) and int(cells.max()) > _MOST_STRINGS:
                raise CorruptionError(f"a tile of {int(cells.max())} strings", key=var.uri)
            values = var.room(tiles, int(sizes.sum()), int(cells.sum()))
        else:
            values = var.room(tiles, int(sizes.sum()))
            fixed.room(tiles, int(cells.sum()) * 8)
        offsets = np.empty(int(cells.sum()) + 1, np.int64)
        offsets[-1] = len(values)
        bases = np.cumsum(sizes) - sizes
        firsts = np.cumsum(cells) - cells

        unit = var.codec.cell_size

        def place(which: int, starts: NDArray[Any]) -> None:
            """Offsets of a tile count from its own start; in the column they count from the first cell."""
            first, n, size = int(firsts[which]), int(cells[which]), int(sizes[which])
            if n and (starts[0] != 0 or starts[-1] > size or (starts[1:] < starts[:-1]).any()):
                raise CorruptionError(
                    f"offsets of tile {tiles[which]} run backwards or beyond its {size} bytes"
                )
            if unit > 1 and (size % unit or (starts % unit).any()):
                raise CorruptionError(f"cells of tile {tiles[which]} are no whole values of {unit} bytes")
            np.add(starts, bases[which], out=offsets[first : first + n], casting="unsafe")

        if var.codec.holds_offsets:

            def strings(which: int, stored: Any) -> None:
                data, starts = var.codec.decode_strings(stored, int(sizes[which]), int(cells[which]))
                values[bases[which] : bases[which] + sizes[which]] = data
                place(which, starts.view(np.int64))

            jobs += self._each(var, tiles, sizes + cells * 8, strings)
        else:

            def starts_only(which: int, stored: Any) -> None:
                raw = fixed.codec.decode(stored, int(cells[which]) * 8)
                place(which, raw.view(np.int64))

            jobs += self._each(fixed, tiles, cells * 8, starts_only)
            jobs += self._decode(var, tiles, sizes, values)
        return values, offsets

    def _prepare_joint(self, dim: Dim, tiles: Tiles, jobs: list[Job]) -> Callable[[], Column]:
        """Before format 5 the coordinates of all dimensions share a file, as x,y,x,y… or x,x,…,y,y,…"""
        n_dims, place = len(self.schema.dims), self.schema.dims.index(dim)
        cells = self.cells[tiles]
        file = self._files(dim.name)[0]
        file.room(tiles, int(cells.sum()) * n_dims * dim.datatype.size)
        out = np.empty(int(cells.sum()), dim.datatype.dtype)
        firsts = np.cumsum(cells) - cells
        compressed = any(each.code in _COMPRESSORS for each in self.schema.coords_filters.filters)
        zipped = self.fragment.version < versions.COORDS_UNZIPPED and not compressed

        def one(which: int, stored: Any) -> None:
            n = int(cells[which])
            both = file.codec.decode(stored, n * n_dims * dim.datatype.size).view(dim.datatype.dtype)
            out[firsts[which] : firsts[which] + n] = (
                both[place::n_dims] if zipped else both.reshape(n_dims, n)[place]
            )

        jobs += self._each(file, tiles, cells * (n_dims * dim.datatype.size), one)
        return lambda: Column(out)

    def _nullable(self, field: Attr | Dim | None) -> bool:
        return isinstance(field, Attr) and field.nullable

    # -- files ----------------------------------------------------------------------------------------

    @cached_property
    def _slot_of_file(self) -> dict[str, int]:
        return {}

    @cached_property
    def _known_files(self) -> dict[str, list[_File]]:
        return {}

    def _files(self, name: str) -> list[_File]:
        if name not in self._known_files:
            self._known_files[name] = self._find_files(name)
        return self._known_files[name]

    def _find_files(self, name: str) -> list[_File]:
        """Values or offsets; then the values of a var field; then the validity of a nullable one."""
        footer, slot, field = self.fragment.footer, self._slot(name), self._field(name)
        version, schema = self.fragment.version, self.schema
        if field is None:
            codec = TileCodec(schema.coords_filters, Datatype.UINT64, 8, version, cipher=self.cipher)
            return [self._file(_HIDDEN[name], codec, Section.TILE_OFFSETS, slot, footer.file_sizes)]
        if isinstance(field, Dim):
            index = schema.dims.index(field)
            names = keys.dimension_files(index, name, version)
            together = version < versions.SPLIT_DIMENSIONS
            joint = len(schema.dims) if together else 1
            filters = schema.coords_filters if together else schema.filters_of(field)
        else:
            index = schema.attrs.index(field)
            names, joint = keys.attribute_files(index, name, version), 1
            filters = schema.filters_of(field)
        size = field.datatype.size
        if not field.is_var:
            codec = TileCodec(
                filters, field.datatype, field.cell_val_num * size * joint, version, cipher=self.cipher
            )
            files = [self._file(names.fixed, codec, Section.TILE_OFFSETS, slot, footer.file_sizes)]
        else:
            offsets = TileCodec(schema.offsets_filters, Datatype.UINT64, 8, version, cipher=self.cipher)
            values = TileCodec(
                filters, field.datatype, size, version, var=True, cipher=self.cipher,
                schema_version=schema.version,
            )  # fmt: skip
            self._slot_of_file[names.fixed] = slot
            files = [
                self._file(names.fixed, offsets, Section.TILE_OFFSETS, slot, footer.file_sizes),
                self._file(names.var, values, Section.VAR_OFFSETS, slot, footer.var_file_sizes),
            ]
        if self._nullable(field):
            codec = TileCodec(schema.validity_filters, Datatype.UINT8, 1, version, cipher=self.cipher)
            files.append(
                self._file(names.validity, codec, Section.VALIDITY_OFFSETS, slot, footer.validity_file_sizes)
            )
        return files

    def _file(
        self, name: str, codec: TileCodec, section: Section, slot: int, sizes: tuple[int, ...]
    ) -> _File:
        return _File(name, codec, self.sections.per_tile(section, slot), sizes[slot], self._uri(name))

    def _uri(self, name: str) -> str:
        return f"{self.store.uri}/{self.fragment.key}/{name}"

    def _decode(
        self, file: _File, tiles: Tiles, sizes: NDArray[np.int64], out: NDArray[np.uint8]
    ) -> list[Job]:
        """Jobs that decode the tiles of a file into `out`, each at its place."""
        ends = np.cumsum(sizes)

        def one(which: int, stored: Any) -> None:
            file.codec.decode(stored, int(sizes[which]), out[ends[which] - sizes[which] : ends[which]])

        return self._each(file, tiles, sizes, one)

    def _each(
        self, file: _File, tiles: Tiles, sizes: NDArray[np.int64], one: Callable[[int, Any], None]
    ) -> list[Job]:
        """Jobs of about a megabyte: fetch a run of tiles, hand each to `one` with its place in the selection."""
        if not len(tiles):
            return []
        spans = file.spans(tiles)
        edges = _job_edges(sizes)

        def job(start: int, stop: int) -> None:
            key = f"{self.fragment.key}/{file.name}"
            try:
                for which, stored in enumerate(self.store.get_ranges(key, spans[start:stop]), start):
                    one(which, stored)
            except MissingObjectError:
                raise ConflictError(
                    f"{self.store.uri}/{key} was removed while it was read; open the array again"
                ) from None
            except FormatError as problem:
                raise problem.at_key(self._uri(file.name)) from None

        return [lambda a=a, b=b: job(a, b) for a, b in pairwise(edges)]  # type: ignore[misc]


def _job_edges(sizes: NDArray[np.int64]) -> list[int]:
    """Where runs of tiles of about a megabyte begin and end."""
    groups = np.cumsum(sizes) // _JOB_SIZE
    return [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(sizes)]
