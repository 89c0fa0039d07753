"""`spark.readStream.format("seglog")`: following directories that a broker or seglog appends to.

Offsets are Kafka's JSON, end-exclusive. The end of a partition is what no writer takes back: behind the last whole
batch with a right checksum, at most the high watermark that the log directory's checkpoint holds, and for
read_committed at most the last stable offset.

1. `initialOffset`: computed once and kept, because Spark asks twice and `latest` moves on between.
2. `latestOffset(start, limit)`: the ends now (with AvailableNow those of the query's start), never behind the start;
   a limit is shared among the partitions in proportion to what each has.
3. `partitions(start, end)`: splits of exactly these offsets; a partition that is new begins at its log start.
4. Offsets that the log no longer holds are data loss: refused, or with `failOnDataLoss` false passed over.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from seglog.errors import IncompleteError
from seglog.model import Isolation, TopicPartition
from seglog.spark.bounds import OffsetRange, check_covered, starting_offset, within
from seglog.spark.discovery import LogTail, PartitionLog, find_partitions, permitted, tail_of
from seglog.spark.offsets import Offsets, format_offsets, offsets_of
from seglog.spark.options import ReadOptions
from seglog.spark.schema import Field
from seglog.spark.source import read_split
from seglog.spark.splits import splits_of
from seglog.storage.filesystem import LocalFileSystem

if TYPE_CHECKING:
    import pyarrow as pa

_logger = logging.getLogger(__name__)


class SeglogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reader. The offset calls and `partitions` share one process; `read` has only the split."""

    def __init__(self, options: ReadOptions, projection: tuple[Field, ...]) -> None:
        self.options, self.projection = options, projection
        self._log = FollowedLog(options)
        self._initial: Offsets | None = None
        self._target: Offsets | None = None

    def initialOffset(self) -> dict[str, dict[str, int]]:
        if self._initial is None:
            self._initial = self._log.starting_offsets()
        return format_offsets(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self.options.max_offsets_per_trigger
        return ReadMaxRows(limit) if limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._log.ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, dict[str, int]]:
        begun = offsets_of(start or {})
        ends = self._log.reached(begun, self._log.ends() if self._target is None else self._target)
        if isinstance(limit, ReadMaxRows):
            ends = limited(self._log.begun(begun, ends), ends, int(limit.max_rows))
        return format_offsets(ends)

    def reportLatestOffset(self) -> dict[str, dict[str, int]]:
        return format_offsets(self._log.ends())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(split) for split in self._log.splits(offsets_of(start or {}), offsets_of(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_split(partition, self.projection, self.options)


class FollowedLog:
    """The partitions that a stream follows, looked at anew with each call; remembers how far each file was walked."""

    def __init__(self, options: ReadOptions) -> None:
        self._fs, self._options = LocalFileSystem(), options
        self._tails: dict[TopicPartition, tuple[Path, int, LogTail]] = {}
        self._written: Offsets = {}  # where each log ends, whatever of it may be read already

    @permitted()
    def starting_offsets(self) -> Offsets:
        """Where the stream begins in each partition that is there now."""
        logs = self._logs()
        check_covered(list(logs.values()), self._options.starting, "startingOffsets")
        rule = self._options.starting.kind
        if rule == "latest":
            return {key: self._end(log) for key, log in logs.items()}
        return {
            key: within(log, starting_offset(log, self._options), "starting offset", self._options.fail_on_data_loss)
            for key, log in logs.items()
        }

    @permitted()
    def ends(self) -> Offsets:
        """Behind the last offset of each partition that may be read now."""
        return {key: self._end(log) for key, log in self._logs().items()}

    def reached(self, start: Offsets, ends: Offsets) -> Offsets:
        """The ends, but in no partition behind the start: what lies between was lost."""
        found = dict(ends)
        for key, begun in start.items():
            if key not in ends:
                self._lost(f"{key}: the partition is gone; it was read up to offset {begun}")
            elif self._written.get(key, begun) < begun:
                end = self._written[key]
                self._lost(f"{key}: it was read up to offset {begun}, and now ends at {end}: it was truncated")
            found[key] = max(begun, ends.get(key, begun))
        return found

    def begun(self, start: Offsets, ends: Offsets) -> Offsets:
        """The start of every partition in `ends`: a new one begins at its log start."""
        logs = self._logs() if ends.keys() - start.keys() else {}
        return {key: start[key] if key in start else logs[key].log_start_offset for key in ends}

    @permitted()
    def splits(self, start: Offsets, end: Offsets) -> list[Any]:
        """The splits of these offsets. A start below the log start is data loss."""
        logs = self._logs()
        ranges = {}
        for key, behind in end.items():
            first = start.get(key, logs[key].log_start_offset if key in logs else behind)
            if first >= behind:
                continue
            if key not in logs:
                self._lost(f"{key}: the partition is gone; offsets {first} to {behind - 1} were not read")
                continue
            log_start = logs[key].log_start_offset
            if first < log_start:
                self._lost(f"{key}: offsets {first} to {min(log_start, behind) - 1} were deleted before they were read")
                first = log_start
            if first < behind:
                ranges[key] = OffsetRange(first, behind)
        return splits_of(list(logs.values()), ranges, self._options)

    def _logs(self) -> dict[TopicPartition, PartitionLog]:
        return {log.topic_partition: log for log in find_partitions(self._fs, self._options)}

    def _end(self, log: PartitionLog) -> int:
        self._take_tail(log)
        end = self._written[log.topic_partition] = log.log_end_offset
        if log.high_watermark is not None:
            end = min(end, log.high_watermark)
        if self._options.isolation == Isolation.READ_COMMITTED:
            end = min(end, log.last_stable_offset)
        return max(end, log.log_start_offset)

    def _take_tail(self, log: PartitionLog) -> None:
        """Gives the log its tail, walked from where the last call came to instead of from the last index entry."""
        if not log.segments:
            return
        last, known = log.segments[-1], self._tails.get(log.topic_partition)
        if known is not None and known[0] == last.log and known[1] <= last.size and known[2].position > 0:
            tail = known[2]
            if last.size > tail.position:
                tail = tail_of(self._fs, last, tail.position) or tail
            log.__dict__["tail"] = tail
        self._tails[log.topic_partition] = (last.log, last.size, log.tail)

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise IncompleteError(f"{what} (failOnDataLoss=false goes on with what is there)")
        _logger.warning("%s; going on", what)


def limited(start: Mapping[TopicPartition, int], ends: Offsets, most: int) -> Offsets:
    """Ends that leave at most about `most` offsets, shared in proportion to what each partition has; never none."""
    waiting = {key: ends[key] - start.get(key, 0) for key in ends}
    total = sum(waiting.values())
    if total <= most:
        return ends
    shares = {key: most * waiting[key] // total for key in ends}
    left = most - sum(shares.values())
    for key in sorted(ends, key=lambda key: (-waiting[key], key)):
        extra = min(left, waiting[key] - shares[key], 1)
        shares[key] += extra
        left -= extra
    return {key: ends[key] - waiting[key] + shares[key] for key in ends}
