"""What command lines and options spell as text: regions, domains, filters, flags."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from terrazzo.engine.clock import moment
from terrazzo.errors import InvalidRequestError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.domain import Dim
from terrazzo.format.schema import Schema


def parse_regions(given: Mapping[str, str], schema: Schema) -> dict[str, Any] | None:
    """Regions by dimension, as `Array.read` takes them; names are matched whatever their case, if that is clear."""
    found: dict[str, Any] = {}
    for name, text in given.items():
        dim = _dim_named(name, schema)
        found[dim.name] = parse_region_text(text, dim)
    return found or None


def _dim_named(name: str, schema: Schema) -> Dim:
    alike = [dim for dim in schema.dims if dim.name.lower() == name.lower()]
    exact = [dim for dim in alike if dim.name == name]
    if len(exact or alike) == 1:
        return (exact or alike)[0]
    return schema.dim(name)  # says which there are


def parse_region_text(text: str, dim: Dim) -> list[Any]:
    """`10:20` or `10..20`, both ends included and either of them left out; `7`; and several of these, by commas."""
    what = f"the region {text!r} of {dim.name!r}"
    parts = [part.strip() for part in text.split(",")]
    # Text may hold colons of its own: there only two dots are a range.
    return [p if dim.is_var and ".." not in p else parse_range(p, dim.datatype, what) for p in parts]


def parse_range(text: str, datatype: Datatype, what: str) -> Any:
    """LOW:HIGH or LOW..HIGH as a tuple, either end may be left out; or one value."""
    parts = text.split("..") if ".." in text else text.split(":")
    dated = datatype.is_datetime and ".." not in text
    if dated and len(parts) > 1 and not re.fullmatch(r"[\d-]*:[\d-]*", text):
        if re.fullmatch(r"[\d-]+[T ]\d\d(:\d\d){1,2}(\.\d+)?Z?", text):
            return parse_value(text, datatype, what)
        raise InvalidRequestError(
            f"{what}: write a range of times with two dots: 2026-01-01T12:00..2026-01-02T12:00"
        )
    if len(parts) > 2:
        raise InvalidRequestError(f"{what}: {text!r} has more than two ends; write LOW:HIGH, or LOW..HIGH")
    if len(parts) == 1:
        return parse_value(text, datatype, what)
    low, high = (parse_value(end.strip(), datatype, what) if end.strip() else None for end in parts)
    if low is not None and high is not None and low > high:
        raise InvalidRequestError(f"{what}: {text} ends before it begins")
    return low, high


def parse_value(text: str, datatype: Datatype, what: str) -> Any:
    """One coordinate."""
    if datatype.is_string:
        return text
    if not text:
        raise InvalidRequestError(f"{what}: a value is missing; write LOW:HIGH, such as 10:20")
    if datatype.is_datetime and not re.fullmatch(r"-?\d{5,}", text):
        try:
            return moment(text)
        except ValueError:
            raise InvalidRequestError(f"{what}: {text!r} is no date; write 2026-01-31") from None
    try:
        return float(text) if datatype.is_float else int(text)
    except ValueError:
        kind = "number" if datatype.is_float else "whole number"
        raise InvalidRequestError(f"{what}: {text!r} is no {kind}") from None


def parse_domain_text(text: str, what: str) -> tuple[Any, Any]:
    """`0:999` or `2020-01-01..2030-01-01`."""
    low, mark, high = text.partition(".." if ".." in text else ":")
    if not mark:
        raise InvalidRequestError(f"{what}={text!r}; low:high is expected, both included")
    return _end(low.strip(), what), _end(high.strip(), what)


def _end(text: str, what: str) -> Any:
    for read in (int, float, moment):
        try:
            return read(text)
        except ValueError:
            continue
    raise InvalidRequestError(f"{what}: {text!r} is neither a number nor a date")


def parse_extent(text: str, what: str) -> Any:
    """A tile extent: a number, or a span such as `7D` or `1h`."""
    plain = text.strip()
    for read in (int, float):
        try:
            return read(plain)
        except ValueError:
            continue
    digits = plain.rstrip("YMWDhmsunpfa")
    if digits.isdigit() and plain[len(digits) :]:
        try:
            unit: Any = plain[len(digits) :]
            return np.timedelta64(int(digits), unit)
        except TypeError:
            pass
    raise InvalidRequestError(f"{what}={text!r} is neither a number nor a span such as 7D or 1h")


def parse_filters(text: str, what: str = "filters") -> list[Any]:
    """`byteshuffle,zstd:3`: filters by name, in the order in which they are applied; `none` for no filter."""
    pieces = [piece.strip() for piece in text.split(",")]
    return [_filter(piece, what) for piece in pieces if piece and piece.lower() != "none"]


def _filter(text: str, what: str) -> Any:
    from terrazzo import filters  # noqa: PLC0415

    known = {name.lower(): getattr(filters, name) for name in filters.__all__}
    name, *options = text.split(":")
    make = known.get(re.sub(r"[-_ ]", "", name.lower()))
    if make is None:
        raise InvalidRequestError(
            f"{what}: there is no filter {name!r}; there are {', '.join(sorted(known))}"
        )
    try:
        return make(*(float(option) if "." in option else int(option) for option in options))
    except (TypeError, ValueError, InvalidRequestError):
        raise InvalidRequestError(f"{what}: {text!r}: write NAME or NAME:LEVEL, such as zstd:3") from None


def parse_flag(text: str, what: str) -> bool:
    flags = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.strip().lower() not in flags:
        raise InvalidRequestError(f"{what}={text!r}; true or false is expected")
    return flags[text.strip().lower()]
