"""A Spark session with the settings that suit arrays."""

import os
import socket
import sys
from collections.abc import Mapping
from typing import Any

from terrazzo.spark.java import ensure_java

SETTINGS = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "250000",
    "spark.sql.session.timeZone": "UTC",
}

_LOCAL = {"spark.ui.enabled": "false", "spark.log.level": "ERROR"}
if hasattr(socket, "AF_UNIX"):
    # Quirk: over TCP every task stands still for 40 ms, since its input comes in two small writes and the second waits
    # until the first is acknowledged. A cluster's folders may have longer names than such a socket can.
    _LOCAL["spark.python.unix.domain.socket.enabled"] = "true"
_MAY_NAME_A_MASTER = (
    "MASTER", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_HOME", "SPARK_REMOTE",
)  # fmt: skip


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
    given = dict(settings or {})
    unsaid = os.environ.keys().isdisjoint(_MAY_NAME_A_MASTER)
    local = (master or given.get("spark.master") or ("local" if unsaid else "")).startswith("local")
    for setting, value in {**SETTINGS, **(_LOCAL if local else {}), **given}.items():
        builder = builder.config(setting, value)
    return builder.getOrCreate()
