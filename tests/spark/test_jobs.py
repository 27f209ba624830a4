"""`terrazzo … --spark`: commands as jobs. They take the session that runs, and leave it running."""

import json
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import terrazzo as tz
from terrazzo.cli.main import run


@pytest.fixture
def sources(tmp_path):
    table = pa.table(
        {"x": list(range(300)), "tag": [f"t{i % 3}" for i in range(300)], "v": [i / 4 for i in range(300)]}
    )
    pq.write_table(table, tmp_path / "data.parquet")
    pyarrow.csv.write_csv(table.slice(0, 100), tmp_path / "data.csv")
    return tmp_path


def told(capsys):
    return json.loads(capsys.readouterr().out)


def test_files_go_in_are_consolidated_and_come_out(spark, sources, capsys):
    uri = str(sources / "array")
    assert run(
        ["ingest", uri, str(sources / "data.parquet"), "--spark", "--dim", "x", "--domain", "x=0:9999", "--tile",
         "x=100", "--filter", "v=zstd:7", "--capacity", "50", "--json"]
    ) == 0  # fmt: skip
    report = told(capsys)
    assert (report["cells"], report["created"]) == (300, True)
    assert report["fragments"] >= 1
    assert report["bytes"] > 0

    assert run(["upsert", uri, str(sources / "data.csv"), "--spark", "--json"]) == 0
    assert told(capsys)["cells"] == 100
    assert run(["consolidate", uri, "--spark", "--json"]) == 0
    assert told(capsys)["fragments_made"] == 1
    assert run(["export", uri, str(sources / "out"), "--spark", "--where", "x >= 200", "--json"]) == 0
    assert told(capsys)["cells"] == 100
    assert ds.dataset(sources / "out", exclude_invalid_files=False, ignore_prefixes=["_"]).count_rows() == 100
    assert run(["export", uri, str(sources / "text"), "--spark", "--format", "csv", "--json"]) == 0

    array = tz.open(uri)
    assert array.count() == 300
    assert array.schema.dims[0].domain == (0, 9999)
    assert spark.range(3).count() == 3


def test_mistakes_of_a_job_are_one_line(spark, sources, capsys):
    uri = str(sources / "array")
    for arguments, said in (
        (["ingest", uri, str(sources / "data.parquet"), "--spark"], "give --dim"),
        (["ingest", uri, str(sources / "nothing.parquet"), "--spark", "--dim", "x"], "nothing.parquet"),
        (["ingest", uri, str(sources / "data.parquet"), "--spark", "--dim", "zz"], "zz"),
        (["ingest", uri, "-", "--spark", "--dim", "x"], "standard input"),
        (["export", uri, str(sources / "out"), "--spark"], "there is no array"),
    ):
        assert run(arguments) in {1, 2}
        problem = capsys.readouterr().err.strip()
        assert said in problem
        assert len(problem.splitlines()) == 1
    assert not tz.exists(uri)


def test_a_dry_run_shows_the_schema_and_writes_nothing(spark, sources, capsys):
    uri = str(sources / "array")
    assert run(["ingest", uri, str(sources / "data.csv"), "--spark", "--dim", "x", "--dry-run"]) == 0

    assert "tag" in capsys.readouterr().out
    assert not (sources / "array").exists()


def test_spark_submit_runs_a_command_on_the_packaged_java(sources):
    """Without Java on the path, and with what spark-submit would run."""
    from terrazzo.cli import submit

    tools = sources / "tools"
    tools.mkdir()
    for name in os.listdir("/usr/bin"):
        if not name.startswith("java"):
            (tools / name).symlink_to(f"/usr/bin/{name}")
    environment = {
        **{name: value for name, value in os.environ.items() if name != "JAVA_HOME"},
        "PATH": str(tools), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONWARNINGS": "ignore",
    }  # fmt: skip
    uri = str(sources / "array")
    done = subprocess.run(
        [sys.executable, submit.__file__, "ingest", uri, str(sources / "data.csv"), "--dim", "x", "--json"],
        capture_output=True, text=True, timeout=240, env=environment, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["cells"] == 100
    assert tz.open(uri).count() == 100
