"""What a caller asks to read, checked against the schema before anything is read."""

from collections.abc import Mapping, Sequence
from typing import Any

from terrazzo.engine.plan import Request
from terrazzo.engine.region import parse_region
from terrazzo.errors import InvalidRequestError
from terrazzo.format.schema import Schema

ORDERS = ("row-major", "col-major", "global")


def make_request(
    schema: Schema,
    columns: Sequence[str] | None,
    where: str | None,
    region: Mapping[str, Any] | None,
    order: str | None,
) -> Request:
    predicate = None
    if where is not None:
        from terrazzo.engine.where import parse_where  # noqa: PLC0415  # the SQL parser takes a while to import

        predicate = parse_where(where, schema)
    if order is not None and order not in ORDERS:
        raise InvalidRequestError(f"order={order!r}; there are {', '.join(ORDERS)}")
    return Request(parse_columns(columns, schema), parse_region(region, schema), predicate, order)


def parse_columns(columns: Sequence[str] | None, schema: Schema) -> tuple[str, ...]:
    """Names of dimensions and attributes; all of them, dimensions first, if none are given."""
    if columns is None:
        return tuple(field.name for field in schema.fields)
    if isinstance(columns, str):
        raise InvalidRequestError(f"columns={columns!r}; a list of names is expected: [{columns!r}]")
    names = tuple(columns)
    for name in names:
        schema.field(name)  # says which there are
    if not names:
        raise InvalidRequestError("columns=[] asks for nothing; use count() for the number of cells")
    if len(set(names)) != len(names):
        raise InvalidRequestError(f"columns={list(names)!r} names a column twice")
    return names
