"""`spark.readStream.format("seglog")`: follows directories that a broker or seglog appends to.

Offsets are Kafka's JSON, end-exclusive. A partition ends where no writer takes anything back: after the last whole
batch with a valid checksum, at most at the high watermark in the log directory's checkpoint, and for read_committed at
most at the last stable offset.

1. `initialOffset` is computed once and kept, because Spark asks twice and `latest` moves in between.
2. `latestOffset(start, limit)` returns the ends now (with AvailableNow, those when the query started), never before the
   start. A limit is shared among the partitions in proportion to what each has.
3. `partitions(start, end)` returns splits of exactly these offsets. A new partition begins at its log start. If that is
   not 0, Kafka's source calls it data loss; here it is only logged, because a reader of a broker's directory meets such
   partitions after every reassignment.
4. Offsets that the log no longer holds are data loss: refused, or with `failOnDataLoss` false skipped. A log that ends
   before the offset that was reached then counts as a new topic of that name, and is read from its start.

A trigger lists the partitions once. It does not read what an unfinished write to several partitions has appended
(`.seglog-append`).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from seglog.errors import NotALogError, SeglogError
from seglog.model import Isolation, TopicPartition
from seglog_ask.spark.read_options import format_offsets, offsets_of
from seglog_ask.spark.staged_journal import open_starts
from seglog_ask.table.plan.discovery import Finder
from seglog_ask.table.plan.files import files_of
from seglog_ask.table.plan.options import Offsets, ReadOptions
from seglog_ask.table.plan.partition_log import LogTail, PartitionLog, permitted, settled, tail_of
from seglog_ask.table.plan.schema import Field
from seglog_ask.table.plan.splits import (
    OffsetRange,
    PlannedPartition,
    Split,
    check_covered,
    plan_partition,
    splits_of,
    starting_offset,
    within,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from seglog_ask.table.values.spark_values import SparkValues

_logger = logging.getLogger("seglog.spark.stream")


class SeglogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reader. The offset calls and `partitions` share one process; `read` only has the split."""

    def __init__(self, options: ReadOptions, projection: tuple[Field, ...], values: SparkValues | None = None) -> None:
        self.options, self.projection, self.values = options, projection, values
        self._log = FollowedLog(options)
        self._initial: Offsets | None = None
        self._target: Offsets | None = None

    def __reduce__(self) -> tuple[type[SeglogStreamReader], tuple[object, ...]]:
        """Pickles what `read` needs in a task; the driver's knowledge of the logs stays on the driver."""
        return type(self), (self.options, self.projection, self.values)

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
        return format_offsets(self._log.known_ends)  # Spark asks right after latestOffset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(split) for split in self._log.splits(offsets_of(start or {}), offsets_of(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from seglog_ask.spark.tasks import read_split

        return read_split(partition.value, self.projection, self.options, self.values)


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream that cannot be read as asked: every call raises `error`.

    PySpark 4.3 hides an error that `streamReader` raises behind an UnboundLocalError of its own.
    """

    def __init__(self, error: SeglogError) -> None:
        self.error = error

    def initialOffset(self) -> dict[str, dict[str, int]]:
        raise self.error

    def getDefaultReadLimit(self) -> ReadLimit:
        raise self.error

    def prepareForTriggerAvailableNow(self) -> None:
        raise self.error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, dict[str, int]]:  # noqa: ARG002
        raise self.error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:  # noqa: ARG002
        raise self.error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        raise self.error


class FollowedLog:
    """The partitions that a stream follows; remembers how far each file was walked.

    A trigger lists them once: `splits` plans with what `ends` found. `known_ends` is the last result of `ends`.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._fs, self._options = files_of(options.store), options
        self._finder = Finder(self._fs, options)
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._listed_for: set[str] = set()  # the methods that may still use the last listing
        self._tails: dict[TopicPartition, tuple[Path, LogTail]] = {}
        self._written: Offsets = {}  # where each log ends, whether or not all of it may be read yet
        self.known_ends: Offsets = {}

    @permitted()
    def starting_offsets(self) -> Offsets:
        """Returns where the stream begins in each partition that exists now."""
        self._list("starting_offsets", require=True)
        check_covered(list(self._logs.values()), self._options.starting, "startingOffsets", self._options.where)
        return {key: self._settled(key, self._start) for key in self._logs}

    @permitted()
    def ends(self) -> Offsets:
        """Returns the offset after the last one that may be read now, for each partition."""
        if "ends" not in self._listed_for:
            self._list("ends")
        self._listed_for.discard("ends")
        open_before = self._open_appends()
        self.known_ends = {}
        for key in list(self._logs):
            try:
                self.known_ends[key] = self._settled(key, self._end)
            except NotALogError:
                del self._logs[key]  # gone since it was listed
        for key, start in (*open_before.items(), *self._open_appends().items()):
            if start < self.known_ends.get(key, 0):
                _logger.warning("%s: offsets from %d on wait for an unfinished write", key, start)
                self.known_ends[key] = max(start, self._logs[key].log_start_offset)
        return dict(self.known_ends)

    def reached(self, start: Offsets, ends: Offsets) -> Offsets:
        """Returns the ends, but no partition's before its start: offsets in between are lost.

        Where `failOnDataLoss` is false, a log that ends before its start was made anew: it has its own end, and `begun`
        and `splits` begin at its log start.
        """
        found = dict(ends)
        for key, begun in start.items():
            if key not in ends:
                self._options.report_loss(f"{key}: the partition is gone; it was read up to offset {begun}")
            elif self._written.get(key, begun) < begun:
                end = self._written[key]
                self._options.report_loss(
                    f"{key}: it was read up to offset {begun}, and now ends at {end}: it was truncated or made anew,"
                    " and is read from its start"
                )
                continue
            found[key] = max(begun, ends.get(key, begun))
        return found

    def begun(self, start: Offsets, ends: Offsets) -> Offsets:
        """Returns the start of every partition in `ends`; a new one, or one made anew, begins at its log start."""
        kept = {key: first for key, first in start.items() if key in ends and first <= ends[key]}
        return {key: kept[key] if key in kept else min(self._logs[key].log_start_offset, ends[key]) for key in ends}

    @permitted()
    def splits(self, start: Offsets, end: Offsets) -> list[Split]:
        """Returns the splits of these offsets. Those that the log does not hold are data loss."""
        if "splits" not in self._listed_for:
            self._list("splits")
        self._listed_for.discard("splits")
        planned: list[PlannedPartition] = []
        for key, stop in end.items():
            log = self._logs.get(key)
            first = start.get(key, stop if log is None else log.log_start_offset)
            if key not in start and log is not None and first > 0:
                _logger.warning("%s: the new partition begins at offset %d; nothing before it was read", key, first)
            if first > stop and log is not None:
                first = log.log_start_offset  # made anew (`reached`)
            if first >= stop:
                continue
            found: PlannedPartition | None = None
            if log is not None:
                with contextlib.suppress(NotALogError):
                    found = plan_partition(log, partial(self._held, OffsetRange(first, stop)), self._options)
            if found is None:
                self._options.report_loss(f"{key}: the partition is gone; offsets {first} to {stop - 1} were not read")
            else:
                planned.append(found)
        return splits_of(planned, self._options)

    def _list(self, user: str, *, require: bool = False) -> None:
        self._fs.forget_listings()
        self._logs = {log.topic_partition: log for log in self._finder.find(require=require)}
        # one trigger calls all of these, in this order
        self._listed_for = {"starting_offsets": {"ends", "splits"}, "ends": {"ends", "splits"}}.get(user, set())

    def _settled(self, key: TopicPartition, work: Callable[[PartitionLog], int]) -> int:
        self._logs[key], found = settled(self._logs[key], work)
        return found

    def _start(self, log: PartitionLog) -> int:
        if self._options.starting.kind == "latest":
            return self._end(log)
        first = starting_offset(log, self._options)
        return within(log, first, "starting offset", self._options.fail_on_data_loss)

    def _end(self, log: PartitionLog) -> int:
        self._take_tail(log)
        end = self._written[log.topic_partition] = log.log_end_offset
        if log.high_watermark is not None and end < log.high_watermark and log.last is not None:
            place = f"{log.last.log}: position {log.tail.position}"
            lost = f"offsets {end} to {log.high_watermark - 1} are missing"
            self._options.report_loss(f"{place}: {lost}: the log ends before its high watermark {log.high_watermark}")
        if log.high_watermark is not None:
            end = min(end, log.high_watermark)
        if self._options.isolation == Isolation.READ_COMMITTED:
            end = min(end, log.last_stable_offset)
        return max(end, log.log_start_offset)

    def _held(self, wanted: OffsetRange, log: PartitionLog) -> OffsetRange:
        """Returns the part of these offsets that the log holds; the rest is data loss."""
        key, first, stop = log.topic_partition, wanted.first, wanted.stop
        if first < log.log_start_offset:
            last = min(log.log_start_offset, stop) - 1
            self._options.report_loss(f"{key}: offsets {first} to {last} were deleted before they were read")
            first = log.log_start_offset
        self._take_tail(log)
        if log.log_end_offset < stop:
            self._options.report_loss(
                f"{key}: offsets {max(first, log.log_end_offset)} to {stop - 1} are gone, as the log now ends at"
                f" {log.log_end_offset}: it was truncated"
            )
            stop = log.log_end_offset
        return OffsetRange(min(first, stop), stop)

    def _take_tail(self, log: PartitionLog) -> None:
        """Sets the log's tail, walking on from where the last call ended instead of from the last index entry."""
        last, known = log.last, self._tails.get(log.topic_partition)
        if last is None:
            return
        if known is not None and known[0] == last.log and known[1].is_in(log.fs, last):
            tail = known[1]
            if last.size > tail.position:
                tail = tail_of(log.fs, last, tail.position) or tail
            log.__dict__["tail"] = tail
        self._tails[log.topic_partition] = (last.log, log.tail)

    def _open_appends(self) -> Offsets:
        """Returns where unfinished writes began: they may be taken back."""
        directories = {log.directory.parent for log in self._logs.values()}
        return {key: start for path in directories for key, start in open_starts(self._fs, path).items()}


def limited(start: Mapping[TopicPartition, int], ends: Offsets, most: int) -> Offsets:
    """Returns ends with `most` offsets in all, shared in proportion to what each partition has."""
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
