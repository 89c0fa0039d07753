"""The time index (`.timeindex`): from a timestamp to an offset (Kafka: TimeIndex).

Entries of 12 bytes, (timestamp, offset - base offset): the largest timestamp seen so far and the last offset
of the earliest batch that has it, so every record with a later timestamp lies behind that offset. A segment
that was closed properly ends with its largest timestamp, which retention and searches rely on.

Zero padding of a broker's preallocated file does not count as entries (see `offset_index`). One entry of all
zeros alone in a file is real: timestamp 0 at the base offset.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from seglog import layout
from seglog.log.index_file import IndexFile
from seglog.model import NO_TIMESTAMP
from seglog.storage.filesystem import FileSystem


class TimeIndex(IndexFile):
    """One `.timeindex` file. Offsets are absolute here and relative on disk."""

    def __init__(self, fs: FileSystem, path: Path, base_offset: int) -> None:
        super().__init__(fs, path, base_offset, layout.TIME_INDEX_ENTRY, ("timestamp", "relative_offset"))

    @property
    def timestamps(self) -> np.ndarray:
        """The timestamp of each entry (int64, epoch milliseconds)."""
        return self.columns()[0]

    @property
    def offsets(self) -> np.ndarray:
        """The offset of each entry (int64, absolute)."""
        return self.columns()[1] + self.base_offset

    @property
    def last_entry(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry, or (-1, base offset) when there is none."""
        timestamps, relative = self.columns()
        if not len(timestamps):
            return NO_TIMESTAMP, self.base_offset
        return int(timestamps[-1]), self.base_offset + int(relative[-1])

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """(timestamp, offset) of the last entry whose timestamp is at most `timestamp`; else (-1, base
        offset).
        """
        timestamps, relative = self.columns()
        i = int(np.searchsorted(timestamps, timestamp, side="right")) - 1
        if i < 0:
            return NO_TIMESTAMP, self.base_offset
        return int(timestamps[i]), self.base_offset + int(relative[i])

    def append(self, entries: np.ndarray) -> None:
        """Adds int64 rows (timestamp, absolute offset); the caller has checked their order
        (kernels.indexing).
        """
        self.append_columns(entries[:, 0], entries[:, 1] - self.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Drops the entries with an offset of at least `offset`."""
        relative = self.columns()[1]
        self.truncate_to_entries(int(np.searchsorted(relative, offset - self.base_offset, side="left")))
