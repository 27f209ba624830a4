"""Columns: the cells of one field in memory, as numpy sees the stored bytes.

fixed field   values: n numbers of the field's type, or an n × k matrix for k values per cell
var field     values: the bytes of all cells, offsets: n + 1 positions in them
nullable      validity: n booleans, True where there is a value
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from terrazzo.engine.buffers import binaries, bools, numbers
from terrazzo.engine.runner import run_all
from terrazzo.format.datatypes import Datatype

Mask = NDArray[np.bool_]
Index = NDArray[np.int64]

_MANY = 1 << 18  # cells whose columns are worth a thread each


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    values: NDArray[Any]
    offsets: NDArray[np.int64] | None = None
    validity: Mask | None = None

    def __len__(self) -> int:
        return len(self.values) if self.offsets is None else len(self.offsets) - 1

    @property
    def is_var(self) -> bool:
        return self.offsets is not None

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in (self.values, self.offsets, self.validity) if a is not None)

    def binary(self) -> Any:
        """A var column as an Arrow array of large binaries, nulls not marked; no copy."""
        assert self.offsets is not None
        return pa.Array.from_buffers(
            pa.large_binary(), len(self), [None, pa.py_buffer(self.offsets), pa.py_buffer(self.values)]
        )

    def take(self, index: Index) -> "Column":
        validity = None if self.validity is None else self.validity[index]
        if self.offsets is None:
            return Column(self.values.take(index, axis=0), None, validity)
        return of_binary(self.binary().take(numbers(index)), validity)

    def slice(self, start: int, stop: int) -> "Column":
        validity = None if self.validity is None else self.validity[start:stop]
        if self.offsets is None:
            return Column(self.values[start:stop], None, validity)
        offsets = self.offsets[start : stop + 1]
        return Column(self.values[offsets[0] : offsets[-1]], offsets - offsets[0], validity)

    def with_validity(self, validity: Mask | None) -> "Column":
        return replace(self, validity=validity)

    def assign(self, mask: Mask, value: bytes | None, datatype: Datatype) -> "Column":
        """This column with the cells of `mask` set to `value`, the bytes of one cell; None is null."""
        validity = self.validity
        if value is None or validity is not None:
            validity = np.ones(len(self), bool) if validity is None else validity.copy()
            validity[mask] = value is not None
        raw = b"" if value is None else value
        if self.offsets is not None:
            import pyarrow.compute as pc  # noqa: PLC0415  # takes a while to import, and few need it

            replaced = pc.replace_with_mask(
                self.binary(),
                bools(mask),
                binaries([raw]).take(numbers(np.zeros(int(mask.sum()), np.int64))),
            )
            return of_binary(replaced, validity)
        values = self.values.copy()
        width = values.dtype.itemsize * (values.shape[1] if values.ndim == 2 else 1)
        one = np.frombuffer(raw or bytes(width), datatype.dtype).view(values.dtype)
        values[mask] = one if values.ndim == 2 else one[0]
        return Column(values, None, validity)


@dataclass(frozen=True, slots=True, eq=False)
class Ordered:
    """A column in another order. It is put together piece by piece, as it is asked for: what is encoded tile by tile
    never stands in memory a second time, and a piece stays in the cache."""

    column: Column
    index: Index

    def __len__(self) -> int:
        return len(self.index)

    @property
    def is_var(self) -> bool:
        return self.column.is_var

    @property
    def nbytes(self) -> int:
        return self.column.nbytes * len(self) // max(len(self.column), 1)

    def slice(self, start: int, stop: int) -> Column:
        return self.column.take(self.index[start:stop])


def of_binary(array: Any, validity: Mask | None = None) -> Column:
    """A column over the buffers of an Arrow array of large binaries; no copy."""
    _, offsets, data = array.buffers()
    positions = (
        np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
        if offsets
        else np.zeros(1, np.int64)
    )
    values = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    if positions[0]:
        values, positions = values[positions[0] : positions[-1]], positions - positions[0]
    else:
        values = values[: positions[-1]]
    return Column(values, positions, validity)


def filtered(columns: Mapping[str, Column], mask: Mask) -> dict[str, Column]:
    """The cells of a mask. Where they lie is looked up once: numpy does it for every array that it is to mask."""
    return taken(columns, np.flatnonzero(mask))


def taken(columns: Mapping[str, Column], index: Index) -> dict[str, Column]:
    """The cells of an index; where these are many, on every core."""
    if len(index) < _MANY:
        return {name: column.take(index) for name, column in columns.items()}
    found: dict[str, Column] = {}

    def take(name: str) -> None:
        found[name] = columns[name].take(index)

    run_all([partial(take, name) for name in columns])
    return {name: found[name] for name in columns}


def concat(columns: Sequence[Column]) -> Column:
    if len(columns) == 1:
        return columns[0]
    validity = None
    if any(c.validity is not None for c in columns):
        validity = np.concatenate(
            [np.ones(len(c), bool) if c.validity is None else c.validity for c in columns]
        )
    if columns[0].offsets is None:
        values = [c.values for c in columns]
        whole = end_to_end(values)
        return Column(np.concatenate(values) if whole is None else whole, None, validity)
    bases = np.cumsum([0, *(c.offsets[-1] for c in columns if c.offsets is not None)])
    offsets = [
        c.offsets[:-1] + base for c, base in zip(columns, bases, strict=False) if c.offsets is not None
    ]
    return Column(
        np.concatenate([c.values for c in columns]),
        np.concatenate([*offsets, bases[-1:]]).astype(np.int64),
        validity,
    )


def end_to_end(pieces: Sequence[NDArray[Any]]) -> NDArray[Any] | None:
    """The part of an array that these are, one after the other, as fragments that were decoded together are."""
    base: Any = pieces[0].base
    if not isinstance(base, np.ndarray) or base.ndim != 1:
        return None
    start = end = _address(pieces[0])
    for piece in pieces:
        if piece.base is not base or piece.dtype != base.dtype or _address(piece) != end:
            return None
        if piece.strides != base.strides:
            return None
        end += piece.nbytes
    first = (start - _address(base)) // base.itemsize
    return base[first : first + (end - start) // base.itemsize]


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def constant(
    cell: bytes, n: int, datatype: Datatype, cell_val_num: int, *, var: bool, valid: bool | None
) -> Column:
    """`n` cells that all hold the same bytes; `valid` is None for a field that is not nullable."""
    validity = None if valid is None else np.full(n, valid)
    if var:
        values = np.frombuffer(cell * n, np.uint8)
        return Column(values, np.arange(n + 1, dtype=np.int64) * len(cell), validity)
    one = np.frombuffer(cell, datatype.dtype)
    if cell_val_num == 1:
        return Column(np.full(n, one[0], datatype.dtype), None, validity)
    return Column(np.tile(one, (n, 1)), None, validity)
