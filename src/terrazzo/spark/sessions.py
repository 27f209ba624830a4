"""A Spark session with the settings that suit arrays."""

import os
import sys
from collections.abc import Mapping
from typing import Any

from terrazzo.spark.java import ensure_java

SETTINGS = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "250000",
    "spark.sql.session.timeZone": "UTC",
}


def running() -> Any:
    """The session of this process, or None."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    return SparkSession.getActiveSession()


def session(
    master: str | None = None, *, name: str = "terrazzo", settings: Mapping[str, str] | None = None
) -> Any:
    """The running session, or a new one: on `master` (`local[*]` unless spark-submit or the settings say another)."""
    ensure_java()
    # Executors on this machine run the Python that has the package, not whichever comes first on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    there = running()
    if there is not None:
        return there
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    if (master or "local").startswith("local"):
        builder = builder.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
    for setting, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(setting, value)
    return builder.getOrCreate()
