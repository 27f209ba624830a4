"""Speed of the element-wise filters on chunks of 64 KiB: MB of unfiltered data per second of one core."""

import time
import timeit
from collections.abc import Callable

import numpy as np

from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.base import Element, Filter, Parts
from terrazzo.format.filters.bit_width import BitWidthReduction
from terrazzo.format.filters.bitshuffle import BitShuffle
from terrazzo.format.filters.byteshuffle import ByteShuffle
from terrazzo.format.filters.delta import Delta
from terrazzo.format.filters.double_delta import DoubleDelta
from terrazzo.format.filters.positive_delta import PositiveDelta
from terrazzo.format.filters.scale_float import ScaleFloat
from terrazzo.format.filters.xor import Xor

CHUNK = 65536
HEADER = ("filter", "data", "type", "decode MB/s", "encode MB/s")


def _samples(datatype: Datatype) -> dict[str, np.ndarray]:
    seed, count = np.random.default_rng(0), CHUNK // datatype.size
    # each stretch of 32 elements has a range of its own: windows of several bit widths side by side
    ranges = np.repeat(seed.choice([100, 10_000, 2**30], count // 32), 32)
    return {
        "random walk": np.cumsum(seed.integers(-1000, 1000, count)).astype(datatype.dtype),
        "rising": np.cumsum(seed.integers(0, 100, count)).astype(datatype.dtype),
        "mixed ranges": (seed.random(count) * ranges).astype(datatype.dtype),
    }


def _cases() -> list[tuple[Filter, str]]:
    return [
        (ByteShuffle(), "random walk"),
        (BitShuffle(), "random walk"),
        (Xor(), "random walk"),
        (Delta(), "random walk"),
        (DoubleDelta(), "random walk"),
        (DoubleDelta(), "rising"),
        (BitWidthReduction(), "random walk"),
        (BitWidthReduction(), "mixed ranges"),
        (PositiveDelta(), "rising"),
    ]


def _speed(action: Callable[[], object]) -> float:
    """The best of several short runs, in processor time: other work on the machine only ever slows one."""
    turns = max(1, int(0.02 / (timeit.timeit(action, number=20) / 20)))
    return CHUNK * turns / min(timeit.repeat(action, timer=time.process_time, number=turns, repeat=9)) / 1e6


def _row(filter_: Filter, data: str, datatype: Datatype, values: np.ndarray) -> tuple[str, ...]:
    element, parts = Element(datatype, datatype.size), Parts((), (values.tobytes(),))
    encoded = filter_.encode(parts, element)
    assert filter_.decode(encoded, element, CHUNK) == parts  # fast and wrong is no result
    decode = _speed(lambda: filter_.decode(encoded, element, CHUNK))
    encode = _speed(lambda: filter_.encode(parts, element))
    return type(filter_).__name__, data, datatype.name.lower(), f"{decode:.0f}", f"{encode:.0f}"


def rows() -> list[tuple[str, ...]]:
    table = []
    for datatype in (Datatype.INT32, Datatype.INT64):
        samples = _samples(datatype)
        table += [_row(filter_, data, datatype, samples[data]) for filter_, data in _cases()]
    for datatype in (Datatype.FLOAT32, Datatype.FLOAT64):
        values = _samples(Datatype.INT32)["random walk"][: CHUNK // datatype.size].astype(datatype.dtype)
        table.append(_row(ScaleFloat(byte_width=4), "whole numbers", datatype, values))
    return table


def main() -> None:
    print(f"| {' | '.join(HEADER)} |")
    print("|---|---|---|--:|--:|")
    for row in rows():
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
