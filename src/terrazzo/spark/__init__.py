"""Arrays on Spark. `spark.read.format("tiledb")` and `df.write.format("tiledb")` work without importing this."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from terrazzo.spark.array import SparkArray
    from terrazzo.spark.ingest import write
    from terrazzo.spark.runner import SparkRunner
    from terrazzo.spark.sessions import session
    from terrazzo.spark.statements import sql

__all__ = ["SparkArray", "SparkRunner", "session", "sql", "write"]

_HOMES = {
    "SparkArray": "array",
    "SparkRunner": "runner",
    "session": "sessions",
    "sql": "statements",
    "write": "ingest",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = import_module(f"{__name__}.{_HOMES[name]}")
    except ModuleNotFoundError as problem:
        if (problem.name or "").partition(".")[0] == "pyspark":
            raise ModuleNotFoundError(
                "pyspark is missing; install it with: pip install 'terrazzo[spark]'", name="pyspark"
            ) from None
        raise
    return getattr(home, name)
