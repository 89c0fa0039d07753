"""Checks offset and time indexes against the batches of their log during the walk (specification §5.1, §5.2).

The rules are Kafka's contract, not the habit of one version. An offset entry leads to the first byte of a batch, after
all batches with lower offsets. The timestamp of a time entry is the largest up to its offset. So indexes of every
broker since 0.8 pass. Entries that point into damage are not checked, because the damage has its own finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from seglog.format.filenames import FileKind
from seglog.scan.index_files import MOST_INDEX_BYTES, read_index
from seglog.scan.listing import SegmentFiles
from seglog.scan.log_walk import WalkedEntries
from seglog.storage.filesystem import FileSystem
from seglog.storage.links import name_of
from seglog.units import count_text
from seglog.verification.codes import Severity
from seglog.verification.findings import Finding, finding

_MOST_FINDINGS = 20  # wrong entries reported per segment
_ENTRIES_AT_ONCE = 4096
# Far more than brokers write between two entries (index.interval.bytes, 4 KiB), or a follower fetched at once (10 MB).
_UNINDEXED_BYTES = 16 << 20


def _running_maximum(entries: np.ndarray | None, column: str) -> np.ndarray:
    """Returns the largest value of a column up to each entry. `_ascending` reports lower values."""
    if entries is None or not len(entries):
        return np.empty(0, dtype=np.int64)
    return np.maximum.accumulate(entries[column].astype(np.int64))


class IndexObserver:
    """Checks the offset and time index of one segment.

    `closed`: a later segment exists. `live`: a broker is running, and a padded index is the one that it is writing.
    `is_alone`: the directory cannot be listed, so a missing index is not reported.
    """

    def __init__(self, fs: FileSystem, segment: SegmentFiles, closed: bool, *, live: bool, is_alone: bool) -> None:
        self.segment, self.closed, self._live, self._is_alone = segment, closed, live, is_alone
        self._fs = fs
        self._partition = name_of(segment.log.parent)
        self._waiting: list[Finding] = []
        self._reported = 0
        self._padded_times = False
        self._offsets = self._load(segment.offset_index, 8)
        self._times = self._load(segment.time_index, 12)
        self._positions = _running_maximum(self._offsets, "position")
        self._reached = _running_maximum(self._times, "offset")
        self._next_entry = 0
        self._next_time = 0
        self._last_offset = segment.base_offset - 1
        self._last_position = 0  # of a batch
        self._max_timestamp = -1
        self._check_shape()

    def take(self, piece: WalkedEntries) -> Iterator[Finding]:
        """Checks the entries that belong to the good batches of `piece`."""
        yield from self._waiting_findings()
        good = piece.batches[piece.valid]
        if len(good) == 0:
            return
        yield from self._offset_entries(piece, good)
        yield from self._time_entries(good)
        self._last_offset = max(self._last_offset, int(good["last_offset"].max()))
        self._last_position = int(good["position"][-1])
        self._max_timestamp = max(self._max_timestamp, int(good["max_timestamp"].max()))

    def finish(self) -> Iterator[Finding]:
        """Reports what only the end of the log shows."""
        yield from self._waiting_findings()
        yield from self._missing()
        yield from self._short()
        if self._times is None:
            return
        for i in range(self._next_time, len(self._times)):
            timestamp, offset = (int(value) for value in self._times[i].tolist())
            if offset > self._last_offset:
                message = f"entry {i} names offset {offset}, but the segment ends before offset {self._last_offset + 1}"
                yield from self._wrong_time(i, message)
            elif timestamp > self._max_timestamp:
                message = f"entry {i} has timestamp {timestamp}, but no record is that late"
                yield from self._wrong_time(i, message)
        last = int(self._times["timestamp"][-1]) if len(self._times) else -1
        if self.closed and self._max_timestamp >= 0 and last < self._max_timestamp and not self._padded_times:
            message = f"the last entry has timestamp {last}, but the segment's largest is {self._max_timestamp}"
            yield self._finding("TIME_INDEX_SHORT", self.segment.time_index, message)

    # --- loading

    def _load(self, path: Path | None, entry_bytes: int) -> np.ndarray | None:
        """Returns the written entries. Findings on the file's shape wait for the first step."""
        if path is None:
            return None
        status = self._fs.status(path)
        size = 0 if status is None else status.size
        if size > MOST_INDEX_BYTES:
            message = f"the file has {count_text(size, 'byte')}, more than any index"
            self._waiting.append(self._finding("INDEX_SIZE_INVALID", path, message))
            return None
        entries = read_index(self._fs, path, self.segment.base_offset, past_zeros=True)
        if entries.size % entry_bytes:
            message = (
                f"the file has {count_text(entries.size, 'byte')}, which is not a multiple of the entry"
                f" size {entry_bytes}"
            )
            self._waiting.append(self._finding("INDEX_SIZE_INVALID", path, message, length=entries.size))
        if padding := entries.padding:
            self._padded_times |= entry_bytes == 12
            severity = Severity.WARNING if self.closed and not self._live else Severity.INFO
            message = f"{padding} preallocated zero entries follow the written ones"
            where = {"severity": severity, "position": len(entries.rows) * entry_bytes}
            self._waiting.append(self._finding("INDEX_PREALLOCATED", path, message, **where))
        return entries.rows

    def _check_shape(self) -> None:
        base = self.segment.base_offset
        if self._offsets is not None and len(self._offsets):
            self._ascending("OFFSET_INDEX_INVALID", self.segment.offset_index, self._offsets, "offset", 8)
            self._ascending("OFFSET_INDEX_INVALID", self.segment.offset_index, self._offsets, "position", 8)
            beyond = (self._offsets["position"] < 0) | (self._offsets["position"] >= self.segment.size)
            for i in np.flatnonzero(beyond | (self._offsets["offset"] < base))[:1].tolist():
                offset, position = self._offsets[i].tolist()
                message = f"entry {i} (offset {offset}, position {position}) leads outside the segment"
                found = self._finding("OFFSET_INDEX_INVALID", self.segment.offset_index, message, position=8 * i)
                self._waiting.append(found)
        if self._times is not None and len(self._times):
            self._ascending("TIME_INDEX_INVALID", self.segment.time_index, self._times, "timestamp", 12)
            self._ascending("TIME_INDEX_INVALID", self.segment.time_index, self._times, "offset", 12, strictly=False)

    def _ascending(
        self,
        code: str,
        path: Path | None,
        rows: np.ndarray,
        column: str,
        entry_bytes: int,
        strictly: bool = True,
    ) -> None:
        steps = np.diff(rows[column].astype(np.int64))
        for i in np.flatnonzero(steps <= 0 if strictly else steps < 0)[:1].tolist():
            message = f"entry {i + 1} has {column} {rows[column][i + 1]}, after {rows[column][i]} in the entry before"
            self._waiting.append(self._finding(code, path, message, position=entry_bytes * (i + 1)))

    # --- against the log

    def _offset_entries(self, piece: WalkedEntries, good: np.ndarray) -> Iterator[Finding]:
        """Checks the entries that lead into these batches. Skips one that is in a gap before them, or out of order."""
        if self._offsets is None:
            return
        starts, bases = np.ascontiguousarray(good["position"]), np.ascontiguousarray(good["base_offset"])
        below = np.maximum.accumulate(np.concatenate(([self._last_offset], good["last_offset"][:-1])))
        # brokers before 0.10 wrote the first offset of the append, which a wrapper does not show
        below = np.where(good["magic"] >= 2, np.maximum(below, bases - 1), below)
        entries_end = int(np.searchsorted(self._positions, starts[-1] + good["size"][-1]))
        entries = slice(self._next_entry, max(self._next_entry, entries_end))
        self._next_entry = entries.stop
        positions = self._positions[entries]
        at = np.minimum(np.searchsorted(starts, positions), len(good) - 1)
        right = (starts[at] == positions) & (self._offsets["offset"][entries] > below[at])
        judged = (positions >= piece.position) & (positions == self._offsets["position"][entries])
        for i in np.flatnonzero(judged & ~right).tolist():
            offset, position = (int(value) for value in self._offsets[entries.start + i].tolist())
            if starts[at[i]] == position:
                message = f"puts offset {offset} at position {position}, where offset {int(bases[at[i]])} begins"
            else:
                holder = int(np.searchsorted(piece.batches["position"], position, side="right")) - 1
                if holder < 0 or not piece.valid[holder]:
                    continue  # it leads into damage
                message = f"leads to position {position}, where no batch begins"
            number, path = entries.start + i, self.segment.offset_index
            yield from self._wrong_entry("OFFSET_INDEX_INVALID", path, f"entry {number} {message}", 8 * number)

    def _time_entries(self, good: np.ndarray) -> Iterator[Finding]:
        """Checks the entries up to the last offset of these batches. An entry inside the last batch waits for the next
        piece; one out of order is skipped.
        """
        if self._times is None:
            return
        lasts = np.maximum.accumulate(np.maximum(good["last_offset"], self._last_offset))
        maxima = np.maximum.accumulate(np.maximum(good["max_timestamp"], self._max_timestamp))
        below = np.concatenate(([self._max_timestamp], maxima))  # the largest before each batch
        while self._next_time < len(self._times):
            first = self._next_time
            offsets = self._reached[first : first + _ENTRIES_AT_ONCE]
            count = int(np.searchsorted(offsets, lasts[-1], side="right"))
            entries, offsets = self._times[first : first + count], offsets[:count]
            at = np.searchsorted(lasts, offsets)  # the batch that holds the offset, or follows it
            whole = at + (lasts[at] == offsets)
            early, late = below[whole] > entries["timestamp"], maxima[at] < entries["timestamp"]
            for i in np.flatnonzero((early | late) & (offsets == entries["offset"])).tolist():
                timestamp, offset = (int(value) for value in entries[i].tolist())
                message = f"entry {first + i} has timestamp {timestamp} up to offset {offset}, but "
                message += f"a batch there has {int(below[whole[i]])}" if early[i] else "no record there is that late"
                yield from self._wrong_time(first + i, message)
            self._next_time += count
            if count < _ENTRIES_AT_ONCE:
                return

    def _missing(self) -> Iterator[Finding]:
        is_snapshot = self.segment.log.suffix == FileKind.METADATA_SNAPSHOT.value  # a whole state, read from its start
        if self.segment.size == 0 or self._is_alone or is_snapshot:
            return
        severity = Severity.WARNING if self.closed else Severity.INFO
        if self.segment.offset_index is None:
            yield self._finding("INDEX_MISSING", self.segment.log, "there is no offset index", severity=severity)
        if self.segment.time_index is None and self._max_timestamp >= 0:
            yield self._finding("INDEX_MISSING", self.segment.log, "there is no time index", severity=severity)

    def _short(self) -> Iterator[Finding]:
        indexed = int(self._positions[-1]) if len(self._positions) else 0
        unindexed = self._last_position - indexed
        if self._offsets is not None and unindexed > _UNINDEXED_BYTES:
            entries = f"its last entry leads to position {indexed}" if len(self._offsets) else "it has no entry"
            message = f"{entries}, and the last batch lies {count_text(unindexed, 'byte')} after that"
            yield self._finding("OFFSET_INDEX_SHORT", self.segment.offset_index, message)

    # --- findings

    def _wrong_time(self, i: int, message: str) -> Iterator[Finding]:
        yield from self._wrong_entry("TIME_INDEX_INVALID", self.segment.time_index, message, 12 * i)

    def _wrong_entry(self, code: str, path: Path | None, message: str, position: int) -> Iterator[Finding]:
        self._reported += 1
        if self._reported <= _MOST_FINDINGS:
            yield self._finding(code, path, message, position=position)

    def _waiting_findings(self) -> Iterator[Finding]:
        yield from self._waiting
        self._waiting = []

    def _finding(self, code: str, path: Path | None, message: str, **fields: object) -> Finding:
        name = self.segment.log.name if path is None else path.name
        return finding(code, self._partition, name, message, **fields)
