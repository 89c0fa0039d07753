"""Dumps index files and snapshots in kafka-dump-log's text and checks them against their log as that tool does.

Kafka: DumpLogSegments.dumpIndex, dumpTimeIndex, dumpTxnIndex, dumpProducerIdSnapshot.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np

from seglog.errors import CorruptSnapshotError
from seglog.format.checksum import crc32c
from seglog.format.decoder import decode_records
from seglog.format.filenames import FileKind, parse_file_name
from seglog.format.index_entries import decode_offset_index, decode_time_index, decode_transaction_index
from seglog.format.producer_snapshot import ProducerEntry, decode_snapshot
from seglog.layout import INT32_MAX, SNAPSHOT_COUNT_OFFSET, SNAPSHOT_ENTRY, SNAPSHOT_HEADER, SNAPSHOT_VERSION
from seglog.look.kafka_dump_log.reports import Mismatch, Report, Reports
from seglog.scan.segment_scan import entry_row
from seglog.storage.filesystem import File, FileSystem, require_size
from seglog.storage.padding import written_front
from seglog.verification.findings import Finding, finding, place_of

_MOST_INDEX_BYTES = 1 << 30
_LINES_A_BLOCK = 8192
_MOST_BATCH_BYTES = 64 << 20


class IndexDump:
    """One `.index`, `.timeindex`, `.txnindex` or `.snapshot`."""

    def __init__(
        self,
        fs: FileSystem,
        path: Path,
        kind: FileKind,
        verify_only: bool,
        sanity_only: bool,
        reports: Reports,
    ) -> None:
        self.fs, self.path, self.kind, self.reports = fs, path, kind, reports
        self.verify_only, self.sanity_only = verify_only, sanity_only
        name = parse_file_name(path.name)
        self.base_offset = 0 if name is None else name.offset
        self.log_path = path.with_suffix(FileKind.LOG.value)

    def blocks(self) -> Iterator[memoryview | Finding | Report]:
        """Yields the file's lines, and a finding or Kafka's message if it is corrupt."""
        lines: list[str] = []
        for line in self._lines():
            if not isinstance(line, str):
                if lines:
                    yield _block(lines)
                    lines = []
                yield line
                continue
            lines.append(line)
            if len(lines) == _LINES_A_BLOCK:
                yield _block(lines)
                lines = []
        if lines:
            yield _block(lines)

    def _lines(self) -> Iterator[str | Finding | Report]:
        if self.kind is FileKind.OFFSET_INDEX:
            return self._offset_index()
        if self.kind is FileKind.TIME_INDEX:
            return self._time_index()
        return self._transaction_index() if self.kind is FileKind.TRANSACTION_INDEX else self._snapshot()

    def _read(self) -> bytes:
        return self.fs.read_bytes(self.path, _MOST_INDEX_BYTES)

    def _entries(self, entry_bytes: int) -> bytes:
        """Returns the entries that the tool looks at: up to the first one of zeros, or only the first and the last."""
        with self.fs.open(self.path, "r") as file:
            count = require_size(file, _MOST_INDEX_BYTES) // entry_bytes
            first = file.read_at(0, min(count, 1) * entry_bytes)
            if self.sanity_only:
                return first + file.read_at((count - 1) * entry_bytes, entry_bytes) if count > 1 else first
            written = written_front(file, entry_bytes)
            return written if len(written) >= entry_bytes else first

    def _log(self) -> AbstractContextManager[File | None]:
        """Opens the log, if there is one."""
        return nullcontext() if self.fs.status(self.log_path) is None else self.fs.open(self.log_path, "r")

    # --- offset index

    def _offset_index(self) -> Iterator[str | Finding]:
        rows = decode_offset_index(self._entries(8), self.base_offset)
        if len(rows) == 0:
            yield f"{self.path} is empty."
            return
        if self.sanity_only:
            yield from self._sanity(rows["offset"], None, 8)
            return
        with self._log() as log:
            for i, (offset, position) in enumerate(rows.tolist()):
                # A crash leaves entries of zeros; Kafka's tool stops at the first one.
                if i > 0 and offset == self.base_offset:
                    break
                padding = offset == self.base_offset and position == 0
                if log is not None and not padding:
                    row = entry_row(log, position, log.size()) if 0 <= position < log.size() else None
                    found = -1 if row is None else int(row["last_offset"][0])
                    if found != offset:
                        self.reports.note(Mismatch.INDEX, self.path, offset, found)
                if not self.verify_only:
                    yield f"offset: {offset} position: {position}"

    # --- time index

    def _time_index(self) -> Iterator[str | Finding]:
        rows = decode_time_index(self._entries(12), self.base_offset)
        if self.sanity_only:
            yield from self._sanity(rows["offset"], rows["timestamp"], 12)
            return
        lookup = self._offset_lookup()
        before = -1
        with self._log() as log:
            for i, (timestamp, offset) in enumerate(rows.tolist()):
                if i > 0 and offset == self.base_offset:
                    break
                if log is not None:
                    self._check_time_entry(log, lookup, timestamp, offset, before)
                if not self.verify_only:
                    yield f"timestamp: {timestamp} offset: {offset}"
                before = timestamp

    def _offset_lookup(self) -> np.ndarray:
        path = self.path.with_suffix(FileKind.OFFSET_INDEX.value)
        if self.fs.status(path) is None:
            return decode_offset_index(b"", self.base_offset)
        with self.fs.open(path, "r") as file:
            require_size(file, _MOST_INDEX_BYTES)
            rows = decode_offset_index(written_front(file, 8), self.base_offset)
        # Entries that do not ascend are zeros or damage, which would mislead the search.
        down = np.flatnonzero(np.diff(rows["offset"]) <= 0)
        return rows[: int(down[0]) + 1] if len(down) else rows

    def _check_time_entry(self, log: File, lookup: np.ndarray, timestamp: int, offset: int, before: int) -> None:
        at = int(np.searchsorted(lookup["offset"], offset, side="right")) - 1
        position = int(lookup["position"][at]) if at >= 0 else 0
        row = self._batch_reaching(log, position, offset)
        if row is None:
            self.reports.note(Mismatch.NOT_FOUND, self.path, offset, -1)
            return
        if int(row["last_offset"][0]) != offset:
            self.reports.note(Mismatch.NOT_FOUND, self.path, offset, int(row["last_offset"][0]))
            return
        largest = self._largest_timestamp(log, row)
        if largest != timestamp:
            self.reports.note(Mismatch.TIMESTAMP, self.path, timestamp, largest)
        if before >= timestamp:
            self.reports.note(Mismatch.ORDER, self.path, timestamp, before)

    def _batch_reaching(self, log: File, position: int, offset: int) -> np.ndarray | None:
        """Returns the header of the first batch from `position` on whose last offset is at least `offset`, or None."""
        size = log.size()
        while 0 <= position < size:
            row = entry_row(log, position, size)
            if row is None or int(row["last_offset"][0]) >= offset:
                return row
            position += int(row["size"][0])
        return None

    def _largest_timestamp(self, log: File, row: np.ndarray) -> int:
        position, size = int(row["position"][0]), int(row["size"][0])
        if size > _MOST_BATCH_BYTES:
            return int(row["max_timestamp"][0])
        data = np.frombuffer(log.read_at(position, size), dtype=np.uint8)
        found = [r.rows["timestamp"].max() for r in decode_records(data, row, position) if len(r.rows)]
        return int(max(found, default=-1))

    # --- the others

    def _sanity(self, offsets: np.ndarray, timestamps: np.ndarray | None, entry_bytes: int) -> Iterator[str | Finding]:
        status = self.fs.status(self.path)
        size = 0 if status is None else status.size
        problem = ""
        if len(offsets) and int(offsets[-1]) < self.base_offset:
            problem = f"the last offset {offsets[-1]} is below the base {self.base_offset}"
        elif timestamps is not None and len(timestamps) and timestamps[-1] < timestamps[0]:
            problem = f"the last timestamp {timestamps[-1]} is below the first, {timestamps[0]}"
        elif size % entry_bytes:
            problem = f"{size} bytes are not a whole number of entries of {entry_bytes}"
        if not problem:
            yield f"{self.path} passed sanity check."
            return
        code = "OFFSET_INDEX_INVALID" if entry_bytes == 8 else "TIME_INDEX_INVALID"
        yield finding(code, *place_of(self.path), problem)

    def _transaction_index(self) -> Iterator[str | Report]:
        for producer, first, last, stable, stored in decode_transaction_index(self._read()).tolist():
            version = stored >> 8  # Kafka reads the first of two bytes
            if version > 0:
                yield Report(
                    f"Unexpected aborted transaction version {version} in transaction index {self.path},"
                    " current version is 0"
                )
                return
            yield (
                f"version: {version} producerId: {producer} firstOffset: {first} lastOffset: {last}"
                f" lastStableOffset: {stable}"
            )

    def _snapshot(self) -> Iterator[str | Report]:
        data = self._read()
        try:
            entries = decode_snapshot(data, self.path)
        except CorruptSnapshotError:
            yield Report(_snapshot_problem(data))
            return
        for entry in entries:
            yield _snapshot_line(entry)


def _snapshot_problem(data: bytes) -> str:
    """Returns Kafka's message for a snapshot that it refuses (ProducerStateManager.readSnapshot)."""
    problem = "null"  # the message of Java's BufferUnderflowException
    body = data[SNAPSHOT_HEADER:]
    version = struct.unpack_from(">h", data)[0] if len(data) >= 2 else SNAPSHOT_VERSION
    stored, count = struct.unpack_from(">Ii", data, 2) if len(data) >= SNAPSHOT_HEADER else (0, 1)
    if version != SNAPSHOT_VERSION:
        problem = f"Snapshot contained an unknown file version {version}"
    elif count < 0:
        problem = "non-nullable field producerEntries was serialized as null"
    elif count > len(body) and len(data) >= SNAPSHOT_HEADER:
        problem = f"Tried to allocate a collection of size {count}, but there are only {len(body)} bytes remaining."
    elif count * SNAPSHOT_ENTRY.itemsize <= len(body):
        computed = crc32c(data[SNAPSHOT_COUNT_OFFSET:])
        return f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {stored}. Computed crc: {computed}"
    return f"Snapshot failed schema validation: {problem}"


def _snapshot_line(entry: ProducerEntry) -> str:
    first = entry.current_txn_first_offset
    transaction = f"OptionalLong[{first}]" if first >= 0 else "OptionalLong.empty"
    line = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch}"
        f" coordinatorEpoch: {entry.coordinator_epoch} currentTxnFirstOffset: {transaction}"
        f" lastTimestamp: {entry.timestamp}"
    )
    if entry.last_offset < 0:
        return line
    first_sequence = (entry.last_sequence - entry.offset_delta) & INT32_MAX
    return (
        f"{line} firstSequence: {first_sequence} lastSequence: {entry.last_sequence} lastOffset: {entry.last_offset}"
        f" offsetDelta: {entry.offset_delta} timestamp: {entry.timestamp}"
    )


def _block(lines: list[str]) -> memoryview:
    return memoryview(("\n".join(lines) + "\n").encode("utf-8", "surrogateescape"))
