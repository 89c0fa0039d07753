"""Rows into partitions: `df.write.format("seglog")`, without a word of Spark (columns: Spark's kafka sink).

1. A task encodes its rows into v2 batches, compressed, and stages them: one file a partition, fsynced, in a directory
   beside the log directory (a broker does not start with a strange directory inside). Offsets, when the rows have
   them, must ascend strictly within a partition.
2. The driver takes the lock and writes a journal that says where each partition ends; then it appends the staged
   batches through the engine, as a replica would: segments, indexes, epochs, snapshots and checkpoints are those of any
   other append. Batches without offsets of their own are numbered behind the log's end.
3. What fails is cut off again, and so is, by the next commit, what a crash left half done.

A stream gives its batches a number: one that the journal says is complete is not appended again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seglog import layout
from seglog.clock import Clock, SystemClock
from seglog.config import LogConfig
from seglog.errors import AppendError, ConfigError, NotALogError, OffsetsOutOfOrderError
from seglog.format.buffers import byte_view
from seglog.format.builder import BatchOptions, encode_columns
from seglog.format.filenames import topic_name_problem
from seglog.log.directory import LogDirectory
from seglog.log.log import Log
from seglog.log.scan import Chunk, SegmentScan
from seglog.model import TopicPartition
from seglog.spark.cleaning_swap import remove_tree
from seglog.spark.write_options import WriteOptions
from seglog.storage.atomic import write_atomically
from seglog.storage.filesystem import File, FileSystem

if TYPE_CHECKING:
    import pyarrow as pa

STAGING_PREFIX = ".seglog-write-"
_APPEND_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class StagedFile:
    """Whole batches of one partition. `first_offset` is None when the driver is to number them."""

    topic: str
    partition: int
    path: str
    records: int
    size: int
    first_offset: int | None
    last_offset: int


# --- in a task ------------------------------------------------------------------------------------------------


class PartitionStager:
    """One partition's rows of one task, on their way into its staged file."""

    def __init__(self, fs: FileSystem, path: Path, name: TopicPartition, options: WriteOptions) -> None:
        self._name, self._options, self.path = name, options, path
        self._file: File = fs.open(path, "create")
        self._size = self._records = 0
        self._first: int | None = None
        self._last = -1

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
        before = np.concatenate(([self._last], offsets[:-1]))
        wrong = np.flatnonzero(offsets <= before)
        if len(wrong):
            i = int(wrong[0])
            what = f"offset {int(offsets[i])} stands behind offset {int(before[i])}"
            if offsets[i] < 0:
                what = f"the offset is {int(offsets[i])} or null"
            raise AppendError(
                f"{self._name}: row {int(row_numbers[i])} of the task: {what}; offsets must ascend strictly in a"
                ' partition: df.repartitionById(n, "partition").sortWithinPartitions("topic", "partition", "offset")'
            )

    def finish(self) -> StagedFile:
        """Makes the file durable."""
        self._file.sync()
        self._file.close()
        return StagedFile(
            self._name.topic,
            self._name.partition,
            str(self.path),
            self._records,
            self._size,
            self._first,
            self._last,
        )


def stage_rows(
    fs: FileSystem, staging: Path, options: WriteOptions, batches: Iterable[pa.RecordBatch], attempt: int
) -> list[StagedFile]:
    """Stages a task's rows. Raises AppendError or ConfigError for a row that cannot be."""
    from seglog.spark.write_columns import split_by_partition

    stagers: dict[TopicPartition, PartitionStager] = {}
    clock, row = SystemClock(), 0
    for batch in batches:
        for name, part, numbers in split_by_partition(batch, options):
            if name not in stagers:
                problem = topic_name_problem(name.topic)
                if problem is not None or name.partition < 0:
                    raise AppendError(f"row {row + int(numbers[0])} of the task: {name}: {problem or 'no partition'}")
                ensure_directory(fs, staging)
                stagers[name] = PartitionStager(fs, staging / f"{name}.{attempt}.batches", name, options)
            stagers[name].add(part, numbers + row, clock.now_ms())
        row += batch.num_rows
    return [stager.finish() for stager in stagers.values()]


# --- on the driver --------------------------------------------------------------------------------------------


def check_place(fs: FileSystem, options: WriteOptions) -> None:
    """NotALogError unless the log directory is there, or could be made."""
    for path in (options.path, *options.path.parents):
        status = fs.status(path)
        if status is not None:
            if not status.is_directory:
                raise NotALogError(path, "not a directory")
            return


def staging_of(options: WriteOptions) -> Path:
    """The name of a job's own staging directory, beside the log directory; of a stream the same in every process."""
    name = uuid.uuid4().hex if options.identity is None else hashlib.sha256(options.identity.encode()).hexdigest()
    return options.path.parent / f"{STAGING_PREFIX}{options.path.name}-{name[:12]}"


def ensure_directory(fs: FileSystem, path: Path) -> None:
    """Makes a directory, and those above it, unless another task just did."""
    if fs.status(path) is None:
        with contextlib.suppress(FileExistsError):
            fs.make_directory(path, parents=True)


def discard(fs: FileSystem, staging: Path) -> None:
    """Removes what was staged."""
    if fs.status(staging) is not None:
        remove_tree(fs, staging)


def sink_name(identity: str | None) -> str:
    """The journal of a stream by its checkpoint location, or the one of batch jobs."""
    if identity is None:
        return ".seglog-write.json"
    return f".seglog-sink-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"


@dataclass(frozen=True, slots=True)
class _Journal:
    batch: int
    done: bool
    ends: dict[str, int]


class Commit:
    """Appends staged files to the partitions of a log directory, all or nothing."""

    def __init__(self, fs: FileSystem, options: WriteOptions, clock: Clock, identity: str | None = None) -> None:
        self._fs, self._options, self._clock = fs, options, clock
        self._journal = options.path / sink_name(identity)

    def run(self, staged: Sequence[StagedFile], batch_id: int | None = None) -> int:
        """Records appended; 0 when the journal says that the stream's batch was appended before.

        Raises LockedError, OffsetsOutOfOrderError and other errors of appending: then nothing is visible.
        """
        ensure_directory(self._fs, self._options.path)
        chosen = LogConfig(segment_bytes=self._options.segment_bytes)
        with LogDirectory.open(
            self._options.path, fs=self._fs, clock=self._clock, config_of=lambda _: chosen, writable=True
        ) as directory:
            known = self._read_journal()
            if known is not None and not known.done:
                self._take_back(directory, known.ends)
            elif known is not None and batch_id is not None and batch_id <= known.batch:
                return 0
            logs = {name: directory.log(name, create=True) for name in _names(staged)}
            ends = {str(name): log.log_end_offset for name, log in logs.items()}
            self._write_journal(batch_id, ends, done=False)
            try:
                for name, log in logs.items():
                    self._append(log, _in_order(name, staged))
                    log.flush()
            except BaseException:
                self._take_back(directory, ends)
                raise
            self._write_journal(batch_id, ends, done=True)
        return sum(file.records for file in staged)

    def _append(self, log: Log, files: Sequence[StagedFile]) -> None:
        epoch = log.leader_epoch
        for file in files:
            if file.first_offset is not None and file.first_offset < log.log_end_offset:
                raise OffsetsOutOfOrderError(
                    f"{log.directory}: rows begin at offset {file.first_offset}, and the log ends at"
                    f" {log.log_end_offset}; two tasks with one partition must not overlap"
                )
            # numbered from 0 in the task: moved behind the log's end
            moved = log.log_end_offset if file.first_offset is None else 0
            for chunk in _chunks(self._fs, Path(file.path), min(_APPEND_BYTES, self._options.segment_bytes)):
                log.append_as_follower(_moved(chunk, moved, epoch), epoch)
        log.update_high_watermark(log.log_end_offset)

    def _take_back(self, directory: LogDirectory, ends: Mapping[str, int]) -> None:
        for text, end in ends.items():
            topic, _, partition = text.rpartition("-")
            name = TopicPartition(topic, int(partition))
            if self._fs.status(directory.path / text) is not None:
                log = directory.log(name)
                if log.log_end_offset > end:
                    log.truncate_to(end)

    def _read_journal(self) -> _Journal | None:
        if self._fs.status(self._journal) is None:
            return None
        try:
            found = json.loads(self._fs.read_bytes(self._journal))
            return _Journal(int(found["batch"]), bool(found["done"]), dict(found["ends"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"the journal of a sink cannot be read ({error})", self._journal) from error

    def _write_journal(self, batch_id: int | None, ends: Mapping[str, int], *, done: bool) -> None:
        text = json.dumps({"batch": -1 if batch_id is None else batch_id, "done": done, "ends": dict(ends)})
        write_atomically(self._fs, self._journal, text.encode())


def _names(staged: Iterable[StagedFile]) -> list[TopicPartition]:
    return sorted({TopicPartition(file.topic, file.partition) for file in staged if file.records})


def _in_order(name: TopicPartition, staged: Iterable[StagedFile]) -> list[StagedFile]:
    """The partition's files by offset, or in the order of the tasks."""
    files = [file for file in staged if (file.topic, file.partition) == (name.topic, name.partition) and file.records]
    return sorted(files, key=lambda file: -1 if file.first_offset is None else file.first_offset)


def _chunks(fs: FileSystem, path: Path, chunk_bytes: int) -> Iterator[Chunk]:
    """Whole batches of at most so many bytes, as an append goes into one segment; a larger batch comes alone."""
    yield from SegmentScan(fs, path, chunk_bytes=chunk_bytes, max_batch_bytes=layout.INT32_MAX)


def _moved(chunk: Chunk, by: int, leader_epoch: int) -> np.ndarray:
    """The chunk's bytes with offsets moved and the epoch set; no checksum covers either (specification 3.1)."""
    data = np.array(chunk.data)
    for position, base in zip(chunk.batches["position"].tolist(), chunk.batches["base_offset"].tolist(), strict=True):
        at = position - chunk.position
        data[at : at + 8] = np.frombuffer((base + by).to_bytes(8, "big"), dtype=np.uint8)
        data[at + 12 : at + 16] = np.frombuffer(leader_epoch.to_bytes(4, "big"), dtype=np.uint8)
    return data
