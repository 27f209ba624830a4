import pytest

from terrazzo.errors import CorruptionError, UnsupportedFeatureError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.filters.base import FilterCode
from terrazzo.format.filters.bit_width import BitWidthReduction
from terrazzo.format.filters.bitshuffle import BitShuffle
from terrazzo.format.filters.byteshuffle import ByteShuffle
from terrazzo.format.filters.checksum import Md5, Sha256
from terrazzo.format.filters.compress import Bzip2, Gzip, Lz4, Zstd
from terrazzo.format.filters.delta import Delta
from terrazzo.format.filters.dictionary import Dictionary
from terrazzo.format.filters.double_delta import DoubleDelta
from terrazzo.format.filters.noop import NoOp
from terrazzo.format.filters.pipeline import FILTERS, Pipeline
from terrazzo.format.filters.positive_delta import PositiveDelta
from terrazzo.format.filters.rle import Rle
from terrazzo.format.filters.scale_float import ScaleFloat
from terrazzo.format.filters.webp import WebP
from terrazzo.format.filters.xor import Xor
from terrazzo.format.wire import Cursor, Writer


def packed(pipeline: Pipeline) -> bytes:
    writer = Writer()
    pipeline.pack(writer)
    return bytes(writer)


def test_a_pipeline_is_chunk_size_count_and_per_filter_code_and_options() -> None:
    stored = bytes.fromhex("00000100 02000000 0c 00000000 01 05000000 01 01000000")
    pipeline = Pipeline((Md5(), Gzip(1)))

    assert packed(pipeline) == stored
    assert Pipeline.unpack(Cursor(stored), 22) == pipeline


def test_every_filter_comes_back_from_its_options() -> None:
    plain = (NoOp(), Gzip(), Zstd(4), Lz4(), Rle(), Bzip2(2), Md5(), Sha256(), Dictionary(), WebP())
    element_wise = (
        DoubleDelta(),
        DoubleDelta(Datatype.INT32),
        Delta(),
        Delta(Datatype.UINT8),
        BitWidthReduction(),
        BitWidthReduction(99),
        PositiveDelta(7),
        BitShuffle(),
        ByteShuffle(),
        Xor(),
        ScaleFloat(0.5, 1.5, 2),
    )
    pipeline = Pipeline(plain + element_wise, 1000)

    assert Pipeline.unpack(Cursor(packed(pipeline)), 22) == pipeline


def test_the_table_has_every_filter_but_encryption_and_the_retired_one() -> None:
    assert set(FILTERS) == set(FilterCode) - {FilterCode.AES_256_GCM, FilterCode.BITSORT}


@pytest.mark.parametrize("code", [17, 20, 255])
def test_unknown_and_retired_filters_ask_for_an_upgrade(code: int) -> None:
    stored = bytes.fromhex("00000100 01000000") + bytes([code, 0, 0, 0, 0])

    with pytest.raises(UnsupportedFeatureError, match=f"filter {code} is not known"):
        Pipeline.unpack(Cursor(stored), 22)


def test_encryption_is_named_where_a_cipher_is_at_hand_only() -> None:
    stored = bytes.fromhex("00000100 01000000 0b 00000000")
    cipher = Aes256Gcm(bytes(32), lambda: bytes(12))

    assert Pipeline.unpack(Cursor(stored), 22, cipher) == Pipeline((cipher,))
    with pytest.raises(CorruptionError, match="at byte 8"):
        Pipeline.unpack(Cursor(stored), 22)


@pytest.mark.parametrize(
    "stored",
    [
        "00000100 01000000 01 04000000 01 010000",
        "00000100 01000000 01 06000000 01 01000000 00",
        "00000100 01000000 01 05000000 01 0100",
        "00000100 ffffffff 01 05000000 01 01000000",
        "000001",
    ],
)
def test_options_that_do_not_fit_are_corruption(stored: str) -> None:
    with pytest.raises(CorruptionError):
        Pipeline.unpack(Cursor(bytes.fromhex(stored)), 22)


def test_delta_filters_of_old_schemas_have_no_datatype_in_their_options() -> None:
    for version, sizes in ((18, (5, 5)), (19, (6, 5)), (20, (6, 6))):
        writer = Writer()
        Pipeline((Delta(), DoubleDelta())).pack(writer, version)
        stored = bytes(writer)

        assert (stored[9], stored[14 + sizes[0]]) == sizes
        assert Pipeline.unpack(Cursor(stored), version) == Pipeline((Delta(), DoubleDelta()))
