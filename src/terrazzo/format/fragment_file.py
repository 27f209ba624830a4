"""The metadata file of a fragment as a whole: `__fragment_metadata.tdb`. Spec: format_spec/fragment.md.

Writing puts the sections down one after the other, each in a generic tile, and closes with the footer.
Reading is by section: `SectionMap` says which bytes hold which, so that an open costs a footer and a scan
costs the columns that it asks for.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from terrazzo.errors import CorruptionError
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.fragment import Footer, Section
from terrazzo.format.generic_tile import pack_generic_tile
from terrazzo.format.rtree import RTree
from terrazzo.format.schema import Schema
from terrazzo.format.sections import (
    NO_STATISTICS,
    FieldStatistics,
    pack_conditions,
    pack_extremes,
    pack_statistics,
    pack_u64s,
)
from terrazzo.format.wire import U64

_NO_EXTREMES = pack_extremes(b"")
_NO_VALUES = pack_u64s(())


def _none() -> NDArray[np.uint64]:
    return np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True)
class SlotMetadata:
    """What the sections hold of one field. Statistics are packed bodies: their types vary by field."""

    tile_offsets: NDArray[np.uint64] = field(default_factory=_none)
    var_offsets: NDArray[np.uint64] = field(default_factory=_none)
    var_sizes: NDArray[np.uint64] = field(default_factory=_none)
    validity_offsets: NDArray[np.uint64] = field(default_factory=_none)
    mins: bytes = _NO_EXTREMES
    maxes: bytes = _NO_EXTREMES
    sums: bytes = _NO_VALUES
    null_counts: bytes = _NO_VALUES
    statistics: FieldStatistics = NO_STATISTICS

    def body(self, section: Section) -> bytes:
        match section:
            case Section.TILE_OFFSETS:
                return pack_u64s(self.tile_offsets)
            case Section.VAR_OFFSETS:
                return pack_u64s(self.var_offsets)
            case Section.VAR_SIZES:
                return pack_u64s(self.var_sizes)
            case Section.VALIDITY_OFFSETS:
                return pack_u64s(self.validity_offsets)
            case Section.MINS:
                return self.mins
            case Section.MAXES:
                return self.maxes
            case Section.SUMS:
                return self.sums
            case _:
                return self.null_counts


_PER_SLOT = tuple(s for s in Section if Section.TILE_OFFSETS <= s <= Section.NULL_COUNTS)


def pack_metadata_file(
    footer: Footer,
    schema: Schema,
    rtree: RTree | None,
    slots: Sequence[SlotMetadata],
    processed: Sequence[str] = (),
    cipher: Aes256Gcm | None = None,
) -> tuple[bytes, bytes]:
    """The file, and the footer by itself for a `.meta`. `footer` comes without offsets; a dense fragment
    has no R-tree."""
    pieces: list[bytes] = []
    position = 0
    empty: dict[bytes, bytes] = {}  # most slots lack most sections: their tiles are packed once

    def put(body: bytes) -> int:
        nonlocal position
        stored = empty.get(body)
        if stored is None:
            stored = pack_generic_tile(body, cipher)
            if len(body) <= 16 and cipher is None:
                empty[body] = stored
        pieces.append(stored)
        start, position = position, position + len(stored)
        return start

    tree = rtree.pack(schema.dims) if rtree is not None else b"\x0a\0\0\0\0\0\0\0"
    offsets: dict[Section, tuple[int, ...]] = {Section.RTREE: (put(tree),)}
    for section in _PER_SLOT:
        offsets[section] = tuple(put(slot.body(section)) for slot in slots)
    offsets[Section.FRAGMENT_STATISTICS] = (put(pack_statistics([slot.statistics for slot in slots])),)
    offsets[Section.PROCESSED_CONDITIONS] = (put(pack_conditions(processed)),)
    packed = replace(footer, offsets=offsets).pack(schema)
    return b"".join([*pieces, packed, U64.pack(len(packed))]), packed


class SectionMap:
    """Where each section of a metadata file lies. `end` is where the footer begins, if it is known."""

    __slots__ = ("_end", "_offsets", "_starts")

    def __init__(self, footer: Footer, end: int | None) -> None:
        self._offsets = footer.offsets
        bounds = footer.global_order_offsets or ()
        self._starts = sorted({o for group in (*footer.offsets.values(), *bounds) for o in group})
        self._end = end

    def span(self, section: Section, slot: int = 0) -> tuple[int, int | None] | None:
        """Start and size; no size for the last section when the footer came from a `.meta`;
        None where this version has no such section."""
        if section not in self._offsets:
            return None
        start = self._offsets[section][slot]
        following = bisect_right(self._starts, start)
        end = self._starts[following] if following < len(self._starts) else self._end
        if end is not None and self._end is not None and end > self._end:
            raise CorruptionError(f"section {section.name} ends at byte {end}, beyond the footer's start")
        return start, None if end is None else end - start
