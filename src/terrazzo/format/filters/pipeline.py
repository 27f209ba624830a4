"""Filter pipelines: which filters, in which order. Spec: format_spec/filter_pipeline.md.

u32 max chunk size · u32 number of filters · per filter (u8 code · u32 size of options · options)
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from terrazzo.errors import CorruptionError, InvalidRequestError, UnsupportedFeatureError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.filters.base import Element, Filter, FilterCode, Parts
from terrazzo.format.filters.bit_width import BitWidthReduction
from terrazzo.format.filters.bitshuffle import BitShuffle
from terrazzo.format.filters.byteshuffle import ByteShuffle
from terrazzo.format.filters.checksum import Md5, Sha256
from terrazzo.format.filters.compress import Bzip2, Gzip, Lz4, Zstd
from terrazzo.format.filters.delta import Delta
from terrazzo.format.filters.dictionary import Dictionary
from terrazzo.format.filters.double_delta import DoubleDelta
from terrazzo.format.filters.noop import NoOp
from terrazzo.format.filters.positive_delta import PositiveDelta
from terrazzo.format.filters.rle import Rle
from terrazzo.format.filters.scale_float import ScaleFloat
from terrazzo.format.filters.webp import WebP
from terrazzo.format.filters.xor import Xor
from terrazzo.format.versions import DELTA_REINTERPRET, DOUBLE_DELTA_REINTERPRET, WRITTEN
from terrazzo.format.wire import Cursor, Writer

MAX_CHUNK_SIZE = 65536

_MOST_FILTERS = 32  # bounds on sizes multiply by each
_COUNTS = struct.Struct("<II")
_FILTER = struct.Struct("<BI")

_CLASSES: tuple[type[Filter], ...] = (
    NoOp,
    Gzip,
    Zstd,
    Lz4,
    Rle,
    Bzip2,
    DoubleDelta,
    BitWidthReduction,
    BitShuffle,
    ByteShuffle,
    PositiveDelta,
    Md5,
    Sha256,
    Dictionary,
    ScaleFloat,
    Xor,
    WebP,
    Delta,
)

FILTERS: dict[int, type[Filter]] = {int(filter_class.code): filter_class for filter_class in _CLASSES}
"""Every filter that a schema can name. Encryption is not one: see `Aes256Gcm`."""


_EXPANSION = {
    FilterCode.GZIP: 1032,
    FilterCode.ZSTD: 1 << 15,
    FilterCode.LZ4: 255,
    FilterCode.RLE: 0xFFFF,
    FilterCode.BZIP2: 1 << 21,  # a block of 40 bytes can hold 46 million equal ones
    FilterCode.WEBP: 1 << 24,
    FilterCode.DOUBLE_DELTA: 32,  # two bits at least of an element of eight bytes
    FilterCode.BIT_WIDTH_REDUCTION: 8,
    FilterCode.SCALE_FLOAT: 8,
}
_REINTERPRETS = {
    FilterCode.DELTA: DELTA_REINTERPRET,
    FilterCode.DOUBLE_DELTA: DOUBLE_DELTA_REINTERPRET,
}


@dataclass(frozen=True, slots=True)
class Pipeline:
    filters: tuple[Filter, ...] = ()
    max_chunk_size: int = MAX_CHUNK_SIZE  # Quirk: written, read, and of no effect; but 0 means one chunk

    def pack(self, writer: Writer, version: int = WRITTEN) -> None:
        if len(self.filters) > _MOST_FILTERS:
            raise InvalidRequestError(f"a pipeline of {len(self.filters)} filters; {_MOST_FILTERS} at most")
        writer.raw(_COUNTS.pack(self.max_chunk_size, len(self.filters)))
        for each in self.filters:
            options = each.pack_options()
            if isinstance(each, (Delta, DoubleDelta)) and version < _REINTERPRETS[each.code]:
                options = options[:-1]  # formats before it have no datatype to read elements as
            writer.raw(_FILTER.pack(each.code, len(options)))
            writer.raw(options)

    @classmethod
    def unpack(cls, cursor: Cursor, version: int, cipher: Aes256Gcm | None = None) -> Self:
        """A stored pipeline; `cipher` stands in where encryption is named, as it is in generic tiles only."""
        max_chunk_size = cursor.u32()
        n_filters = cursor.count32(_FILTER.size, "filters")
        if n_filters > _MOST_FILTERS:
            raise UnsupportedFeatureError(
                f"a pipeline of {n_filters} filters; this release reads up to {_MOST_FILTERS}",
                offset=cursor.offset - 4,
            )
        return cls(tuple(_unpack_filter(cursor, version, cipher) for _ in range(n_filters)), max_chunk_size)

    def elements(self, datatype: Datatype, cell_size: int, version: int) -> tuple[Element, ...]:
        """What each filter sees: a filter may change the type for those behind it."""
        seen = []
        for each in self.filters:
            seen.append(Element(datatype, cell_size, version))
            datatype = each.output_type(datatype)
        return tuple(seen)

    def encode(self, parts: Parts, elements: Sequence[Element]) -> Parts:
        for each, element in zip(self.filters, elements, strict=True):
            parts = each.encode(parts, element)
        return parts

    def decode(self, parts: Parts, elements: Sequence[Element], limits: Sequence[int]) -> Parts:
        for each, element, limit in zip(self.filters[::-1], elements[::-1], limits[::-1], strict=True):
            parts = each.decode(parts, element, limit)
        return parts

    def limits(self, size: int, elements: Sequence[Element]) -> tuple[int, ...]:
        """For each filter, the most bytes that it can have been given when a chunk has `size` bytes."""
        most = []
        for each, element in zip(self.filters, elements, strict=True):
            most.append(size)
            size = each.bound(size, element)
        return tuple(most)

    @property
    def expansion(self) -> int:
        """No stored byte stands for more bytes than this: room for more need not be made."""
        product = 1
        for each in self.filters:
            product *= _EXPANSION.get(each.code, 1)  # others take no byte away
        return product


def _unpack_filter(cursor: Cursor, version: int, cipher: Aes256Gcm | None) -> Filter:
    start = cursor.offset
    code, size = cursor.unpack(_FILTER)
    options = Cursor(cursor.take(size), base=cursor.offset - size)
    if code == FilterCode.AES_256_GCM and cipher is not None:
        options.expect_end()
        return cipher
    if code == FilterCode.AES_256_GCM:
        raise CorruptionError("a pipeline names encryption where there is none", offset=start)
    if code not in FILTERS:
        raise UnsupportedFeatureError(
            f"filter {code} is not known to this release: upgrade terrazzo", offset=start
        )
    unpacked = FILTERS[code].unpack_options(options, version)
    options.expect_end()
    return unpacked
