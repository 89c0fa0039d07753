"""The open segments of a log, and one consistent state of them (Kafka: LogSegments).

`log.segment_list` has the queries across them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from seglog.errors import OffsetOutOfRangeError
from seglog.log.indexes import AbortedTransaction
from seglog.log.producer_state import ProducerStateManager
from seglog.log.segment import LogSegment
from seglog.log.segment_list import SegmentList, base_offset_of
from seglog.model import NO_LEADER_EPOCH, Isolation
from seglog.scan.listing import PartitionListing, SegmentFiles
from seglog.storage.filesystem import File, FileSystem
from seglog.units import count_text


class LogSegments(SegmentList[LogSegment]):
    """The open segments of a log."""

    def close(self, writable: bool = False) -> None:
        """Closes every segment."""
        for segment in self._segments:
            segment.close(writable)


@dataclass(frozen=True)
class LogView:
    """One consistent state of a log: its offsets and its segments, with `active_size` bytes in the last one, followed
    by `trailing_bytes` that are not a whole batch.

    `find_last_stable_offset` is called once, for the first reader of committed records: it may read producers.
    """

    segments: tuple[LogSegment, ...]
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    find_last_stable_offset: Callable[[], int]
    active_size: int
    trailing_bytes: int

    def __repr__(self) -> str:
        return (
            f"<LogView: offsets {self.log_start_offset} to {self.log_end_offset},"
            f" {count_text(len(self.segments), 'segment')}>"
        )

    @cached_property
    def last_stable_offset(self) -> int:
        """The first offset of the earliest open transaction, at most the high watermark."""
        return self.find_last_stable_offset()

    def floor(self, offset: int) -> int:
        """Returns the index of the last segment whose base offset is at most `offset`, or -1."""
        return bisect_right(self.segments, offset, key=base_offset_of) - 1

    def first_segment(self, offset: int) -> int:
        """Returns the index of the segment in which a read from `offset` begins.

        Raises OffsetOutOfRangeError outside [log start, log end].
        """
        index = self.floor(offset)
        if not self.log_start_offset <= offset <= self.log_end_offset or index < 0:
            raise OffsetOutOfRangeError(offset, self.log_start_offset, self.log_end_offset)
        return index

    def size_of(self, index: int) -> int:
        """Returns the bytes of segment `index` that belong to this view."""
        return self.active_size if index == len(self.segments) - 1 else self.segments[index].size

    def search_start(self, index: int, offset: int, file: File | None = None) -> int:
        """Returns the byte position in segment `index` to start looking for `offset`, by the offset index; `file` is
        its `.log` if that is open.
        """
        return self.segments[index].indexed_position(offset, self.size_of(index), file)

    def limit(self, isolation: Isolation | None) -> int:
        """Returns the first hidden offset: high watermark, last stable offset, or for None (a replica) the log end."""
        if isolation is None:
            return self.log_end_offset
        committed = isolation == Isolation.READ_COMMITTED
        return self.last_stable_offset if committed else self.high_watermark


def last_leader_epoch(segments: LogSegments) -> int:
    """Returns the leader epoch of the log's last record batch (magic 2), or -1."""
    for segment in reversed(segments.snapshot()):
        if segment.size:
            return segment.last_leader_epoch()
    return NO_LEADER_EPOCH


def collect_aborted(
    segments: Sequence[LogSegment], first: int, first_offset: int, upper_offset: int
) -> list[AbortedTransaction]:
    """Returns the aborted transactions that touch [`first_offset`, `upper_offset`), from the indexes of
    `segments[first:]`: a transaction's entry lies in the segment of its marker.

    Raises CorruptIndexError for an index that cannot be read. Kafka: UnifiedLog.collectAbortedTransactions.
    """
    found: list[AbortedTransaction] = []
    for segment in segments[first:]:
        more, complete = segment.transaction_index.collect(first_offset, upper_offset)
        found += more
        if complete:
            break
    return found


class OffsetIndexRefusedError(OSError):
    """A broker cannot open the offset index of the segment; only where its behaviour is predicted."""

    def __init__(self, base_offset: int) -> None:
        super().__init__("producers are read from its segment, and the offset index cannot be opened")
        self.base_offset = base_offset


def rebuild_producer_state(
    producers: ProducerStateManager,
    segments: LogSegments,
    log_start_offset: int,
    last_offset: int,
    now_ms: int,
    *,
    reload_from_clean_shutdown: bool,
    unreadable_indexes: Collection[int] = (),
) -> None:
    """Brings `producers` to the state at `last_offset`, without producers that have expired at `now_ms`.

    Raises OffsetIndexRefusedError where that takes one of `unreadable_indexes`, offset indexes by base offset.

    1. After a clean stop without any snapshot the state is empty, with empty snapshots at the bases of the last two
       segments and at the end: the log was written before snapshots existed.
    2. Otherwise load the newest usable snapshot, and replay the batches after it from the segments. Take snapshots on
       the way at the bases of the last two segments, and at the end.

    Kafka: UnifiedLog.rebuildProducerState.
    """
    at = [segment.base_offset for segment in segments.snapshot()[-2:]]
    if producers.latest_snapshot_offset is None and reload_from_clean_shutdown:
        for offset in [*at, last_offset]:
            producers.end_offset = offset
            producers.take_snapshot()
        return
    was_empty = producers.is_empty and producers.end_offset >= last_offset
    producers.truncate_and_reload(log_start_offset, last_offset, now_ms)
    if last_offset > producers.end_offset and not was_empty:
        last_segment = segments.floor(last_offset)
        for segment in segments.between(producers.end_offset, last_offset):
            producers.end_offset = max(segment.base_offset, producers.end_offset, log_start_offset)
            if segment.base_offset in at:
                producers.take_snapshot()
            if segment.base_offset in unreadable_indexes:
                raise OffsetIndexRefusedError(segment.base_offset)
            _replay_segment(producers, segment, last_offset if segment is last_segment else None)
    producers.end_offset = last_offset
    producers.take_snapshot()


def _replay_segment(producers: ProducerStateManager, segment: LogSegment, last_offset: int | None) -> None:
    first = segment.translate_offset(producers.end_offset)
    if first is None:
        return
    stop = None if last_offset is None else segment.translate_offset(last_offset, first.position)
    for chunk in segment.scan(first.position, None if stop is None else stop.position):
        producers.replay(chunk.data, chunk.batches, chunk.position, segment.path)


def shutdown_evidence(fs: FileSystem, listing: PartitionListing) -> tuple[bool, int]:
    """Judges by its files whether a partition was closed properly, if no log directory can tell: a copied or lone one.
    Returns that, and the recovery point.

    A broker would treat such a directory as unclean and read it from its start, cutting it at the first damage. That is
    more than necessary: segments before the active one were complete when they were rolled. So:

    - closed: no leftovers, every segment has its indexes without zero padding and without an entry beyond its end, the
      newest snapshot is at the log end, and the last batch ends where its file ends;
    - otherwise unclean, from the first segment whose indexes are missing, padded or too long, at the latest from the
      active one.

    Reads names, indexes and the end of the active segment; changes nothing.
    """
    if not listing.segments:
        return True, 0
    active = listing.segments[-1].base_offset
    segment = LogSegment(fs, listing.directory, active)
    next_offset, valid_bytes = segment.read_next_offset()
    ends = [*(later.base_offset for later in listing.segments[1:]), next_offset]
    for files, end in zip(listing.segments, ends, strict=True):
        if not _indexes_finished(fs, files, end):
            return False, files.base_offset
    swapping = any(path.name.endswith((".swap", ".cleaned")) for path in listing.leftovers)
    newest = max((snapshot.offset for snapshot in listing.snapshots), default=0)
    is_clean = valid_bytes == segment.size and not swapping and newest == next_offset
    return is_clean, next_offset if is_clean else active


def _indexes_finished(fs: FileSystem, files: SegmentFiles, end: int) -> bool:
    """True if a segment that ends before offset `end` has its indexes, and these are as a closed segment's."""
    segment = LogSegment(fs, files.log.parent, files.base_offset)
    for index in (segment.offset_index, segment.time_index):
        status = fs.status(index.path)
        if status is None or status.size != index.size:
            return False
    # a crash may undo the cutting of an index, and not that of its log
    offsets, times = segment.offset_index, segment.time_index
    if offsets.entries and (offsets.last_position >= files.size or offsets.last_offset >= end):
        return False
    return not times.entries or times.last_entry[1] < end
