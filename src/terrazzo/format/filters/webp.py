"""WebP: a whole tile as one picture. Spec: format_spec/filters/webp.md.

    offset  size  option
         0     4  f32 quality, 0 to 100; lossy only
         4     1  colour format
         5     1  lossless
         6     4  u16 height, u16 width of a tile, as the schema has them
        10     2  padding
    metadata out:  u32 1 · u32 bytes of the picture · metadata in

Pictures are read, with Pillow; none are written.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, Self

import numpy as np

from terrazzo.errors import CorruptionError, UnsupportedFeatureError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.base import Element, FilterCode, Parts, joined, within
from terrazzo.format.wire import Bytes, Cursor

_OPTIONS = struct.Struct("<fBBHH2x")
_BLOCK = struct.Struct("<II")


class ColourFormat(IntEnum):
    NONE = 0
    RGB = 1
    BGR = 2
    RGBA = 3
    BGRA = 4


_CHANNELS = {
    ColourFormat.RGB: ("RGB", [0, 1, 2]),
    ColourFormat.BGR: ("RGB", [2, 1, 0]),
    ColourFormat.RGBA: ("RGBA", [0, 1, 2, 3]),
    ColourFormat.BGRA: ("RGBA", [2, 1, 0, 3]),
}


@dataclass(frozen=True, slots=True)
class WebP:
    code: ClassVar = FilterCode.WEBP

    quality: float = 100.0
    format: ColourFormat = ColourFormat.NONE
    lossless: bool = False
    y_extent: int = 0
    x_extent: int = 0

    def output_type(self, datatype: Datatype) -> Datatype:
        return datatype

    def encode(self, parts: Parts, element: Element) -> Parts:  # noqa: ARG002
        raise UnsupportedFeatureError("WebP is read only; write this attribute with another filter")

    def decode(self, parts: Parts, element: Element, limit: int) -> Parts:  # noqa: ARG002
        cursor = Cursor(joined(parts.metadata))
        n_parts, size = cursor.unpack(_BLOCK)
        picture, metadata = joined(parts.data), cursor.rest()
        if n_parts != 1 or size != len(picture):
            raise CorruptionError(f"{n_parts} pictures of {size} bytes in {len(picture)} bytes of data")
        if self.format not in _CHANNELS:
            raise CorruptionError("WebP without a colour format")
        mode, channels = _CHANNELS[self.format]
        width, height = _dimensions(picture)
        within(width * height * len(channels), limit, "a picture")
        pixels = np.asarray(_opened(picture).convert(mode))[..., channels]
        return Parts((metadata,) if metadata else (), (pixels.tobytes(),))

    def bound(self, size: int, element: Element) -> int:  # noqa: ARG002
        return 2 * size + 4096

    def pack_options(self) -> bytes:
        return _OPTIONS.pack(self.quality, self.format, self.lossless, self.y_extent, self.x_extent)

    @classmethod
    def unpack_options(cls, cursor: Cursor, version: int) -> Self:  # noqa: ARG003
        start = cursor.offset
        quality, colours, lossless, y_extent, x_extent = cursor.unpack(_OPTIONS)
        if colours not in ColourFormat.__members__.values() or lossless > 1:
            raise CorruptionError(f"WebP of colour format {colours}, lossless {lossless}", offset=start)
        return cls(quality, ColourFormat(colours), bool(lossless), y_extent, x_extent)


def _dimensions(picture: Bytes) -> tuple[int, int]:
    """Width and height, before a decoder makes room for them."""
    head = bytes(picture[:30])
    if len(head) == 30 and head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        match head[12:16]:
            case b"VP8 ":
                packed = int.from_bytes(head[26:30], "little")
                return packed & 0x3FFF, packed >> 16 & 0x3FFF
            case b"VP8L":
                packed = int.from_bytes(head[21:25], "little")
                return (packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1
            case b"VP8X":
                return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    raise CorruptionError("not a WebP picture")


def _opened(picture: Bytes) -> Any:
    try:
        from PIL import ImageFile  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        raise UnsupportedFeatureError("WebP tiles need Pillow: pip install 'terrazzo[webp]'") from None
    try:
        parser = ImageFile.Parser()
        parser.feed(bytes(picture))
        return parser.close()
    except Exception as error:  # Pillow fails in many ways
        raise CorruptionError(f"WebP: {error}") from None
