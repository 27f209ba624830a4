"""The streaming sink: each batch is one commit, and in the array once, however often Spark tries it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from terrazzo.engine.batches import batch_token, is_committed, note_batch
from terrazzo.engine.bulk import BulkWrite, Written
from terrazzo.errors import ConflictError
from terrazzo.spark.options import Options
from terrazzo.spark.writer import bulk_write

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass
class BatchMessage(WriterCommitMessage):
    """What a task wrote, and all that the commit needs to know: it happens in another process."""

    bulk: BulkWrite
    query: str
    written: Written


class ArrayStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, bulk: BulkWrite) -> None:
        self.bulk = bulk

    @classmethod
    def prepared(cls, struct: StructType, options: Options, *, overwrite: bool) -> "ArrayStreamWriter":
        return cls(bulk_write(struct, options, overwrite=overwrite))

    def write(self, iterator: Iterator[Any]) -> BatchMessage:
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY) if context is not None else None
        batch = context.getLocalProperty(_BATCH) if context is not None else None
        if query is None or batch is None:
            raise ConflictError("Spark does not tell a task its query and batch; nothing was written")
        return self.run(iterator, query, int(batch))

    def run(self, data: Any, query: str, batch: int) -> BatchMessage:
        bulk = replace(self.bulk, token=batch_token(query, batch))
        return BatchMessage(bulk, query, bulk.run(data))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        told = _told(messages)
        if not told:
            if not messages:
                self.bulk.commit([])  # a batch without tasks: complete mode still replaces what is there
                return
            raise ConflictError("the results of all tasks were lost on the way; nothing was committed")
        bulk, query = told[0].bulk, told[0].query
        results = [message.written if isinstance(message, BatchMessage) else None for message in messages]
        if is_committed(bulk.store, query, batchId):
            bulk.discard(results)
        else:
            bulk.commit(results)
        note_batch(bulk.store, query, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        # Tasks that failed removed what they wrote; here go the results of the others.
        for message in _told(messages)[:1]:
            message.bulk.discard_all()


def _told(messages: list[WriterCommitMessage | None]) -> list[BatchMessage]:
    return [message for message in messages if isinstance(message, BatchMessage)]
