"""Regions, domains, extents, filters and flags that are spelled as text."""

import numpy as np
import pytest

import terrazzo as tz
from terrazzo.engine.spelling import (
    parse_domain_text,
    parse_extent,
    parse_filters,
    parse_flag,
    parse_regions,
)

SCHEMA = tz.Schema(
    [tz.Dim("X", "int64", (0, 99), 10), tz.Dim("t", "datetime_sec", ("2020-01-01", "2030-01-01"), 86_400),
     tz.Dim("name", "ascii")],
    [tz.Attr("v", "float64")],
)  # fmt: skip


def test_regions_are_ranges_points_and_several_of_these():
    day = np.datetime64("2024-01-01")

    found = parse_regions(
        {"x": "1:5, 7, 9..", "t": "2024-01-01..2024-01-01", "name": "chr1:100,a..b"}, SCHEMA
    )

    assert found == {"X": [(1, 5), 7, (9, None)], "t": [(day, day)], "name": ["chr1:100", ("a", "b")]}
    assert parse_regions({}, SCHEMA) is None


@pytest.mark.parametrize(
    ("work", "told"),
    [
        (lambda: parse_regions({"x": "1:b"}, SCHEMA), "'b' is no whole number"),
        (lambda: parse_regions({"x": "5:1"}, SCHEMA), "ends before it begins"),
        (lambda: parse_regions({"x": "1:2:3"}, SCHEMA), "more than two ends"),
        (lambda: parse_regions({"q": "1"}, SCHEMA), "q"),
        (lambda: parse_domain_text("5", "domain.x"), "low:high"),
        (lambda: parse_extent("7q", "tile.x"), "a span"),
        (lambda: parse_filters("zsdt"), "no filter 'zsdt'"),
        (lambda: parse_filters("zstd:3.5"), "write NAME or NAME:LEVEL"),
        (lambda: parse_flag("maybe", "dense"), "true or false"),
    ],
)
def test_what_cannot_be_read_is_told(work, told):
    with pytest.raises(tz.InvalidRequestError, match=told):
        work()


def test_filters_extents_domains_and_flags():
    assert parse_filters("byteshuffle, zstd:5") == [tz.filters.ByteShuffle(), tz.filters.Zstd(5)]
    assert parse_filters("none") == []
    assert parse_extent("7D", "tile.t") == np.timedelta64(7, "D")
    assert parse_domain_text("0:9.5", "domain.x") == (0, 9.5)
    assert (parse_flag("TRUE", "dense"), parse_flag("no", "dense")) == (True, False)
