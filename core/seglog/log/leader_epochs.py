"""The start offset of each leader epoch, kept in `leader-epoch-checkpoint` (Kafka: LeaderEpochFileCache).

Epochs and start offsets both ascend. Every change that must survive a crash rewrites the whole file atomically.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from seglog.errors import CorruptCheckpointError
from seglog.format.checkpoint import EpochEntry, format_leader_epochs, parse_leader_epochs
from seglog.format.filenames import LEADER_EPOCH_CHECKPOINT
from seglog.model import NO_LEADER_EPOCH
from seglog.storage.files import write_atomically
from seglog.storage.filesystem import FileSystem

NO_OFFSET = -1


class LeaderEpochCache:
    """The epochs of one log. `path` is its checkpoint file.

    Loading assigns the file's entries one by one, which repairs their order. Raises CorruptCheckpointError if the file
    cannot be read; with `tolerant` it counts as empty instead, and `damage` is that error. `highest_epoch` is the
    highest epoch ever assigned here: a leader records its epoch at the log end before it writes, and opening the log
    drops such an entry, but the epoch was that leader's all the same.
    """

    def __init__(self, fs: FileSystem, directory: Path, *, tolerant: bool = False) -> None:
        self.path = directory / LEADER_EPOCH_CHECKPOINT
        self.damage: CorruptCheckpointError | None = None
        self._fs = fs
        self._entries: list[EpochEntry] = []
        self.highest_epoch = NO_LEADER_EPOCH
        try:
            for entry in self._read():
                self._assign(entry)
        except CorruptCheckpointError as error:
            if not tolerant:
                advice = "`seglog verify --repair` rebuilds it from the records"
                raise CorruptCheckpointError(self.path, f"{error.reason}; {advice}") from error
            self.damage = error

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """The epochs in ascending order."""
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> int:
        """The latest epoch, or -1."""
        return self._entries[-1].epoch if self._entries else NO_LEADER_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Begins `epoch` at `start_offset` and drops entries that contradict it. Durable on return."""
        if self._assign(EpochEntry(epoch, start_offset)):
            self.flush()

    def assign_appended(self, batches: np.ndarray) -> None:
        """Assigns the epochs of batches to be appended (rows of layout.BATCH in log order; Kafka: UnifiedLog.append).

        An epoch below the latest is assigned, too; a batch without an epoch changes nothing. A message of magic 0 or 1
        cannot have one, and makes the earlier epochs meaningless: they are dropped.
        """
        legacy = np.flatnonzero(batches["magic"] < 2)
        changed = bool(len(legacy) and self._entries)
        if len(legacy):
            self._entries = []
            batches = batches[legacy[-1] + 1 :]
        epochs, starts = batches["leader_epoch"], batches["base_offset"]
        # only a batch with another epoch, or an offset that goes back, can change anything
        differs = np.ones(len(batches), dtype=bool)
        differs[1:] = (epochs[1:] != epochs[:-1]) | (starts[1:] < starts[:-1])
        for i in np.flatnonzero(differs & (epochs >= 0)).tolist():
            changed |= self._assign(EpochEntry(int(epochs[i]), int(starts[i])))
        if changed:
            self.flush()

    def assign_recovered(self, batches: np.ndarray) -> None:
        """Assigns the epochs of recovered batches (rows of layout.BATCH, magic 2): each one above all before it (Kafka:
        LogSegment.recover).
        """
        if not len(batches):
            return
        epochs = batches["leader_epoch"]
        before = np.maximum.accumulate(np.concatenate(([self.latest_epoch], epochs[:-1])))
        changed = False
        for i in np.flatnonzero((epochs > before) & (epochs >= 0)).tolist():
            changed |= self._assign(EpochEntry(int(epochs[i]), int(batches["base_offset"][i])))
        if changed:
            self.flush()

    def truncate_from_end(self, end_offset: int) -> None:
        """Drops the epochs that begin at or after `end_offset`."""
        if self.latest_epoch >= 0 and end_offset >= 0 and self._entries[-1].start_offset >= end_offset:
            self._entries = [entry for entry in self._entries if entry.start_offset < end_offset]
            self.flush()

    def truncate_from_start(self, start_offset: int) -> None:
        """Drops the epochs that end below `start_offset`; the one that holds it begins there afterwards."""
        below = [entry for entry in self._entries if entry.start_offset <= start_offset]
        if not below or (below[-1].start_offset == start_offset and len(below) == 1):
            return
        kept = [entry for entry in self._entries if entry.start_offset > start_offset]
        self._entries = [EpochEntry(below[-1].epoch, start_offset), *kept]
        self.flush()

    def clear_and_flush(self) -> None:
        """Forgets every epoch."""
        self._entries = []
        self.flush()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Returns (epoch, end offset) of the greatest epoch of at most `epoch`; (-1, -1) if unknown (KIP-101)."""
        if not self._entries or epoch < 0 or epoch > self.latest_epoch:
            return NO_LEADER_EPOCH, NO_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        higher = next(entry for entry in self._entries if entry.epoch > epoch)
        floors = [entry.epoch for entry in self._entries if entry.epoch <= epoch]
        return (floors[-1] if floors else epoch), higher.start_offset

    def epoch_for_offset(self, offset: int) -> int | None:
        """Returns the epoch in which `offset` was written, or None before the first epoch."""
        found = [entry.epoch for entry in self._entries if entry.start_offset <= offset]
        return found[-1] if found else None

    def flush(self) -> None:
        """Writes the file; durable on return."""
        write_atomically(self._fs, self.path, format_leader_epochs(self._entries))

    def create_file(self) -> None:
        """Creates the empty file that a broker creates with a new log, if it is missing; durable on return."""
        if self._fs.status(self.path) is None:
            self._fs.open(self.path, "create_new").close()
            self._fs.sync_directory(self.path.parent)

    def _read(self) -> Iterable[EpochEntry]:
        if self._fs.status(self.path) is None:
            return ()
        return parse_leader_epochs(self._fs.read_bytes(self.path), self.path)

    def _assign(self, entry: EpochEntry) -> bool:
        """Adds an entry and drops those whose epoch or start is not below its own; returns False if it is not new."""
        if entry.epoch < 0 or entry.start_offset < 0:
            raise CorruptCheckpointError(self.path, f"epoch {entry.epoch} at offset {entry.start_offset} cannot be")
        last = self._entries[-1] if self._entries else None
        if last is not None and last.epoch == entry.epoch and entry.start_offset >= last.start_offset:
            return False
        while self._entries and (
            self._entries[-1].epoch >= entry.epoch or self._entries[-1].start_offset >= entry.start_offset
        ):
            self._entries.pop()
        self._entries.append(entry)
        self.highest_epoch = max(self.highest_epoch, entry.epoch)
        return True
