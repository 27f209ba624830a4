"""Array schema: dimensions, attributes, and how cells are ordered and filtered.
Spec: format_spec/array_schema.md.

    u32 version
    u8 allows duplicates       since 5
    u8 kind of array           0 dense, 1 sparse
    u8 tile order · u8 cell order · u64 capacity
    pipeline of coordinates · of offsets · of validity (since 7)
    [u8 datatype, before 5] · u32 count · dimensions
    u32 count · attributes
    u32 count · labels         since 18
    u32 count · per enumeration (str32 name, str32 file name)    since 20
    current domain             since 22

# Quirk: libtiledb keeps enumerations in a hash map, so their order means nothing; it is kept all the same.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from terrazzo.errors import CorruptionError, InvalidRequestError
from terrazzo.format.attribute import Attr
from terrazzo.format.current_domain import (
    Range,
    as_current_domain,
    pack_current_domain,
    unpack_current_domain,
)
from terrazzo.format.datatypes import Datatype
from terrazzo.format.domain import Dim, as_pipeline
from terrazzo.format.enumeration import Enumeration
from terrazzo.format.filters.compress import Zstd
from terrazzo.format.filters.pipeline import Pipeline
from terrazzo.format.filters.rle import Rle
from terrazzo.format.label import SMALLEST as SMALLEST_LABEL
from terrazzo.format.label import DimensionLabel
from terrazzo.format.orders import Layout
from terrazzo.format.schema_text import describe
from terrazzo.format.versions import (
    ALLOWS_DUPLICATES,
    CURRENT_DOMAIN,
    DIMENSION_LABELS,
    ENUMERATIONS,
    FILL_VALUE,
    NULLABLE,
    SPLIT_DIMENSIONS,
    WRITTEN,
    check,
)
from terrazzo.format.wire import Bytes, Cursor, Writer

Field = Dim | Attr
_F = TypeVar("_F", Dim, Attr, Field)

DEFAULT_CAPACITY = 10_000
_ZSTD = Pipeline((Zstd(-1),))
_RLE = Pipeline((Rle(-1),))
_MOST_HILBERT_DIMS = 15
_LARGEST_FILLS = 16 << 20


@dataclass(frozen=True, slots=True, init=False)
class Schema:
    """What an array holds. Immutable: evolution makes another one."""

    dims: tuple[Dim, ...]
    attrs: tuple[Attr, ...]
    enums: dict[str, Enumeration] = dataclasses.field(hash=False)  # values; the schema's file has only names
    sparse: bool
    allows_duplicates: bool
    capacity: int
    cell_order: Layout
    tile_order: Layout
    coords_filters: Pipeline
    offsets_filters: Pipeline
    validity_filters: Pipeline
    current_domain: tuple[Range, ...] | None
    labels: tuple[DimensionLabel, ...]
    enum_files: dict[str, str] = dataclasses.field(hash=False)  # by enumeration, in the order stored
    version: int

    def __init__(
        self,
        dims: Iterable[Dim],
        attrs: Iterable[Attr],
        *,
        enums: Mapping[str, Any] | Iterable[Enumeration] = (),
        sparse: bool = True,
        allows_duplicates: bool = False,
        capacity: int = DEFAULT_CAPACITY,
        cell_order: Any = Layout.ROW_MAJOR,
        tile_order: Any = Layout.ROW_MAJOR,
        coords_filters: Any = _ZSTD,
        offsets_filters: Any = _ZSTD,
        validity_filters: Any = _RLE,
        current_domain: Any = None,
        labels: Iterable[DimensionLabel] = (),
        enum_files: Mapping[str, str] | None = None,
        version: int = WRITTEN,
    ) -> None:
        """`enums` maps names to values, or lists enumerations; `current_domain` maps dimensions to ranges."""
        dims = tuple(dims)
        values = (
            dims, tuple(attrs), _as_enums(enums), sparse, allows_duplicates, capacity,
            Layout.parse(cell_order), Layout.parse(tile_order),
            as_pipeline(coords_filters), as_pipeline(offsets_filters), as_pipeline(validity_filters),
            as_current_domain(current_domain, dims), tuple(labels), dict(enum_files or {}), version,
        )  # fmt: skip
        for each, value in zip(dataclasses.fields(Schema), values, strict=True):
            object.__setattr__(self, each.name, value)
        _check(self)

    @property
    def dense(self) -> bool:
        return not self.sparse

    @property
    def fields(self) -> tuple[Field, ...]:
        """Dimensions, then attributes."""
        return (*self.dims, *self.attrs)

    def dim(self, name: str) -> Dim:
        return _named(name, self.dims, "dimension")

    def attr(self, name: str) -> Attr:
        return _named(name, self.attrs, "attribute")

    def field(self, name: str) -> Field:
        return _named(name, self.fields, "field")

    def has(self, name: str) -> bool:
        return any(each.name == name for each in self.fields)

    def filters_of(self, which: "Field | str") -> Pipeline:
        """The filters of a field's values; its offsets and validity have those of the schema."""
        chosen = self.field(which) if isinstance(which, str) else which
        # Quirk: a dimension without filters of its own is filtered as all coordinates are. Not so under a
        # schema of before format 5, whose filters for coordinates are for those of all dimensions together:
        # fragments that a later release added have files per dimension, and those are not filtered at all.
        if isinstance(chosen, Dim) and not chosen.filters.filters and self.version >= SPLIT_DIMENSIONS:
            return self.coords_filters
        return chosen.filters

    def enum_of(self, name: str) -> Enumeration | None:
        """The enumeration of an attribute, once its values are attached."""
        enum = self.attr(name).enum
        if enum is not None and enum not in self.enums:
            raise InvalidRequestError(f"the values of enumeration {enum!r} were not read")
        return None if enum is None else self.enums[enum]

    def pack(self) -> bytes:
        if missing := [name for name in self.enums if name not in self.enum_files]:
            raise InvalidRequestError(f"no file is named for enumeration {', '.join(missing)}")
        version, writer = self.version, Writer()
        writer.u32(version)
        if version >= ALLOWS_DUPLICATES:
            writer.u8(self.allows_duplicates)
        writer.u8(self.sparse)
        writer.u8(self.tile_order)
        writer.u8(self.cell_order)
        writer.u64(self.capacity)
        self.coords_filters.pack(writer, version)
        self.offsets_filters.pack(writer, version)
        if version >= NULLABLE:
            self.validity_filters.pack(writer, version)
        self._pack_lists(writer)
        return bytes(writer)

    def _pack_lists(self, writer: Writer) -> None:
        if self.version < SPLIT_DIMENSIONS:
            writer.u8(self.dims[0].datatype)
        writer.u32(len(self.dims))
        for dim in self.dims:
            dim.pack(writer, self.version)
        writer.u32(len(self.attrs))
        for attr in self.attrs:
            attr.pack(writer, self.version)
        if self.version >= DIMENSION_LABELS:
            writer.u32(len(self.labels))
            for label in self.labels:
                label.pack(writer)
        if self.version >= ENUMERATIONS:
            writer.u32(len(self.enum_files))
            for name, file in self.enum_files.items():
                writer.str32(name)
                writer.str32(file)
        if self.version >= CURRENT_DOMAIN:
            pack_current_domain(self.current_domain, self.dims, writer)

    @classmethod
    def unpack(cls, body: Bytes) -> Self:
        cursor = Cursor(body)
        version = check(cursor.u32(), "the schema", offset=0)
        duplicates = version >= ALLOWS_DUPLICATES and cursor.flag("allows duplicates")
        sparse = cursor.flag("kind of array")
        tile_order = Layout.of_code(cursor.u8(), offset=cursor.offset - 1)
        cell_order = Layout.of_code(cursor.u8(), offset=cursor.offset - 1)
        capacity = cursor.u64()
        coords, offsets = Pipeline.unpack(cursor, version), Pipeline.unpack(cursor, version)
        validity = Pipeline.unpack(cursor, version) if version >= NULLABLE else _RLE
        dims, attrs = _unpack_dims(cursor, version), _unpack_attrs(cursor, version)
        labels: tuple[DimensionLabel, ...] = ()
        if version >= DIMENSION_LABELS:
            labels = tuple(
                DimensionLabel.unpack(cursor) for _ in range(cursor.count32(SMALLEST_LABEL, "labels"))
            )
        enum_files: dict[str, str] = {}
        if version >= ENUMERATIONS:
            enum_files = {cursor.str32(): cursor.str32() for _ in range(cursor.count32(8, "enumerations"))}
        current_domain = unpack_current_domain(cursor, dims) if version >= CURRENT_DOMAIN else None
        if version <= WRITTEN:  # what a newer one adds at the end does not change what stands before
            cursor.expect_end()
        try:
            return cls(
                dims, attrs, sparse=sparse, allows_duplicates=duplicates, capacity=capacity,
                cell_order=cell_order, tile_order=tile_order, coords_filters=coords, offsets_filters=offsets,
                validity_filters=validity, current_domain=current_domain, labels=labels,
                enum_files=enum_files, version=version,
            )  # fmt: skip
        except InvalidRequestError as error:
            raise CorruptionError(f"the schema makes no sense: {error}") from None

    def describe(self) -> str:
        """A few lines for people: the array, then a line for each dimension and attribute."""
        return describe(self)

    def __str__(self) -> str:
        return self.describe()


def _as_enums(given: Mapping[str, Any] | Iterable[Enumeration]) -> dict[str, Enumeration]:
    if not isinstance(given, Mapping):
        return {enum.name: enum for enum in given}
    return {
        name: values if isinstance(values, Enumeration) else Enumeration(name, values)
        for name, values in given.items()
    }


def _named(name: str, among: tuple[_F, ...], what: str) -> _F:
    for each in among:
        if each.name == name:
            return each
    names = ", ".join(repr(each.name) for each in among)
    raise InvalidRequestError(f"no {what} {name!r}; the schema has {names or 'none'}")


def _check(schema: Schema) -> None:
    """What holds for every array, new or read."""
    if not schema.dims:
        raise InvalidRequestError("an array needs at least one dimension")
    names = [each.name for each in (*schema.fields, *schema.labels)]
    if len(set(names)) != len(names):
        twice = sorted(repr(name) for name, count in Counter(names).items() if count > 1)
        raise InvalidRequestError(f"{', '.join(twice)}: the name of more than one dimension or attribute")
    if not 0 < schema.capacity < 1 << 64:
        raise InvalidRequestError(f"a tile cannot hold {schema.capacity} cells")
    if schema.tile_order not in {Layout.ROW_MAJOR, Layout.COL_MAJOR}:
        raise InvalidRequestError(f"tiles cannot be in {schema.tile_order} order")
    if schema.cell_order not in {Layout.ROW_MAJOR, Layout.COL_MAJOR, Layout.HILBERT}:
        raise InvalidRequestError(f"cells cannot be in {schema.cell_order} order")
    if schema.cell_order is Layout.HILBERT and len(schema.dims) > _MOST_HILBERT_DIMS:
        raise InvalidRequestError(f"Hilbert order takes up to {_MOST_HILBERT_DIMS} dimensions")
    if schema.dense:
        _check_dense(schema)
    for label in schema.labels:
        if label.dim_index >= len(schema.dims):
            raise InvalidRequestError(f"label {label.name!r} names dimension {label.dim_index}")
    known = schema.enums.keys() | schema.enum_files.keys()
    for attr in schema.attrs:
        if attr.enum is not None and attr.enum not in known:
            raise InvalidRequestError(
                f"attribute {attr.name!r} names enumeration {attr.enum!r}, which is not there"
            )
    for name, enum in schema.enums.items():
        if enum.name != name:
            raise InvalidRequestError(f"enumeration {enum.name!r} is given as {name!r}")


def _check_dense(schema: Schema) -> None:
    if schema.allows_duplicates:
        raise InvalidRequestError("a dense array has one cell at each place: it cannot allow duplicates")
    if schema.cell_order is Layout.HILBERT:
        raise InvalidRequestError("Hilbert order is for sparse arrays")
    if len({dim.datatype for dim in schema.dims}) > 1:
        raise InvalidRequestError("the dimensions of a dense array have one and the same datatype")
    if schema.dims[0].datatype.is_string or schema.dims[0].datatype.is_float:
        raise InvalidRequestError(
            f"the dimensions of a dense array are whole numbers or dates, not {schema.dims[0].datatype.name}"
        )


def _unpack_dims(cursor: Cursor, version: int) -> tuple[Dim, ...]:
    shared = None
    if version < SPLIT_DIMENSIONS:
        shared = Datatype.of_code(cursor.u8(), offset=cursor.offset - 1)
    return tuple(Dim.unpack(cursor, version, shared) for _ in range(cursor.count32(7, "dimensions")))


def _unpack_attrs(cursor: Cursor, version: int) -> tuple[Attr, ...]:
    attrs, fills = [], 0
    for _ in range(cursor.count32(17, "attributes")):
        attrs.append(Attr.unpack(cursor, version))
        fills += len(attrs[-1].fill)
        if (
            version < FILL_VALUE and fills > _LARGEST_FILLS
        ):  # these take memory that no stored bytes stand for
            raise CorruptionError(
                f"{len(attrs)} attributes have cells of {fills} bytes", offset=cursor.offset
            )
    return tuple(attrs)
