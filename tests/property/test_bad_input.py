"""Truncated and mutated files of every kind: a value or a FormatError, at once, and no memory for nothing."""

from collections.abc import Iterator

import pytest
from damage import SCALE, Kind, attempt, cuts, damaged_parses, has_place, limited_memory, peak_of
from specimens import kind_params

from terrazzo.errors import CorruptionError


@pytest.fixture(scope="module", autouse=True)
def _little_memory() -> Iterator[None]:
    with limited_memory():
        yield


@pytest.mark.parametrize("kind", kind_params())
def test_sound_files_are_read(kind: Kind) -> None:
    for file in kind.files:
        assert attempt(kind.parse_file, file) is None


@pytest.mark.parametrize("kind", kind_params())
def test_a_file_cut_anywhere_is_read_or_is_an_error_that_says_where(kind: Kind) -> None:
    for file, body in zip(kind.files, kind.sound, strict=True):
        for parse, stored in {kind.parse_file: file, kind.parse: body}.items():
            for size in cuts(len(stored)):
                problem = attempt(parse, stored[:size])

                assert not isinstance(problem, CorruptionError) or has_place(problem), problem


@pytest.mark.parametrize("kind", kind_params())
def test_a_file_mutated_anyhow_is_read_or_is_a_format_error(kind: Kind) -> None:
    for stored, parse in damaged_parses(kind, 1, kind.mutations):
        attempt(parse, stored)


@pytest.mark.parametrize("kind", kind_params())
def test_a_mutated_file_takes_no_memory_that_it_does_not_justify(kind: Kind) -> None:
    for stored, parse in damaged_parses(kind, 2, max(1, int(300 * SCALE) // kind.cost)):
        assert peak_of(parse, stored) < (1 << 20) + 64 * (len(stored) + kind.justified), stored.hex()
