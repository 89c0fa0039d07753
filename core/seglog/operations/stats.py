"""Measures partitions: their contents, past cleaning rounds, and what the cleaner needs (`seglog stats`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from seglog.configuration.settings import DirectorySettings, topic_of
from seglog.look.inspect.sizing import Sizing, SizingRequest, size_partition
from seglog.look.inspect.statistics import LogStatistics, view_statistics
from seglog.operations.workspace import CleaningHistory, Round
from seglog.scan.listing import PartitionListing, Target, TargetKind
from seglog.storage.filesystem import FileSystem
from seglog.storage.links import name_of
from seglog.storage.state import state_directory
from seglog.units import count_text


@dataclass(frozen=True)
class MeasuredPartition:
    """A partition to measure, with its log directory's settings and its saved cleaning rounds."""

    listing: PartitionListing
    settings: DirectorySettings
    rounds: tuple[Round, ...]

    @classmethod
    def of(cls, listing: PartitionListing, settings: DirectorySettings, kept: list[Round]) -> MeasuredPartition:
        """Picks this partition's rounds from those of its log directory."""
        name = name_of(listing.directory)
        return cls(listing, settings, tuple(round_ for round_ in kept if round_["partition"] == name))

    def sizing_request(self, now_ms: int, write_rate: int | None) -> SizingRequest:
        """Returns the input of `inspect.sizing` besides the log."""
        resolved = self.settings.resolve(topic_of(Target(self.listing.directory, TargetKind.PARTITION)))
        return SizingRequest(resolved.log, resolved.cleaner, now_ms, self.rounds, write_rate)

    def measured(
        self, fs: FileSystem, now_ms: int, *, sizing: bool = False, write_rate: int | None = None
    ) -> PartitionStatistics:
        """Measures the partition as it is now, in one pass. Raises OSError, NotALogError."""
        directory, needed = self.listing.directory, None
        found = view_statistics(fs, directory)
        if sizing:
            request = self.sizing_request(now_ms, write_rate)
            needed = size_partition(fs, directory, request, keys=found.distinct_keys, records=found.records)
        return PartitionStatistics(found, needed, self.rounds)


@dataclass(frozen=True)
class PartitionStatistics:
    """A partition's contents, the cleaner's needs if requested, and its last cleaning rounds."""

    statistics: LogStatistics
    sizing: Sizing | None
    rounds: tuple[Round, ...]

    def __repr__(self) -> str:
        found = self.statistics
        return (
            f"<PartitionStatistics {found.partition}: {count_text(found.records, 'record')}, about"
            f" {found.distinct_keys} keys, {found.bytes} bytes>"
        )


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
