"""Retention: which of the oldest segments are deleted, and why the others stay (Kafka: UnifiedLog.deleteOldSegments).

Three rules in Kafka's order, each continuing where the previous one stopped, oldest segment first, up to the first
segment that does not qualify (specification §11.2):

1. Log start: the next segment begins at or below the log start offset.
2. Size: without the segment the log still holds `retention.bytes`.
3. Time: the segment's largest timestamp (its modification time if it has none) is older than `retention.ms`.

Rules 2 and 3 need `delete` in the cleanup policy. Nothing above the high watermark is deleted, nor an empty last
segment. If all segments are deleted, the log is rolled first, so that its end stays. Applying a plan renames files to
`.deleted` and moves the log start; `remove_deleted` removes the files `file.delete.delay.ms` later.

`plan_freeing` does not exist in Kafka: it takes whole oldest closed segments of several logs, oldest records first,
until a wanted number of bytes is free.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from seglog.configuration.keys import LogConfig
from seglog.errors import RefusedError
from seglog.log.outline import LogFacts
from seglog.log.segment_list import SegmentFacts
from seglog.model import TopicPartition
from seglog.storage.filesystem import FileSystem
from seglog.units import count_text, format_duration, rough_duration

if TYPE_CHECKING:
    from seglog.log.log import Log

_AS_RETENTION = -2  # local.retention.ms: as long as retention.ms
EMPTY_POLICY = "cleanup.policy is empty: only segments below the log start offset are deleted"


class RetentionRule(Enum):
    """The rule by which a segment is deleted."""

    LOG_START = "log-start"
    SIZE = "size"
    TIME = "time"
    FREE = "free"


@dataclass(frozen=True, slots=True)
class SegmentVerdict:
    """The decision on one segment, and its reason. Sizes in bytes (of the `.log`), times in epoch milliseconds.

    `next_offset` is the next segment's base, or the log end. `largest_timestamp` is the modification time if
    `from_modified`. `deletable_ms` is the time at which the time rule deletes a kept segment, None if never.
    `in_future`: its largest timestamp, in the batch that ends at `blocking_offset`, is later than now, so later
    segments stay; of a tiered topic, in the log directory. `disk_bytes` is the disk space of all its files, set by
    `plan_freeing` only.
    """

    base_offset: int
    next_offset: int
    size: int
    active: bool
    largest_timestamp: int
    from_modified: bool
    rule: RetentionRule | None
    reason: str
    deletable_ms: int | None
    in_future: bool
    blocking_offset: int | None
    disk_bytes: int

    @property
    def removed(self) -> bool:
        """True if the segment is deleted."""
        return self.rule is not None


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """The effect of retention on one log. Made by `plan_retention` or `plan_freeing`, applied by `apply_retention`."""

    topic_partition: TopicPartition
    now_ms: int
    log_start_offset: int
    new_log_start_offset: int
    log_end_offset: int
    high_watermark: int
    rolls: bool
    segments: tuple[SegmentVerdict, ...]

    @property
    def removed(self) -> tuple[SegmentVerdict, ...]:
        """The segments to delete, oldest first."""
        return tuple(segment for segment in self.segments if segment.removed)

    @property
    def removed_bytes(self) -> int:
        """The bytes of their `.log` files."""
        return sum(segment.size for segment in self.removed)

    @property
    def freed_bytes(self) -> int:
        """The disk space that becomes free, as far as it was asked for."""
        return sum(segment.disk_bytes for segment in self.removed)

    @property
    def empty(self) -> bool:
        """True if nothing is deleted."""
        return not self.removed


def plan_retention(log: LogFacts, now_ms: int, high_watermark: int | None = None) -> RetentionPlan:
    """Plans what a broker would delete from `log` at `now_ms` under the log's own configuration; changes nothing.

    `high_watermark` is a broker's, if it may be below the log's own.
    """
    judge = _Judge(log, now_ms, log.high_watermark if high_watermark is None else high_watermark)
    gone = judge.advance(0, RetentionRule.LOG_START)
    if log.config.delete and not log.config.remote_storage_enable:
        gone = judge.advance(gone, RetentionRule.SIZE)
        gone = judge.advance(gone, RetentionRule.TIME)
    return judge.plan(gone)


def plan_freeing(
    logs: Iterable[Log],
    wanted_bytes: int,
    now_ms: int,
    high_watermarks: Mapping[TopicPartition, int] | None = None,
) -> list[RetentionPlan]:
    """Plans to delete the oldest closed segments of all logs until at least `wanted_bytes` are free.

    Logs without `delete` in their policy lose nothing, nor do those of tiered topics. The plans may free less: compare
    `freed_bytes`, which counts disk blocks, including those of indexes. `high_watermarks` are a broker's, perhaps below
    the logs'.
    """
    known = {} if high_watermarks is None else high_watermarks
    judges = [_OpenJudge(log, now_ms, known.get(log.topic_partition, log.high_watermark)) for log in logs]
    counts = [0] * len(judges)
    queue: list[tuple[int, int]] = []
    for number, judge in enumerate(judges):
        _offer(queue, number, judge, 0)
    freed = 0
    while queue and freed < wanted_bytes:
        _, number = heapq.heappop(queue)
        freed += judges[number].take_room(counts[number])
        counts[number] += 1
        _offer(queue, number, judges[number], counts[number])
    for judge, count in zip(judges, counts, strict=True):
        judge.free(count, wanted_bytes)
    return [judge.plan(count) for judge, count in zip(judges, counts, strict=True)]


def _offer(queue: list[tuple[int, int]], number: int, judge: _OpenJudge, index: int) -> None:
    """Puts a log's next segment into the queue, if it may be deleted."""
    config = judge.log.config
    # Deleting moves the log start, and a broker deletes below it in the tier, too.
    may_go = config.delete and not config.remote_storage_enable
    if may_go and index < len(judge.segments) - 1 and not judge.guard(index):
        heapq.heappush(queue, (judge.segments[index].largest_timestamp(), number))


def apply_retention(log: Log, plan: RetentionPlan) -> list[Path]:
    """Renames the plan's segments to `.deleted` and moves the log start; returns the files to remove later.

    Raises RefusedError if the log has changed since the plan was made.
    """
    segments = log.segments.snapshot()
    planned = [(verdict.base_offset, verdict.size) for verdict in plan.segments]
    if [(s.base_offset, s.size) for s in segments] != planned or log.log_start_offset != plan.log_start_offset:
        raise RefusedError(f"{log.directory}: the log has changed since the plan was made")
    reasons = [f"{verdict.rule.value}: {verdict.reason}" for verdict in plan.segments if verdict.rule is not None]
    return log.retire_oldest(segments[: len(reasons)], reasons)


def remove_deleted(fs: FileSystem, paths: Sequence[Path]) -> None:
    """Removes those `.deleted` files that still exist."""
    for path in paths:
        if fs.status(path) is not None:
            fs.remove(path)


class _Judge:
    """Applies the rules to the segments of one log and keeps their reasons."""

    def __init__(self, log: LogFacts, now_ms: int, high_watermark: int) -> None:
        self.log, self.now_ms = log, now_ms
        self.high_watermark = min(high_watermark, log.high_watermark)
        self.segments: tuple[SegmentFacts, ...] = log.segments.snapshot()
        self.config: LogConfig = log.config
        self._rules: list[tuple[RetentionRule, str]] = []
        self._excess = 0
        self._freeing = False
        self._rooms: dict[int, int] = {}

    # --- rules

    def advance(self, gone: int, rule: RetentionRule) -> int:
        """Applies `rule` from segment `gone` on; returns the number of segments to delete so far."""
        if rule is RetentionRule.SIZE:
            self._excess = sum(s.size for s in self.segments[gone:]) - self.config.retention_bytes
            if self.config.retention_bytes < 0 or self._excess < 0:
                return gone
        while gone < len(self.segments) and not self.guard(gone):
            reason = self._reason(gone, rule)
            if not reason:
                break
            self._rules.append((rule, reason))
            gone += 1
        return gone

    def guard(self, index: int) -> str:
        """Returns why no rule may delete this segment, or ""."""
        upper = self.upper(index)
        if self.high_watermark < upper:
            return f"holds offsets that are not replicated: the high watermark is {self.high_watermark}"
        if index == len(self.segments) - 1 and not self.segments[index].size:
            return "the last segment, and empty"
        return ""

    def upper(self, index: int) -> int:
        """Returns the first offset after a segment."""
        following = index + 1
        return self.segments[following].base_offset if following < len(self.segments) else self.log.log_end_offset

    def _reason(self, index: int, rule: RetentionRule) -> str:
        segment, start = self.segments[index], self.log.log_start_offset
        if rule is RetentionRule.LOG_START:
            below = index + 1 < len(self.segments) and self.upper(index) <= start
            return f"ends below the log start offset {start}" if below else ""
        if rule is RetentionRule.SIZE:
            if self._excess < segment.size:
                return ""
            excess, self._excess = self._excess, self._excess - segment.size
            return f"the log is {count_text(excess, 'byte')} over retention.bytes {self.config.retention_bytes}"
        age = self.now_ms - segment.largest_timestamp()
        if self.config.retention_ms < 0 or age <= self.config.retention_ms:
            return ""
        return f"its newest record is {_beside(age, self.config.retention_ms)}"

    # --- verdicts

    def plan(self, gone: int) -> RetentionPlan:
        everything = gone == len(self.segments)
        start = self.log.log_end_offset if everything else self.segments[gone].base_offset
        verdicts = [self._verdict(i, gone, None) for i in range(gone)]
        newest = accumulate((segment.largest_timestamp() for segment in self.segments[gone:]), max)
        verdicts += [self._verdict(i, gone, timestamp) for i, timestamp in enumerate(newest, gone)]
        return RetentionPlan(
            self.log.topic_partition,
            self.now_ms,
            self.log.log_start_offset,
            max(start, self.log.log_start_offset) if gone else self.log.log_start_offset,
            self.log.log_end_offset,
            self.high_watermark,
            everything and gone > 0,
            tuple(verdicts),
        )

    def _verdict(self, index: int, gone: int, newest: int | None) -> SegmentVerdict:
        """`newest` is the largest timestamp from segment `gone` to this one; None before `gone`."""
        segment = self.segments[index]
        largest, has_timestamp = segment.largest_timestamp(), segment.max_timestamp >= 0
        by_age = self._by_time or (self._ages_locally and index < len(self.segments) - 1)
        future = index >= gone and by_age and largest > self.now_ms
        return SegmentVerdict(
            base_offset=segment.base_offset,
            next_offset=self.upper(index),
            size=segment.size,
            active=index == len(self.segments) - 1,
            largest_timestamp=largest,
            from_modified=not has_timestamp,
            rule=self._rules[index][0] if index < gone else None,
            reason=self._rules[index][1] if index < gone else self._why_kept(index, gone),
            # the time rule reaches a segment only when every earlier one is old enough, too
            deletable_ms=None if newest is None or not self._by_time else newest + self.config.retention_ms + 1,
            in_future=future,
            blocking_offset=segment.offset_of_max_timestamp if future and has_timestamp else None,
            disk_bytes=self._rooms.get(index, 0),
        )

    @property
    def _by_time(self) -> bool:
        return self.config.delete and self.config.retention_ms >= 0 and not self.config.remote_storage_enable

    def _why_kept(self, index: int, gone: int) -> str:
        guard = self.guard(index)
        if guard:
            return guard
        if self.config.remote_storage_enable:
            return f"the topic is tiered: only the broker knows what was copied{self._local_verdict(index)}"
        if not self.config.delete:
            policy = ",".join(sorted(self.config.cleanup_policy))
            if not policy:
                return EMPTY_POLICY
            return f"cleanup.policy is {policy}: only segments below the log start offset are deleted"
        if self._freeing:
            active = index == len(self.segments) - 1
            return "the active segment" if active else "enough is free without it"
        if index > gone:
            return f"after segment {self.segments[gone].base_offset}, which stays"
        return "; ".join([self._size_verdict(index), self._time_verdict(index)])

    def _local_verdict(self, index: int) -> str:
        """Returns what local retention by time does to a closed segment that was copied, "" if nothing is known."""
        stop, segment, limit = self._local_stop, self.segments[index], self._local_ms
        if not self._ages_locally or index == len(self.segments) - 1:
            return ""
        age = self.now_ms - segment.largest_timestamp()
        if stop is None or index < stop:
            return "" if limit < 0 else f"; if it was, local retention deletes it: {self._local_age(age)}"
        if index > stop:
            return f"; local retention stops before it, at segment {self.segments[stop].base_offset}"
        if age >= 0:
            return f"; local retention keeps it: {self._local_age(age)}"
        newest = f"its newest record, in the batch that ends at offset {segment.offset_of_max_timestamp},"
        what = newest if segment.max_timestamp >= 0 else "its modification time"
        return f"; {what} lies {rough_duration(-age)} in the future and holds back local retention"

    def _local_age(self, age: int) -> str:
        key = "retention.ms" if self.config.local_retention_ms == _AS_RETENTION else "local.retention.ms"
        return f"its newest record is {_beside(age, self._local_ms, key)}"

    @property
    def _local_ms(self) -> int:
        """How long a copied segment stays (Kafka: LocalLogConfig.localRetentionMs); -1 for ever, or unknown."""
        local = self.config.local_retention_ms
        return self.config.retention_ms if local == _AS_RETENTION else local

    @cached_property
    def _local_stop(self) -> int | None:
        """The first segment that local retention keeps for its age, None if it keeps none (Kafka:
        UnifiedLog.deleteRetentionMsBreachedSegments)."""
        ages = (self.now_ms - segment.largest_timestamp() for segment in self.segments)
        return next((index for index, age in enumerate(ages) if age <= max(self._local_ms, -1)), None)

    @property
    def _ages_locally(self) -> bool:
        """True if a broker may delete segments by age that it has copied."""
        return self.config.delete and self.config.remote_storage_enable and self.config.local_retention_ms != -1

    def _size_verdict(self, index: int) -> str:
        limit = self.config.retention_bytes
        if limit < 0:
            return "no retention.bytes"
        left = sum(s.size for s in self.segments[index + 1 :])
        return f"without it {count_text(left, 'byte')} would be left, less than retention.bytes {limit}"

    def _time_verdict(self, index: int) -> str:
        segment, limit = self.segments[index], self.config.retention_ms
        if limit < 0:
            return "no retention.ms"
        age = self.now_ms - segment.largest_timestamp()
        if age < 0:
            what = "its newest record" if segment.max_timestamp >= 0 else "its modification time"
            return f"{what} lies {rough_duration(-age)} in the future and holds back everything after it"
        return f"its newest record is {_beside(age, limit)}"


class _OpenJudge(_Judge):
    """Also frees space: it takes the oldest segments of an open log, by the disk space of their files."""

    def __init__(self, log: Log, now_ms: int, high_watermark: int) -> None:
        super().__init__(log, now_ms, high_watermark)
        self._fs, self._open = log.fs, log.segments.snapshot()

    def take_room(self, index: int) -> int:
        """Records and returns the disk space of a segment's files."""
        segment = self._open[index]
        paths = (segment.path, segment.offset_index.path, segment.time_index.path, segment.transaction_index.path)
        found = (self._fs.status(path) for path in paths)
        self._rooms[index] = sum(status.allocated for status in found if status is not None)
        return self._rooms[index]

    def free(self, count: int, wanted_bytes: int) -> None:
        """Records that the first `count` segments are deleted to make room."""
        self._freeing = True
        self._rules = [
            (RetentionRule.FREE, f"one of the oldest segments, to free {count_text(wanted_bytes, 'byte')}")
        ] * count


def _beside(age: int, limit: int, key: str = "retention.ms") -> str:
    """Returns an age beside a limit, as exactly as it must be to differ from it."""
    written, rough = format_duration(limit), rough_duration(age)
    return f"{format_duration(age) if rough == written else rough} old, and {key} is {written}"
