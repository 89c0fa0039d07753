"""Opening a partition directory for reading: its segments, its start and its end (Kafka: LogLoader, without recovery).

1. List the directory. The names give the segments; what a crash left beside them is passed over.
2. Find the end: the last segment is walked from its last index entry on, to its last whole batch.
3. The start is the log start in the checkpoint, or the first segment's base, whichever is further on.

Producers, leader epochs, and what a starting broker would settle are worked out when somebody asks for them: `loader`
does its work in memory then. It does so at once where a broker serves other segments than the files are: a swap is to
be finished, there is no segment, or the log ends below its start. `test_read_loader` compares what both show.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from seglog.clock import Clock
from seglog.format.filenames import FileKind, FileState, parse_file_name
from seglog.log.leader_epochs import LeaderEpochCache
from seglog.log.loader import LoadedLog, LoadOptions, RecoveryReport, load_log
from seglog.log.producer_state import ProducerStateManager
from seglog.log.segment import LogSegment
from seglog.log.segments import LogSegments
from seglog.scan.listing import require_batches, require_directory, reread
from seglog.storage.filesystem import FileSystem
from seglog.storage.overlay import OverlayFileSystem


@dataclass(frozen=True, slots=True)
class Place:
    """What is to be opened: a partition directory, the log start in its log directory's checkpoint, and how the log
    would be opened for writing, which is found out when it is asked for.
    """

    fs: FileSystem
    directory: Path
    clock: Clock
    log_start_offset: int
    options_of: Callable[[], LoadOptions]

    def settled(self) -> LoadedLog:
        """The log as a starting broker would have it before it recovers, worked out in memory."""
        return load_log(self.fs, self.directory, self.clock, replace(self.options_of(), writable=False))


class ReadableLog:
    """What `load_for_reading` hands to `Log`. Nothing on disk is changed through it.

    `settled` says that a starting broker would serve other segments than those that lie there, and these are its.
    """

    settled = False

    def __init__(self, place: Place, segments: LogSegments, log_start_offset: int, log_end_offset: int) -> None:
        self.fs, self.segments, self._place = place.fs, segments, place
        self.log_start_offset, self.log_end_offset = log_start_offset, log_end_offset

    @cached_property
    def leader_epochs(self) -> LeaderEpochCache:
        """The epochs of the checkpoint, cut to the log; none where it cannot be read."""
        epochs = LeaderEpochCache(OverlayFileSystem(self.fs), self._place.directory, tolerant=True)
        epochs.truncate_from_end(self.log_end_offset)
        epochs.truncate_from_start(self._place.log_start_offset)
        return epochs

    @property
    def producers(self) -> ProducerStateManager:
        """The producers at the log end."""
        return self._loaded.producers

    @property
    def report(self) -> RecoveryReport:
        """What a starting broker would settle before it recovers."""
        return self._loaded.report

    @property
    def recovery_point(self) -> int:
        """First offset that is not known to be on stable storage."""
        return self._loaded.recovery_point

    @cached_property
    def _loaded(self) -> LoadedLog:
        return self._place.settled()


class SettledLog(ReadableLog):
    """A log that a starting broker would serve otherwise than it lies there."""

    settled = True

    def __init__(self, place: Place) -> None:
        self._loaded = place.settled()
        super().__init__(
            replace(place, fs=self._loaded.fs),
            self._loaded.segments,
            self._loaded.log_start_offset,
            self._loaded.log_end_offset,
        )
        self.leader_epochs = self._loaded.leader_epochs


def load_for_reading(place: Place) -> ReadableLog:
    """Opens the partition; steps above. Through `place.fs` the directory should hold still (`viewed_directory`).

    NotALogError for a missing directory, UnsupportedError for a log of Kafka 0.7.
    """
    return reread(place.fs, place.directory, lambda: _load(place))


def _load(place: Place) -> ReadableLog:
    require_directory(place.fs, place.directory)
    require_batches(place.fs, place.directory)
    names = [name for name, found in place.fs.entries(place.directory) if not found.is_directory]
    logs = [found for name in names if name.endswith(FileKind.LOG.value) and (found := parse_file_name(name))]
    if not logs or any(name.endswith(FileState.SWAP.value) for name in names):
        return SettledLog(place)
    segments = LogSegments(LogSegment(place.fs, place.directory, found.offset) for found in logs)
    active = segments.active
    end, valid_bytes = active.read_next_offset()
    if end < place.log_start_offset:
        return SettledLog(place)
    active.trailing_bytes, active.size = active.size - valid_bytes, valid_bytes
    return ReadableLog(place, segments, max(place.log_start_offset, segments.first.base_offset), end)
