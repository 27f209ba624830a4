"""Key-value metadata of arrays and groups. Spec: format_spec/metadata.md.

    entries until the end, in the order of their keys as bytes:
        str32 key · u8 deleted · unless deleted: u8 datatype · u32 count · values

A file holds what one session changed; files apply in order of time, and the last word on a key counts.

What a Python value is stored as follows TileDB-Py, so that either library reads what the other wrote: text
is UTF-8, bytes are a blob, whole numbers (and booleans) INT64, others FLOAT64, tuples and lists several of
these. A numpy array is flattened under `__np_flat_<key>`, its shape beside it if it is not one-dimensional.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Self

import numpy as np

from terrazzo.errors import InvalidRequestError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.wire import Bytes, Cursor, Writer

FLAT_PREFIX = "__np_flat_"
SHAPE_PREFIX = "__np_shape_"

_MOST_AXES = 64  # of a numpy array
_BYTES = frozenset({Datatype.BLOB, Datatype.CHAR, Datatype.GEOM_WKB, Datatype.ANY})
_ENCODINGS = {
    Datatype.STRING_UTF8: "utf-8", Datatype.STRING_ASCII: "utf-8", Datatype.GEOM_WKT: "utf-8",
    Datatype.STRING_UTF16: "utf-16-le", Datatype.STRING_UCS2: "utf-16-le",
    Datatype.STRING_UTF32: "utf-32-le", Datatype.STRING_UCS4: "utf-32-le",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class MetadataValue:
    """`count` values of `datatype`, as stored."""

    datatype: Datatype
    count: int
    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != self.count * self.datatype.size:
            raise InvalidRequestError(
                f"{len(self.raw)} bytes are not {self.count} values of {self.datatype.name}"
            )

    @classmethod
    def of(cls, value: object) -> Self:
        """The stored form of a scalar, text, bytes, or a sequence of numbers; arrays take `put`."""
        if isinstance(value, str):
            raw = _encoded(value)
            return cls(Datatype.STRING_UTF8, len(raw), raw)
        if isinstance(value, np.bytes_):  # before bytes, which it also is
            return cls(Datatype.CHAR, len(value), bytes(value))
        if isinstance(value, (bytes, bytearray, memoryview)):
            return cls(Datatype.BLOB, len(bytes(value)), bytes(value))
        if isinstance(value, np.generic):
            return cls.of_array(np.asarray(value).reshape(1))
        if isinstance(value, (list, tuple)):
            return cls._of_sequence(value)
        return cls._of_sequence((value,))

    @classmethod
    def of_array(cls, values: np.ndarray[Any, Any]) -> Self:
        """The values in C order; the shape is lost."""
        if values.dtype.kind not in "iufbMm":
            raise InvalidRequestError(f"metadata cannot hold an array of {values.dtype}")
        datatype = Datatype.parse(values.dtype.newbyteorder("="))
        return cls(
            datatype, values.size, np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes()
        )

    @classmethod
    def _of_sequence(cls, values: Sequence[object]) -> Self:
        if not values:
            return cls(Datatype.INT32, 0, b"")  # as TileDB-Py does: an empty sequence has no better type
        if all(isinstance(value, (int, np.integer, np.bool_)) for value in values):
            dtype = "<i8"
        elif all(isinstance(value, (float, np.floating)) for value in values):
            dtype = "<f8"
        else:
            kinds = ", ".join(sorted({type(value).__name__ for value in values}))
            raise InvalidRequestError(
                f"metadata cannot hold a value of {kinds}; it takes text, bytes, numbers, "
                "sequences of whole numbers or of floats, and numpy arrays"
            )
        try:
            return cls.of_array(np.array(values, dtype))
        except OverflowError:
            raise InvalidRequestError("a whole number in metadata is beyond 64 bits") from None

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The values as a read-only numpy array, dates and booleans as such."""
        stored = np.frombuffer(self.raw, self.datatype.dtype)
        if self.datatype.is_datetime:
            return stored.view(f"<M8[{self.datatype.unit}]")
        if self.datatype.is_time:
            return stored.view(f"<m8[{self.datatype.unit}]")
        return stored != 0 if self.datatype is Datatype.BOOL else stored

    @property
    def value(self) -> Any:
        """Text, bytes, one number, or a tuple of numbers.

        INT64 and FLOAT64 come as Python's own numbers; others as numpy scalars, which keep their type.
        """
        if (encoding := _ENCODINGS.get(self.datatype)) is not None:
            return self.raw.decode(encoding, "surrogateescape" if encoding == "utf-8" else "replace")
        if self.datatype in _BYTES:
            return self.raw
        values = self.array
        plain = self.datatype in {Datatype.INT64, Datatype.FLOAT64} or self.count != 1
        if plain and values.dtype.kind not in "mM":
            items = values.tolist()
        else:
            items = list(values)
        return items[0] if self.count == 1 else tuple(items)


def put(key: str, value: object) -> "dict[str, MetadataValue | None]":
    """The entries that set `key`: its value, and tombstones where another kind of value may have been."""
    if not isinstance(key, str):
        raise InvalidRequestError(f"metadata keys are text, not {type(key).__name__}")
    if key.startswith((FLAT_PREFIX, SHAPE_PREFIX)):
        raise InvalidRequestError(
            f"{key!r}: keys that begin with {FLAT_PREFIX} or {SHAPE_PREFIX} are reserved"
        )
    if not isinstance(value, np.ndarray):
        return {key: MetadataValue.of(value), FLAT_PREFIX + key: None, SHAPE_PREFIX + key: None}
    shape = None if value.ndim == 1 else MetadataValue.of(value.shape)
    return {key: None, FLAT_PREFIX + key: MetadataValue.of_array(value), SHAPE_PREFIX + key: shape}


def remove(key: str) -> "dict[str, MetadataValue | None]":
    """The entries that remove `key`, whatever it holds."""
    return {key: None, FLAT_PREFIX + key: None, SHAPE_PREFIX + key: None}


def values(entries: "Mapping[str, MetadataValue | None]") -> dict[str, Any]:
    """What users see of merged entries: Python values and numpy arrays, no helper keys, no tombstones."""
    shown: dict[str, Any] = {}
    for key, entry in entries.items():
        if entry is None or key.startswith(SHAPE_PREFIX):
            continue
        if key.startswith(FLAT_PREFIX):
            name = key.removeprefix(FLAT_PREFIX)
            shown.setdefault(name, _shaped(entry.array, entries.get(SHAPE_PREFIX + name)))
        else:
            shown[key] = entry.value
    return shown


def _shaped(flat: np.ndarray[Any, Any], shape: MetadataValue | None) -> np.ndarray[Any, Any]:
    if shape is None:
        return flat
    sizes = shape.array.tolist()
    # A shape that does not fit is another writer's; the values are still worth showing.
    fits = shape.datatype.is_integer and min(sizes, default=0) >= 0 and prod(sizes) == flat.size
    return flat.reshape(sizes) if fits and len(sizes) <= _MOST_AXES else flat


@dataclass(frozen=True, slots=True)
class Metadata:
    """One file: values set and, as None, keys removed."""

    entries: dict[str, MetadataValue | None] = field(default_factory=dict, hash=False)

    def pack(self) -> bytes:
        writer = Writer()
        for key, entry in sorted((_encoded(key), entry) for key, entry in self.entries.items()):
            writer.bytes32(key)
            writer.u8(entry is None)
            if entry is not None:
                writer.u8(entry.datatype)
                writer.u32(entry.count)
                writer.raw(entry.raw)
        return bytes(writer)

    @classmethod
    def unpack(cls, body: Bytes) -> Self:
        cursor = Cursor(body)
        entries: dict[str, MetadataValue | None] = {}
        while cursor.remaining:
            # Any bytes can be a key; those that are not UTF-8 survive as lone surrogates.
            key = cursor.bytes32().decode("utf-8", "surrogateescape")
            entries[key] = None if cursor.flag("deleted") else _unpack_value(cursor)
        return cls(entries)

    def __or__(self, later: "Metadata") -> "Metadata":
        """Both, with the last word for `later`; tombstones stay."""
        return Metadata({**self.entries, **later.entries})


def _unpack_value(cursor: Cursor) -> MetadataValue:
    datatype = Datatype.of_code(cursor.u8(), offset=cursor.offset - 1)
    count = cursor.count32(datatype.size, "values")
    return MetadataValue(datatype, count, bytes(cursor.take(count * datatype.size)))


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise InvalidRequestError(f"{text!r} has no UTF-8 form") from None
