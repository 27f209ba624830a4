"""Dictionary of variable-length ASCII or UTF-8 strings, first in its pipeline.

Spec: format_spec/filters/dictionary.md, which has another block.

    offset  size  field of the metadata
         0     8  u32 0, u32 1: no metadata parts, one data part
         8     4  bytes of all strings
        12     4  bytes of the data as stored
        16     4  bytes of all offsets: 8 for each string
        20     1  I, the width of ids
        21     1  L, the width of string lengths
        22     4  bytes of the dictionary, which follows

Dictionary, per distinct string in the order of first use: L bytes length, big-endian · string.
Data, per cell: I bytes id, big-endian. The offsets are stored nowhere: the lengths give them.
"""

import struct
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from terrazzo.errors import CorruptionError, InvalidRequestError, UnsupportedFeatureError
from terrazzo.format.filters.base import Element, FilterCode, Parts, joined, within
from terrazzo.format.filters.compress import LevelOption
from terrazzo.format.filters.strings import (
    arrow_of,
    big_endian,
    bounds_and_bytes,
    checked_size,
    checked_width,
    interleaved,
    picked,
    string_starts,
    width_of,
)
from terrazzo.format.wire import Bytes, Cursor

_BLOCK = struct.Struct("<IIIIIBBI")


@dataclass(frozen=True, slots=True)
class Dictionary(LevelOption):
    code: ClassVar = FilterCode.DICTIONARY
    compressor: ClassVar = 7

    def encode(self, parts: Parts, element: Element) -> Parts:  # noqa: ARG002
        raise InvalidRequestError(
            "the dictionary filter takes variable-length ASCII or UTF-8, and is the first of its pipeline; "
            f"here it would see {element.datatype.name.lower()}"
        )

    def decode(self, parts: Parts, element: Element, limit: int) -> Parts:  # noqa: ARG002
        raise UnsupportedFeatureError(
            f"a dictionary of {element.datatype.name.lower()} in a fragment of version {element.version}; "
            "only variable-length ASCII and UTF-8 have one, first in its pipeline"
        )

    def bound(self, size: int, element: Element) -> int:  # noqa: ARG002
        return size

    def encode_strings(self, data: Bytes, offsets: NDArray[np.uint64]) -> Parts:
        n_cells = len(offsets)
        encoded = arrow_of(data, offsets).dictionary_encode()
        bounds, content = bounds_and_bytes(encoded.dictionary)
        # Quirk: the number of cells decides on the width, however few the distinct strings are.
        id_width, string_width = width_of(n_cells), width_of(int(np.diff(bounds).max(initial=0)))
        ids = big_endian(encoded.indices.to_numpy(), id_width).tobytes()
        entries = interleaved(big_endian(np.diff(bounds), string_width), bounds, content)
        checked_size(max(len(data), len(ids), len(entries), 8 * n_cells), "strings or offsets")
        block = _BLOCK.pack(0, 1, len(data), len(ids), 8 * n_cells, id_width, string_width, len(entries))
        return Parts((block + entries,), (ids,))

    def decode_strings(
        self, parts: Parts, n_cells: int, size_limit: int
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
        cursor = Cursor(joined(parts.metadata))
        n_metadata, n_data, size, ids_size, offsets_size, *widths, entries_size = cursor.unpack(_BLOCK)
        id_width, string_width = map(checked_width, widths)
        entries, data = bytes(cursor.take(entries_size)), joined(parts.data)
        cursor.expect_end()
        if (n_metadata, n_data, ids_size) != (0, 1, len(data)):
            raise CorruptionError("a block of a string dictionary that does not fit its data")
        if offsets_size != 8 * n_cells or ids_size != id_width * n_cells:
            raise CorruptionError(f"{ids_size // id_width} strings in a tile of {n_cells} cells")
        within(size, size_limit, "a tile of strings")
        starts = string_starts(entries, 0, string_width)
        ids = np.frombuffer(data, f">u{id_width}")
        if int(ids.max(initial=0)) >= max(len(starts), 1) or (n_cells and not len(starts)):
            raise CorruptionError(f"string {int(ids.max(initial=0))} of a dictionary of {len(starts)}")
        return picked(entries, starts, string_width, ids.astype(np.int64), size)

    def strings_bound(self, size: int, n_cells: int) -> int:
        """The most bytes that `n_cells` strings of `size` bytes together can become."""
        return size + 16 * n_cells + _BLOCK.size
