"""The command as a process: what it imports, how it starts, ends, and is interrupted; completion; progress."""

import io
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import terrazzo as tz
from terrazzo.cli import app, progress
from terrazzo.cli.main import run
from terrazzo.cli.progress import Bar
from terrazzo.cli.sources import Source

COMMAND = [sys.executable, "-m", "terrazzo.cli.main"]
HEAVY = ("numpy", "pyarrow", "pandas", "pyspark", "numba", "obstore", "sqlglot", "cryptography", "rich")


def start(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, **options)


@pytest.mark.parametrize("arguments", [["--version"], ["ingest", "--help"]])
def test_nothing_heavy_is_imported_before_it_is_needed(arguments) -> None:
    code = (
        "import sys; from terrazzo.cli.main import run; "
        f"run({arguments!r}); print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stderr == "[]\n"


def test_help_and_version_start_in_a_moment() -> None:
    for argument, shown in (
        ("--help", "Exit codes: 0 done; 1 it failed"),
        ("--version", f"terrazzo {tz.__version__}"),
    ):
        times = []
        for _ in range(3):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = start(argument)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            # Processor time: on a busy machine the clock would tell of the others.
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

        assert done.returncode == 0
        assert shown in done.stdout
        assert min(times) < 0.3


def test_every_command_has_an_example_of_its_own(ask) -> None:
    names = [command.name or command.callback.__name__ for command in app.app.registered_commands]
    assert len(names) == 17

    for name in names:
        shown = ask(name, "--help")
        assert f"  terrazzo {name} " in shown.partition("Examples:")[2] + " ", name
        assert "Exit codes: 0 done" in shown


def test_the_shell_completes_commands() -> None:
    asked = {"_TERRAZZO_COMPLETE": "complete_bash", "COMP_WORDS": "terrazzo re", "COMP_CWORD": "1"}
    done = start(env={**os.environ, **asked})

    assert set(done.stdout.split()) == {"read", "repair", "restore"}
    assert "--install-completion" in start("--help").stdout


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_an_ingest_that_is_interrupted_leaves_the_array_as_it_was(tmp_path) -> None:
    schema = tz.Schema([tz.Dim("x", "int64", (0, 9999), 1000)], [tz.Attr("v", "float64")])
    tz.create(str(tmp_path / "a"), schema).write({"x": [5], "v": [1.0]})
    before = contents(tmp_path)
    arguments = ["ingest", str(tmp_path / "a"), "-", "--fragment-size", "1"]
    with subprocess.Popen([*COMMAND, *arguments], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        # A pipe that stays open: the child has written a fragment, and waits for more.
        batch = pa.record_batch({"x": np.arange(100), "v": np.zeros(100)})
        with pa.ipc.new_stream(out := pa.BufferOutputStream(), batch.schema) as stream:
            stream.write_batch(batch)
            stream.write_batch(batch)
        child.stdin.write(out.getvalue().to_pybytes()[:-8])  # without the mark of the end
        child.stdin.flush()
        deadline = time.monotonic() + 60
        while len(list(tmp_path.glob("a/__fragments/*/__fragment_metadata.tdb"))) < 2:
            assert child.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        told = child.stderr.read()

    assert (child.returncode, told) == (130, b"terrazzo: interrupted\n")
    assert contents(tmp_path) == before
    assert tz.open(str(tmp_path / "a")).count() == 1


def test_an_ingest_that_is_interrupted_leaves_no_array_that_it_made(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"x": np.arange(300_000), "v": np.zeros(300_000)}), "d.parquet")
    taken = Source.batches

    def interrupted(self: Source, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        for place, batch in enumerate(taken(self, columns)):
            if place and Path("a").exists():
                assert list(Path("a/__fragments").glob("*/__fragment_metadata.tdb"))
                raise KeyboardInterrupt
            yield batch

    monkeypatch.setattr(Source, "batches", interrupted)
    assert run(["ingest", "a", "d.parquet", "--dim", "x", "--fragment-size", "1"]) == 130
    assert capsys.readouterr().err == "terrazzo: interrupted\n"
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["d.parquet"]
    assert not tz.exists("a")


@pytest.mark.parametrize("options", [["--format", "csv"], ["--limit", "0"]])
def test_a_pipe_that_is_closed_ends_the_command_quietly(tmp_path, options) -> None:
    schema = tz.Schema([tz.Dim("x", "int64", (0, 99_999), 1000)], [tz.Attr("v", "float64")])
    tz.create(str(tmp_path / "a"), schema).write({"x": np.arange(20_000), "v": np.zeros(20_000)})
    arguments = ["read", str(tmp_path / "a"), *options]
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        child.stdout.read(10)
        child.stdout.close()
        told = child.stderr.read()

    assert (child.returncode, told) == (0, b"")


def test_a_read_that_fails_in_a_pipe_does_not_look_complete(array, tmp_path) -> None:
    (damaged,) = array.glob("__fragments/*/a0.tdb")
    damaged.write_bytes(damaged.read_bytes()[:-5])
    done = subprocess.run(
        [*COMMAND, "read", str(array), "--format", "parquet"], capture_output=True, check=False
    )

    assert done.returncode == 1
    assert not done.stdout.endswith(b"PAR1") or len(done.stdout) == 4


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch) -> Terminal:
    """A terminal in the place of stderr."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", made := Terminal())
    return made


class TestProgress:
    def test_nothing_is_shown_of_what_is_over_in_a_second(self, monkeypatch) -> None:
        stderr = terminal(monkeypatch)
        with Bar("quick", 10) as bar:
            bar(10, 10)

        assert stderr.getvalue() == ""
        assert progress.DELAY == 1.0

    def test_rate_and_time_left_are_shown_of_what_takes_longer(self, monkeypatch) -> None:
        stderr = terminal(monkeypatch)
        monkeypatch.setattr(progress, "DELAY", 0.01)
        batch = pa.record_batch({"x": pa.array(range(50))})
        with Bar("slow work", 200, "rows") as bar:
            for _ in bar.counting([batch, batch, batch]):
                deadline = time.monotonic() + 20
                while bar.count and "rows/s" not in stderr.getvalue() and time.monotonic() < deadline:
                    time.sleep(0.01)

        shown = stderr.getvalue()
        assert "slow work" in shown
        assert re.search(r"rows/s, \d:\d\d:\d\d left, \d:\d\d:\d\d passed", shown)
        assert bar.count == 150

    def test_a_pipe_gets_none(self, capsys, monkeypatch) -> None:
        monkeypatch.setattr(progress, "DELAY", 0.01)
        with Bar("slow", 2) as bar:
            bar(1, 2)
            time.sleep(0.05)

        assert capsys.readouterr().err == ""

    def test_a_scan_tells_its_tasks(self, tmp_path) -> None:
        told: list[tuple[int, int]] = []
        schema = tz.Schema([tz.Dim("x", "int64", (0, 999_999), 1000)], [tz.Attr("v", "float64")])
        made = tz.create(str(tmp_path / "a"), schema)
        made.write({"x": np.arange(200_000), "v": np.zeros(200_000)})
        grid = tz.Schema([tz.Dim("y", "int32", (0, 399_999), 1000)], [tz.Attr("h", "float64")], sparse=False)
        dense = tz.create(str(tmp_path / "dense"), grid)

        for opened in (made, dense):
            told.clear()
            for _ in opened.scan(memory=1, progress=lambda done, total: told.append((done, total))):
                pass
            assert told[-1][0] == told[-1][1]
            assert len(told) > 1
            assert [done for done, _ in told] == sorted(done for done, _ in told)
