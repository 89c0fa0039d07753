"""What a walk through a log finds besides good batches, and what a reader of records does about it."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from seglog.errors import CorruptRecordError
from seglog_ask.table.plan.options import ReadOptions
from seglog_ask.table.plan.splits import SegmentPiece

_logger = logging.getLogger("seglog.table.damage")

CHECKSUM = "checksum"
FRAMING = "framing"
CONTENTS = "contents"
OFFSETS = "offsets"  # no checksum covers a batch's base offset, so it is checked against the segment
ORDER = "order"
TORN_TAIL = "torn tail"
MISSING = "missing"  # no bytes, but offsets that no batch covers


@dataclass(frozen=True, slots=True)
class Damage:
    """A range of a file that yields no records. Offsets are the header's, None if no header is credible.

    `expected` marks the torn tail that a running or a killed broker leaves, which is not an error.
    """

    path: str
    position: int
    size: int
    kind: str
    reason: str
    first_offset: int | None = None
    last_offset: int | None = None
    expected: bool = False

    def error(self, to_skip: str) -> CorruptRecordError:
        """Returns the damage as an error, for a reader that must not skip it. `to_skip` names the option that does."""
        hint = f"{self.reason}; {to_skip} reads the rest"
        return CorruptRecordError(self.path, hint, self.position, self.first_offset, self.last_offset)


def handle(damage: Damage, options: ReadOptions) -> None:
    """Handles damage for a reader of records: raises or logs, by `failOnDataLoss` for missing offsets, else by
    `onCorrupt`. Ignores a torn tail that is expected.
    """
    if damage.expected:
        return
    if damage.kind == MISSING:
        which = f"offsets {damage.first_offset} to {damage.last_offset} are missing"
        options.report_loss(f"{damage.path}: position {damage.position}: {which}: {damage.reason}")
        return
    if options.on_corrupt == "fail":
        raise damage.error(options.to_skip)
    done = "kept" if damage.kind == ORDER else "skipped"
    _logger.warning("%s %d bytes: %s", done, damage.size, damage.error(options.to_skip))


def damage_at(piece: SegmentPiece, row: np.void, kind: str, reason: str) -> Damage:
    """Returns a whole batch (a row of layout.BATCH) as damage."""
    base, last = int(row["base_offset"]), int(row["last_offset"])
    return Damage(piece.path, int(row["position"]), int(row["size"]), kind, reason, base, last)
