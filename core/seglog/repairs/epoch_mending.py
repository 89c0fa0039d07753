"""Corrects broken leader epochs in batch headers, the one header field whose value other data reveals.

No checksum covers the field. A broken value loses nothing, but a broker that recovers the log would believe in an
epoch that never existed. The other witnesses are the log's other batches, whose epochs never fall, and
`leader-epoch-checkpoint`, which a broker writes before the first batch of an epoch. The rules:

1. A batch whose epoch is the one that the checkpoint gives for its offset is right. Of the other batches, the longest
   sequence that never falls, and that fits between those, is right.
2. Every other batch is suspect. Its original epoch is the checkpoint's for its offset, if that lies between the epochs
   of the nearest right batches before and after it; otherwise their epoch, if both have the same; otherwise the epoch
   of the one from which it differs by one bit, unless it differs from both by one bit; at the end of the log, the
   epoch of the right batch before it.
3. Two right batches must contradict a suspect, unless the checkpoint gives the same epoch.
4. An epoch that a broker may have written is never lowered. After an append with too low an epoch, the batches after a
   change of leader are the wrong ones, not the batch that shows the change, and the checkpoint may be missing or old.
   So a suspect gets a lower epoch only if neither neighbour has its epoch, and either no cluster elects leaders that
   often (`_MOST_ELECTIONS`), or the batch after it has the epoch that the checkpoint gives for the suspect, and either
   the checkpoint has a later epoch, or the suspect differs by one bit that stands for many elections
   (`_MANY_ELECTIONS`).

A batch without an epoch (-1) is not evidence and stays unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.errors import CorruptCheckpointError
from seglog.format.checkpoint import EpochEntry, parse_leader_epochs
from seglog.format.filenames import LEADER_EPOCH_CHECKPOINT
from seglog.model import NO_LEADER_EPOCH
from seglog.scan.log_walk import Gap, LogWalk
from seglog.storage.filesystem import FileSystem
from seglog.verification.batch_order import ascending_chain
from seglog.verification.segment_survey import ByteRange

_MASK = 0xFFFFFFFF
_EPOCH_BYTES = 4
_MOST_ELECTIONS = 1 << 16  # between two consecutive batches
_MANY_ELECTIONS = 1 << 4
_WITNESSES = 2


@dataclass(frozen=True, slots=True)
class EpochPatch:
    """A correction of the batch at `position`, from leader epoch `before` to its original epoch `after`."""

    position: int
    before: int
    after: int

    def apply(self, data: bytearray, position: int) -> None:
        """Sets the field in `data`, the file's bytes from `position` on; skips field bytes outside `data`."""
        field = self.after.to_bytes(_EPOCH_BYTES, "big", signed=True)
        at = self.position + layout.PARTITION_LEADER_EPOCH_OFFSET - position
        for i in range(max(0, -at), min(_EPOCH_BYTES, len(data) - at)):
            data[at + i] = field[i]


@dataclass(frozen=True, slots=True)
class EpochPatches:
    """The patches by log file name (`by_log`).

    `left` counts the places where epochs still fall. `noted` is true if the checkpoint could be used.
    """

    by_log: dict[str, tuple[EpochPatch, ...]]
    left: int = 0
    noted: bool = False


def epoch_patches(
    fs: FileSystem, directory: Path, logs: Sequence[tuple[Path, Sequence[ByteRange] | None]]
) -> EpochPatches:
    """Returns the corrections for a partition's logs (ascending).

    Each log comes with the ranges that stay, in their new order (None: the whole file), so that moved batches do not
    look broken. Memory: 20 bytes per batch.
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
    """Returns the original epochs (int32, in log order), by the rules above.

    `bases` are the batches' base offsets, `noted` the checkpoint's entries; without either, only the batches count.
    """
    mended = epochs.copy()
    named = np.flatnonzero(epochs != NO_LEADER_EPOCH)
    own = epochs[named].astype(np.int64)
    # the checkpoint's epoch for each batch (-1: none), and whether the checkpoint has an epoch that begins after it
    stated, settled = np.full(len(own), NO_LEADER_EPOCH, dtype=np.int64), np.zeros(len(own), dtype=bool)
    if bases is not None and noted:
        starts = np.array([entry.start_offset for entry in noted], dtype=np.int64)
        table = np.array([NO_LEADER_EPOCH, *(entry.epoch for entry in noted)], dtype=np.int64)
        stated = table[np.searchsorted(starts, bases[named], side="right")]
        settled = bases[named] < starts[-1]
    right = _right(own, stated)
    suspects = _Suspects(own, stated, settled, right)
    for i in np.flatnonzero(~right).tolist():
        mended[named[i]] = suspects.mended(i)
    return mended


def _right(own: np.ndarray, stated: np.ndarray) -> np.ndarray:
    """Applies rule 1: returns one bool per batch."""
    anchored = own == stated
    least = np.maximum.accumulate(np.where(anchored, own, np.iinfo(np.int64).min))
    most = np.minimum.accumulate(np.where(anchored, own, np.iinfo(np.int64).max)[::-1])[::-1]
    fitting = (own >= 0) & (least <= own) & (own <= most)
    right = np.zeros(len(own), dtype=bool)
    right[fitting] = ascending_chain(own[fitting], own[fitting] - 1)  # so an epoch may follow itself
    return right


class _Suspects:
    """Rules 2 to 4. The columns are int64 and bool, one row per batch with an epoch."""

    def __init__(self, own: np.ndarray, stated: np.ndarray, settled: np.ndarray, right: np.ndarray) -> None:
        self._own, self._stated, self._settled = own, stated, settled
        self._at = np.flatnonzero(right)

    def mended(self, i: int) -> int:
        """Returns the original epoch of batch `i`; the present one if the evidence is not enough."""
        own, stated = int(self._own[i]), int(self._stated[i])
        split = int(np.searchsorted(self._at, i))
        before, after = self._own[self._at[:split]], self._own[self._at[split:]]
        low = int(before[-1]) if len(before) else None
        high = int(after[0]) if len(after) else None
        found = _between(own, stated, low, high)
        if found is None or own == stated:
            return own
        # Right batches never fall, so the nearest ones are the first to contradict it.
        against = int(np.count_nonzero(before[-_WITNESSES:] > own) + np.count_nonzero(after[:_WITNESSES] < own))
        is_impossible = own < 0 or own - found > _MOST_ELECTIONS
        if against < _WITNESSES and found != stated and not is_impossible:
            return own
        if found > own:
            return found
        # rule 4
        is_alone = own not in self._own[max(i - 1, 0) : i].tolist() + self._own[i + 1 : i + 2].tolist()
        continues = found == stated and found in self._own[i + 1 : i + 2]
        is_bit = _one_bit(own, found) and own - found >= _MANY_ELECTIONS
        return found if is_alone and (is_impossible or (continues and (is_bit or self._settled[i]))) else own


def _between(own: int, stated: int, low: int | None, high: int | None) -> int | None:
    """Applies rule 2: returns the epoch between `low` and `high`, the right neighbours' epochs; None if unknown."""
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
    """Returns the checkpoint's entries if they are credible: readable, and rising in both columns. Otherwise ()."""
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
    """Returns the position, base offset and epoch of each good batch."""
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
