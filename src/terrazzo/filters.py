"""Filters by their public names: `tz.filters.Zstd(3)`."""

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

__all__ = [
    "BitShuffle", "BitWidthReduction", "ByteShuffle", "Bzip2", "Delta", "Dictionary", "DoubleDelta", "Gzip", "Lz4",
    "Md5", "NoOp", "PositiveDelta", "Rle", "ScaleFloat", "Sha256", "WebP", "Xor", "Zstd",
]  # fmt: skip
