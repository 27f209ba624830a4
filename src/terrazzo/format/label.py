"""Dimension labels, as a schema names them. Spec: format_spec/array_schema.md.

    u32 dimension · str32 name · u8 relative · str64 uri · str32 attribute
    u8 order · u8 datatype · u32 values per cell · u8 external

# Quirk: the specification has the fields in another order, and a domain that is not stored.
"""

from dataclasses import dataclass
from typing import Self

from terrazzo.format.datatypes import Datatype
from terrazzo.format.orders import DataOrder
from terrazzo.format.wire import Cursor, Writer

SMALLEST = 28


@dataclass(frozen=True, slots=True)
class DimensionLabel:
    """A dense array of its own, under `uri`, that gives the coordinates of a dimension other names."""

    dim_index: int
    name: str
    uri: str
    attr: str
    order: DataOrder
    datatype: Datatype
    cell_val_num: int = 1
    relative: bool = True
    external: bool = False

    def pack(self, writer: Writer) -> None:
        writer.u32(self.dim_index)
        writer.str32(self.name)
        writer.u8(self.relative)
        writer.str64(self.uri)
        writer.str32(self.attr)
        writer.u8(self.order)
        writer.u8(self.datatype)
        writer.u32(self.cell_val_num)
        writer.u8(self.external)

    @classmethod
    def unpack(cls, cursor: Cursor) -> Self:
        dim_index, name = cursor.u32(), cursor.str32()
        relative, uri, attr = cursor.flag("relative"), cursor.str64(), cursor.str32()
        order = DataOrder.of_code(cursor.u8(), offset=cursor.offset - 1)
        datatype = Datatype.of_code(cursor.u8(), offset=cursor.offset - 1)
        cell_val_num, external = cursor.u32(), cursor.flag("external")
        return cls(dim_index, name, uri, attr, order, datatype, cell_val_num, relative, external)
