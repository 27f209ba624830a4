"""Instants as callers write them."""

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

from terrazzo import InvalidRequestError
from terrazzo.engine.clock import as_text, instant, moment

NOON = 1_704_110_400_123  # 2024-01-01 12:00:00.123 UTC


@pytest.mark.parametrize(
    "value",
    [
        NOON,
        np.int64(NOON),
        np.uint64(NOON),
        datetime(2024, 1, 1, 12, 0, 0, 123_000),
        datetime(2024, 1, 1, 12, 0, 0, 123_999, tzinfo=UTC),
        datetime(2024, 1, 1, 14, 0, 0, 123_000, tzinfo=timezone(timedelta(hours=2))),
        "2024-01-01T12:00:00.123",
        "2024-01-01 12:00:00.123Z",
        "2024-01-01T14:00:00.123+02:00",
        np.datetime64("2024-01-01T12:00:00.123"),
        np.datetime64("2024-01-01T12:00:00.123456789"),
    ],
)
def test_an_instant_has_many_spellings(value: object) -> None:
    assert instant(value) == NOON


def test_every_millisecond_survives_a_datetime() -> None:
    for ms in range(NOON, NOON + 2000):
        assert instant(datetime(1970, 1, 1) + timedelta(milliseconds=ms)) == ms


@pytest.mark.parametrize(
    "value",
    [True, -1, 2**64, 1.5, "soon", "", None, b"2024", np.datetime64("NaT"), np.datetime64("1969-12-31"),
     datetime(1969, 12, 31), object()],
)  # fmt: skip
def test_what_is_no_instant_is_refused_by_name(value: object) -> None:
    with pytest.raises(InvalidRequestError, match=r"since=.* is not an instant"):
        instant(value, "since")


def test_moments_are_exact_and_in_utc() -> None:
    assert moment("2024") == np.datetime64("2024", "Y")
    assert moment("2024-02-29") == np.datetime64("2024-02-29", "D")
    assert moment("2024-02-29 12:30") == np.datetime64("2024-02-29T12:30", "m")
    assert moment("2024-02-29T12:30:00.000000001Z") == np.datetime64("2024-02-29T12:30:00.000000001", "ns")
    assert moment(" 2024-03-01T00:30+01:00 ") == np.datetime64("2024-02-29T23:30", "m")
    assert moment("2024-02-29T23:30:00-0100") == np.datetime64("2024-03-01T00:30", "m")
    assert moment("1970-01-01T00:00:00.000000000000000001") == np.datetime64(1, "as")


@pytest.mark.parametrize(
    "text", ["", "24", "20240229", "2024-02-30", "2024-13-01", "29.2.2024", "2024-02-29T25:00", "2024-01-01Z",
             "2024-01-01T00:00:00.000000000000000001", "now", "NaT"],
)  # fmt: skip
def test_what_is_no_moment_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        moment(text)


def test_instants_are_told_to_people() -> None:
    assert as_text(NOON) == "2024-01-01 12:00:00.123"
    assert as_text(2**64 - 1) == "18446744073709551615"
