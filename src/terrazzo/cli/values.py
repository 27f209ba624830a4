"""Values of the format as text for people and as JSON for programs."""

import math
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from terrazzo.cli.output import Shown
from terrazzo.format.attribute import Attr
from terrazzo.format.datatypes import Datatype
from terrazzo.format.domain import Dim
from terrazzo.format.filters.pipeline import Pipeline

Field = Attr | Dim
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(ms: int) -> Shown:
    try:
        text = (_EPOCH + timedelta(milliseconds=ms)).isoformat(sep=" ", timespec="milliseconds")
    except OverflowError:
        return Shown(str(ms), ms)
    return Shown(f"{ms}  {text.removesuffix('+00:00')} UTC", ms)


def raw(value: bytes) -> str:
    """Bytes as text where they are UTF-8 of printable characters, and as `0x…` otherwise."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"
    return text if text.isprintable() else f"0x{value.hex()}"


def plain(value: Any) -> Any:
    """A value that JSON has: numbers as such, everything else as text."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes() | bytearray() | memoryview():
            return raw(bytes(value))
        case np.generic() if value.dtype.kind in "biuf":
            return plain(value.item())
        case np.void():
            return raw(value.tobytes())
        case np.ndarray() | list() | tuple():
            return [plain(item) for item in value]
    return str(value)


def number(value: Any, datatype: Datatype) -> Any:
    """One stored number or text: dates are told as dates."""
    if isinstance(value, bytes):
        return raw(value)
    if datatype.is_datetime:
        return str(np.array(int(value), "i8").astype(f"M8[{datatype.unit}]"))
    return plain(value)


def stored(value: bytes, datatype: Datatype) -> Any:
    """The bytes of one cell, or nothing at all."""
    if not value:
        return None
    if datatype.is_text or len(value) != datatype.size:
        return raw(value)
    return number(np.frombuffer(value, datatype.dtype)[0], datatype)


def pair(low: Any, high: Any, datatype: Datatype) -> Shown:
    both = [number(low, datatype), number(high, datatype)]
    return Shown(f"[{both[0]}, {both[1]}]", both)


def pipeline(of: Pipeline) -> Shown:
    names, data = [], []
    for each in of.filters:
        options = {
            option.name: plain(getattr(each, option.name))
            for option in fields(each)  # type: ignore[arg-type]
        }
        name = each.code.name.lower()
        shown = ", ".join(f"{key}={value}" for key, value in options.items() if value is not None)
        names.append(f"{name}({shown})" if shown else name)
        data.append({"name": name, **options})
    return Shown(" → ".join(names) or "none", data)


def cell_type(field: Field) -> str:
    """`int32`, `int32[3]` for three per cell, `int32[]` where cells vary in length."""
    count = field.cell_val_num
    shape = "[]" if field.is_var else "" if count == 1 else f"[{count}]"
    return field.datatype.name.lower() + shape
