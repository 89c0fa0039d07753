"""Chooses the log to clean next, and keeps the outcome of each round (Kafka: LogCleanerManager, LogToClean).

1. For every log that is neither being cleaned nor uncleanable, compute the dirty ratio (`dirtiness.log_to_clean`).
2. A log is eligible if its ratio exceeds `min.cleanable.dirty.ratio`, or if a dirty record is older than
   `max.compaction.lag.ms`. The log with the largest ratio is the filthiest. A broker computes this anew for all logs
   each time. Here it is computed anew for a log that was worked on and for one that time alone makes dirty: nobody else
   changes the others, and a directory may have ten thousand. Whoever closes the others while they wait (`ranking`) adds
   each when it is opened, and withdraws it again.
3. After a round, its end becomes the checkpoint. A log whose round failed is *uncleanable*, with the reason, until one
   of its files changes (in Kafka, until the broker restarts).

Checkpoints outside the log are reset to the log start. Damaged checkpoint files are refused before anything is opened
(`log.checkpoints.check_checkpoints`), because cleaning would overwrite their entries for other partitions.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from seglog.cleaner.dirtiness import LogToClean, changes_with_time, log_to_clean
from seglog.cleaner.round import rolled_segments
from seglog.clock import Clock
from seglog.errors import RefusedError, sentence_of
from seglog.log.directory import LogDirectory
from seglog.log.log import Log
from seglog.model import TopicPartition
from seglog.storage.filesystem import FileSystem

Fingerprint = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Uncleanable:
    """A partition whose round failed. `fingerprint` is that of its files then; None means that it is always retried."""

    topic_partition: TopicPartition
    reason: str
    fingerprint: Fingerprint | None
    bytes: int


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

    `logs` are the open compacted logs of `directory`, whose checkpoints are read anew each time; a dry run writes none.
    `uncleanable` outlives the manager, which keeps the reasons there. With `rolled`, logs are judged as if their active
    segments were rolled, which the round then does.
    """

    def __init__(
        self,
        directory: LogDirectory,
        logs: Sequence[Log],
        clock: Clock,
        uncleanable: dict[TopicPartition, Uncleanable] | None = None,
        *,
        rolled: bool = False,
        dry_run: bool = False,
    ) -> None:
        self._logs: dict[TopicPartition, Log] = {}
        self._directory, self._clock, self._rolled, self._dry_run = directory, clock, rolled, dry_run
        self.uncleanable = {} if uncleanable is None else uncleanable
        self._in_progress: set[TopicPartition] = set()
        self._tried: set[TopicPartition] = set()
        self._to_judge: set[TopicPartition] = set()
        self._ageing: set[TopicPartition] = set()
        self._eligible: dict[TopicPartition, LogToClean] = {}
        self._filthiest: list[tuple[float, TopicPartition]] = []  # a heap; a place whose log has another is passed over
        self._queued: set[tuple[float, TopicPartition]] = set()  # the heap's places
        self._aside: list[LogToClean] = []  # of logs that are closed
        self._lock = threading.Lock()
        for log in logs:
            self.add(log)

    def add(self, log: Log) -> None:
        """Hands out one more log from now on."""
        with self._lock:
            key = log.topic_partition
            self._logs[key] = log
            self._to_judge.add(key)
            if changes_with_time(log.config):
                self._ageing.add(key)

    def withdraw(self, log: Log) -> bool:
        """Forgets a log, so that its owner may close it; returns False if it is, or may become, eligible. One that is
        not in progress stays a candidate as it is now.
        """
        with self._lock:
            key = log.topic_partition
            left = self._judged([key])
            if left and (key in self._ageing or (left[0].eligible and key not in self._tried)):
                return False
            self._aside += left
            del self._logs[key]
            self._to_judge.discard(key)
            self._eligible.pop(key, None)
            return True

    def set_aside(self, state: LogToClean) -> None:
        """Counts a log that is closed and not eligible as a candidate."""
        self._aside.append(state)

    @property
    def topic_partitions(self) -> tuple[TopicPartition, ...]:
        """The logs that the manager hands out."""
        return tuple(self._logs)

    def candidates(self) -> list[LogToClean]:
        """Returns every log that is neither in progress nor uncleanable, eligible or not, the filthiest first."""
        return sorted((*self._judged(self._logs), *self._aside), key=attrgetter("place"))

    def filthiest(self) -> LogToClean | None:
        """Returns how dirty the log is that `take_filthiest` would return now."""
        with self._lock:
            return self._found()

    def take_filthiest(self) -> tuple[Log, LogToClean] | None:
        """Returns the filthiest eligible log, in progress from now on, or None.

        A log is handed out again only if its last round advanced the checkpoint, so a log that cannot get cleaner is
        not tried forever.
        """
        with self._lock:
            state = self._found()
            if state is None:
                return None
            key = state.topic_partition
            del self._eligible[key]
            if state.checkpoint_reset:
                self._write_checkpoint(key, state.first_dirty_offset)
            self._in_progress.add(key)
            return self._logs[key], state

    def _found(self) -> LogToClean | None:
        """Returns the first of the heap's places that is still its log's."""
        self._judge_anew()
        while self._filthiest:
            state = self._eligible.get(self._filthiest[0][1])
            if state is not None and state.place == self._filthiest[0]:
                return state
            self._queued.remove(heapq.heappop(self._filthiest))
        return None

    def _judge_anew(self) -> None:
        """Brings `_eligible` and `_filthiest` up to date."""
        changed = self._to_judge | self._ageing | self.uncleanable.keys() & self._logs.keys()
        self._to_judge = set()
        for key in changed:
            self._eligible.pop(key, None)
        for state in self._judged(changed - self._tried):
            if state.eligible:
                self._eligible[state.topic_partition] = state
                if state.place not in self._queued:
                    self._queued.add(state.place)
                    heapq.heappush(self._filthiest, state.place)

    def _judged(self, keys: Iterable[TopicPartition]) -> list[LogToClean]:
        """Returns how dirty those of the logs are that are neither in progress nor uncleanable."""
        now_ms, checkpoints = self._clock.now_ms(), self._directory.cleaner_offsets
        logs = [self._logs[key] for key in keys if key not in self._in_progress]
        return [
            log_to_clean(
                log, checkpoints.get(log.topic_partition), now_ms, rolled_segments(log) if self._rolled else None
            )
            for log in logs
            if not self._is_uncleanable(log)
        ]

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
            self._end(key)
            if end_offset <= cleaned.first_dirty_offset:
                self._tried.add(key)

    def release(self, topic_partition: TopicPartition) -> None:
        """Ends the work on a log without a result (after retention, or a stop)."""
        with self._lock:
            self._end(topic_partition)

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
            self._end(topic_partition)
            return found

    def _write_checkpoint(self, key: TopicPartition, offset: int) -> None:
        if not self._dry_run:
            self._directory.write_cleaner_offset(key, offset)

    def _end(self, key: TopicPartition) -> None:
        self._in_progress.discard(key)
        self._to_judge.add(key)

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
