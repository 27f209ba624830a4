"""The same work over Spark Connect and on a real standalone cluster, with faults."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.spark.cluster import cluster

import terrazzo as tz

_LABOUR = Path(__file__).with_name("labour.py")
_ROOT = _LABOUR.parents[2]


def labour(master, folder, *steps):
    environment = {
        **os.environ,
        "PYTHONPATH": f"{_ROOT / 'src'}{os.pathsep}{_ROOT}",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    # Files, not pipes: the Java of a driver that was killed may hold them open for a while.
    told, problem = folder / "told.txt", folder / "problem.txt"
    with told.open("w") as out, problem.open("w") as wrong:
        done = subprocess.Popen(
            [sys.executable, str(_LABOUR), master, str(folder), *steps],
            stdout=out,
            stderr=wrong,
            env=environment,
        )
        code = done.wait(560)
    return code, told.read_text(), problem.read_text()[-4000:]


def test_spark_connect_reads_writes_merges_and_streams(tmp_path):
    code, told, problem = labour("connect", tmp_path, "everyday", "pipeline")

    assert (code, told) == (0, "everyday done\npipeline done\n"), problem


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("cluster")) as url:
        yield url


def test_a_cluster_does_everything_in_spite_of_faults(master, tmp_path):
    """Failing tasks, a killed executor and speculative copies lose nothing and double nothing."""
    steps = ["everyday", "pipeline", "faults", "speculation"]
    code, told, problem = labour(master, tmp_path, *steps)

    assert (code, told) == (0, "".join(f"{step} done\n" for step in steps)), problem


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
