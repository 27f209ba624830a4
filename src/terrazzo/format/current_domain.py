"""Current domain: the box of the domain that is in use; evolution can widen it.
Spec: format_spec/current_domain.md.

u32 version, 0 · u8 none · u8 kind, 0 · per dimension: low, high
or for text: u64 size · u64 size of low · low · high
"""

from typing import Any

import numpy as np

from terrazzo.errors import CorruptionError, InvalidRequestError, UnsupportedFeatureError
from terrazzo.format.domain import Dim, Number, as_number, unpack_range
from terrazzo.format.wire import Cursor, Writer

Range = tuple[Number, Number] | tuple[bytes, bytes]

_VERSION = 0
_BOX = 0


def as_current_domain(given: Any, dims: tuple[Dim, ...]) -> tuple[Range, ...] | None:
    """`given` maps names to (low, high), or lists them for all dimensions; missing ones take the domain."""
    if given is None:
        return None
    if isinstance(given, dict):
        if unknown := set(given) - {dim.name for dim in dims}:
            raise InvalidRequestError(
                f"the current domain names {', '.join(map(repr, unknown))}: no such dimension"
            )
        given = [given.get(dim.name, dim.domain) for dim in dims]
    if len(given) != len(dims):
        raise InvalidRequestError(f"the current domain has {len(given)} ranges for {len(dims)} dimensions")
    return tuple(_current_range(value, dim) for value, dim in zip(given, dims, strict=True))


def _current_range(given: Any, dim: Dim) -> Range:
    what = f"the current domain of {dim.name!r}"
    if given is None or len(given) != 2:
        raise InvalidRequestError(f"{what} is {given!r}; (low, high) expected")
    if dim.domain is None:
        texts = [value.encode() if isinstance(value, str) else bytes(value) for value in given]
        if texts[0] > texts[1]:
            raise InvalidRequestError(f"{what} is empty")
        return texts[0], texts[1]
    low, high = (as_number(value, dim.datatype, what) for value in given)
    if not dim.domain[0] <= low <= high <= dim.domain[1]:
        raise InvalidRequestError(
            f"{what} goes from {low} to {high}, its domain from {dim.domain[0]} to {dim.domain[1]}"
        )
    return low, high


def pack_current_domain(ranges: tuple[Range, ...] | None, dims: tuple[Dim, ...], writer: Writer) -> None:
    writer.u32(_VERSION)
    writer.u8(ranges is None)
    if ranges is None:
        return
    writer.u8(_BOX)
    for (low, high), dim in zip(ranges, dims, strict=True):
        if isinstance(low, bytes) and isinstance(high, bytes):
            writer.u64(len(low) + len(high))
            writer.u64(len(low))
            writer.raw(low)
            writer.raw(high)
        else:
            writer.raw(np.array((low, high), dim.datatype.dtype).tobytes())


def unpack_current_domain(cursor: Cursor, dims: tuple[Dim, ...]) -> tuple[Range, ...] | None:
    start = cursor.offset
    if (version := cursor.u32()) != _VERSION:
        raise UnsupportedFeatureError(f"a current domain of version {version}", offset=start)
    if cursor.flag("no current domain"):
        return None
    if (kind := cursor.u8()) != _BOX:
        raise UnsupportedFeatureError(f"a current domain of kind {kind}", offset=start + 5)
    return tuple(
        _unpack_text_range(cursor) if dim.is_var else unpack_range(cursor, dim.datatype, dim.name)
        for dim in dims
    )


def _unpack_text_range(cursor: Cursor) -> tuple[bytes, bytes]:
    start = cursor.offset
    size, low_size = cursor.u64(), cursor.u64()
    if low_size > size:
        raise CorruptionError(f"{low_size} of {size} bytes of a range", offset=start)
    return bytes(cursor.take(low_size)), bytes(cursor.take(size - low_size))
