"""Measures partitions: their contents, past cleaning rounds, and what the cleaner needs (`seglog stats`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from seglog.cleaner.metrics import CleanerGauges, gauges_of
from seglog.configuration.keys import LogConfig
from seglog.configuration.settings import DirectorySettings, topic_of
from seglog.errors import NotALogError
from seglog.log.outline import outline
from seglog.look.inspect.sizing import Sizing, SizingRequest, size_partition
from seglog.look.inspect.statistics import LogStatistics, view_statistics
from seglog.look.report.growth import Growth, growth_of
from seglog.model import TopicPartition
from seglog.operations.workspace import CleaningHistory, Round, Workspace, settings_of
from seglog.scan.listing import (
    Target,
    TargetKind,
    is_07,
    list_partition,
    log_directory_of,
    partition_directories,
    require_directory,
)
from seglog.storage.filesystem import FileSystem
from seglog.storage.gauges import write_gauges
from seglog.storage.links import name_of
from seglog.storage.state import state_directory
from seglog.units import count_text

if TYPE_CHECKING:
    from seglog.cleaner.dirtiness import LogToClean
    from seglog.clock import Clock


@dataclass(frozen=True)
class MeasuredPartition:
    """A partition to measure, with its log directory's settings and its saved cleaning rounds."""

    directory: Path
    settings: DirectorySettings
    rounds: tuple[Round, ...]

    @classmethod
    def of(cls, directory: Path, settings: DirectorySettings, kept: list[Round]) -> MeasuredPartition:
        """Picks this partition's rounds from those of its log directory."""
        name = name_of(directory)
        return cls(directory, settings, tuple(round_ for round_ in kept if round_["partition"] == name))

    def growth(self, fs: FileSystem, now_ms: int) -> Growth | None:
        """Returns the partition's growth by its time indexes; None if they do not tell."""
        listing = list_partition(fs, self.directory)
        key = listing.topic_partition or TopicPartition("unnamed", 0)
        log = outline(fs, listing, key, LogConfig(), {})
        return None if log is None else growth_of(log, now_ms)

    def sizing_request(self, now_ms: int, write_rate: int | None) -> SizingRequest:
        """Returns the input of `inspect.sizing` besides the log."""
        resolved = self.settings.resolve(topic_of(Target(self.directory, TargetKind.PARTITION)))
        return SizingRequest(resolved.log, resolved.cleaner, now_ms, self.rounds, write_rate)

    def measured(
        self, fs: FileSystem, now_ms: int, *, sizing: bool = False, write_rate: int | None = None
    ) -> PartitionStatistics:
        """Measures the partition as it is now, in one pass. Raises OSError, NotALogError."""
        directory, needed = self.directory, None
        contents = view_statistics(fs, directory)
        if sizing:
            request = self.sizing_request(now_ms, write_rate)
            needed = size_partition(fs, directory, request, keys=contents.distinct_keys, records=contents.records)
        return PartitionStatistics(contents, needed, self.rounds)


@dataclass(frozen=True)
class PartitionStatistics:
    """A partition's contents, the cleaner's needs if requested, and its last cleaning rounds."""

    statistics: LogStatistics
    sizing: Sizing | None
    rounds: tuple[Round, ...]

    def __repr__(self) -> str:
        contents = self.statistics
        return (
            f"<PartitionStatistics {contents.partition}: {count_text(contents.records, 'record')}, about"
            f" {contents.distinct_keys} keys, {contents.bytes} bytes>"
        )


class MeasuredDirectories:
    """The log directories of targets with their settings and saved rounds, which are read once, and their partitions.

    `passing_over` surrounds the first look at each partition, and may let its error pass.
    """

    def __init__(
        self,
        work: Workspace,
        targets: Sequence[Target],
        passing_over: Callable[[Path], AbstractContextManager[object]],
    ) -> None:
        self._work, self._targets, self._passing_over = work, targets, passing_over
        self._settings: dict[Path, DirectorySettings] = {}

    def partitions(self) -> Iterator[MeasuredPartition]:
        """Yields the partitions; those of Kafka 0.7 are left out with a warning. Raises OSError, NotALogError."""
        fs, warn = self._work.fs, self._work.warn
        for target in self._targets:
            log_directory = log_directory_of(target)
            if log_directory not in self._settings:
                self._settings[log_directory] = settings_of(self._work, log_directory)
            rounds = kept_rounds(fs, self._work.environment, log_directory, warn)
            for directory in partition_directories(fs, target):
                is_old = None
                with self._passing_over(directory):
                    require_directory(fs, directory)
                    is_old = is_07(fs, directory)
                if is_old:
                    warn(f"{directory}: a log of Kafka 0.7 has no statistics")
                elif is_old is not None:
                    yield MeasuredPartition.of(directory, self._settings[log_directory], rounds)

    def write_gauges(self, path: Path) -> None:
        """Writes the cleaner's gauges of the directories whose partitions were yielded, for Prometheus."""
        work, gauges = self._work, []
        for log_directory, settings in self._settings.items():
            rounds = kept_rounds(work.fs, work.environment, log_directory, work.warn)
            ended = rounds[-1]["time"] if rounds else None
            states = _states_of(work.fs, log_directory, settings, work.clock)
            gauges.append(
                CleanerGauges(
                    directory=str(log_directory),
                    rounds=tuple(round_ for round_ in rounds if round_["time"] == ended),
                    max_dirty_ratio=max((state.cleanable_ratio for state in states), default=0.0),
                    max_delay_ms=max((state.delay_ms for state in states), default=0),
                    uncleanable={},
                    ms_since_last_run=None if ended is None else max(0, work.clock.now_ms() - ended),
                )
            )
        write_gauges(work.fs, path, gauges_of(gauges))


def measure(
    work: Workspace, targets: Sequence[Target], *, sizing: bool, write_rate: int | None
) -> Iterator[PartitionStatistics]:
    """Yields the statistics of each partition; one of a log directory that is deleted meanwhile is left out.

    Raises OSError, NotALogError.
    """
    named = {target.directory for target in targets if target.kind is not TargetKind.LOG_DIRECTORY}

    @contextmanager
    def unless_deleted(directory: Path) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotALogError):
            if directory in named or work.fs.status(directory, follow=False) is not None:
                raise

    for partition in MeasuredDirectories(work, targets, unless_deleted).partitions():
        statistics = None
        with unless_deleted(partition.directory):
            statistics = partition.measured(work.fs, work.clock.now_ms(), sizing=sizing, write_rate=write_rate)
        if statistics is not None:
            yield statistics


def kept_rounds(
    fs: FileSystem, environment: Mapping[str, str], log_directory: Path, tell: Callable[[str], None]
) -> list[Round]:
    """Returns the saved cleaning rounds of a log directory, oldest first.

    If they cannot be read, as in another user's home under sudo, passes a message to `tell` and returns none.
    """
    history = CleaningHistory(fs, state_directory(environment), log_directory)
    try:
        return history.rounds()
    except OSError as error:
        tell(f"{history.path}: past cleaning rounds cannot be read: {error.strerror or error}")
        return []


def _states_of(fs: FileSystem, log_directory: Path, topics: DirectorySettings, clock: Clock) -> list[LogToClean]:
    """Returns how dirty each log of a directory is that is known to be compacted. Changes and locks nothing."""
    from seglog.cleaner.dirtiness import log_to_clean, policy_problem  # loads the cleaner
    from seglog.log.directory import LogDirectory

    with LogDirectory.open(log_directory, fs=fs, clock=clock, config_of=topics, writable=False) as directory:
        present = [place.topic_partition for place in directory.listing.live if fs.status(place.path) is not None]
        logs = [directory.log(key) for key in present if not policy_problem(topics.resolve(key.topic), key.topic)]
        checkpoints, now_ms = directory.cleaner_offsets, clock.now_ms()
        return [log_to_clean(log, checkpoints.get(log.topic_partition), now_ms) for log in logs]
