"""Metadata and groups, here and in libtiledb."""

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiledb

import terrazzo as tz

SCHEMA = tz.Schema([tz.Dim("x", "int8", (0, 9))], [tz.Attr("v", "int8")])

VALUES: dict[str, Any] = {
    "text": "é\0", "empty": "", "bytes": b"\xff\0", "no bytes": b"", "whole": -5, "large": 2**62, "float": 0.1,
    "nan": float("nan"), "tuple": (1, 2, 3), "floats": (0.5, 1.5), "true": 1,
}  # fmt: skip
ARRAYS: dict[str, Any] = {
    "array": np.array([1, 2, 3], np.int16), "matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
    "unsigned": np.array([2**64 - 1], np.uint64),
}  # fmt: skip


def same(one: Any, other: Any) -> bool:
    if isinstance(other, np.ndarray):
        return bool(np.array_equal(one, other)) and one.dtype == other.dtype
    return one == other or (one != one and other != other)  # noqa: PLR0124 - NaN


def test_metadata_of_every_kind_come_back(uri: str) -> None:
    a = tz.create(uri, SCHEMA)
    a.meta.update(VALUES | ARRAYS)

    for each in (a, tz.open(uri)):
        assert set(each.meta) == {*VALUES, *ARRAYS}
        for key, value in (VALUES | ARRAYS).items():
            assert same(each.meta[key], value), key
    assert len(a.history()) == 2


def test_metadata_written_here_are_read_by_tiledb_py(folder: str) -> None:
    tz.create(folder, SCHEMA).meta.update(VALUES | ARRAYS)

    with tiledb.open(folder) as other:
        for key, value in VALUES.items():
            found = other.meta[key]
            assert same(found, value) or same(found, (value,)) or (value in {"", b""} and not found), (
                key,
                found,
            )
        for key, value in ARRAYS.items():
            assert same(other.meta[key], value), key


def test_metadata_written_by_tiledb_py_are_read_here(folder: str) -> None:
    tz.create(folder, SCHEMA)
    with tiledb.open(folder, "w") as other:
        for key, value in (VALUES | ARRAYS).items():
            other.meta[key] = value
    found = tz.open(folder).meta

    for key, value in (VALUES | ARRAYS).items():
        assert same(found[key], value) or (value in ("", b"") and not found[key]), (key, found[key])
    with tiledb.open(folder, "w") as other:
        del other.meta["text"]
        other.meta["array"] = "text now"
    found = tz.open(folder).meta
    assert "text" not in found
    assert found["array"] == "text now"


def test_metadata_are_a_dict(uri: str) -> None:
    a = tz.create(uri, SCHEMA)
    meta = a.meta
    meta["a"] = 1
    meta["b"] = "two"

    assert meta["a"] == 1
    assert a.meta == {"a": 1, "b": "two"}
    assert list(meta) == ["a", "b"]
    assert len(meta) == 2
    assert "a" in meta
    assert "c" not in meta
    assert meta.get("c") is None
    assert meta.setdefault("a", 5) == 1
    assert meta.setdefault("c", 3.5) == 3.5
    assert meta.pop("c") == 3.5
    assert repr(meta) == "Metadata({'a': 1, 'b': 'two'})"
    meta["a"] = np.array([1, 2])
    meta["a"] = 5
    assert tz.open(uri).meta["a"] == 5
    del meta["a"]
    with pytest.raises(KeyError):
        meta["a"]
    with pytest.raises(KeyError):
        del meta["a"]
    meta.clear()
    assert dict(tz.open(uri).meta) == {}
    meta.update(x=1, y=2)
    assert dict(a.meta) == {"x": 1, "y": 2}


def test_metadata_travel_in_time(uri: str) -> None:
    a = tz.create(uri, SCHEMA)
    a.meta["a"] = 1
    then = a.history()[-1].start_ms
    a.meta["a"] = 2

    assert tz.open(uri, at=then).meta["a"] == 1
    assert tz.open(uri, at=then - 1).meta.get("a") is None
    assert tz.open(uri).meta["a"] == 2


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("a", None, "metadata cannot hold a value of NoneType; it takes text, bytes, numbers"),
        ("a", {"b": 1}, "metadata cannot hold a value of dict"),
        ("a", date(2024, 1, 1), "metadata cannot hold a value of date"),
        ("a", [1, "b"], "metadata cannot hold a value of int, str"),
        ("a", 2**70, "a whole number in metadata is beyond 64 bits"),
        ("a", np.array(["b"]), "metadata cannot hold an array of <U1"),
        ("__np_flat_a", 1, "keys that begin with __np_flat_ or __np_shape_ are reserved"),
        (5, 1, "metadata keys are text, not int"),
    ],
)
def test_metadata_that_are_none_are_refused(key: Any, value: Any, told: str, uri: str) -> None:
    a = tz.create(uri, SCHEMA)

    with pytest.raises(tz.InvalidRequestError, match=told):
        a.meta[key] = value
    assert len(a.history()) == 1


# -- groups --------------------------------------------------------------------------------------------


def test_groups_hold_arrays_and_groups(tmp_path: Path) -> None:
    uri = str(tmp_path / "group")
    g = tz.Group.create(uri)
    tz.create(f"{uri}/inside", SCHEMA)
    tz.create(str(tmp_path / "outside"), SCHEMA)
    tz.Group.create(f"{uri}/below")
    g.add(f"{uri}/inside", "first")
    g.add(str(tmp_path / "outside"), "second")
    g.add("below")
    g.meta["owner"] = "me"

    for each in (g, tz.Group(uri)):
        assert each.members == {
            "first": f"{each.uri}/inside", "second": tz.open(str(tmp_path / "outside")).uri, "below": f"{each.uri}/below",
        }  # fmt: skip
        assert each["first"] == f"{each.uri}/inside"
        assert sorted(each) == ["below", "first", "second"]
        assert len(each) == 3
        assert "first" in each
        assert (each.kind("first"), each.kind("below")) == ("array", "group")
        assert each.meta["owner"] == "me"
        assert tz.open(each["first"]).count() == 0
        assert "3 members" in repr(each)
    g.remove("second")
    assert sorted(tz.Group(uri)) == ["below", "first"]
    assert tz.exists(str(tmp_path / "outside"))
    g.add(str(tmp_path / "outside"), "second")
    assert sorted(tz.Group(uri)) == ["below", "first", "second"]


def test_groups_are_the_same_for_libtiledb(tmp_path: Path) -> None:
    ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    g = tz.Group.create(ours)
    for name in ("one", "two", "three"):
        tz.create(f"{ours}/{name}", SCHEMA)
        g.add(f"{ours}/{name}", name.upper())
    g.remove("TWO")
    g.meta["n"] = 5
    with tiledb.Group(ours) as other:
        assert {member.name for member in other} == {"ONE", "THREE"}
        assert Path(other["ONE"].uri.removeprefix("file://")).samefile(f"{ours}/one")
        assert other.meta["n"] == 5

    tiledb.Group.create(theirs)
    tz.create(f"{theirs}/a", SCHEMA)
    tz.create(str(tmp_path / "b"), SCHEMA)
    with tiledb.Group(theirs, "w") as other:
        other.add("a", name="A", relative=True)
        other.add(f"file://{tmp_path}/b", name="B")
        other.meta["n"] = 6
    g = tz.Group(theirs)
    assert sorted(g) == ["A", "B"]
    assert all(tz.exists(uri) for uri in g.members.values())
    assert g.meta["n"] == 6
    g.remove("A")
    with tiledb.Group(theirs, "w") as other:
        other.remove("B")
    g.refresh()
    assert g.members == {}
    with tiledb.Group(theirs) as other:
        assert len(other) == 0


def test_groups_may_be_anywhere(s3_uri: str, s3_server: Any) -> None:
    options = {"storage_options": s3_server.options}
    g = tz.Group.create(s3_uri, **options)
    tz.create(f"{s3_uri}/inside", SCHEMA, **options)
    tz.create(f"{s3_uri}-outside", SCHEMA, **options)
    g.add("inside")
    g.add(f"{s3_uri}-outside", "outside")

    again = tz.Group(s3_uri, **options)
    assert sorted(again) == ["inside", "outside"]
    assert tz.open(again["outside"], **options).count() == 0


def test_members_that_are_none_are_refused(tmp_path: Path) -> None:
    uri = str(tmp_path / "group")
    g = tz.Group.create(uri)
    tz.create(f"{uri}/a", SCHEMA)
    g.add("a", "A")

    with pytest.raises(tz.ArrayNotFoundError, match="there is neither an array nor a group at nothing"):
        g.add("nothing")
    with pytest.raises(tz.InvalidRequestError, match="the group has a member 'A' already"):
        g.add("a", "A")
    for ask in (g.remove, g.kind, g.__getitem__):
        with pytest.raises(tz.InvalidRequestError, match="no member 'B'; the group has 'A'"):
            ask("B")
    with pytest.raises(tz.ArrayExistsError, match=r"there is something at .* already"):
        tz.Group.create(uri)
    with pytest.raises(tz.ArrayExistsError, match="not empty"):
        tz.create(uri, SCHEMA)
    assert "X" not in g
