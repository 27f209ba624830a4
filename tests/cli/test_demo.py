"""`terrazzo demo` runs the main job on an embedded Spark, says what it does, and leaves its results."""

import os
import subprocess
import sys

import pyarrow.dataset as ds
import pytest

import terrazzo as tz

pytest.importorskip("pyspark", reason="the demo runs on Spark")


def test_the_demo_shows_every_step_and_leaves_what_it_made(tmp_path):
    folder = tmp_path / "tour"
    done = subprocess.run(
        [sys.executable, "-m", "terrazzo.cli.main", "demo", str(folder)],
        capture_output=True, text=True, timeout=400, check=False, env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )  # fmt: skip
    shown = done.stdout

    assert done.returncode == 0, done.stderr
    for said in (
        "166,158 cells",
        "170,618 cells",
        "3,260 cells",
        "8,255 cells",
        "336,776 cells",
        "328,521 now",
    ):
        assert said in shown
    array = tz.open(str(folder / "flights"))
    assert array.count() == 328_521
    assert array.count(where="carrier = 'FL'") == 0
    assert ds.dataset(folder / "parquet").count_rows() == 328_521
    assert "<svg" in (folder / "flights.html").read_text(encoding="utf-8")
    assert not (folder / "flights.csv").exists()
    again = subprocess.run(
        [sys.executable, "-m", "terrazzo.cli.main", "demo", str(folder)],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert again.returncode == 1
    assert "is not empty" in again.stderr
