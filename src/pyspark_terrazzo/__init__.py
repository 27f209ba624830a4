"""Spark looks for modules that begin with `pyspark_` and registers their `DefaultSource`: so the format `tiledb` is
there in every session, without a call."""

from terrazzo.spark.source import TileDBSource as DefaultSource

__all__ = ["DefaultSource"]
