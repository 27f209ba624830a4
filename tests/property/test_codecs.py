"""Filters one by one: what goes in comes out, within its bound, and damage is a FormatError."""

import itertools
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from terrazzo.errors import FormatError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.filters.base import Element, Parts
from terrazzo.format.filters.checksum import Md5, Sha256
from terrazzo.format.filters.compress import Bzip2, Gzip, Lz4, Zstd
from terrazzo.format.filters.dictionary import Dictionary
from terrazzo.format.filters.noop import NoOp
from terrazzo.format.filters.rle import Rle
from terrazzo.format.filters.strings import string_starts

_counter = itertools.count()
CIPHER = Aes256Gcm(bytes(range(32)), lambda: next(_counter).to_bytes(12, "big"))
OF_BYTES = [NoOp(), Gzip(), Zstd(), Lz4(), Bzip2(), Md5(), Sha256(), CIPHER, Rle()]
ELEMENT = Element(Datatype.UINT8, 1)

chunks = st.binary(max_size=300) | st.binary(max_size=9).map(lambda piece: piece * 50)
words = st.sampled_from([b"", b"a", b"ab", b"x" * 300]) | st.binary(max_size=12)
cells = st.lists(words, max_size=60) | st.lists(words, max_size=6).map(lambda some: some * 50)


def joined_parts(parts: Parts) -> tuple[bytes, bytes]:
    return b"".join(parts.metadata), b"".join(parts.data)


def joined_cells(some: list[bytes]) -> tuple[bytes, np.ndarray]:
    return b"".join(some), np.cumsum([0, *map(len, some)][:-1], dtype=np.uint64)


def damaged(draw, stored: bytes) -> bytes:
    """Cut short, made longer, or with some other bytes."""
    kind = draw(st.sampled_from(["cut", "grow", "change"]))
    if kind == "cut":
        return stored[: draw(st.integers(0, len(stored)))]
    if kind == "grow":
        return stored + draw(st.binary(min_size=1, max_size=9))
    changed = bytearray(stored)
    for _ in range(draw(st.integers(1, 4))):
        if changed:
            changed[draw(st.integers(0, len(changed) - 1))] = draw(st.sampled_from([0, 1, 2, 127, 128, 255]))
    return bytes(changed)


@pytest.mark.parametrize("filter_", OF_BYTES, ids=lambda each: type(each).__name__)
@given(metadata=st.lists(chunks, max_size=3), data=chunks)
@settings(deadline=None)
def test_metadata_and_data_come_back_within_the_bound(filter_, metadata, data) -> None:
    parts = Parts(tuple(metadata), (data,))

    encoded = filter_.encode(parts, ELEMENT)

    assert joined_parts(filter_.decode(encoded, ELEMENT, parts.size)) == joined_parts(parts)
    assert encoded.size <= filter_.bound(parts.size, ELEMENT)


@pytest.mark.parametrize("filter_", OF_BYTES, ids=lambda each: type(each).__name__)
@given(metadata=st.lists(chunks, max_size=2), data=chunks, draw=st.data())
@settings(deadline=None)
def test_damage_is_a_format_error_or_other_bytes_within_the_limit(filter_, metadata, data, draw) -> None:
    parts = Parts(tuple(metadata), (data,))
    block, stored = joined_parts(filter_.encode(parts, ELEMENT))
    block, stored = damaged(draw.draw, block), damaged(draw.draw, stored)
    limit = max(parts.size, len(block) + len(stored))

    with suppress(FormatError):
        assert filter_.decode(Parts((block,), (stored,)), ELEMENT, limit).size <= limit


@pytest.mark.parametrize("filter_", [Rle(), Dictionary()])
@given(some=cells)
@settings(deadline=None)
def test_strings_and_their_offsets_come_back_within_the_bound(filter_, some) -> None:
    data, offsets = joined_cells(some)

    encoded = filter_.encode_strings(data, offsets)
    content, found = filter_.decode_strings(encoded, len(some), len(data))

    assert content.tobytes() == data
    assert found.tolist() == offsets.tolist()
    assert encoded.size <= filter_.strings_bound(len(data), len(some))


@pytest.mark.parametrize("filter_", [Rle(), Dictionary()])
@given(some=cells, draw=st.data())
@settings(deadline=None)
def test_damaged_strings_are_a_format_error_or_as_many_other_strings(filter_, some, draw) -> None:
    data, offsets = joined_cells(some)
    block, stored = joined_parts(filter_.encode_strings(data, offsets))
    parts = Parts((damaged(draw.draw, block),), (damaged(draw.draw, stored),))

    with suppress(FormatError):
        content, found = filter_.decode_strings(parts, len(some), len(data))
        assert len(found) == len(some)
        assert len(content) <= len(data)


@given(some=st.lists(words, max_size=30), skip=st.sampled_from([0, 1, 8]), width=st.sampled_from([2, 4, 8]))
@settings(deadline=None)
def test_entries_start_where_the_one_before_ends(some, skip, width) -> None:
    entries = [bytes(skip) + len(word).to_bytes(width, "big") + word for word in some]

    starts = string_starts(b"".join(entries), skip, width)

    assert starts.tolist() == list(itertools.accumulate(map(len, entries), initial=0))[:-1]
