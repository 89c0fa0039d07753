"""Staged batches on their way into a log: the bytes that the log is to hold, and how many of them it holds.

A staged file holds whole batches as a task encoded them. The log's bytes differ from it in two fields of each batch
that no checksum covers: the base offset, if the batches are numbered as they are appended, and the leader epoch. So
after a crash the log can be compared with the staged files byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.errors import IncompleteError, OffsetsOutOfOrderError
from seglog.log.log import Log
from seglog.model import TopicPartition
from seglog.scan.segment_scan import Chunk, SegmentScan
from seglog.storage.filesystem import FileSystem
from seglog_ask.spark.staged_journal import Placement, StagedFile

_CHUNK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class PlacedChunk:
    """Whole batches as a log is to hold them: `data`, the position of each, and the offset after the last one."""

    data: np.ndarray
    positions: tuple[int, ...]
    first_offset: int
    next_offset: int

    def batches(self) -> Iterator[bytes]:
        """Yields the batches one by one."""
        for begin, end in zip(self.positions, (*self.positions[1:], len(self.data)), strict=True):
            yield self.data[begin:end].tobytes()


@dataclass(frozen=True, slots=True)
class Held:
    """How much of a placement a log holds: `size` bytes of its batches; `followed`: other batches come after them."""

    size: int
    followed: bool


def check_staged(fs: FileSystem, staging: Path, file: StagedFile) -> None:
    """Raises IncompleteError unless the file exists with its size."""
    path = staging / file.name
    status = fs.status(path)
    if status is None:
        raise IncompleteError(
            f"{path}: the rows that a task staged for {file.topic_partition} are not here; do all executors share"
            " this file system?"
        )
    if status.size != file.size:
        raise _damaged(path, status.size, file)


def by_partition(files: Iterable[StagedFile]) -> dict[TopicPartition, tuple[StagedFile, ...]]:
    """Returns the files of each partition, ordered by offset or task; partitions in their order."""
    found: dict[TopicPartition, list[StagedFile]] = {}
    for file in sorted(files, key=lambda one: -1 if one.first_offset is None else one.first_offset):
        found.setdefault(file.topic_partition, []).append(file)
    return {name: tuple(found[name]) for name in sorted(found)}


def placed_at(directory: Path, end: int, epoch: int, files: Sequence[StagedFile]) -> Placement:
    """Places the files of one partition in the log in `directory`, which ends at `end` and is in this leader epoch.

    Raises OffsetsOutOfOrderError for files with offsets of their own that the log, or another file, has.
    """
    following = end
    for file in files:
        if file.first_offset is None:
            continue
        if file.first_offset < end:
            raise OffsetsOutOfOrderError(
                f"{directory}: rows begin at offset {file.first_offset}, and the log ends at {end}"
            )
        if file.first_offset < following:
            raise OffsetsOutOfOrderError(
                f"{directory}: one task has rows up to offset {following - 1}, another from {file.first_offset} on;"
                " two tasks with one partition must not overlap"
            )
        following = file.last_offset + 1
    return Placement(files[0].topic_partition, end, epoch, tuple(files))


def placed_chunks(
    fs: FileSystem, staging: Path, placement: Placement, chunk_bytes: int = _CHUNK_BYTES
) -> Iterator[PlacedChunk]:
    """Yields the batches of a placement as the log is to hold them, in chunks of at most `chunk_bytes` or one batch.

    Raises IncompleteError if a staged file is not as the task left it.
    """
    offset, skipped = placement.start, placement.skipped
    for file in placement.files:
        if skipped >= file.size:
            skipped -= file.size
            continue
        for chunk in _staged_chunks(fs, staging / file.name, file, skipped, chunk_bytes):
            by = offset - int(chunk.batches["base_offset"][0]) if file.first_offset is None else 0
            moved = _moved(chunk, by, placement.epoch)
            yield moved
            offset = moved.next_offset
        skipped = 0


def _staged_chunks(fs: FileSystem, path: Path, file: StagedFile, start: int, chunk_bytes: int) -> Iterator[Chunk]:
    """Yields the chunks of a staged file from byte `start` on, checked against the task's description.

    No checksum covers the offsets, and no batch tells where a file ends.
    """
    scan = SegmentScan(fs, path, start, chunk_bytes=chunk_bytes, held_bytes=layout.INT32_MAX)
    numbered = 0 if file.made is None else file.made.segment.base_offset
    reached, records = (numbered if file.first_offset is None else file.first_offset) - 1, 0
    for chunk in scan:
        bases, lasts = chunk.batches["base_offset"], chunk.batches["last_offset"]
        begins_right = start > 0 or records > 0 or bases[0] == reached + 1
        ascend = (bases[1:] > lasts[:-1]).all() and bases[0] > reached and (bases <= lasts).all()
        if not begins_right or not ascend or lasts[-1] > file.last_offset:
            raise _damaged(path, int(chunk.batches["position"][0]), file)
        yield chunk
        reached, records = int(lasts[-1]), records + int(chunk.batches["count"].sum(dtype=np.int64))
    position = 0 if scan.end is None else scan.end.position
    if position != file.size or reached != file.last_offset or (start == 0 and records != file.records):
        raise _damaged(path, position, file)


def append_placed(log: Log, staging: Path, placement: Placement, staged_fs: FileSystem | None = None) -> None:
    """Appends a placement's batches to the end of a log; durable on return. `staged_fs` holds the staged files, if it
    is not the log's own file system.

    Raises the errors of appending, and IncompleteError if the log does not take every batch.
    """
    fs = staged_fs or log.fs
    for chunk in placed_chunks(fs, staging, placement, min(_CHUNK_BYTES, log.config.segment_bytes)):
        log.append_as_follower(chunk.data, placement.epoch)
        if log.log_end_offset != chunk.next_offset:
            raise IncompleteError(
                f"{log.directory}: the log ends at {log.log_end_offset} after an append up to {chunk.next_offset}"
            )
    log.flush()
    log.update_high_watermark(log.log_end_offset)


def held(log: Log, staging: Path, placement: Placement) -> Held:
    """Returns how much of a placement a log holds from its start on.

    Raises FileNotFoundError if the log holds anything there and the staged files are gone.
    """
    if log.log_end_offset <= placement.start:
        return Held(0, followed=False)
    expected = (batch for chunk in placed_chunks(log.fs, staging, placement) for batch in chunk.batches())
    size = 0
    for found in _batches_from(log, placement.start):
        if found != next(expected, None):
            return Held(size, followed=True)
        size += len(found)
    return Held(size, followed=False)


def _batches_from(log: Log, offset: int) -> Iterator[bytes]:
    """Yields the bytes of each batch that reaches `offset` or lies after it."""
    while offset < log.log_end_offset:
        fetched = log.read(offset, _CHUNK_BYTES, None)
        for row in fetched.batches:
            begin = int(row["position"]) - fetched.position
            yield fetched.data[begin : begin + int(row["size"])].tobytes()
        if fetched.next_offset <= offset:
            raise IncompleteError(f"{log.directory}: nothing can be read at offset {offset}")
        offset = fetched.next_offset


def _moved(chunk: Chunk, by: int, leader_epoch: int) -> PlacedChunk:
    data = np.array(chunk.data)
    positions = tuple(position - chunk.position for position in chunk.batches["position"].tolist())
    epoch = np.frombuffer(leader_epoch.to_bytes(4, "big"), dtype=np.uint8)
    for at, base in zip(positions, chunk.batches["base_offset"].tolist(), strict=True):
        data[at : at + layout.LENGTH_OFFSET] = np.frombuffer((base + by).to_bytes(8, "big"), dtype=np.uint8)
        data[at + layout.PARTITION_LEADER_EPOCH_OFFSET : at + layout.MAGIC_OFFSET] = epoch
    first, last = int(chunk.batches["base_offset"][0]), int(chunk.batches["last_offset"][-1])
    return PlacedChunk(data, positions, first + by, last + by + 1)


def _damaged(path: Path, position: int, file: StagedFile) -> IncompleteError:
    return IncompleteError(
        f"{path}: position {position}: not the {file.records} records ({file.size} bytes) that a task staged for"
        f" {file.topic_partition}; run it again"
    )
