"""Fields as Arrow types, columns as Arrow arrays, and back.

numbers                         the same number, unsigned stays unsigned
BOOL                            bool
DATETIME_SEC … NS               timestamp[s … ns]; DATETIME_DAY is date32, its "not a time" a null
TIME_SEC … NS                   duration[s … ns]
other DATETIME_* and TIME_*     int64, the datatype named in the field's metadata
ASCII, UTF-8 of any length      string
other bytes of any length       binary; of fixed length k, binary(k)
numbers of any length           list; k of them per cell, fixed_size_list(k)
enumerations                    dictionary of the attribute's integers and the labels
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from terrazzo.engine.columns import Column, of_binary
from terrazzo.errors import CorruptionError, InvalidRequestError
from terrazzo.format.attribute import Attr
from terrazzo.format.datatypes import Datatype
from terrazzo.format.domain import Dim
from terrazzo.format.schema import Schema

Field = Attr | Dim

_UNITS = {"SEC": "s", "MS": "ms", "US": "us", "NS": "ns"}
_NUMBERS = {
    Datatype.INT8: pa.int8(), Datatype.INT16: pa.int16(), Datatype.INT32: pa.int32(), Datatype.INT64: pa.int64(),
    Datatype.UINT8: pa.uint8(), Datatype.UINT16: pa.uint16(), Datatype.UINT32: pa.uint32(),
    Datatype.UINT64: pa.uint64(), Datatype.FLOAT32: pa.float32(), Datatype.FLOAT64: pa.float64(),
}  # fmt: skip
_NOT_A_DAY = np.iinfo(np.int64).min


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


def arrow_type(field: Field, schema: Schema) -> Any:
    enum = _enumeration(field, schema)
    if enum is not None:
        return pa.dictionary(_NUMBERS[field.datatype], enum.values.type)
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
    # A day that is no day, and an index that has no label, have no other form in Arrow than null.
    nullable = nullable or field.datatype is Datatype.DATETIME_DAY or _enumeration(field, schema) is not None
    return pa.field(field.name, arrow_type(field, schema), nullable=nullable, metadata=metadata)


def to_arrow(column: Column, field: Field, schema: Schema) -> Any:
    """The column as an Arrow array of `arrow_type(field, schema)`."""
    enum = _enumeration(field, schema)
    if enum is not None:
        return _labelled(column, enum.values)
    if column.is_var:
        return _var_to_arrow(column, field)
    single = value_type(field.datatype)
    if field.cell_val_num == 1 and single is not None:
        return _numbers(column.values, single, column.validity)
    n = len(column)
    if single is not None:
        flat = _numbers(np.ascontiguousarray(column.values).reshape(-1), single, None)
        return pa.FixedSizeListArray.from_arrays(
            flat, field.cell_val_num, mask=None if column.validity is None else pa.array(~column.validity)
        )
    width = field.cell_val_num * field.datatype.size
    return pa.Array.from_buffers(
        pa.binary(width), n, [_bitmap(column.validity), pa.py_buffer(np.ascontiguousarray(column.values))]
    )


def _numbers(values: NDArray[Any], kind: Any, validity: NDArray[np.bool_] | None) -> Any:
    if kind == pa.bool_():
        return pa.array(values != 0, mask=None if validity is None else ~validity)
    if kind == pa.date32():
        absent = values == _NOT_A_DAY
        if np.any((values != values.astype(np.int32)) & ~absent):
            raise InvalidRequestError("a day lies outside the range of Arrow's date32")
        missing = absent if validity is None else absent | ~validity
        return pa.array(np.where(absent, 0, values).astype(np.int32), mask=missing).view(pa.date32())
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(values), [_bitmap(validity), pa.py_buffer(values)])


def _bitmap(validity: NDArray[np.bool_] | None) -> Any:
    if validity is None or validity.all():
        return None
    return pa.py_buffer(np.packbits(validity, bitorder="little"))


def _labelled(column: Column, labels: Any) -> Any:
    index = column.values
    known = (index < len(labels)) & (index >= 0)  # an index without a label, such as a fill value, is null
    if column.validity is not None:
        known &= column.validity
    indices = pa.array(np.where(known, index, 0).astype(index.dtype), mask=~known)
    return pa.DictionaryArray.from_arrays(indices, labels)


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
            pa.list_(single), n, [_bitmap(column.validity), offsets], children=[items]
        )
    text = field.datatype in {Datatype.STRING_ASCII, Datatype.STRING_UTF8}
    array = pa.Array.from_buffers(
        pa.string() if text else pa.binary(),
        n,
        [_bitmap(column.validity), offsets, pa.py_buffer(column.values)],
    )
    if text and len(column.values) and column.values.max() > 127:
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            raise CorruptionError(f"column {field.name!r} holds text that is not UTF-8") from None
    return array


def from_arrow(array: Any, field: Field, schema: Schema) -> Column:
    """An Arrow array (not chunked) as the column to store; InvalidRequestError where it does not fit."""
    enum = _enumeration(field, schema)
    nulls = array.null_count
    validity = None
    if isinstance(field, Attr) and field.nullable:
        validity = np.ones(len(array), bool) if not nulls else array.is_valid().to_numpy(zero_copy_only=False)
    elif nulls:
        kind = "dimension" if isinstance(field, Dim) else "attribute"
        row = int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
        raise InvalidRequestError(
            f"{kind} {field.name!r} is not nullable, but row {row} is null; fill the nulls, or declare "
            f"the attribute with nullable=True"
        )
    if enum is not None:
        return _indices(array, field, enum.values, validity)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if field.is_var:
        return _var_from_arrow(array, field, validity)
    single = value_type(field.datatype)
    if single is not None and field.cell_val_num > 1:
        flat = _cast(array, pa.list_(single, field.cell_val_num), field)
        if nulls:  # the values under a null may be anything, but they must be there
            zero = False if single == pa.bool_() else 0
            flat = flat.fill_null(pa.scalar([zero] * field.cell_val_num, flat.type))
        values = _number_values(flat.flatten(), field.datatype)
        return Column(values.reshape(-1, field.cell_val_num), None, validity)
    if single is not None:
        return Column(_number_values(_cast(array, single, field), field.datatype), None, validity)
    width = field.cell_val_num * field.datatype.size
    fixed = _cast(array, pa.binary(width), field)
    values = np.frombuffer(fixed.buffers()[1] if len(fixed) else b"", np.uint8)[fixed.offset * width :][
        : len(fixed) * width
    ]
    values = values.view(field.datatype.dtype)
    return Column(
        values.reshape(-1, field.cell_val_num) if field.cell_val_num > 1 else values, None, validity
    )


def _cast(array: Any, kind: Any, field: Field) -> Any:
    if array.type == kind:
        return array
    try:
        return pc.cast(array, kind, safe=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as problem:
        reason = str(problem).splitlines()[0]
        raise InvalidRequestError(
            f"column {field.name!r}: {array.type} does not fit {kind}: {reason}"
        ) from None


def _number_values(array: Any, datatype: Datatype) -> NDArray[Any]:
    dtype = datatype.dtype
    if datatype is Datatype.BOOL:
        return np.asarray(array.fill_null(False).to_numpy(zero_copy_only=False), np.uint8)
    if datatype is Datatype.DATETIME_DAY:
        days = array.view(pa.int32())
        return np.asarray(days.fill_null(0).to_numpy(zero_copy_only=False), np.int64)
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(len(array), dtype)
    return np.frombuffer(data, dtype)[array.offset : array.offset + len(array)]


def _indices(array: Any, field: Field, labels: Any, validity: NDArray[np.bool_] | None) -> Column:
    plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    try:
        plain = pc.cast(plain, labels.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InvalidRequestError(
            f"column {field.name!r}: {plain.type} does not fit labels of {labels.type}"
        ) from None
    index = pc.index_in(plain, value_set=labels)
    missing = index.is_null().to_numpy(zero_copy_only=False)
    if validity is not None:
        missing = missing & validity
    if missing.any():
        label = plain[int(np.argmax(missing))].as_py()
        raise InvalidRequestError(
            f"column {field.name!r}: {label!r} is no label of its enumeration; add it with "
            f"evolve(extend_enum=…) first"
        )
    return Column(
        index.fill_null(0).to_numpy(zero_copy_only=False).astype(field.datatype.dtype), None, validity
    )


def _var_from_arrow(array: Any, field: Field, validity: NDArray[np.bool_] | None) -> Column:
    single = value_type(field.datatype)
    if single is None:
        kind = array.type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or _is_bytes(kind)):
            text = field.datatype in {Datatype.STRING_ASCII, Datatype.STRING_UTF8, Datatype.CHAR}
            array = _cast(array, pa.string() if text else pa.binary(), field)
        column = of_binary(_without_nulls(array).cast(pa.large_binary()), validity)
        if field.datatype is Datatype.STRING_ASCII and len(column.values) and column.values.max() > 127:
            raise InvalidRequestError(f"column {field.name!r} is ASCII, but holds other characters")
        return column
    lists = _cast(array, pa.large_list(single), field)
    if array.null_count:
        lists = lists.fill_null(pa.scalar([], lists.type))
    flat = lists.flatten()
    if flat.null_count:
        raise InvalidRequestError(f"column {field.name!r} has nulls inside its lists; the format has none")
    starts = (
        np.frombuffer(lists.buffers()[1], np.int64)[lists.offset : lists.offset + len(lists) + 1]
        if len(lists)
        else np.zeros(1, np.int64)
    )
    values = _number_values(flat, field.datatype)
    return Column(
        np.ascontiguousarray(values).view(np.uint8), (starts - starts[0]) * field.datatype.size, validity
    )


def _is_bytes(kind: Any) -> bool:
    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)
    )  # fmt: skip


def _without_nulls(array: Any) -> Any:
    return (
        array.fill_null(
            b"" if not pa.types.is_string(array.type) and not pa.types.is_large_string(array.type) else ""
        )
        if array.null_count
        else array
    )


def _enumeration(field: Field, schema: Schema) -> Any:
    name = getattr(field, "enum", None)
    return schema.enums.get(name) if name else None
