"""The writers as PySpark sees them: `df.write` and `df.writeStream.format("seglog")` over `writer`.

PySpark pickles the writer into every task; `commit` and `abort` run in a process of the driver. A failed task's
message is None, its staged files go with the staging directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from seglog.clock import SystemClock
from seglog.errors import ConfigError
from seglog.spark.tasks import attempt_id
from seglog.spark.write_options import WriteOptions
from seglog.spark.writer import Commit, StagedFile, discard, stage_rows, staging_of
from seglog.storage.filesystem import LocalFileSystem

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class Staged(WriterCommitMessage):
    """What a task has staged."""

    files: tuple[StagedFile, ...]


class SeglogWriter(DataSourceArrowWriter):
    """Batch writer."""

    def __init__(self, options: WriteOptions) -> None:
        self.options, self.staging = options, staging_of(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Staged(tuple(stage_rows(LocalFileSystem(), self.staging, self.options, iterator, attempt_id())))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        fs = LocalFileSystem()
        try:
            Commit(fs, self.options, SystemClock()).run(_files(messages))
        finally:
            discard(fs, self.staging)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 (PySpark's signature)
        discard(LocalFileSystem(), self.staging)


class SeglogStreamWriter(DataSourceStreamArrowWriter):
    """Stream sink: every batch exactly once, over restarts too."""

    def __init__(self, options: WriteOptions) -> None:
        if options.identity is None:
            raise ConfigError("a stream needs a checkpointLocation (or the option sinkId) to know its batches again")
        self.options, self.staging = options, staging_of(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Staged(tuple(stage_rows(LocalFileSystem(), self.staging, self.options, iterator, attempt_id())))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        fs = LocalFileSystem()
        Commit(fs, self.options, SystemClock(), self.options.identity).run(_files(messages), batchId)
        discard(fs, self.staging)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002 (as above)
        discard(LocalFileSystem(), self.staging)


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[StagedFile]:
    return [file for message in messages if isinstance(message, Staged) for file in message.files]
