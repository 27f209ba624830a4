"""Attributes. Spec: format_spec/array_schema.md.

    str32 name · u8 datatype · u32 values per cell · pipeline
    since 6    u64 size · fill value
    since 7    u8 nullable · u8 validity of the fill value
    since 17   u8 order
    since 20   str32 enumeration, empty for none

# Quirk: the specification leaves out the enumeration. An empty attribute name is legal.
"""

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from terrazzo.errors import CorruptionError, InvalidRequestError
from terrazzo.format.datatypes import VAR, Datatype
from terrazzo.format.domain import as_number, as_pipeline, check_name
from terrazzo.format.filters.pipeline import Pipeline
from terrazzo.format.orders import DataOrder
from terrazzo.format.versions import ATTRIBUTE_ORDER, ENUMERATIONS, FILL_VALUE, NULLABLE, WRITTEN
from terrazzo.format.wire import Cursor, Writer

_ENCODINGS = {
    Datatype.STRING_UTF16: "utf-16-le", Datatype.STRING_UCS2: "utf-16-le",
    Datatype.STRING_UTF32: "utf-32-le", Datatype.STRING_UCS4: "utf-32-le",
}  # fmt: skip
_BYTES = frozenset({Datatype.CHAR, Datatype.BLOB, Datatype.GEOM_WKB, Datatype.GEOM_WKT, Datatype.ANY})


@dataclass(frozen=True, slots=True, init=False)
class Attr:
    """An attribute. Text and bytes vary in length unless `values_per_cell` or `var=False` says otherwise.

    `fill` is what cells read as that no fragment holds: a value, or the bytes of one cell.
    """

    name: str
    datatype: Datatype
    var: bool
    nullable: bool
    filters: Pipeline
    fill: bytes
    fill_valid: bool
    enum: str | None
    order: DataOrder
    values_per_cell: int

    def __init__(
        self,
        name: str,
        datatype: Any,
        *,
        var: bool | None = None,
        nullable: bool = False,
        filters: Any = (),
        fill: Any = None,
        fill_valid: bool = False,
        enum: str | None = None,
        order: Any = DataOrder.UNORDERED,
        values_per_cell: int | None = None,
    ) -> None:
        check_name(name, "an attribute")
        if name.startswith("__"):
            raise InvalidRequestError(f"attribute {name!r}: names that begin with __ are reserved")
        resolved = Datatype.parse(datatype)
        if var is None:
            var = values_per_cell is None and _is_bytes(resolved)
        count = 1 if values_per_cell is None else values_per_cell
        if not 1 <= count < VAR or (var and count != 1):
            raise InvalidRequestError(
                f"attribute {name!r}: {count} values per cell" + (", yet var" if var else "")
            )
        if resolved is Datatype.ANY and not var:
            raise InvalidRequestError(f"attribute {name!r}: cells of ANY vary in length")
        if enum is not None and (var or count != 1 or not (resolved.is_integer or resolved is Datatype.BOOL)):
            raise InvalidRequestError(
                f"attribute {name!r} holds indices into {enum!r}: it needs one whole number per cell"
            )
        stored = _fill_bytes(name, fill, resolved, count, var=var)
        self._fill(
            name,
            resolved,
            var,
            nullable,
            as_pipeline(filters),
            stored,
            fill_valid,
            enum,
            DataOrder.parse(order),
            count,
        )

    def _fill(self, *values: object) -> None:
        for field, value in zip(fields(Attr), values, strict=True):
            object.__setattr__(self, field.name, value)

    @property
    def is_var(self) -> bool:
        return self.var

    @property
    def cell_val_num(self) -> int:
        return VAR if self.var else self.values_per_cell

    @property
    def cell_size(self) -> int | None:
        """Bytes of a cell, or None where they vary."""
        return None if self.var else self.values_per_cell * self.datatype.size

    def pack(self, writer: Writer, version: int = WRITTEN) -> None:
        writer.str32(self.name)
        writer.u8(self.datatype)
        writer.u32(self.cell_val_num)
        self.filters.pack(writer, version)
        if version >= FILL_VALUE:
            writer.bytes64(self.fill)
        if version >= NULLABLE:
            writer.u8(self.nullable)
            writer.u8(self.fill_valid)
        if version >= ATTRIBUTE_ORDER:
            writer.u8(self.order)
        if version >= ENUMERATIONS:
            writer.str32(self.enum or "")

    @classmethod
    def unpack(cls, cursor: Cursor, version: int) -> Self:
        name = cursor.str32()
        start = cursor.offset
        datatype = Datatype.of_code(cursor.u8(), offset=start)
        cell_val_num = cursor.u32()
        if not cell_val_num:
            raise CorruptionError(f"attribute {name!r} has no values per cell", offset=start + 1)
        var = cell_val_num == VAR
        count = 1 if var else cell_val_num
        filters = Pipeline.unpack(cursor, version)
        fill = _unpack_fill(cursor, name, datatype, count, var=var) if version >= FILL_VALUE else b""
        nullable = version >= NULLABLE and cursor.flag("nullable")
        fill_valid = version >= NULLABLE and cursor.flag("validity of the fill value")
        order = DataOrder.UNORDERED
        if version >= ATTRIBUTE_ORDER:
            order = DataOrder.of_code(cursor.u8(), offset=cursor.offset - 1)
        enum = (cursor.str32() or None) if version >= ENUMERATIONS else None
        if version < FILL_VALUE and count * datatype.size > cursor.remaining + (1 << 20):
            raise CorruptionError(f"attribute {name!r} has {count} values per cell", offset=start + 1)
        fill = fill or datatype.default_fill * count
        attr = object.__new__(cls)
        attr._fill(name, datatype, var, nullable, filters, fill, fill_valid, enum, order, count)
        return attr


def _is_bytes(datatype: Datatype) -> bool:
    return datatype.is_string or datatype in _BYTES


def _fill_bytes(name: str, fill: Any, datatype: Datatype, count: int, *, var: bool) -> bytes:
    stored = datatype.default_fill * count if fill is None else _value_bytes(name, fill, datatype, count)
    expected = count * datatype.size
    if not stored or len(stored) % datatype.size or (not var and len(stored) != expected):
        wanted = "one or more whole values" if var else f"{expected} bytes"
        raise InvalidRequestError(f"the fill value of {name!r} has {len(stored)} bytes; {wanted} expected")
    return stored


def _value_bytes(name: str, value: Any, datatype: Datatype, count: int) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str) and _is_bytes(datatype):
        return value.encode(_ENCODINGS.get(datatype, "utf-8"))
    what = f"the fill value of {name!r}"
    if isinstance(value, (list, tuple, np.ndarray)):
        return b"".join(_number_bytes(item, datatype, what) for item in value)
    return _number_bytes(value, datatype, what) * count


def _number_bytes(value: Any, datatype: Datatype, what: str) -> bytes:
    if datatype.is_float and isinstance(value, (float, np.floating)) and not np.isfinite(value):
        return np.array(value, datatype.dtype).tobytes()  # NaN and infinities fill as well as numbers do
    return np.array(as_number(value, datatype, what), datatype.dtype).tobytes()


def _unpack_fill(cursor: Cursor, name: str, datatype: Datatype, count: int, *, var: bool) -> bytes:
    start = cursor.offset
    fill = cursor.bytes64()
    if not fill or (not var and len(fill) != count * datatype.size):
        raise CorruptionError(f"the fill value of {name!r} has {len(fill)} bytes", offset=start)
    return fill
