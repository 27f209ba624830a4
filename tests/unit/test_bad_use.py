"""Bad use, and damage: one clear line each, and nothing written."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import terrazzo as tz
from terrazzo.storage import open_store
from terrazzo.testing.stores import FailingStore, Request


def make(folder: str) -> tz.Array:
    schema = tz.Schema(
        [tz.Dim("x", "int64", (0, 99), 10), tz.Dim("s", "ascii")],
        [tz.Attr("v", "float64"), tz.Attr("tag", "utf8", nullable=True), tz.Attr("k", "int8", enum="kinds")],
        enums={"kinds": ["a", "b"]},
    )
    a = tz.create(folder, schema)
    a.write({"x": [1, 2], "s": ["a", "b"], "v": [1.5, 2.5], "tag": ["t", None], "k": ["a", "b"]})
    return a


def contents(folder: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


@contextmanager
def refused(folder: str, kind: type[Exception], told: str) -> Iterator[None]:
    """What stands in the block is an error of that kind, told in one line; and it leaves everything as it was."""
    before = contents(folder)
    with pytest.raises(kind, match=told) as error:
        yield
    assert isinstance(error.value, tz.TerrazzoError)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500
    assert error.value.__cause__ is None
    assert error.value.__context__ is None or error.value.__suppress_context__
    assert contents(folder) == before


ROW: dict[str, Any] = {"x": [3], "s": ["c"], "v": [3.5], "tag": ["u"], "k": ["a"]}

MISTAKES: dict[str, tuple[Callable[[tz.Array], Any], str]] = {
    "unknown column in read": (lambda a: a.read(["nope"]), "no field 'nope'; the schema has 'x', 's', 'v', 'tag', 'k'"),
    "unknown column in where": (lambda a: a.read(where="tga = 'a'"), "there is no column 'tga'; did you mean 'tag'?"),
    "unknown column in delete": (lambda a: a.delete("nope = 1"), "where='nope = 1': there is no column 'nope'"),
    "unknown column in update": (lambda a: a.update({"nope": 1}, "x = 1"), "no attribute 'nope'"),
    "unknown column in write": (lambda a: a.write(ROW | {"nope": [1]}), "the array has no 'nope'"),
    "missing column in write": (lambda a: a.write({"x": [1], "s": ["a"]}), "the data lack 'v', 'tag', 'k'"),
    "unknown dimension in region": (lambda a: a.read(region={"z": 1}), "no dimension 'z'; the schema has 'x', 's'"),
    "type mismatch in where": (lambda a: a.count("x = 'a'"), "'x' is INT64 and does not compare with 'a'"),
    "type mismatch in delete": (lambda a: a.delete("tag > 5"), "'tag' is STRING_UTF8 and does not compare with 5"),
    "type mismatch in write": (lambda a: a.write(ROW | {"v": ["much"]}), "column 'v': string does not fit FLOAT64"),
    "type mismatch in update": (lambda a: a.update({"v": "much"}), "'v' cannot be set to 'much'"),
    "type mismatch in region": (lambda a: a.read(region={"x": ("a", "b")}), "a coordinate of 'x' is 'a'"),
    "malformed SQL": (lambda a: a.read(where="x >"), "is not SQL: something is missing after '>'"),
    "malformed SQL in delete": (lambda a: a.delete("x = 1 AND"), "is not SQL"),
    "aggregate in where": (lambda a: a.read(where="max(v) > 1"), r"the aggregate MAX\(v\) is not understood here"),
    "function in where": (lambda a: a.read(where="abs(v) > 1"), r"the function ABS\(v\) is not understood here"),
    "no condition to delete by": (lambda a: a.delete(""), "where='' is no condition"),
    "null where none is allowed": (lambda a: a.write(ROW | {"v": [None]}), "attribute 'v' is not nullable, but row 0 is null"),
    "null coordinate": (lambda a: a.write(ROW | {"x": [None]}), "dimension 'x' is not nullable, but row 0 is null"),
    "coordinate outside the domain": (lambda a: a.write(ROW | {"x": [100]}), "x = 100 lies outside the domain 0 to 99"),
    "coordinate that is no text": (lambda a: a.write(ROW | {"s": ["é"]}), "column 's' is ASCII, but holds other characters"),
    "duplicates": (
        lambda a: a.write({name: values * 2 for name, values in ROW.items()}), r"two cells at x=3, s=b?'c'; drop one of them"
    ),
    "unknown label": (lambda a: a.write(ROW | {"k": ["z"]}), "'z' is no label of its enumeration"),
    "lengths that differ": (lambda a: a.write(ROW | {"x": [1, 2]}), "the columns differ in length"),
    "order that is none": (lambda a: a.read(order="random"), "order='random'; there are row-major"),
    "memory that is none": (lambda a: a.scan(memory="some"), "memory='some' is no size"),
    "slice of a sparse array": (lambda a: a[0:1], "a sparse array is not sliced"),
    "metadata that are none": (lambda a: a.meta.update(a=object()), "metadata cannot hold a value of object"),
    "instant that is none": (lambda a: a.write(ROW, at="soon"), "at='soon' is not an instant"),
    "changes of the future": (lambda a: a.changes(2, 1), "since .* is later than until"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_in_one_line_and_changes_nothing(mistake: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "array")
    a = make(folder)
    act, told = MISTAKES[mistake]

    with refused(folder, tz.InvalidRequestError, told):
        act(a)
    assert a.count() == 2


# -- places --------------------------------------------------------------------------------------------


def test_a_place_below_a_file_is_no_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file")
    inside = str(tmp_path / "file" / "array")

    with refused(str(tmp_path), tz.TerrazzoError, "file"):
        tz.create(inside, make(str(tmp_path.parent / f"{tmp_path.name}-other")).schema)
    with refused(str(tmp_path), tz.TerrazzoError, "file"):
        tz.open(inside)
    shutil.rmtree(tmp_path.parent / f"{tmp_path.name}-other")


def read_only(request: Request, _number: int) -> bool:
    return request.kind in {"put", "delete", "delete_folder"}


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.write(ROW),
        lambda a: a.upsert(ROW),
        lambda a: a.delete("x = 1"),
        lambda a: a.delete("tag = 't'"),
        lambda a: a.update({"v": 1.0}, "x = 1"),
        lambda a: a.update({"v": 1.0}, "x = 1", portable=True),
        lambda a: a.evolve(add=[tz.Attr("w", "int8")]),
        lambda a: a.meta.update(a=1),
    ],
)
def test_a_store_that_refuses_leaves_array_and_handle_as_they_were(change: Any, tmp_path: Path) -> None:
    folder = str(tmp_path / "array")
    make(folder)
    a = tz.Array(FailingStore(open_store(folder), read_only), None)

    with refused(folder, tz.StorageError, "this put was made to fail"):
        change(a)
    assert a.count() == 2
    assert tz.open(folder).count() == 2


@pytest.mark.parametrize("failing", range(8))
def test_a_write_that_fails_half_way_is_never_seen(failing: int, tmp_path: Path) -> None:
    folder = str(tmp_path / "array")
    make(folder)
    a = tz.Array(FailingStore.nth(open_store(folder), failing, "put"), None)
    with pytest.raises(tz.StorageError):
        a.write(ROW)

    assert a.count() == tz.open(folder).count() == 2
    a.write(ROW)
    assert a.count() == tz.open(folder).count() == 3


# -- damage --------------------------------------------------------------------------------------------


def one(folder: str, pattern: str) -> Path:
    (found,) = Path(folder).glob(pattern)
    return found


def test_a_fragment_that_was_removed_is_missed(tmp_path: Path) -> None:
    folder = str(tmp_path / "array")
    a = make(folder)
    shutil.rmtree(one(folder, "__fragments/*"))
    gone = "__fragments/.* is committed, but its files are gone; open the array again"

    for ask in (tz.Array.read, tz.Array.count, tz.Array.nonempty_domain, tz.Array.scan):
        with refused(folder, tz.ConflictError, gone):
            ask(tz.open(folder))
    with refused(folder, tz.ConflictError, "was removed while it was read; open the array again"):
        a.read()
    assert [event.text.startswith("unreadable") for event in a.history()] == [False, True]


def test_a_data_file_that_was_removed_is_missed(tmp_path: Path) -> None:
    folder = str(tmp_path / "array")
    make(folder)
    one(folder, "__fragments/*/a0.tdb").unlink()
    a = tz.open(folder)

    assert a.read(["x"]).num_rows == 2
    with refused(folder, tz.ConflictError, "a0.tdb was removed while it was read"):
        a.read()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


@pytest.mark.parametrize("how", ["truncated", "emptied", "flipped"])
def test_a_damaged_delete_is_named_and_nothing_is_read_past_it(how: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "array")
    a = make(folder)
    a.delete("x = 1")
    path = one(folder, "__commits/*.del")
    stored = bytearray(path.read_bytes())
    stored[len(stored) // 2] ^= 0xFF
    path.write_bytes({"truncated": path.read_bytes()[:-5], "emptied": b"", "flipped": bytes(stored)}[how])
    a = tz.open(folder)

    asks: list[Any] = [
        a.read,
        a.count,
        a.scan,
        lambda: a.changes(0),
        lambda: a.delete("x = 2"),
        lambda: a.update({"v": 0.0}),
    ]
    for ask in asks:
        with refused(folder, tz.CorruptionError, r"__commits/__\d+_\d+_[0-9a-f]+_22\.del"):
            ask()
    assert tz.open(folder, at=a.history()[1].start_ms).count() == 2
    assert any("unreadable" in event.text for event in a.history())


def test_a_damaged_ledger_is_named_and_nothing_is_read_past_it(tmp_path: Path) -> None:
    folder = str(tmp_path / "array")
    a = make(folder)
    a.write([ROW, ROW | {"x": [4]}], fragment_size=1)
    cut(one(folder, "__commits/*.con"))
    a = tz.open(folder)

    for ask in (a.read, a.count, lambda: a.delete("x = 1")):
        with refused(folder, tz.CorruptionError, r"__commits/__\d+_\d+_[0-9a-f]+_22\.con"):
            ask()


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("__schema/__*", "__schema/__"),
        ("__fragments/*/__fragment_metadata.tdb", "__fragment_metadata.tdb"),
        ("__fragments/*/a0.tdb", "a0.tdb"),
        ("__schema/__enumerations/*", "__enumerations/__"),
    ],
)
def test_other_damaged_files_are_named(pattern: str, told: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "array")
    make(folder)
    for path in Path(folder).glob(pattern):
        if path.is_file():
            cut(path)

    with refused(folder, tz.TerrazzoError, told):
        tz.open(folder).read()


def test_damaged_metadata_are_named_and_cells_still_read(tmp_path: Path) -> None:
    folder = str(tmp_path / "array")
    make(folder).meta["a"] = 1
    cut(one(folder, "__meta/*"))
    a = tz.open(folder)

    assert a.count() == 2
    with refused(folder, tz.CorruptionError, "__meta/__"):
        a.meta["a"]


def test_errors_are_of_pythons_kinds_too(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        make(str(tmp_path / "a")).read(order="x")
    with pytest.raises(FileNotFoundError):
        tz.open(str(tmp_path / "b"))
    with pytest.raises(FileExistsError):
        make(str(tmp_path / "a"))
    assert np.issubdtype(tz.Datatype.INT32.dtype, np.integer)
