"""What `seglog top` gathers of a partition on the screen: the figures of `seglog report`, one partition at a time."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from seglog.configuration.settings import DirectorySettings
from seglog.errors import NotALogError
from seglog.look.report.figures import PartitionFigures
from seglog.look.report.partition_figures import Surrounding, TopicRules, partition_figures
from seglog.look.report.watch import WatchedPartition
from seglog.operations.report import topic_rules
from seglog.scan.listing import PartitionDirectory
from seglog.storage.filesystem import FileSystem
from seglog.verification.surroundings import read_surroundings


def surroundings(fs: FileSystem, directory: Path, settings: DirectorySettings, now_ms: int) -> Surrounding:
    """Reads a log directory's checkpoints. Unreadable ones count as empty, as `verify` tells."""
    found = read_surroundings(fs, directory, ask_readers=False, goes_on=lambda _error: True)

    @cache
    def rules(topic: str) -> TopicRules:
        return topic_rules(settings, topic)

    return Surrounding(str(directory), "", rules, found.offsets, now_ms)


def details(fs: FileSystem, one: WatchedPartition, around: Surrounding) -> PartitionFigures | None:
    """Returns the figures of a partition, None if it is gone by now. Raises OSError if it cannot be read."""
    partition = PartitionDirectory.at(Path(one.path))
    try:
        return None if partition is None else partition_figures(fs, partition, around)
    except (FileNotFoundError, NotALogError):
        return None
