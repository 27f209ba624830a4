"""Stored conditions and cell values as SQL text, for people.

Values are stored as the bytes of a cell; with a schema they are told as what they mean, without one as bytes:

    numbers     42   -0.5   CAST('NaN' AS DOUBLE)
    text        'it\\'s'
    dates       TIMESTAMP '2026-01-31 12:00:00'   DATE '2026-01-31'
    labels      of an enumeration: 'a'
    the rest    X'00ff'
"""

import re
from typing import Any

import numpy as np

from terrazzo.format.attribute import Attr
from terrazzo.format.condition import Combination, Compare, Condition, Op
from terrazzo.format.datatypes import Datatype
from terrazzo.format.domain import Dim
from terrazzo.format.schema import Schema

Field = Attr | Dim

_SYMBOLS = {
    Op.LT: "<", Op.LE: "<=", Op.GT: ">", Op.GE: ">=", Op.EQ: "=", Op.NE: "!=",
    Op.IN: "IN", Op.NOT_IN: "NOT IN",
}  # fmt: skip
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_RESERVED = frozenset("and or not in is null true false between like".split())  # noqa: SIM905
_CLOCK_UNITS = frozenset({"h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"})


def describe_condition(node: Condition, schema: Schema | None) -> str:
    """The tree as SQL. Commits store the opposite of what they match: hand over `matches` of one."""
    if isinstance(node, Compare):
        return _describe_test(node, schema)
    if node.combination is Combination.NOT:
        return f"NOT ({describe_condition(node.children[0], schema)})"
    parts = []
    for child in node.children:
        text = describe_condition(child, schema)
        parts.append(text if isinstance(child, Compare) else f"({text})")
    return f" {node.combination.name} ".join(parts)


def _describe_test(node: Compare, schema: Schema | None) -> str:
    if node.op in {Op.ALWAYS_TRUE, Op.ALWAYS_FALSE}:
        return "TRUE" if node.op is Op.ALWAYS_TRUE else "FALSE"
    field = schema.field(node.field) if schema is not None and schema.has(node.field) else None
    name = describe_name(node.field)
    if node.members is not None:
        members = ", ".join(describe_value(member, field, schema) for member in node.members)
        return f"{name} {_SYMBOLS[node.op]} ({members})"
    if not node.value and node.op in {Op.EQ, Op.NE} and field is not None and not field.is_var:
        return f"{name} IS NULL" if node.op is Op.EQ else f"{name} IS NOT NULL"
    return f"{name} {_SYMBOLS[node.op]} {describe_value(node.value, field, schema)}"


def describe_name(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name) and name.lower() not in _RESERVED:
        return name
    return "`" + name.replace("`", "``") + "`"


def describe_value(raw: bytes, field: Field | None, schema: Schema | None = None) -> str:
    """The bytes of one cell; bytes that are no cell of the field are told as bytes."""
    if field is None:
        return _hex(raw)
    if isinstance(field, Attr) and field.enum is not None and schema is not None:
        label = _label(raw, field, schema)
        if label is not None:
            return label
    datatype = field.datatype
    if datatype.is_text:
        return _text(raw if field.is_var else raw.rstrip(b"\0"))
    if len(raw) != datatype.size or not _is_number(datatype):
        return _hex(raw)
    return _number(np.frombuffer(raw, datatype.dtype)[0], datatype)


def _label(raw: bytes, field: Attr, schema: Schema) -> str | None:
    enum = schema.enums.get(field.enum or "")
    if enum is None or len(raw) != field.datatype.size:
        return None
    index = int(np.frombuffer(raw, field.datatype.dtype)[0])
    if not 0 <= index < len(enum):
        return None
    label = enum.values[index].as_py()
    if isinstance(label, str):
        return _quoted(label)
    return _hex(label) if isinstance(label, bytes) else str(label)


def _is_number(datatype: Datatype) -> bool:
    return (
        datatype.is_integer or datatype.is_float or datatype.is_datetime or datatype.is_time
        or datatype is Datatype.BOOL
    )  # fmt: skip


def _number(value: Any, datatype: Datatype) -> str:
    if datatype is Datatype.BOOL:
        return "TRUE" if value else "FALSE"
    if datatype.is_datetime:
        return _moment(value.astype(f"M8[{datatype.unit}]"), datatype)
    if datatype.is_float and not np.isfinite(value):
        return f"CAST('{_NAMES.get(str(value), str(value))}' AS DOUBLE)"
    return str(value)


_NAMES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _moment(value: np.datetime64, datatype: Datatype) -> str:
    if np.isnat(value):
        return "CAST('NaT' AS TIMESTAMP)"
    if datatype.unit in _CLOCK_UNITS:
        text = str(value if datatype.unit not in {"h", "m"} else value.astype("M8[s]"))
        return f"TIMESTAMP '{text.replace('T', ' ')}'"
    return f"DATE '{value.astype('M8[D]')}'"


def _text(raw: bytes) -> str:
    try:
        return _quoted(raw.decode())
    except UnicodeDecodeError:
        return _hex(raw)


def _quoted(text: str) -> str:
    # Spark's dialect escapes by a backslash; a quote twice is to it the end of one text and the start of another.
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _hex(raw: bytes) -> str:
    return f"X'{raw.hex()}'"
