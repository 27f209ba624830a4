"""Tile: a u64 chunk count, then the chunks, each with a header. Spec: format_spec/tile.md.

    offset  size  field of a chunk header
         0     4  original_size    bytes of the data before filtering
         4     4  filtered_size    bytes of the data as stored
         8     4  metadata_size    bytes of filter metadata, stored between this header and the data

Every chunk passes the filters by itself. `TileCodec` writes the chunks that libtiledb would write
(`chunks.py`) and reads any.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from terrazzo.errors import CorruptionError, FormatError, InvalidRequestError
from terrazzo.format.chunks import cut_cells, cut_var_cells
from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.filters.base import Element, Filter, FilterCode, Parts, Stackable, joined
from terrazzo.format.filters.compress import Compressor, Zstd
from terrazzo.format.filters.dictionary import Dictionary
from terrazzo.format.filters.pipeline import Pipeline
from terrazzo.format.filters.rle import Rle
from terrazzo.format.versions import (
    DICTIONARY_ASCII_WITHOUT_OFFSETS,
    RLE_ASCII_WITHOUT_OFFSETS,
    UTF8_WITHOUT_OFFSETS,
    WRITTEN,
)
from terrazzo.format.wire import U64, Bytes, Cursor

PLACEHOLDER_OFFSETS = bytes(8)
"""The offsets tile of strings that hold their offsets: no chunks, neither filtered nor encrypted."""

_HEADER = struct.Struct("<III")
_SINGLE = struct.Struct("<IIII")  # a compressor's block without metadata and with one part of data
_PAIR = struct.Struct("<II IIII")  # with one part of metadata, too
_COMPRESSED = struct.Struct("<III IIII")  # the header of a chunk, and such a block
_LARGEST = 0xFFFF_FFFF
_AT_ONCE = 1 << 20  # bytes of chunks that are decompressed in one call
_STACK = 1 << 20  # bytes of tiles that are decoded together
_Item = TypeVar("_Item")
_Chunk = tuple[int, int, int, int]
"""Its original size, and where in the tile its metadata start, its data start and its data end."""

# libtiledb divides by a window or an element count that is 0 here, so that its own bytes are junk.
_NOT_OF_NOTHING = frozenset(
    {
        FilterCode.BIT_WIDTH_REDUCTION,
        FilterCode.POSITIVE_DELTA,
        FilterCode.DOUBLE_DELTA,
        FilterCode.DELTA,
    }
)


@dataclass(frozen=True, slots=True)
class ChunkHeader:
    original_size: int
    filtered_size: int
    metadata_size: int

    def pack(self) -> bytes:
        return _HEADER.pack(self.original_size, self.filtered_size, self.metadata_size)

    @classmethod
    def unpack(cls, cursor: Cursor) -> Self:
        """Read a header; the cursor is left at the metadata. A short read is a CorruptionError."""
        return cls(*cursor.unpack(_HEADER))


@dataclass(frozen=True, slots=True)
class TileCodec:
    """How one data file of a field stores its tiles."""

    pipeline: Pipeline
    datatype: Datatype
    cell_size: int  # bytes: of all values of a cell; 8 of offsets, 1 of validity, of one value of var data
    version: int = WRITTEN
    var: bool = False  # this is the var file of a variable-length field
    cipher: Aes256Gcm | None = None  # the last filter of every file of an encrypted array
    schema_version: int = WRITTEN  # Quirk: whether text holds its offsets is the schema's matter

    _filters: Pipeline = field(init=False, repr=False, compare=False)  # the cipher included
    _elements: tuple[Element, ...] = field(init=False, repr=False, compare=False)
    _strings: Rle | Dictionary | None = field(init=False, repr=False, compare=False)
    _compress: Callable[[Bytes], bytes] | None = field(init=False, repr=False, compare=False)
    _decompress: Callable[[Bytes, int], bytes] | None = field(init=False, repr=False, compare=False)
    expansion: int = field(init=False, repr=False, compare=False)
    """No stored byte stands for more bytes than this, apart from strings that repeat."""
    _is_zstd: bool = field(init=False, repr=False, compare=False)  # and nothing else
    _stackable: Stackable | None = field(init=False, repr=False, compare=False)  # in front of zstd

    def __post_init__(self) -> None:
        filters = self.pipeline.filters
        if self.cipher is not None:
            filters = (*filters, self.cipher)
        whole = Pipeline(filters, self.pipeline.max_chunk_size)
        assign = object.__setattr__
        assign(self, "_elements", whole.elements(self.datatype, self.cell_size, self.version))
        strings = self._string_filter(filters)
        assign(self, "_strings", strings)
        if strings is not None:  # it is not one of those that turn bytes into bytes
            whole = Pipeline(filters[1:], whole.max_chunk_size)
            assign(self, "_elements", self._elements[1:])
        assign(self, "_filters", whole)
        assign(self, "expansion", whole.expansion)
        only = filters[0] if len(filters) == 1 else None
        assign(self, "_compress", only.compress if isinstance(only, Compressor) else None)
        assign(self, "_decompress", only.decompress if isinstance(only, Compressor) else None)
        assign(self, "_is_zstd", isinstance(only, Zstd))
        pair = len(filters) == 2 and isinstance(filters[1], Zstd) and isinstance(filters[0], Stackable)
        assign(self, "_stackable", filters[0] if pair and strings is None else None)

    def _string_filter(self, filters: tuple[Filter, ...]) -> Rle | Dictionary | None:
        if not self.var or not filters:
            return None
        first = filters[0]
        if not isinstance(first, (Rle, Dictionary)):
            return None
        if self.datatype is Datatype.STRING_ASCII:
            is_rle = isinstance(first, Rle)
            since = RLE_ASCII_WITHOUT_OFFSETS if is_rle else DICTIONARY_ASCII_WITHOUT_OFFSETS
        elif self.datatype is Datatype.STRING_UTF8:
            since = UTF8_WITHOUT_OFFSETS
        else:
            return None
        return first if min(self.version, self.schema_version) >= since else None

    @property
    def holds_offsets(self) -> bool:
        """The filter of these strings keeps the offsets; their own tile is PLACEHOLDER_OFFSETS."""
        return self._strings is not None

    def encode(self, data: Bytes | NDArray[Any], offsets: NDArray[np.uint64] | None = None) -> bytes:
        """A tile. Var data come with the offset of each cell, from 0 on, without a closing one."""
        return b"".join(self.encode_pieces(data, offsets))

    def encode_pieces(
        self, data: Bytes | NDArray[Any], offsets: NDArray[np.uint64] | None = None
    ) -> list[Bytes]:
        """`encode` without putting it together: the tile is these pieces. They may be views of `data`."""
        view = memoryview(data) if not isinstance(data, np.ndarray) else _bytes_of(data)
        if self.var:
            offsets = _checked_offsets(offsets, len(view))
            self._refuse_late_string_filters()
            if self._strings is not None:
                chunk = self._filters.encode(self._strings.encode_strings(view, offsets), self._elements)
                return [U64.pack(1), *_packed(len(view), chunk)]
        ends, start = self._cut(len(view), offsets), 0
        pieces: list[Bytes] = [U64.pack(len(ends))]
        for end in ends:
            if self._compress is not None and end - start < 1 << 31:
                stored = self._compress(view[start:end])
                pieces += (
                    _COMPRESSED.pack(end - start, len(stored), _SINGLE.size, 0, 1, end - start, len(stored)),
                    stored,
                )
            else:
                chunk = self._filters.encode(Parts((), (view[start:end],)), self._elements)
                pieces += _packed(end - start, chunk)
            start = end
        return pieces

    def _refuse_late_string_filters(self) -> None:
        text = self.datatype in {Datatype.STRING_ASCII, Datatype.STRING_UTF8}
        if text and any(isinstance(each, (Rle, Dictionary)) for each in self.pipeline.filters[1:]):
            raise InvalidRequestError(
                "RLE or dictionary of variable-length text must be the first filter, and be there once"
            )

    def _cut(self, size: int, offsets: NDArray[np.uint64] | None) -> list[int]:
        """Where each chunk ends."""
        codes = {each.code for each in self._filters.filters}
        if size == 0:
            return [] if codes & _NOT_OF_NOTHING else [0]
        if self.pipeline.max_chunk_size == 0 or FilterCode.WEBP in codes:
            return [size]
        if self.var and offsets is not None:
            return cut_var_cells(size, self.cell_size, offsets)
        return cut_cells(size, self.cell_size)

    def decode(self, stored: Bytes, size: int, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """The `size` bytes of a tile: in `out` where given, which has just that size; else read-only."""
        if self._strings is not None:
            raise InvalidRequestError("these strings hold their offsets: decode_strings gives both")
        view = memoryview(stored)
        chunks, largest = _chunks(view, size)
        # One compressor alone checks its sizes itself, unless a chunk is out of the ordinary.
        limits = None if self._decompress is not None else self._filters.limits(largest, self._elements)
        if out is None:
            # A size is a claim: room is made for the chunks that have come, not for those that should.
            return np.frombuffer(joined(tuple(self._chunk(view, *each, limits) for each in chunks)), np.uint8)
        if out.nbytes != size:
            raise InvalidRequestError(f"a buffer of {out.nbytes} bytes for a tile of {size}")
        target, start = out.data, 0
        for each in chunks:
            target[start : start + each[0]] = self._chunk(view, *each, limits)
            start += each[0]
        return out

    def decode_run(self, tiles: Sequence[Bytes], sizes: Sequence[int], out: NDArray[np.uint8]) -> None:
        """Tiles one behind the other into `out`, which has just their size.

        Chunks that are a zstd frame and nothing else are decompressed many at a time: a call costs as much as a chunk,
        and each is a moment at which threads wait for each other. For the same reason a filter in front of zstd is
        given the chunks of many tiles that are alike.
        """
        if self._stackable is not None:
            self._decode_stacks(tiles, sizes, out)
            return
        if not self._is_zstd:
            start = 0
            for tile, size in zip(tiles, sizes, strict=True):
                self.decode(tile, size, out[start : start + size])
                start += size
            return
        run, begin, end = list[tuple[memoryview, _Chunk]](), 0, 0  # its chunks, and where they go
        for tile, size in zip(tiles, sizes, strict=True):
            view = memoryview(tile)
            for chunk in _chunks(view, size)[0]:
                plain = _is_frame(view, *chunk)
                if run and (not plain or end - begin >= _AT_ONCE):
                    self._decode_frames(run, out[begin:end])
                    run, begin = [], end
                end += chunk[0]
                if plain:
                    run.append((view, chunk))
                else:
                    out[begin:end] = np.frombuffer(self._chunk(view, *chunk, None), np.uint8)
                    begin = end
        if run:
            self._decode_frames(run, out[begin:end])

    def _decode_stacks(self, tiles: Sequence[Bytes], sizes: Sequence[int], out: NDArray[np.uint8]) -> None:
        """`decode_run`, some tiles of one size at a time."""
        start = 0
        for size, of_one_size in groupby(zip(tiles, sizes, strict=True), key=itemgetter(1)):
            for some in _batched([tile for tile, _ in of_one_size], size):
                end = start + size * len(some)
                self._decode_alike(some, size, out[start:end])
                start = end

    def _decode_alike(self, tiles: Sequence[Bytes], size: int, out: NDArray[np.uint8]) -> None:
        """Tiles of one size: the same chunk of all of them at a time, or if they are cut differently, or there is one
        tile, its chunks of one size."""
        rows, views = out.reshape(len(tiles), size), [memoryview(tile) for tile in tiles]
        cut = [_chunks(view, size)[0] for view in views]
        if len(views) > 1 and all([c[0] for c in each] == [c[0] for c in cut[0]] for each in cut):
            start = 0
            for alike in zip(*cut, strict=True):
                end = start + alike[0][0]
                self._decode_stack(list(zip(views, alike, strict=True)), rows[:, start:end])
                start = end
            return
        for view, chunks, row in zip(views, cut, rows, strict=True):
            start = 0
            for n, of_one_size in groupby(chunks, key=itemgetter(0)):
                for some in _batched(list(of_one_size), n):
                    end = start + n * len(some)
                    self._decode_stack(
                        [(view, chunk) for chunk in some], row[start:end].reshape(len(some), n)
                    )
                    start = end

    def _decode_stack(self, run: list[tuple[memoryview, _Chunk]], out: NDArray[np.uint8]) -> None:
        """Chunks of one size, one in a row. What is out of the ordinary, or damaged, is looked at chunk by chunk."""
        with suppress(CorruptionError):
            if len(run) > 1 and self._decode_usual(run, out):
                return
        for (view, chunk), row in zip(run, out, strict=True):
            row[:] = np.frombuffer(self._chunk(view, *chunk, None), np.uint8)

    def _decode_usual(self, run: list[tuple[memoryview, _Chunk]], out: NDArray[np.uint8]) -> bool:
        """Whether they all were of the usual kind; if not, `out` holds nothing of value."""
        by_size: dict[int, list[int]] = {}
        pairs = [_pair_of_frames(view, chunk) for view, chunk in run]
        for place, pair in enumerate(pairs):
            if pair is None:
                return False
            by_size.setdefault(pair.data_size, []).append(place)
        for stored, places in by_size.items():
            some = [pair for place in places if (pair := pairs[place]) is not None]
            whole = len(places) == len(run)
            target = out if whole else np.empty((len(places), out.shape[1]), np.uint8)
            if not self._decode_pairs(some, stored, target):
                return False
            if not whole:
                out[places] = target
        return True

    def _decode_pairs(self, pairs: "Sequence[_Pair]", stored: int, out: NDArray[np.uint8]) -> bool:
        assert self._stackable is not None
        metadata = self._stackable.stacked(out.shape[1], stored, self._elements[0])
        if metadata is None or any(pair.metadata_size != len(metadata) for pair in pairs):
            return False
        frames = [frame for pair in pairs for frame in (pair.metadata, pair.data)]
        n = len(metadata) + stored
        rows = np.frombuffer(Zstd.decompress(b"".join(frames), n * len(pairs)), np.uint8).reshape(-1, n)
        if (rows[:, : len(metadata)] != np.frombuffer(metadata, np.uint8)).any():
            return False
        self._stackable.decode_stack(rows[:, len(metadata) :], out, self._elements[0])
        return True

    def _decode_frames(self, run: list[tuple[memoryview, _Chunk]], out: NDArray[np.uint8]) -> None:
        frames = [view[chunk[2] : chunk[3]] for view, chunk in run]
        try:
            out[:] = np.frombuffer(Zstd.decompress(b"".join(frames), len(out)), np.uint8)
        except CorruptionError:
            for view, chunk in run:
                self._chunk(view, *chunk, None)  # tells which
            raise

    def _chunk(
        self, view: memoryview, size: int, metadata: int, data: int, end: int, limits: tuple[int, ...] | None
    ) -> Bytes:
        """The `size` bytes of the chunk whose parts start at `metadata` and `data`."""
        try:
            # The usual column has one compressor: its block is read here, and nothing is made but the bytes.
            if (
                self._decompress is not None
                and data - metadata == _SINGLE.size
                and _SINGLE.unpack_from(view, metadata) == (0, 1, size, end - data)
            ):
                return self._decompress(view[data:end], size)
            parts = Parts((view[metadata:data],), (view[data:end],))
            limits = self._filters.limits(size, self._elements) if limits is None else limits
            return _data_of(self._filters.decode(parts, self._elements, limits), size)
        except FormatError as error:
            error.offset = metadata - _HEADER.size  # filters do not know where they are
            raise

    def decode_strings(
        self, stored: Bytes, size: int, n_cells: int
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
        """The `size` bytes of strings that hold their offsets, and the offsets, without a closing one."""
        if self._strings is None:
            raise InvalidRequestError("the offsets of this field are in a file of their own")
        view = memoryview(stored)
        chunks, _ = _chunks(view, size)
        if not chunks:  # then there are no bytes either
            return np.empty(0, np.uint8), np.zeros(n_cells, np.uint64)
        if len(chunks) != 1:
            raise CorruptionError(f"{len(chunks)} chunks of strings that hold their offsets; there is one")
        (_, metadata, data, end), bound = chunks[0], self._strings.strings_bound(size, n_cells)
        try:
            parts = Parts((view[metadata:data],), (view[data:end],))
            parts = self._filters.decode(parts, self._elements, self._filters.limits(bound, self._elements))
            content, offsets = self._strings.decode_strings(parts, n_cells, size)
        except FormatError as error:
            error.offset = metadata - _HEADER.size
            raise
        if len(content) != size:
            raise CorruptionError(f"strings of {len(content)} bytes in a tile of {size}", offset=8)
        return content, offsets


def _batched(items: list[_Item], size: int) -> Iterator[list[_Item]]:
    """As many at a time as are decoded together, of items that have this size."""
    n = max(_STACK // max(size, 1), 1)
    return (items[first : first + n] for first in range(0, len(items), n))


def _is_frame(view: memoryview, size: int, metadata: int, data: int, end: int) -> bool:
    """Whether a chunk is one zstd frame that states its size."""
    return (
        data - metadata == _SINGLE.size
        and _SINGLE.unpack_from(view, metadata) == (0, 1, size, end - data)
        and Zstd.is_frame(view[data:end], size)
    )


class _Pair(NamedTuple):
    """The metadata and the data of a chunk, a zstd frame each, and how much they hold."""

    metadata: memoryview
    data: memoryview
    metadata_size: int
    data_size: int


def _pair_of_frames(view: memoryview, chunk: _Chunk) -> _Pair | None:
    """If a chunk is that, and its frames state their sizes."""
    _, metadata, data, end = chunk
    if data - metadata != _PAIR.size:
        return None
    n_metadata, n_data, size, stored, data_size, data_stored = _PAIR.unpack_from(view, metadata)
    middle = data + stored
    if (n_metadata, n_data, data_stored) != (1, 1, end - middle):
        return None
    pair = _Pair(view[data:middle], view[middle:end], size, data_size)
    return pair if Zstd.is_frame(pair.metadata, size) and Zstd.is_frame(pair.data, data_size) else None


def _chunks(view: memoryview, size: int) -> tuple[list[_Chunk], int]:
    """The chunks of a tile, and the largest of their sizes.

    All headers are read before any chunk: nothing is allocated for a tile that does not add up.
    """
    if len(view) < U64.size:
        raise CorruptionError(f"a tile of {len(view)} bytes; {U64.size} expected at least", offset=0)
    (n_chunks,) = U64.unpack_from(view)
    last = len(view) - _HEADER.size
    if n_chunks * _HEADER.size > len(view) - U64.size:
        raise CorruptionError(f"{n_chunks} chunks do not fit in a tile of {len(view)} bytes", offset=0)
    chunks, position, total, largest = [], U64.size, 0, 0
    for _ in range(n_chunks):
        if position > last:
            raise CorruptionError(f"a chunk ends behind the {len(view)} bytes of its tile", offset=position)
        original, filtered, metadata_size = _HEADER.unpack_from(view, position)
        metadata = position + _HEADER.size
        data = metadata + metadata_size
        position = data + filtered
        chunks.append((original, metadata, data, position))
        total += original
        largest = max(largest, original)
    if position != len(view):
        raise CorruptionError(f"the chunks end at byte {position} of a tile of {len(view)}", offset=position)
    if total != size:
        raise CorruptionError(f"the chunks hold {total} bytes; {size} expected", offset=0)
    return chunks, largest


def _packed(original: int, parts: Parts) -> tuple[bytes, Bytes, Bytes]:
    metadata, data = joined(parts.metadata), joined(parts.data)
    if max(original, len(metadata), len(data)) > _LARGEST:
        raise InvalidRequestError("a chunk of 4 GiB or more cannot be stored; write smaller tiles")
    return ChunkHeader(original, len(data), len(metadata)).pack(), metadata, data


def _data_of(parts: Parts, size: int) -> Bytes:
    if any(map(len, parts.metadata)):
        raise CorruptionError("metadata that no filter takes")
    data = joined(parts.data)
    if len(data) != size:
        raise CorruptionError(f"a chunk of {len(data)} bytes; {size} expected")
    return data


def _checked_offsets(offsets: NDArray[np.uint64] | None, size: int) -> NDArray[np.uint64]:
    if offsets is None:
        raise InvalidRequestError("variable-length data need their offsets")
    if len(offsets) and (offsets[0] != 0 or offsets[-1] > size or (offsets[1:] < offsets[:-1]).any()):
        raise InvalidRequestError(f"offsets must rise from 0 to at most {size}")
    if size and not len(offsets):
        raise InvalidRequestError(f"{size} bytes of no cell")
    return offsets


def _bytes_of(values: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
