"""Statistics of cells, computed one by one in plain Python: what both engines' sections are held against."""

import struct
from dataclasses import dataclass

from terrazzo.format.attribute import Attr
from terrazzo.format.datatypes import Datatype

_NUMBERS = {
    "b": Datatype.INT8, "B": Datatype.UINT8, "h": Datatype.INT16, "H": Datatype.UINT16,
    "i": Datatype.INT32, "I": Datatype.UINT32, "q": Datatype.INT64, "Q": Datatype.UINT64,
    "f": Datatype.FLOAT32, "d": Datatype.FLOAT64,
}  # fmt: skip
CODES = {datatype: code for code, datatype in _NUMBERS.items()} | {
    Datatype.CHAR: "b",
    Datatype.BOOL: "B",
    **{each: "q" for each in Datatype if each.is_datetime or each.is_time},
}


@dataclass(frozen=True)
class Statistics:
    """Of the cells of a tile or a fragment; None where the field keeps none, or nothing has a value."""

    minimum: bytes | None
    maximum: bytes | None
    total: bytes | None
    nulls: int
    saturated: bool = False  # the sum left 64 bits, or would in another order of the cells


def statistics(attr: Attr, tiles: list[list[bytes | None]]) -> tuple[list[Statistics], Statistics]:
    """Per tile, and of the fragment."""
    per_tile = [_of_cells(attr, cells) for cells in tiles]
    whole = _of_cells(attr, [cell for cells in tiles for cell in cells])
    if whole.total is not None:  # of tiles, not of cells: saturation differs
        letter = _sum_code(attr)
        total, saturated = _sum(letter, [struct.unpack(f"<{letter}", each.total)[0] for each in per_tile])
        saturated |= any(each.saturated for each in per_tile)
        whole = Statistics(whole.minimum, whole.maximum, total, whole.nulls, saturated)
    return per_tile, whole


def _of_cells(attr: Attr, cells: list[bytes | None]) -> Statistics:
    there = [cell for cell in cells if cell is not None]
    nulls = len(cells) - len(there)
    if attr.datatype in {Datatype.CHAR, Datatype.STRING_ASCII} and (
        attr.is_var or attr.cell_val_num > 1 or attr.datatype is Datatype.STRING_ASCII
    ):
        return Statistics(min(there, default=None), max(there, default=None), None, nulls)
    if attr.datatype not in CODES or attr.cell_val_num != 1:
        return Statistics(None, None, None, nulls)
    code = CODES[attr.datatype]
    numbers = [struct.unpack(f"<{code}", cell)[0] for cell in there]
    ends = [None if not numbers else struct.pack(f"<{code}", end(numbers)) for end in (min, max)]
    total, saturated = _sum(_sum_code(attr), numbers)
    return Statistics(ends[0], ends[1], total, nulls, saturated)


def _sum_code(attr: Attr) -> str:
    code = CODES[attr.datatype]
    return "d" if code in "fd" else "Q" if code in "BHIQ" else "q"


def _sum(code: str, numbers: list) -> tuple[bytes, bool]:
    """Once a sum would cross a bound it stays there."""
    total = 0.0 if code == "d" else 0
    low, high = {"q": (-(2**63), 2**63 - 1), "Q": (0, 2**64 - 1), "d": (-1.8e308, 1.8e308)}[code]
    for number in numbers:
        total += number
        if total < low or total > high:
            total = low if total < low else high
            break
    return struct.pack(f"<{code}", total), sum(map(abs, numbers)) > high
