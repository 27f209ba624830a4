"""Regions: ranges, points and open ends; and how a read is cut into boxes."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import terrazzo as tz
from terrazzo.engine.plan import before_value
from terrazzo.engine.region import parse_region


def grid(uri: str, **options: Any) -> tz.Array:
    dims = [tz.Dim("x", "int32", (-10, 9), 4), tz.Dim("y", "int32", (0, 9), 3)]
    a = tz.create(uri, tz.Schema(dims, [tz.Attr("v", "int64")], capacity=7, **options))
    x, y = (each.ravel() for each in np.mgrid[-10:10, 0:10])
    a.write({"x": x, "y": y, "v": x * 100 + y})
    return a


def cells(a: tz.Array, region: Any) -> set[tuple[int, int]]:
    found = a.read(["x", "y"], region=region)
    pairs = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
    assert len(set(pairs)) == len(pairs)
    assert a.count(region=region) == len(pairs)
    assert sum(batch.num_rows for batch in a.scan(region=region)) == len(pairs)
    return set(pairs)


X, Y = range(-10, 10), range(10)
REGIONS: dict[str, tuple[Any, Any]] = {
    "nothing asked": (None, lambda x, y: True),
    "an empty dict": ({}, lambda x, y: True),
    "None": ({"x": None}, lambda x, y: True),
    "a range": ({"x": (-3, 4)}, lambda x, y: -3 <= x <= 4),
    "two ranges of two dimensions": ({"x": (-3, 4), "y": (2, 2)}, lambda x, y: -3 <= x <= 4 and y == 2),
    "open at the end": ({"x": (5, None)}, lambda x, y: x >= 5),
    "open at the start": ({"x": (None, -5)}, lambda x, y: x <= -5),
    "open at both ends": ({"x": (None, None)}, lambda x, y: True),
    "a point": ({"x": 3}, lambda x, y: x == 3),
    "points": ({"y": [7, 1, 7]}, lambda x, y: y in {1, 7}),
    "a numpy array of points": ({"y": np.array([1, 7])}, lambda x, y: y in {1, 7}),
    "an Arrow array of points": ({"y": pa.array([1, 7])}, lambda x, y: y in {1, 7}),
    "a range of points": ({"y": range(0, 10, 3)}, lambda x, y: y % 3 == 0),
    "a set of points": ({"y": {1, 7}}, lambda x, y: y in {1, 7}),
    "many points": ({"x": list(range(-10, 10, 2))}, lambda x, y: x % 2 == 0),
    "several ranges": (
        {"x": [(-8, -6), (0, 1), (8, None)]},
        lambda x, y: -8 <= x <= -6 or 0 <= x <= 1 or x >= 8,
    ),
    "ranges that overlap": ({"x": [(0, 5), (3, 8), (8, 9)]}, lambda x, y: x >= 0),
    "ranges and points": ({"x": [(-10, -9), 0, 3]}, lambda x, y: x in {-10, -9, 0, 3}),
    "many ranges": ({"x": [(i, i) for i in range(-9, 9, 3)]}, lambda x, y: x % 3 == 0 and x < 9),
    "no points at all": ({"x": []}, lambda x, y: False),
    "beyond the domain": ({"x": (100, 200)}, lambda x, y: False),
    "across the border": ({"x": (8, 200)}, lambda x, y: x >= 8),
}


def many_points(kind: Any) -> Any:
    return kind([*range(-9, 40), *range(50, 90, 3), 60, 61, -9, 127, -128])


@pytest.mark.parametrize("kind", [list, np.array, pa.array, lambda points: np.array(points, np.int8)])
def test_many_points_are_ranges_where_they_are_neighbours(kind: Any) -> None:
    schema = tz.Schema([tz.Dim("x", "int8", (-128, 126))], [tz.Attr("v", "int8")])
    expected = ((-128, -128), (-9, 39), (50, 50), (53, 53), (56, 56), (59, 62), (65, 65), (68, 68), (71, 71), (74, 74),
                (77, 77), (80, 80), (83, 83), (86, 86), (89, 89), (127, 127))  # fmt: skip

    assert parse_region({"x": many_points(kind)}, schema).ranges == (expected,)
    with pytest.raises(
        tz.InvalidRequestError, match="a coordinate of 'x' is 200; INT8 goes from -128 to 127"
    ):
        parse_region({"x": [*range(100), 200]}, schema)
    with pytest.raises(tz.InvalidRequestError, match=r"a coordinate of 'x' is 0.5; INT8 takes whole numbers"):
        parse_region({"x": np.arange(100) / 2}, schema)
    mixed = parse_region({"x": [*range(0, 80, 2), (90, 95)]}, schema).ranges[0]
    assert mixed is not None
    assert mixed[-1] == (90, 95)


def test_many_points_reach_to_the_ends_of_64_bits() -> None:
    for datatype, low, high in (("uint64", 0, 2**64 - 2), ("int64", -(2**63), 2**63 - 2)):
        schema = tz.Schema([tz.Dim("x", datatype, (low, high), 1)], [tz.Attr("v", "int8")])
        points = np.array([low, low + 1, *range(2, 60, 2), high - 1, high], datatype)
        ranges = parse_region({"x": points}, schema).ranges[0]

        assert ranges is not None
        assert (ranges[0], ranges[-1]) == ((low, low + (1 if low else 2)), (high - 1, high))


@pytest.mark.parametrize("case", REGIONS)
@pytest.mark.parametrize("order", ["row-major", "col-major", "hilbert"])
def test_a_region_selects_just_its_cells(case: str, order: str, uri: str) -> None:
    region, inside = REGIONS[case]

    assert cells(grid(uri, cell_order=order), region) == {(x, y) for x in X for y in Y if inside(x, y)}


@pytest.mark.parametrize("case", REGIONS)
def test_a_region_of_a_dense_array_selects_just_its_cells(case: str, uri: str) -> None:
    region, inside = REGIONS[case]
    dims = [tz.Dim("x", "int32", (-10, 9), 4), tz.Dim("y", "int32", (0, 9), 3)]
    a = tz.create(uri, tz.Schema(dims, [tz.Attr("v", "int64")], sparse=False))
    a[...] = np.add.outer(np.arange(-10, 10) * 100, np.arange(10))
    found = a.read(region=region)

    assert cells(a, region) == {(x, y) for x in X for y in Y if inside(x, y)}
    expected = [x * 100 + y for x, y in zip(*(found.column(n).to_pylist() for n in "xy"), strict=True)]
    assert found.column("v").to_pylist() == expected


@pytest.mark.parametrize(
    ("region", "told"),
    [
        ({"z": (1, 2)}, "no dimension 'z'; the schema has 'x', 'y'"),
        ({"v": (1, 2)}, "no dimension 'v'"),
        ((1, 2), r"region=\(1, 2\); a dict such as {'x': \(10, 20\)} is expected"),
        ({"x": slice(1, 2)}, "the region of 'x' is a slice; write"),
        ({"x": (1, 2, 3)}, r"the range \(1, 2, 3\) of 'x' is not \(low, high\)"),
        ({"x": (5, 3)}, r"the range \(5, 3\) of 'x' ends before it begins"),
        ({"x": (1.5, 3)}, "a coordinate of 'x' is 1.5; INT32 takes whole numbers"),
        ({"x": ["a"]}, "a coordinate of 'x' is 'a'; INT32 takes whole numbers"),
        ({"x": (0, 2**31)}, "a coordinate of 'x' is 2147483648; INT32 goes from -2147483648 to 2147483647"),
        ({"x": [float("nan")]}, "a coordinate of 'x' is nan"),
    ],
)
def test_a_region_that_is_none_is_refused(region: Any, told: str, uri: str) -> None:
    a = grid(uri)

    with pytest.raises(tz.InvalidRequestError, match=told):
        a.read(region=region)


def test_text_has_ranges_and_points_too(uri: str) -> None:
    names = ["", "a", "a\0", "aa", "ab", "b", "z" * 100, "~"]
    a = tz.create(uri, tz.Schema([tz.Dim("s", "ascii")], [tz.Attr("v", "int8")], capacity=1))
    a.write({"s": names, "v": np.arange(8)})

    def found(region: Any) -> list[str]:
        return a.read(["s"], region={"s": region}, order="row-major").column(0).to_pylist()

    assert found(("a", "ab")) == ["a", "a\0", "aa", "ab"]
    assert found((None, "a\0")) == ["", "a", "a\0"]
    assert found(("a\0", None)) == ["a\0", "aa", "ab", "b", "z" * 100, "~"]
    assert found((b"b", None)) == ["b", "z" * 100, "~"]
    assert found(["", "zzz", "~"]) == ["", "~"]
    assert found("aa") == ["aa"]
    assert found([("", "a"), ("b", None)]) == ["", "a", "b", "z" * 100, "~"]
    assert found([(None, ""), "ab", ("z", None), "a", "aa", "b"]) == [
        "",
        "a",
        "aa",
        "ab",
        "b",
        "z" * 100,
        "~",
    ]
    with pytest.raises(tz.InvalidRequestError, match="5 is no coordinate of 's', which is text"):
        found([5])


def test_floats_may_range_to_infinity(uri: str) -> None:
    a = tz.create(uri, tz.Schema([tz.Dim("d", "float32", (-10, 10), 3)], [tz.Attr("v", "int8")]))
    a.write({"d": [-10.0, -0.1, 0.1, 10.0], "v": [1, 2, 3, 4]})

    assert a.count(region={"d": (float("-inf"), float("inf"))}) == 4
    assert a.count(region={"d": (0.1, float("inf"))}) == 2
    assert a.count(region={"d": [-0.1, 5.0]}) == 1
    assert a.count("d > 0.1") == 1


def test_dates_are_given_as_text_or_as_dates(uri: str) -> None:
    dim = tz.Dim("t", "datetime_ms", (0, 10**13), 10**9)
    a = tz.create(uri, tz.Schema([dim], [tz.Attr("v", "int8")]))
    a.write({"t": np.array(["2024-01-01", "2024-01-02T12:00", "2024-02-01"], "M8[ms]"), "v": [1, 2, 3]})

    def found(*region: Any) -> list[int]:
        return a.read(["v"], region={"t": region}).column(0).to_pylist()

    assert found("2024-01-02", None) == [2, 3]
    assert found("2024-01-02T12:00:00", "2024-01-02T12:00:00Z") == [2]
    assert found("2024-01-02T14:00:00+02:00", "2024-01-31") == [2]
    assert found(np.datetime64("2024-01-02"), np.datetime64("2024-03")) == [2, 3]
    with pytest.raises(tz.InvalidRequestError, match="'soon' is no date for dimension 't'"):
        found("soon", None)
    with pytest.raises(tz.InvalidRequestError, match="no whole number of DATETIME_MS"):
        found("2024-01-01T00:00:00.0001", None)


@pytest.mark.parametrize("order", ["row-major", "col-major", "hilbert"])
def test_boxes_of_little_memory_lose_no_cell_and_show_none_twice(order: str, uri: str) -> None:
    dims = [tz.Dim("x", "uint64", (0, 2**64 - 2)), tz.Dim("s", "ascii")]
    schema = tz.Schema(dims, [tz.Attr("v", "int64")], capacity=100, cell_order=order)
    rng, expected = np.random.default_rng(1), {}
    a = tz.create(uri, schema)
    for write in range(4):
        x = rng.integers(0, 4000, 4000, np.uint64) * np.uint64(2**52)
        names = rng.choice(["", "a", "a\0", "b", "m" * 50], 4000)
        keys = list(dict.fromkeys(zip(x.tolist(), names.tolist(), strict=True)))
        a.write({"x": pa.array([k[0] for k in keys], pa.uint64()), "s": [k[1] for k in keys],
                 "v": np.full(len(keys), write)})  # fmt: skip
        expected |= dict.fromkeys(keys, write)
    request = parse_region(None, schema)
    from terrazzo.engine.plan import Request, plan_scan
    from terrazzo.engine.sparse import run_scan

    plan = plan_scan(a._view, Request(("x", "s", "v"), request), 2000)
    batches = [batch for task in plan.tasks for batch in run_scan(a._view, plan.request, task)]
    rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    assert len(plan.tasks) > 5
    assert len(rows) == len(expected)
    assert {(x, s): v for x, s, v in rows} == expected


def test_the_value_before_a_cut_leaves_nothing_between() -> None:
    assert before_value(b"b") == b"a" + b"\xff" * 64
    assert before_value(b"b\0") == b"b"
    assert before_value(np.int64(-(2**63) + 1)) == -(2**63)
    assert before_value(np.float64(1.0)) == np.nextafter(1.0, 0.0)
