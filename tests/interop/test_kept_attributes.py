"""Consolidation that keeps attributes dropped since puts one more schema, never in force: libtiledb opens the array with
the right one at every instant, reads and goes on."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiledb
from mixed import MODES, run_theirs, theirs

import terrazzo as tz
from terrazzo.format.keys import TimestampedName

sys.path.insert(0, str(Path(__file__).parents[1] / "property"))
from histories import all_shown, shown

INSTANTS = (1000, 1010, 1015, 1020, 1030, 1035, 1040, 1050)


@pytest.fixture(params=[True, False], ids=["duplicates", "no duplicates"])
def dropped(request: pytest.FixtureRequest, tmp_path: Path) -> tz.Array:
    """`b` and `e` were dropped, `c` added; fragments of before and after."""
    schema = tz.Schema(
        [tz.Dim("x", "int32", (0, 30), 5)],
        [tz.Attr("a", "int32"), tz.Attr("b", "utf8", nullable=True), tz.Attr("e", "int8", enum="colours")],
        enums={"colours": ["red", "blue"]},
        allows_duplicates=request.param, capacity=3,
    )  # fmt: skip
    array = tz.create(str(tmp_path / "a"), schema, at=1000)
    array.write(
        {"x": [1, 2, 7], "a": [1, 2, 3], "b": ["one", None, "x"], "e": ["red", "blue", "red"]}, at=1010
    )
    array.write({"x": [3], "a": [1], "b": ["three"], "e": ["blue"]}, at=1015)
    array.evolve(drop=["b", "e"], at=1020)
    array.write({"x": [2, 4], "a": [5, 6]}, at=1030)
    array.delete("a = 6", at=1035)
    array.evolve(add=[tz.Attr("c", "int16", fill=4)], at=1040)
    array.write({"x": [9], "a": [7], "c": [1]}, at=1050)
    return array


def labelled(rows: list[str]) -> list[str]:
    """libtiledb's Python gives the places of labels, ours the labels."""
    return sorted(row.replace("'e': 'red'", "'e': 0").replace("'e': 'blue'", "'e': 1") for row in rows)


def agrees(uri: str, before: dict[int, list[str]], orders: str = "U") -> None:
    assert all_shown(uri, before) == before
    for order in orders:
        for at, rows in before.items():
            assert theirs(uri, at, order) == labelled(rows), (order, at)


def names_of(uri: str, at: int | None = None) -> list[str]:
    with tiledb.open(uri, timestamp=at) as array:
        return [array.schema.attr(j).name for j in range(array.schema.nattr)]


def consolidated(array: tz.Array) -> str:
    """The name of the schema that was put for it."""
    known = set(array._view.snapshot.schemas)
    array.consolidate()
    array.vacuum(retain=0)
    (name,) = set(tz.open(array.uri)._view.snapshot.schemas) - known
    return name


def test_libtiledb_opens_every_instant_with_the_schema_of_then(dropped: tz.Array) -> None:
    before = all_shown(dropped.uri, INSTANTS)
    agrees(dropped.uri, before)
    kept = consolidated(dropped)

    assert len(dropped.fragments) == 1
    assert dropped.fragments[0].footer.schema_name == kept
    assert TimestampedName.parse(kept).start_ms == 1040
    agrees(dropped.uri, before, "UGCF")
    assert names_of(dropped.uri) == names_of(dropped.uri, 1040) == ["a", "c"]
    assert names_of(dropped.uri, 1039) == ["a"]
    assert names_of(dropped.uri, 1019) == ["a", "b", "e"]
    assert [attr.name for attr in dropped.schema.attrs] == ["a", "c"]


@pytest.mark.parametrize("who", ["ours", "theirs"])
def test_both_evolve_and_write_on_from_the_right_schema(dropped: tz.Array, who: str) -> None:
    consolidated(dropped)
    before = all_shown(dropped.uri, INSTANTS)
    if who == "ours":
        dropped.evolve(add=[tz.Attr("d", "float64", fill=0.5)], at=1060)
        tz.open(dropped.uri).write({"x": [20], "a": [8], "c": [2], "d": [2.5]}, at=1070)
    else:
        evolution = tiledb.ArraySchemaEvolution()
        evolution.add_attribute(tiledb.Attr("d", dtype="float64", fill=0.5))
        evolution.timestamp(1060)
        evolution.array_evolve(dropped.uri)
        columns: dict[str, Any] = {"a": np.int32([8]), "c": np.int16([2]), "d": np.float64([2.5])}
        with tiledb.open(dropped.uri, "w", timestamp=1070) as array:
            array[np.int32([20])] = columns

    assert names_of(dropped.uri) == ["a", "c", "d"]
    late = all_shown(dropped.uri, (1060, 1070))
    assert "{'x': 20, 'a': 8, 'c': 2, 'd': 2.5}" in late[1070]
    agrees(dropped.uri, before | late)
    dropped.refresh()
    consolidated(dropped)
    agrees(dropped.uri, before | late)


def test_libtiledb_writes_and_maintains_what_ours_kept(dropped: tz.Array) -> None:
    consolidated(dropped)
    with tiledb.open(dropped.uri, "w", timestamp=1060) as array:
        array[np.int32([20])] = {"a": np.int32([8]), "c": np.int16([2])}
    before = all_shown(dropped.uri, (*INSTANTS, 1060))
    agrees(dropped.uri, before)
    for mode in MODES[1:]:
        run_theirs(dropped.uri, mode)
    agrees(dropped.uri, before)
    # Its own consolidation writes under the present schema: what was dropped is gone from earlier instants, and
    # nothing else is.
    run_theirs(dropped.uri, "fragments")
    now = {at: rows for at, rows in before.items() if at >= 1040}
    agrees(dropped.uri, now)
    assert len(shown(dropped.uri, 1015)) == len(before[1015])


def test_a_second_consolidation_uses_the_schema_that_is_there(dropped: tz.Array) -> None:
    kept = consolidated(dropped)
    dropped.write({"x": [25], "a": [1], "c": [1]}, at=1060)
    before = all_shown(dropped.uri, (*INSTANTS, 1060))
    dropped.consolidate()
    dropped.vacuum(retain=0)

    assert [fragment.footer.schema_name for fragment in dropped.fragments] == [kept]
    assert len(dropped._view.snapshot.schemas) == 4
    agrees(dropped.uri, before)


def test_libtiledb_names_the_schema_of_the_fragment(dropped: tz.Array) -> None:
    kept = consolidated(dropped)
    (info,) = tiledb.array_fragments(dropped.uri)

    assert info.array_schema_name == kept


@pytest.mark.parametrize("change", ["delete", "update"])
def test_conditions_on_an_attribute_of_another_type_leave_later_fragments_alone(
    tmp_path: Path, change: str
) -> None:
    """libtiledb lets a name be given away again, to cells of another kind."""
    uri = str(tmp_path / "a")
    schema = tz.Schema(
        [tz.Dim("x", "int64", (0, 99), 10)],
        [tz.Attr("v", "int64"), tz.Attr("w", "int32")],
        allows_duplicates=False,
    )
    array = tz.create(uri, schema, at=1000)
    array.write({"x": [0, 1], "v": [0, 1], "w": [3, 4]}, at=1010)
    if change == "delete":
        array.delete("w = 3", at=1020)
    else:
        array.update({"v": 7}, "w = 3", at=1020)
    for step, time_ms in (("drop", 1030), ("add", 1040)):
        evolution = tiledb.ArraySchemaEvolution()
        evolution.timestamp(time_ms)
        if step == "drop":
            evolution.drop_attribute("w")
        else:
            evolution.add_attribute(tiledb.Attr("w", dtype=np.float64))
        evolution.array_evolve(uri)
    array = tz.open(uri)
    array.write({"x": [10, 11], "v": [1, 2], "w": [0.5, 1.5]}, at=1050)
    array.write({"x": [11, 12], "v": [3, 4], "w": [2.5, 3.5]}, at=1060)
    array.delete("x = 12", at=1070)
    array.consolidate(fragments=[str(fragment.name) for fragment in array.fragments][-2:])
    found = tz.open(uri).read(region={"x": (10, 99)}, order="row-major").to_pydict()
    assert found == {"x": [10, 11], "v": [1, 3], "w": [0.5, 2.5]}
