"""Chooses the log to clean next, and keeps the outcome of each round (Kafka: LogCleanerManager, LogToClean).

1. For every log that is neither being cleaned nor uncleanable, compute the dirty ratio (`log_to_clean`).
2. A log is eligible if its ratio exceeds `min.cleanable.dirty.ratio`, or if a dirty record is older than
   `max.compaction.lag.ms`. The log with the largest ratio is the filthiest. This is computed anew each time.
3. After a round, its end becomes the checkpoint. A log whose round failed is *uncleanable*, with the reason, until one
   of its files changes (in Kafka, until the broker restarts).

Checkpoints outside the log are reset to the log start. Damaged checkpoint files are refused before anything is opened
(`log.checkpoints.check_checkpoints`), because cleaning would overwrite their entries for other partitions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seglog.cleaner.round import cleanable_offsets, rolled_segments, round_down
from seglog.clock import Clock
from seglog.configuration.keys import LONG_MAX
from seglog.errors import RefusedError, sentence_of
from seglog.log.log import Log
from seglog.log.segments import LogSegments
from seglog.model import TopicPartition
from seglog.storage.filesystem import FileSystem
from seglog.units import rough_duration

Fingerprint = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class LogToClean:
    """How dirty a log is. Offsets are as in a round; sizes are bytes of `.log` files.

    A partly clean segment counts in both `clean_bytes` and `cleanable_bytes`, as in Kafka. `delay_ms` is the excess
    over max.compaction.lag.ms, or 0. `limit_reason` says why the dirty section ends where it does. `closed_bytes` is
    the size of the segments before the active one, whose base is `active_base_offset`. `log_start_offset` is the log's.
    """

    topic_partition: TopicPartition
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    min_cleanable_ratio: float
    delay_ms: int
    checkpoint_reset: bool
    limit_reason: str
    closed_bytes: int
    active_base_offset: int
    log_start_offset: int = 0

    @property
    def total_bytes(self) -> int:
        return self.clean_bytes + self.cleanable_bytes

    @property
    def cleanable_ratio(self) -> float:
        """The dirty fraction of the bytes to clean; 0 for an empty log, which Kafka never asks about."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def eligible(self) -> bool:
        """True if a broker's cleaner would take the log."""
        overdue = self.delay_ms > 0 and self.cleanable_bytes > 0
        return overdue or self.cleanable_ratio > self.min_cleanable_ratio

    @property
    def why(self) -> str:
        """The reason why the log is taken or not, in one clause."""
        ratio = f"{100 * self.cleanable_ratio:.1f}% of its bytes are dirty"
        if not self.closed_bytes:
            return "it holds nothing outside the active segment"
        if self.log_start_offset >= self.active_base_offset:
            return f"nothing is cleanable: {self.limit_reason}"
        if self.first_dirty_offset >= self.active_base_offset:
            return "nothing is cleanable: everything outside the active segment is clean"
        if not self.cleanable_bytes:
            return f"nothing is cleanable: {self.limit_reason}"
        if self.cleanable_ratio > self.min_cleanable_ratio:
            return f"{ratio}, more than min.cleanable.dirty.ratio {self.min_cleanable_ratio:g}"
        if self.eligible:
            return f"a record is {rough_duration(self.delay_ms)} over max.compaction.lag.ms"
        return f"{ratio}, not more than min.cleanable.dirty.ratio {self.min_cleanable_ratio:g}"


@dataclass(frozen=True, slots=True)
class Uncleanable:
    """A partition whose round failed. `fingerprint` is that of its files then; None means that it is always retried."""

    topic_partition: TopicPartition
    reason: str
    fingerprint: Fingerprint | None
    bytes: int


def log_to_clean(log: Log, checkpoint: int | None, now_ms: int, *, rolled: bool = False) -> LogToClean:
    """Computes how dirty `log` is at `now_ms`. Reads only indexes and the first batches of dirty segments.

    With `rolled`, counts the active segment as rolled.
    """
    segments, config = rolled_segments(log) if rolled else log.segments, log.config
    found = cleanable_offsets(log, segments, checkpoint, now_ms)
    first, end = found.first_dirty_offset, round_down(segments, found.first_uncleanable_offset)
    return LogToClean(
        topic_partition=log.topic_partition,
        first_dirty_offset=first,
        first_uncleanable_offset=end,
        clean_bytes=sum(segment.size for segment in segments if segment.base_offset < first),
        cleanable_bytes=sum(segment.size for segment in segments.between(min(first, end), end)),
        min_cleanable_ratio=config.min_cleanable_dirty_ratio,
        delay_ms=_delay_ms(segments, config.max_compaction_lag_ms, first, now_ms),
        checkpoint_reset=found.checkpoint_reset,
        limit_reason=found.reason,
        closed_bytes=sum(segment.size for segment in segments if segment is not segments.active),
        active_base_offset=segments.active.base_offset,
        log_start_offset=log.log_start_offset,
    )


def _delay_ms(segments: LogSegments, lag: int, first_dirty_offset: int, now_ms: int) -> int:
    """Returns by how much the oldest dirty record exceeds max.compaction.lag.ms, by its segment's first batch."""
    if lag >= LONG_MAX:
        return 0
    inactive = (s for s in segments.from_floor(first_dirty_offset) if s is not segments.active)
    stamps = [stamp for stamp in (segment.first_batch_timestamp() for segment in inactive) if stamp > 0]
    return max(0, now_ms - lag - min(stamps)) if stamps else 0


def fingerprint_of(fs: FileSystem, directory: Path) -> Fingerprint:
    """Returns names, sizes, times and inodes of the files that a round reads; it changes if any of them changes.

    Indexes and snapshots are left out, because opening and closing a log may rewrite them.
    """
    found = []
    for name in fs.list(directory):
        status = fs.status(directory / name) if name.endswith((".log", ".txnindex")) else None
        if status is not None:
            found.append((name, status.size, status.modified_ns, status.inode))
    return tuple(found)


class CleanerManager:
    """Hands out the logs of one directory to cleaner threads, the filthiest first.

    `logs` are the open compacted logs. `checkpoints` returns the first dirty offsets and is called anew each time;
    `write_checkpoint` makes one durable. `uncleanable` outlives the manager, which keeps the reasons. With `rolled`,
    logs are judged as if their active segments were rolled, which the round then does.
    """

    def __init__(
        self,
        logs: Sequence[Log],
        checkpoints: Callable[[], Mapping[TopicPartition, int]],
        write_checkpoint: Callable[[TopicPartition, int], None],
        clock: Clock,
        uncleanable: dict[TopicPartition, Uncleanable],
        *,
        rolled: bool = False,
    ) -> None:
        self._logs = {log.topic_partition: log for log in logs}
        self._checkpoints, self._write_checkpoint, self._clock = checkpoints, write_checkpoint, clock
        self.uncleanable, self._rolled = uncleanable, rolled
        self._in_progress: set[TopicPartition] = set()
        self._tried: set[TopicPartition] = set()
        self._lock = threading.Lock()

    @property
    def topic_partitions(self) -> tuple[TopicPartition, ...]:
        """The logs that the manager hands out."""
        return tuple(self._logs)

    def candidates(self) -> list[LogToClean]:
        """Returns every log that is neither in progress nor uncleanable, eligible or not, the filthiest first."""
        now_ms, checkpoints = self._clock.now_ms(), self._checkpoints()
        free = [
            log for key, log in self._logs.items() if key not in self._in_progress and not self._is_uncleanable(log)
        ]
        found = [log_to_clean(log, checkpoints.get(log.topic_partition), now_ms, rolled=self._rolled) for log in free]
        return sorted(found, key=lambda log: (-log.cleanable_ratio, log.topic_partition))

    def take_filthiest(self) -> tuple[Log, LogToClean] | None:
        """Returns the filthiest eligible log, in progress from now on, or None.

        A log is handed out again only if its last round advanced the checkpoint, so a log that cannot get cleaner is
        not tried forever.
        """
        with self._lock:
            for found in self.candidates():
                key = found.topic_partition
                if found.eligible and key not in self._tried:
                    if found.checkpoint_reset:
                        self._write_checkpoint(key, found.first_dirty_offset)
                    self._in_progress.add(key)
                    return self._logs[key], found
            return None

    def take(self, topic_partition: TopicPartition) -> Log | None:
        """Returns a log for retention, in progress from now on, or None if it is in progress or uncleanable."""
        with self._lock:
            log = self._logs[topic_partition]
            if topic_partition in self._in_progress or self._is_uncleanable(log):
                return None
            self._in_progress.add(topic_partition)
            return log

    def done(self, cleaned: LogToClean, end_offset: int) -> None:
        """Ends a round at `end_offset`, which becomes the checkpoint."""
        with self._lock:
            key = cleaned.topic_partition
            self._write_checkpoint(key, end_offset)
            self._in_progress.discard(key)
            if end_offset <= cleaned.first_dirty_offset:
                self._tried.add(key)

    def release(self, topic_partition: TopicPartition) -> None:
        """Ends the work on a log without a result (after retention, or a stop)."""
        with self._lock:
            self._in_progress.discard(topic_partition)

    def failed(self, topic_partition: TopicPartition, error: Exception) -> Uncleanable:
        """Ends failed work: the log is uncleanable until its files change.

        After a RefusedError (no room) the next manager tries again.
        """
        with self._lock:
            log = self._logs[topic_partition]
            again = isinstance(error, RefusedError)
            found = Uncleanable(
                topic_partition,
                sentence_of(error),
                None if again else fingerprint_of(log.fs, log.directory),
                log.segments.size,
            )
            self.uncleanable[topic_partition] = found
            self._tried.add(topic_partition)
            self._in_progress.discard(topic_partition)
            return found

    def _is_uncleanable(self, log: Log) -> bool:
        found = self.uncleanable.get(log.topic_partition)
        if found is None:
            return False
        if log.topic_partition in self._tried:
            return True
        if found.fingerprint is not None and found.fingerprint == fingerprint_of(log.fs, log.directory):
            return True
        del self.uncleanable[log.topic_partition]
        return False
