"""The offset index (`.index`): from an offset to a byte position near it (Kafka: OffsetIndex, AbstractIndex).

Entries of 8 bytes, (offset - base offset, position), strictly ascending. A lookup gives a place at or before
the wanted batch; whoever asks reads on from there.

seglog never preallocates: while a segment is open its indexes are as long as their entries, so a crash leaves
no zero padding behind. Padding that a broker left is recognised by its zeros (no real entry is all zero: the
first batch of a segment never gets one) and does not count as entries; a `close` of a writable index trims
it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from seglog import layout
from seglog.log.index_file import IndexFile
from seglog.storage.filesystem import FileSystem


class OffsetIndex(IndexFile):
    """One `.index` file. Offsets are absolute here and relative on disk."""

    def __init__(self, fs: FileSystem, path: Path, base_offset: int) -> None:
        super().__init__(fs, path, base_offset, layout.OFFSET_INDEX_ENTRY, ("relative_offset", "position"))

    @property
    def offsets(self) -> np.ndarray:
        """The offset of each entry (int64, absolute)."""
        return self.columns()[0] + self.base_offset

    @property
    def positions(self) -> np.ndarray:
        """The byte position of each entry (int64)."""
        return self.columns()[1]

    @property
    def last_offset(self) -> int:
        """Offset of the last entry, or the base offset when there is none."""
        offsets = self.columns()[0]
        return self.base_offset + (int(offsets[-1]) if len(offsets) else 0)

    def lookup(self, offset: int) -> tuple[int, int]:
        """(offset, position) of the last entry with an offset of at most `offset`; else (base offset, 0)."""
        relative, positions = self.columns()
        i = int(np.searchsorted(relative, offset - self.base_offset, side="right")) - 1
        if i < 0:
            return self.base_offset, 0
        return self.base_offset + int(relative[i]), int(positions[i])

    def upper_bound_offset(self, position: int, size: int) -> int | None:
        """Offset of the first entry at `position + size` or behind it, or None (Kafka:
        fetchUpperBoundOffset).
        """
        relative, positions = self.columns()
        i = int(np.searchsorted(positions, position + size, side="left"))
        return None if i == len(positions) else self.base_offset + int(relative[i])

    def append(self, entries: np.ndarray) -> None:
        """Adds int64 rows (absolute offset, position); the caller has checked their order
        (kernels.indexing).
        """
        self.append_columns(entries[:, 0] - self.base_offset, entries[:, 1])

    def truncate_to(self, offset: int) -> None:
        """Drops the entries with an offset of at least `offset`."""
        relative = self.columns()[0]
        self.truncate_to_entries(int(np.searchsorted(relative, offset - self.base_offset, side="left")))
