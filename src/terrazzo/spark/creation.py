"""The schema of an array that is created from a DataFrame's columns and options."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.types import StructType

from terrazzo.engine.infer import schema_of
from terrazzo.engine.spelling import parse_domain_text, parse_extent, parse_filters, parse_flag
from terrazzo.errors import InvalidRequestError
from terrazzo.format.schema import Schema
from terrazzo.spark.options import Options
from terrazzo.spark.types import empty_table


def schema_from_options(struct: StructType, options: Options) -> Schema | None:
    """The schema that the options ask for, or None if they name no dimensions."""
    dims = options.get("dims")
    if dims is None:
        return None
    more: dict[str, Any] = {}
    if (capacity := options.number("capacity")) is not None:
        more["capacity"] = capacity
    for option, name in (("order", "cell_order"), ("tile_order", "tile_order")):
        if (order := options.get(option)) is not None:
            more[name] = order
    for option in ("allows_duplicates", "dense"):
        if (flag := options.get(option)) is not None:
            more[option] = parse_flag(flag, option)
    names = {name.lower(): name for name in struct.fieldNames()}
    return schema_from_struct(
        struct, [name.strip() for name in dims.split(",") if name.strip()],
        domain={names.get(k, k): parse_domain_text(v, f"domain.{k}") for k, v in options.family("domain.").items()},
        tile={names.get(k, k): parse_extent(v, f"tile.{k}") for k, v in options.family("tile.").items()},
        filters={names.get(k, k): parse_filters(v, f"filters.{k}") for k, v in options.family("filters.").items()},
        default_filters=None if (text := options.get("filters")) is None else parse_filters(text),
        **more,
    )  # fmt: skip


def schema_from_struct(
    struct: StructType, dims: Sequence[Any], *, domain: Mapping[str, Any] | None = None,
    tile: Mapping[str, Any] | None = None, filters: Mapping[str, Any] | None = None,
    default_filters: Any = None, dense: bool = False, **options: Any,
) -> Schema:  # fmt: skip
    """`terrazzo.schema_of` for the columns of a DataFrame: nullable where they are, as wide as their types."""
    given = struct.fieldNames()
    if unknown := [name for name in filters or {} if name not in given]:
        raise InvalidRequestError(
            f"filters: the data lack {', '.join(map(repr, unknown))}; they have {', '.join(map(repr, given))}"
        )
    made = schema_of(
        empty_table(struct),
        dims,
        domain=domain,
        tile=tile,
        filters=default_filters,
        sparse=not dense,
        **options,
    )
    nullable = {field.name: field.nullable for field in struct.fields}
    own = filters or {}
    attrs = [
        replace(attr, nullable=nullable[attr.name], filters=own.get(attr.name, attr.filters))
        for attr in made.attrs
    ]
    fresh = [replace(dim, filters=own.get(dim.name, dim.filters)) for dim in made.dims]
    return replace(made, dims=tuple(fresh), attrs=tuple(attrs))
