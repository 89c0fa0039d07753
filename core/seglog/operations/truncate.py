"""Truncates a log to an offset or a time, and keeps what it drops (Kafka: UnifiedLog.truncateTo).

Batches are dropped as a whole: if one holds the offset, the log ends before it. In a broker the log end stays the given
offset until the next start; here it is at once the end that the next start would find. If the rest ends below the log
start, the log is empty and begins at its start.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from seglog import layout
from seglog.arguments import flag
from seglog.errors import OffsetOutOfRangeError
from seglog.log.loader import RecoveryReport
from seglog.log.log import Log
from seglog.log.lookup import LATEST
from seglog.log.places import SegmentPlaces
from seglog.log.read_order import claimed_ranges
from seglog.log.segment import LogSegment
from seglog.model import TopicPartition
from seglog.operations.keeping import Keeper
from seglog.operations.undo import Settled, settle_unfinished, unsettled
from seglog.operations.workspace import (
    CommonArguments,
    Location,
    Workspace,
    optional_integer,
    optional_path,
    optional_time,
    settings_of,
)
from seglog.repairs.undo.journal import RunRecord
from seglog.repairs.undo.undoable import undoable
from seglog.scan.listing import require_partition
from seglog.scan.segment_scan import BatchPosition
from seglog.storage.filesystem import FileSystem
from seglog.storage.lock import partition_path
from seglog.storage.overlay import OverlayFileSystem
from seglog.units import count_text


@dataclass(frozen=True, slots=True)
class Cut:
    """A truncation to `offset`, which moves the log end from `end_before` to `end_offset`.

    `first_offset` is the first dropped offset, at or below `offset`: that of the batch that holds `offset`, or of the
    next one. `segments` are the base offsets of the segments dropped entirely, `bytes` counts all dropped bytes.
    """

    topic_partition: TopicPartition
    offset: int
    end_before: int
    end_offset: int
    first_offset: int
    segments: tuple[int, ...]
    bytes: int

    @property
    def empty(self) -> bool:
        """True if nothing is dropped."""
        return not self.bytes and not self.segments

    def apply(self, log: Log) -> None:
        """Applies the truncation; the log must be open for writing."""
        if len(self.segments) == len(log.segments):
            log.truncate_fully(self.end_offset)
        elif not self.empty:
            # A broker replays nothing if all producers were silent for a day: transactions whose markers are dropped
            # would then be neither open nor aborted.
            log.producers.forget()
            log.truncate_to(self.end_offset)


def plan_cut(log: Log, offset: int | None, timestamp: int | None) -> Cut:
    """Plans a truncation at `offset`, or at the first record at `timestamp` (epoch ms) or later.

    Raises OffsetOutOfRangeError for an offset below the log start, CorruptRecordError if damage hides where to cut.
    """
    end = log.log_end_offset
    if offset is None:
        moment = LATEST if timestamp is None else max(timestamp, 0)  # other negative numbers are Kafka's codes
        found = log.offset_for_timestamp(moment)
        offset = end if found is None else found.offset
    if offset < log.log_start_offset:
        raise OffsetOutOfRangeError(offset, log.log_start_offset, end, str(log.topic_partition))
    last = log.segments.floor(offset)
    if offset >= end or last is None:
        return Cut(log.topic_partition, offset, end, end, end, (), 0)
    gone = [segment for segment in log.segments if segment.base_offset > offset]
    place = last.require_cut(offset)
    size = sum(segment.size for segment in gone) + (last.size - place.position if place is not None else 0)
    left = _end_before(last, place)
    end_offset = max(log.log_start_offset, left)
    first = gone[0].base_offset if place is None and gone else end_offset
    if place is not None:
        for chunk in last.scan(place.position, place.position + place.size):
            first = int(claimed_ranges(chunk.batches, chunk.records)[0][0])
    if left < end_offset:
        gone, size = list(log.segments), sum(segment.size for segment in log.segments)
    return Cut(log.topic_partition, offset, end, end_offset, first, tuple(s.base_offset for s in gone), size)


def _end_before(segment: LogSegment, place: BatchPosition | None) -> int:
    """Returns the offset at which a segment ends that is cut at `place`."""
    stop = segment.size if place is None else place.position
    near = SegmentPlaces.of_open(segment).start(layout.INT64_MAX if place is None else place.base_offset - 1).position
    end = segment.base_offset
    for start in (near, 0):
        for chunk in segment.scan(start, stop):
            end = int(chunk.batches["last_offset"][-1]) + 1
        if end > segment.base_offset:
            break
    return end


@dataclass(frozen=True, slots=True)
class Truncated:
    """A truncation, the report of the recovery before it, and the run that keeps the removed data (None: nothing was
    removed or kept).
    """

    cut: Cut
    recovery: RecoveryReport
    run: RunRecord | None = None

    def __repr__(self) -> str:
        cut, run = self.cut, "" if self.run is None else f"; run {self.run.name}"
        where = f"{cut.topic_partition}: the log ends at offset {cut.end_offset} (before: {cut.end_before})"
        return f"<Truncated {where}; {count_text(cut.bytes, 'byte')}{run}>"


def cut_log(
    keeper: Keeper,
    partition: Path,
    offset: int | None,
    timestamp: int | None,
    *,
    dry_run: bool = False,
    keep: bool = True,
) -> Truncated:
    """Truncates a log at an offset or a timestamp (`plan_cut`); a dry run does the same on an overlay.

    `keeper` keeps the removed data; without `keep` it is lost.
    """
    fs, partition = keeper.fs, partition_path(partition)
    require_partition(fs, partition)

    def work(files: FileSystem) -> Truncated:
        with keeper.opened(files, partition) as directory:
            log = directory.log_in(partition)
            cut = plan_cut(log, offset, timestamp)
            cut.apply(log)
            return Truncated(cut, log.recovery)

    if dry_run:
        return work(OverlayFileSystem(fs))
    settle_unfinished(fs, partition.parent, keeper.settled)
    with keeper.locked(partition):
        if not keep:
            return work(fs)
        done, run = undoable(fs, keeper.clock, partition, keeper.command, work, keeper.quarantine)
    return Truncated(done.cut, done.recovery, run)


class TruncationKeywords(TypedDict, total=False):
    """The keyword arguments of `seglog.truncate`: the fields of `TruncationRequest`."""

    to_offset: int | None
    to_time_ms: int | str | None
    keep: bool
    quarantine: Location | None


class TruncationArguments(TruncationKeywords, CommonArguments, total=False):
    """Those of `seglog.truncate`, and those of every function."""


@dataclass(frozen=True, slots=True)
class TruncationRequest:
    """Where to cut a log, and what becomes of the data, as the user said it. One of offset and time is given."""

    partition: Path
    to_offset: int | None = None
    to_time_ms: int | str | None = None
    keep: bool = True
    quarantine: Location | None = None


def truncate(
    work: Workspace, request: TruncationRequest, *, dry_run: bool = False, settled: Settled = unsettled
) -> Truncated:
    """Truncates the log that the request names (`cut_log`). Raises ValueError unless it says one place."""
    offset = optional_integer("to_offset", request.to_offset, 0)
    moment = optional_time("to_time_ms", request.to_time_ms, work.clock)
    if (offset is None) == (moment is None):
        raise ValueError("give to_offset or to_time_ms: it says where to cut")
    config_of = settings_of(work, partition_path(request.partition).parent)
    place = optional_path("quarantine", request.quarantine)
    keeper = Keeper(work.fs, work.clock, config_of, "truncate", place, settled)
    return cut_log(keeper, request.partition, offset, moment, dry_run=dry_run, keep=flag("keep", request.keep))
