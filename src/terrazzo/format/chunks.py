"""Where libtiledb cuts a tile into chunks; readers take any cut. Spec: format_spec/tile.md, vaguely.

Quirk: the target is 64 KiB of whole cells, whatever the pipeline says; see
tests/interop/test_pipelines_interop.py.
"""

import numpy as np
from numpy.typing import NDArray

_TARGET = 65536


def _chunk_size(size: int, cell_size: int) -> int:
    return max(min(_TARGET, size) // cell_size, 1) * cell_size


def cut_cells(size: int, cell_size: int) -> list[int]:
    """Ends of the chunks of `size` bytes, more than 0, of cells of one size."""
    return [*range(step := _chunk_size(size, cell_size), size, step), size]


def cut_var_cells(size: int, value_size: int, offsets: NDArray[np.uint64]) -> list[int]:
    """Ends of the chunks of `size` bytes, more than 0, of cells that start at `offsets`.

    Cells stay whole. The one that crosses the target still joins its chunk if that is less than half full,
    or stays below one and a half targets; else it opens the next one, or is a chunk of its own if it
    exceeds a target by itself. The loop runs per chunk: a search finds the cell that crosses.
    """
    target = _chunk_size(size, value_size)
    if size == target:
        return [size]
    least, most = target // 2, target + target // 2
    cell_ends = np.append(offsets[1:], np.uint64(size))
    ends: list[int] = []
    start = 0
    while (cell := int(cell_ends.searchsorted(np.uint64(start + target), "right"))) < len(offsets):
        cell_start, cell_end = int(offsets[cell]), int(cell_ends[cell])
        if cell_start - start <= least or cell_end - start <= most:
            ends.append(start := cell_end)
            continue
        ends.append(start := cell_start)
        if cell_end - cell_start > target:
            if cell == len(offsets) - 1:
                break
            ends.append(start := cell_end)
    # Quirk: a cell that closed its chunk leaves an empty one behind it at the end of a tile.
    ends.append(size)
    return ends
