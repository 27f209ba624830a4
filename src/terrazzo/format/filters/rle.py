"""Run-length encoding. Spec: format_spec/filters/compression.md.

Fixed form, of the cells of any field but variable-length text. The block of `absorb`, then per run

    unit  the cell; its size is that of a cell of the unfiltered tile, whatever filters came before
       2  u16, big-endian: how often; longer runs are split

String form, of variable-length ASCII and UTF-8, first in its pipeline; no offsets are stored beside it.

    offset  size  field of the metadata
         0     8  u32 0, u32 1: no metadata parts, one data part
         8     4  bytes of all strings
        12     4  bytes of the data as stored
        16     4  bytes of all offsets: 8 for each string
        20     1  R, the width of run lengths
        21     1  L, the width of string lengths

Data, per run: R bytes run length · L bytes string length · string, numbers big-endian.
"""

import struct
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from terrazzo.errors import CorruptionError, InvalidRequestError
from terrazzo.format.filters.absorb import absorb, release
from terrazzo.format.filters.base import MOST_PARTS, Element, FilterCode, Parts, joined, within
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

_LONGEST = 0xFFFF
_MANY = 64  # cells per run from which on filling run by run beats repeating cell by cell
_STRING_BLOCK = struct.Struct("<IIIIIBB")


@dataclass(frozen=True, slots=True)
class Rle(LevelOption):
    code: ClassVar = FilterCode.RLE
    compressor: ClassVar = 4

    def encode(self, parts: Parts, element: Element) -> Parts:
        return absorb(parts, lambda part: _encode_cells(part, element.cell_size))

    def decode(self, parts: Parts, element: Element, limit: int) -> Parts:
        return release(parts, lambda part, size: _decode_cells(part, size, element.cell_size), limit)

    def bound(self, size: int, element: Element) -> int:
        return size + 2 * (size // element.cell_size) + 8 + 8 * MOST_PARTS

    def encode_strings(self, data: Bytes, offsets: NDArray[np.uint64]) -> Parts:
        import pyarrow.compute as pc  # noqa: PLC0415  # takes a while to import, and few need it

        runs = pc.run_end_encode(arrow_of(data, offsets), run_end_type="int64")
        lengths = np.diff(runs.run_ends.to_numpy(), prepend=0)
        bounds, content = bounds_and_bytes(runs.values)
        # Quirk: libtiledb leaves the last run out here, so that a longest string there cannot be read back.
        string_lengths = np.diff(bounds)
        run_width = width_of(int(lengths.max(initial=0)))
        string_width = width_of(int(string_lengths.max(initial=0)))
        heads = np.hstack((big_endian(lengths, run_width), big_endian(string_lengths, string_width)))
        stored = interleaved(heads, bounds, content)
        checked_size(max(len(data), len(stored), 8 * len(offsets)), "strings or offsets")
        block = _STRING_BLOCK.pack(0, 1, len(data), len(stored), 8 * len(offsets), run_width, string_width)
        return Parts((block,), (stored,))

    def decode_strings(
        self, parts: Parts, n_cells: int, size_limit: int
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
        cursor = Cursor(joined(parts.metadata))
        n_metadata, n_data, size, stored_size, offsets_size, *widths = cursor.unpack(_STRING_BLOCK)
        cursor.expect_end()
        run_width, string_width = map(checked_width, widths)
        stored = bytes(joined(parts.data))
        if (n_metadata, n_data, stored_size) != (0, 1, len(stored)):
            raise CorruptionError("a block of string runs that does not fit its data")
        if offsets_size != 8 * n_cells:
            raise CorruptionError(f"{offsets_size // 8} strings in a tile of {n_cells} cells")
        within(size, size_limit, "a tile of strings")
        starts = string_starts(stored, run_width, string_width)
        columns = np.arange(run_width)
        runs = np.frombuffer(stored, np.uint8)[starts[:, None] + columns].view(f">u{run_width}").ravel()
        # The largest first: a sum of damaged counts may wrap around.
        if int(runs.max(initial=0)) > n_cells or int(runs.sum(dtype=np.uint64)) != n_cells:
            raise CorruptionError(f"runs of strings that are not {n_cells} together")
        ids = np.repeat(np.arange(len(starts)), runs.astype(np.int64))
        return picked(stored, starts, run_width + string_width, ids, size)

    def strings_bound(self, size: int, n_cells: int) -> int:
        """The most bytes that `n_cells` strings of `size` bytes together can become."""
        return size + 16 * n_cells + _STRING_BLOCK.size


def _encode_cells(part: Bytes, unit: int) -> bytes:
    if len(part) % unit:
        # Quirk: this holds for the metadata of earlier filters as well, which fits by chance only.
        raise InvalidRequestError(
            f"RLE of cells of {unit} bytes cannot take {len(part)} bytes; put it first in the pipeline"
        )
    if not part:
        return b""
    cells = np.frombuffer(part, f"V{unit}")
    starts = np.flatnonzero(_differs(part, unit)) + 1
    lengths = np.diff(starts, prepend=0, append=len(cells))
    starts = np.concatenate(([0], starts))
    if lengths.max() > _LONGEST:
        pieces = (lengths - 1) // _LONGEST + 1
        starts = np.repeat(starts, pieces)
        rest = lengths - (pieces - 1) * _LONGEST
        lengths = np.full(len(starts), _LONGEST)
        lengths[np.cumsum(pieces) - 1] = rest  # full runs first, what is left over last
    runs = np.empty(len(starts), _run_type(unit))
    runs["cell"] = cells[starts]
    runs["length"] = lengths
    return runs.tobytes()


def _differs(part: Bytes, unit: int) -> NDArray[np.bool_]:
    """Of each cell but the first: is it another than the one before?"""
    word = next(width for width in (8, 4, 2, 1) if unit % width == 0)
    words = np.frombuffer(part, f"u{word}")
    if word == unit:
        differs: NDArray[np.bool_] = words[1:] != words[:-1]
    else:
        rows = words.reshape(-1, unit // word)
        differs = (rows[1:] != rows[:-1]).any(axis=1)
    return differs


def _decode_cells(part: Bytes, size: int, unit: int) -> Bytes:
    if len(part) % (unit + 2):
        raise CorruptionError(f"{len(part)} bytes of runs; a run has {unit + 2}")
    if not part:  # the unit, of no cell, may be anything
        return b""
    runs = np.frombuffer(part, _run_type(unit))
    lengths = runs["length"].astype(np.int64)
    n_cells = int(lengths.sum())
    if n_cells * unit != size:
        raise CorruptionError(f"runs of {n_cells * unit} bytes; {size} expected")
    if n_cells > _MANY * len(runs):
        return b"".join([cell * length for cell, length in struct.iter_unpack(f">{unit}sH", part)])
    kind = f"u{unit}" if unit in {1, 2, 4, 8} else f"V{unit}"
    cells = np.ascontiguousarray(runs["cell"]).view(kind)
    return np.repeat(cells, lengths).view(np.uint8).data


def _run_type(unit: int) -> np.dtype[np.void]:
    return np.dtype([("cell", f"V{unit}"), ("length", ">u2")])
