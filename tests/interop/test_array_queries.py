"""What libtiledb answers on arrays of ours: query conditions and aggregates, over every datatype it has them for.

Both take the tile statistics that we wrote for granted; a missing or wrong one shows here, or crashes.
"""

import struct
from collections.abc import Callable
from operator import eq, ge, gt, le, lt, ne

import numpy as np
import pytest
import queries
from arrays import DATATYPES, SHAPES, Pair, assert_same_cells, attr_of, cell_list, cells_of, pair
from statistics_by_hand import CODES

from terrazzo.engine.columns import Column
from terrazzo.format.attribute import Attr
from terrazzo.format.condition import Compare, Op
from terrazzo.format.datatypes import Datatype
from terrazzo.format.domain import Dim
from terrazzo.format.schema import Schema

N_CELLS = 230
NUMBERS = [datatype for datatype in DATATYPES if datatype in CODES and datatype is not Datatype.CHAR]
OPERATORS: dict[Op, Callable[[object, object], bool]] = {
    Op.LT: lt, Op.LE: le, Op.GT: gt, Op.GE: ge, Op.EQ: eq, Op.NE: ne,
}  # fmt: skip


@pytest.fixture(scope="module", params=["sparse", "sparse hilbert", "dense"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Values are moderate: a sum that overflows depends on which of libtiledb's threads comes first."""
    rng = np.random.default_rng(3)
    attrs = [
        attr_of(each, shape, nullable=null)
        for each in DATATYPES
        for shape in SHAPES
        for null in (False, True)
    ]
    if request.param == "dense":
        # Defect of libtiledb: strings beside many attributes; see test_arrays.
        attrs = [a for a in attrs if not (a.is_var and a.datatype in {Datatype.CHAR, Datatype.STRING_ASCII})]
        schema = Schema([Dim("x", "int32", (1, 230), 50)], attrs, sparse=False)
        columns, box = {}, ((1, N_CELLS),)
    else:
        order = "hilbert" if "hilbert" in request.param else "row-major"
        schema = Schema([Dim("x", "int32", (0, 999), 100)], attrs, capacity=50, cell_order=order)
        columns, box = {"x": Column(np.arange(N_CELLS, dtype=np.int32) * 4)}, None
    columns |= {
        attr.name: cells_of(attr, N_CELLS, rng, nulls=slice(50, 100), extreme=False) for attr in attrs
    }
    return pair(tmp_path_factory.mktemp("pair"), schema, columns, box=box)


def numbers(attr: Attr, column: Column) -> list:
    code = CODES[attr.datatype]
    return [None if cell is None else struct.unpack(f"<{code}", cell)[0] for cell in cell_list(column)]


def expected_aggregates(attr: Attr, column: Column) -> dict[str, object]:
    values = [value for value in numbers(attr, column) if value is not None]
    code = CODES[attr.datatype]
    return {
        "sum": float(sum(values)) if attr.datatype.is_float else sum(values),
        "mean": sum(values) / len(values),
        "min": struct.pack(f"<{code}", min(values)),
        "max": struct.pack(f"<{code}", max(values)),
    }


def test_aggregates_of_numbers(both: Pair) -> None:
    # BOOL has statistics, but libtiledb no aggregate for it.
    kinds = [datatype for datatype in NUMBERS if datatype is not Datatype.BOOL]
    attrs = [attr for attr in both.schema.attrs if attr.datatype in kinds and attr.cell_val_num == 1]
    requests = [(what, attr.name) for attr in attrs for what in ("sum", "min", "max", "mean")]
    requests += [("null_count", attr.name) for attr in attrs if attr.nullable]
    found = queries.aggregate(both.ours, both.schema, [*requests, ("count", "")])

    assert len(attrs) == 2 * len(kinds)
    assert found["count", ""] == N_CELLS
    for attr in attrs:
        expected = expected_aggregates(attr, both.columns[attr.name])
        assert {what: found[what, attr.name] for what in expected} == pytest.approx(expected), attr.name
        if attr.nullable:
            assert found["null_count", attr.name] == numbers(attr, both.columns[attr.name]).count(None)


def test_aggregates_of_strings(both: Pair) -> None:
    # Others are refused by libtiledb: CHAR, UTF-8 and the wider ones have no minimum, for a single character no
    # buffer is right, and null counts of what has no minimum fail on its own arrays as well ("tile min
    # metadata that's not present").
    attrs = [a for a in both.schema.attrs if a.datatype is Datatype.STRING_ASCII and a.cell_val_num != 1]
    requests = [(what, attr.name) for attr in attrs for what in ("min", "max")]
    requests += [("null_count", attr.name) for attr in attrs if attr.nullable]
    found = queries.aggregate(both.ours, both.schema, requests)

    for attr in attrs:
        there = [cell for cell in cell_list(both.columns[attr.name]) if cell is not None]
        assert (found["min", attr.name], found["max", attr.name]) == (min(there), max(there)), attr.name
        assert not attr.nullable or found["null_count", attr.name] == N_CELLS - len(there)


@pytest.mark.parametrize("what", ["min", "sum"])
def test_aggregates_that_libtiledb_refuses_on_its_own_arrays_too(both: Pair, what: str) -> None:
    for name in ("STRING_UTF8-var", "CHAR-three", "INT32-var", "FLOAT64-three-null", "BLOB-one"):
        for root in (both.theirs, both.ours):
            with pytest.raises(Exception, match=r"not a supported|only be requested|is not supported"):
                queries.aggregate(root, both.schema, [(what, name)])


def test_aggregates_of_a_part_and_under_a_condition(both: Pair) -> None:
    ranges = [(41, 187)] if both.schema.dense else [(101, 555)]
    condition = Compare(Op.GT, "INT16-one-null", struct.pack("<h", 3))
    requests = [
        ("sum", "INT64-one"),
        ("count", ""),
        ("max", "FLOAT32-one-null"),
        ("null_count", "INT8-one-null"),
    ]
    rows = both.within(ranges)

    for kept, given in ((None, None), (condition, condition)):
        passing = [
            row
            for row, value in enumerate(numbers(both.schema.attr("INT16-one-null"), rows["INT16-one-null"]))
            if kept is None or (value is not None and value > 3)
        ]
        values = {
            name: [numbers(both.schema.attr(name), rows[name])[row] for row in passing]
            for name in ("INT64-one", "FLOAT32-one-null", "INT8-one-null")
        }
        # Defect of libtiledb: of a dense array it counts the cells that fail the condition as well.
        n_counted = len(passing) if both.schema.sparse else len(rows["INT64-one"])
        assert queries.aggregate(both.ours, both.schema, requests, ranges=ranges, condition=given) == {
            ("sum", "INT64-one"): sum(values["INT64-one"]),
            ("count", ""): n_counted,
            ("max", "FLOAT32-one-null"): struct.pack(
                "<f", max(value for value in values["FLOAT32-one-null"] if value is not None)
            ),
            ("null_count", "INT8-one-null"): values["INT8-one-null"].count(None),
        }
        assert queries.aggregate(
            both.theirs, both.schema, [("count", "")], ranges=ranges, condition=given
        ) == {("count", ""): n_counted}


def test_conditions_on_numbers(both: Pair) -> None:
    for place, datatype in enumerate(NUMBERS):
        for null in (False, True):
            attr = both.schema.attr(f"{datatype.name}-one{'-null' if null else ''}")
            op = list(OPERATORS)[place % len(OPERATORS)]
            values = numbers(attr, both.columns[attr.name])
            pivot = sorted(value for value in values if value is not None)[60]
            code = CODES[attr.datatype]
            assert_condition(both, attr, op, struct.pack(f"<{code}", pivot), values, pivot)


@pytest.mark.parametrize("op", OPERATORS)
def test_conditions_on_strings(both: Pair, op: Op) -> None:
    names = [
        "STRING_ASCII-var",
        "STRING_ASCII-var-null",
        "STRING_UTF8-var",
        "STRING_UTF8-var-null",
        "STRING_ASCII-three",
    ]
    for name in names:
        if not both.schema.has(name):
            continue
        cells = cell_list(both.columns[name])
        pivot = sorted(cell for cell in cells if cell)[30]
        assert_condition(both, both.schema.attr(name), op, pivot, cells, pivot)


def assert_condition(both: Pair, attr: Attr, op: Op, value: bytes, cells: list, pivot: object) -> None:
    condition = Compare(op, attr.name, value)
    passing = [cell is not None and OPERATORS[op](cell, pivot) for cell in cells]
    found = {
        side: queries.read(root, both.schema, [attr.name], condition=condition)
        for side, root in (("ours", both.ours), ("theirs", both.theirs))
    }

    assert_same_cells(found["ours"], found["theirs"])
    if both.schema.sparse:  # in dense arrays the others come as fill values
        assert_same_cells(found["ours"], {attr.name: both.columns[attr.name].take(np.flatnonzero(passing))})


def test_a_condition_on_a_set(both: Pair) -> None:
    members = tuple(struct.pack("<i", number) for number in (-5, 7, 31, 99))
    condition = Compare(Op.IN, "INT32-one", members=members)
    expected = [cell for cell in cell_list(both.columns["INT32-one"]) if cell in members]
    found = queries.read(both.ours, both.schema, ["INT32-one"], condition=condition)

    if both.schema.sparse:
        assert cell_list(found["INT32-one"]) == expected
    else:
        fill = both.schema.attr("INT32-one").fill
        assert [cell for cell in cell_list(found["INT32-one"]) if cell != fill] == expected


def test_infinities_and_nan(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Here the statistics part on purpose: a NaN never hides a number, and an infinity is an infinity."""
    schema = Schema(
        [Dim("x", "int32", (0, 99), 10)], [Attr("a", "float64"), Attr("b", "float32")], capacity=4
    )
    values = np.array([1, np.nan, 3, 4, np.inf, np.inf, np.inf, np.inf, -2, -np.inf, 5, np.nan, np.nan, 7])
    columns = {
        "x": Column(np.arange(14, dtype=np.int32)),
        "a": Column(values),
        "b": Column(values.astype(np.float32)),
    }
    both = pair(tmp_path_factory.mktemp("pair"), schema, columns)
    condition = Compare(Op.GT, "a", struct.pack("<d", 3.5))

    assert_same_cells(queries.read(both.ours, schema), columns)
    assert queries.read(both.ours, schema, ["a"], condition=condition)["a"].values.tolist() == [
        4,
        *[np.inf] * 4,
        5,
        7,
    ]
    assert queries.aggregate(both.ours, schema, [("min", "a"), ("max", "b")]) == {
        ("min", "a"): struct.pack("<d", -np.inf),
        ("max", "b"): struct.pack("<f", np.inf),
    }
