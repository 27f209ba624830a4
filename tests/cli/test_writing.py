"""`ingest`, `upsert`, `delete`, `update` and the commands of maintenance."""

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import terrazzo as tz
from terrazzo.cli.main import run

ROWS = {
    "day": [1, 2, 3],
    "station": ["Oslo", "Bergen", "Oslo"],
    "v": [0.5, None, 2.5],
    "note": ["", None, 'a "b", c\nd'],
}


def table() -> pa.Table:
    return pa.table(ROWS)


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def save(name: str, rows: pa.Table) -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    if name.endswith(".parquet"):
        pq.write_table(rows, name)
    elif name.endswith(".arrows"):
        with pa.ipc.new_stream(name, rows.schema) as out:
            out.write_table(rows)
    elif name.endswith(".arrow"):
        with pa.ipc.new_file(name, rows.schema) as out:
            out.write_table(rows)
    elif name.endswith(".jsonl"):
        Path(name).write_text("".join(f"{json.dumps(row)}\n" for row in rows.to_pylist()))
    else:
        pa.csv.write_csv(rows, name)
    return name


def cells(uri: str = "new") -> list[dict]:
    return tz.open(uri).read(order="row-major").to_pylist()


def by_dims(rows: pa.Table) -> list[dict]:
    return [{name: row[name] for name in ("station", "day", "v", "note")} for row in
            sorted(rows.to_pylist(), key=lambda row: (row["station"], row["day"]))]  # fmt: skip


class Pipe(io.StringIO):
    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.buffer = io.BufferedReader(io.BytesIO(content))


class TestIngest:
    @pytest.mark.parametrize("name", ["d.parquet", "d.csv", "d.jsonl", "d.arrow", "d.arrows"])
    def test_an_array_is_made_from_a_file_and_appended_to(self, here, ask_json, name) -> None:
        save(name, table())

        made = ask_json("ingest", "new", name, "--dim", "station,day")
        assert (made["created"], made["rows"], made["fragments"]) == (True, 3, 1)
        assert cells() == by_dims(table())
        more = pa.table({"day": [9], "station": ["007"], "v": [None], "note": ["12"]}, schema=table().schema)
        appended = ask_json("ingest", "new", save(f"more.{name[2:]}", more))
        assert (appended["created"], appended["rows"]) == (False, 1)
        assert cells() == by_dims(pa.concat_tables([table(), more]))

    def test_the_schema_is_what_the_options_say(self, here, ask) -> None:
        save("d.parquet", table())

        ask(
            "ingest", "new", "d.parquet", "--dim", "day", "--dim", "station", "--domain", "day=1:400", "--tile", "day=40",
            "--filter", "byteshuffle,zstd:3", "--filter", "note=gzip:5", "--filter", "day=delta,lz4", "--capacity", 77,
            "--order", "hilbert", "--allow-duplicates",
        )  # fmt: skip
        schema = tz.open("new").schema
        assert [dim.name for dim in schema.dims] == ["day", "station"]
        assert (schema.dim("day").domain, schema.dim("day").tile) == ((1, 400), 40)
        assert (schema.capacity, str(schema.cell_order), schema.allows_duplicates) == (77, "hilbert", True)
        assert schema.attr("v").filters.filters == (tz.filters.ByteShuffle(), tz.filters.Zstd(3))
        assert schema.attr("note").filters.filters == (tz.filters.Gzip(5),)
        assert len(schema.dim("day").filters.filters) == 2
        assert not schema.dim("station").filters.filters

    def test_a_dense_array_is_filled(self, here, ask) -> None:
        save("d.csv", pa.table({"y": [0, 0, 1, 1], "x": [0, 1, 0, 1], "h": [1.0, 2.0, 3.0, 4.0]}))

        ask("ingest", "grid", "d.csv", "--dim", "y,x", "--dense", "--tile", "y=1", "--tile", "x=2")
        assert tz.open("grid")[0:2, 0:2].tolist() == [[1, 2], [3, 4]]

    def test_columns_are_chosen_and_typed(self, here, ask) -> None:
        Path("d.csv").write_text("x,code,v,junk\n1,007,NA,?\n2,008,3,?\n")

        ask(
            "ingest",
            "new",
            "d.csv",
            "--dim",
            "x",
            "--columns",
            "x,code,v",
            "--type",
            "code=utf8",
            "--null",
            "NA",
        )
        assert cells() == [{"x": 1, "code": "007", "v": None}, {"x": 2, "code": "008", "v": 3}]

    def test_folders_and_globs_are_taken_together(self, here, ask_json) -> None:
        save("parts/one.parquet", pa.table({"x": [1], "v": [1.5]}))
        save("parts/deep/two.parquet", pa.table({"x": [2], "v": [2.5], "late": ["only here"]}))
        Path("parts/_SUCCESS").write_text("")

        assert ask_json("ingest", "folder", "parts", "--dim", "x")["files"] == 2
        assert cells("folder") == [
            {"x": 1, "v": 1.5, "late": None},
            {"x": 2, "v": 2.5, "late": "only here"},
        ]
        assert ask_json("ingest", "glob", "parts/*.parquet", "--dim", "x")["rows"] == 1

    def test_folders_that_name_values_give_columns(self, here, ask) -> None:
        save("parts/year=2025/d.parquet", pa.table({"x": [1]}))
        save("parts/year=2026/d.parquet", pa.table({"x": [2]}))

        ask("ingest", "new", "parts", "--dim", "x")
        assert cells() == [{"x": 1, "year": 2025}, {"x": 2, "year": 2026}]

    @pytest.mark.parametrize("name", ["d.csv", "d.arrows", "d.jsonl", "d.parquet", "d.arrow"])
    def test_a_pipe_is_a_source(self, here, ask_json, monkeypatch, name) -> None:
        content = Path(save(name, table())).read_bytes()

        monkeypatch.setattr("sys.stdin", Pipe(content))
        assert ask_json("ingest", "new", "-", "--dim", "station,day")["created"]
        monkeypatch.setattr("sys.stdin", Pipe(content))
        assert ask_json("ingest", "new", "-")["rows"] == 3
        assert cells() == by_dims(table())

    def test_labels_of_all_batches_make_the_enumeration(self, here, ask) -> None:
        one, two = (
            pa.table({"x": [n], "k": pa.array([label]).dictionary_encode()})
            for n, label in ((1, "b"), (2, "a"))
        )
        save("d/1.parquet", one)
        save("d/2.parquet", two)

        ask("ingest", "new", "d", "--dim", "x")
        assert sorted(tz.open("new").schema.enums["k"].values.to_pylist()) == ["a", "b"]
        assert [row["k"] for row in cells()] == ["b", "a"]

    def test_a_dry_run_shows_the_schema_and_makes_nothing(self, here, ask, ask_json) -> None:
        save("d.parquet", table())

        report = ask_json("ingest", "new", "d.parquet", "--dim", "day", "--dry-run")
        assert (report["dry_run"], report["rows"]) == (True, 3)
        assert [attr["name"] for attr in report["schema"]["attributes"]] == ["station", "v", "note"]
        assert "attr  note" in ask("ingest", "new", "d.parquet", "--dim", "day", "--dry-run")
        assert not Path("new").exists()

    def test_an_ingest_that_fails_leaves_no_array(self, here, refuse) -> None:
        save("d.csv", pa.table({"x": [1, 1], "v": [1, 2]}))

        refuse("ingest", "new", "d.csv", "--dim", "x")
        assert not Path("new").exists()

    def test_of_fragments_of_one_ingest_the_later_one_wins(self, here, ask_json) -> None:
        for place in range(5):
            save(f"d/{place}.parquet", pa.table({"x": [1], "v": [place]}))

        made = ask_json("ingest", "new", "d", "--dim", "x", "--fragment-size", "1")
        assert made["fragments"] == 5
        assert cells() == [{"x": 1, "v": 4}]

    def test_the_row_of_an_error_is_that_of_the_source(self, here, ask, refuse) -> None:
        save("d.parquet", pa.table({"x": [0], "v": [1]}))
        ask("ingest", "new", "d.parquet", "--dim", "x", "--domain", "x=0:999999")
        save("long.parquet", pa.table({"x": np.append(np.arange(300_000), -5), "v": np.zeros(300_001, int)}))

        assert "row 300,001: x = -5 lies outside" in refuse("ingest", "new", "long.parquet")

    def test_a_commit_can_be_of_another_time(self, here, ask, ask_json) -> None:
        save("d.parquet", table())

        report = ask_json("ingest", "new", "d.parquet", "--dim", "station,day", "--at", "2020-01-01")
        assert report["committed_ms"] == 1577836800000
        assert ask("read", "new", "--count", "--at", "2020-01-02") == "3\n"

    def test_an_encrypted_array_takes_its_key_from_a_file_or_the_environment(
        self, here, ask, monkeypatch
    ) -> None:
        save("d.parquet", table())
        Path("key").write_text("0123456789abcdef0123456789abcdef\n")

        ask("ingest", "new", "d.parquet", "--dim", "station,day", "--key-file", "key")
        monkeypatch.setenv("TERRAZZO_KEY", "0123456789abcdef0123456789abcdef")
        assert ask("read", "new", "--count") == "3\n"


def test_upsert_replaces_and_takes_the_last(array, ask_json) -> None:
    Path("d.csv").write_text("x,s,v,tag,k\n1,a,7,,b\n1,a,8,,b\n5,e,9,new,a\n")

    assert ask_json("upsert", "a", "d.csv", "--dry-run")["dry_run"] is True
    report = ask_json("upsert", "a", "d.csv")
    assert (report["rows"], report["cells"]) == (3, 2)
    assert [(row["x"], row["v"], row["tag"]) for row in cells("a")] == [
        (1, 8, None),
        (2, 2.5, None),
        (5, 9, "new"),
    ]


def test_upsert_in_pieces_takes_the_last_and_tells_the_row_that_is_wrong(array, ask_json, refuse) -> None:
    for i, value in enumerate((7, 8, 9)):
        Path(f"d{i}.csv").write_text(f"x,s,v,tag,k\n1,a,{value},,b\n5,e,{value},new,a\n")
    report = ask_json("upsert", "a", "d*.csv", "--fragment-size", "1B")
    assert (report["rows"], report["cells"], report["fragments"]) == (6, 2, 1)
    assert [(row["x"], row["v"]) for row in cells("a")] == [(1, 9), (2, 2.5), (5, 9)]

    Path("d3.csv").write_text("x,s,v,tag,k\n1,a,0,,b\n300,e,0,,a\n")
    assert "row 8: x = 300 lies outside the domain" in refuse(
        "upsert", "a", "d*.csv", "--fragment-size", "1B"
    )
    assert [(row["x"], row["v"]) for row in cells("a")] == [(1, 9), (2, 2.5), (5, 9)]


class TestChange:
    def test_delete_counts_and_commits(self, array, ask_json) -> None:
        dry = ask_json("delete", "a", "--where", "x = 1", "--dry-run")
        assert (dry["cells"], dry["committed"]) == (1, False)
        assert tz.open("a").count() == 2

        done = ask_json("delete", "a", "--where", "x = 1")
        assert (done["cells"], done["committed"]) == (1, True)
        assert tz.open("a").count() == 1

    def test_a_condition_that_matches_nothing_is_not_committed(self, array, ask_json) -> None:
        assert ask_json("delete", "a", "--where", "x = 77")["committed"] is False
        assert len(tz.open("a").history()) == 2
        assert ask_json("delete", "a", "--where", "x = 77", "--no-count")["committed"] is True

    def test_update_sets_values_by_type(self, array, ask_json) -> None:
        given = ["--set", "v=7", "--set", "tag=null", "--set", "k=b", "--where", "x = 1"]

        assert ask_json("update", "a", *given, "--dry-run")["cells"] == 1
        assert cells("a")[0]["v"] == 1.5
        assert ask_json("update", "a", *given)["set"] == {"v": 7.0, "tag": None, "k": "b"}
        assert cells("a")[0] == {"x": 1, "s": "a", "v": 7.0, "tag": None, "k": "b"}
        ask_json("update", "a", "--set", "tag='null'")
        assert [row["tag"] for row in cells("a")] == ["null", "null"]

    def test_update_sets_lists_dates_and_booleans(self, here, ask) -> None:
        attrs = [tz.Attr("l", "int32", var=True), tz.Attr("t", "datetime_day"), tz.Attr("b", "bool")]
        made = tz.create("new", tz.Schema([tz.Dim("x", "int64", (0, 9), 5)], attrs))
        made.write({"x": [1], "l": [[1]], "t": np.array(["2026-01-01"], "M8[D]"), "b": [False]})

        ask("update", "new", "--set", "l=[4,5]", "--set", "t=2026-02-03", "--set", "b=true")
        (row,) = cells()
        assert (row["l"], str(row["t"]), row["b"]) == ([4, 5], "2026-02-03", True)


class TestMaintenance:
    @pytest.fixture
    def worn(self, array) -> None:
        tz.open("a").write({"x": [3], "s": ["c"], "v": [3.5], "tag": ["u"], "k": ["a"]})
        tz.open("a").delete("x = 1")

    def test_consolidate_and_vacuum(self, worn, ask, ask_json) -> None:
        plan = ask_json("consolidate", "a", "--dry-run")
        assert (len(plan["sources"]), plan["fragments_made"]) == (2, 1)
        assert len(tz.open("a").fragments) == 2

        done = ask_json("consolidate", "a", "--what", "all")
        assert (done["fragments_merged"], done["fragments_made"]) == (2, 1)
        dry = ask_json("vacuum", "a", "--retain", "0", "--dry-run")
        assert dry["n_files"] == len(dry["files"]) > 0
        assert ask_json("vacuum", "a")["n_files"] == 0
        assert ask_json("vacuum", "a", "--retain", "0")["files"] == dry["files"]
        assert ask("read", "a", "--count") == "2\n"
        assert ask_json("check", "a", "--deep")["ok"] is True

    def test_restore_brings_an_instant_back(self, worn, ask_json) -> None:
        first = tz.open("a").fragments[0].name.end_ms

        dry = ask_json("restore", "a", "--at", first, "--dry-run")
        assert (dry["cells_now"], dry["cells_then"]) == (2, 2)
        assert [row["x"] for row in cells("a")] == [2, 3]
        ask_json("restore", "a", "--at", first)
        assert [row["x"] for row in cells("a")] == [1, 2]

    def test_check_and_repair_tell_by_their_exit_codes(self, worn, ask, ask_json) -> None:
        assert ask_json("check", "a")["errors"] == 0
        (Path("a/__commits") / "__1_1_0000_22.wrt").write_text("")

        assert ask_json("check", "a", code=3)["errors"] == 1
        assert "severity" in ask("check", "a", code=3)
        assert ask_json("repair", "a", "--dry-run")["actions"]
        assert ask_json("check", "a", code=3)["errors"] == 1
        assert ask_json("repair", "a")["ok"] is True
        assert ask_json("check", "a")["errors"] == 0

    def test_strict_counts_warnings(self, array, ask_json) -> None:
        tz.open("a").update({"v": 1.0}, "x = 1")

        assert ask_json("check", "a")["warnings"] == 1
        assert ask_json("check", "a", "--strict", code=3)["ok"] is True


def test_an_object_store_is_reached_with_options(s3_server, s3_uri, tmp_path, ask_json) -> None:
    save(str(tmp_path / "d.parquet"), table())
    options = [part for name, value in s3_server.options.items() for part in ("--storage", f"{name}={value}")]

    ask_json("ingest", s3_uri, tmp_path / "d.parquet", "--dim", "station,day", *options)
    assert ask_json("read", s3_uri, *options)["cells"] == 3
    assert ask_json("inspect", s3_uri, *options)["kind"] == "array"


def test_debug_stands_anywhere(array) -> None:
    with pytest.raises(tz.ArrayNotFoundError):
        run(["read", "nothing", "--debug"])
