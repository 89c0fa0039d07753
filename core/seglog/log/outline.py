"""A log as names, sizes, indexes, snapshots and checkpoints show it. No `.log` file is opened.

The rules of retention and of the cleaner work on an outline as they do on an open log (`LogFacts`), so that a report on
ten thousand partitions beside a running broker costs no read of data. What only records tell is bounded, not guessed:

- The log ends at `log_end_offset` or later: at the offset after the last entries of the active segment's indexes, at
  the newest snapshot's, or at a checkpoint's, whichever is the largest.
- The largest timestamp of the active segment is that of its time index, which lacks the last few KiB.
- A transaction is *seen open* at the newest snapshot, which a broker writes when it rolls a segment. Whether it was
  committed since is in the active segment; that it was aborted, its transaction index tells.
- A segment's first timestamp is that of its first time index entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from seglog.configuration.keys import LogConfig
from seglog.errors import CorruptionError, RefusedError, UntrustedLinkError
from seglog.format import filenames
from seglog.format.producer_snapshot import NO_OFFSET, decode_snapshot
from seglog.log.segment_list import SegmentList
from seglog.model import NO_TIMESTAMP, TopicPartition
from seglog.scan.index_files import index_rows, small_indexes
from seglog.scan.listing import PartitionListing, SegmentFiles
from seglog.storage.filesystem import FileSystem

_EMPTY_SNAPSHOT_BYTES = 10  # the header of a snapshot without producers
_MOST_TIMES = 256
_NO_TIMES = np.zeros(0, dtype=[("timestamp", np.int64), ("offset", np.int64)])


class LogFacts(Protocol):
    """What the rules of retention and of the cleaner ask of a log: an open one, or an outline."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def config(self) -> LogConfig: ...

    @property
    def segments(self) -> SegmentList[Any]: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def last_stable_offset(self) -> int: ...


@dataclass(frozen=True, slots=True)
class SeenOpen:
    """A transaction that was open at offset `seen_at`, the newest snapshot's: records after it were not read.

    `last_timestamp` is its producer's (epoch milliseconds).
    """

    producer_id: int
    first_offset: int
    last_timestamp: int
    seen_at: int


@dataclass
class OutlinedSegment:
    """A segment as its names and its time index show it. The index is read at first use."""

    fs: FileSystem
    files: SegmentFiles
    held: Mapping[str, bytes] = field(default_factory=dict)  # small indexes that were read already, by name

    @property
    def base_offset(self) -> int:
        return self.files.base_offset

    @property
    def size(self) -> int:
        return self.files.size

    @property
    def modified_ms(self) -> int:
        """The modification time of the `.log` (epoch milliseconds)."""
        return self.files.modified_ms

    @cached_property
    def times(self) -> np.ndarray:
        """Entries of the time index, the first, the last and at most 254 between them: columns `timestamp`, `offset`.

        None if it is missing or cannot be read. A log has more entries in all than fit memory.
        """
        rows = read_entries(self.fs, self.files.time_index, self.base_offset, self.held)
        if len(rows) <= _MOST_TIMES:
            return rows
        return rows[np.linspace(0, len(rows) - 1, _MOST_TIMES).astype(np.int64)]

    @cached_property
    def max_timestamp(self) -> int:
        return int(self.times["timestamp"][-1]) if len(self.times) else NO_TIMESTAMP

    @cached_property
    def offset_of_max_timestamp(self) -> int:
        return int(self.times["offset"][-1]) if len(self.times) else NO_OFFSET

    def largest_timestamp(self) -> int:
        """Returns the last time index entry's timestamp, or the modification time (epoch milliseconds)."""
        return self.max_timestamp if self.max_timestamp >= 0 else self.modified_ms

    def first_batch_timestamp(self) -> int:
        """Returns the first time index entry's timestamp, -1 if there is none."""
        return int(self.times["timestamp"][0]) if len(self.times) else NO_TIMESTAMP


@dataclass(frozen=True)
class OutlinedLog:
    """A log of at least one segment. `high_watermark` is the checkpoint's, or the log end."""

    topic_partition: TopicPartition
    config: LogConfig
    segments: SegmentList[OutlinedSegment]
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    transactions: tuple[SeenOpen, ...] = ()

    @property
    def last_stable_offset(self) -> int:
        """The first offset of a transaction that was seen open, else the log end."""
        return min((one.first_offset for one in self.transactions), default=self.log_end_offset)


def outline(
    fs: FileSystem, listing: PartitionListing, key: TopicPartition, config: LogConfig, checkpoints: Mapping[str, int]
) -> OutlinedLog | None:
    """Returns the outline of a listed partition; None without a segment, and for a log of Kafka 0.7.

    `checkpoints` are the partition's offsets in the log directory's checkpoints, by the files' names.
    """
    if not listing.segments or listing.format != "kafka":
        return None
    held = small_indexes(fs, listing)
    segments = SegmentList(OutlinedSegment(fs, files, held) for files in listing.segments)
    end = _least_end(fs, listing, segments.active, checkpoints)
    watermark = checkpoints.get(filenames.HIGH_WATERMARK_CHECKPOINT)
    start = checkpoints.get(filenames.LOG_START_OFFSET_CHECKPOINT, 0)
    return OutlinedLog(
        topic_partition=key,
        config=config,
        segments=segments,
        log_start_offset=min(max(start, segments.first.base_offset), end),
        log_end_offset=end,
        high_watermark=end if watermark is None else min(watermark, end),
        transactions=seen_open(fs, listing),
    )


def _least_end(
    fs: FileSystem, listing: PartitionListing, active: OutlinedSegment, checkpoints: Mapping[str, int]
) -> int:
    """Returns the largest offset up to which the log is known to reach."""
    known = [active.base_offset]
    for name in (filenames.HIGH_WATERMARK_CHECKPOINT, filenames.RECOVERY_POINT_CHECKPOINT):
        known.append(checkpoints.get(name, 0))
    known += [snapshot.offset for snapshot in listing.snapshots[-1:]]
    for rows in (read_entries(fs, active.files.offset_index, active.base_offset, active.held), active.times):
        known += [int(rows["offset"][-1]) + 1] if len(rows) else []
    return max(known)


def read_entries(fs: FileSystem, path: Path | None, base_offset: int, held: Mapping[str, bytes]) -> np.ndarray:
    """Returns the entries of an index, from what is `held` (`small_indexes`) or from its file; none if it is missing,
    gone by now, or too large for one.

    Damage is for `verify` to find: an entry that leads nowhere is a wrong hint here, no error.
    """
    if path is None:
        return _NO_TIMES
    try:
        return index_rows(fs, path, base_offset, held)
    except UntrustedLinkError:
        raise
    except (FileNotFoundError, RefusedError):
        return _NO_TIMES


def seen_open(fs: FileSystem, listing: PartitionListing) -> tuple[SeenOpen, ...]:
    """Returns the transactions that were open at the newest snapshot and were not aborted since, by first offset.

    None if the snapshot cannot be read: a broker rebuilds such a one, and `verify` says why.
    """
    newest = listing.snapshots[-1] if listing.snapshots else None
    if newest is None or newest.size <= _EMPTY_SNAPSHOT_BYTES:
        return ()
    try:
        entries = decode_snapshot(fs.read_bytes(newest.path), newest.path)
    except (FileNotFoundError, CorruptionError, RefusedError):
        return ()
    found = [
        SeenOpen(one.producer_id, one.current_txn_first_offset, one.timestamp, newest.offset)
        for one in entries
        if one.current_txn_first_offset != NO_OFFSET
    ]
    aborted = _aborted(fs, listing, newest.offset) if found else frozenset()
    alive = (one for one in found if (one.producer_id, one.first_offset) not in aborted)
    return tuple(sorted(alive, key=lambda one: one.first_offset))


def _aborted(fs: FileSystem, listing: PartitionListing, offset: int) -> frozenset[tuple[int, int]]:
    """Returns the (producer, first offset) of transactions that the segments from `offset` on abort."""
    from seglog.log.indexes import TransactionIndex  # few partitions have an open transaction

    found: set[tuple[int, int]] = set()
    for number, segment in enumerate(listing.segments):
        ends_before = number + 1 < len(listing.segments) and listing.segments[number + 1].base_offset <= offset
        if segment.transaction_index is None or ends_before:
            continue
        try:
            entries = TransactionIndex(fs, segment.transaction_index, segment.base_offset).entries
        except (FileNotFoundError, CorruptionError):
            continue
        found.update((entry.producer_id, entry.first_offset) for entry in entries)
    return frozenset(found)
