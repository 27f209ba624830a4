"""The same work over Spark Connect and on a real standalone cluster, with faults."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import terrazzo as tz
from tests.spark.cluster import cluster

_LABOUR = Path(__file__).with_name("labour.py")
_ROOT = _LABOUR.parents[2]


def labour(master, folder, *steps):
    environment = {
        **os.environ,
        "PYTHONPATH": f"{_ROOT / 'src'}{os.pathsep}{_ROOT}",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, str(_LABOUR), master, str(folder), *steps],
        capture_output=True, text=True, timeout=300, env=environment, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr[-4000:]


def test_spark_connect_reads_and_writes(tmp_path):
    code, told, problem = labour("connect", tmp_path, "everyday")

    assert (code, told) == (0, "everyday done\n"), problem


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("cluster")) as url:
        yield url


def test_a_cluster_reads_writes_and_consolidates(master, tmp_path):
    code, told, problem = labour(master, tmp_path, "everyday")

    assert (code, told) == (0, "everyday done\n"), problem


def test_failing_tasks_and_a_killed_executor_lose_and_double_nothing(master, tmp_path):
    code, told, problem = labour(master, tmp_path, "faults")

    assert (code, told) == (0, "faults done\n"), problem


def test_speculative_copies_double_nothing(master, tmp_path):
    code, told, problem = labour(master, tmp_path, "speculation")

    assert (code, told) == (0, "speculation done\n"), problem


def test_a_driver_that_dies_before_the_commit_leaves_the_array_as_it_was(master, tmp_path):
    code, _, problem = labour(master, tmp_path, "dying")
    array = tz.open(str(tmp_path / "dying"))
    leftovers = len(list((tmp_path / "dying" / "__fragments").iterdir()))

    assert code == -9, problem
    assert array.count() == 10
    assert leftovers > 1
    array.vacuum(retain=0)
    assert len(list((tmp_path / "dying" / "__fragments").iterdir())) == 1
    assert array.refresh().count() == 10
