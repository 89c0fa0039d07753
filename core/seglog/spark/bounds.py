"""From the options' offsets and timestamps to a range of offsets for each partition (Spark: KafkaOffsetReader).

1. The rule gives an offset, -2 (log start), -1 (log end) or a timestamp; a timestamp means the first record that
   is not older, found through the time index.
2. read_committed ends at the last stable offset.
3. A range outside what the log holds is data loss: refused, or with `failOnDataLoss` false cut to what is there.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seglog.errors import ConfigError, InvalidRecordError, OffsetOutOfRangeError
from seglog.format.columns import STATUS_REASONS
from seglog.layout import INT64_MAX
from seglog.log.indexes import OffsetIndex, TimeIndex
from seglog.model import Isolation
from seglog.scan.listing import SegmentFiles
from seglog.scan.segment_scan import SegmentScan, believed_batch, checksum_valid
from seglog.spark.discovery import PartitionLog
from seglog.spark.offsets import EARLIEST, LATEST
from seglog.spark.options import OffsetRule, ReadOptions
from seglog.spark.segment_names import GONE
from seglog.spark.where import Where
from seglog.storage.filesystem import FileSystem

_logger = logging.getLogger(__name__)

UNBOUNDED = INT64_MAX


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets `first` to `stop` (exclusive) of a partition; UNBOUNDED: all that the files held."""

    first: int
    stop: int


def check_batch_offsets(partitions: Sequence[PartitionLog], options: ReadOptions) -> None:
    """ConfigError when offsets are given for partitions that are not there."""
    check_covered(partitions, options.starting, "startingOffsets", options.where)
    check_covered(partitions, options.ending, "endingOffsets", options.where)


def batch_range(log: PartitionLog, options: ReadOptions) -> OffsetRange:
    """What a batch query reads of a partition.

    Raises ConfigError when it ends before it begins; OffsetOutOfRangeError for offsets that the log does not hold,
    unless `failOnDataLoss` is false.
    """
    starting, ending = (_of_partition(rule, log) for rule in (options.starting, options.ending))
    first = _resolved(log, starting, options, starts=True)
    if starting.kind != "earliest":
        first = within(log, first, "starting offset", options.fail_on_data_loss)
    stop = first if starting.kind != "earliest" and first >= log.log_end_offset else UNBOUNDED
    if ending.kind not in ("latest", "earliest") and stop == UNBOUNDED:
        stop = _resolved(log, ending, options, starts=False)
        if stop != UNBOUNDED:
            stop = within(log, stop, "ending offset", options.fail_on_data_loss)
    if options.isolation == Isolation.READ_COMMITTED:
        # also where all is stable: what comes after it may not be
        stop = min(stop, max(log.last_stable_offset, first))
    if stop < first:
        raise ConfigError(f"{log.topic_partition}: the ending offset {stop} is before the starting offset {first}")
    return OffsetRange(first, stop)


def starting_offset(log: PartitionLog, options: ReadOptions) -> int:
    """The offset at which the rule begins in this partition; -2 and -1 are resolved."""
    return _resolved(log, _of_partition(options.starting, log), options, starts=True)


def _of_partition(rule: OffsetRule, log: PartitionLog) -> OffsetRule:
    """The rule for this partition: one that names others alone leaves it whole."""
    is_other = rule.kind in ("offsets", "timestamps") and rule.of(log.topic_partition) is None
    return OffsetRule("earliest") if is_other else rule


def within(log: PartitionLog, offset: int, what: str, fail: bool) -> int:
    """`offset` if the log holds it; else OffsetOutOfRangeError, or without `fail` the nearest one it holds."""
    first, stop = log.log_start_offset, log.log_end_offset
    if first <= offset <= stop:
        return offset
    if fail:
        subject = f"{log.topic_partition}: {what} (failOnDataLoss=false takes the nearest one there is)"
        raise OffsetOutOfRangeError(offset, first, stop, subject)
    nearest = min(max(offset, first), stop)
    place = f"{log.topic_partition}: {what} {offset}"
    _logger.warning("%s is outside [%d, %d]; going on at %d", place, first, stop, nearest)
    return nearest


def _resolved(log: PartitionLog, rule: OffsetRule, options: ReadOptions, starts: bool) -> int:
    if rule.kind == "earliest":
        return log.log_start_offset
    given = rule.of(log.topic_partition)
    if rule.kind == "offsets" and given is not None and given != LATEST:
        return log.log_start_offset if given == EARLIEST else given
    if rule.kind in ("timestamp", "timestamps"):
        # before the log's end is looked for: a log that grows meanwhile must not end before what was found
        timestamp = rule.timestamp if given is None else given
        found = offset_for_timestamp(log, timestamp)
        if found is not None:
            return found
        if starts and options.missing_timestamp == "error":
            raise ConfigError(
                f"{log.topic_partition}: no offset matches the timestamp {timestamp}: every record is older"
                " (startingOffsetsByTimestampStrategy=latest begins at the end)"
            )
    return log.log_end_offset if starts else UNBOUNDED


def check_covered(partitions: Sequence[PartitionLog], rule: OffsetRule, option: str, where: Where) -> None:
    """ConfigError where offsets by partition are given for one that is not one of these, and that `where` would choose:
    those that it leaves out were not looked for.
    """
    if rule.kind not in ("offsets", "timestamps"):
        return
    unknown = {key for key, _ in rule.offsets if where.chooses(key)} - {log.topic_partition for log in partitions}
    if unknown:
        name = option if rule.kind == "offsets" else f"{option}ByTimestamp"
        raise ConfigError(f"{name} names partitions that are not there: {', '.join(map(str, sorted(unknown)))}")


# --- timestamps ---------------------------------------------------------------------------------------------


def offset_for_timestamp(log: PartitionLog, timestamp: int) -> int | None:
    """Offset of the first record, from the log start on, whose timestamp is at least `timestamp`, or None.

    As `log.lookup.find_offset`, but a segment whose time index may be unfinished (the last one of a live log, one
    without index) is searched instead of believed.
    """
    for i in log.chosen:
        name = log.names[i]
        if log.is_older(i, timestamp):
            continue
        times = None if name.time_index is None else TimeIndex(log.fs, name.time_index, name.base_offset)
        start = name.base_offset if times is None else times.lookup(timestamp)[1]
        found = _first_at(log.fs, log.segment(i).files, start, timestamp, log.log_start_offset)
        if found is not None:
            return found
    return None


def _first_at(fs: FileSystem, segment: SegmentFiles, offset: int, timestamp: int, least_offset: int) -> int | None:
    for chunk in SegmentScan(fs, segment.log, indexed_position(fs, segment, offset), segment.size):
        for row in np.flatnonzero(chunk.batches["max_timestamp"] >= timestamp).tolist():
            batch = chunk.batches[row : row + 1]
            for records in chunk.records(batch):
                rows = records.rows
                hits = np.flatnonzero((rows["timestamp"] >= timestamp) & (rows["offset"] >= least_offset))
                if len(hits):
                    return int(rows["offset"][hits[0]])
                if records.status.any() and not records.rows_after:
                    reason = STATUS_REASONS[int(records.status[0])]
                    raise InvalidRecordError(segment.log, reason, int(batch["position"][0]))
    return None


def indexed_position(fs: FileSystem, segment: SegmentFiles, offset: int) -> int:
    """A position at or before the first batch that reaches `offset`, by the offset index; 0 where that is wrong."""
    if segment.offset_index is None or offset <= segment.base_offset:
        return 0
    entry = OffsetIndex(fs, segment.offset_index, segment.base_offset).lookup(offset)
    try:
        with fs.open(segment.log, "r") as file:
            row = believed_batch(file, segment.size, segment.base_offset, entry)
            return entry[1] if row is not None and checksum_valid(file, row[0]) else 0
    except GONE:
        return 0  # whoever reads it will say so
