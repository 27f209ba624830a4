import pytest

from terrazzo.errors import CorruptionError, UnsupportedFeatureError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.base import Element, Parts
from terrazzo.format.filters.webp import ColourFormat, WebP
from terrazzo.format.wire import Cursor

ELEMENT = Element(Datatype.UINT8, 1)
OPTIONS = bytes.fromhex("0000c842 03 01 1800 1000 0000")


def test_options_are_quality_colours_lossless_and_extents() -> None:
    webp = WebP(100.0, ColourFormat.RGBA, lossless=True, y_extent=24, x_extent=16)

    assert webp.pack_options() == OPTIONS
    assert WebP.unpack_options(Cursor(OPTIONS), 22) == webp


@pytest.mark.parametrize(
    "stored", ["0000c842 05 01 1800 1000 0000", "0000c842 03 02 1800 1000 0000", "0000c842"]
)
def test_options_out_of_range_are_corruption(stored: str) -> None:
    with pytest.raises(CorruptionError):
        WebP.unpack_options(Cursor(bytes.fromhex(stored)), 22)


def test_writing_is_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match="another filter"):
        WebP().encode(Parts((), (b"pixels",)), ELEMENT)


@pytest.mark.parametrize(
    "picture",
    [
        b"",
        b"RIFF" + bytes(40),
        b"RIFF\x20\x00\x00\x00WEBPVP8X" + bytes(20),
        b"RIFF\x20\x00\x00\x00WEBPVP8L" + bytes(20),
        b"RIFF\x20\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00" + b"\xff" * 20,
    ],
)
def test_what_is_no_picture_is_corruption(picture: bytes) -> None:
    pytest.importorskip("PIL")
    block = b"\x01\x00\x00\x00" + len(picture).to_bytes(4, "little")

    with pytest.raises(CorruptionError):
        WebP(format=ColourFormat.RGB).decode(Parts((block,), (picture,)), ELEMENT, 1000)
