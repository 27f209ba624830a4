"""Coordinates that Spark found, as the engine's conditions and regions."""

from collections import defaultdict
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from terrazzo.engine.columns import Column
from terrazzo.engine.predicate import Predicate, Test, both, either
from terrazzo.engine.region import Region, everything
from terrazzo.engine.tables import columns_of
from terrazzo.format.bounds import Bound
from terrazzo.format.condition import Op
from terrazzo.format.schema import Schema
from terrazzo.spark.casting import column
from terrazzo.spark.failures import telling

Box = tuple[Bound, ...]


def box_of(df: Any, schema: Schema, names: list[str]) -> Box | None:
    """Lowest and highest coordinate per dimension, taken from the columns `names`; None of no rows.
    Rows without one of their coordinates are at no place."""
    whole = reduce(lambda rows, name: rows.where(column(name).isNotNull()), names, df)
    ends = [
        end(column(name)).alias(f"{k}_{j}")
        for j, name in enumerate(names)
        for k, end in enumerate((F.min, F.max))
    ]
    with telling():
        found = whole.agg(*ends).toArrow()
    if found.column(0).null_count:
        return None
    pairs = {
        dim.name: pa.concat_arrays([found.column(f"{k}_{j}").combine_chunks() for k in (0, 1)])
        for j, dim in enumerate(schema.dims)
    }
    columns = _stored(pa.table(pairs), schema)
    return tuple((_value(columns[dim.name], 0), _value(columns[dim.name], 1)) for dim in schema.dims)


def _stored(table: Any, schema: Schema) -> dict[str, Column]:
    return columns_of(table, schema, [dim.name for dim in schema.dims])


def _value(values: Column, place: int) -> Any:
    return values.binary()[place].as_py() if values.is_var else values.values[place].item()


def _raw(values: Column, place: int) -> bytes:
    return bytes(values.binary()[place].as_py() if values.is_var else values.values[place].tobytes())


def region_of(box: Box | None, schema: Schema) -> Region:
    """The box as a region; a bound that is no number, which is above all others to Spark, restricts nothing."""
    region = everything(schema)
    for j, (low, high) in enumerate(box or ()):
        if low == low and high == high:  # noqa: PLR0124  # NaN
            region = region.restricted(j, (low, high))
    return region


def within(box: Box, schema: Schema) -> Predicate:
    """The condition of lying in a box."""
    tests = []
    for dim, ends in zip(schema.dims, box, strict=True):
        raw = [end if isinstance(end, bytes) else np.array(end, dim.datatype.dtype).tobytes() for end in ends]
        tests += [Test(Op.GE, dim.name, raw[0]), Test(Op.LE, dim.name, raw[1])]
    return both(*tests)


def among(table: Any, schema: Schema) -> Predicate:
    """The condition of being at one of a few places: those that differ in one dimension only share a test."""
    columns = _stored(table, schema)
    names = [dim.name for dim in schema.dims]
    places = [tuple(_raw(columns[name], k) for name in names) for k in range(table.num_rows)]
    best: dict[tuple[bytes, ...], list[bytes]] | None = None
    free = 0
    for j in range(len(names)):
        groups: dict[tuple[bytes, ...], list[bytes]] = defaultdict(list)
        for place in places:
            groups[place[:j] + place[j + 1 :]].append(place[j])
        if best is None or len(groups) < len(best):
            best, free = groups, j
    assert best is not None
    fixed = names[:free] + names[free + 1 :]
    return either(
        *(
            both(
                *(Test(Op.EQ, name, raw) for name, raw in zip(fixed, key, strict=True)),
                Test(Op.IN, names[free], b"", tuple(members))
                if len(members) > 1
                else Test(Op.EQ, names[free], members[0]),
            )
            for key, members in best.items()
        )
    )
