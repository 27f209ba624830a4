"""Record batches as lines of JSON, column by column: no loop over cells.

numbers, booleans   as they are; NaN and infinities, which JSON has not, are null
dates, times        ISO 8601 text
bytes               hexadecimal text
lists               lists
"""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from terrazzo.errors import InvalidRequestError

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_CONTROLS = [chr(code) for code in range(32) if chr(code) not in _ESCAPES] + ["\x7f"]
_STRANGE = r"[\x00-\x1f\x7f]"


def json_lines(batch: Any) -> bytes:
    if not batch.num_rows:
        return b""
    pieces: list[Any] = []
    for place, name in enumerate(batch.schema.names):
        comma = "," if place else "{"
        column = pc.fill_null(json_values(batch.column(place)), "null")
        pieces += [_text(f"{comma}{json.dumps(name, ensure_ascii=False)}:"), column]
    return b"".join(_data(pc.binary_join_element_wise(*pieces, _text("}\n"), _text(""))))


def json_values(column: Any) -> Any:
    """A column as JSON text per cell; null for null."""
    kind, types = column.type, pa.types
    if types.is_dictionary(kind):
        return json_values(column.dictionary_decode())
    if types.is_floating(kind):
        return pc.if_else(pc.is_finite(column), column, None).cast(pa.large_string())
    if types.is_integer(kind) or types.is_boolean(kind):
        return column.cast(pa.large_string())
    if types.is_string(kind) or types.is_large_string(kind):
        return _quoted(column.cast(pa.large_string()))
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return _quoted(hexadecimal(column))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _lists(column)
    if types.is_timestamp(kind) or types.is_date(kind):
        return _quoted(iso_text(column))
    if types.is_duration(kind):
        return column.cast(pa.int64()).cast(pa.large_string())
    raise InvalidRequestError(f"JSON has no form for {kind}; leave the column out, or write Parquet")


def iso_text(column: Any) -> Any:
    text = column.cast(pa.large_string())
    return pc.replace_substring(text, " ", "T") if pa.types.is_timestamp(column.type) else text


def hexadecimal(column: Any) -> Any:
    """Bytes as text of twice their length."""
    cells = column.cast(pa.large_binary())
    plain = b"".join(_data(cells))
    offsets = np.frombuffer(cells.buffers()[1], np.int64)[cells.offset : cells.offset + len(cells) + 1]
    text = pa.LargeStringArray.from_buffers(
        len(cells), pa.py_buffer((offsets - offsets[0]) * 2), pa.py_buffer(plain.hex().encode())
    )
    return pc.if_else(cells.is_valid(), text, None)


def _data(cells: Any) -> list[Any]:
    """The bytes of all cells, one after the other."""
    if cells.buffers()[2] is None:
        return []
    offsets = np.frombuffer(cells.buffers()[1], np.int64)
    first, last = offsets[cells.offset], offsets[cells.offset + len(cells)]
    return [memoryview(cells.buffers()[2])[first:last]]


def _quoted(text: Any) -> Any:
    for plain in ("\\", '"'):
        text = pc.replace_substring(text, plain, _ESCAPES[plain])
    if pc.any(pc.match_substring_regex(text, _STRANGE)).as_py():
        for plain in (*list(_ESCAPES)[2:], *_CONTROLS):
            text = pc.replace_substring(text, plain, _ESCAPES.get(plain, f"\\u{ord(plain):04x}"))
    return pc.binary_join_element_wise(_text('"'), text, _text('"'), _text(""))


def _text(text: str) -> Any:
    return pa.scalar(text, pa.large_string())


def _lists(column: Any) -> Any:
    flat = pc.fill_null(json_values(column.flatten()), "null").cast(pa.string())
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat), ",")
    text = pc.binary_join_element_wise("[", joined, "]", "").cast(pa.large_string())
    return pc.if_else(column.is_valid(), text, None)
