"""Element-wise filters against bytes that libtiledb wrote."""

import math

import numpy as np
import pytest

from terrazzo.errors import CorruptionError, InvalidRequestError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.base import Element, Filter, Parts, joined
from terrazzo.format.filters.bit_width import BitWidthReduction
from terrazzo.format.filters.bitshuffle import BitShuffle
from terrazzo.format.filters.byteshuffle import ByteShuffle
from terrazzo.format.filters.delta import Delta
from terrazzo.format.filters.double_delta import DoubleDelta
from terrazzo.format.filters.positive_delta import PositiveDelta
from terrazzo.format.filters.scale_float import ScaleFloat
from terrazzo.format.filters.xor import Xor
from terrazzo.format.wire import Cursor

INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)
OF_INTEGERS = [
    ByteShuffle(), BitShuffle(), Xor(), Delta(), DoubleDelta(), BitWidthReduction(), PositiveDelta(),
]  # fmt: skip
SINGLE = "00000000 01000000"  # of a compressor's block: no metadata, one part of data


def chunk(values: list[float], datatype: Datatype) -> Parts:
    return Parts((), (np.array(values, datatype.dtype).tobytes(),))


def stored(metadata: str, data: str) -> Parts:
    return Parts((bytes.fromhex(metadata),), (bytes.fromhex(data),))


def element(datatype: Datatype, version: int = 22) -> Element:
    return Element(datatype, datatype.size, version)


GOLDEN = {
    "byteshuffle": (
        ByteShuffle(), Datatype.INT32, [1, 2, 3, 4, 5],
        "01000000 14000000", "01 02 03 04 05" + "00" * 15,
    ),
    "bitshuffle": (
        BitShuffle(), Datatype.INT32, [*range(1, 9)],
        "01000000 20000000", "55 66 78 80" + "00" * 28,
    ),
    "bitshuffle of nine bytes": (
        BitShuffle(), Datatype.INT8, [*range(1, 10)],
        "02000000 08000000 01000000", "5566788000000000 09",
    ),
    "bitshuffle of three bytes": (
        BitShuffle(), Datatype.INT8, [0, 1, 2],
        "02000000 00000000 03000000", "000102",
    ),
    "bitshuffle of three elements of four bytes": (
        BitShuffle(), Datatype.INT32, [1, 2, 3],
        "02000000 08000000 04000000", "01000000 02000000 03000000",
    ),
    "xor of floats": (
        Xor(), Datatype.FLOAT64, [1.0, 2.0],
        "01000000 10000000", "000000000000f03f 000000000000f07f",
    ),
    "delta": (
        Delta(), Datatype.INT32, [1, 4, 2],
        SINGLE + "0c000000 14000000", "0300000000000000 01000000 03000000 feffffff",
    ),
    "delta wraps": (
        Delta(), Datatype.INT64, [INT64_MIN, INT64_MAX, 0],
        SINGLE + "18000000 20000000",
        "0300000000000000 0000000000000080 ffffffffffffffff 0100000000000080",
    ),
    "delta of wide characters counts in bytes": (
        Delta(), Datatype.STRING_UTF16, [5, 9, 7, 3],
        SINGLE + "08000000 10000000", "0800000000000000 05fb09f707f903fd",
    ),
    "delta of floats as bytes": (
        Delta(Datatype.UINT8), Datatype.FLOAT64, [0, 1.5, 2],
        SINGLE + "18000000 20000000",
        "1800000000000000 000000000000000000000000 0000f847c1000000 00000040",
    ),
    "double delta": (
        DoubleDelta(), Datatype.INT32, [10, 12, 15, 16, 14],
        SINGLE + "14000000 19000000", "02 0500000000000000 0a000000 0c000000 000000000000803b",
    ),
    "double delta of one": (
        DoubleDelta(), Datatype.INT64, [5],
        SINGLE + "08000000 11000000", "00 0100000000000000 0500000000000000",
    ),
    "double delta of two, however far apart": (
        DoubleDelta(), Datatype.INT64, [INT64_MIN, INT64_MAX],
        SINGLE + "10000000 19000000", "00 0200000000000000 0000000000000080 ffffffffffffff7f",
    ),
    "double delta of a line": (
        DoubleDelta(), Datatype.UINT64, [2**63 - 1, 2**63, 2**63 + 1, 2**63 + 2],
        SINGLE + "20000000 21000000",
        "01 0400000000000000 ffffffffffffff7f 0000000000000080 0000000000000000",
    ),
    "double delta that does not pay": (
        DoubleDelta(), Datatype.INT8, [0, 127, -128],
        SINGLE + "03000000 0c000000", "09 0300000000000000 007f80",
    ),
    "double delta of the least difference": (
        DoubleDelta(), Datatype.INT64, [INT64_MAX, -1, -2],
        SINGLE + "18000000 21000000",
        "40 0300000000000000 ffffffffffffff7f ffffffffffffffff feffffffffffffff",
    ),
    "double delta of dates": (
        DoubleDelta(), Datatype.DATETIME_MS, [3, 4, 1, 2],
        SINGLE + "20000000 21000000",
        "03 0400000000000000 0300000000000000 0400000000000000 00000000000000c4",
    ),
    "bit width": (
        BitWidthReduction(), Datatype.INT32, [1000, 1001, 1005, 1100],
        "10000000 01000000 e8030000 08 10000000", "00 01 05 64",
    ),
    "bit width in windows of whole elements": (
        BitWidthReduction(20), Datatype.INT64, [*range(7)],
        "38000000 04000000 " + "".join(f"{least:02x}00000000000000 08 10000000" for least in (0, 2, 4))
        + "0600000000000000 08 08000000",
        "00010001000100",
    ),
    "bit width, unsigned, just fits 32 bits": (
        BitWidthReduction(), Datatype.UINT64, [7, 7 + 2**32 - 2],
        "10000000 01000000 0700000000000000 20 10000000", "00000000 feffffff",
    ),
    "bit width, unsigned, just does not": (
        BitWidthReduction(), Datatype.UINT64, [7, 7 + 2**32 - 1],
        "10000000 01000000 0700000000000000 40 10000000", "0700000000000000 0600000001000000",
    ),
    "bit width, signed, just fits 8 bits": (
        BitWidthReduction(), Datatype.INT32, [0, 126],
        "08000000 01000000 00000000 08 08000000", "00 7e",
    ),
    "bit width, signed, just does not": (
        BitWidthReduction(), Datatype.INT32, [0, 127],
        "08000000 01000000 00000000 10 08000000", "0000 7f00",
    ),
    "bit width of dates": (
        BitWidthReduction(), Datatype.DATETIME_MS, [3, 4, 1, 2],
        "20000000 01000000 0100000000000000 08 20000000", "02030001",
    ),
    "positive delta": (
        PositiveDelta(), Datatype.UINT16, [3, 4, 4, 9],
        "01000000 0300 08000000", "0000 0100 0000 0500",
    ),
    "positive delta may fall between windows": (
        PositiveDelta(16), Datatype.INT64, [3, 4, 1, 2],
        "02000000 0300000000000000 10000000 0100000000000000 10000000",
        "0000000000000000 0100000000000000 0000000000000000 0100000000000000",
    ),
    "positive delta wraps": (
        PositiveDelta(), Datatype.INT8, [-128, 127],
        "01000000 80 02000000", "00ff",
    ),
    "float scale": (
        ScaleFloat(), Datatype.FLOAT64, [-3, 3, 0],
        "01000000 18000000", "fdffffffffffffff 0300000000000000 0000000000000000",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GOLDEN)
def test_bytes_are_those_of_libtiledb_both_ways(name: str) -> None:
    filter_, datatype, values, metadata, data = GOLDEN[name]
    plain, encoded = chunk(values, datatype), stored(metadata, data)

    assert filter_.encode(plain, element(datatype)) == encoded
    assert filter_.decode(encoded, element(datatype), plain.size) == plain


def test_metadata_that_came_in_stays_behind_the_block_of_a_filter_that_prepends() -> None:
    plain = Parts((b"newest", b"older"), (b"\x01\x00\x02\x00",))

    for filter_ in (ByteShuffle(), BitShuffle(), Xor(), BitWidthReduction(), PositiveDelta()):
        encoded = filter_.encode(plain, element(Datatype.INT16))
        decoded = filter_.decode(encoded, element(Datatype.INT16), plain.size)

        assert encoded.metadata[1:] == plain.metadata
        assert decoded == Parts((b"newestolder",), plain.data)


def test_metadata_that_came_in_is_differenced_too() -> None:
    shuffled = ByteShuffle().encode(chunk([1, 4, 2], Datatype.INT64), element(Datatype.INT64))
    encoded = Delta().encode(shuffled, element(Datatype.INT64))

    assert encoded == stored(
        "01000000 01000000 08000000 10000000 18000000 20000000",
        "0100000000000000 0100000018000000"
        "0300000000000000 0104020000000000 fffbfdffffffffff 0000000000000000",
    )
    assert Delta().decode(encoded, element(Datatype.INT64), 100) == shuffled


@pytest.mark.parametrize(("filter_", "written"), [(Delta(), 9), (DoubleDelta(), 11)])
def test_no_elements_are_stored_as_long_as_libtiledb_does_and_junk_in_them_is_no_matter(filter_, written):
    empty, junk = chunk([], Datatype.UINT8), bytes(written - 1) + b"\xc0"

    assert filter_.encode(empty, element(Datatype.UINT8)).data == (bytes(written),)
    assert filter_.decode(
        Parts((bytes.fromhex(SINGLE + "00000000") + written.to_bytes(4, "little"),), (junk,)),
        element(Datatype.UINT8),
        0,
    ) == Parts((), (b"",))


def test_windows_of_a_width_that_gains_nothing_ignore_their_offset() -> None:
    junk = stored("18000000 01000000 104b000d42560000 40 18000000", "00000000000000807f" + "ff" * 15)

    assert BitWidthReduction().decode(junk, element(Datatype.INT64), 24) == Parts((), junk.data)


@pytest.mark.parametrize(
    ("filter_", "datatype", "version"),
    [
        *((BitWidthReduction(), Datatype[name], 22) for name in ("INT8", "UINT8", "BOOL", "FLOAT64", "BLOB")),
        *((BitWidthReduction(), Datatype[name], 19) for name in ("DATETIME_DAY", "TIME_NS")),
        *((PositiveDelta(), Datatype[name], 22) for name in ("FLOAT32", "CHAR", "STRING_ASCII")),
        *((PositiveDelta(), Datatype[name], 19) for name in ("DATETIME_DAY", "TIME_NS")),
    ],
)
def test_window_filters_pass_what_they_do_not_take(filter_: Filter, datatype: Datatype, version: int) -> None:
    plain = Parts((b"in",), (bytes(range(16, 0, -1)),))

    assert filter_.encode(plain, element(datatype, version)) == plain
    assert filter_.decode(plain, element(datatype, version), plain.size) == plain
    assert filter_.bound(100, element(datatype, version)) == 100


@pytest.mark.parametrize(
    ("filter_", "datatype", "values", "complaint"),
    [
        (PositiveDelta(), Datatype.INT32, [3, 2], "fall from 3 to 2"),
        (DoubleDelta(), Datatype.INT64, [INT64_MIN, INT64_MAX, 0], "too far apart"),
        (DoubleDelta(), Datatype.INT64, [0, INT64_MAX, 0], "too far apart"),
        (DoubleDelta(), Datatype.INT64, [0, INT64_MIN, INT64_MIN], "too far apart"),
        (DoubleDelta(), Datatype.UINT64, [0, 2**63, 0], "too far apart"),
        (DoubleDelta(), Datatype.FLOAT64, [0, 1], "does not take float64; set reinterpret"),
        (Delta(), Datatype.FLOAT32, [0, 1], "does not take float32; set reinterpret"),
        (Delta(Datatype.INT64), Datatype.INT32, [0, 1], "cannot read int32 as int64"),
        (Delta(Datatype.FLOAT32), Datatype.INT32, [0, 1], "cannot read int32 as float32"),
        (Delta(Datatype.STRING_ASCII), Datatype.INT32, [0, 1], "cannot read int32 as string_ascii"),
        (BitWidthReduction(3), Datatype.INT32, [0, 1], "holds no element"),
        (PositiveDelta(0), Datatype.INT32, [0, 1], "holds no element"),
        (ScaleFloat(), Datatype.INT16, [0, 1], "not int16"),
        (ScaleFloat(), Datatype.FLOAT64, [math.nan], "NaN"),
        (ScaleFloat(), Datatype.FLOAT32, [2.0**63], "do not bring into 8 bytes"),
        (ScaleFloat(byte_width=1), Datatype.FLOAT64, [128], "do not bring into 1 bytes"),
        (ScaleFloat(scale=0.0), Datatype.FLOAT64, [1], "do not bring into"),
    ],
)
def test_what_a_filter_cannot_store_is_refused(filter_, datatype, values, complaint) -> None:
    with pytest.raises(InvalidRequestError, match=complaint):
        filter_.encode(chunk(values, datatype), element(datatype))


@pytest.mark.parametrize("filter_", [Xor(), Delta(), DoubleDelta(), ScaleFloat()])
def test_a_part_that_ends_within_an_element_is_refused(filter_: Filter) -> None:
    datatype = Datatype.FLOAT32 if isinstance(filter_, ScaleFloat) else Datatype.INT32

    with pytest.raises(InvalidRequestError, match="whole elements"):
        filter_.encode(Parts((), (bytes(7),)), element(datatype))


def test_float_scale_rounds_halves_away_from_zero_in_the_precision_of_the_elements() -> None:
    halves = [2.5, -2.5, 0.5, -0.5, math.nextafter(0.5, 0), 4503599627370495.5]
    encoded = ScaleFloat().encode(chunk(halves, Datatype.FLOAT64), element(Datatype.FLOAT64))

    assert np.frombuffer(joined(encoded.data), "<i8").tolist() == [3, -3, 1, -1, 0, 2**52]

    offset = ScaleFloat(0.25, 10, 4)
    single = chunk([10.754], Datatype.FLOAT32)
    stored_single = offset.encode(single, element(Datatype.FLOAT32))
    assert stored_single == stored("01000000 04000000", "03000000")
    assert offset.decode(stored_single, element(Datatype.FLOAT32), 4) == chunk([10.75], Datatype.FLOAT32)


def test_types_seen_by_the_next_filter() -> None:
    assert Xor().output_type(Datatype.FLOAT64) is Datatype.INT64
    assert Xor().output_type(Datatype.UINT16) is Datatype.INT16
    assert ScaleFloat(byte_width=2).output_type(Datatype.FLOAT64) is Datatype.INT16
    assert Delta(Datatype.UINT8).output_type(Datatype.FLOAT64) is Datatype.UINT8
    for filter_ in (
        Delta(),
        DoubleDelta(),
        ByteShuffle(),
        BitShuffle(),
        BitWidthReduction(),
        PositiveDelta(),
    ):
        assert filter_.output_type(Datatype.UINT32) is Datatype.UINT32


OPTIONS = {
    ByteShuffle(): "",
    BitShuffle(): "",
    Xor(): "",
    Delta(): "08 ffffffff 11",
    Delta(Datatype.INT32, 7): "08 07000000 00",
    DoubleDelta(): "06 ffffffff 11",
    DoubleDelta(Datatype.UINT64): "06 ffffffff 0a",
    BitWidthReduction(): "00010000",
    PositiveDelta(): "00040000",
    ScaleFloat(0.5, -1.0, 4): "000000000000e03f 000000000000f0bf 0400000000000000",
}


@pytest.mark.parametrize("filter_", OPTIONS, ids=repr)
def test_options_are_packed_as_libtiledb_does(filter_: Filter) -> None:
    packed = bytes.fromhex(OPTIONS[filter_])
    cursor = Cursor(packed)

    assert filter_.pack_options() == packed
    assert type(filter_).unpack_options(cursor, 22) == filter_
    assert cursor.remaining == 0
    for cut in range(len(packed)):
        with pytest.raises(CorruptionError):
            type(filter_).unpack_options(Cursor(packed[:cut]), 22)


@pytest.mark.parametrize(("kind", "code", "first"), [(Delta, "08", 19), (DoubleDelta, "06", 20)])
def test_older_formats_know_no_reinterpretation(kind, code: str, first: int) -> None:
    packed = bytes.fromhex(code + "05000000")

    assert kind.unpack_options(Cursor(packed), first - 1) == kind(level=5)
    with pytest.raises(CorruptionError):
        kind.unpack_options(Cursor(packed), first)


@pytest.mark.parametrize(
    ("kind", "packed"),
    [
        (Delta, "13 ffffffff 11"),  # the number of the filter, not of the compressor
        (Delta, "08 ffffffff ff"),
        (ScaleFloat, "000000000000e03f 000000000000f0bf 0300000000000000"),
    ],
)
def test_options_that_cannot_be_are_corruption(kind, packed: str) -> None:
    with pytest.raises(CorruptionError):
        kind.unpack_options(Cursor(bytes.fromhex(packed)), 22)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ScaleFloat(byte_width=3),
        lambda: BitWidthReduction(-1),
        lambda: PositiveDelta(2**32),
        lambda: Delta(Datatype.ANY),
        lambda: DoubleDelta(level=2**31),
    ],
)
def test_options_that_cannot_be_stored_are_refused_at_once(make) -> None:
    with pytest.raises(InvalidRequestError):
        make()


@pytest.mark.parametrize("shift", range(1, 8))
def test_chunks_need_not_be_aligned(shift: int) -> None:
    values = np.arange(5000, dtype="<i8")
    for filter_ in (
        ByteShuffle(),
        BitShuffle(),
        Xor(),
        Delta(),
        DoubleDelta(),
        BitWidthReduction(),
        PositiveDelta(),
    ):
        encoded = filter_.encode(Parts((), (values.tobytes(),)), element(Datatype.INT64))
        moved = memoryview(bytes(shift) + bytes(joined(encoded.data)))[shift:]
        plain = memoryview(bytes(shift) + values.tobytes())[shift:]

        decoded = filter_.decode(Parts(encoded.metadata, (moved,)), element(Datatype.INT64), values.nbytes)
        assert decoded == Parts((), (values.tobytes(),))
        assert filter_.encode(Parts((), (plain,)), element(Datatype.INT64)) == encoded
