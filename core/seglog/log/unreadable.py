"""Bytes of a segment that are not readable batches: why, what offsets they may have held, where good batches follow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seglog.errors import CorruptRecordError
from seglog.log.segment import LogSegment
from seglog.scan.log_walk import Gap, LogWalk
from seglog.scan.resync import PlausibleOffsets
from seglog.scan.segment_scan import EndReason
from seglog.units import count_text

_LOOK_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Bytes of `path` that are not a batch. `first_offset` is the lowest offset that they may have held; `following` is
    the first good batch after them (layout.BATCH), or None.
    """

    path: Path
    gap: Gap
    first_offset: int
    following: np.void | None

    @property
    def is_torn_end(self) -> bool:
        """True for what a crash leaves at the end of a log: an incomplete batch, or preallocated zeros."""
        return self.following is None and (self.gap.zeros or self.gap.reason is EndReason.TRAILING)

    def error(self, writing: bool = False) -> CorruptRecordError:
        """Returns the error for a reader who needs these bytes, or for a writer who would go on in their place."""
        last = None
        if self.following is None:
            after = "nothing good follows in this file"
        else:
            base, position = int(self.following["base_offset"]), int(self.following["position"])
            after = f"good batches follow from offset {base} on (position {position}; `seglog dump` shows them)"
            last = base - 1 if base > self.first_offset else None
        unwritten = "nothing is written here: `seglog repair` mends the log first"
        so = unwritten if writing else f"{count_text(self.gap.length, 'byte')} cannot be read"
        reason = f"{self.gap.why}; {after}, so {so}"
        return CorruptRecordError(self.path, reason, self.gap.position, self.first_offset, last)


def unreadable_at(segment: LogSegment, position: int, end: int, first_offset: int) -> Unreadable | None:
    """Describes the bytes from `position`, where no batch was found, at most to `end`; None if a batch is there by now.

    `first_offset` is the one after the last batch before `position`.
    """
    offsets = PlausibleOffsets.of_segment(segment.base_offset)
    gap = None
    for step in LogWalk(segment.fs, segment.path, position, end, offsets=offsets, chunk_bytes=_LOOK_BYTES):
        if isinstance(step, Gap):
            gap = gap or step
        elif gap is None:
            return None
        else:
            return Unreadable(segment.path, gap, first_offset, step.batches[0].copy())
    return None if gap is None else Unreadable(segment.path, gap, first_offset, None)


def no_batch(segment: LogSegment, position: int, end: int, first_offset: int) -> CorruptRecordError:
    """Returns the error for a reader who found no batch at byte `position`, where `first_offset` would follow."""
    found = unreadable_at(segment, position, end, first_offset)
    if found is None:
        return CorruptRecordError(segment.path, EndReason.TRAILING.value, position, first_offset)
    return found.error()
