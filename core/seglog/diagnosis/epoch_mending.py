"""Broken leader epochs in batch headers: the one field that can be set right, as its neighbours tell its value.

No checksum covers the field, and nothing is lost when it breaks; but a broker that recovers the log would believe
in an epoch that never was. Epochs never fall, so:

1. between two batches of one epoch, another epoch is broken;
2. between batches of different epochs, one that does not lie between theirs is broken; it had that of the
   neighbour from which it differs in one bit, when that holds for one of them only;
3. the first batch of the log had that of the two behind it, when it is above that and one bit off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.diagnosis.ranges import ByteRange
from seglog.diagnosis.walk import Gap, LogWalk
from seglog.storage.filesystem import FileSystem

_MASK = 0xFFFFFFFF
_EPOCH_BYTES = 4


@dataclass(frozen=True, slots=True)
class EpochPatch:
    """The batch at `position` has leader epoch `before`, and had `after`."""

    position: int
    before: int
    after: int

    def apply(self, data: bytearray, position: int) -> None:
        """Sets the field in `data`, the file's bytes from `position` on, as far as it lies in there."""
        field = self.after.to_bytes(_EPOCH_BYTES, "big", signed=True)
        at = self.position + layout.PARTITION_LEADER_EPOCH_OFFSET - position
        for i in range(max(0, -at), min(_EPOCH_BYTES, len(data) - at)):
            data[at + i] = field[i]


def epoch_patches(
    fs: FileSystem, logs: Sequence[tuple[Path, Sequence[ByteRange] | None]]
) -> dict[str, tuple[EpochPatch, ...]]:
    """By the name of the log, what to set right in the logs of a partition (ascending).

    Of each log come the ranges that stay, in their new order (None: all of it): what was moved is not broken.
    Memory is 12 bytes a batch.
    """
    columns = [_epochs_of(fs, path, kept) for path, kept in logs]
    epochs = np.concatenate([column[1] for column in columns]) if columns else np.zeros(0, dtype=np.int32)
    wanted = mended_epochs(epochs)
    found: dict[str, tuple[EpochPatch, ...]] = {}
    start = 0
    for (path, _), (positions, own) in zip(logs, columns, strict=True):
        after = wanted[start : start + len(own)]
        start += len(own)
        patches = [
            EpochPatch(int(positions[i]), int(own[i]), int(after[i])) for i in np.flatnonzero(after != own).tolist()
        ]
        if patches:
            found[path.name] = tuple(patches)
    return found


def mended_epochs(epochs: np.ndarray) -> np.ndarray:
    """The epochs (int32, in log order) as they were, by the rules above."""
    mended = epochs.copy()
    for i in _suspects(epochs):
        before = int(mended[i - 1]) if i else None
        behind = int(epochs[i + 1])
        own = int(epochs[i])
        if before is None:
            if own > behind == int(epochs[min(2, len(epochs) - 1)]) and len(epochs) > 2 and _one_bit(own, behind):
                mended[i] = behind
        elif before == behind:
            mended[i] = before
        elif before < behind and not before <= own <= behind and _one_bit(own, before) != _one_bit(own, behind):
            mended[i] = before if _one_bit(own, before) else behind
    return mended


def _suspects(epochs: np.ndarray) -> list[int]:
    """Batches above their successor or below their predecessor, but for the last one."""
    falls = np.flatnonzero(epochs[1:] < epochs[:-1])
    return [i for i in sorted({*falls.tolist(), *(falls + 1).tolist()}) if i + 1 < len(epochs)]


def _one_bit(one: int, other: int) -> bool:
    return ((one ^ other) & _MASK).bit_count() == 1


def _epochs_of(fs: FileSystem, path: Path, kept: Sequence[ByteRange] | None) -> tuple[np.ndarray, np.ndarray]:
    positions, epochs = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int32)]
    bounds: list[tuple[int, int | None]] = [(0, None)] if kept is None else [(part.position, part.end) for part in kept]
    for start, end in bounds:
        for step in LogWalk(fs, path, start, end):
            if isinstance(step, Gap):
                continue
            rows = step.batches[step.valid & (step.batches["magic"] == 2)]
            positions.append(rows["position"].astype(np.int64))
            epochs.append(rows["leader_epoch"].astype(np.int32))
    return np.concatenate(positions), np.concatenate(epochs)
