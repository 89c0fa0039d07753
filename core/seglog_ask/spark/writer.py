"""The task's part of a write: encodes Arrow rows into v2 batches and stages them (columns: Spark's kafka sink).

Each partition's rows go into files of compressed batches, fsynced, in a staging directory. Offsets, if the rows have
them, must ascend strictly within a partition; otherwise the driver numbers the batches when it appends them
(`seglog_ask.spark.sinks`).
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seglog.clock import SystemClock
from seglog.errors import AppendError
from seglog.format.builder import BatchOptions, encode_columns
from seglog.format.checksum import byte_view
from seglog.format.filenames import topic_name_problem
from seglog.model import TopicPartition
from seglog.storage.filesystem import PRIVATE, Access, File, FileSystem
from seglog_ask.spark.staged_journal import StagedFile
from seglog_ask.spark.write_options import WriteOptions
from seglog_ask.table.engines.incoming import records_of


class PartitionStager:
    """Writes one partition's rows of one task into a staged file."""

    def __init__(
        self, fs: FileSystem, staging: Path, name: TopicPartition, options: WriteOptions, after: int = -1
    ) -> None:
        self._topic_partition, self._options, self._after = name, options, after
        # unique among all attempts, including the same attempt of an earlier application
        self._name = f"{uuid.uuid4().hex}.batches"
        self._file: File = fs.open(staging / self._name, "create_new")
        self._size = self._records = 0
        self._first: int | None = None
        self._last = -1

    @property
    def last_own_offset(self) -> int:
        """The last offset that came with the rows; -1 if none did."""
        return self._after if self._first is None else self._last

    def takes(self, size: int) -> bool:
        """True if rows of `size` bytes still fit into one segment with those written, even if encoding doubles them."""
        return self._size == 0 or self._size + 2 * size <= self._options.segment_bytes

    def add(self, batch: pa.RecordBatch, row_numbers: np.ndarray, now_ms: int) -> None:
        """Encodes rows. `row_numbers` are their places in the task, for messages."""
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
    """Stages a task's rows. Raises AppendError for a row that no log can take."""
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


def ensure_staging(fs: FileSystem, staging: Path, log_directory: Path) -> None:
    """Makes a staging directory unless another task has, accessible to those who may access the log directory."""
    found = fs.status(log_directory)
    access = PRIVATE if found is None else Access.within(found)
    if fs.status(staging, follow=False) is None:
        with contextlib.suppress(FileExistsError):
            fs.make_directory(staging.parent, parents=True)
            fs.make_directory(staging, access=access)


# --- columns --------------------------------------------------------------------------------------------------


def split_by_partition(
    batch: pa.RecordBatch, options: WriteOptions
) -> Iterator[tuple[TopicPartition, pa.RecordBatch, np.ndarray]]:
    """Yields the rows of each partition, in order, with their places in the batch.

    Raises AppendError for a row without a topic or partition if the option is missing too.
    """
    count = batch.num_rows
    if not count:
        return
    topics = batch.column("topic") if "topic" in batch.schema.names else None
    partitions = batch.column("partition") if "partition" in batch.schema.names else None
    for name, column, default in (("topic", topics, options.topic), ("partition", partitions, options.partition)):
        if column is not None and column.null_count and default is None:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise AppendError(f"row {row} of a batch has no {name}, and the option {name} is not set")
    codes = np.zeros(count, dtype=np.int64)
    names = [options.topic]
    if topics is not None:
        filled = topics if options.topic is None else pc.fill_null(topics, options.topic)
        encoded = filled.dictionary_encode()
        names, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)
    numbers = np.full(count, options.partition, dtype=np.int64)
    if partitions is not None:
        numbers = pc.fill_null(partitions, options.partition).to_numpy().astype(np.int64)
    both = codes << 32 | (numbers & 0xFFFFFFFF)
    for value in np.unique(both).tolist():
        rows = np.flatnonzero(both == value)
        topic = names[value >> 32]
        assert topic is not None  # `check_schema` requires a column or the option
        part = batch if len(rows) == count else batch.take(pa.array(rows))
        yield TopicPartition(topic, int(numbers[rows[0]])), part, rows
