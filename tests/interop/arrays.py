"""Arrays that hold many fields at once, so that few of them show every datatype, filter and layout.

A field's name says what it is: `INT16-three-null` is a nullable attribute of three INT16 per cell.
"""

import dataclasses
import itertools
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import queries
from fragments import Stored, only_fragment

from terrazzo.engine.columns import Column, concat, filtered
from terrazzo.engine.commit import commit_fragments, put_fragment
from terrazzo.engine.dense import read_box, to_tiles
from terrazzo.engine.plan import Request, plan_scan
from terrazzo.engine.region import everything
from terrazzo.engine.snapshot import take_snapshot
from terrazzo.engine.sparse import absent, joined, ordered, scan_columns
from terrazzo.engine.view import View
from terrazzo.engine.window import Window
from terrazzo.engine.write import sparse_fragment, write_dense
from terrazzo.format.attribute import Attr
from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.fragment import dense_tile_cells
from terrazzo.format.generic_tile import pack_generic_tile
from terrazzo.format.keys import ENUMERATION_FOLDER, SCHEMA_FOLDER, enumeration_name, unique_hex
from terrazzo.format.schema import Schema
from terrazzo.storage import open_store

EVER = Window(0, (1 << 63) - 1)
KEY = b"0123456789abcdef0123456789ABCDEF"
SHAPES = ("one", "three", "var")
DATATYPES = [datatype for datatype in Datatype if datatype is not Datatype.ANY]
_TEXT = {Datatype.CHAR, Datatype.STRING_ASCII}
_serial = itertools.count(1)


def cipher_of(key: bytes | None) -> Aes256Gcm | None:
    return None if key is None else Aes256Gcm(key, lambda: secrets.token_bytes(12))


# -- schemas ---------------------------------------------------------------------------------------------


def attr_of(
    datatype: Datatype, shape: str, *, nullable: bool = False, filters: Sequence = (), name: str | None = None
) -> Attr:
    name = name or f"{datatype.name}-{shape}{'-null' if nullable else ''}"
    options: dict = {"nullable": nullable, "filters": filters}
    if shape == "var":
        return Attr(name, datatype, var=True, **options)
    return Attr(name, datatype, var=False, values_per_cell=3 if shape == "three" else 1, **options)


def create(root: Path, schema: Schema, *, timestamp: int = 1, key: bytes | None = None) -> tuple[Schema, str]:
    """The schema and enumerations of an array, nothing else; the schema as stored, and its file's name."""
    cipher = cipher_of(key)
    (root / ENUMERATION_FOLDER).mkdir(parents=True, exist_ok=True)
    files = dict(schema.enum_files)
    for name, enum in schema.enums.items():
        files.setdefault(name, enumeration_name(unique_hex(next(_serial), bytes(12))))
        path = root / ENUMERATION_FOLDER / files[name]
        if not path.exists():
            path.write_bytes(pack_generic_tile(enum.pack(files[name]), cipher))
    schema = dataclasses.replace(schema, enum_files=files)
    name = f"__{timestamp}_{timestamp}_{unique_hex(next(_serial), bytes(12))}"
    (root / SCHEMA_FOLDER / name).write_bytes(pack_generic_tile(schema.pack(), cipher))
    return schema, name


# -- cells -----------------------------------------------------------------------------------------------


def cells_of(
    attr: Attr, n: int, rng: np.random.Generator, *, nulls: slice = slice(0, 0), extreme: bool = True
) -> Column:
    """Cells of an attribute: extreme values if asked for, runs, empty cells, and no value at all in `nulls`."""
    validity = None
    if attr.nullable:
        validity = rng.random(n) < 0.8
        validity[nulls] = False
    if not attr.is_var:
        values = values_of(attr.datatype, n * attr.cell_val_num, rng, extreme=extreme)
        return Column(values.reshape(n, -1) if attr.cell_val_num > 1 else values, None, validity)
    lengths = rng.integers(0, 9, n)
    lengths[rng.random(n) < 0.3] = 0
    lengths = np.repeat(lengths, rng.integers(1, 4, n))[:n]
    offsets = np.append(0, np.cumsum(lengths)) * attr.datatype.size
    values = values_of(attr.datatype, int(lengths.sum()), rng, extreme=extreme)
    return Column(values.view(np.uint8), offsets, validity)


def values_of(datatype: Datatype, n: int, rng: np.random.Generator, *, extreme: bool = True) -> np.ndarray:
    dtype = datatype.dtype
    if datatype in _TEXT:
        return rng.integers(97, 123, n).astype(dtype)  # NUL and high bytes have tests of their own
    if datatype is Datatype.STRING_UTF8:
        return rng.integers(0, 256, n).astype(dtype)  # nobody looks whether it is text
    if datatype is Datatype.BOOL:
        return rng.integers(0, 2, n).astype(dtype)
    if datatype.is_float:
        values = np.round(rng.normal(0, 1e4, n)).astype(dtype) / 2
        if extreme:
            values = rng.normal(0, 1e4, n).astype(dtype)  # sums of these depend on the order
            _strew(values, rng, [0.0, -0.0, np.finfo(dtype).max, np.finfo(dtype).tiny, 1e-300])
        return values
    info = np.iinfo(dtype)
    small = rng.integers(max(info.min, -100), 100, n).astype(dtype)
    values = np.where(rng.random(n) < 0.5, np.sort(small), small)
    if extreme:
        _strew(values, rng, [info.min, info.max, 0, 1])
    return values


def _strew(values: np.ndarray, rng: np.random.Generator, special: Sequence) -> None:
    if len(values) > 4 * len(special):
        values[rng.choice(len(values), len(special), replace=False)] = special


# -- both engines ----------------------------------------------------------------------------------------


def write_ours(
    root: Path,
    schema: Schema,
    schema_name: str,
    columns: Mapping[str, Column],
    timestamp: int,
    *,
    box: Sequence[tuple[int, int]] | None = None,
    key: bytes | None = None,
) -> Path:
    """One fragment by us; its folder."""
    store = open_store(str(root))
    if box is not None:
        (written,) = write_dense(store, schema, schema_name, columns, tuple(box), timestamp, cipher_of(key))
        return root / written.key
    encoded = sparse_fragment(dict(columns), schema, schema_name, timestamp, cipher_of(key))
    put_fragment(store, encoded)
    commit_fragments(store, [encoded.fragment.name])
    return root / encoded.fragment.key


def view_of(root: Path, *, key: bytes | None = None, window: Window = EVER) -> View:
    store, cipher = open_store(str(root)), cipher_of(key)
    return View(store, take_snapshot(store, window, cipher), cipher)


def read_ours(
    root: Path, names: Iterable[str] | None = None, *, key: bytes | None = None
) -> dict[str, Column]:
    """All cells, in row-major order."""
    view = view_of(root, key=key)
    schema = view.schema
    if schema.dense:
        box = tuple(dim.domain for dim in schema.dims)
        return read_box(view, box, list(names or [attr.name for attr in schema.attrs]))
    wanted = tuple(names or [each.name for each in schema.fields])
    plan = plan_scan(view, Request(wanted, everything(schema)), 1 << 30)
    batches = [batch for task in plan.tasks for batch in scan_columns(view, plan.request, task)]
    cells = ordered(joined(batches), schema, "row-major")
    return {name: cells[name] for name in wanted}  # and not what was read to tell which cells there are


# -- comparing -------------------------------------------------------------------------------------------


def cell_list(column: Column) -> list[bytes | None]:
    """The cells as bytes; None for nulls, whose bytes mean nothing."""
    if column.offsets is not None:
        data = np.ascontiguousarray(column.values).tobytes()
        edges = column.offsets.tolist()
        cells = [data[a:b] for a, b in itertools.pairwise(edges)]
    else:
        width = column.values.dtype.itemsize * (column.values.shape[1] if column.values.ndim == 2 else 1)
        data = np.ascontiguousarray(column.values).tobytes()
        cells = [data[i : i + width] for i in range(0, len(data), width)]
    if column.validity is not None:
        cells = [cell if valid else None for cell, valid in zip(cells, column.validity, strict=True)]
    return cells


def assert_same_cells(found: Mapping[str, Column], expected: Mapping[str, Column]) -> None:
    assert set(found) == set(expected)
    for name, column in expected.items():
        assert cell_list(found[name]) == cell_list(column), name


def in_order(columns: Mapping[str, Column], schema: Schema, order: str = "row-major") -> dict[str, Column]:
    return ordered(dict(columns), schema, order)


# -- pairs -----------------------------------------------------------------------------------------------


@dataclass
class Pair:
    """The same cells under the same schema, written by libtiledb and by us."""

    root: Path
    schema: Schema
    names: dict[str, str]  # of the schema files
    columns: dict[str, Column]  # as they were handed in
    box: tuple[tuple[int, int], ...] | None
    key: bytes | None

    @property
    def theirs(self) -> Path:
        return self.root / "theirs"

    @property
    def ours(self) -> Path:
        return self.root / "ours"

    def stored(self, side: str) -> Stored:
        folder = only_fragment(self.root / side)
        return Stored(folder, self.schema, self.names[side], cipher_of(self.key))

    @property
    def expected(self) -> dict[str, Column]:
        """What a full read gives: cells in row-major order, fill values where nothing was written."""
        if self.schema.sparse:
            return in_order(self.columns, self.schema)
        shape = [int(dim.domain[1]) - int(dim.domain[0]) + 1 for dim in self.schema.dims]
        place = np.full(shape, -1)
        inside = tuple(
            slice(low - int(dim.domain[0]), high - int(dim.domain[0]) + 1)
            for (low, high), dim in zip(self.box, self.schema.dims, strict=True)
        )
        place[inside] = np.arange(prod(high - low + 1 for low, high in self.box)).reshape(place[inside].shape)
        return {name: _filled(column, self.schema.attr(name), place) for name, column in self.columns.items()}

    def within(self, ranges: Sequence[tuple | None]) -> dict[str, Column]:
        """What a read of these ranges gives."""
        if self.schema.dense:
            whole = [dim.domain for dim in self.schema.dims]
            shape = [int(high) - int(low) + 1 for low, high in whole]
            picked = np.arange(prod(shape)).reshape(shape)[
                tuple(
                    slice(low - int(first), high - int(first) + 1)
                    for (low, high), (first, _) in zip(ranges, whole, strict=True)
                )
            ]
            return {name: column.take(picked.reshape(-1)) for name, column in self.expected.items()}
        mask = np.ones(len(self.expected[self.schema.dims[0].name]), bool)
        for dim, bounds in zip(self.schema.dims, ranges, strict=True):
            if bounds is not None:
                column = self.expected[dim.name]
                values = cell_list(column) if dim.is_var else column.values.tolist()
                mask &= np.array([bounds[0] <= value <= bounds[1] for value in values])
        return filtered(self.expected, mask)

    def tiles(self) -> dict[str, list[list[bytes | None]]]:
        """The cells of every tile in the order in which they are stored, those of dense padding left out."""
        if self.schema.sparse:
            cells = {name: cell_list(c) for name, c in in_order(self.columns, self.schema, "global").items()}
            n, step = len(next(iter(cells.values()))), self.schema.capacity
            return {name: [each[i : i + step] for i in range(0, n, step)] for name, each in cells.items()}
        tiled, written = to_tiles(self.columns, self.box, self.schema)
        step = dense_tile_cells(self.schema)
        keep = np.ones(len(next(iter(tiled.values()))), bool) if written is None else written
        found = {}
        for name, column in tiled.items():
            pairs = list(zip(cell_list(column), keep.tolist(), strict=True))
            found[name] = [
                [cell for cell, kept in pairs[i : i + step] if kept] for i in range(0, len(pairs), step)
            ]
        return found


def _filled(column: Column, attr: Attr, place: np.ndarray) -> Column:
    n = len(column)
    with_fill = concat([column, absent(attr, 1)])
    return with_fill.take(np.where(place.reshape(-1) < 0, n, place.reshape(-1)))


def pair(
    root: Path,
    schema: Schema,
    columns: Mapping[str, Column],
    *,
    box: Sequence[tuple[int, int]] | None = None,
    key: bytes | None = None,
) -> Pair:
    names = {}
    for side in ("theirs", "ours"):
        schema, names[side] = create(root / side, schema, key=key)
    queries.write(root / "theirs", schema, columns, 10, box=box, key=key)
    write_ours(root / "ours", schema, names["ours"], columns, 10, box=box, key=key)
    return Pair(root, schema, names, dict(columns), None if box is None else tuple(box), key)
