"""Many small fragments: their files are decoded together, and every cell is still its own."""

import time
from pathlib import Path

import numpy as np
import pytest

import terrazzo as tz
from terrazzo.engine.array import Array
from terrazzo.engine.plan import plan_scan
from terrazzo.engine.request import make_request
from terrazzo.engine.sparse import scan_columns
from terrazzo.storage import open_store
from terrazzo.testing.stores import CountingStore, LaggingStore

PIECES, CELLS = 30, 200


def wide_schema(**options) -> tz.Schema:
    zstd = [tz.filters.Zstd()]
    return tz.Schema(
        [tz.Dim(name, "int32", (-1000, 999), 50, filters=zstd) for name in ("x", "y")],
        [
            tz.Attr("v", "float64", filters=zstd),
            tz.Attr("n", "int16", nullable=True, filters=zstd),
            tz.Attr("pair", "uint8", values_per_cell=2, filters=[tz.filters.Lz4()]),
            tz.Attr("text", "utf8", filters=zstd),
        ],
        **options,
    )


def rows_of(piece: int) -> dict:
    rng = np.random.default_rng(piece)
    flat = rng.choice(40_000, CELLS, replace=False)
    return {
        "x": flat // 200 - 100, "y": flat % 200 - 100, "v": rng.random(CELLS),
        "n": [None if each % 3 == 0 else int(each) for each in rng.integers(0, 99, CELLS)],
        "pair": rng.integers(0, 255, (CELLS, 2)).tolist(), "text": [f"{piece}-{i}" for i in range(CELLS)],
    }  # fmt: skip


def cells_of(rows: dict) -> dict:
    names = [name for name in rows if name not in {"x", "y"}]
    return {
        (int(x), int(y)): tuple(rows[name][i] for name in names)
        for i, (x, y) in enumerate(zip(rows["x"], rows["y"], strict=True))
    }


def found_in(table) -> dict:
    rows = table.to_pydict()
    assert table.num_rows == len(set(zip(rows["x"], rows["y"], strict=True)))
    return cells_of(rows)


@pytest.fixture
def written(folder: str) -> tuple[tz.Array, dict]:
    array, expected = tz.create(folder, wide_schema()), {}
    for piece in range(PIECES):
        array.write(rows_of(piece))
        expected |= cells_of(rows_of(piece))
    return array, expected


def test_the_newest_of_every_cell_is_read(written):
    array, expected = written

    assert found_in(array.read()) == expected
    assert array.count() == len(expected) < PIECES * CELLS


def test_selections_of_columns_boxes_and_conditions(written):
    array, expected = written

    assert sorted(array.read(["v"])["v"].to_pylist()) == sorted(cell[0] for cell in expected.values())
    inside = {at: cell for at, cell in expected.items() if -50 <= at[0] <= 20}
    assert found_in(array.read(region={"x": (-50, 20)})) == inside
    assert found_in(array.read(where="v < 0.25")) == {k: c for k, c in expected.items() if c[0] < 0.25}


def test_fragments_of_an_older_schema_lie_between_others(written):
    array, expected = written
    array.evolve(add=[tz.Attr("late", "int32", fill=7)])
    newer = rows_of(PIECES) | {"late": np.arange(CELLS)}
    array.write(newer)

    found = found_in(array.read())

    want = {at: (*cell, 7) for at, cell in expected.items()} | cells_of(newer)
    assert found == want


def test_without_versions_to_resolve_the_cells_are_one_batch(folder):
    schema = tz.Schema(
        [tz.Dim("x", "int64", (0, 10**6), 100)], [tz.Attr("v", "int64")], allows_duplicates=True
    )
    array = tz.create(folder, schema)
    for piece in range(PIECES):
        array.write({"x": np.arange(50) + piece, "v": np.arange(50) * piece})

    found = array.read()

    assert found.num_rows == PIECES * 50
    assert found["v"].num_chunks == 1
    assert sorted(found["v"].to_pylist()) == sorted(i * p for p in range(PIECES) for i in range(50))


def test_a_small_result_does_not_keep_the_memory_of_all_cells(folder):
    array = tz.create(folder, tz.Schema([tz.Dim("x", "int64", (0, 10**7), 100)], [tz.Attr("v", "float64")]))
    for piece in range(9):
        array.write({"x": np.arange(20_000) * 10 + piece, "v": np.zeros(20_000)})
    array.write({"x": np.arange(5) * 10 + 9, "v": np.ones(5)})

    found = array.read(where="v > 0.5")

    assert found["x"].to_pylist() == [9, 19, 29, 39, 49]
    assert (
        sum(
            buffer.size
            for column in found.columns
            for chunk in column.chunks
            for buffer in chunk.buffers()
            if buffer
        )
        < 500
    )
    columns = scan_columns(array.view, *planned(array, "v > 0.5"))
    assert all(column.values.base is None for part in columns for column in part.values())


def planned(array, where):
    plan = plan_scan(array.view, make_request(array.schema, None, where, None, None), 1 << 30)
    (task,) = plan.tasks
    return plan.request, task


def test_a_store_that_is_far_away_is_asked_for_many_files_at_a_time(folder):
    array = tz.create(folder, tz.Schema([tz.Dim("x", "int64", (0, 10**6), 100)], [tz.Attr("v", "int64")]))
    for piece in range(PIECES):
        array.write({"x": np.arange(50) * 100 + piece, "v": np.arange(50)})
    far = CountingStore(LaggingStore(open_store(folder), latency_s=0.05))
    opened = Array(far, None)
    before, start = far.n_requests, time.perf_counter()

    assert opened.read().num_rows == PIECES * 50

    one_by_one = (far.n_requests - before) * 0.05
    assert far.n_requests - before >= 2 * PIECES
    assert time.perf_counter() - start < one_by_one / 3


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_damage_names_the_file_that_has_it(written, damage):
    array, _ = written
    fragment = array.fragments[PIECES // 2]
    path = Path(array.uri.removeprefix("file://")) / fragment.key / "a0.tdb"
    stored = bytearray(path.read_bytes())
    stored[43:46] = b"\xff" * 3  # the first block of the first frame
    path.write_bytes(bytes(stored[:-1] if damage == "cut" else stored))

    with pytest.raises(tz.TerrazzoError, match=str(fragment.name)) as told:
        array.read()
    assert "a0.tdb" in str(told.value)
