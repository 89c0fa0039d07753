"""The writers as PySpark sees them: `df.write` and `df.writeStream.format("seglog")` over a `Sink`.

PySpark pickles the writer into every task, and makes another one for `commit` and `abort`, in a process of the
driver: what both must know comes with the tasks' messages. The message of a failed task is None.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from seglog.errors import UnsupportedError
from seglog.log.append_journal import StagedFile, StreamBatch
from seglog.spark.tasks import query_id
from seglog.spark.write_options import WriteOptions
from seglog.spark.writer import checkpoint_entry
from seglog.storage.local import LocalFileSystem

if TYPE_CHECKING:
    import pyarrow as pa


class Sink(Protocol):
    """Where rows go: a log directory (`writer.LocalSink`), or below a prefix (`object_sink.ObjectSink`)."""

    @property
    def options(self) -> WriteOptions: ...

    def stage(self, owner: str, batches: Iterable[pa.RecordBatch]) -> tuple[StagedFile, ...]:
        """In a task: puts its rows where `commit` finds them."""
        ...

    def commit(self, owner: str, files: Sequence[StagedFile], stream: StreamBatch | None = None) -> int:
        """On the driver: makes what was staged part of the logs, all or nothing. Gives the records, 0 for a batch
        that was committed before."""
        ...

    def discard(self, owner: str) -> None:
        """On the driver: removes what was staged for a write that has ended."""
        ...


@dataclass
class Staged(WriterCommitMessage):
    """What a task has staged, and for whom: the id of a job, or of a stream's query."""

    owner: str
    files: tuple[StagedFile, ...]


class SeglogWriter(DataSourceArrowWriter):
    """Batch writer. The one of `commit` is a copy of the one of the tasks."""

    def __init__(self, sink: Sink) -> None:
        self.sink, self.owner = sink, uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Staged(self.owner, self.sink.stage(self.owner, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.sink.commit(self.owner, _files(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 (PySpark's signature)
        self.sink.discard(self.owner)


class SeglogStreamWriter(DataSourceStreamArrowWriter):
    """Stream sink: every batch exactly once, over restarts too."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        owner = query_id()
        if owner is None:
            raise UnsupportedError("this stream's batches have no query id: it is not a micro-batch stream")
        return Staged(owner, self.sink.stage(owner, iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        entry = checkpoint_entry(LocalFileSystem(), self.sink.options, batchId)
        for owner in _owners(messages):
            self.sink.commit(owner, _files(messages), StreamBatch(owner, batchId, entry))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002 (as above)
        for owner in _owners(messages):
            self.sink.discard(owner)


def _owners(messages: Sequence[WriterCommitMessage | None]) -> set[str]:
    """The one query that the tasks ran for; none when there was no task."""
    return {message.owner for message in messages if isinstance(message, Staged)}


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[StagedFile]:
    return [file for message in messages if isinstance(message, Staged) for file in message.files]
