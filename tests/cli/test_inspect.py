"""`terrazzo inspect`: every kind of file, as text and as JSON; errors and exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiledb

import terrazzo as tz
from terrazzo.cli.main import run
from terrazzo.format import keys
from terrazzo.format.commits import Assignment, DeleteCommit, UpdateCommit
from terrazzo.format.condition import Compare, Op
from terrazzo.format.generic_tile import pack_generic_tile
from terrazzo.format.keys import CommitKind, TimestampedName, commit_key, unique_hex
from terrazzo.format.ledgers import DeleteRecord, UpdateRecord, WriteRecord, pack_con, pack_ign, pack_vac
from terrazzo.format.schema import Schema
from terrazzo.storage import open_store

KEY = "0123456789abcdeF0123456789abcdeF"


@pytest.fixture
def show(capsys):
    """Runs `terrazzo inspect` and gives the exit code and what was printed."""

    def call(*arguments, code=0):
        assert run(["inspect", *map(str, arguments)]) == code
        printed = capsys.readouterr()
        return printed.err if code else printed.out

    return call


@pytest.fixture
def read(show):
    def call(*arguments):
        return json.loads(show(*arguments, "--json"))

    return call


def theirs(path: Path, *, sparse: bool = True, key: str | None = None) -> Path:
    """An array that libtiledb wrote: two fragments, nulls, text, dates, labels."""
    config = {"sm.encryption_type": "AES_256_GCM", "sm.encryption_key": key} if key else {}
    with tiledb.scope_ctx(tiledb.Ctx(config)):
        dims = tiledb.Domain(tiledb.Dim("x", domain=(1, 100), tile=10, dtype="int32"))
        attrs = [
            tiledb.Attr("a", dtype="int32", filters=[tiledb.ByteShuffleFilter(), tiledb.ZstdFilter(level=3)]),
            tiledb.Attr("s", dtype="U", var=True, nullable=True),
            tiledb.Attr("t", dtype="datetime64[ms]"),
            tiledb.Attr("k", dtype="int8", enum_label="kinds"),
        ]
        enums = [tiledb.Enumeration("kinds", False, np.array(["low", "high"]))]
        schema = tiledb.ArraySchema(
            dims, attrs if sparse else attrs[:1], sparse=sparse, enums=enums if sparse else None, capacity=4
        )
        tiledb.Array.create(str(path), schema)
        for time_ms in (10, 20):
            with tiledb.open(str(path), "w", timestamp=time_ms) as array:
                if not sparse:
                    array[1:11] = np.arange(10, dtype="int32")
                    continue
                cells = np.arange(1, 10, dtype="int32") + time_ms
                array[cells] = {
                    "a": cells * 2,
                    "s": np.array(
                        [None if cell % 3 == 0 else f"text {cell}" for cell in cells], dtype=object
                    ),
                    "t": cells.astype("datetime64[ms]"),
                    "k": (cells % 2).astype("int8"),
                }
    return path


@pytest.fixture(scope="module")
def array(tmp_path_factory) -> Path:
    path = theirs(tmp_path_factory.mktemp("arrays") / "array")
    with tiledb.open(str(path), "d", timestamp=30) as opened:
        opened.query(cond="a < 30 and s == 'text 12'").submit()
    with tiledb.open(str(path), "w", timestamp=40) as opened:
        opened.meta["title"] = "hello"
        opened.meta["numbers"] = (1, 2, 3)
    return path


def only(path: Path, pattern: str) -> Path:
    return min(path.glob(pattern))


def name_at(time_ms: int, version: int | None = 22) -> TimestampedName:
    return TimestampedName(time_ms, time_ms, unique_hex(time_ms, bytes(12)), version)


def test_a_schema_is_told_field_by_field(array, read, show) -> None:
    report = read(only(array, "__schema/__*[!s]"))

    assert report["kind"] == "schema"
    assert report["format_version"] == 22
    assert report["array"] == "sparse"
    assert report["capacity"] == 4
    assert report["dimensions"] == [
        {"name": "x", "type": "int32", "domain": [1, 100], "tile": 10, "filters": []}
    ]
    assert [attr["name"] for attr in report["attributes"]] == ["a", "s", "t", "k"]
    assert report["attributes"][0]["filters"] == [{"name": "byte_shuffle"}, {"name": "zstd", "level": 3}]
    assert report["attributes"][1]["nullable"] is True
    assert report["enumerations"][0]["name"] == "kinds"
    text = show(only(array, "__schema/__*[!s]"))
    assert "byte_shuffle → zstd(level=3)" in text
    assert "[1, 100]" in text
    assert "\x1b" not in text


def test_an_enumeration_is_told_with_its_values(array, read) -> None:
    report = read(only(array, "__schema/__enumerations/*"))

    assert (report["kind"], report["enumeration"], report["values"]) == (
        "enumeration",
        "kinds",
        ["low", "high"],
    )


def test_fragment_metadata_are_told_with_the_schema_of_the_array(array, read, show) -> None:
    file = only(array, "__fragments/*/__fragment_metadata.tdb")
    report = read(file)

    assert report["kind"] == "fragment metadata"
    assert report["start_ms"] == 10
    assert report["footer"]["cells"] == 9
    assert report["footer"]["tiles"] == 3
    assert report["footer"]["non_empty_domain"] == {"x": [11, 19]}
    assert [row["field"] for row in report["files"]] == ["a", "s", "t", "k", "(unused)", "x"]
    assert report["rtree"]["boxes"][0] == {"tile": 0, "x": [11, 14]}
    statistics = {row["field"]: row for row in report["statistics"]}
    assert (statistics["a"]["min"], statistics["a"]["max"], statistics["a"]["sum"]) == (22, 38, 270)
    assert statistics["t"]["min"] == "1970-01-01T00:00:00.011"
    sizes = [row for row in report["sections"] if (row["section"], row["field"]) == ("var sizes", "s")]
    assert sizes[0]["values"] == [21, 14, 7]
    assert "[11, 14]" in show(file)


@pytest.mark.parametrize(
    ("file", "role", "values"),
    [
        ("a0.tdb", "values", [22, 24, 26]),
        ("a1.tdb", "offsets", [0, 7, 7]),
        ("a1_var.tdb", "var values", ["text 11", None, "text 13"]),
        ("a1_validity.tdb", "validity", [1, 0, 1]),
        (
            "a2.tdb",
            "values",
            ["1970-01-01T00:00:00.011", "1970-01-01T00:00:00.012", "1970-01-01T00:00:00.013"],
        ),
        ("a3.tdb", "values", ["high", "low", "high"]),
        ("d0.tdb", "values", [11, 12, 13]),
    ],
)
def test_data_files_are_told_with_tiles_chunks_and_the_first_values(
    array, read, show, file, role, values
) -> None:
    path = only(array, f"__fragments/*/{file}")
    report = read(path, "--values", 3)

    assert (report["kind"], report["role"]) == ("data", role)
    assert [tile["cells"] for tile in report["tiles"]] == [4, 4, 1]
    assert sum(tile["stored_size"] for tile in report["tiles"]) == path.stat().st_size
    assert all(sum(chunk["size"] for chunk in tile["chunks"]) == tile["size"] for tile in report["tiles"])
    if values is not None:
        assert report["values"] == values
    assert "values" not in read(path)
    assert "tiles: 3" in show(path)


def test_offsets_are_told_as_stored_from_the_start_of_each_tile(array, read) -> None:
    report = read(only(array, "__fragments/*/a1.tdb"), "--values", 6)

    assert report["values"] == [0, 7, 7, 14, 0, 0]


def test_times_of_cells_are_told_after_consolidation(tmp_path, read) -> None:
    path = theirs(tmp_path / "array")
    tiledb.consolidate(str(path))
    (file,) = path.glob("__fragments/*/t.tdb")
    report = read(file, "--values", 12)

    assert report["field"] == "(timestamps)"
    assert report["values"] == [10] * 9 + [20] * 3
    vacuum = read(only(path, "__commits/*.vac"))
    assert vacuum["kind"] == "vacuum list"
    assert len(vacuum["superseded"]) == 2


def test_a_dense_array_is_told(tmp_path, read) -> None:
    path = theirs(tmp_path / "array", sparse=False)
    report = read(only(path, "__fragments/*/__fragment_metadata.tdb"))
    data = read(only(path, "__fragments/*/a0.tdb"), "--values", 4)

    assert report["footer"]["array"] == "dense"
    assert report["footer"]["non_empty_domain"] == {"x": [1, 10]}
    assert data["values"] == [0, 1, 2, 3]


def test_a_delete_is_told_as_sql_and_not_as_its_stored_opposite(array, read, show) -> None:
    file = only(array, "__commits/*.del")
    report = read(file)

    assert report["kind"] == "delete commit"
    assert report["where"] == "a < 30 AND s = 'text 12'"
    assert report["stored_as"] == "a >= 30 OR s != 'text 12'"
    assert "a < 30 AND s = 'text 12'" in show(file)


def test_an_update_is_told_with_its_values(tmp_path, read) -> None:
    store = open_store(theirs(tmp_path / "array"))
    matches = Compare(Op.EQ, "k", b"\1")
    commit = UpdateCommit.of(matches, (Assignment("a", np.int32(7).tobytes()), Assignment("s", b"")))
    key = commit_key(name_at(50), CommitKind.UPDATE)
    store.put(key, pack_generic_tile(commit.pack()))
    report = read(tmp_path / "array" / key)

    assert report["where"] == "k = 'high'"
    assert [(row["attribute"], row["value"]) for row in report["set"]] == [("a", "7"), ("s", "NULL")]


def test_a_condition_far_from_any_schema_is_told_with_bytes(tmp_path, read) -> None:
    file = tmp_path / f"{name_at(5)}.del"
    file.write_bytes(pack_generic_tile(DeleteCommit.of(Compare(Op.LT, "a", b"\3\0\0\0")).pack()))
    report = read(file)

    assert report["where"] == "a < X'03000000'"
    assert "no schema was found" in report["note"]


def test_ledgers_are_told_line_by_line(tmp_path, read) -> None:
    path = theirs(tmp_path / "array")
    store = open_store(path)
    delete = pack_generic_tile(DeleteCommit.of(Compare(Op.GE, "a", b"\3\0\0\0")).pack())
    update = pack_generic_tile(
        UpdateCommit.of(Compare(Op.EQ, "x", b"\1\0\0\0"), (Assignment("k", b"\0"),)).pack()
    )
    records = WriteRecord(name_at(60)), DeleteRecord(name_at(61), delete), UpdateRecord(name_at(62), update)
    store.put(commit_key(name_at(70), CommitKind.CONSOLIDATED), pack_con(records))
    store.put(commit_key(name_at(71), CommitKind.IGNORE), b"__commits/" + f"{name_at(60)}.wrt\n".encode())
    store.put(commit_key(name_at(72), CommitKind.VACUUM), pack_vac([f"__fragments/{name_at(60)}"]))
    con = read(path / commit_key(name_at(70), CommitKind.CONSOLIDATED))
    ignored = read(path / commit_key(name_at(71), CommitKind.IGNORE))
    vacuum = read(path / commit_key(name_at(72), CommitKind.VACUUM))

    assert [(row["kind"], row["where"]) for row in con["records"]] == [
        ("wrt", None), ("del", "a >= 3"), ("upd", "x = 1"),
    ]  # fmt: skip
    assert con["records"][2]["set"] == "k = 'low'"
    assert ignored["commits"] == [f"__commits/{name_at(60)}.wrt"]
    assert vacuum["superseded"] == [f"__fragments/{name_at(60)}"]
    assert pack_ign(()) == b""


def test_consolidated_footers_and_commits_of_libtiledb_are_told(tmp_path, read) -> None:
    path = theirs(tmp_path / "array")
    for mode in ("fragment_meta", "commits"):
        tiledb.consolidate(str(path), config=tiledb.Config({"sm.consolidation.mode": mode}))
    footers = read(only(path, "__fragment_meta/*.meta"))
    commits = read(only(path, "__commits/*.con"))

    assert [(row["cells"], row["non_empty_domain"]) for row in footers["footers"]] == [
        (9, {"x": [11, 19]}), (9, {"x": [21, 29]}),
    ]  # fmt: skip
    assert [row["kind"] for row in commits["records"]] == ["wrt", "wrt"]


def test_a_write_commit_and_metadata_are_told(array, read) -> None:
    assert read(only(array, "__commits/*.wrt"))["kind"] == "write commit"

    report = read(only(array, "__meta/*"))

    assert report["kind"] == "metadata"
    entries = {row["key"]: (row["type"], row["value"]) for row in report["entries"]}
    assert entries["title"] == ("string_utf8", "hello")
    assert entries["numbers"] == ("int64", [1, 2, 3])


def test_a_group_is_told_with_its_members(tmp_path, array, read) -> None:
    path = tmp_path / "group"
    tiledb.group_create(str(path))
    with tiledb.Group(str(path), "w") as group:
        group.add(str(array), name="first")
    details = read(only(path, "__group/*"))
    marker = read(path / keys.GROUP_FILE)
    folder = read(path)

    assert (details["members"][0]["name"], details["members"][0]["type"]) == ("first", "array")
    assert marker["kind"] == "group marker"
    assert folder["kind"] == "group"


def test_the_old_schema_file_is_told(tmp_path, read) -> None:
    file = tmp_path / keys.SCHEMA_FILE
    schema = Schema([tz.Dim("x", "int32", (0, 9), 5)], [tz.Attr("v", "float32")], version=4)
    file.write_bytes(pack_generic_tile(schema.pack()))

    assert read(file)["format_version"] == 4


@pytest.mark.parametrize(
    ("pattern", "kind"),
    [
        ("__schema/__*[!s]", "schema"),
        ("__schema/__enumerations/*", "enumeration"),
        ("__commits/*.del", "delete commit"),
        ("__meta/*", "metadata"),
        ("__fragments/*/__fragment_metadata.tdb", "fragment metadata"),
        ("__fragments/*/a0.tdb", "data"),
    ],
)
def test_a_file_that_was_renamed_is_told_by_its_content(tmp_path, array, read, pattern, kind) -> None:
    file = tmp_path / "mystery.bin"
    file.write_bytes(only(array, pattern).read_bytes())
    report = read(file)

    assert (report["kind"], report["told_by"]) == (kind, "content")


def test_metadata_of_a_fragment_without_its_schema_say_so_and_tell_the_rest(tmp_path, array, read) -> None:
    file = tmp_path / "alone" / only(array, "__fragments/*").name / keys.FRAGMENT_METADATA_FILE
    file.parent.mkdir(parents=True)
    file.write_bytes(only(array, "__fragments/*/__fragment_metadata.tdb").read_bytes())
    report = read(file)

    assert "schema was not found" in report["note"]
    assert report["format_version"] == 22
    assert report["schema"].startswith("__")
    assert len(report["sections"]) > 10


def test_a_data_file_without_metadata_is_told_by_walking_its_tiles(tmp_path, array, read) -> None:
    file = tmp_path / only(array, "__fragments/*").name / "a0.tdb"
    file.parent.mkdir()
    file.write_bytes(only(array, "__fragments/*/a0.tdb").read_bytes())
    report = read(file)

    assert [tile["size"] for tile in report["tiles"]] == [16, 16, 4]
    assert "no __fragment_metadata.tdb" in report["note"]


def test_folders_list_their_files_with_kind_and_size(array, read, show) -> None:
    report = read(array)
    fragment = read(only(array, "__fragments/*"))

    assert report["kind"] == "array"
    kinds = {row["kind"] for row in report["files"]}
    assert kinds == {
        "schema",
        "enumeration",
        "fragment metadata",
        "data",
        "write commit",
        "delete commit",
        "metadata",
    }
    assert report["size"] == sum(path.stat().st_size for path in array.rglob("*") if path.is_file())
    assert fragment["kind"] == "fragment"
    assert "a1_var.tdb" in show(only(array, "__fragments/*"))


def test_values_of_every_shape_are_told(tmp_path, read) -> None:
    attrs = [
        tz.Attr("lists", "int16", var=True),
        tz.Attr("pairs", "float32", values_per_cell=2),
        tz.Attr("bytes", "blob"),
        tz.Attr("flag", "bool", nullable=True),
        tz.Attr("instant", "datetime64[ns]"),
    ]
    array = tz.create(str(tmp_path / "a"), tz.Schema([tz.Dim("x", "int32", (0, 9), 5)], attrs))
    array.write(
        {
            "x": [1, 2], "lists": [[1, 2], []], "pairs": [[0.5, 1.5], [2.5, 3.5]], "bytes": [b"\xff\0", b"ok"],
            "flag": [True, None], "instant": np.array([1, 2_000_000_001], "M8[ns]"),
        }
    )  # fmt: skip
    folder = tmp_path / "a" / array.fragments[0].key
    shown = [
        read(folder / f"a{name}.tdb", "--values", 9)["values"] for name in ("0_var", "1", "2_var", "3", "4")
    ]

    assert shown == [
        [[1, 2], []],
        [[0.5, 1.5], [2.5, 3.5]],
        ["0xff00", "ok"],
        [True, None],
        ["1970-01-01T00:00:00.000000001", "1970-01-01T00:00:02.000000001"],
    ]


def test_any_store_is_looked_into(show) -> None:
    uri = f"memory://inspect/{os.getpid()}"
    array = tz.create(uri, tz.Schema([tz.Dim("x", "int32", (0, 9), 5)], [tz.Attr("v", "float32")]))
    array.write({"x": [1, 2], "v": [0.5, float("nan")]})
    (fragment,) = array.fragments

    assert "0.5, nan" in show(f"{uri}/{fragment.key}/a0.tdb", "--values", 2)
    assert show(uri).startswith(f"array {uri}")


@pytest.fixture(scope="module")
def secret(tmp_path_factory) -> Path:
    return theirs(tmp_path_factory.mktemp("arrays") / "secret", key=KEY)


class TestEncrypted:
    def test_a_key_opens_every_file(self, secret, read, tmp_path, monkeypatch) -> None:
        key_file = tmp_path / "key"
        key_file.write_text(KEY.encode().hex() + "\n")
        schema = read(only(secret, "__schema/__*[!s]"), "--key-file", key_file)
        monkeypatch.setenv("TERRAZZO_KEY", KEY)
        data = read(only(secret, "__fragments/*/a0.tdb"), "--values", 2)

        assert data["values"] == [22, 24]
        assert schema["generic_tile"]["encrypted"] is True

    def test_without_the_key_the_error_says_what_to_do(self, secret, show) -> None:
        message = show(only(secret, "__schema/__*[!s]"), code=1)

        assert "encrypted" in message
        assert "--key-file" in message

    @pytest.mark.parametrize("wrong", ["f" * 64, "x" * 32, "short"])
    def test_a_wrong_key_is_an_error_and_never_shown(self, secret, capsys, wrong, monkeypatch) -> None:
        monkeypatch.setenv("TERRAZZO_KEY", wrong)
        assert run(["inspect", str(only(secret, "__schema/__*[!s]"))]) == 1

        printed = capsys.readouterr()
        assert wrong not in printed.out + printed.err
        assert len(printed.err.splitlines()) == 1


class TestErrors:
    def test_a_missing_file_is_one_line_and_exit_code_1(self, show, tmp_path) -> None:
        message = show(tmp_path / "nothing", code=1)

        assert message.count("\n") == 1
        assert "there is no such file or folder" in message
        assert str(tmp_path) in message

    def test_a_wrong_command_line_is_exit_code_2(self, show) -> None:
        assert "Usage" in show("a", "b", code=2)
        assert "--values" in show("a", "--values", "-1", code=2)

    def test_a_folder_of_something_else_is_an_error(self, show, tmp_path) -> None:
        (tmp_path / "notes.txt").write_text("hello")

        assert "neither an array nor a group" in show(tmp_path, code=1)
        assert "neither its name nor its content" in show(tmp_path / "notes.txt", code=1)

    @pytest.mark.parametrize("pattern", ["a0.tdb", "a1_var.tdb", "__fragment_metadata.tdb"])
    def test_a_truncated_file_prints_what_it_can_and_the_place(self, tmp_path, capsys, pattern) -> None:
        file = only(theirs(tmp_path / "array"), f"__fragments/*/{pattern}")
        file.write_bytes(file.read_bytes()[:-3])

        assert run(["inspect", str(file)]) == 1
        printed = capsys.readouterr()
        assert printed.out
        assert str(file) in printed.err
        assert "at byte" in printed.err

    def test_a_damaged_section_does_not_hide_the_others(self, tmp_path, capsys) -> None:
        file = only(theirs(tmp_path / "array"), "__fragments/*/__fragment_metadata.tdb")
        content = bytearray(file.read_bytes())
        content[60] ^= 0xFF  # in the R-tree, the first section
        file.write_bytes(content)

        assert run(["inspect", str(file), "--json"]) == 1
        report = json.loads(capsys.readouterr().out)
        assert report["rtree"].startswith("unreadable")
        assert report["footer"]["cells"] == 9
        assert "error" in report

    def test_no_mutation_of_any_file_escapes_as_another_error(self, tmp_path, capsys, array) -> None:
        import random
        import shutil

        chance = random.Random(7)
        copy = tmp_path / "array"
        shutil.copytree(array, copy)
        for file in sorted(path for path in copy.rglob("*") if path.is_file() and path.stat().st_size):
            sound = file.read_bytes()
            for _ in range(6):
                damaged = bytearray(sound)
                damaged[chance.randrange(len(sound))] ^= 1 << chance.randrange(8)
                file.write_bytes(damaged)
                assert run(["inspect", str(file), "--values", "3"]) in {0, 1}
                assert "defect" not in capsys.readouterr().err, file
            file.write_bytes(sound)

    def test_debug_shows_the_traceback(self, tmp_path) -> None:
        from terrazzo.errors import ArrayNotFoundError

        with pytest.raises(ArrayNotFoundError):
            run(["inspect", str(tmp_path / "nothing"), "--debug"])

    def test_names_in_files_send_nothing_to_the_terminal(self, tmp_path, show) -> None:
        schema = Schema([tz.Dim("x", "int32", (0, 9), 5)], [tz.Attr("\x1b[31m[red]v", "float32")])
        file = tmp_path / "__schema" / str(name_at(5, None))
        file.parent.mkdir()
        file.write_bytes(pack_generic_tile(schema.pack()))

        assert "\\x1b[31m[red]v" in show(file)


def terrazzo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "terrazzo.cli.main", *arguments], capture_output=True, text=True, check=False
    )


def test_a_pipe_gets_plain_text(array) -> None:
    done = terrazzo("inspect", str(only(array, "__schema/__*[!s]")))

    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert all(line == line.rstrip() for line in done.stdout.splitlines())
