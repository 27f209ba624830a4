"""Arrow arrays to the columns that are stored. What does not fit is refused, never bent:

whole numbers    fit any number that holds them exactly, and dates as counts of their unit
floats           fit floats (rounded to single precision, never beyond its range), and whole numbers if they are whole
bool             fits numbers; 0 and 1 fit bool
dates, spans     fit dates and spans of any unit that holds them exactly; zones become UTC, null "not a time"
text             fits text, bytes, and dates if it is ISO 8601; bytes fit text if they are valid
the rest         fits nothing: numbers do not become text, nor text numbers, nor dates numbers
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from terrazzo.engine.arrow import NOT_A_TIME, Field, enumeration_of, has_not_a_time, value_type
from terrazzo.engine.columns import Column, Mask, of_binary
from terrazzo.errors import InvalidRequestError
from terrazzo.format.attribute import Attr
from terrazzo.format.datatypes import Datatype
from terrazzo.format.domain import Dim
from terrazzo.format.enumeration import Enumeration
from terrazzo.format.schema import Schema

ATTOSECONDS = {
    "W": 604_800 * 10**18, "D": 86_400 * 10**18, "h": 3_600 * 10**18, "m": 60 * 10**18, "s": 10**18,
    "ms": 10**15, "us": 10**12, "ns": 10**9, "ps": 10**6, "fs": 10**3, "as": 1,
}  # fmt: skip
"""How long each unit lasts; months and years are not always as long."""

_FITS = {
    "bool": {"bool", "number"}, "number": {"number", "bool"}, "whole": {"number", "bool", "date", "span"},
    "date": {"date"}, "span": {"span"}, "text": {"text", "bytes", "date"}, "bytes": {"text", "bytes"},
}  # fmt: skip


def from_arrow(array: Any, field: Field, schema: Schema) -> Column:
    """An Arrow array (not chunked) as the column to store; InvalidRequestError where it does not fit."""
    array, enum = _plain(array), enumeration_of(field, schema)
    if pa.types.is_dictionary(array.type) and (enum is None or array.dictionary.null_count):
        array = array.dictionary_decode()
    nulls = array.null_count
    validity = None
    if isinstance(field, Attr) and field.nullable:
        validity = np.ones(len(array), bool) if not nulls else _mask(array.is_valid())
    elif nulls and not (has_not_a_time(field) and not field.is_var and field.cell_val_num == 1):
        kind = "dimension" if isinstance(field, Dim) else "attribute"
        way_out = "" if isinstance(field, Dim) else ", or declare the attribute with nullable=True"
        raise InvalidRequestError(
            f"{kind} {field.name!r} is not nullable, but row {int(np.argmax(_mask(array.is_null())))} is null; "
            f"fill the nulls{way_out}"
        )
    if enum is not None:
        return _indices(array, field, enum, validity)
    if field.is_var:
        return _var_from_arrow(array, field, validity)
    single = value_type(field.datatype)
    if single is not None and field.cell_val_num > 1:
        return _fixed_lists(array, field, single, validity)
    if single is not None:
        return Column(_number_values(_cast(array, single, field), field.datatype), None, validity)
    return _fixed_bytes(array, field, validity)


def _plain(array: Any) -> Any:
    """The array without wrappers that say nothing of its values."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return pc.run_end_decode(array) if pa.types.is_run_end_encoded(array.type) else array


def _mask(array: Any) -> Mask:
    return np.asarray(array.to_numpy(zero_copy_only=False))


# -- what fits what ------------------------------------------------------------------------------------


def _kind(kind: Any) -> str:
    types = pa.types
    if types.is_null(kind):
        return "null"
    if types.is_boolean(kind):
        return "bool"
    if types.is_integer(kind):
        return "whole"
    if types.is_floating(kind) or types.is_decimal(kind):
        return "number"
    if types.is_timestamp(kind) or types.is_date(kind):
        return "date"
    if types.is_duration(kind):
        return "span"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    if (
        types.is_binary(kind) or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind) or types.is_binary_view(kind)
    ):  # fmt: skip
        return "bytes"
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return "list" if is_list else "other"


def _wanted(datatype: Datatype) -> str:
    if datatype is Datatype.BOOL:
        return "bool"
    if datatype.is_datetime:
        return "date"
    if datatype.is_time:
        return "span"
    return "number" if datatype.is_integer or datatype.is_float else "text" if datatype.is_text else "bytes"


def _misfit(field: Field, kind: Any, reason: str = "") -> InvalidRequestError:
    per_cell = "a list of " if field.is_var and value_type(field.datatype) is not None else ""
    if not field.is_var and field.cell_val_num > 1:
        per_cell = f"{field.cell_val_num} "
    told = f": {reason}" if reason else ""
    return InvalidRequestError(
        f"column {field.name!r}: {kind} does not fit {per_cell}{field.datatype.name}{told}"
    )


def _cast(array: Any, kind: Any, field: Field) -> Any:
    """`array` as `kind`, which is the field's value type or a list of it; exact, or an error."""
    if array.type == kind:
        return array
    given = _kind(array.type)
    item = array.type.value_type if given == "list" else array.type
    if given == "list" and _kind(kind) != "list":
        raise _misfit(field, array.type)
    if _kind(item) != "null" and _wanted(field.datatype) not in _FITS.get(_kind(item), set()):
        raise _misfit(field, array.type)
    try:
        cast = _cast_items(array, kind, item, field)
    except (pa.ArrowException, OverflowError) as problem:
        raise _misfit(field, array.type, str(problem).splitlines()[0]) from None
    return cast


def _cast_items(array: Any, kind: Any, item: Any, field: Field) -> Any:
    nested = _kind(kind) == "list"
    target = kind.value_type if nested else kind
    temporal = field.datatype.is_datetime or field.datatype.is_time
    if temporal and pa.types.is_int64(target) and _kind(item) not in {"whole", "null"}:
        if nested or _kind(item) == "text":
            raise _misfit(field, array.type)
        return pa.array(_counted(array, field), target, mask=_mask(array.is_null()))
    if pa.types.is_date32(target) and _kind(item) == "whole" and not nested:
        array = pc.cast(array, pa.int32())
    cast = pc.cast(array, kind, safe=True)
    if pa.types.is_null(array.type):
        return cast
    inner, result = (array.flatten(), cast.flatten()) if nested else (array, cast)
    # Where Arrow's own check is silent:
    if pa.types.is_boolean(target) and _kind(item) not in {"bool", "null"}:
        bad = pc.not_equal(pc.cast(result, pa.float64()), pc.cast(inner, pa.float64(), safe=False))
    elif pa.types.is_floating(target) and _kind(item) == "number":
        bad = pc.and_(pc.is_inf(result), pc.invert(pc.is_inf(pc.cast(inner, pa.float64()))))
    elif pa.types.is_date32(target) and pa.types.is_timestamp(item):
        bad = pc.not_equal(pc.cast(result, pa.timestamp(item.unit)), pc.cast(inner, pa.timestamp(item.unit)))
    else:
        return cast
    if pc.any(bad).as_py():
        value = inner.filter(pc.fill_null(bad, False))[0].as_py()
        raise pa.ArrowInvalid(f"{value} is out of its range, or between its values")
    return cast


def _counted(array: Any, field: Field) -> NDArray[np.int64]:
    """Dates or spans as counts of a unit that Arrow does not have."""
    letter = "M" if field.datatype.is_datetime else "m"
    naive = array.cast(pa.timestamp(array.type.unit)) if pa.types.is_timestamp(array.type) else array
    given = naive.to_numpy(zero_copy_only=False)
    if given.dtype.kind != letter:
        raise _misfit(field, array.type)
    return exact_counts(given, field.datatype, f"column {field.name!r}")


def exact_counts(given: NDArray[Any], datatype: Datatype, what: str) -> NDArray[np.int64]:
    """numpy dates or spans as whole counts of the datatype's unit; "not a time" stays what it is."""
    kind, unit = given.dtype.kind, datatype.unit
    if np.datetime_data(given.dtype)[0] in {"Y", "M"} and unit not in {"Y", "M"}:
        given = given.astype(f"{kind}8[D]")
    source, target = ATTOSECONDS.get(np.datetime_data(given.dtype)[0]), ATTOSECONDS.get(unit)
    values, absent = given.astype(np.int64), np.isnat(given)
    if source is None or target is None:
        counts = given.astype(f"{kind}8[{unit}]").astype(np.int64)
        lossy = counts.view(f"{kind}8[{unit}]").astype(given.dtype) != given
    elif source >= target:
        factor = source // target
        most = np.iinfo(np.int64).max // factor
        lossy = (values > most) | (values < -most)
        counts = np.where(lossy, 0, values) * np.int64(factor if most else 1)
    else:
        counts, rest = np.divmod(values, np.int64(min(target // source, np.iinfo(np.int64).max)))
        lossy = rest != 0
    lossy &= ~absent
    if lossy.any():
        raise InvalidRequestError(
            f"{what}: {given[np.argmax(lossy)]} is no whole number of {datatype.name} within its range"
        )
    return np.where(absent, np.iinfo(np.int64).min, counts)


# -- numbers -------------------------------------------------------------------------------------------


def _number_values(array: Any, datatype: Datatype) -> NDArray[Any]:
    dtype = datatype.dtype
    if datatype is Datatype.BOOL:
        return np.asarray(array.fill_null(False).to_numpy(zero_copy_only=False), np.uint8)
    data = array.buffers()[1]
    if data is None or not len(array):
        values = np.zeros(len(array), dtype)
    else:
        stored = np.dtype(np.int32) if datatype is Datatype.DATETIME_DAY else dtype
        values = np.frombuffer(data, stored)[array.offset : array.offset + len(array)].astype(
            dtype, copy=False
        )
    if array.null_count and (datatype.is_datetime or datatype.is_time):
        return np.where(_mask(array.is_valid()), values, NOT_A_TIME)
    return values


def _fixed_lists(array: Any, field: Field, single: Any, validity: Mask | None) -> Column:
    lists = _cast(array, pa.list_(single, field.cell_val_num), field)
    if lists.null_count:  # the values under a null may be anything, but they must be there
        zero = False if single == pa.bool_() else 0
        lists = lists.fill_null(pa.scalar([zero] * field.cell_val_num, lists.type))
    values = _number_values(_items(lists, field), field.datatype)
    return Column(values.reshape(-1, field.cell_val_num), None, validity)


def _items(lists: Any, field: Field) -> Any:
    flat = lists.flatten()
    if flat.null_count and not has_not_a_time(field):
        raise InvalidRequestError(f"column {field.name!r} has nulls inside its lists; the format has none")
    return flat


def _indices(array: Any, field: Field, enum: Enumeration, validity: Mask | None) -> Column:
    """Labels as their places in the enumeration."""
    labels = enum.values
    is_dictionary = pa.types.is_dictionary(array.type)
    given = array.dictionary if is_dictionary else array
    kinds = {_kind(given.type), _kind(labels.type)}
    if not (len(kinds) == 1 or "null" in kinds or kinds == {"text", "bytes"}):
        raise InvalidRequestError(f"column {field.name!r}: {given.type} does not fit labels of {labels.type}")
    try:
        places = pc.index_in(pc.cast(given, labels.type), value_set=labels)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InvalidRequestError(
            f"column {field.name!r}: {given.type} does not fit labels of {labels.type}"
        ) from None
    index = places.take(array.indices) if is_dictionary else places
    missing = _mask(index.is_null())
    if validity is not None:
        missing = missing & validity
    if missing.any():
        label = array[int(np.argmax(missing))].as_py()
        raise InvalidRequestError(
            f"column {field.name!r}: {label!r} is no label of its enumeration; add it with "
            f"evolve(extend_enum=…) first"
        )
    found = _mask(index.fill_null(0))
    if len(found) and found.max() > np.iinfo(field.datatype.dtype).max:
        raise InvalidRequestError(
            f"column {field.name!r}: {field.datatype.name} cannot count the {len(labels)} labels of its enumeration"
        )
    return Column(found.astype(field.datatype.dtype), None, validity)


# -- text, bytes and lists -----------------------------------------------------------------------------


def _var_from_arrow(array: Any, field: Field, validity: Mask | None) -> Column:
    single = value_type(field.datatype)
    if single is None:
        return _checked_text(of_binary(_binary(array, field), validity), field)
    lists = _cast(array, pa.large_list(single), field)
    if lists.null_count:
        lists = lists.fill_null(pa.scalar([], lists.type))
    flat = _items(lists, field)
    starts = (
        np.frombuffer(lists.buffers()[1], np.int64)[lists.offset : lists.offset + len(lists) + 1]
        if len(lists)
        else np.zeros(1, np.int64)
    )
    values = _number_values(flat, field.datatype)
    return Column(
        np.ascontiguousarray(values).view(np.uint8), (starts - starts[0]) * field.datatype.size, validity
    )


def _binary(array: Any, field: Field) -> Any:
    """Text or bytes as large binaries, nulls as empty ones."""
    given = _kind(array.type)
    if given == "null":
        return pa.array([b""] * len(array), pa.large_binary())
    if given not in {"text", "bytes"}:
        raise _misfit(field, array.type)
    if given == "text" and field.datatype.is_string and not field.datatype.is_text:
        raise _misfit(field, array.type, "give its encoded bytes")
    if given == "bytes" and field.datatype is Datatype.STRING_UTF8:
        try:
            pc.cast(array, pa.large_binary()).cast(pa.large_string())
        except pa.ArrowInvalid:
            raise _misfit(field, array.type, "not all of it is UTF-8") from None
    cells = pc.cast(array, pa.large_binary())
    return cells.fill_null(b"") if cells.null_count else cells


def _checked_text(column: Column, field: Field) -> Column:
    if field.datatype is Datatype.STRING_ASCII and len(column.values) and column.values.max() > 127:
        raise InvalidRequestError(f"column {field.name!r} is ASCII, but holds other characters")
    size = field.datatype.size
    if size > 1 and column.offsets is not None and (column.offsets % size).any():
        raise InvalidRequestError(
            f"column {field.name!r}: a cell of {field.datatype.name} is a multiple of {size} bytes"
        )
    return column


def _fixed_bytes(array: Any, field: Field, validity: Mask | None) -> Column:
    """Cells of a given length: shorter text is filled up with zeros, as numpy does; bytes must be as long."""
    column, width = of_binary(_binary(array, field)), field.cell_val_num * field.datatype.size
    assert column.offsets is not None
    sizes = np.diff(column.offsets)
    counted = np.ones(len(sizes), bool) if validity is None else validity
    wrong = ((sizes > width) if field.datatype.is_text else (sizes != width)) & counted
    if wrong.any():
        size = int(sizes[np.argmax(wrong)])
        raise _misfit(field, array.type, f"a cell of {size} bytes, where it takes {width}")
    _checked_text(column, field)
    if (sizes == width).all():
        raw = column.values
    else:
        raw = np.zeros(len(sizes) * width, np.uint8)
        sizes = np.minimum(sizes, width)
        shift = np.arange(len(sizes)) * width - column.offsets[:-1]
        used = np.repeat(column.offsets[:-1], sizes) + _counting(sizes)
        raw[used + np.repeat(shift, sizes)] = column.values[used]
    values = raw.view(field.datatype.dtype)
    return Column(
        values.reshape(-1, field.cell_val_num) if field.cell_val_num > 1 else values, None, validity
    )


def _counting(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """0, 1, … up to each size, one after the other."""
    return np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
