"""What a new user does wrong: one line that says what, where and what next; and nothing is changed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import terrazzo as tz
from terrazzo.cli.main import run

FILES = {
    "word.csv": "x,s,v,tag,k\n3,c,1.5,t,a\n4,d,abc,t,a\n",
    "null.csv": "x,s,v,tag,k\n3,c,1,t,a\n4,c,,t,a\n",
    "coordinate.csv": "x,s,v,tag,k\n,c,1,t,a\n",
    "outside.csv": "x,s,v,tag,k\n3,c,1,t,a\n300,c,1,t,a\n",
    "twice.csv": "x,s,v,tag,k\n3,c,1,t,a\n3,c,2,t,a\n",
    "label.csv": "x,s,v,tag,k\n3,c,1,t,zzz\n",
    "lacks.csv": "x,s,v\n3,c,1\n",
    "more.csv": "x,s,v,tag,k,extra\n3,c,1,t,a,9\n",
    "ragged.csv": "x,s,v,tag,k\n3,c,1,t,a\n3,c,1,t\n",
    "empty.csv": "",
    "no.parquet": "this is no Parquet",
    "torn.jsonl": '{"x": 1}\n{"x": \n',
    "data.txt": "x,v\n1,2\n",
    "xv.csv": "x,v\n1,2\n",
    "hole.csv": "y,h\n0,1\n2,3\n",
    "nothing.csv": "x,v\n1,\n2,\n",
    "folder/readme.md": "no data",
    "wrong.key": "f" * 32,
    "short.key": "abc",
}
KEY = "0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    """A folder of arrays, and of files that are not what they should be."""
    folder = tmp_path_factory.mktemp("mistakes")
    for name, content in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    attrs = [
        tz.Attr("v", "float64"),
        tz.Attr("tag", "utf8", nullable=True),
        tz.Attr("k", "int8", enum="kinds"),
    ]
    dims = [tz.Dim("x", "int64", (0, 99), 10), tz.Dim("s", "ascii")]
    made = tz.create(str(folder / "a"), tz.Schema(dims, attrs, enums={"kinds": ["a", "b"]}))
    made.write({"x": [1, 2], "s": ["a", "b"], "v": [1.5, 2.5], "tag": ["t", None], "k": ["a", "b"]})
    grid = tz.Schema([tz.Dim("y", "int32", (0, 3), 2)], [tz.Attr("h", "float32")], sparse=False)
    tz.create(str(folder / "dense"), grid)[0:4] = np.arange(4, dtype="f4")
    tz.create(str(folder / "secret"), grid, key=KEY)
    days = tz.Schema([tz.Dim("t", "datetime_day", (0, 40_000), 100)], [tz.Attr("v", "int8")])
    tz.create(str(folder / "days"), days)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# What is typed, and what is said. A 2 before it is the exit code, which otherwise is 1.
MISTAKES = {
    "read nothing": "there is no array at file://.*nothing; check the path",
    "read xv.csv": "xv.csv is a file, and an array is a folder; check the path",
    "read folder": "there is no array at .*folder: the folder has no __schema; check the path",
    "read a/__schema": "there is no array at .*__schema: the folder has no __schema",
    "info ftp://host/a": "ftp:// is no store; these are: a path, file://",
    "info s3://": "which bucket?",
    "read a --columns nope": "no field 'nope'; the schema has 'x', 's', 'v', 'tag', 'k'",
    "read a --where|tga = 'a'": "--where .*: there is no column 'tga'; did you mean 'tag'",
    "read a --where|x >": "--where 'x >' is not SQL: something is missing after '>'",
    "read a --where|x = 'a'": "'x' is INT64 and does not compare with 'a'; write a number",
    "read a --where|max(v) > 1": r"the aggregate MAX\(v\) is not understood here",
    "2 read a --region x": "--region x: write DIM=LOW:HIGH, such as x=10:20",
    "2 read a --region x=a:b": "--region x=a:b: 'a' is no whole number",
    "2 read a --region x=1:2:3": "more than two ends; write LOW:HIGH",
    "2 read a --region x=20:10": "ends before it begins",
    "2 read a --region x=": "a value is missing",
    "read a --region z=1:2": "no dimension 'z'; the schema has 'x', 's'",
    "2 read days --region t=2026-13-01": "'2026-13-01' is no date; write 2026-01-31",
    "2 read days --region t=2026-01-01T10:00:2026-01-02T10:00": "write a range of times with two dots",
    "2 read a --at soon": "--at soon: this is no time; write 2026-01-31T12:00:00",
    "2 read a --since 2030-01-01 --at 2020-01-01": "--since 2030-01-01 is later than --at 2020-01-01",
    "2 read a --order random": "--order random: there are row-major",
    "2 read a --memory lots": "--memory lots: this is no size; write bytes, or 256MiB",
    "2 read a --format xml": "--format xml: there are parquet, arrow, csv, json",
    "2 read a --count --format csv": "--count prints a number: leave out",
    "2 read a --limit many": "Invalid value for '--limit'",
    "2 reed a": "No such command 'reed'. Did you mean 'read'?",
    "2 read a --wher x": "No such option: --wher .*--where",
    "2 read": "Missing argument 'ARRAY'",
    "read secret": "the array is encrypted; give --key-file FILE, or set TERRAZZO_KEY",
    "read secret --key-file wrong.key": "the key is wrong, or the data are damaged",
    "read secret --key-file short.key": "an encryption key is 32 bytes",
    "read secret --key-file no.key": "--key-file: No such file or directory: no.key",
    "read a --key-file wrong.key": "the array is not encrypted; leave out --key-file",
    "2 info a --storage region": "--storage takes NAME=VALUE",
    "ingest a gone.csv": "gone.csv: there is no such file; check the path",
    "ingest a word.csv": "word.csv: column 'v': Row #3: .* invalid value 'abc'; correct it, say --type",
    "ingest a null.csv": "attribute 'v' is not nullable, but row 2 is null; fill the nulls, or leave these rows out",
    "ingest a coordinate.csv": "dimension 'x' is not nullable, but row 1 is null; fill the nulls",
    "ingest a outside.csv": "row 2: x = 300 lies outside the domain 0 to 99",
    "ingest a twice.csv": "two cells at x=3, s='c'; drop one of them, use upsert",
    "ingest a label.csv": "'zzz' is no label of its enumeration",
    "ingest a lacks.csv": "the source lacks tag, k, which the array needs; it has x, s, v",
    "ingest a more.csv": "the array has no extra; leave it out with --columns x,s,v,tag,k",
    "ingest a ragged.csv": "ragged.csv: CSV parse error: Row #3: Expected 5 columns, got 4",
    "ingest a empty.csv": "empty.csv: .*Empty CSV file",
    "ingest a no.parquet": "no.parquet: Parquet magic bytes not found",
    "ingest a torn.jsonl": "torn.jsonl: JSON parse error",
    "ingest a data.txt": "data.txt: its name does not tell the format; give --format",
    "ingest a folder": "folder: no Parquet, CSV, JSON or Arrow files in this folder",
    "ingest a dense": "dense is an array, not a folder of data files; export it first",
    "ingest a xv.csv no.parquet": r"several formats \(csv, parquet\)",
    "ingest a s3://bucket/x.csv": "sources are files here, or - for a pipe",
    "ingest a xv.csv -": "- is stdin, and is read alone",
    "ingest a xv.csv --dim x": "there is an array at a already; leave out --dim",
    "ingest new xv.csv": "there is no array at new; give --dim NAME,… to create it",
    "ingest new xv.csv --dim z": "--dim z: the source has no such column; it has x, v",
    "ingest new xv.csv --dim x,v": "every column is a dimension",
    "2 ingest new xv.csv --dim x,x": "names a column twice",
    "2 ingest new xv.csv --dim x --domain x=5": "both ends are needed: x=0:999",
    "2 ingest new xv.csv --dim x --domain v=5:6": "this is no dimension; those are x",
    "ingest new xv.csv --dim x --domain x=5:6": "row 1: x = 1 lies outside the domain 5 to 6",
    "2 ingest new xv.csv --dim x --filter zip": "there is no filter 'zip'; there are bitshuffle",
    "2 ingest new xv.csv --dim x --filter zstd:x": "write NAME or NAME:LEVEL",
    "ingest new xv.csv --dim x --order zigzag": "'zigzag' is none of row-major",
    "ingest new xv.csv --dim x --type v=number": "there is no such type; write int64",
    "ingest new nothing.csv --dim x": "column 'v' of null has no counterpart in an array; say --type",
    "ingest new coordinate.csv --dim x": "column 'x' has nulls, and coordinates have none",
    "ingest folder xv.csv --dim x": "the folder .*folder is not empty; choose another place",
    "ingest xv.csv xv.csv --dim x": "xv.csv is a file, and an array is a folder; choose another place",
    "ingest dense hole.csv": "2 cells do not fill the box of 3 that they span; a dense array is ingested box by box",
    "ingest dense lacks.csv": "the source lacks y, h, which the array needs",
    "upsert dense hole.csv": "upsert needs an array where coordinates identify a cell; this one is dense",
    "export a xv.csv": "xv.csv is there already; --overwrite replaces it",
    "export a out": "out: its name does not tell the format; end it in .parquet",
    "export a folder": "its name does not tell the format",
    "export a folder/": "folder/ is there already; choose another folder",
    "export a folder --format csv": "folder is a folder; end the name in /",
    "export a out/ --format csv": "a folder is written as Parquet files; name a file for csv",
    "export a gone/out.csv": "gone/out.csv: cannot be written: No such file or directory; check the folder",
    "2 delete a": "Missing option '--where'",
    "delete a --where|": "--where '' is no condition; write SQL",
    "delete dense --where|y = 1": "a dense array has a value in every cell",
    "2 update a --set v": "--set takes NAME=VALUE",
    "2 update a --set v=abc": "--set v=abc: 'abc' is no number",
    "2 update a --set v=null": "'null' is no number, and v is not nullable",
    "2 update a --set x=3": "x is a dimension, and the place of a cell is fixed",
    "update a --set nope=3": "no attribute 'nope'; the schema has 'v', 'tag', 'k'",
    "update a --set k=zzz": "'zzz' is no label of its enumeration",
    "2 consolidate a --what everything": "there are fragments, commits, footers, metadata and all",
    "2 vacuum a --retain soon": "--retain soon: this is no age; write 7d",
    "restore a --at 2020-01-01": "there was no array then; it begins at",
    "check nothing": "there is no array at .*nothing; check the path",
    "check folder": "there is no array at .*folder",
    "check secret": "the array is encrypted; give --key-file FILE",
    "repair nothing": "there is no array at",
    "inspect nothing": "nothing: there is no such file or folder; check the path",
}  # fmt: skip


@pytest.fixture(scope="module")
def workplace(template, tmp_path_factory) -> Path:
    """A copy that no mistake may change."""
    return Path(shutil.copytree(template, tmp_path_factory.mktemp("workplace") / "here"))


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_mistake_is_told_in_one_line_and_changes_nothing(typed, workplace, monkeypatch, refuse) -> None:
    import re

    monkeypatch.chdir(workplace)
    before = contents(workplace)
    code, line = (2, typed[2:]) if typed.startswith("2 ") else (1, typed)
    words, quoted, condition = line.partition("|")
    arguments = words.split() + ([condition] if quoted else [])

    told = refuse(*arguments, code=code)
    assert re.search(MISTAKES[typed], told), told
    assert contents(workplace) == before


# -- places and surroundings -----------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_read_only_is_told(array, refuse) -> None:
    Path("new.csv").write_text("x,s,v,tag,k\n3,c,1,t,a\n")
    Path("shut").mkdir(mode=0o555)
    array.chmod(0o555)
    try:
        assert "permission denied" in refuse("ingest", "a", "new.csv").lower()
        assert "permission denied" in refuse("export", "a", "shut/out.csv").lower()
    finally:
        array.chmod(0o755)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="Linux alone has a place where nobody can write")
def test_a_place_where_nothing_can_be_made_is_told(array, refuse) -> None:
    Path("new.csv").write_text("x,v\n3,1\n")

    assert "/proc/terrazzo" in refuse("ingest", "/proc/terrazzo", "new.csv", "--dim", "x")
    assert "/proc/out.csv: cannot be written" in refuse("export", "a", "/proc/out.csv")


def test_a_store_that_cannot_be_reached_is_told_with_what_to_check(refuse) -> None:
    options = ["aws_endpoint=http://127.0.0.1:9", "allow_http=true", "max_retries=0", "aws_access_key_id=an-id",
               "aws_secret_access_key=hush-hush"]  # fmt: skip

    told = refuse("info", "s3://bucket/array", *(part for each in options for part in ("--storage", each)))
    assert told.startswith("terrazzo: s3://bucket/array")
    assert "check the bucket, the credentials in the environment (or --storage), and the network" in told
    assert "hush" not in told


def test_a_pipe_that_brings_nothing_is_told(array, refuse, monkeypatch) -> None:
    import io

    class Pipe(io.StringIO):
        buffer = io.BufferedReader(io.BytesIO(b""))

    monkeypatch.setattr("sys.stdin", Pipe())
    assert "nothing came through the pipe" in refuse("ingest", "a", "-")


def test_no_key_is_taken_from_the_command_line(array, capsys) -> None:
    assert run(["read", "a", "--key", KEY]) == 2
    assert KEY not in capsys.readouterr().err


WITHOUT = """
import sys
class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "typer":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Lacking())
from terrazzo.cli.main import main
main(["--help"])
"""


def test_without_the_extra_the_command_says_how_to_get_it() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr == (
        "terrazzo: the command line needs typer, which is not installed; run: pip install 'terrazzo[cli]'\n"
    )
