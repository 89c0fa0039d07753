"""Broken leader epochs in batch headers: the one field that can be set right, as others tell its value.

No checksum covers the field, and nothing is lost when it breaks; but a broker that recovers the log would believe
in an epoch that never was. Better witnesses are the log's other batches, whose epochs never fall, and
`leader-epoch-checkpoint`, which a broker writes before the first batch of an epoch. So:

1. A batch that has the epoch which the checkpoint has for its offset is right. Of the others the most that
   never fall, among themselves and between those, are right.
2. What is left is suspect: it had the epoch that the checkpoint has for it, if that lies between those of the right
   batches before and after it; else that of both, where they are the same; else that of the one from which it differs
   in one bit, when that is not so of both; at the end of the log that of the batch before it.
3. Two right batches must contradict it, unless the checkpoint says the same.
4. A broker's epoch is never lowered: appending with too low an epoch makes the batches wrong that come after a
   change of leader, not the one that tells of it, and the checkpoint may be gone or older. So a suspect gets a lower
   epoch only where it is alone and either no cluster elects that often (`_MOST_ELECTIONS`), or the epoch that the
   checkpoint has for it goes on in the batch after it, and either the checkpoint names a later one or one bit alone
   makes many elections of none (`_MANY_ELECTIONS`).

A batch that names no epoch (-1) says nothing and stays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.errors import CorruptCheckpointError
from seglog.evidence.segment_survey import ByteRange
from seglog.format.checkpoint import EpochEntry, parse_leader_epochs
from seglog.format.filenames import LEADER_EPOCH_CHECKPOINT
from seglog.model import NO_LEADER_EPOCH
from seglog.scan.log_walk import Gap, LogWalk
from seglog.storage.filesystem import FileSystem

_MASK = 0xFFFFFFFF
_EPOCH_BYTES = 4
_MOST_ELECTIONS = 1 << 16  # between two batches that follow each other
_MANY_ELECTIONS = 1 << 4
_WITNESSES = 2


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


@dataclass(frozen=True, slots=True)
class EpochPatches:
    """`by_log` has the patches by the name of the log; `left` counts the batches before which epochs still fall.

    `noted` says whether the checkpoint could be asked.
    """

    by_log: dict[str, tuple[EpochPatch, ...]]
    left: int = 0
    noted: bool = False


def epoch_patches(
    fs: FileSystem, directory: Path, logs: Sequence[tuple[Path, Sequence[ByteRange] | None]]
) -> EpochPatches:
    """What to set right in the logs of a partition (ascending).

    Of each log come the ranges that stay, in their new order (None: all of it): what was moved is not broken.
    Memory is 20 bytes a batch.
    """
    columns = [_epochs_of(fs, path, kept) for path, kept in logs]
    if not columns:
        return EpochPatches({})
    bases, epochs = (np.concatenate([column[i] for column in columns]) for i in (1, 2))
    noted = _noted(fs, directory)
    wanted = mended_epochs(epochs, bases, noted)
    found: dict[str, tuple[EpochPatch, ...]] = {}
    start = 0
    for (path, _), (positions, _, own) in zip(logs, columns, strict=True):
        after = wanted[start : start + len(own)]
        start += len(own)
        patches = [
            EpochPatch(int(positions[i]), int(own[i]), int(after[i])) for i in np.flatnonzero(after != own).tolist()
        ]
        if patches:
            found[path.name] = tuple(patches)
    left = np.diff(np.maximum(wanted[wanted != NO_LEADER_EPOCH], 0)) < 0
    return EpochPatches(found, int(np.count_nonzero(left)), bool(noted))


def mended_epochs(epochs: np.ndarray, bases: np.ndarray | None, noted: Sequence[EpochEntry]) -> np.ndarray:
    """The epochs (int32, in log order) as they were, by the rules above.

    `bases` are the batches' base offsets, `noted` the checkpoint's entries: without them the batches alone tell.
    """
    mended = epochs.copy()
    named = np.flatnonzero(epochs != NO_LEADER_EPOCH)
    own = epochs[named].astype(np.int64)
    stated, settled = _stated(None if bases is None else bases[named], noted, len(own))
    right = _right(own, stated)
    if not right.all():
        suspects = _Suspects(own, stated, settled, right)
        for i in np.flatnonzero(~right).tolist():
            mended[named[i]] = suspects.mended(i)
    return mended


def _stated(bases: np.ndarray | None, noted: Sequence[EpochEntry], count: int) -> tuple[np.ndarray, np.ndarray]:
    """What the checkpoint has for each batch (-1: nothing), and whether it has an epoch that begins after it."""
    if bases is None or not noted:
        return np.full(count, NO_LEADER_EPOCH, dtype=np.int64), np.zeros(count, dtype=bool)
    starts = np.array([entry.start_offset for entry in noted], dtype=np.int64)
    table = np.array([NO_LEADER_EPOCH, *(entry.epoch for entry in noted)], dtype=np.int64)
    return table[np.searchsorted(starts, bases, side="right")], bases < starts[-1]


def _right(own: np.ndarray, stated: np.ndarray) -> np.ndarray:
    """Rule 1 (bool, one a batch)."""
    if not len(own):
        return np.zeros(0, dtype=bool)
    anchored = own == stated
    least = np.maximum.accumulate(np.where(anchored, own, np.iinfo(np.int64).min))
    most = np.minimum.accumulate(np.where(anchored, own, np.iinfo(np.int64).max)[::-1])[::-1]
    fitting = (own >= 0) & (least <= own) & (own <= most)
    if (np.diff(own[fitting]) >= 0).all():
        return fitting
    right = np.zeros(len(own), dtype=bool)
    right[np.flatnonzero(fitting)[_longest_ascent(own[fitting].tolist())]] = True
    return right


def _longest_ascent(values: list[int]) -> list[int]:
    """The indexes of the longest run of values that never fall."""
    ends: list[int] = []  # the least value that a run of each length can end with
    heads: list[int] = []
    before = [-1] * len(values)
    for i, value in enumerate(values):
        length = bisect_right(ends, value)
        before[i] = heads[length - 1] if length else -1
        ends[length : length + 1] = [value]
        heads[length : length + 1] = [i]
    chosen = []
    at = heads[-1]
    while at >= 0:
        chosen.append(at)
        at = before[at]
    return chosen[::-1]


class _Suspects:
    """Rules 2 to 4. The columns are int64 and bool, one row a batch that names an epoch."""

    def __init__(self, own: np.ndarray, stated: np.ndarray, settled: np.ndarray, right: np.ndarray) -> None:
        self._own, self._stated, self._settled = own, stated, settled
        self._at = np.flatnonzero(right)

    def mended(self, i: int) -> int:
        """The epoch that batch `i` had, its own when nobody can tell."""
        own, stated = int(self._own[i]), int(self._stated[i])
        split = int(np.searchsorted(self._at, i))
        before, after = self._own[self._at[:split]], self._own[self._at[split:]]
        low = int(before[-1]) if len(before) else None
        high = int(after[0]) if len(after) else None
        found = _between(own, stated, low, high)
        if found is None or own == stated:
            return own
        # right batches never fall: the nearest ones contradict first
        against = int(np.count_nonzero(before[-_WITNESSES:] > own) + np.count_nonzero(after[:_WITNESSES] < own))
        if against < _WITNESSES and found != stated and not self._is_impossible(own, found):
            return own
        return found if found > own or self._may_lower(i, own, found) else own

    def _may_lower(self, i: int, own: int, found: int) -> bool:
        """Rule 4."""
        alone = own not in self._own[max(i - 1, 0) : i].tolist() + self._own[i + 1 : i + 2].tolist()
        goes_on = found == self._stated[i] and found in self._own[i + 1 : i + 2]
        is_bit = _one_bit(own, found) and own - found >= _MANY_ELECTIONS
        return alone and (self._is_impossible(own, found) or (goes_on and (is_bit or bool(self._settled[i]))))

    @staticmethod
    def _is_impossible(own: int, found: int) -> bool:
        return own < 0 or own - found > _MOST_ELECTIONS


def _between(own: int, stated: int, low: int | None, high: int | None) -> int | None:
    """Rule 2: the epoch that lies between `low` and `high`, those of the right neighbours; None when nobody knows."""
    if stated >= 0 and (low is None or low <= stated) and (high is None or stated <= high):
        return stated
    if high is None:
        return low
    if low is None:
        return high if _one_bit(own, high) else None
    if low == high:
        return low
    if _one_bit(own, low) != _one_bit(own, high):
        return low if _one_bit(own, low) else high
    return None


def _one_bit(one: int, other: int) -> bool:
    return ((one ^ other) & _MASK).bit_count() == 1


def _noted(fs: FileSystem, directory: Path) -> tuple[EpochEntry, ...]:
    """The checkpoint's entries, if they can be believed: readable, and rising in both columns."""
    path = directory / LEADER_EPOCH_CHECKPOINT
    if fs.status(path) is None:
        return ()
    try:
        entries = parse_leader_epochs(fs.read_bytes(path), path)
    except CorruptCheckpointError:
        return ()
    pairs = [(entry.epoch, entry.start_offset) for entry in entries]
    rising = all(one[0] < two[0] and one[1] < two[1] for one, two in pairwise(pairs))
    return entries if rising else ()


def _epochs_of(
    fs: FileSystem, path: Path, kept: Sequence[ByteRange] | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Position, base offset and epoch of each good batch."""
    columns = [[np.zeros(0, dtype=kind)] for kind in (np.int64, np.int64, np.int32)]
    bounds: list[tuple[int, int | None]] = [(0, None)] if kept is None else [(part.position, part.end) for part in kept]
    for start, end in bounds:
        for step in LogWalk(fs, path, start, end):
            if isinstance(step, Gap):
                continue
            rows = step.batches[step.valid & (step.batches["magic"] == 2)]
            for column, name in zip(columns, ("position", "base_offset", "leader_epoch"), strict=True):
                column.append(rows[name].copy())
    position, base, epoch = (np.concatenate(column) for column in columns)
    return position, base, epoch
