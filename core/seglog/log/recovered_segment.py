"""What recovering one segment comes to: what was found, or that offsets do not ascend (Kafka: LogSegment.recover)."""

from __future__ import annotations

from dataclasses import dataclass

from seglog.errors import CorruptIndexError


class OffsetNotAscendingError(CorruptIndexError):
    """An index entry would go backwards (Kafka: InvalidOffsetException): offsets in the log are out of order."""


@dataclass(frozen=True, slots=True)
class RecoveredSegment:
    """What recovering a segment found. `reason` says why bytes from `valid_bytes` on were cut, if any were."""

    base_offset: int
    valid_bytes: int
    truncated_bytes: int
    next_offset: int
    batches: int
    reason: str
