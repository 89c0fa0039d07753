"""The indexes of a segment, files of fixed-size entries: offsets, times, aborted transactions (Kafka: AbstractIndex,
TransactionIndex).

An offset or time index is read at first use (at most `segment.index.bytes`, 10 MiB by default) into two native int64
columns, without the zeros that a broker preallocates. Appended entries go to the columns and to the file at once. The
bytes of an index are hints, not data: only `flush` fsyncs them, and recovery rebuilds a torn index. A disk has more of
them than fit memory, so the columns of all logs together are bounded, and the last entry is read without the others.

seglog never preallocates: while a segment is open its indexes are as long as their entries, so a crash leaves no zero
padding after them. Padding that a broker left is recognised by its zeros and does not count as entries; closing a
writable index trims it. No real entry of an offset index is all zero, because the first batch of a segment gets none. A
single entry of all zeros in a time index is real: timestamp 0 at the base offset.

A transaction index has entries of 34 bytes in the order of the segment's ABORT markers. The file exists only if there
was something to write, and a missing one means no entries; only `seglog verify` compares it with the markers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.errors import CorruptIndexError
from seglog.kernels import indexing
from seglog.log import held_columns
from seglog.model import NO_TIMESTAMP
from seglog.storage.filesystem import File, FileSystem, require_size
from seglog.storage.padding import FRONT_BYTES, last_entry, written_front

# An index larger than this is not an index: its entries would point beyond 2^31 bytes of log.
_MAX_INDEX_BYTES = 1 << 30
_ABORTED_ENTRY = layout.TRANSACTION_INDEX_ENTRY


# --- the rule that says where entries go (`kernels.indexing`)


def new_index_state() -> np.ndarray:
    """Returns the index rule's state (int64) at the start of an empty segment: no timestamp, no entries."""
    state = np.zeros(indexing.STATE_SLOTS, dtype=np.int64)
    for slot in (indexing.MAX_TIMESTAMP, indexing.OFFSET_OF_MAX_TIMESTAMP, indexing.LAST_TIME_ENTRY_TIMESTAMP):
        state[slot] = NO_TIMESTAMP
    return state


def index_entries_for(
    batches: np.ndarray, index_interval_bytes: int, state: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Returns the entries that `batches` (layout.BATCH rows, `position` = byte position in the segment) add.

    The result is (offset entries, time entries, batches done, ENTRIES_* status). The entries are int64 arrays of shape
    (n, 2): (absolute offset, position) and (timestamp, absolute offset). `state` (see `new_index_state`) is updated.
    If the status is not ENTRIES_VALID, `batches[done]` is the batch whose offsets go backwards.
    """
    offset_entries = np.empty((len(batches), 2), dtype=np.int64)
    time_entries = np.empty((len(batches), 2), dtype=np.int64)
    offsets, times, done, status = indexing.fill_index_entries(
        batches, index_interval_bytes, state, offset_entries, time_entries
    )
    return offset_entries[:offsets], time_entries[:times], int(done), int(status)


def closing_time_entry(state: np.ndarray) -> tuple[int, int, int]:
    """Returns the time entry that rolling, closing, recovery or cleaning adds last, as (status, timestamp, offset).

    It has the segment's largest timestamp. A timestamp of -1 means no entry: it is already there, or the segment has no
    timestamp. The state is updated as if the entry had been written.
    """
    timestamp, offset = int(state[indexing.MAX_TIMESTAMP]), int(state[indexing.OFFSET_OF_MAX_TIMESTAMP])
    status = int(indexing.time_entry_status(timestamp, offset, state))
    if status != indexing.ENTRIES_VALID or timestamp <= state[indexing.LAST_TIME_ENTRY_TIMESTAMP]:
        return status, -1, -1
    state[indexing.TIME_ENTRIES] += 1
    state[indexing.LAST_TIME_ENTRY_TIMESTAMP], state[indexing.LAST_TIME_ENTRY_OFFSET] = timestamp, offset
    return status, timestamp, offset


# --- the files


class OwnedFile:
    """A file of a segment that is opened when it is written, and can be renamed under its owner."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self.path = path
        self._fs = fs
        self._file: File | None = None
        self._synced = False  # by this object, and nothing was written since

    def exists(self) -> bool:
        """True if the file exists."""
        return self._fs.status(self.path) is not None

    def flush(self) -> None:
        """Returns when the file, if it exists, is on stable storage."""
        if not self._synced and self.exists():
            self._writable().sync()
            self._synced = True

    def close_file(self) -> None:
        """Closes the file descriptor; the file is opened again when it is written."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def renamed(self, path: Path) -> None:
        """Takes over the file's new name."""
        self.close_file()
        self.path = path

    def _writable(self) -> File:
        self._synced = False
        if self._file is None:
            self._file = self._fs.open(self.path, "r+" if self.exists() else "create")
        return self._file


@dataclass(frozen=True, slots=True)
class _Ending:
    """The number of entries, and the last one as stored."""

    entries: int
    first: int = 0
    second: int = 0


class IndexFile(OwnedFile):
    """Fixed-size entries of a segment. Reading never creates or changes the file; a missing file has no entries."""

    def __init__(
        self, fs: FileSystem, path: Path, base_offset: int, entry: np.dtype[np.void], names: tuple[str, str]
    ) -> None:
        super().__init__(fs, path)
        self.base_offset = base_offset
        self._entry, self._names = entry, names
        self._loaded: tuple[np.ndarray, np.ndarray] | None = None
        self._capacity: tuple[np.ndarray, np.ndarray] | None = None  # of an index that grows
        self._ending: _Ending | None = None
        self._read_size = 0  # of the file, when it was last read

    def start_flush(self) -> None:
        """Starts writing a just changed file to disk, so that `flush` waits for less: a hint."""
        if self._file is not None:
            self._file.start_writing(0, self.size)

    @property
    def entries(self) -> int:
        """The number of entries, without padding."""
        return self.ending.entries

    @property
    def size(self) -> int:
        """The bytes of the entries."""
        return self.entries * self._entry.itemsize

    @property
    def is_padded(self) -> bool:
        """True if anything follows the entries in the file as it was read."""
        entries = self.size  # the file is read
        return self._read_size > entries

    def columns(self) -> tuple[np.ndarray, np.ndarray]:
        """The two columns as stored (int64, relative offsets), without padding."""
        loaded = self._loaded
        return self._load(self._size_of_file()) if loaded is None else loaded

    def _load(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        raw = self._read(size)
        first, second = (raw[name].astype(np.int64) for name in self._names)
        real = _unpadded(first, second)
        loaded = self._loaded = first[:real], second[:real]
        self._ending = _ending_of(*loaded)
        held_columns.HELD.note(self, first.nbytes + second.nbytes)
        return loaded

    @property
    def ending(self) -> _Ending:
        """How the index ends. Of a large file without padding, only the last entry is read."""
        ending = self._ending
        if ending is None:
            size = self._size_of_file()
            last = self._read_last() if size > FRONT_BYTES else None
            ending = self._ending = _ending_of(*self._load(size)) if last is None else last
        return ending

    def let_go(self) -> None:
        """Forgets the columns, which are read again at their next use, unless entries are being added."""
        if self._capacity is None:
            self._loaded = None

    def close_file(self) -> None:
        """Closes the file; nothing is added until it is opened again."""
        super().close_file()
        if self._capacity is not None and self._loaded is not None:
            self._capacity = None
            held_columns.HELD.note(self, self._loaded[0].nbytes + self._loaded[1].nbytes)

    def create(self) -> None:
        """Creates an empty file, or empties an existing one."""
        self.close_file()
        self._synced = False
        self._file = self._fs.open(self.path, "create")
        self._set(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))

    def append_columns(self, first: np.ndarray, second: np.ndarray) -> None:
        """Adds entries, given as the two stored columns."""
        count, old = len(first), self.entries
        if not count:
            return
        rows = np.empty(count, dtype=self._entry)
        rows[self._names[0]], rows[self._names[1]] = first, second
        self._writable().write_at(old * self._entry.itemsize, rows.tobytes())
        self._grow(old + count)
        columns = self._capacity
        assert columns is not None
        columns[0][old : old + count], columns[1][old : old + count] = first, second
        self._loaded = columns[0][: old + count], columns[1][: old + count]
        self._ending = _ending_of(*self._loaded)

    def truncate_to_entries(self, count: int) -> None:
        """Keeps the first `count` entries."""
        if count >= self.entries:
            return
        first, second = self.columns()
        self._set(first[:count].copy(), second[:count].copy())
        self._writable().truncate(count * self._entry.itemsize)

    def trim(self) -> None:
        """Cuts the padding off the file."""
        status = self._fs.status(self.path)
        if status is not None and status.size != self.size:
            self._writable().truncate(self.size)

    def _size_of_file(self) -> int:
        """Returns the bytes of the file; 0 if there is none, or a directory, a pipe or a socket in its place."""
        status = self._fs.status(self.path)
        self._read_size = 0 if status is None or status.no_file else status.size
        return self._read_size

    def _read(self, size: int) -> np.ndarray:
        if not size:
            return np.empty(0, dtype=self._entry)
        with self._fs.open(self.path, "r") as file:
            require_size(file, _MAX_INDEX_BYTES)
            data = written_front(file, self._entry.itemsize)
        whole = len(data) // self._entry.itemsize * self._entry.itemsize
        return np.frombuffer(data[:whole], dtype=self._entry)

    def _read_last(self) -> _Ending | None:
        """Returns the end of a large file; None if only reading all tells it."""
        with self._fs.open(self.path, "r") as file:
            require_size(file, _MAX_INDEX_BYTES)
            last = last_entry(file, self._entry.itemsize)
        if last is None:
            return None
        row = np.frombuffer(last[1], dtype=self._entry)[0]
        return _Ending(last[0], int(row[self._names[0]]), int(row[self._names[1]]))

    def _set(self, first: np.ndarray, second: np.ndarray) -> None:
        self._loaded, self._capacity = (first, second), None
        self._ending = _ending_of(first, second)

    def _grow(self, needed: int) -> None:
        """Makes room for `needed` entries; capacity doubles, so that appending stays linear."""
        if self._capacity is not None and len(self._capacity[0]) >= needed:
            return
        first, second = self.columns()
        room = max(needed, 2 * len(first), 64)
        grown = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
        grown[0][: len(first)], grown[1][: len(second)] = first, second
        self._capacity = grown


def _ending_of(first: np.ndarray, second: np.ndarray) -> _Ending:
    return _Ending(len(first), int(first[-1]), int(second[-1])) if len(first) else _Ending(0)


def _unpadded(first: np.ndarray, second: np.ndarray) -> int:
    """Returns the number of entries before the zeros at the end; a single entry is never padding."""
    if len(first) <= 1:
        return len(first)
    used = np.flatnonzero((first != 0) | (second != 0))
    return int(used[-1]) + 1 if len(used) else 0


class OffsetIndex(IndexFile):
    """One `.index` file: from an offset to a byte position near it. Offsets are absolute here and relative on disk.

    Entries of 8 bytes, (offset - base offset, position), strictly ascending. A search begins at the position of one at
    or before the wanted offset (`segment_scan.indexed_batch`).
    """

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
        """The offset of the last entry, or the base offset if there is none."""
        return self.base_offset + self.ending.first

    @property
    def last_position(self) -> int:
        """The position of the last entry, or 0 if there is none."""
        return self.ending.second

    def entries_to(self, offset: int) -> Iterator[tuple[int, int]]:
        """Yields (offset, position) of entries with an offset of at most `offset`: the last one, then others before it,
        at distances that double.
        """
        relative, positions = self.columns()
        i, step = int(np.searchsorted(relative, offset - self.base_offset, side="right")) - 1, 1
        while i >= 0:
            yield self.base_offset + int(relative[i]), int(positions[i])
            i, step = i - step, 2 * step

    def upper_bound_offset(self, position: int, size: int) -> int | None:
        """Returns the offset of the first entry from `position + size` on, or None (Kafka: fetchUpperBoundOffset)."""
        relative, positions = self.columns()
        i = int(np.searchsorted(positions, position + size, side="left"))
        return None if i == len(positions) else self.base_offset + int(relative[i])

    def append(self, entries: np.ndarray) -> None:
        """Adds int64 rows (absolute offset, position); the caller has checked their order (kernels.indexing)."""
        self.append_columns(entries[:, 0] - self.base_offset, entries[:, 1])

    def truncate_to(self, offset: int) -> None:
        """Drops the entries with an offset of at least `offset`."""
        relative = self.columns()[0]
        self.truncate_to_entries(int(np.searchsorted(relative, offset - self.base_offset, side="left")))


class TimeIndex(IndexFile):
    """One `.timeindex` file: from a timestamp to an offset. Offsets are absolute here and relative on disk.

    Entries of 12 bytes, (timestamp, offset - base offset): the largest timestamp seen so far and the last offset of the
    earliest batch that has it, so every record with a later timestamp lies after that offset. The index of a properly
    closed segment ends with its largest timestamp; retention and searches rely on that.
    """

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
        """(timestamp, offset) of the last entry, or (-1, base offset) if there is none."""
        ending = self.ending
        return (ending.first, self.base_offset + ending.second) if ending.entries else (NO_TIMESTAMP, self.base_offset)

    def row_before(self, timestamp: int) -> int:
        """Returns the row of the last entry before this timestamp, -1 if there is none."""
        return int(self.columns()[0].searchsorted(timestamp)) - 1

    def append(self, entries: np.ndarray) -> None:
        """Adds int64 rows (timestamp, absolute offset); the caller has checked their order (kernels.indexing)."""
        self.append_columns(entries[:, 0], entries[:, 1] - self.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Drops the entries with an offset of at least `offset`."""
        relative = self.columns()[1]
        self.truncate_to_entries(int(np.searchsorted(relative, offset - self.base_offset, side="left")))


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """An aborted transaction (Kafka: AbortedTxn): `first_offset` of its data, `last_offset` of the ABORT marker, and
    `last_stable_offset` after the marker.
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
        """All entries. Raises CorruptIndexError for an entry whose version is not 0."""
        if self._loaded is None:
            self._loaded = self._read()
        return self._loaded

    @property
    def size(self) -> int:
        """The bytes of the entries."""
        return len(self.entries) * _ABORTED_ENTRY.itemsize

    def append(self, entry: AbortedTransaction) -> None:
        """Adds an entry. Raises CorruptIndexError if its marker is not after the last one's."""
        last = self.entries[-1].last_offset if self.entries else -1
        if entry.last_offset <= last:
            reason = f"the marker at offset {entry.last_offset} does not follow the last entry's, {last}"
            raise CorruptIndexError(self.path, reason, self.size)
        row = np.array(
            [(0, entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset)],
            dtype=_ABORTED_ENTRY,
        )
        self._writable().write_at(self.size, row.tobytes())
        self.entries.append(entry)

    def sanity_check(self) -> None:
        """Raises CorruptIndexError if an entry's marker lies before the segment: Kafka's only check at load."""
        for i, entry in enumerate(self.entries):
            if entry.last_offset < self.base_offset:
                reason = f"an entry's last offset {entry.last_offset} is below the segment's base {self.base_offset}"
                raise CorruptIndexError(self.path, reason, i * _ABORTED_ENTRY.itemsize)

    def collect(self, first_offset: int, upper_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Returns the entries that a read of [`first_offset`, `upper_offset`) needs, and whether they are complete.

        If not, the next segment's index is needed, too (Kafka: collectAbortedTxns). Nothing after a marker was stable
        when it was written, even if a broker recorded otherwise because it appended more than the marker at once.
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
            self._writable().truncate(kept * _ABORTED_ENTRY.itemsize)

    def reset(self) -> None:
        """Empties the file if it exists; it stays, as in Kafka."""
        self._loaded = []
        if self.exists():
            self._writable().truncate(0)

    def broker_stops_at(self) -> CorruptIndexError | None:
        """Returns the error of an entry that fails a broker's load; None if there is none.

        Kafka rebuilds an index that contradicts its segment, but does not foresee an entry of an unknown version. Its
        check (`TransactionIndex.sanityCheck`) ends at whichever of the two comes first.
        """
        rows = self._rows()
        unknown = np.flatnonzero(_of_unknown_version(rows))
        rebuilt = np.flatnonzero(rows["last_offset"] < self.base_offset)
        if not len(unknown) or (len(rebuilt) and rebuilt[0] < unknown[0]):
            return None
        return self._unknown_version(rows, int(unknown[0]))

    def _read(self) -> list[AbortedTransaction]:
        rows = self._rows()
        wrong = np.flatnonzero(_of_unknown_version(rows))
        if len(wrong):
            raise self._unknown_version(rows, int(wrong[0]))
        return [AbortedTransaction(*(int(value) for value in row.tolist()[1:])) for row in rows]

    def _rows(self) -> np.ndarray:
        data = self._fs.read_bytes(self.path, _MAX_INDEX_BYTES) if self.exists() else b""
        whole = len(data) // _ABORTED_ENTRY.itemsize * _ABORTED_ENTRY.itemsize
        return np.frombuffer(data[:whole], dtype=_ABORTED_ENTRY)

    def _unknown_version(self, rows: np.ndarray, at: int) -> CorruptIndexError:
        version = int(rows["version"][at])
        return CorruptIndexError(self.path, f"unknown version {version}", at * _ABORTED_ENTRY.itemsize)


def _of_unknown_version(rows: np.ndarray) -> np.ndarray:
    """Tells which entries a broker does not know. It looks at the version's first byte only."""
    unknown: np.ndarray = rows["version"] >> 8 > 0
    return unknown
