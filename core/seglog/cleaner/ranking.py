"""Ranks the logs of a directory while they are closed, so that each is open only while it is worked on.

A directory may have ten thousand logs, and each that is open takes 24 KB.

1. Most logs are ranked by what the names of their files, the checkpoints and the newest snapshot of producers tell
   (`add`). Any other log must be opened to be ranked: one that was not closed properly, one that time alone makes
   dirty, one in which a transaction is open or which has an unusual file.
2. The filthiest is opened when it is its turn (`due`), and ranked anew by what it holds. Names never show a log less
   dirty than it is, so the order is that of a manager to which all logs are open.
"""

from __future__ import annotations

import heapq
from pathlib import Path

from seglog.cleaner.dirtiness import changes_with_time, log_to_clean
from seglog.cleaner.manager import CleanerManager
from seglog.clock import Clock
from seglog.configuration.keys import LogConfig
from seglog.errors import CorruptionError, RefusedError
from seglog.format.filenames import APPEND_JOURNAL_FILE
from seglog.format.producer_snapshot import NO_OFFSET, decode_snapshot
from seglog.log.directory import LogDirectory
from seglog.log.outline import OutlinedLog, OutlinedSegment
from seglog.log.segment_list import SegmentList
from seglog.model import TopicPartition
from seglog.scan.listing import NamedFile, PartitionDirectory, list_partition
from seglog.storage.filesystem import FileSystem


class Ranking:
    """The closed logs of `directory` that wait to be handed out by `manager`. `fs` shows files without holding them.

    With `opens_all` every log must be opened to be ranked.
    """

    def __init__(
        self, directory: LogDirectory, manager: CleanerManager, fs: FileSystem, clock: Clock, *, opens_all: bool = False
    ) -> None:
        self._directory, self._manager, self._fs, self._clock = directory, manager, fs, clock
        self._waiting: list[tuple[tuple[float, TopicPartition], Path]] = []  # a heap
        settled_in_memory = fs.status(directory.path / APPEND_JOURNAL_FILE, follow=False) is not None
        self._opens_all = opens_all or settled_in_memory or not directory.clean_shutdown

    def add(self, partition: PartitionDirectory, config: LogConfig) -> bool:
        """Ranks a log by its names; returns False if it must be opened for that. Raises NotALogError and OSError."""
        key, checkpoint = partition.topic_partition, self._directory.cleaner_offsets.get(partition.topic_partition)
        facts = None if self._opens_all or changes_with_time(config) else self._facts(partition, config)
        # a log ends at its active segment's base or later: above that, only batches tell whether a checkpoint counts
        if facts is None or (checkpoint or 0) > facts.segments.active.base_offset:
            return False
        state = log_to_clean(facts, checkpoint, self._clock.now_ms())
        if state.eligible:
            heapq.heappush(self._waiting, (state.place, self._directory.path / str(key)))
        else:
            self._manager.set_aside(state)
        return True

    def due(self) -> Path | None:
        """Returns the partition to be opened before the manager hands out another log, if there is one; it waits no
        longer then.
        """
        filthiest = self._manager.filthiest() if self._waiting else None
        if not self._waiting or (filthiest is not None and filthiest.place < self._waiting[0][0]):
            return None
        return heapq.heappop(self._waiting)[1]

    def _facts(self, partition: PartitionDirectory, config: LogConfig) -> OutlinedLog | None:
        """Returns a log as its names show it, None if they do not tell all that matters."""
        listing = list_partition(self._fs, partition.path)
        newest, segments = listing.snapshots[-1:], listing.segments
        unusual = (*listing.leftovers, *listing.strangers, *listing.orphans)
        if listing.format != "kafka" or unusual or any(segment.offset_index is None for segment in segments):
            return None
        start, active = self._directory.log_start_offsets.get(partition.topic_partition, 0), segments[-1:]
        if not active or start > active[0].base_offset:
            return None
        end = max(active[0].base_offset + (active[0].size > 0), newest[0].offset if newest else 0)
        if len(segments) > 1 and not (
            newest and newest[0].offset >= active[0].base_offset and self._ends_all(newest[0])
        ):
            return None  # a transaction before the active segment may be open
        outlined = SegmentList(OutlinedSegment(self._fs, files) for files in segments)
        start = max(start, outlined.first.base_offset)
        return OutlinedLog(partition.topic_partition, config, outlined, start, end, end)

    def _ends_all(self, snapshot: NamedFile) -> bool:
        """True if no transaction was open when a snapshot was taken. False, too, if it cannot be read."""
        try:
            entries = decode_snapshot(self._fs.read_bytes(snapshot.path), snapshot.path)
        except (FileNotFoundError, CorruptionError, RefusedError):
            return False
        return all(entry.current_txn_first_offset == NO_OFFSET for entry in entries)
