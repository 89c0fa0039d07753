"""`spark.readStream.format("seglog")`: following directories that a broker or seglog appends to.

Offsets are Kafka's JSON, end-exclusive. The end of a partition is what no writer takes back: after the last whole
batch with a right checksum, at most the high watermark that the log directory's checkpoint holds, and for
read_committed at most the last stable offset.

1. `initialOffset`: computed once and kept, because Spark asks twice and `latest` moves on between.
2. `latestOffset(start, limit)`: the ends now (with AvailableNow those of the query's start), never before the start;
   a limit is shared among the partitions in proportion to what each has.
3. `partitions(start, end)`: splits of exactly these offsets; a partition that is new begins at its log start. Where
   that is not 0, Kafka's source calls it data loss. Here it is logged: whoever reads a broker's directory gets such
   partitions with every reassignment.
4. Offsets that the log no longer holds are data loss: refused, or with `failOnDataLoss` false passed over.

A trigger lists the partitions once. What a write to several partitions has not finished is not read (`.seglog-append`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from seglog.errors import IncompleteError, NotALogError
from seglog.log.append_journal import open_starts
from seglog.model import Isolation, TopicPartition
from seglog.spark.bounds import OffsetRange, check_covered, starting_offset, within
from seglog.spark.discovery import Finder, LogTail, PartitionLog, permitted, settled, tail_of
from seglog.spark.files import files_of
from seglog.spark.offsets import Offsets, format_offsets, offsets_of
from seglog.spark.options import ReadOptions
from seglog.spark.schema import Field
from seglog.spark.splits import PlannedPartition, Split, plan_partition, splits_of
from seglog.spark.worker import read_split

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

    def __reduce__(self) -> tuple[type[SeglogStreamReader], tuple[ReadOptions, tuple[Field, ...]]]:
        """Tasks get what `read` needs; what the driver knows of the logs stays there."""
        return type(self), (self.options, self.projection)

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
        return format_offsets(self._log.known_ends())  # Spark asks right after latestOffset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(split) for split in self._log.splits(offsets_of(start or {}), offsets_of(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_split(partition, self.projection, self.options)


class FollowedLog:
    """The partitions that a stream follows; remembers how far each file was walked.

    A trigger lists them once: `splits` plans by what `ends` has found.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._fs, self._options = files_of(options.store), options
        self._finder = Finder(self._fs, options)
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._listed_for: set[str] = set()  # what may still use the last listing
        self._tails: dict[TopicPartition, tuple[Path, LogTail]] = {}
        self._written: Offsets = {}  # where each log ends, whatever of it may be read already
        self._ends: Offsets = {}

    @permitted()
    def starting_offsets(self) -> Offsets:
        """Where the stream begins in each partition that is there now."""
        self._list("starting_offsets", require=True)
        check_covered(list(self._logs.values()), self._options.starting, "startingOffsets", self._options.where)
        return {key: self._settled(key, self._start) for key in self._logs}

    @permitted()
    def ends(self) -> Offsets:
        """After the last offset of each partition that may be read now."""
        if "ends" not in self._listed_for:
            self._list("ends")
        self._listed_for.discard("ends")
        open_before = self._open_appends()
        self._ends = {}
        for key in list(self._logs):
            try:
                self._ends[key] = self._settled(key, self._end)
            except NotALogError:
                del self._logs[key]  # gone since it was listed
        for key, start in (*open_before.items(), *self._open_appends().items()):
            if start < self._ends.get(key, 0):
                _logger.warning("%s: offsets from %d on wait for a write that is not finished", key, start)
                self._ends[key] = max(start, self._logs[key].log_start_offset)
        return dict(self._ends)

    def known_ends(self) -> Offsets:
        """What `ends` found last."""
        return dict(self._ends)

    def reached(self, start: Offsets, ends: Offsets) -> Offsets:
        """The ends, but in no partition before the start: what lies between was lost."""
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
        return {key: start[key] if key in start else self._logs[key].log_start_offset for key in ends}

    @permitted()
    def splits(self, start: Offsets, end: Offsets) -> list[Split]:
        """The splits of these offsets. What the log does not hold of them is data loss."""
        if "splits" not in self._listed_for:
            self._list("splits")
        self._listed_for.discard("splits")
        planned = []
        for key, stop in end.items():
            log = self._logs.get(key)
            first = start.get(key, stop if log is None else log.log_start_offset)
            if key not in start and log is not None and first > 0:
                _logger.warning(
                    "%s: the partition is new here and begins at offset %d: none before was read", key, first
                )
            if first >= stop:
                continue
            wanted = OffsetRange(first, stop)
            found = None if log is None else self._planned(log, wanted)
            if found is None:
                self._lost(f"{key}: the partition is gone; offsets {first} to {stop - 1} were not read")
            else:
                planned.append(found)
        return splits_of(planned, self._options)

    def _planned(self, log: PartitionLog, wanted: OffsetRange) -> PlannedPartition | None:
        try:
            return plan_partition(log, partial(self._held, wanted), self._options)
        except NotALogError:
            return None

    def _list(self, user: str, *, require: bool = False) -> None:
        self._fs.forget_listings()
        self._logs = {log.topic_partition: log for log in self._finder.find(require=require)}
        # one trigger asks for all of these, in this order
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
        if log.high_watermark is not None:
            end = min(end, log.high_watermark)
        if self._options.isolation == Isolation.READ_COMMITTED:
            end = min(end, log.last_stable_offset)
        return max(end, log.log_start_offset)

    def _held(self, wanted: OffsetRange, log: PartitionLog) -> OffsetRange:
        """Of these offsets those that the log holds."""
        key, first, stop = log.topic_partition, wanted.first, wanted.stop
        if first < log.log_start_offset:
            last = min(log.log_start_offset, stop) - 1
            self._lost(f"{key}: offsets {first} to {last} were deleted before they were read")
            first = log.log_start_offset
        self._take_tail(log)
        if log.log_end_offset < stop:
            self._lost(
                f"{key}: offsets {max(first, log.log_end_offset)} to {stop - 1} are gone, as the log now ends at"
                f" {log.log_end_offset}: it was truncated"
            )
            stop = log.log_end_offset
        return OffsetRange(min(first, stop), stop)

    def _take_tail(self, log: PartitionLog) -> None:
        """Gives the log its tail, walked from where the last call came to instead of from the last index entry."""
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
        """Where writes began that are not finished: they may be taken back."""
        directories = {log.directory.parent for log in self._logs.values()}
        return {key: start for path in directories for key, start in open_starts(self._fs, path).items()}

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
