"""Tiles that a condition cannot match, told by their statistics, all at once.

# Quirk: some statistics that libtiledb writes are wrong (floats beside NaN, text in dense fragments): those are
# never believed. tests/interop/test_statistics.py
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrazzo.engine.columns import Mask
from terrazzo.engine.fetch import FragmentReader
from terrazzo.engine.predicate import All, Constant, Predicate, Some, Test
from terrazzo.engine.region import comparable
from terrazzo.format.condition import Op
from terrazzo.format.datatypes import Datatype
from terrazzo.format.fragment import Section
from terrazzo.format.schema import Schema
from terrazzo.format.sections import unpack_sums


def possible(where: Predicate, reader: FragmentReader, schema: Schema, usable: frozenset[str]) -> Mask:
    """Per tile, False where no cell of it can match. `usable` names the attributes whose statistics hold."""
    n = reader.sections.n_tiles
    match where:
        case Constant(value):
            return np.full(n, value)
        case All(children):
            mask = np.ones(n, bool)
            for child in children:
                mask &= possible(child, reader, schema, usable)
            return mask
        case Some(children):
            mask = np.zeros(n, bool)
            for child in children:
                mask |= possible(child, reader, schema, usable)
            return mask
        case Test():
            return _test(where, reader, schema, usable)
    return np.ones(n, bool)


def _test(test: Test, reader: FragmentReader, schema: Schema, usable: frozenset[str]) -> Mask:
    n = reader.sections.n_tiles
    extremes = _extremes(test.field, reader, schema, usable)
    if extremes is None:
        return np.ones(n, bool)
    low, high, known = extremes
    values = [_value(raw, test.field, schema) for raw in test.members or (test.value,)]
    match test.op:
        case Op.EQ | Op.IN:
            ruled_out = np.ones(n, bool)
            for value in values[:1000]:
                ruled_out &= (low > value) | (high < value)
            if len(values) > 1000:
                ruled_out[:] = False
        case Op.LT:
            ruled_out = low >= values[0]
        case Op.LE:
            ruled_out = low > values[0]
        case Op.GT:
            ruled_out = high <= values[0]
        case Op.GE:
            ruled_out = high < values[0]
        case Op.NE:
            ruled_out = (low == values[0]) & (high == values[0])
        case _:
            return np.ones(n, bool)
    return ~(np.asarray(ruled_out, bool) & known)


def _value(raw: bytes, name: str, schema: Schema) -> Any:
    field = schema.field(name)
    return comparable(raw) if field.is_var else np.frombuffer(raw, field.datatype.dtype)[0]


def _extremes(
    name: str, reader: FragmentReader, schema: Schema, usable: frozenset[str]
) -> tuple[NDArray[Any], NDArray[Any], Mask] | None:
    """Lowest and highest value per tile, and where they can be believed."""
    n = reader.sections.n_tiles
    for j, dim in enumerate(schema.dims):
        if dim.name == name:
            if reader.fragment.footer.dense:
                return None
            low, high = reader.sections.rtree.leaves.columns[j]
            return low, high, np.ones(n, bool)
    if name not in usable:
        return None
    index = next((i for i, attr in enumerate(reader.schema.attrs) if attr.name == name), None)
    if index is None:
        return None
    attr = reader.schema.attrs[index]
    text = attr.is_var and attr.datatype in {Datatype.CHAR, Datatype.STRING_ASCII}
    if (attr.cell_val_num > 1 or attr.datatype.is_string) and not text:
        return None
    if reader.fragment.footer.dense:
        return None  # padding and fill values are in the statistics of some writers and not of others
    pair = reader.sections.extremes(index)
    if pair is None:
        return None
    known = np.ones(n, bool)
    if attr.datatype.is_float:
        body = reader.sections.body(Section.SUMS, index)
        if body is None:
            return None
        sums = unpack_sums(body, np.dtype("<f8"))
        if len(sums) != n:
            return None
        known = ~np.isnan(sums)  # a NaN in the tile makes the sum NaN, and the extremes depend on its place
    # A tile of nulls only has zeros for extremes: it matches no test anyway, so they do no harm.
    return pair[0], pair[1], known
