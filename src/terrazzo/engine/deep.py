"""The deep check: every tile of every field decodes, and what the fragments say of their cells is true.

Tiles are read in runs that keep to the memory. Statistics are compared only where those of libtiledb can be trusted:
of numbers, and of text that varies in length, in sparse fragments; never beside a NaN.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrazzo.engine.columns import Column, concat
from terrazzo.engine.encode import tile_bounds
from terrazzo.engine.fetch import FragmentReader
from terrazzo.engine.findings import Finding, Severity
from terrazzo.engine.layout import DELETE_CONDITION, DELETE_TIMESTAMPS, TIMESTAMPS
from terrazzo.engine.order import equals_previous, is_sorted, sort_keys
from terrazzo.engine.runner import steps
from terrazzo.engine.schemas import current_schema
from terrazzo.engine.statistics import Kind, tile_statistics
from terrazzo.engine.survey import Survey
from terrazzo.errors import TerrazzoError
from terrazzo.format import keys
from terrazzo.format.attribute import Attr
from terrazzo.format.datatypes import VAR, Datatype
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.fragment import Section
from terrazzo.format.schema import Schema
from terrazzo.format.sections import has_extremes, sum_dtype, unpack_sums
from terrazzo.storage.base import Store

_RUN = 64 << 20
_FOREVER = (1 << 64) - 1
_ADVICE = "restore this object; repair can set the fragment aside"


def check_cells(
    store: Store, cipher: Aes256Gcm | None, found: Survey, run_size: int = _RUN
) -> tuple[list[Finding], int]:
    """What is wrong with the cells, and how many were looked at."""
    findings: list[Finding] = []
    n_cells = 0
    if not found.schemas:
        return findings, 0
    latest = found.schemas[current_schema(found.schemas, _FOREVER)]
    for fragment in steps(found.fragments.values()):
        reader = FragmentReader(store, fragment, found.schemas[fragment.schema_name], cipher)
        checker = _Checker(reader, latest, findings)
        try:
            n_cells += checker.run(run_size)
        except (TerrazzoError, ArithmeticError, ValueError, IndexError, MemoryError) as problem:
            # Whatever else damaged metadata leads to: the next fragment is looked at all the same.
            place = f"{fragment.key}/{keys.FRAGMENT_METADATA_FILE}"
            findings.append(_finding(problem, place))
    return findings, n_cells


def _finding(problem: Exception, place: str) -> Finding:
    if isinstance(problem, TerrazzoError):
        return Finding.of(place, problem, _ADVICE)
    return Finding(Severity.ERROR, place, f"does not fit its cells: {problem}", _ADVICE)


@dataclass
class _Checker:
    """One fragment."""

    reader: FragmentReader
    latest: Schema
    findings: list[Finding]

    def __post_init__(self) -> None:
        self.fragment, self.schema = self.reader.fragment, self.reader.schema
        self.sections = self.reader.sections
        self.before: list[Column] | None = None  # the last cell of the run before
        self.told: set[tuple[str, str]] = set()

    def tell(
        self, file: str, problem: str, severity: Severity = Severity.ERROR, advice: str = _ADVICE
    ) -> None:
        """Once per file and kind of problem: one bad tile says enough."""
        if (file, problem[:20]) not in self.told:
            self.told.add((file, problem[:20]))
            self.findings.append(Finding(severity, f"{self.fragment.key}/{file}", problem, advice))

    @property
    def names(self) -> list[str]:
        fields = [attr.name for attr in self.schema.attrs]
        if not self.fragment.footer.dense:
            fields += [dim.name for dim in self.schema.dims]
        return fields + [n for n in (TIMESTAMPS, DELETE_TIMESTAMPS, DELETE_CONDITION) if self.reader.has(n)]

    def run(self, size: int) -> int:
        names = [name for name in self.names if self._readable(name)]
        for tiles in self._runs(names, size):
            columns = self._columns(names, tiles)
            self._check(columns, tiles)
        return self.reader.n_cells

    def _readable(self, name: str) -> bool:
        """Whether the metadata tells where the tiles of a field are."""
        try:
            self.reader.cost([name], self.reader.all_tiles())
            self.reader.tile_sizes(name, self.reader.all_tiles(), self.reader.cells)
        except TerrazzoError as problem:
            self.findings.append(Finding.of(self._file(name), problem, _ADVICE))
            return False
        return True

    def _runs(self, names: list[str], size: int) -> Iterator[NDArray[np.int64]]:
        tiles = self.reader.all_tiles()
        if not len(tiles):
            return
        sizes = np.zeros(len(tiles), np.int64)
        for name in names:
            sizes += self.reader.tile_sizes(name, tiles, self.reader.cells)
        groups = np.cumsum(sizes) // size
        yield from np.split(tiles, np.flatnonzero(np.diff(groups)) + 1)

    def _columns(self, names: list[str], tiles: NDArray[np.int64]) -> dict[str, Column]:
        try:
            return self.reader.read(names, tiles)
        except TerrazzoError:
            pass  # which field it is, is found out one by one
        found: dict[str, Column] = {}
        for name in names:
            try:
                found |= self.reader.read([name], tiles)
            except TerrazzoError as problem:
                self._find_tile(name, tiles, problem)
        return found

    def _find_tile(self, name: str, tiles: NDArray[np.int64], problem: TerrazzoError) -> None:
        for tile in tiles:
            try:
                self.reader.read_here([name], np.array([tile]))
            except TerrazzoError as one:
                self.tell(self._file(name, one), f"tile {tile} of {name!r}: {one.args[0]}")
                return
        self.tell(self._file(name, problem), str(problem.args[0]))

    def _file(self, name: str, problem: TerrazzoError | None = None) -> str:
        if problem is not None and problem.key and problem.key.endswith(".tdb"):
            return problem.key.rpartition("/")[2]
        return keys.FRAGMENT_METADATA_FILE if problem is None else name

    # -- what is true of the cells ----------------------------------------------------------------------

    def _check(self, columns: dict[str, Column], tiles: NDArray[np.int64]) -> None:
        cells = self.reader.cells[tiles]
        starts = np.cumsum(cells) - cells
        dense = self.fragment.footer.dense
        for slot, attr in enumerate(self.schema.attrs):
            column = columns.get(attr.name)
            if column is not None:
                self._values(attr, column)
                if not dense:
                    self._guarded(lambda s=slot, a=attr, c=column: self._statistics(s, a, c, tiles, starts))  # type: ignore[misc]
        self._times(columns)
        if not dense and all(dim.name in columns for dim in self.schema.dims):
            coords = [columns[dim.name] for dim in self.schema.dims]
            self._guarded(lambda: self._bounds(coords, tiles, starts))
            self._order(coords)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except TerrazzoError as problem:
            self.findings.append(
                Finding.of(f"{self.fragment.key}/{keys.FRAGMENT_METADATA_FILE}", problem, _ADVICE)
            )

    def _values(self, attr: Attr, column: Column) -> None:
        files = keys.attribute_files(self.schema.attrs.index(attr), attr.name, self.fragment.version)
        if column.offsets is not None and (column.offsets % attr.datatype.size).any():
            self.tell(files.fixed, f"cells of {attr.name!r} end in the middle of a value")
        labels = self._labels(attr)
        if labels is not None and len(column):
            values = column.values if column.validity is None else column.values[column.validity]
            outside = values[(values < 0) | (values >= labels)]
            if len(outside):
                self.tell(
                    files.fixed,
                    f"{attr.name!r} has the index {outside[0]} of an enumeration of {labels} labels",
                    advice="update or delete these cells",
                )

    def _labels(self, attr: Attr) -> int | None:
        """How many labels there are; later schemas only add some."""
        if attr.enum is None or attr.is_var:
            return None
        known = [s.enums[attr.enum] for s in (self.schema, self.latest) if attr.enum in s.enums]
        return max(len(enumeration) for enumeration in known) if known else None

    def _statistics(
        self, slot: int, attr: Attr, column: Column, tiles: NDArray[np.int64], starts: NDArray[np.int64]
    ) -> None:
        cell_val_num = VAR if attr.is_var else attr.cell_val_num
        text = attr.is_var and attr.datatype in {Datatype.CHAR, Datatype.STRING_ASCII}
        number = cell_val_num == 1 and not attr.datatype.is_string and attr.datatype is not Datatype.CHAR
        if not (text or number) or not has_extremes(attr.datatype, cell_val_num):
            return
        extremes = self.sections.extremes(slot)
        kind = Kind(attr.datatype, cell_val_num, nullable=attr.nullable, extremes=True)
        true = tile_statistics(column, starts, kind)
        sure = true.some.copy()
        if attr.datatype.is_float and true.sums is not None:
            sure &= ~np.isnan(true.sums)
        if extremes is not None:
            mins, maxes = (_objects(side) if text else side for side in (true.mins, true.maxes))
            wrong = (extremes[0][tiles] != mins) | (extremes[1][tiles] != maxes)
            self._tell_tile(attr, tiles, wrong & sure, "minimum or maximum")
        if number and attr.nullable:
            counts = self.sections.u64s(Section.NULL_COUNTS, slot)
            if len(counts) == self.sections.n_tiles:
                self._tell_tile(attr, tiles, counts[tiles] != true.null_counts, "number of nulls")
        total = sum_dtype(attr.datatype, cell_val_num)
        body = self.sections.body(Section.SUMS, slot) if number and total is not None else None
        if body is not None and total is not None and total.kind != "f" and true.sums is not None:
            sums = unpack_sums(body, total)
            if len(sums) == self.sections.n_tiles:
                self._tell_tile(attr, tiles, (sums[tiles] != true.sums) & sure, "sum")

    def _tell_tile(self, attr: Attr, tiles: NDArray[np.int64], wrong: NDArray[Any], what: str) -> None:
        if wrong.any():
            tile = int(tiles[np.argmax(wrong)])
            self.tell(
                keys.FRAGMENT_METADATA_FILE,
                f"{what} of {attr.name!r} in tile {tile} is not that of its cells",
                advice="consolidate to write the cells anew",
            )

    def _times(self, columns: dict[str, Column]) -> None:
        name = self.fragment.name
        times = columns.get(TIMESTAMPS)
        if times is not None and len(times):
            low, high = int(times.values.min()), int(times.values.max())
            if low < name.start_ms or high > name.end_ms:
                self.tell(
                    keys.TIMESTAMPS_FILE,
                    f"has cells written from {low} to {high}, outside of the name: libtiledb shows them at "
                    "instants that are not theirs",
                    Severity.WARNING,
                    "consolidate with the fragments around it",
                )
        ended_by = columns.get(DELETE_CONDITION)
        if ended_by is not None:
            known = len(self.sections.processed)
            if ((ended_by.values >= known) & (ended_by.values != _FOREVER)).any():
                self.tell(keys.DELETE_CONDITIONS_FILE, f"names a condition beyond the {known} that there are")

    def _bounds(self, coords: list[Column], tiles: NDArray[np.int64], starts: NDArray[np.int64]) -> None:
        leaves, domain = self.sections.rtree.leaves, self.fragment.footer.domain
        for j, (dim, column) in enumerate(zip(self.schema.dims, coords, strict=True)):
            low, high = tile_bounds(column, starts)
            outside = (low < leaves.columns[j][0][tiles]) | (high > leaves.columns[j][1][tiles])
            if np.asarray(outside, bool).any():
                tile = int(tiles[np.argmax(outside)])
                self.tell(keys.FRAGMENT_METADATA_FILE, f"{dim.name!r} leaves the box of tile {tile}")
            if domain is not None and (low.min() < domain[j][0] or high.max() > domain[j][1]):
                self.tell(keys.FRAGMENT_METADATA_FILE, f"cells lie outside of its domain along {dim.name!r}")

    def _order(self, coords: list[Column]) -> None:
        joined = (
            coords
            if self.before is None
            else [concat([a, b]) for a, b in zip(self.before, coords, strict=True)]
        )
        self.before = [column.slice(len(column) - 1, len(column)) for column in coords]
        # Quirk: libtiledb orders the bytes of strings as signed numbers; those that are not ASCII cannot be judged.
        if any(column.is_var and len(column.values) and column.values.max() > 127 for column in joined):
            return
        found = sort_keys(joined, self.schema)
        file = keys.dimension_files(0, self.schema.dims[0].name, self.fragment.version).fixed
        if not is_sorted(found):
            self.tell(file, "the cells are not in global order")
        elif (
            not self.schema.allows_duplicates
            and not self.fragment.has_timestamps
            and equals_previous(found, None).any()
        ):
            self.tell(file, "holds two cells at the same coordinates, where the schema allows one")


def _objects(values: list[bytes]) -> NDArray[Any]:
    found = np.empty(len(values), object)
    found[:] = values
    return found
