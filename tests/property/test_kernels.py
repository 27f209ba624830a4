"""Element-wise filters: what goes in comes out, and no damage makes them do worse than fail."""

from contextlib import suppress
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from terrazzo.errors import CorruptionError, FormatError, InvalidRequestError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.base import Element, Parts
from terrazzo.format.filters.bit_stream import pack_bits, stream_size, unpack_bits
from terrazzo.format.filters.bit_width import BitWidthReduction
from terrazzo.format.filters.bitshuffle import BitShuffle
from terrazzo.format.filters.byteshuffle import ByteShuffle
from terrazzo.format.filters.delta import Delta
from terrazzo.format.filters.double_delta import DoubleDelta
from terrazzo.format.filters.positive_delta import PositiveDelta
from terrazzo.format.filters.scale_float import ScaleFloat
from terrazzo.format.filters.xor import Xor

ANY_BYTES = [ByteShuffle(), BitShuffle(), BitWidthReduction(), BitWidthReduction(24)]
WHOLE_ELEMENTS = [Xor(), Delta(), Delta(Datatype.UINT8), DoubleDelta(), DoubleDelta(Datatype.UINT8)]
ASCENDING = [PositiveDelta(), PositiveDelta(24)]
DATATYPES = st.sampled_from([each for each in Datatype if each is not Datatype.ANY])
VERSIONS = st.sampled_from([1, 19, 20, 22])
METADATA = st.lists(st.binary(max_size=5).map(lambda piece: piece * 8), max_size=3)


def joined(pieces) -> bytes:
    return b"".join(pieces)


@st.composite
def values(draw, datatype: Datatype) -> np.ndarray:
    """Noise, few distinct values, extremes, or a slow walk; sometimes more than a block of bits."""
    count = draw(st.sampled_from([0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 66, 67, 300, 2100]))
    seed = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    raw = np.frombuffer(seed.bytes(count * datatype.size), datatype.dtype)
    kind = draw(st.sampled_from(["noise", "few", "extremes", "walk"]))
    if kind == "noise" or datatype.is_float:
        return raw
    if kind == "few":
        return raw[:3][seed.integers(0, len(raw[:3]), count)] if count else raw
    ends = np.iinfo(datatype.dtype)
    if kind == "extremes":
        return seed.choice(np.array([ends.min, ends.max, 0, 1], datatype.dtype), count)
    steps = seed.integers(-(2 ** draw(st.integers(0, 62))), 2 ** draw(st.integers(0, 62)), count)
    return np.cumsum(steps).astype(datatype.dtype)


def cut(draw, data: bytes, unit: int) -> tuple[bytes, ...]:
    """The data in one to four pieces, each a multiple of `unit` but maybe the last."""
    places = sorted(draw(st.lists(st.integers(0, len(data) // unit), max_size=3)))
    edges = [0, *(place * unit for place in places), len(data)]
    return tuple(data[a:b] for a, b in pairwise(edges))


@pytest.mark.parametrize("filter_", ANY_BYTES, ids=repr)
@given(draw=st.data(), datatype=DATATYPES, version=VERSIONS, metadata=METADATA)
def test_parts_of_any_size_come_back(filter_, draw, datatype, version, metadata) -> None:
    data = draw.draw(values(datatype)).tobytes()
    ragged = data[: len(data) - draw.draw(st.integers(0, min(len(data), 7)))]
    parts = Parts(tuple(metadata), cut(draw.draw, ragged, draw.draw(st.sampled_from([1, 3, 8]))))
    element = Element(datatype, datatype.size, version)
    encoded = filter_.encode(parts, element)
    decoded = filter_.decode(encoded, element, parts.size)

    assert joined(decoded.data) == ragged
    assert joined(decoded.metadata) == joined(metadata)
    assert encoded.size <= filter_.bound(parts.size, element)


@pytest.mark.parametrize("filter_", WHOLE_ELEMENTS, ids=repr)
@given(draw=st.data(), datatype=DATATYPES, version=VERSIONS, metadata=METADATA)
def test_parts_of_whole_elements_come_back(filter_, draw, datatype, version, metadata) -> None:
    if datatype.is_float and filter_ in {Delta(), DoubleDelta()}:
        datatype = Datatype.INT64
    data = draw.draw(values(datatype)).tobytes()
    parts = Parts(tuple(metadata), cut(draw.draw, data, datatype.size))
    element = Element(datatype, datatype.size, version)
    try:
        encoded = filter_.encode(parts, element)
    except InvalidRequestError:  # too far apart: see the exact limits in the unit tests
        assert filter_ == DoubleDelta()
        assert datatype.size == 8
        return
    decoded = filter_.decode(encoded, element, parts.size)

    assert joined(decoded.data) == data
    assert joined(decoded.metadata) == joined(metadata)
    assert encoded.size <= filter_.bound(parts.size, element)


@pytest.mark.parametrize("filter_", ASCENDING, ids=repr)
@given(draw=st.data(), datatype=DATATYPES, version=VERSIONS, metadata=METADATA)
def test_ascending_parts_come_back(filter_, draw, datatype, version, metadata) -> None:
    data = np.sort(draw.draw(values(datatype))).tobytes() + draw.draw(st.binary(max_size=datatype.size - 1))
    parts = Parts(tuple(metadata), cut(draw.draw, data, datatype.size))
    element = Element(datatype, datatype.size, version)
    encoded = filter_.encode(parts, element)
    decoded = filter_.decode(encoded, element, parts.size)

    assert joined(decoded.data) == data
    assert joined(decoded.metadata) == joined(metadata)
    assert encoded.size <= filter_.bound(parts.size, element)


@given(draw=st.data(), width=st.sampled_from([1, 2, 4, 8]), single=st.booleans(), metadata=METADATA)
def test_multiples_of_the_scale_come_back_from_float_scaling(draw, width, single, metadata) -> None:
    datatype = Datatype.FLOAT32 if single else Datatype.FLOAT64
    most = min(2 ** (8 * width - 1) - 1, 2**20)
    integers = draw.draw(st.lists(st.integers(-most, most), max_size=70))
    plain = (np.array(integers, "<i8") * 0.25 - 3).astype(datatype.dtype).tobytes()
    parts, element = (
        Parts(tuple(metadata), cut(draw.draw, plain, datatype.size)),
        Element(datatype, datatype.size),
    )
    filter_ = ScaleFloat(0.25, -3.0, width)
    encoded = filter_.encode(parts, element)
    decoded = filter_.decode(encoded, element, parts.size)

    assert joined(decoded.data) == plain
    assert joined(decoded.metadata) == joined(metadata)
    assert encoded.size <= filter_.bound(parts.size, element)


def damaged(draw, stored: bytes) -> bytes:
    """Cut short, made longer, or with some other bytes."""
    kind = draw(st.sampled_from(["keep", "cut", "grow", "change", "change"]))
    if kind == "cut":
        return stored[: draw(st.integers(0, len(stored)))]
    if kind == "grow":
        return stored + draw(st.binary(min_size=1, max_size=9))
    changed = bytearray(stored)
    if kind == "change" and stored:
        for _ in range(draw(st.integers(1, 4))):
            place = draw(st.integers(0, min(len(changed) - 1, 40)))
            changed[place] = draw(st.sampled_from([0, 1, 2, 7, 8, 16, 24, 32, 64, 127, 128, 255]))
    return bytes(changed)


@pytest.mark.parametrize(
    "filter_", [*ANY_BYTES, *WHOLE_ELEMENTS, *ASCENDING, ScaleFloat(byte_width=2)], ids=repr
)
@given(draw=st.data(), datatype=DATATYPES)
def test_damage_is_a_format_error_or_some_bytes_within_the_limit(filter_, draw, datatype) -> None:
    if isinstance(filter_, ScaleFloat) or (datatype.is_float and filter_ in WHOLE_ELEMENTS):
        datatype = Datatype.INT64
    data = draw.draw(values(datatype))
    plain = np.zeros_like(data) if isinstance(filter_, ScaleFloat) else np.sort(data)
    element, parts = Element(datatype, datatype.size), Parts((b"12345678",), (plain.tobytes(),))
    try:
        encoded = filter_.encode(parts, element)
    except InvalidRequestError:
        return
    metadata = damaged(draw.draw, joined(encoded.metadata))
    hurt = Parts((metadata,), (damaged(draw.draw, joined(encoded.data)),))
    limit = draw.draw(st.sampled_from([parts.size, parts.size + 100, 7]))
    with suppress(FormatError):
        decoded = filter_.decode(hurt, element, limit)

        assert decoded.size <= limit


@pytest.mark.parametrize("filter_", [*ANY_BYTES, *WHOLE_ELEMENTS, *ASCENDING, ScaleFloat()], ids=repr)
@given(metadata=st.binary(max_size=60), data=st.binary(max_size=60), datatype=DATATYPES)
def test_noise_is_a_format_error_or_some_bytes_within_the_limit(filter_, metadata, data, datatype) -> None:
    with suppress(FormatError):
        decoded = filter_.decode(Parts((metadata,), (data,)), Element(datatype, datatype.size), 1000)

        assert decoded.size <= 1000


@pytest.mark.parametrize("filter_", [*ANY_BYTES, *WHOLE_ELEMENTS, *ASCENDING], ids=repr)
def test_a_chunk_above_the_limit_is_corruption(filter_) -> None:
    element = Element(Datatype.INT64, 8)
    encoded = filter_.encode(Parts((b"12345678",), (bytes(800),)), element)

    with pytest.raises(CorruptionError):
        filter_.decode(encoded, element, 807)


def packed_one_by_one(numbers: list[int], width: int) -> bytes:
    bits = "".join(format(number, f"0{width}b") for number in numbers)
    bits += "0" * (-len(bits) % 64)
    return b"".join(int(bits[at : at + 64], 2).to_bytes(8, "little") for at in range(0, len(bits), 64))


@given(width=st.integers(1, 63), draw=st.data())
def test_bits_are_packed_and_unpacked_as_one_by_one(width: int, draw) -> None:
    numbers = draw.draw(st.lists(st.integers(0, 2**width - 1), min_size=1, max_size=150))
    packed = pack_bits(np.array(numbers, np.uint64), width)
    rows = unpack_bits(np.frombuffer(packed, np.uint8)[None], len(numbers), width)[:, 0]

    assert packed == packed_one_by_one(numbers, width)
    assert len(packed) == stream_size(len(numbers), width)
    assert (rows.T.reshape(-1)[: len(numbers)] >> (8 * rows.itemsize - width)).tolist() == numbers
