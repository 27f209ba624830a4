"""Fields as Arrow types, columns as Arrow arrays. The way back is in intake.py.

numbers                         the same number, unsigned stays unsigned
BOOL                            bool
DATETIME_SEC … NS               timestamp[s … ns]; DATETIME_DAY is date32; "not a time" is null
TIME_SEC … NS                   duration[s … ns], likewise
other DATETIME_* and TIME_*     int64, the datatype named in the field's metadata
ASCII, UTF-8 of any length      string
other bytes of any length       binary; of fixed length k, binary(k)
numbers of any length           list; k of them per cell, fixed_size_list(k)
enumerations                    dictionary of the attribute's integers and the labels
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from terrazzo.engine.buffers import bitmap, bools, numbers
from terrazzo.engine.columns import Column
from terrazzo.errors import CorruptionError, InvalidRequestError
from terrazzo.format.attribute import Attr
from terrazzo.format.datatypes import Datatype
from terrazzo.format.domain import Dim
from terrazzo.format.enumeration import Enumeration
from terrazzo.format.schema import Schema

Field = Attr | Dim

_UNITS = {"SEC": "s", "MS": "ms", "US": "us", "NS": "ns"}
_NUMBERS = {
    Datatype.INT8: pa.int8(), Datatype.INT16: pa.int16(), Datatype.INT32: pa.int32(), Datatype.INT64: pa.int64(),
    Datatype.UINT8: pa.uint8(), Datatype.UINT16: pa.uint16(), Datatype.UINT32: pa.uint32(),
    Datatype.UINT64: pa.uint64(), Datatype.FLOAT32: pa.float32(), Datatype.FLOAT64: pa.float64(),
}  # fmt: skip
NOT_A_TIME = np.iinfo(np.int64).min
"""The count that stands for no time at all, here as in numpy."""


def value_type(datatype: Datatype) -> Any:
    """The Arrow type of one number, or None for bytes and text."""
    if datatype in _NUMBERS:
        return _NUMBERS[datatype]
    if datatype is Datatype.BOOL:
        return pa.bool_()
    if datatype is Datatype.DATETIME_DAY:
        return pa.date32()
    unit = _UNITS.get(datatype.name.partition("_")[2])
    if datatype.is_datetime:
        return pa.timestamp(unit) if unit else pa.int64()
    if datatype.is_time:
        return pa.duration(unit) if unit else pa.int64()
    return None


def _index_type(datatype: Datatype) -> Any:
    return pa.uint8() if datatype is Datatype.BOOL else _NUMBERS[datatype]


def has_not_a_time(field: Field) -> bool:
    """Whether cells of the field become times of Arrow, in which "not a time" is null."""
    temporal = field.datatype.is_datetime or field.datatype.is_time
    return temporal and isinstance(field, Attr) and value_type(field.datatype) != pa.int64()


def arrow_type(field: Field, schema: Schema) -> Any:
    enum = enumeration_of(field, schema)
    if enum is not None:
        return pa.dictionary(_index_type(field.datatype), enum.values.type, ordered=enum.ordered)
    single = value_type(field.datatype)
    if field.is_var:
        if single is not None:
            return pa.list_(single)
        return pa.string() if field.datatype in {Datatype.STRING_ASCII, Datatype.STRING_UTF8} else pa.binary()
    if field.cell_val_num == 1 and single is not None:
        return single
    if single is not None:
        return pa.list_(single, field.cell_val_num)
    return pa.binary(field.cell_val_num * field.datatype.size)


def arrow_field(field: Field, schema: Schema) -> Any:
    metadata = None
    if (field.datatype.is_datetime or field.datatype.is_time) and value_type(field.datatype) == pa.int64():
        metadata = {b"tiledb.datatype": field.datatype.name.encode()}
    nullable = isinstance(field, Attr) and field.nullable
    # A time that is none, and an index that has no label, have no other form in Arrow than null.
    nullable = nullable or has_not_a_time(field) or enumeration_of(field, schema) is not None
    return pa.field(field.name, arrow_type(field, schema), nullable=nullable, metadata=metadata)


def to_arrow(column: Column, field: Field, schema: Schema) -> Any:
    """The column as an Arrow array of `arrow_type(field, schema)`."""
    enum = enumeration_of(field, schema)
    if enum is not None:
        return _labelled(column, enum)
    if column.is_var:
        return _var_to_arrow(column, field)
    single = value_type(field.datatype)
    if field.cell_val_num == 1 and single is not None:
        return _numbers(column.values, single, column.validity)
    n = len(column)
    if single is not None:
        flat = _numbers(np.ascontiguousarray(column.values).reshape(-1), single, None)
        return pa.FixedSizeListArray.from_arrays(
            flat, field.cell_val_num, mask=None if column.validity is None else bools(~column.validity)
        )
    width = field.cell_val_num * field.datatype.size
    return pa.Array.from_buffers(
        pa.binary(width), n, [bitmap(column.validity), pa.py_buffer(np.ascontiguousarray(column.values))]
    )


def _numbers(values: NDArray[Any], kind: Any, validity: NDArray[np.bool_] | None) -> Any:
    if kind == pa.bool_():
        return bools(values != 0, validity)
    if kind == pa.date32():
        absent = values == NOT_A_TIME
        if np.any((values != values.astype(np.int32)) & ~absent):
            raise InvalidRequestError("a day lies outside the range of Arrow's date32")
        missing = absent if validity is None else absent | ~validity
        return numbers(np.where(absent, 0, values).astype(np.int32), pa.date32(), ~missing)
    if pa.types.is_temporal(kind):
        present = values != NOT_A_TIME
        if not present.all():
            validity = present if validity is None else validity & present
    return numbers(values, kind, validity)


def _labelled(column: Column, enum: Enumeration) -> Any:
    index, labels = column.values, enum.values
    known = (index < len(labels)) & (index >= 0)  # an index without a label, such as a fill value, is null
    if column.validity is not None:
        known &= column.validity
    indices = numbers(np.where(known, index, 0).astype(index.dtype), None, known)
    return pa.DictionaryArray.from_arrays(indices, labels, ordered=enum.ordered)


def _var_to_arrow(column: Column, field: Field) -> Any:
    assert column.offsets is not None
    single = value_type(field.datatype)
    size = field.datatype.size
    starts = column.offsets // size if single is not None and size > 1 else column.offsets
    if starts[-1] > np.iinfo(np.int32).max:
        raise InvalidRequestError(
            f"column {field.name!r} holds more than 2 GiB in one batch; use scan() with less memory"
        )
    offsets = pa.py_buffer(starts.astype(np.int32))
    n = len(column)
    if single is not None:
        items = _numbers(np.ascontiguousarray(column.values).view(field.datatype.dtype), single, None)
        return pa.Array.from_buffers(
            pa.list_(single), n, [bitmap(column.validity), offsets], children=[items]
        )
    text = field.datatype in {Datatype.STRING_ASCII, Datatype.STRING_UTF8}
    array = pa.Array.from_buffers(
        pa.string() if text else pa.binary(),
        n,
        [bitmap(column.validity), offsets, pa.py_buffer(column.values)],
    )
    if text and len(column.values) and column.values.max() > 127:
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            raise CorruptionError(f"column {field.name!r} holds text that is not UTF-8") from None
    return array


def enumeration_of(field: Field, schema: Schema) -> Enumeration | None:
    name = getattr(field, "enum", None)
    return schema.enums.get(name) if name else None
