"""The public names, used as a user would use them, on every kind of store."""

import os
import subprocess
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tiledb

import terrazzo as tz

KEY = "0123456789abcdef0123456789abcdef"
SCHEMA = tz.Schema(
    dims=[tz.Dim("x", "int64", domain=(0, 999_999), tile=10_000), tz.Dim("sample", "ascii")],
    attrs=[
        tz.Attr("v", "float64", filters=[tz.filters.ByteShuffle(), tz.filters.Zstd(3)]),
        tz.Attr("tag", "utf8", nullable=True),
        tz.Attr("gl", "int32", var=True),
        tz.Attr("kind", "int8", enum="kinds"),
    ],
    enums={"kinds": ["a", "b"]},
)
ROWS = {
    "x": [3, 1, 2], "sample": ["u", "v", "u"], "v": [0.5, 1.5, 2.5], "tag": ["c", None, ""],
    "gl": [[1, 2], [], [3]], "kind": ["a", "b", "a"],
}  # fmt: skip


def in_order(table: Any) -> dict[str, list[Any]]:
    return table.sort_by("x").to_pydict()


def use(uri: str, **options: Any) -> None:
    """Everything once."""
    assert not tz.exists(uri, **without_key(options))
    a = tz.create(uri, SCHEMA, **options)
    assert tz.exists(uri, **without_key(options))
    assert a.uri.endswith(uri.rpartition("/")[2])
    assert "sparse, dims x, sample; attrs v, tag, gl, kind; 0 fragments" in repr(a)
    a.write(ROWS)
    a.upsert(
        {
            "x": [2, 4],
            "sample": ["u", "w"],
            "v": [9.0, 4.5],
            "tag": ["new", None],
            "gl": [[9], [4]],
            "kind": ["b", "a"],
        }
    )
    a.delete("x = 1")
    a.update({"v": 0.25, "tag": None}, "sample = 'w'")
    a.meta["unit"] = "K"
    a.evolve(add=[tz.Attr("w", "int8", fill=1)], extend_enum={"kinds": ["c"]})
    a.write({"x": [5], "sample": ["z"], "v": [5.0], "tag": ["é"], "gl": [[5]], "kind": ["c"], "w": [5]})
    expected = {
        "x": [2, 3, 4, 5], "sample": ["u", "u", "w", "z"], "v": [9.0, 0.5, 0.25, 5.0], "tag": ["new", "c", None, "é"],
        "gl": [[9], [1, 2], [4], [5]], "kind": ["b", "a", "a", "c"], "w": [1, 1, 1, 5],
    }  # fmt: skip
    for each in (a, tz.open(uri, **options), a.refresh()):
        assert in_order(each.read()) == expected
        assert each.count() == 4
        assert each.read(["tag"], where="kind = 'c'").column("tag").to_pylist() == ["é"]
        assert each.read(["x"], region={"x": (3, 4), "sample": ["w"]}).column("x").to_pylist() == [4]
        assert dict(each.meta) == {"unit": "K"}
        assert each.schema.attr("w").fill == b"\1"
        assert [event.kind for event in each.history()] == [
            "create", "write", "write", "delete", "update", "metadata", "evolve", "write",
        ]  # fmt: skip
    with pytest.raises(
        tz.ArrayExistsError, match=r"there is an array at .* already; open it, or choose another place"
    ):
        tz.create(uri, SCHEMA, **options)


def without_key(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "key"}


def test_everything_works_on_disk(tmp_path: Path) -> None:
    use(str(tmp_path / "array"))
    use(f"file://{tmp_path}/other")


def test_everything_works_in_memory() -> None:
    use(f"memory://{uuid.uuid4().hex}/array")


def test_everything_works_on_s3(s3_uri: str, s3_server: Any) -> None:
    use(s3_uri, storage_options=s3_server.options)


def test_everything_works_encrypted(tmp_path: Path) -> None:
    use(str(tmp_path / "array"), key=KEY)
    secret = b"0123456789abcdef"
    for path in (tmp_path / "array").rglob("*"):
        assert not path.is_file() or (secret not in path.read_bytes() and b"kinds" not in path.read_bytes())


def test_a_path_will_do_for_a_uri(tmp_path: Path) -> None:
    a = tz.create(tmp_path / "array", SCHEMA)  # type: ignore[arg-type]

    assert tz.exists(tmp_path / "array")  # type: ignore[arg-type]
    assert tz.open(tmp_path / "array").uri == a.uri  # type: ignore[arg-type]


def test_the_schema_of_an_array_makes_another(tmp_path: Path) -> None:
    a = tz.create(str(tmp_path / "one"), SCHEMA)
    a.evolve(extend_enum={"kinds": ["c"]})
    b = tz.create(str(tmp_path / "two"), a.schema)
    b.write({**ROWS, "kind": ["a", "b", "c"]})

    assert tz.open(str(tmp_path / "two")).read(order="row-major").column("kind").to_pylist() == [
        "b",
        "c",
        "a",
    ]
    with tiledb.open(str(tmp_path / "two")) as other:
        assert list(other.enum("kinds").values()) == ["a", "b", "c"]


# -- opening -------------------------------------------------------------------------------------------


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("nothing of ours")
    tz.Group.create(str(tmp_path / "group"))

    for name, told in [
        ("nothing", "there is no array at .*nothing; check the path$"),
        ("folder", "there is no array at .*folder: the folder has no __schema"),
        ("folder/notes.txt", "notes.txt is a file, and an array is a folder"),
        ("group", "is a group, not an array; open it with Group"),
    ]:
        with pytest.raises(tz.ArrayNotFoundError, match=told):
            tz.open(str(tmp_path / name))
        with pytest.raises(FileNotFoundError):
            tz.open(str(tmp_path / name))
        assert not tz.exists(str(tmp_path / name))
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(tz.ArrayExistsError, match=r"the folder .* is not empty; choose another place"):
        tz.create(str(tmp_path / "folder"), SCHEMA)
    with pytest.raises(
        tz.ArrayExistsError, match=r"notes.txt is a file, and an array is a folder; choose another"
    ):
        tz.create(str(tmp_path / "folder" / "notes.txt"), SCHEMA)
    with pytest.raises(tz.ArrayNotFoundError, match="there is no group at"):
        tz.Group(str(tmp_path / "folder"))
    with pytest.raises(tz.InvalidRequestError, match=r"schema='x'; a terrazzo.Schema is expected"):
        tz.create(str(tmp_path / "new"), "x")  # type: ignore[arg-type]


def test_a_sparse_array_may_hold_nothing_but_coordinates(tmp_path: Path) -> None:
    a = tz.create(str(tmp_path / "array"), tz.Schema([tz.Dim("x", "int64", (0, 9))], []))
    a.write({"x": [3, 1]})
    a.delete("x = 3")

    assert a.read().to_pydict() == {"x": [1]}
    with tiledb.open(str(tmp_path / "array")) as other:
        assert other.query(dims=["x"])[:]["x"].tolist() == [1]
    with pytest.raises(tz.InvalidRequestError, match="a dense array needs at least one attribute"):
        tz.create(str(tmp_path / "dense"), tz.Schema([tz.Dim("x", "int64", (0, 9))], [], sparse=False))
    with pytest.raises(tz.InvalidRequestError, match="the domain of 'x' is wider than any number of FLOAT64"):
        tz.Dim("x", "float64", (-1e308, 1e308), 1e307)


@pytest.mark.parametrize("uri", ["", "ftp://host/array", "s3://", "s3://key:secret@bucket/array"])
def test_a_uri_that_is_none_is_refused_and_tells_no_secret(uri: str) -> None:
    with pytest.raises(tz.InvalidRequestError) as error:
        tz.open(uri)

    assert "secret" not in str(error.value)


def times(uri: str) -> tz.Array:
    a = tz.create(uri, tz.Schema([tz.Dim("x", "int64", (0, 99))], [tz.Attr("v", "int64")]))
    for ms in (1_000, 2_000, 3_000):
        a.write({"x": [ms // 1_000], "v": [ms]}, at=ms)
    return a


@pytest.mark.parametrize(
    "two_seconds",
    [2_000, np.int64(2_000), datetime(1970, 1, 1, 0, 0, 2), datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC),
     "1970-01-01T00:00:02", "1970-01-01T01:00:02+01:00", np.datetime64(2, "s")],
)  # fmt: skip
def test_arrays_open_at_an_instant_and_since_one(two_seconds: Any, uri_in_memory: str) -> None:
    times(uri_in_memory)

    assert sorted(tz.open(uri_in_memory, at=two_seconds).read().column("x").to_pylist()) == [1, 2]
    assert sorted(tz.open(uri_in_memory, since=two_seconds).read().column("x").to_pylist()) == [2, 3]
    both = tz.open(uri_in_memory, at=two_seconds, since=two_seconds)
    assert both.read().column("x").to_pylist() == [2]
    assert tz.open(uri_in_memory, at=999).count() == 0


@pytest.fixture
def uri_in_memory() -> str:
    return f"memory://{uuid.uuid4().hex}/array"


def test_instants_that_are_none_are_refused(uri_in_memory: str) -> None:
    times(uri_in_memory)

    for options, told in [
        ({"at": "soon"}, "at='soon' is not an instant"),
        ({"since": -1}, "since=-1 is not an instant"),
        ({"at": 1, "since": 2}, "since=2 is later than at=1"),
    ]:
        with pytest.raises(tz.InvalidRequestError, match=told):
            tz.open(uri_in_memory, **options)  # type: ignore[arg-type]


def test_an_array_opened_at_an_instant_stays_there_and_takes_no_changes(uri_in_memory: str) -> None:
    a = times(uri_in_memory)
    pinned = tz.open(uri_in_memory, at=2_000)
    a.write({"x": [7], "v": [7]}, at=1_500)

    assert pinned.count() == 2
    assert pinned.refresh().count() == 3
    changes: list[Any] = [
        lambda: pinned.write({"x": [1], "v": [1]}),
        lambda: pinned.write({"x": [1], "v": [1]}, at=5),
        lambda: pinned.upsert({"x": [1], "v": [1]}),
        lambda: pinned.delete("x = 1"),
        lambda: pinned.update({"v": 1}),
        lambda: pinned.evolve(add=[tz.Attr("w", "int8")]),
        lambda: pinned.meta.update(a=1),
    ]
    for change in changes:
        with pytest.raises(
            tz.InvalidRequestError, match=r"opened at 2000 and cannot be written; open it without at="
        ):
            change()
    assert tz.open(uri_in_memory).count() == 4


def test_a_handle_shows_its_own_writes_at_once_and_those_of_others_after_refresh(uri_in_memory: str) -> None:
    a = times(uri_in_memory)
    b = tz.open(uri_in_memory)
    a.write({"x": [50], "v": [1]})

    assert a.count() == 4
    assert b.count() == 3
    assert b.refresh().count() == 4


def test_writes_go_back_in_time_if_asked_to(uri_in_memory: str) -> None:
    a = times(uri_in_memory)
    a.write({"x": [2], "v": [-1]}, at=2_500)
    a.delete("x = 2", at=2_700)
    a.write({"x": [2], "v": [-2]}, at=2_600)

    assert [tz.open(uri_in_memory, at=at).count("x = 2") for at in (1_999, 2_500, 2_650, 2_700)] == [
        0,
        1,
        1,
        0,
    ]
    assert tz.open(uri_in_memory, at=2_650).read(["v"], where="x = 2").column("v").to_pylist() == [-2]
    for at in (0, -1, "then"):
        with pytest.raises(tz.InvalidRequestError, match="at="):
            a.write({"x": [1], "v": [1]}, at=at)


# -- encryption ----------------------------------------------------------------------------------------


def ctx(key: str | None) -> tiledb.Ctx:
    return tiledb.Ctx({"sm.encryption_type": "AES_256_GCM", "sm.encryption_key": key} if key else {})


def test_libtiledb_reads_what_is_encrypted_here_and_the_reverse(tmp_path: Path) -> None:
    ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    a = tz.create(ours, SCHEMA, key=KEY)
    a.write(ROWS)
    a.delete("x = 2")
    a.meta["n"] = 5
    with tiledb.open(ours, ctx=ctx(KEY)) as other:
        found = other[:]
        assert found["x"].tolist() == [1, 3]
        assert found["v"].tolist() == [1.5, 0.5]
        assert other.meta["n"] == 5

    domain = tiledb.Domain(tiledb.Dim("x", domain=(0, 99), tile=10, dtype=np.int64))
    schema = tiledb.ArraySchema(domain, [tiledb.Attr("v", dtype="U", var=True, nullable=True)], sparse=True)
    tiledb.Array.create(theirs, schema, ctx=ctx(KEY))
    with tiledb.open(theirs, "w", ctx=ctx(KEY)) as other:
        other[[5, 6]] = {"v": np.array(["é", None], object)}
        other.meta["n"] = 6
    b = tz.open(theirs, key=KEY.encode())
    assert b.read().to_pydict() == {"x": [5, 6], "v": ["é", None]}
    assert b.meta["n"] == 6
    b.write({"x": [7], "v": ["w"]})
    b.delete("v = 'é'")
    with tiledb.open(theirs, ctx=ctx(KEY)) as other:
        assert other[:]["x"].tolist() == [6, 7]


@pytest.mark.parametrize("key", [KEY, KEY.encode(), KEY.encode().hex(), bytearray(KEY.encode())])
def test_keys_are_bytes_characters_or_digits(key: Any, uri_in_memory: str) -> None:
    tz.create(uri_in_memory, SCHEMA, key=key).write(ROWS)

    assert tz.open(uri_in_memory, key=KEY).count() == 3


@pytest.mark.parametrize("key", ["short", b"", 5, "é" * 32, "z" * 64])
def test_what_is_no_key_is_refused_and_not_repeated(key: Any, uri_in_memory: str) -> None:
    with pytest.raises(
        tz.InvalidRequestError, match="an encryption key is 32 bytes, 32 ASCII characters, or 64"
    ) as error:
        tz.create(uri_in_memory, SCHEMA, key=key)

    assert repr(key) not in str(error.value)


def test_wrong_missing_and_needless_keys_are_told_apart_in_one_line(tmp_path: Path) -> None:
    locked, plain = str(tmp_path / "locked"), str(tmp_path / "plain")
    tz.create(locked, SCHEMA, key=KEY).write(ROWS)
    tz.create(plain, SCHEMA).write(ROWS)
    wrong = KEY[::-1]

    for uri, key, told in [
        (locked, wrong, "the key is wrong, or the data are damaged"),
        (locked, None, "is encrypted; .*key"),
        (plain, KEY, "not encrypted; .*without a key"),
    ]:
        with pytest.raises(tz.TerrazzoError, match=told) as error:
            tz.open(uri, key=key)
        assert "\n" not in str(error.value)
        assert wrong not in str(error.value)
        assert KEY not in str(error.value)


# -- the package ---------------------------------------------------------------------------------------


def fresh(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ)).stdout


def test_importing_the_package_brings_nothing_heavy() -> None:
    loaded = set(fresh("import terrazzo, sys; terrazzo.open; print(*sys.modules)").split())

    assert not loaded & {
        "pandas",
        "polars",
        "sqlglot",
        "pyspark",
        "cryptography",
        "pyarrow.compute",
        "pyarrow.dataset",
        "PIL",
    }


def test_importing_the_package_takes_less_than_half_a_second_of_processor_time() -> None:
    code = "import time; start = time.process_time(); import terrazzo; terrazzo.open; print(time.process_time() - start)"
    fresh(code)

    # Without compiled modules, as in a fresh checkout, Python spends about as long again on compiling them.
    assert min(float(fresh(code)) for _ in range(3)) < (1.0 if sys.dont_write_bytecode else 0.5)


def test_reading_and_writing_need_no_pandas() -> None:
    told = fresh(
        "import terrazzo as tz, sys; a = tz.create('memory://m/a', tz.Schema([tz.Dim('x', 'int64', (0, 9))], "
        "[tz.Attr('v', 'int64')])); import numpy as np; a.write({'x': np.arange(3), 'v': np.arange(3)}); "
        "print(a.read().num_rows, 'pandas' in sys.modules)"
    )

    assert told.split() == ["3", "False"]


def test_every_public_name_is_there() -> None:
    for name in tz.__all__:
        assert getattr(tz, name) is not None
    assert pa.__version__
