"""Fragment metadata: sections, each a generic tile, then the footer that says where they are.
Spec: format_spec/fragment.md.

Every array of the footer has one entry per *slot*:

    attributes · one dead slot, where coordinates were before format 5 · dimensions
    · timestamps, if any · delete timestamps and delete condition index, if any

    footer (format 22)
    u32 version · u64+text schema name · u8 dense · u8 no domain · non-empty domain
    · u64 sparse tiles · u64 cells of the last tile · u8 has timestamps · u8 has delete metadata
    · file sizes, var file sizes, validity file sizes: u64 per slot
    · u64 R-tree offset · offsets of the other sections: u64 per slot, or one u64
    · in the file, not in a .meta: u64 size of the footer
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import islice
from math import prod

from terrazzo.errors import CorruptionError
from terrazzo.format import versions
from terrazzo.format.bounds import Bound, pack_bound, unpack_bound
from terrazzo.format.schema import Schema
from terrazzo.format.wire import U64, Bytes, Cursor, Writer


class Section(IntEnum):
    """The sections of a metadata file, in the order in which they are stored."""

    RTREE = 0
    TILE_OFFSETS = 1
    VAR_OFFSETS = 2
    VAR_SIZES = 3
    VALIDITY_OFFSETS = 4
    MINS = 5
    MAXES = 6
    SUMS = 7
    NULL_COUNTS = 8
    FRAGMENT_STATISTICS = 9
    PROCESSED_CONDITIONS = 10


_MOST_CELLS = 1 << 48  # what a damaged count claims is mostly beyond; sums of bytes then stay below 64 bits
_SINGLE = frozenset({Section.RTREE, Section.FRAGMENT_STATISTICS, Section.PROCESSED_CONDITIONS})
_SINCE = {
    Section.VALIDITY_OFFSETS: versions.VALIDITY,
    Section.MINS: versions.TILE_STATISTICS,
    Section.MAXES: versions.TILE_STATISTICS,
    Section.SUMS: versions.TILE_STATISTICS,
    Section.NULL_COUNTS: versions.TILE_STATISTICS,
    Section.FRAGMENT_STATISTICS: versions.FRAGMENT_STATISTICS,
    Section.PROCESSED_CONDITIONS: versions.PROCESSED_CONDITIONS,
}


@dataclass(frozen=True, slots=True)
class Slots:
    """Which entry of the footer's arrays belongs to which field."""

    n_attrs: int
    n_dims: int
    has_timestamps: bool = False
    has_delete_metadata: bool = False

    @property
    def coords(self) -> int:
        return self.n_attrs

    @property
    def timestamps(self) -> int:
        return self.n_attrs + 1 + self.n_dims

    @property
    def delete_timestamps(self) -> int:
        return self.timestamps + self.has_timestamps

    @property
    def delete_condition(self) -> int:
        return self.delete_timestamps + 1

    @property
    def count(self) -> int:
        return self.delete_timestamps + 2 * self.has_delete_metadata

    def dim(self, index: int) -> int:
        return self.n_attrs + 1 + index


@dataclass(frozen=True, slots=True)
class Footer:
    version: int
    schema_name: str | None  # None before format 10: the array has one schema
    dense: bool
    domain: tuple[Bound, ...] | None  # what was written, not expanded to tiles
    n_sparse_tiles: int
    last_tile_cells: int  # of a dense fragment: cells of every tile
    slots: Slots
    file_sizes: tuple[int, ...]
    var_file_sizes: tuple[int, ...]
    validity_file_sizes: tuple[int, ...]
    offsets: Mapping[Section, tuple[int, ...]] = field(default_factory=dict)
    global_order_offsets: tuple[tuple[int, ...], tuple[int, ...]] | None = None  # format 23

    def n_tiles(self, schema: Schema) -> int:
        return tile_count(self.domain, schema) if self.dense else self.n_sparse_tiles

    def cells_of_tile(self, schema: Schema, tile: int) -> int:
        if self.dense:
            return dense_tile_cells(schema)
        return self.last_tile_cells if tile == self.n_sparse_tiles - 1 else schema.capacity

    def n_cells(self, schema: Schema) -> int:
        """Cells stored, padding of dense tiles included."""
        if self.dense:
            return self.n_tiles(schema) * dense_tile_cells(schema)
        if not self.n_sparse_tiles:
            return 0
        return (self.n_sparse_tiles - 1) * schema.capacity + self.last_tile_cells

    def pack(self, schema: Schema) -> bytes:
        """The footer in format 22, without its length."""
        out = Writer()
        out.u32(self.version)
        out.str64(self.schema_name or "")
        out.u8(self.dense)
        # Quirk: a 1 here desynchronises libtiledb's own loader, so an empty fragment is never stored.
        out.u8(0)
        for bound, dim in zip(self.domain or (), schema.dims, strict=True):
            pack_bound(out, bound, dim)
        out.u64(self.n_sparse_tiles)
        out.u64(self.last_tile_cells)
        out.u8(self.slots.has_timestamps)
        out.u8(self.slots.has_delete_metadata)
        for sizes in (self.file_sizes, self.var_file_sizes, self.validity_file_sizes):
            out.u64s(sizes)
        for section in Section:
            out.u64s(self.offsets[section])
        return bytes(out)

    @classmethod
    def unpack(cls, stored: Bytes, schema: Schema) -> "Footer":
        """A footer of format 3 to 23; bytes behind what is known are left alone, as libtiledb does."""
        cursor = Cursor(stored)
        version = versions.check(cursor.u32(), "a fragment", offset=0)
        if version < versions.FOOTER:
            raise CorruptionError(f"a fragment of format {version} has no footer", offset=0)
        name = cursor.str64() if version >= versions.SCHEMA_FOLDER else None
        dense = cursor.flag("the dense flag")
        has_domain = not cursor.flag("the flag for an empty domain")
        domain = tuple(unpack_bound(cursor, dim) for dim in schema.dims) if has_domain else None
        n_sparse_tiles, last_tile_cells = cursor.u64(), cursor.u64()
        slots = Slots(
            len(schema.attrs),
            len(schema.dims),
            version >= versions.TIMESTAMPS and cursor.flag("the flag for timestamps"),
            version >= versions.DELETE_METADATA and cursor.flag("the flag for delete metadata"),
        )
        n_files, n_var = _entries(slots, version)
        sections = [section for section in Section if version >= _SINCE.get(section, 0)]
        lengths = [_length(section, n_files, n_var) for section in sections]
        with_validity = version >= versions.VALIDITY
        numbers = iter(_u64s(cursor, n_files + n_var + n_files * with_validity + sum(lengths)))
        sizes, var_sizes = tuple(islice(numbers, n_files)), tuple(islice(numbers, n_var))
        validity_sizes = tuple(islice(numbers, n_files)) if with_validity else (0,) * n_files
        offsets = {
            section: tuple(islice(numbers, length)) for section, length in zip(sections, lengths, strict=True)
        }
        bounds = (
            _global_order(cursor, slots) if version >= versions.GLOBAL_ORDER_BOUNDS and not dense else None
        )
        footer = cls(
            version, name, dense, domain, n_sparse_tiles, last_tile_cells, slots, sizes, var_sizes,
            validity_sizes, offsets, bounds,
        )  # fmt: skip
        footer.check(schema)
        return footer

    def check(self, schema: Schema) -> None:
        """That the counts can be true of this schema, before anyone allocates by them."""
        if self.dense:
            self._check_grid(schema)
        elif self.n_sparse_tiles and not 0 < self.last_tile_cells <= schema.capacity:
            raise CorruptionError(
                f"the last tile has {self.last_tile_cells} cells; the capacity is {schema.capacity}"
            )
        # Every tile takes eight bytes at least of every file (its chunk count).
        largest, n_tiles = max(self.file_sizes, default=0), self.n_tiles(schema)
        if n_tiles * 8 > largest:
            raise CorruptionError(f"{n_tiles} tiles cannot be stored in {largest} bytes")
        if self.n_cells(schema) > _MOST_CELLS:
            raise CorruptionError(f"a fragment of {self.n_cells(schema)} cells")

    def _check_grid(self, schema: Schema) -> None:
        if schema.sparse:
            raise CorruptionError("a dense fragment in a sparse array")
        grid = tile_grid(self.domain, schema)
        for (low, high), (first, last), dim in zip(self.domain or (), grid, schema.dims, strict=False):
            n_tiles = dim.n_tiles or 1
            if low > high or first < 0 or last >= n_tiles:
                raise CorruptionError(
                    f"{dim.name!r} from {low} to {high}: tiles {first} to {last}, of which it has {n_tiles}"
                )


def schema_name(stored: Bytes) -> str | None:
    """The schema that a footer of any version asks for; None before format 10."""
    cursor = Cursor(stored)
    version = versions.check(cursor.u32(), "a fragment", offset=0)
    return cursor.str64() if version >= versions.SCHEMA_FOLDER else None


def footer_size(version: int, schema: Schema) -> int | None:
    """Bytes of a footer of before format 10, or None where the file ends with the size of its footer."""
    if version >= versions.SCHEMA_FOLDER:
        return None
    if version >= versions.SPLIT_DIMENSIONS and any(dim.is_var for dim in schema.dims):
        return None
    n_files, n_var = _entries(Slots(len(schema.attrs), len(schema.dims)), version)
    validity = n_files if version >= versions.VALIDITY else 0
    domain = sum(2 * dim.datatype.size for dim in schema.dims)
    return (
        4 + 1 + 1 + domain + 16 + 8 * (n_files + n_var + validity) + 8 + 8 * (n_files + 2 * n_var + validity)
    )


def split_footer(tail: Bytes, version: int, schema: Schema | None) -> Bytes | int:
    """The footer out of the last bytes of a metadata file, or how many bytes of tail are needed for it.

    `schema` is asked for before format 10 only, where no file says how long its footer is.
    """
    size = footer_size(version, schema) if schema is not None and version < versions.SCHEMA_FOLDER else None
    closing = 0 if size is not None else 8
    if size is None:
        if len(tail) < 8:
            return 8
        size = int(U64.unpack(memoryview(tail)[-8:])[0])
    needed = size + closing
    if needed > len(tail):
        return needed
    return memoryview(tail)[len(tail) - needed : len(tail) - closing]


def tile_grid(domain: tuple[Bound, ...] | None, schema: Schema) -> tuple[tuple[int, int], ...]:
    """First and last space tile, per dimension, that a dense box touches."""
    if domain is None:
        return ()
    grid = []
    for (low, high), dim in zip(domain, schema.dims, strict=True):
        assert dim.domain is not None
        first = int(dim.domain[0])
        grid.append(((low - first) // dim.extent, (high - first) // dim.extent))
    return tuple(grid)


def tile_count(domain: tuple[Bound, ...] | None, schema: Schema) -> int:
    if domain is None:
        return 0
    return prod([max(0, last - first + 1) for first, last in tile_grid(domain, schema)])


def dense_tile_cells(schema: Schema) -> int:
    return prod([dim.extent for dim in schema.dims])


def _entries(slots: Slots, version: int) -> tuple[int, int]:
    """Entries of the arrays per file and per var file."""
    if version < versions.SPLIT_DIMENSIONS:
        return slots.n_attrs + 1, slots.n_attrs
    return slots.count, slots.count


def _length(section: Section, n_files: int, n_var: int) -> int:
    if section in _SINGLE:
        return 1
    return n_var if section in {Section.VAR_OFFSETS, Section.VAR_SIZES} else n_files


def _u64s(cursor: Cursor, count: int) -> tuple[int, ...]:
    return tuple(cursor.array("<u8", count).tolist())


def _global_order(cursor: Cursor, slots: Slots) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    found = None
    for _ in range(cursor.count32(12, "footer extensions") if cursor.remaining else 0):
        kind, size = cursor.u64(), cursor.u32()
        extension = Cursor(cursor.take(size), base=cursor.offset - size)
        if kind == 0:
            found = (_u64s(extension, slots.n_dims), _u64s(extension, slots.n_dims))
    return found
