"""Enumeration: the named values whose indices an attribute stores. Spec: format_spec/enumeration.md.

    u32 version, 0 · str32 name · str32 own file name · u8 datatype · u32 values per cell · u8 ordered
    u64 size · data · where cells vary in length: u64 size · u64 offsets

# Quirk: the specification leaves out both names.
"""

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from terrazzo.errors import CorruptionError, InvalidRequestError, UnsupportedFeatureError
from terrazzo.format.datatypes import VAR, Datatype
from terrazzo.format.keys import ENUMERATION_VERSION
from terrazzo.format.wire import Bytes, Cursor, Writer

_LARGEST_CELL = (1 << 31) - 1  # of what Arrow holds as cells of one size
_ARROW_UNITS = frozenset({"s", "ms", "us", "ns"})


@dataclass(frozen=True, slots=True, init=False)
class Enumeration:
    """Unique values; those of an `ordered` one compare by their position."""

    name: str
    datatype: Datatype
    cell_val_num: int
    ordered: bool
    data: bytes = field(repr=False)
    offsets: bytes = field(repr=False)  # u64 each, the start of every value; none where cells are fixed

    def __init__(
        self, name: str, values: Any, *, ordered: bool = False, datatype: Datatype | str | None = None
    ) -> None:
        """`values`: a list, a numpy or an Arrow array; an empty one needs a `datatype`."""
        wanted = None if datatype is None else Datatype.parse(datatype)
        resolved, cell_val_num, data, offsets = _stored(name, values, wanted)
        self._fill(name, resolved, cell_val_num, ordered, data, offsets)
        self._check_unique()

    def _fill(
        self, name: str, datatype: Datatype, cell_val_num: int, ordered: bool, data: bytes, offsets: bytes
    ) -> None:
        fields = ("name", "datatype", "cell_val_num", "ordered", "data", "offsets")
        for key, value in zip(fields, (name, datatype, cell_val_num, ordered, data, offsets), strict=True):
            object.__setattr__(self, key, value)

    @property
    def is_var(self) -> bool:
        return self.cell_val_num == VAR

    @property
    def values(self) -> pa.Array:
        """Text where it is valid, bytes otherwise; dates as timestamps where Arrow has the unit."""
        if self.is_var:
            return _var_values(self.datatype, self._var_cells())
        if self.datatype.is_text and self.cell_val_num > 1:
            width = self.cell_val_num
            return pa.Array.from_buffers(pa.binary(width), len(self), [None, pa.py_buffer(self.data)])
        flat = _numbers(self.datatype, np.frombuffer(self.data, self.datatype.dtype))
        return flat if self.cell_val_num == 1 else pa.FixedSizeListArray.from_arrays(flat, self.cell_val_num)

    def __len__(self) -> int:
        if self.is_var:
            return len(self.offsets) // 8
        return len(self.data) // (self.cell_val_num * self.datatype.size)

    def extend(self, values: Any) -> "Enumeration":
        """This enumeration with more values behind those it has, whose indices stay."""
        datatype, cell_val_num, data, offsets = _stored(self.name, values, self.datatype)
        if cell_val_num != self.cell_val_num:
            raise InvalidRequestError(f"values of another length cannot extend enumeration {self.name!r}")
        moved = np.frombuffer(offsets, "<u8") + np.uint64(len(self.data))
        longer = object.__new__(Enumeration)
        longer._fill(
            self.name, datatype, cell_val_num, self.ordered, self.data + data, self.offsets + moved.tobytes()
        )
        longer._check_unique()
        return longer

    def pack(self, file_name: str) -> bytes:
        """The body of the file, which carries its own name."""
        writer = Writer()
        writer.u32(ENUMERATION_VERSION)
        writer.str32(self.name)
        writer.str32(file_name)
        writer.u8(self.datatype)
        writer.u32(self.cell_val_num)
        writer.u8(self.ordered)
        writer.bytes64(self.data)
        if self.is_var:
            writer.bytes64(self.offsets)
        return bytes(writer)

    @classmethod
    def unpack(cls, body: Bytes) -> tuple[Self, str]:
        """The enumeration, and the name of the file that it was written to."""
        cursor = Cursor(body)
        version = cursor.u32()
        if version != ENUMERATION_VERSION:
            raise UnsupportedFeatureError(
                f"an enumeration of version {version}; this release reads {ENUMERATION_VERSION}", offset=0
            )
        name, file_name = cursor.str32(), cursor.str32()
        datatype = Datatype.of_code(cursor.u8(), offset=cursor.offset - 1)
        cell_val_num, ordered, data = cursor.u32(), cursor.flag("ordered"), cursor.bytes64()
        offsets = cursor.bytes64() if cell_val_num == VAR else b""
        cursor.expect_end()
        _check_stored(datatype, cell_val_num, data, offsets)
        enumeration = object.__new__(cls)
        enumeration._fill(name, datatype, cell_val_num, ordered, data, offsets)
        return enumeration, file_name

    def _var_cells(self) -> pa.Array:
        return _large_binary(np.frombuffer(self.offsets, "<u8"), self.data)

    def _check_unique(self) -> None:
        if self.is_var:
            cells = self._var_cells()
        else:
            width = self.cell_val_num * self.datatype.size
            cells = pa.Array.from_buffers(pa.binary(width), len(self), [None, pa.py_buffer(self.data)])
        if len(cells.unique()) != len(self):
            raise InvalidRequestError(f"enumeration {self.name!r} has a value twice")


def _check_stored(datatype: Datatype, cell_val_num: int, data: bytes, offsets: bytes) -> None:
    if cell_val_num != VAR:
        size = cell_val_num * datatype.size
        if not 0 < size <= _LARGEST_CELL or len(data) % size:
            raise CorruptionError(f"{len(data)} bytes are no cells of {cell_val_num} {datatype.name}")
        return
    if len(offsets) % 8:
        raise CorruptionError(f"{len(offsets)} bytes of u64 offsets in an enumeration")
    edges = np.append(np.frombuffer(offsets, "<u8"), np.uint64(len(data)))
    if edges[0] != 0 or (edges[1:] < edges[:-1]).any() or (edges % datatype.size).any():
        raise CorruptionError("the offsets of an enumeration do not rise from 0 to its size")


def _stored(name: str, values: Any, wanted: Datatype | None) -> tuple[Datatype, int, bytes, bytes]:
    """Datatype, values per cell, data and offsets of what a caller gave."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.DictionaryArray):
        values = values.dictionary_decode()
    if isinstance(values, np.ndarray) and values.dtype.kind in "iufbMm":
        return _stored_numbers(name, values, wanted)
    arrow = values if isinstance(values, pa.Array) else _arrow(name, values)
    if pa.types.is_null(arrow.type) and not len(arrow) and wanted is not None:
        return wanted, VAR if _holds_bytes(wanted) else 1, b"", b""
    if arrow.null_count or pa.types.is_null(arrow.type):
        raise InvalidRequestError(f"enumeration {name!r} needs values, none of them null, or else a datatype")
    text = pa.types.is_string(arrow.type) or pa.types.is_large_string(arrow.type)
    if text or pa.types.is_binary(arrow.type) or pa.types.is_large_binary(arrow.type):
        return _stored_bytes(name, arrow, wanted or (Datatype.STRING_UTF8 if text else Datatype.STRING_ASCII))
    return _stored_numbers(name, arrow.to_numpy(zero_copy_only=False), wanted)


def _arrow(name: str, values: Any) -> pa.Array:
    try:
        return pa.array(list(values))
    except (pa.ArrowException, TypeError) as error:
        raise InvalidRequestError(f"enumeration {name!r}: {error}") from None


def _holds_bytes(datatype: Datatype) -> bool:
    return datatype.is_text or datatype in {Datatype.BLOB, Datatype.GEOM_WKB, Datatype.GEOM_WKT}


def _stored_bytes(name: str, cells: pa.Array, datatype: Datatype) -> tuple[Datatype, int, bytes, bytes]:
    if not _holds_bytes(datatype):
        raise InvalidRequestError(f"enumeration {name!r} of {datatype.name} cannot hold text")
    binary = pa.binary() if cells.type in {pa.string(), pa.binary()} else pa.large_binary()
    cells = cells.cast(binary).cast(pa.large_binary())
    _, offsets, data = cells.buffers()
    if not len(cells):
        return datatype, VAR, b"", b""
    edges = np.frombuffer(offsets, "<i8", len(cells) + 1, 8 * cells.offset)
    content = b"" if data is None else data.to_pybytes()[edges[0] : edges[-1]]
    return datatype, VAR, content, (edges[:-1] - edges[0]).astype("<u8").tobytes()


def _stored_numbers(
    name: str, numbers: NDArray[Any], wanted: Datatype | None
) -> tuple[Datatype, int, bytes, bytes]:
    if numbers.dtype.kind not in "iufbMm" or numbers.ndim != 1:
        raise InvalidRequestError(
            f"enumeration {name!r} cannot hold {numbers.dtype} of {numbers.ndim} dimensions"
        )
    datatype = wanted or Datatype.parse(numbers.dtype.newbyteorder("="))
    if _holds_bytes(datatype):
        raise InvalidRequestError(f"enumeration {name!r} of {datatype.name} cannot hold numbers")
    target = numbers
    if numbers.dtype.kind in "Mm" and (datatype.is_datetime or datatype.is_time):
        target = numbers.astype(f"{numbers.dtype.kind}8[{datatype.unit}]")
    stored = target.astype(datatype.dtype)
    if (stored.astype(target.dtype) != target).any():
        raise InvalidRequestError(f"not every value of enumeration {name!r} is a {datatype.name}")
    return datatype, 1, stored.tobytes(), b""


def _large_binary(starts: NDArray[Any], data: bytes) -> pa.Array:
    edges = np.append(starts.astype("<i8"), np.int64(len(data)))
    return pa.Array.from_buffers(
        pa.large_binary(), len(starts), [None, pa.py_buffer(edges), pa.py_buffer(data)]
    )


def _var_values(datatype: Datatype, cells: pa.Array) -> pa.Array:
    if datatype not in {Datatype.STRING_UTF8, Datatype.STRING_ASCII, Datatype.GEOM_WKT}:
        if _holds_bytes(datatype) or datatype.is_string:
            return cells
        edges = np.frombuffer(cells.buffers()[1], "<i8") // datatype.size
        numbers = _numbers(datatype, np.frombuffer(cells.buffers()[2], datatype.dtype))
        return pa.LargeListArray.from_arrays(pa.array(edges), numbers)
    try:
        return cells.cast(pa.large_string()).cast(pa.string())
    except pa.ArrowInvalid:
        return cells


def _numbers(datatype: Datatype, stored: NDArray[Any]) -> pa.Array:
    if datatype is Datatype.BOOL:
        return pa.array(stored != 0)
    if (datatype.is_datetime or datatype.is_time) and datatype.unit in _ARROW_UNITS:
        kind = "M" if datatype.is_datetime else "m"
        return pa.array(stored.view(f"<{kind}8[{datatype.unit}]"))
    return pa.array(stored)
