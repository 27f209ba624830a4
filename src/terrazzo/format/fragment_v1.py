"""Fragment metadata of formats 1 and 2: one generic tile, no footer, no R-tree.

    u32 version · u64+non-empty domain · u64 n, n boxes · u64 n, n bounding coordinates
    · per file (attributes, then coordinates): u64 n, n × u64 tile offsets
    · per attribute: var tile offsets, likewise · per attribute: var tile sizes, likewise
    · u64 cells of the last tile · u64 per file: its size · u64 per attribute: size of its var file

It is read into the same footer and bodies that later formats have, so that nothing above knows the difference.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from terrazzo.errors import CorruptionError
from terrazzo.format import versions
from terrazzo.format.bounds import BoundsTable, record_of, unpack_bound
from terrazzo.format.fragment import Footer, Section, Slots
from terrazzo.format.rtree import RTree
from terrazzo.format.schema import Schema
from terrazzo.format.wire import Bytes, Cursor


@dataclass(frozen=True, slots=True)
class FirstMetadata:
    footer: Footer
    rtree: RTree
    lists: Mapping[tuple[Section, int], NDArray[np.uint64]]


def unpack_first(body: Bytes, schema: Schema, *, dense: bool) -> FirstMetadata:
    """`dense`: the fragment has no `__coords.tdb`."""
    cursor = Cursor(body)
    version = versions.check(cursor.u32(), "a fragment", offset=0)
    if version >= versions.FOOTER:
        raise CorruptionError(f"a fragment of format {version} in the layout of format 1", offset=0)
    record = record_of(schema.dims)
    if record is None:
        raise CorruptionError("a string dimension before format 5", offset=0)
    domain = tuple(unpack_bound(cursor, dim) for dim in schema.dims) if cursor.u64() else None
    n_boxes = cursor.count64(record.itemsize, "boxes")
    rtree = RTree(BoundsTable.unpack(cursor, schema.dims, n_boxes))
    cursor.take(cursor.count64(record.itemsize, "bounding coordinates") * record.itemsize)
    n_attrs = len(schema.attrs)
    lists: dict[tuple[Section, int], NDArray[np.uint64]] = {}
    for section, count in (
        (Section.TILE_OFFSETS, n_attrs + 1),
        (Section.VAR_OFFSETS, n_attrs),
        (Section.VAR_SIZES, n_attrs),
    ):
        for slot in range(count):
            lists[section, slot] = cursor.array("<u8", cursor.count64(8, "tiles"))
    last_tile_cells = cursor.u64()
    sizes = tuple(cursor.array("<u8", n_attrs + 1).tolist())
    var_sizes = tuple(cursor.array("<u8", n_attrs).tolist())
    footer = Footer(
        version=version,
        schema_name=None,
        dense=dense,
        domain=domain,
        n_sparse_tiles=0 if dense else n_boxes,
        last_tile_cells=last_tile_cells,
        slots=Slots(n_attrs, len(schema.dims)),
        file_sizes=sizes,
        var_file_sizes=var_sizes,
        validity_file_sizes=(0,) * (n_attrs + 1),
    )
    footer.check(schema)
    return FirstMetadata(footer, rtree, lists)
