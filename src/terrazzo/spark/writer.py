"""Batch writes: tasks put fragments, the driver commits them all at once."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from terrazzo.engine.bulk import FRAGMENT_SIZE, BulkWrite, Written, plan_bulk_write
from terrazzo.engine.spelling import parse_flag
from terrazzo.errors import InvalidRequestError
from terrazzo.spark.creation import schema_from_options
from terrazzo.spark.options import Options


@dataclass
class Message(WriterCommitMessage):
    written: Written


class ArrayWriter(DataSourceArrowWriter):
    def __init__(self, bulk: BulkWrite) -> None:
        self.bulk = bulk

    @classmethod
    def prepared(cls, struct: StructType, options: Options, *, overwrite: bool) -> "ArrayWriter":
        return cls(bulk_write(struct, options, overwrite=overwrite))

    def write(self, iterator: Iterator[Any]) -> Message:
        return Message(self.bulk.run(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.bulk.commit(_results(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        self.bulk.discard_all()


def _results(messages: list[WriterCommitMessage | None]) -> list[Written | None]:
    return [message.written if isinstance(message, Message) else None for message in messages]


def bulk_write(struct: StructType, options: Options, *, overwrite: bool) -> BulkWrite:
    """The plan of a write; what is wrong with the columns is said before any task runs."""
    cluster = options.get("cluster")
    if cluster is not None and parse_flag(cluster, "cluster"):
        raise InvalidRequestError(
            "a Python data source cannot sort its input; use terrazzo.spark.write(df, uri, cluster=True)"
        )
    bulk = plan_bulk_write(
        options.store(), options.cipher(), schema_from_options(struct, options), replaces=overwrite,
        fragment_size=options.size("fragment_size", FRAGMENT_SIZE),
    )  # fmt: skip
    check_columns(struct.fieldNames(), bulk)
    return bulk


def check_columns(given: list[str], bulk: BulkWrite) -> None:
    """That the data have the columns of the array, and no others."""
    held = [field.name for field in bulk.schema.fields]
    lacking, unknown = [n for n in held if n not in given], [n for n in given if n not in held]
    if lacking or unknown:
        told = [f"lack {', '.join(map(repr, lacking))}"] if lacking else []
        told += [f"have {', '.join(map(repr, unknown))} more than the array"] if unknown else []
        raise InvalidRequestError(
            f"the data {' and '.join(told)}; {bulk.store.uri} has {', '.join(map(repr, held))}"
        )
