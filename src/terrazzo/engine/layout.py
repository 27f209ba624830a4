"""How fragments of one schema and format store their fields: files, slots and codecs, worked out once for all of them."""

from dataclasses import dataclass

from terrazzo.format import keys, versions
from terrazzo.format.attribute import Attr
from terrazzo.format.datatypes import Datatype
from terrazzo.format.domain import Dim
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.fragment import Footer, Section, Slots
from terrazzo.format.schema import Schema
from terrazzo.format.tile import TileCodec

TIMESTAMPS = "__timestamps"
DELETE_TIMESTAMPS = "__delete_timestamps"
DELETE_CONDITION = "__delete_condition_index"
_HIDDEN = {
    TIMESTAMPS: keys.TIMESTAMPS_FILE,
    DELETE_TIMESTAMPS: keys.DELETE_TIMESTAMPS_FILE,
    DELETE_CONDITION: keys.DELETE_CONDITIONS_FILE,
}


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A data file of a field, the same in every fragment."""

    name: str
    codec: TileCodec
    section: Section  # which says where its tiles begin

    def size(self, footer: Footer, slot: int) -> int:
        match self.section:
            case Section.VAR_OFFSETS:
                return footer.var_file_sizes[slot]
            case Section.VALIDITY_OFFSETS:
                return footer.validity_file_sizes[slot]
        return footer.file_sizes[slot]


@dataclass(frozen=True, slots=True)
class StoredField:
    field: Attr | Dim | None  # None: times and delete metadata, which no schema lists
    slot: int
    datatype: Datatype
    values_per_cell: int
    cell_size: int  # bytes of a cell of fixed size
    is_var: bool
    nullable: bool
    joint: bool  # all dimensions share a file, as before format 5
    files: tuple[StoredFile, ...]  # values or offsets; then the values of a var field; then the validity


class Layout:
    """The fields of fragments that share schema, format and slots, each worked out when it is asked for."""

    def __init__(self, schema: Schema, version: int, slots: Slots, cipher: Aes256Gcm | None) -> None:
        self.schema, self.version, self.slots, self.cipher = schema, version, slots, cipher
        self._known: dict[str, StoredField] = {}

    def has(self, name: str) -> bool:
        if name == TIMESTAMPS:
            return self.slots.has_timestamps
        if name in _HIDDEN:
            return self.slots.has_delete_metadata
        return self.schema.has(name)

    def field(self, name: str) -> StoredField:
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = self._hidden(name) if name in _HIDDEN else self._find(name)
        return found

    def _hidden(self, name: str) -> StoredField:
        slot = {
            TIMESTAMPS: self.slots.timestamps,
            DELETE_TIMESTAMPS: self.slots.delete_timestamps,
            DELETE_CONDITION: self.slots.delete_condition,
        }[name]
        codec = TileCodec(self.schema.coords_filters, Datatype.UINT64, 8, self.version, cipher=self.cipher)
        file = StoredFile(_HIDDEN[name], codec, Section.TILE_OFFSETS)
        return StoredField(
            None, slot, Datatype.UINT64, 1, 8, is_var=False, nullable=False, joint=False, files=(file,)
        )

    def _find(self, name: str) -> StoredField:
        schema, version, cipher = self.schema, self.version, self.cipher
        field = schema.field(name)
        joint = isinstance(field, Dim) and version < versions.SPLIT_DIMENSIONS
        filters = schema.coords_filters if joint else schema.filters_of(field)
        if isinstance(field, Dim):
            index = schema.dims.index(field)
            names = keys.dimension_files(index, name, version)
            slot = self.slots.coords if joint else self.slots.dim(index)
        else:
            slot = schema.attrs.index(field)
            names = keys.attribute_files(slot, name, version)
        size = field.datatype.size
        if field.is_var:
            offsets = TileCodec(schema.offsets_filters, Datatype.UINT64, 8, version, cipher=cipher)
            values = TileCodec(
                filters, field.datatype, size, version, var=True, cipher=cipher, schema_version=schema.version
            )
            files = [
                StoredFile(names.fixed, offsets, Section.TILE_OFFSETS),
                StoredFile(names.var, values, Section.VAR_OFFSETS),
            ]
        else:
            cell = field.cell_val_num * size * (len(schema.dims) if joint else 1)
            codec = TileCodec(filters, field.datatype, cell, version, cipher=cipher)
            files = [StoredFile(names.fixed, codec, Section.TILE_OFFSETS)]
        nullable = isinstance(field, Attr) and field.nullable
        if nullable:
            codec = TileCodec(schema.validity_filters, Datatype.UINT8, 1, version, cipher=cipher)
            files.append(StoredFile(names.validity, codec, Section.VALIDITY_OFFSETS))
        return StoredField(
            field, slot, field.datatype, field.cell_val_num, field.cell_val_num * size, field.is_var, nullable,
            joint, tuple(files),
        )  # fmt: skip
