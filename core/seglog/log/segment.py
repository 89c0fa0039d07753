"""One segment: a `.log` file and its three indexes (Kafka: LogSegment).

`size` is the end of the last whole batch, where the next one goes. After it a file may hold trailing bytes (a torn tail
that a clean start does not look for). They stay until the first append cuts them off, because a batch written after
them could never be read (specification §15, gap 22).

Recovery of a segment (specification §5.4):

1. Empty the three indexes.
2. Walk the batches, up to the first one with wrong framing or a wrong checksum.
3. Give each batch to the index rule, the leader epochs and the producers; aborted transactions go to their index.
4. Cut the file after the last good batch, and close the indexes as a roll would.

A broker fails to start if a rebuilt index outgrows `segment.index.bytes`; here it grows, and the next append rolls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from seglog import layout
from seglog.errors import CorruptIndexError, CorruptRecordError, InvalidRecordError, SegmentOffsetOverflowError
from seglog.format.checksum import byte_view
from seglog.format.decoder import WRONG_CHECKSUM
from seglog.format.filenames import FileKind, FileState, segment_file_name
from seglog.kernels import indexing
from seglog.log.checkpoints import LeaderEpochCache
from seglog.log.indexes import (
    AbortedTransaction,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
    closing_time_entry,
    index_entries_for,
    new_index_state,
)
from seglog.log.producer_state import CompletedTransaction, ProducerStateManager
from seglog.log.recovered_segment import RecoveredSegment, is_preallocated
from seglog.model import NO_LEADER_EPOCH, NO_TIMESTAMP
from seglog.scan.listing import SEGMENT_KINDS
from seglog.scan.segment_scan import BatchPosition, Chunk, EndReason, SegmentScan, find_batch, indexed_batch
from seglog.storage.filesystem import File, FileSystem

if TYPE_CHECKING:
    from seglog.format.checksum import ByteSource

DEFAULT_INDEX_INTERVAL_BYTES = 4096
_SEARCH_CHUNK_BYTES = 64 << 10


class OffsetNotAscendingError(CorruptIndexError):
    """An index entry would go backwards: offsets in the log are out of order (Kafka: InvalidOffsetException)."""


class LogSegment:
    """A segment's files. The constructor reads and creates nothing; `create` makes an empty segment.

    `state` is part of the file names: LIVE, CLEANED or SWAP. Reads may run beside one writer.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        base_offset: int,
        *,
        index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES,
        state: FileState = FileState.LIVE,
        created_ms: int = 0,
    ) -> None:
        self.fs, self.directory, self.base_offset, self.state = fs, directory, base_offset, state
        self.index_interval_bytes, self.created_ms = index_interval_bytes, created_ms
        self.path = self._file_path(FileKind.LOG)
        self.offset_index = OffsetIndex(fs, self._file_path(FileKind.OFFSET_INDEX), base_offset)
        self.time_index = TimeIndex(fs, self._file_path(FileKind.TIME_INDEX), base_offset)
        self.transaction_index = TransactionIndex(fs, self._file_path(FileKind.TRANSACTION_INDEX), base_offset)
        status = fs.status(self.path)
        self.size, self.trailing_bytes = 0 if status is None else status.size, 0
        self._file: File | None = None
        self._synced = False  # this object has synced the `.log`, and nothing was written since
        self._state: np.ndarray | None = None

    def create(self) -> Self:
        """Makes the segment's files, empty, replacing those of that name; returns the segment."""
        self._file = self.fs.open(self.path, "create")
        self.offset_index.create()
        self.time_index.create()
        if self.transaction_index.exists():
            self.fs.remove(self.transaction_index.path)
        self.size, self._state = 0, new_index_state()
        return self

    # --- properties -------------------------------------------------------------------------------------

    @property
    def modified_ms(self) -> int:
        """The modification time of the `.log` (epoch milliseconds), 0 if it is gone."""
        status = self.fs.status(self.path)
        return 0 if status is None else status.modified_ms

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp known (from the time index and appends since), or -1."""
        return int(self.index_state()[indexing.MAX_TIMESTAMP])

    @property
    def offset_of_max_timestamp(self) -> int:
        """Last offset of the earliest batch with `max_timestamp`."""
        return int(self.index_state()[indexing.OFFSET_OF_MAX_TIMESTAMP])

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that exist, in the order in which Kafka renames them."""
        return tuple(path for path in self._paths() if self.fs.status(path) is not None)

    def largest_timestamp(self) -> int:
        """Returns `max_timestamp`, or the modification time if there is none (epoch milliseconds)."""
        return self.max_timestamp if self.max_timestamp >= 0 else self.modified_ms

    def first_batch_timestamp(self) -> int:
        """Returns the largest timestamp of the first batch, which decides when to roll by time; -1 if there is none."""
        for chunk in self.scan(chunk_bytes=_SEARCH_CHUNK_BYTES):
            return int(chunk.batches[0]["max_timestamp"])
        return NO_TIMESTAMP

    def fits(self, offset: int) -> bool:
        """True if a batch that ends at `offset` can be indexed relative to the base offset."""
        return 0 <= offset - self.base_offset <= layout.INT32_MAX

    def __repr__(self) -> str:
        return f"LogSegment({self.path.name}, {self.size} bytes)"

    # --- reading ----------------------------------------------------------------------------------------

    def scan(
        self, start: int = 0, end: int | None = None, *, chunk_bytes: int = 1 << 20, file: File | None = None
    ) -> SegmentScan:
        """Scans from byte `start` (a batch boundary) to `end`, at most to `size`; `file` is the open `.log`, if any."""
        stop = self.size if end is None else min(end, self.size)
        return SegmentScan(self.fs, self.path, start, stop, chunk_bytes=chunk_bytes, file=file)

    def translate_offset(self, offset: int, start: int = 0) -> BatchPosition | None:
        """Returns the batch that holds `offset`, or the next one; None if there is neither (Kafka: translateOffset).

        The search starts at the index's position for the offset or at byte `start`, whichever is higher.
        """
        begin = max(self.indexed_position(offset), start)
        return find_batch(self.scan(begin, chunk_bytes=_SEARCH_CHUNK_BYTES), offset)

    def read_next_offset(self) -> tuple[int, int]:
        """Returns (offset, byte position) after the last whole batch; reads from the last index entry on.

        If the index contradicts the file, the file is walked from its start.
        """
        start = self.indexed_position(self.offset_index.last_offset)
        found = self._walk_to_end(start)
        if start > 0 and (found is None or found[0] <= self.offset_index.last_offset):
            found = self._walk_to_end(0)
        return (self.base_offset, 0) if found is None else found

    def _walk_to_end(self, start: int) -> tuple[int, int] | None:
        """Returns (offset, byte position) after the last whole batch from byte `start` on; None if there is none."""
        scan = self.scan(start)
        last = None
        for chunk in scan:
            last = int(chunk.batches["last_offset"][-1])
        return None if last is None or scan.end is None else (last + 1, scan.end.position)

    def last_leader_epoch(self) -> int:
        """Returns the leader epoch of the last record batch (magic 2), or -1; reads from the last index entry on."""
        found = NO_LEADER_EPOCH
        for chunk in self.scan(self.indexed_position(self.offset_index.last_offset)):
            modern = chunk.batches[chunk.batches["magic"] >= 2]
            if len(modern):
                found = int(modern["leader_epoch"][-1])
        return found

    def indexed_position(self, offset: int, size: int | None = None, file: File | None = None) -> int:
        """Returns the byte position at which a search for `offset` in the first `size` bytes (default: all) begins by
        the index, 0 if that tells none; `file` is the `.log` if it is open.
        """
        entries, stop = self.offset_index.entries_to(offset), self.size if size is None else size
        row = indexed_batch(self.fs, self.path, stop, self.base_offset, entries, file)
        return 0 if row is None else int(row["position"][0])

    # --- appending --------------------------------------------------------------------------------------

    def append(self, batches: np.ndarray, data: ByteSource | Iterator[memoryview]) -> None:
        """Writes whole batches: `data` holds their bytes, or yields them piece by piece; `batches` are their rows.

        Adds index entries by the index rule. Raises SegmentOffsetOverflowError, before anything is written, if an
        offset does not fit; OffsetNotAscendingError if offsets go backwards. After an OSError the log keeps its old
        end: no batch stays that was not acknowledged.
        """
        if not len(batches):
            return
        self._check_offsets(batches)
        if batches[0]["position"] != self.size:
            batches = batches.copy()
            batches["position"] += self.size - batches[0]["position"]
        file = self._writable()
        if self.trailing_bytes:
            file.truncate(self.size)
            self.trailing_bytes = 0
        end = self.size
        try:
            for piece in data if isinstance(data, Iterator) else (byte_view(data),):
                file.write_at(end, piece)
                end += len(piece)
            self._index(batches)
        except OSError:
            file.truncate(self.size)
            raise
        self.size = end

    def _check_offsets(self, batches: np.ndarray) -> None:
        relative = batches["last_offset"] - self.base_offset
        wrong = np.flatnonzero((relative < 0) | (relative > layout.INT32_MAX))
        if len(wrong):
            row = batches[wrong[0]]
            raise SegmentOffsetOverflowError(self.path, self.base_offset, int(row["last_offset"]), int(row["position"]))

    def _index(self, batches: np.ndarray) -> None:
        offsets, times, done, status = index_entries_for(batches, self.index_interval_bytes, self.index_state())
        self.offset_index.append(offsets)
        self.time_index.append(times)
        if status != indexing.ENTRIES_VALID:
            row = batches[done]
            offset = int(row["last_offset"])
            reason = "the offset does not ascend, so it cannot be indexed"
            raise OffsetNotAscendingError(self.path, reason, int(row["position"]), offset)

    def index_state(self) -> np.ndarray:
        """State of the index rule (`kernels.indexing`), to be read; of a reopened segment it starts at the last
        entries, the bytes at 0 (as in Kafka).
        """
        if self._state is None:
            state = new_index_state()
            timestamp, offset = self.time_index.last_entry
            state[indexing.MAX_TIMESTAMP] = state[indexing.LAST_TIME_ENTRY_TIMESTAMP] = timestamp
            # A damaged index may hold offsets above all valid ones.
            offset = min(offset, layout.INT64_MAX)
            state[indexing.OFFSET_OF_MAX_TIMESTAMP] = state[indexing.LAST_TIME_ENTRY_OFFSET] = offset
            state[indexing.OFFSET_ENTRIES] = self.offset_index.entries
            state[indexing.LAST_ENTRY_OFFSET] = min(self.offset_index.last_offset, layout.INT64_MAX)
            state[indexing.TIME_ENTRIES] = self.time_index.entries
            self._state = state
        return self._state

    @property
    def closed_time_index_size(self) -> int:
        """The bytes that the time index will have after a roll, including its last entry."""
        _, timestamp, _ = closing_time_entry(self.index_state().copy())
        return self.time_index.size + (layout.TIME_INDEX_ENTRY.itemsize if timestamp >= 0 else 0)

    def _close_time_index(self) -> int:
        """Adds the largest timestamp as the last time entry, if it is missing; returns the ENTRIES_* status."""
        status, timestamp, offset = closing_time_entry(self.index_state())
        if timestamp >= 0:
            self.time_index.append(np.array([[timestamp, offset]], dtype=np.int64))
        return status

    # --- recovery and truncation ------------------------------------------------------------------------

    def recover(
        self,
        producers: ProducerStateManager,
        epochs: LeaderEpochCache | None = None,
        before_cut: Callable[[], None] | None = None,
        *,
        ends_log: bool = False,
    ) -> RecoveredSegment:
        """Rebuilds the indexes from the `.log` and cuts it after its last good batch.

        `before_cut` is called before the cut, but not for preallocated zeros, which only the segment that `ends_log`
        can have.

        Raises SegmentOffsetOverflowError if a batch does not fit the segment (it must be split), and, like a broker,
        OffsetNotAscendingError if offsets go backwards and InvalidTransactionStateError if a producer's batches
        contradict each other.
        """
        status = self.fs.status(self.path)
        self.size, self.trailing_bytes = 0 if status is None else status.size, 0
        self.offset_index.create()
        self.time_index.create()
        self.transaction_index.reset()
        self._state = new_index_state()
        scan = self.scan()
        valid, batches, next_offset, reason = 0, 0, self.base_offset, ""
        for chunk in scan:
            good, reason = self._recover_chunk(chunk, producers, epochs)
            batches += good
            if good:
                row = chunk.batches[good - 1]
                valid, next_offset = int(row["position"] + row["size"]), int(row["last_offset"]) + 1
            if reason:
                break
        if not reason and scan.end is not None and scan.end.reason is not EndReason.COMPLETE:
            reason = scan.end.reason.value
        truncated = self.size - valid
        preallocated = truncated > 0 and ends_log and is_preallocated(self.fs, self.path, valid)
        if truncated:
            if before_cut is not None and not preallocated:
                before_cut()
            self._writable().truncate(valid)
            self.size = valid
        if self._close_time_index() != indexing.ENTRIES_VALID:
            reason = "the offset of the largest timestamp lies before the last time entry's"
            raise OffsetNotAscendingError(self.time_index.path, reason)
        self.index_state()[indexing.BYTES_SINCE_LAST_ENTRY] = 0  # as in Kafka, whose recovery has its own counter
        self.trim_indexes()
        self.flush()  # a clean-shutdown marker may follow, and then nobody checks again
        reason = reason if truncated else ""
        return RecoveredSegment(self.base_offset, valid, truncated, next_offset, batches, reason, preallocated)

    def _recover_chunk(
        self, chunk: Chunk, producers: ProducerStateManager, epochs: LeaderEpochCache | None
    ) -> tuple[int, str]:
        """Returns (number of good batches in the chunk, why the next one is not good or "")."""
        bad = np.flatnonzero(~chunk.checksums_valid())
        good = int(bad[0]) if len(bad) else len(chunk.batches)
        reason = WRONG_CHECKSUM if len(bad) else ""
        rows = chunk.batches[:good]
        self._check_offsets(rows)
        self._index(rows)
        modern = rows[rows["magic"] >= 2]
        if epochs is not None:
            epochs.assign_recovered(modern)
        try:
            producers.replay(chunk.data, modern, chunk.position, self.path, self.append_aborted)
        except InvalidRecordError as error:
            # The broken control batch itself stays, later batches are cut (Kafka counts it before it reads it).
            assert error.position is not None
            good = int(np.searchsorted(rows["position"], error.position, side="right"))
            reason = error.reason
        return good, reason

    def append_aborted(self, transaction: CompletedTransaction, last_stable_offset: int) -> None:
        """Adds an aborted transaction to the index; a committed one adds nothing."""
        if transaction.aborted:
            entry = AbortedTransaction(
                transaction.producer_id, transaction.first_offset, transaction.last_offset, last_stable_offset
            )
            self.transaction_index.append(entry)

    def truncate_to(self, offset: int) -> int:
        """Cuts the segment before the batch that holds `offset`, or the next one; returns the bytes dropped.

        Raises the errors of `require_cut`.
        """
        found = self.require_cut(offset)
        had_timestamps = self.max_timestamp >= 0
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        truncated = 0 if found is None else self.size + self.trailing_bytes - found.position
        if found is not None:
            self._writable().truncate(found.position)
            self.size, self.trailing_bytes = found.position, 0
        self._state = None
        if had_timestamps:
            self._read_largest_timestamp(self.time_index.last_entry[1])
        return truncated

    def require_cut(self, offset: int) -> BatchPosition | None:
        """Returns the first batch that a truncation to `offset` drops, or None if all batches stay.

        Raises CorruptRecordError if damage hides it: the next append would come after the damage, where nobody reads
        it. A torn tail becomes `trailing_bytes`.
        """
        found = self.translate_offset(offset)
        if found is not None:
            return found
        scan = self.scan(self.indexed_position(offset))
        for _ in scan:
            pass
        assert scan.end is not None
        if scan.end.reason is EndReason.TRAILING:
            self.trailing_bytes += self.size - scan.end.position
            self.size = scan.end.position
        elif scan.end.reason is not EndReason.COMPLETE:
            raise CorruptRecordError(self.path, scan.end.reason.value, scan.end.position)
        return None

    def _read_largest_timestamp(self, offset: int) -> None:
        """Finds larger timestamps in the batches from `offset` on (Kafka: readLargestTimestamp)."""
        state = self.index_state()
        for chunk in self.scan(self.indexed_position(offset)):
            timestamps = chunk.batches["max_timestamp"]
            at = int(np.argmax(timestamps))
            if timestamps[at] > state[indexing.MAX_TIMESTAMP]:
                state[indexing.MAX_TIMESTAMP] = timestamps[at]
                state[indexing.OFFSET_OF_MAX_TIMESTAMP] = chunk.batches["last_offset"][at]

    # --- life of the files ------------------------------------------------------------------------------

    def on_become_inactive(self) -> None:
        """Finishes an active segment that rolls: last time entry, indexes trimmed."""
        self._close_time_index()
        self.trim_indexes()

    def trim_indexes(self) -> None:
        """Cuts the index files to their entries."""
        self.offset_index.trim()
        self.time_index.trim()

    def start_flush(self, position: int) -> None:
        """Starts writing the bytes from `position` on to disk; `flush` still waits for all of them."""
        self._writable().start_writing(position, self.size - position)

    def flush(self) -> None:
        """Returns when log and indexes are on stable storage, their names aside; syncs only changed files."""
        self.offset_index.start_flush()  # so that one commit of the file system's journal suffices instead of three
        self.time_index.start_flush()
        if not self._synced:
            self._writable().sync()
            self._synced = True
        self.offset_index.flush()
        self.time_index.flush()
        self.transaction_index.flush()

    def close(self, writable: bool = True) -> None:
        """Closes the files; a writable segment gets its last time entry and trimmed indexes first."""
        if writable:
            self.on_become_inactive()
        self.close_files()

    def close_files(self) -> None:
        """Closes all file descriptors; files are opened again when they are needed."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self.offset_index.close_file()
        self.time_index.close_file()
        self.transaction_index.close_file()

    def rename_to(self, state: FileState) -> None:
        """Renames every file that exists to `state`, in Kafka's order: log, index, timeindex, txnindex."""
        before, after = self._paths(), self._paths(state)
        self.close_files()
        for source, target in zip(before, after, strict=True):
            if self.fs.status(source) is not None:
                self.fs.rename(source, target)
        self.state, self.path = state, after[0]
        self.offset_index.renamed(after[1])
        self.time_index.renamed(after[2])
        self.transaction_index.renamed(after[3])

    def delete(self) -> None:
        """Removes the files that exist."""
        self.close_files()
        for path in self.files:
            self.fs.remove(path)

    def _paths(self, state: FileState | None = None) -> list[Path]:
        return [self._file_path(kind, state) for kind in SEGMENT_KINDS]

    def _file_path(self, kind: FileKind, state: FileState | None = None) -> Path:
        name = segment_file_name(self.base_offset, kind, self.state if state is None else state)
        return self.directory / name

    def _writable(self) -> File:
        self._synced = False
        self._file = self._file or self.fs.open(self.path, "r+")
        return self._file

    def rows(self, start: int = 0) -> Iterator[np.ndarray]:
        """The batch tables of the segment from byte `start`; each is valid until the next step."""
        for chunk in self.scan(start):
            yield chunk.batches
