"""The element-wise filters; a memory copy stands beside them."""

from collections.abc import Iterator

import numpy as np
from filters import COLUMN, HEADER, Case, Speed, measured, rising, walk
from measure import Table

from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.bit_width import BitWidthReduction
from terrazzo.format.filters.bitshuffle import BitShuffle
from terrazzo.format.filters.byteshuffle import ByteShuffle
from terrazzo.format.filters.delta import Delta
from terrazzo.format.filters.double_delta import DoubleDelta
from terrazzo.format.filters.positive_delta import PositiveDelta
from terrazzo.format.filters.scale_float import ScaleFloat
from terrazzo.format.filters.xor import Xor

LEAST = 500  # MB/s when decoding, on one core


def _mixed(dtype: str) -> np.ndarray:
    """Each stretch of 32 elements has a range of its own: windows of several bit widths side by side."""
    rng, count = np.random.default_rng(0), COLUMN // np.dtype(dtype).itemsize
    ranges = np.repeat(rng.choice([100, 10_000, 2**30], count // 32), 32)
    return (rng.random(count) * ranges).astype(dtype)


def _cases() -> Iterator[Case]:
    for dtype in ("int32", "int64"):
        kind = Datatype.parse(dtype)
        steps, up = walk(dtype, 1000, 0), rising(dtype)
        for name, filter_ in (
            ("byteshuffle", ByteShuffle()), ("bitshuffle", BitShuffle()), ("xor", Xor()), ("delta", Delta()),
            ("double delta", DoubleDelta()), ("bit-width reduction", BitWidthReduction()),
        ):  # fmt: skip
            yield Case(name, f"{dtype} walk", (filter_,), steps, kind)
        yield Case("double delta", f"{dtype} rising", (DoubleDelta(),), up, kind)
        yield Case("bit-width reduction", f"{dtype} mixed", (BitWidthReduction(),), _mixed(dtype), kind)
        yield Case("positive delta", f"{dtype} rising", (PositiveDelta(),), up, kind)
    for kind in (Datatype.FLOAT32, Datatype.FLOAT64):
        whole = np.resize(walk("int64", 1000, 0)[: COLUMN // 80], COLUMN // kind.size)
        small = (whole % (1 << 20)).astype(kind.dtype)
        yield Case("scale float", f"{kind.name.lower()} whole", (ScaleFloat(byte_width=4),), small, kind)


def table() -> Table:
    result = Table("Element-wise filters", HEADER)
    slow: list[Speed] = []
    for case in _cases():
        for each in measured(case):
            result.rows.append(each.row())
            required = each.what == "decode" and each.threads == 1 and case.name != "scale float"
            if required and each.mb_s < LEAST:
                slow.append(each)
    result.notes.append(
        f"each decodes at {LEAST} MB/s or more on one core: {'kept' if not slow else 'MISSED by'}"
    )
    result.notes.extend(
        f"{each.case.name}, {each.case.data}, {each.size}: {each.mb_s:.0f} MB/s" for each in slow
    )
    return result


if __name__ == "__main__":
    print(table().markdown())
