"""Rows into partitions: `df.write.format("seglog")`, without a word of Spark (columns: Spark's kafka sink).

1. A task encodes its rows into v2 batches, compressed, and stages them: one file a partition, fsynced, in a directory
   beside the log directory (a broker does not start with a strange directory inside). Offsets, when the rows have
   them, must ascend strictly within a partition.
2. The driver appends what the tasks have staged, all of it or nothing (`log.staged_append`). Batches without offsets of
   their own are numbered from the log's end on.

A batch of a stream is known by the id of its query and its number: one that comes twice is appended once.
"""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seglog.clock import Clock, SystemClock
from seglog.configuration.keys import LogConfig
from seglog.errors import AppendError, NotALogError
from seglog.format.builder import BatchOptions, encode_columns
from seglog.format.checksum import byte_view
from seglog.format.filenames import topic_name_problem
from seglog.log.append_journal import StagedFile, StreamBatch
from seglog.log.staged_append import StagedAppend
from seglog.log.unfinished_append import discard_staged
from seglog.model import TopicPartition
from seglog.spark.write_options import WriteOptions
from seglog.storage.filesystem import PRIVATE, Access, File, FileSystem
from seglog.storage.local import LocalFileSystem

if TYPE_CHECKING:
    import pyarrow as pa

STAGING_PREFIX = ".seglog-write-"
_SHOWN_NAME = 64  # of the log directory's name in that of a staging directory


# --- in a task ------------------------------------------------------------------------------------------------


class PartitionStager:
    """One partition's rows of one task, on their way into its staged file."""

    def __init__(
        self, fs: FileSystem, staging: Path, name: TopicPartition, options: WriteOptions, after: int = -1
    ) -> None:
        self._topic_partition, self._options, self._after = name, options, after
        # a name that no other attempt has, nor the same attempt of an application that ran before
        self._name = f"{uuid.uuid4().hex}.batches"
        self._file: File = fs.open(staging / self._name, "create_new")
        self._size = self._records = 0
        self._first: int | None = None
        self._last = -1

    @property
    def last_own_offset(self) -> int:
        """The last offset that rows have brought; -1 where they brought none."""
        return self._after if self._first is None else self._last

    def takes(self, size: int) -> bool:
        """Whether rows of so many bytes, at most twice as many when they are encoded, still fit into one segment with
        those that are here.
        """
        return self._size == 0 or self._size + 2 * size <= self._options.segment_bytes

    def add(self, batch: pa.RecordBatch, row_numbers: np.ndarray, now_ms: int) -> None:
        """Encodes rows. `row_numbers` are their places in the task, for messages."""
        from seglog.spark.write_columns import records_of

        records = records_of(batch, now_ms)
        offsets = records.rows["offset"]
        own = "offset" in batch.schema.names
        if own:
            self._check_ascending(offsets, row_numbers)
        else:
            offsets[:] = np.arange(self._last + 1, self._last + 1 + len(offsets))
        built = BatchOptions(codec=self._options.codec, batch_bytes=self._options.batch_bytes, leader_epoch=0)
        for piece in encode_columns(records, int(offsets[0]), built, keep_offsets=True):
            self._file.write_at(self._size, byte_view(piece.data))
            self._size += len(piece.data)
        self._first = int(offsets[0]) if own and self._first is None else self._first
        self._last = int(offsets[-1])
        self._records += len(offsets)

    def _check_ascending(self, offsets: np.ndarray, row_numbers: np.ndarray) -> None:
        before = np.concatenate(([max(self._last, self._after)], offsets[:-1]))
        wrong = np.flatnonzero(offsets <= before)
        if len(wrong):
            i = int(wrong[0])
            what = f"offset {int(offsets[i])} comes after offset {int(before[i])}"
            if offsets[i] < 0:
                what = f"the offset is {int(offsets[i])} or null"
            raise AppendError(
                f"{self._topic_partition}: row {int(row_numbers[i])} of the task: {what}; offsets must ascend strictly"
                ' in a partition: df.repartitionById(n, "partition")'
                '.sortWithinPartitions("topic", "partition", "offset")'
            )

    def finish(self) -> StagedFile:
        """Makes the file durable."""
        self._file.sync()
        self._file.close()
        return StagedFile(self._topic_partition, self._name, self._records, self._size, self._first, self._last)


def stage_rows(
    fs: FileSystem, staging: Path, options: WriteOptions, batches: Iterable[pa.RecordBatch]
) -> list[StagedFile]:
    """Stages a task's rows. Raises AppendError or ConfigError for a row that cannot be."""
    from seglog.spark.write_columns import split_by_partition

    stagers: dict[TopicPartition, PartitionStager] = {}
    full: list[StagedFile] = []
    clock, row = SystemClock(), 0
    for batch in batches:
        for name, part, numbers in split_by_partition(batch, options):
            if name not in stagers:
                problem = topic_name_problem(name.topic)
                if problem is not None or name.partition < 0:
                    raise AppendError(f"row {row + int(numbers[0])} of the task: {name}: {problem or 'no partition'}")
                ensure_staging(fs, staging, options.path)
                stagers[name] = PartitionStager(fs, staging, name, options)
            elif not stagers[name].takes(part.nbytes):
                full.append(stagers[name].finish())
                stagers[name] = PartitionStager(fs, staging, name, options, stagers[name].last_own_offset)
            stagers[name].add(part, numbers + row, clock.now_ms())
        row += batch.num_rows
    return [*full, *(stager.finish() for stager in stagers.values())]


def staging_of(log_directory: Path, owner: str) -> Path:
    """The staging directory of a job or stream, beside the log directory. `owner`: a job's own id, a query's id."""
    return log_directory.parent / f"{STAGING_PREFIX}{log_directory.name[:_SHOWN_NAME]}-{owner}"


def ensure_staging(fs: FileSystem, staging: Path, log_directory: Path) -> None:
    """Makes a staging directory, unless another task just did: for those who may see the log directory."""
    found = fs.status(log_directory)
    access = PRIVATE if found is None else Access.within(found)
    if fs.status(staging, follow=False) is None:
        with contextlib.suppress(FileExistsError):
            fs.make_directory(staging.parent, parents=True)
            fs.make_directory(staging, access=access)


# --- on the driver --------------------------------------------------------------------------------------------


def check_place(fs: FileSystem, options: WriteOptions) -> None:
    """NotALogError unless the log directory is there, or could be made."""
    for path in (options.path, *options.path.parents):
        status = fs.status(path)
        if status is not None:
            if not status.is_directory:
                raise NotALogError(path, "not a directory")
            return


def commit(
    fs: FileSystem,
    options: WriteOptions,
    clock: Clock,
    owner: str,
    files: Sequence[StagedFile],
    stream: StreamBatch | None = None,
) -> int:
    """Appends what the tasks of a job, or of a stream's batch, have staged; what was staged goes.

    Gives the records appended, 0 for a batch that was appended before. Errors are those of `StagedAppend.run`.
    """
    fs.make_directory(options.path, parents=True)
    config = LogConfig(segment_bytes=options.segment_bytes)
    append = StagedAppend(fs, options.path, clock, lambda _: config, lock_wait_ms=options.lock_wait_ms)
    staging = staging_of(options.path, owner)
    try:
        return append.run(staging, files, stream)
    finally:
        discard_staged(fs, options.path, staging)


@dataclass(frozen=True, slots=True)
class LocalSink:
    """The sink of a log directory, which driver and executors share."""

    options: WriteOptions

    def stage(self, owner: str, batches: Iterable[pa.RecordBatch]) -> tuple[StagedFile, ...]:
        staging = staging_of(self.options.path, owner)
        return tuple(stage_rows(LocalFileSystem(), staging, self.options, batches))

    def commit(self, owner: str, files: Sequence[StagedFile], stream: StreamBatch | None = None) -> int:
        return commit(LocalFileSystem(), self.options, SystemClock(), owner, files, stream)

    def discard(self, owner: str) -> None:
        discard_staged(LocalFileSystem(), self.options.path, staging_of(self.options.path, owner))


def checkpoint_entry(fs: FileSystem, options: WriteOptions, batch: int) -> str:
    """A digest of what a stream's checkpoint says of a batch (its offsets, and when they were fixed).

    Spark writes it before the batch runs, and runs it again by it. "" where this process cannot see the checkpoint.
    """
    if options.checkpoint is None:
        return ""
    path = options.checkpoint / "offsets" / str(batch)
    if fs.status(path) is None:
        return ""
    return hashlib.sha256(fs.read_bytes(path)).hexdigest()
