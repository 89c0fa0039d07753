"""The writers as PySpark sees them: `df.write` and `df.writeStream.format("seglog")` over `writer`.

PySpark pickles the writer into every task, and makes another one for `commit` and `abort`, in a process of the
driver: what both must know comes with the tasks' messages. The message of a failed task is None.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from seglog.clock import SystemClock
from seglog.errors import UnsupportedError
from seglog.log.append_journal import StagedFile, StreamBatch
from seglog.log.unfinished_append import discard_staged
from seglog.spark.tasks import query_id
from seglog.spark.write_options import WriteOptions
from seglog.spark.writer import checkpoint_entry, commit, stage_rows, staging_of
from seglog.storage.filesystem import LocalFileSystem

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class Staged(WriterCommitMessage):
    """What a task has staged, and for whom: the id of a job, or of a stream's query."""

    owner: str
    files: tuple[StagedFile, ...]


class SeglogWriter(DataSourceArrowWriter):
    """Batch writer. The one of `commit` is a copy of the one of the tasks."""

    def __init__(self, options: WriteOptions) -> None:
        self.options, self.owner = options, uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _staged(self.options, self.owner, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit(LocalFileSystem(), self.options, SystemClock(), self.owner, _files(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 (PySpark's signature)
        _discard(self.options, self.owner)


class SeglogStreamWriter(DataSourceStreamArrowWriter):
    """Stream sink: every batch exactly once, over restarts too."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        owner = query_id()
        if owner is None:
            raise UnsupportedError("this stream's batches have no query id: it is no micro-batch stream")
        return _staged(self.options, owner, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        fs = LocalFileSystem()
        for owner in _owners(messages):
            stream = StreamBatch(owner, batchId, checkpoint_entry(fs, self.options, batchId))
            commit(fs, self.options, SystemClock(), owner, _files(messages), stream)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002 (as above)
        for owner in _owners(messages):
            _discard(self.options, owner)


def _staged(options: WriteOptions, owner: str, batches: Iterator[pa.RecordBatch]) -> Staged:
    staging = staging_of(options.path, owner)
    return Staged(owner, tuple(stage_rows(LocalFileSystem(), staging, options, batches)))


def _discard(options: WriteOptions, owner: str) -> None:
    discard_staged(LocalFileSystem(), options.path, staging_of(options.path, owner))


def _owners(messages: Sequence[WriterCommitMessage | None]) -> set[str]:
    """The one query that the tasks ran for; none when there was no task."""
    return {message.owner for message in messages if isinstance(message, Staged)}


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[StagedFile]:
    return [file for message in messages if isinstance(message, Staged) for file in message.files]
