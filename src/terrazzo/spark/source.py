"""The format `tiledb`: options and a schema in, a reader or a writer out.

Spark calls each method in a Python process of its own, so nothing is kept from one to the next.
"""

from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from terrazzo.spark.options import READ, STREAM, WRITE, Options
from terrazzo.spark.reader import ArrayReader, columns_asked
from terrazzo.spark.types import struct_of, with_change


class TileDBSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "tiledb"

    def schema(self) -> StructType:
        options = Options.of(self.options, READ | STREAM)
        view = options.open().view
        struct = struct_of(view.schema, columns_asked(options, view))
        return with_change(struct) if options.flag("changes") else struct

    def reader(self, schema: StructType) -> ArrayReader:
        options = Options.of(self.options, READ)
        return ArrayReader(options.open().view, schema, options)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        from terrazzo.spark.writer import ArrayWriter  # noqa: PLC0415

        return ArrayWriter.prepared(schema, Options.of(self.options, WRITE), overwrite=overwrite)

    def streamReader(self, schema: StructType) -> Any:
        from terrazzo.spark.stream_source import ArrayStreamReader  # noqa: PLC0415

        return ArrayStreamReader(schema, Options.of(self.options, STREAM))

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        from terrazzo.spark.stream_sink import ArrayStreamWriter  # noqa: PLC0415

        return ArrayStreamWriter.prepared(schema, Options.of(self.options, WRITE), overwrite=overwrite)
