"""What is told of snapshots without having them in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from seglog_stores.formats.snapshot_manifest import Part, StoredDirectory
from seglog_stores.formats.snapshot_reading import KnownLines, Manifest


@dataclass(frozen=True, slots=True)
class SnapshotSummary:
    """A snapshot: its log directories, each without its partitions, but with their number; the bytes of all files; the
    damaged places of logs.
    """

    id: str
    started_ms: int
    ended_ms: int
    uncommitted: bool
    leaders: bool
    directories: tuple[tuple[StoredDirectory, int], ...]
    size: int
    damaged: int

    @property
    def partitions(self) -> int:
        """Their number."""
        return sum(count for _, count in self.directories)


class _Counted(NamedTuple):
    """A line of a manifest; `directory` is None for a partition's."""

    directory: StoredDirectory | None
    size: int
    damaged: int


class Summaries:
    """Makes summaries of snapshots, one after the other: a line that several manifests have is parsed once."""

    def __init__(self) -> None:
        self._known = KnownLines(_counted)

    def of(self, manifest: Manifest) -> SnapshotSummary:
        """Returns a snapshot's summary. Raises CorruptTierError."""
        directories: list[StoredDirectory] = []
        counts: list[int] = []
        size = damaged = 0
        for _, line in manifest.lines(self._known):
            size, damaged = size + line.size, damaged + line.damaged
            if line.directory is not None:
                directories.append(line.directory)
                counts.append(0)
            else:
                counts[-1] += 1
        return SnapshotSummary(
            manifest.id,
            manifest.started_ms,
            manifest.ended_ms,
            manifest.uncommitted,
            manifest.leaders,
            tuple(zip(directories, counts, strict=True)),
            size,
            damaged,
        )


def _counted(part: Part) -> _Counted:
    size = sum(file.size for file in part.files)
    return _Counted(part, size, 0) if isinstance(part, StoredDirectory) else _Counted(None, size, len(part.damage))
