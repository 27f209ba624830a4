"""What command lines and options spell as text: regions, domains, filters, flags."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from terrazzo.engine.clock import moment
from terrazzo.errors import InvalidRequestError
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
    items: list[Any] = []
    for piece in text.split(","):
        mark = ".." if ".." in piece else ":"
        # Times and text may hold colons of their own: there only two dots are a range.
        if mark == ":" and (dim.is_var or dim.datatype.is_datetime or mark not in piece):
            items.append(_value(piece, dim))
        else:
            low, _, high = piece.partition(mark)
            items.append(tuple(None if not end.strip() else _value(end, dim) for end in (low, high)))
    return items


def _value(text: str, dim: Dim) -> Any:
    plain = text.strip()
    if dim.is_var:
        return plain
    return number_text(plain, dim.datatype, f"the region of {dim.name!r}")


def number_text(text: str, datatype: Any, what: str) -> Any:
    """A number, or a date as numpy has it, spelled as text."""
    try:
        if datatype.is_datetime and not text.lstrip("-").isdigit():
            return moment(text)
        return float(text) if datatype.is_float else int(text)
    except ValueError:
        kind = "a date" if datatype.is_datetime else "a number"
        raise InvalidRequestError(f"{what}: {text!r} is not {kind}") from None


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
    from terrazzo import filters  # noqa: PLC0415

    known = {name.lower(): getattr(filters, name) for name in filters.__all__}
    pieces = [piece.strip() for piece in text.split(",") if piece.strip()]
    if [piece.lower() for piece in pieces] == ["none"]:
        return []
    found = []
    for piece in pieces:
        name, _, option = piece.partition(":")
        maker = known.get(name.strip().lower().replace("_", "").replace("-", ""))
        if maker is None:
            raise InvalidRequestError(
                f"{what}: there is no filter {name!r}; there are {', '.join(sorted(known))}"
            )
        try:
            found.append(maker(int(option)) if option else maker())
        except (TypeError, ValueError) as problem:
            raise InvalidRequestError(f"{what}: {piece!r}: {problem}") from None
    return found


def parse_flag(text: str, what: str) -> bool:
    flags = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.strip().lower() not in flags:
        raise InvalidRequestError(f"{what}={text!r}; true or false is expected")
    return flags[text.strip().lower()]
