"""The transaction index (`.txnindex`): the aborted transactions whose marker lies in a segment (Kafka:
TransactionIndex).

Entries of 34 bytes in the order of the ABORT markers. The file exists only when there was something to write,
and a missing one means none: whoever suspects otherwise rebuilds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.errors import CorruptIndexError
from seglog.log.indexes import OwnedFile
from seglog.storage.filesystem import FileSystem

_ENTRY = layout.TRANSACTION_INDEX_ENTRY
_MAX_INDEX_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """`first_offset`: the first data; `last_offset`: the ABORT marker; `last_stable_offset`: after it
    (Kafka: AbortedTxn).
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex(OwnedFile):
    """One `.txnindex` file. Reading never creates it."""

    def __init__(self, fs: FileSystem, path: Path, base_offset: int) -> None:
        super().__init__(fs, path)
        self.base_offset = base_offset
        self._loaded: list[AbortedTransaction] | None = None

    @property
    def entries(self) -> list[AbortedTransaction]:
        """All entries. CorruptIndexError for an entry whose version is not 0."""
        if self._loaded is None:
            self._loaded = self._read()
        return self._loaded

    @property
    def size(self) -> int:
        """Bytes that the entries take."""
        return len(self.entries) * _ENTRY.itemsize

    def append(self, entry: AbortedTransaction) -> None:
        """Adds an entry. CorruptIndexError when its marker is not after the last one's."""
        last = self.entries[-1].last_offset if self.entries else -1
        if entry.last_offset <= last:
            reason = f"the marker at offset {entry.last_offset} does not follow the last entry's, {last}"
            raise CorruptIndexError(self.path, reason, self.size)
        row = np.array(
            [(0, entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset)],
            dtype=_ENTRY,
        )
        self._writable().write_at(self.size, row.tobytes())
        self.entries.append(entry)

    def sanity_check(self) -> None:
        """CorruptIndexError when an entry's marker lies before the segment (the one check Kafka makes when
        it loads).
        """
        for i, entry in enumerate(self.entries):
            if entry.last_offset < self.base_offset:
                reason = f"an entry's last offset {entry.last_offset} is below the segment's base {self.base_offset}"
                raise CorruptIndexError(self.path, reason, i * _ENTRY.itemsize)

    def collect(self, first_offset: int, upper_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """The entries that a read of [`first_offset`, `upper_offset`) must know of, and whether that is all
        of them.

        False asks for the next segment's index as well (Kafka: collectAbortedTxns). Nothing after a marker was stable
        when it was written, whatever a broker has noted that appended more than the marker at once.
        """
        found: list[AbortedTransaction] = []
        for entry in self.entries:
            if entry.last_offset >= first_offset and entry.first_offset < upper_offset:
                found.append(entry)
            if min(entry.last_stable_offset, entry.last_offset + 1) >= upper_offset:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Drops the entries from the first one whose marker is at `offset` or after it."""
        kept = next((i for i, entry in enumerate(self.entries) if entry.last_offset >= offset), len(self.entries))
        if kept < len(self.entries):
            del self.entries[kept:]
            self._writable().truncate(kept * _ENTRY.itemsize)

    def reset(self) -> None:
        """Empties the file if it is there; it stays, as in Kafka."""
        self._loaded = []
        if self.exists():
            self._writable().truncate(0)

    def _read(self) -> list[AbortedTransaction]:
        if not self.exists():
            return []
        data = self._fs.read_bytes(self.path, _MAX_INDEX_BYTES)
        rows = np.frombuffer(data[: len(data) // _ENTRY.itemsize * _ENTRY.itemsize], dtype=_ENTRY)
        # Kafka looks at the version's first byte only.
        wrong = np.flatnonzero(rows["version"] >> 8 > 0)
        if len(wrong):
            at = int(wrong[0])
            version = int(rows["version"][at])
            raise CorruptIndexError(self.path, f"unknown version {version}", at * _ENTRY.itemsize)
        return [AbortedTransaction(*(int(value) for value in row.tolist()[1:])) for row in rows]
