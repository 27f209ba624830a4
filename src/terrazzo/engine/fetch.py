"""Tiles of a fragment to columns: coalesced range reads, decoded on every core straight into place."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from terrazzo.engine.columns import Column
from terrazzo.engine.fragments import LARGEST, Fragment, Sections
from terrazzo.engine.layout import Layout, StoredField, StoredFile
from terrazzo.engine.runner import run_all
from terrazzo.errors import ConflictError, CorruptionError, FormatError, MissingObjectError
from terrazzo.format import versions
from terrazzo.format.domain import Dim
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.filters.base import FilterCode
from terrazzo.format.fragment import Section
from terrazzo.format.schema import Schema
from terrazzo.format.tile import TileCodec
from terrazzo.storage.base import Store
from terrazzo.storage.local import LocalStore

Tiles = NDArray[np.int64]
Job = Callable[[], None]
Spans = list[tuple[int, int]]
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
    """One data file of a fragment: where its tiles lie, and how they are stored."""

    root: str
    key: str
    codec: TileCodec
    size: int
    edges: NDArray[np.uint64] | None  # where each tile begins, and the end of the file; None: one tile is all

    @property
    def uri(self) -> str:
        return f"{self.root}/{self.key}"

    @contextmanager
    def named(self) -> Iterator[None]:
        """Damage that is found names this file."""
        try:
            yield
        except FormatError as problem:
            raise problem.at_key(self.uri) from None

    def spans(self, tiles: Tiles) -> Spans:
        """Start and length of each tile."""
        size = self.size
        if self.edges is None:
            spans = [(0, size)] * len(tiles)
        else:
            starts, ends = self.edges[tiles].tolist(), self.edges[tiles + 1].tolist()
            spans = [(start, end - start) for start, end in zip(starts, ends, strict=True)]
        if size >> 62 or any(length < 0 or start + length > size for start, length in spans):
            raise CorruptionError(f"the tiles overlap or lie outside of {size} bytes", key=self.uri)
        return spans

    def require(self, spans: Spans, size: int, repeats: int = 1) -> None:
        """That the bytes stored of these tiles can become that many.

        `repeats`: how often a byte may count; in a dictionary all cells can be one string.
        """
        stored = sum([length for _, length in spans])
        if size > min(stored * self.codec.expansion * repeats, LARGEST):
            raise CorruptionError(f"{stored} bytes cannot hold {size} bytes of cells", key=self.uri)

    def room(self, spans: Spans, size: int, repeats: int = 1) -> NDArray[np.uint8]:
        """Space for what these tiles decode to, if they can."""
        self.require(spans, size, repeats)
        return np.empty(size, np.uint8)


class Shared:
    """A column of fixed size that several fragments are decoded into, each into its own rows. Rows are given out
    before there is room for them: that is made once the files are known to hold so many cells. Small files that follow
    each other are decoded together."""

    def __init__(self, dtype: Any, per_cell: int = 1, *, nullable: bool = False) -> None:
        self._dtype, self._per_cell, self._nullable = dtype, per_cell, nullable
        self.values: NDArray[Any] = np.empty(0, dtype)
        self.flags: NDArray[np.uint8] | None = None
        self.of_values, self.of_flags = list[_Run](), list[_Run]()  # what is to be decoded

    def jobs(self) -> list[Job]:
        """Decode all that was asked for, once there is room for it."""
        return _jobs(self.of_values, lambda: _raw(self.values)) + _jobs(
            self.of_flags, lambda: _raw(self.flags)
        )

    def make_room(self, n: int) -> None:
        self.values = np.empty(n if self._per_cell == 1 else (n, self._per_cell), self._dtype)
        self.flags = np.empty(n, np.uint8) if self._nullable else None

    def fill(self, start: int, column: Column) -> None:
        """Cells that no file holds."""
        rows = slice(start, start + len(column))
        self.values[rows] = column.values
        if self.flags is not None:
            self.flags[rows] = True if column.validity is None else column.validity

    def rows(self, start: int, stop: int) -> Column:
        return Column(
            self.values[start:stop], None, None if self.flags is None else self.flags[start:stop] != 0
        )

    def column(self) -> Column:
        return self.rows(0, len(self.values))


class FragmentReader:
    """Reads columns of one fragment, in its own schema."""

    def __init__(
        self, store: Store, fragment: Fragment, schema: Schema, cipher: Aes256Gcm | None,
        layout: Layout | None = None,
    ) -> None:  # fmt: skip
        """`layout`: of fragments like this one, for readers of many to share."""
        self.store, self.fragment, self.schema = store, fragment, schema
        self.layout = layout or Layout(schema, fragment.version, fragment.footer.slots, cipher)
        self.sections = Sections(store, fragment, schema, cipher)
        self._root = store.uri
        self._known_files: dict[str, list[_File]] = {}

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
        return self.layout.has(name)

    def tile_sizes(self, name: str, tiles: Tiles, cells: NDArray[np.int64]) -> NDArray[np.int64]:
        """Bytes in memory of a column, per tile; `cells` are those of the tiles."""
        stored = self.layout.field(name)
        if stored.is_var:
            values = self.sections.per_tile(Section.VAR_SIZES, stored.slot)[tiles].astype(np.int64)
            return values + cells * (8 + stored.nullable)
        return cells * (stored.cell_size + stored.nullable)

    def cost(self, names: Iterable[str], tiles: Tiles) -> tuple[int, int]:
        """Bytes and requests that reading these tiles takes from the store."""
        size = requests = 0
        for name in names:
            for file in self._files(name):
                lengths = [length for _, length in file.spans(tiles)]
                size += sum(lengths)
                requests += len(_job_edges(lengths)) - 1
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

    def prepare(
        self, names: Sequence[str], tiles: Tiles, jobs: list[Job], shared: Mapping[str, Shared] | None = None,
        start: int = 0,
    ) -> Callable[[], dict[str, Column]]:  # fmt: skip
        """Append the jobs that decode these columns; call the result for them once the jobs have run. Those of
        `shared` wait there for their own jobs, to be decoded from the row `start` on, and are not in the result."""
        cells = self.cells[tiles].tolist()
        if shared:
            for name in names:
                if name in shared:
                    self._prepare_shared(name, tiles, cells, shared[name], start)
            names = [name for name in names if name not in shared]
        finishers = {name: self._prepare(name, tiles, cells, jobs) for name in names}
        return lambda: {name: finish() for name, finish in finishers.items()}

    # -- one field ------------------------------------------------------------------------------------

    def _prepare(self, name: str, tiles: Tiles, cells: list[int], jobs: list[Job]) -> Callable[[], Column]:
        """Append the jobs that decode a column; the result is there once they have run."""
        stored = self.layout.field(name)
        if stored.joint:
            return self._prepare_joint(stored, tiles, cells, jobs)
        files, n = self._files(name), sum(cells)
        validity = None
        if stored.nullable:
            spans = files[-1].spans(tiles)
            validity = files[-1].room(spans, n)
            jobs += self._decode(files[-1], spans, cells, validity.view)
        if stored.is_var:
            values, offsets = self._prepare_var(stored, files, tiles, cells, jobs)
            return lambda: Column(values, offsets, None if validity is None else validity != 0)
        width, spans = stored.cell_size, files[0].spans(tiles)
        raw = files[0].room(spans, n * width)
        jobs += self._decode(files[0], spans, [each * width for each in cells], raw.view)
        values = raw.view(stored.datatype.dtype)
        if stored.values_per_cell > 1:
            values = values.reshape(-1, stored.values_per_cell)
        return lambda: Column(values, None, None if validity is None else validity != 0)

    def _prepare_shared(self, name: str, tiles: Tiles, cells: list[int], shared: Shared, start: int) -> None:
        stored, files = self.layout.field(name), self._files(name)
        width, spans = stored.cell_size, files[0].spans(tiles)
        sizes = [each * width for each in cells]
        files[0].require(spans, sum(sizes))
        shared.of_values.append(_Run(self.store, files[0], spans, sizes, start * width))
        if stored.nullable:
            spans = files[-1].spans(tiles)
            files[-1].require(spans, sum(cells))
            shared.of_flags.append(_Run(self.store, files[-1], spans, cells, start))

    def _prepare_var(
        self, stored: StoredField, files: list[_File], tiles: Tiles, cells: list[int], jobs: list[Job]
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        fixed, var, n = files[0], files[1], sum(cells)
        sizes = self.sections.per_tile(Section.VAR_SIZES, stored.slot)[tiles].tolist()
        fixed_spans, var_spans = fixed.spans(tiles), var.spans(tiles)
        if var.codec.holds_offsets:
            if cells and max(cells) > _MOST_STRINGS:
                raise CorruptionError(f"a tile of {max(cells)} strings", key=var.uri)
            values = var.room(var_spans, sum(sizes), n)
        else:
            values = var.room(var_spans, sum(sizes))
            fixed.room(fixed_spans, n * 8)
        offsets = np.empty(n + 1, np.int64)
        offsets[-1] = len(values)
        bases = list(accumulate(sizes, initial=0))
        firsts = list(accumulate(cells, initial=0))
        unit = var.codec.cell_size

        def place(which: int, starts: NDArray[Any]) -> None:
            """Offsets of a tile count from its own start; in the column they count from the first cell."""
            size = sizes[which]
            if len(starts) and (starts[0] != 0 or starts[-1] > size or (starts[1:] < starts[:-1]).any()):
                raise CorruptionError(
                    f"offsets of tile {tiles[which]} run backwards or beyond its {size} bytes"
                )
            if unit > 1 and (size % unit or (starts % unit).any()):
                raise CorruptionError(f"cells of tile {tiles[which]} are no whole values of {unit} bytes")
            np.add(starts, bases[which], out=offsets[firsts[which] : firsts[which + 1]], casting="unsafe")

        if var.codec.holds_offsets:

            def strings(which: int, stored: Any) -> None:
                data, starts = var.codec.decode_strings(stored, sizes[which], cells[which])
                values[bases[which] : bases[which + 1]] = data
                place(which, starts.view(np.int64))

            in_memory = [size + 8 * count for size, count in zip(sizes, cells, strict=True)]
            jobs += self._each(var, var_spans, in_memory, strings)
        else:

            def starts_only(which: int, stored: Any) -> None:
                place(which, fixed.codec.decode(stored, cells[which] * 8).view(np.int64))

            jobs += self._each(fixed, fixed_spans, [count * 8 for count in cells], starts_only)
            jobs += self._decode(var, var_spans, sizes, values.view)
        return values, offsets

    def _prepare_joint(
        self, stored: StoredField, tiles: Tiles, cells: list[int], jobs: list[Job]
    ) -> Callable[[], Column]:
        """Before format 5 the coordinates of all dimensions share a file, as x,y,x,y… or x,x,…,y,y,…"""
        dim = stored.field
        assert isinstance(dim, Dim)
        n_dims, place = len(self.schema.dims), self.schema.dims.index(dim)
        width, dtype = n_dims * dim.datatype.size, dim.datatype.dtype
        (file,) = self._files(dim.name)
        spans = file.spans(tiles)
        file.room(spans, sum(cells) * width)
        out = np.empty(sum(cells), dtype)
        firsts = list(accumulate(cells, initial=0))
        compressed = any(each.code in _COMPRESSORS for each in self.schema.coords_filters.filters)
        zipped = self.fragment.version < versions.COORDS_UNZIPPED and not compressed

        def one(which: int, stored: Any) -> None:
            both = file.codec.decode(stored, cells[which] * width).view(dtype)
            out[firsts[which] : firsts[which + 1]] = (
                both[place::n_dims] if zipped else both.reshape(n_dims, cells[which])[place]
            )

        jobs += self._each(file, spans, [count * width for count in cells], one)
        return lambda: Column(out)

    # -- files ----------------------------------------------------------------------------------------

    def _files(self, name: str) -> list[_File]:
        known = self._known_files.get(name)
        if known is None:
            stored = self.layout.field(name)
            known = self._known_files[name] = [self._file(file, stored.slot) for file in stored.files]
        return known

    def _file(self, file: StoredFile, slot: int) -> _File:
        size, edges = file.size(self.fragment.footer, slot), None
        if self.sections.n_tiles != 1:
            offsets = self.sections.per_tile(file.section, slot)
            edges = np.empty(len(offsets) + 1, np.uint64)
            edges[:-1], edges[-1] = offsets, size
        return _File(self._root, f"{self.fragment.key}/{file.name}", file.codec, size, edges)

    def _decode(
        self, file: _File, spans: Spans, sizes: list[int], out: Callable[[], NDArray[np.uint8]]
    ) -> list[Job]:
        """Jobs that decode the tiles of a file into `out`, each at its place."""
        return _jobs([_Run(self.store, file, spans, sizes, 0)], out)

    def _each(
        self, file: _File, spans: Spans, sizes: list[int], one: Callable[[int, Any], None]
    ) -> list[Job]:
        """Jobs that hand each tile to `one`, with its place in the selection."""

        def job(start: int, stop: int) -> None:
            tiles = _Run(self.store, file, spans[start:stop], sizes[start:stop], 0).fetch()
            with file.named():
                for which, stored in enumerate(tiles, start):
                    one(which, stored)

        return [partial(job, start, stop) for start, stop in pairwise(_job_edges(sizes))]


class _Run(NamedTuple):
    """Tiles of one file, and where they go."""

    store: Store
    file: _File
    spans: Spans
    sizes: list[int]
    position: int

    @property
    def end(self) -> int:
        return self.position + sum(self.sizes)

    def follows(self, other: "_Run") -> bool:
        """Whether it is decoded as quickly with the other one: it is at hand, and goes where that one ends."""
        alike = self.file.codec is other.file.codec and self.position == other.end
        return alike and isinstance(self.store, LocalStore)

    def parts(self) -> "list[_Run]":
        """Cut into runs of about a megabyte."""
        edges = _job_edges(self.sizes)
        if len(edges) == 2:
            return [self]
        ends = list(accumulate(self.sizes, initial=self.position))
        return [
            self._replace(spans=self.spans[a:b], sizes=self.sizes[a:b], position=ends[a])
            for a, b in pairwise(edges)
        ]

    def fetch(self) -> list[Any]:
        try:
            return self.store.get_ranges(self.file.key, self.spans)
        except MissingObjectError:
            raise ConflictError(
                f"{self.file.uri} was removed while it was read; open the array again"
            ) from None


def _jobs(runs: Iterable[_Run], out: Callable[[], NDArray[np.uint8]]) -> list[Job]:
    """Jobs of about a megabyte that decode runs into `out`: small ones together, large ones in parts. But a store that
    has to be waited for is better asked for many files at a time."""
    jobs: list[Job] = []
    group, filled = list[_Run](), 0
    for run in runs:
        for part in run.parts():
            if group and (filled >= _JOB_SIZE or not part.follows(group[-1])):
                jobs.append(partial(_decode_runs, group, out))
                group, filled = [], 0
            group.append(part)
            filled += sum(part.sizes)
    if group:
        jobs.append(partial(_decode_runs, group, out))
    return jobs


def _decode_runs(runs: list[_Run], out: Callable[[], NDArray[np.uint8]]) -> None:
    fetched = [run.fetch() for run in runs]
    target, codec = out(), runs[0].file.codec
    if len(runs) > 1:
        tiles, sizes = [tile for some in fetched for tile in some], [n for run in runs for n in run.sizes]
        with suppress(FormatError):  # then the file that it comes from is found below
            codec.decode_run(tiles, sizes, target[runs[0].position : runs[-1].end])
            return
    for run, tiles in zip(runs, fetched, strict=True):
        with run.file.named():
            codec.decode_run(tiles, run.sizes, target[run.position : run.end])


def _raw(values: NDArray[Any] | None) -> NDArray[np.uint8]:
    assert values is not None
    return values.reshape(-1).view(np.uint8)


def _job_edges(sizes: list[int]) -> list[int]:
    """Where runs of tiles of about a megabyte begin and end."""
    if len(sizes) == 1:
        return [0, 1]
    edges, filled = [0], 0
    for place, size in enumerate(sizes):
        if filled >= _JOB_SIZE:
            edges.append(place)
            filled = 0
        filled += size
    return [*edges, len(sizes)] if sizes else edges
