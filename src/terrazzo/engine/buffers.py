"""Arrow arrays over numpy buffers.

`pa.array`, `pa.scalar` and `to_numpy` import pandas where it is installed, which takes longer than a small read: these
do not.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def bools(mask: NDArray[np.bool_], validity: NDArray[np.bool_] | None = None) -> Any:
    bits = pa.py_buffer(np.packbits(mask, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(mask), [bitmap(validity), bits])


def numbers(values: NDArray[Any], kind: Any = None, validity: NDArray[np.bool_] | None = None) -> Any:
    """Values as they lie in memory; `kind` may be any Arrow type of the same width."""
    flat = np.ascontiguousarray(values)
    kind = pa.from_numpy_dtype(flat.dtype) if kind is None else kind
    return pa.Array.from_buffers(kind, len(flat), [bitmap(validity), pa.py_buffer(flat)])


def bitmap(validity: NDArray[np.bool_] | None) -> Any:
    """Where values are, bit by bit; None where all are."""
    if validity is None or validity.all():
        return None
    return pa.py_buffer(np.packbits(validity, bitorder="little"))


def binaries(cells: Sequence[bytes]) -> Any:
    sizes = np.fromiter(map(len, cells), np.int64, len(cells))
    edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    return pa.Array.from_buffers(
        pa.large_binary(), len(cells), [None, pa.py_buffer(edges), pa.py_buffer(b"".join(cells))]
    )


def binary(cell: bytes) -> Any:
    """One binary as a scalar."""
    return binaries([cell])[0]


def integers(array: Any) -> NDArray[Any]:
    """Whole numbers, none of them null, as they lie in memory."""
    dtype = np.dtype(array.type.to_pandas_dtype())
    if not len(array):
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)


def mask_of(array: Any) -> NDArray[np.bool_]:
    """Booleans, none of them null."""
    if not len(array):
        return np.empty(0, bool)
    first, skipped = divmod(array.offset, 8)
    packed = np.frombuffer(array.buffers()[1], np.uint8)[first:]
    bits = np.unpackbits(packed, count=skipped + len(array), bitorder="little")
    return bits[skipped:].view(bool)
