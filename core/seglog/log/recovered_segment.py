"""The result of recovering a segment, and whether the bytes that it cut were data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seglog import layout
from seglog.scan.log_walk import Gap, LogWalk
from seglog.storage.filesystem import FileSystem


@dataclass(frozen=True, slots=True)
class RecoveredSegment:
    """The result of recovering a segment. `reason` says why bytes from `valid_bytes` on were cut, if any were.

    `preallocated`: they were zeros that a broker had allocated at the end of the log, so no data is lost.
    """

    base_offset: int
    valid_bytes: int
    truncated_bytes: int
    next_offset: int
    batches: int
    reason: str
    preallocated: bool = False

    @property
    def lost_bytes(self) -> int:
        """The bytes cut that may have held records."""
        return 0 if self.preallocated else self.truncated_bytes


def is_preallocated(fs: FileSystem, log: Path, position: int) -> bool:
    """True if only zeros that a broker had allocated (`Gap.preallocated`) follow `position`. Raises OSError."""
    with fs.open(log, "r") as file:
        if any(file.read_at(position, layout.LOG_OVERHEAD)):
            return False  # damage is not searched for good batches
    step = next(iter(LogWalk(fs, log, position)), None)
    return isinstance(step, Gap) and step.preallocated
