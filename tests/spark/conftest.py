"""One session per test process: it takes seconds to start."""

import warnings

import pytest

pytest.importorskip("pyspark", reason="pyspark is an extra")

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "1g",
    "spark.python.worker.reuse": "true",
    "spark.ui.showConsoleProgress": "false",
}


@pytest.fixture(scope="session")
def spark():
    from terrazzo.spark import session

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = session("local[2]", settings=SETTINGS)
    yield made
    made.stop()
