"""Where in a segment's `.log` the batches of a range of offsets or times lie, as far as its indexes can be believed.

An index is a hint that may be missing, cut, damaged or another segment's. So every answer is a place where a batch was
found (`segment_scan.indexed_batch`), or the one that is always right: the file's start or end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seglog import layout
from seglog.errors import GONE, RefusedError
from seglog.log.indexes import IndexFile, OffsetIndex, TimeIndex
from seglog.scan.listing import SegmentFiles
from seglog.scan.segment_scan import SegmentScan, checksum_valid, entry_row, indexed_batch
from seglog.storage.filesystem import FileSystem
from seglog.storage.padding import FRONT_BYTES

if TYPE_CHECKING:
    from seglog.log.segment import LogSegment

_LOOK_BYTES = 32 << 10
_TRIES = 4


@dataclass(frozen=True, slots=True)
class Place:
    """The byte position of a batch and its header's base offset. At the file's start that may be unknown (None)."""

    position: int = 0
    base_offset: int | None = None


@dataclass(frozen=True, slots=True)
class TimeEntry:
    """An entry of a time index: the largest timestamp (epoch ms) up to a batch, and that batch's last offset.

    It is believed if a batch reaches the offset with that timestamp, and none just before it has a larger one.
    """

    timestamp: int
    offset: int

    @classmethod
    def before(cls, times: TimeIndex, timestamp: int) -> TimeEntry | None:
        """The last entry before `timestamp`; None if there is none, or if the entries around it do not ascend."""
        row = times.row_before(timestamp)
        if row < 0 or not _ascends_around(times, row):
            return None
        largest, offset = (int(column[row]) for column in times.columns())
        return cls(largest, times.base_offset + offset) if largest >= 0 else None

    def row_in(self, batches: np.ndarray) -> int:
        """Returns the row of its batch in the next `batches` (layout.BATCH) of a search that began at or before it:
        -1 if they contradict the entry, their number if they all lie before its batch.
        """
        reached, timestamps = batches["last_offset"] >= self.offset, batches["max_timestamp"]
        row = int(reached.argmax())
        if not reached[row]:
            return len(batches) if timestamps.max() <= self.timestamp else -1
        is_its = timestamps[row] == self.timestamp and (row == 0 or timestamps[:row].max() <= self.timestamp)
        return row if is_its else -1


class SegmentPlaces:
    """The places in the first `size` bytes of the segment `log`. An index that is None or cannot be read tells nothing.

    Raises one of `errors.GONE` if a file is gone, OSError if the log cannot be read.
    """

    def __init__(
        self,
        fs: FileSystem,
        log: Path,
        size: int,
        base_offset: int,
        offsets: OffsetIndex | None,
        times: TimeIndex | None,
    ) -> None:
        self.fs, self.log, self.size, self.base_offset = fs, log, size, base_offset
        self._offset_index, self._time_index = offsets, times

    @classmethod
    def of(cls, fs: FileSystem, files: SegmentFiles) -> SegmentPlaces:
        """The places in a segment that was listed."""
        base, offsets, times = files.base_offset, files.offset_index, files.time_index
        return cls(
            fs,
            files.log,
            files.size,
            base,
            None if offsets is None else OffsetIndex(fs, offsets, base),
            None if times is None else TimeIndex(fs, times, base),
        )

    @classmethod
    def of_open(cls, segment: LogSegment) -> SegmentPlaces:
        """The places in a segment of an open log."""
        indexes = segment.offset_index, segment.time_index
        return cls(segment.fs, segment.path, segment.size, segment.base_offset, *indexes)

    @cached_property
    def _offsets(self) -> OffsetIndex | None:
        return self._offset_index if _readable(self._offset_index) else None

    @cached_property
    def _times(self) -> TimeIndex | None:
        return self._time_index if _readable(self._time_index) else None

    # --- where a range begins ---------------------------------------------------------------------------

    def start(self, offset: int) -> Place:
        """Returns a place at or before the first batch that reaches `offset`."""
        if offset <= self.base_offset or self._offsets is None:
            return Place()
        row = indexed_batch(self.fs, self.log, self.size, self.base_offset, self._offsets.entries_to(offset))
        return Place() if row is None else Place(int(row["position"][0]), int(row["base_offset"][0]))

    def start_of_time(self, timestamp: int) -> Place:
        """Returns a place at or before the first record at `timestamp` (epoch ms) or later."""
        entry = None if self._times is None else TimeEntry.before(self._times, timestamp)
        if entry is None:
            return Place()
        start = self.start(entry.offset).position
        with self.fs.open(self.log, "r") as file:
            for chunk in SegmentScan(None, self.log, start, self.size, chunk_bytes=_LOOK_BYTES, file=file):
                row = entry.row_in(chunk.batches)
                if row < 0:
                    break
                if row < len(chunk.batches):
                    return Place(int(chunk.batches["position"][row]), int(chunk.batches["base_offset"][row]))
        return Place()

    # --- where it ends ----------------------------------------------------------------------------------

    def end(self, offset: int, start: int = 0) -> int:
        """Returns a position at which only batches from `offset` on begin; the segment's size if none is known after
        byte `start`.
        """
        entries = self.entries
        # the first entry that reaches the offset is skipped: an old broker's entry covers several batches
        later = np.flatnonzero(entries[:, 0] >= offset)[1:]
        for position in entries[later[:_TRIES], 1].tolist():
            row = self._batch_at(position) if position > start else None
            if row is not None and row["magic"] >= 2 and row["base_offset"] >= offset:
                return int(position)
        return self.size

    def expected_end(self, offset: int | None, timestamp: int | None) -> int:
        """Returns where reading up to an offset and a timestamp (both exclusive) probably ends: a hint."""
        ends = [self.size]
        if offset is not None:
            ends.append(self._after(offset))
        if timestamp is not None and self._times is not None:
            i = int(np.searchsorted(self._times.timestamps, timestamp))
            if i < self._times.entries:
                ends.append(self._after(int(self._times.offsets[i])))
        return min(ends)

    def _after(self, offset: int) -> int:
        """Returns the position of the entry after the first one that reaches `offset`."""
        if self._offsets is None:
            return self.size
        offsets, positions = self._offsets.offsets, self._offsets.positions
        i = int(np.searchsorted(offsets, offset)) + 1
        return int(positions[i]) if i < len(positions) else self.size

    # --- where it may be cut ----------------------------------------------------------------------------

    @cached_property
    def entries(self) -> np.ndarray:
        """The entries of the offset index that lead into the file: int64 (n, 2), offset and position."""
        if self._offsets is None:
            return np.empty((0, 2), dtype=np.int64)
        entries = np.column_stack((self._offsets.offsets, self._offsets.positions))
        inside = (entries[:, 1] > 0) & (entries[:, 1] < self.size)
        return entries[inside]

    def cuts(self, within: tuple[int, int], parts: int, offsets: tuple[int, int]) -> Iterator[tuple[int, int]]:
        """Yields (position, first offset) of the batches at which to cut the bytes `within` into equal `parts`: fewer
        where entries lead to no batch. Their first offsets ascend, between `offsets` (exclusive).
        """
        start, end = within
        positions = self.entries[:, 1]
        positions = positions[(positions > start) & (positions < end)]
        parts = min(parts, len(positions) + 1)
        reached, least = start, offsets[0]
        for i in range(1, parts):
            wanted = start + i * (end - start) // parts
            at = int(np.searchsorted(positions, max(wanted, reached + 1)))
            for position in positions[at : at + _TRIES].tolist():
                offset = self.first_offset(position)
                if offset is not None and least < offset < offsets[1]:
                    yield position, offset
                    reached, least = position, offset
                    break

    def first_offset(self, position: int) -> int | None:
        """Returns the offset of the first record of the batch at `position`; None if no good batch begins there.

        The header of a compressed wrapper of magic 0 or 1 gives its last offset; the first one needs decoding.
        """
        row = self._batch_at(position)
        if row is None:
            return None
        if row["magic"] >= 2 or not row["attributes"] & layout.CODEC_MASK:
            return int(row["base_offset"])
        with self.fs.open(self.log, "r") as file:
            for chunk in SegmentScan.of_file(file, position, position + int(row["size"])):
                for records in chunk.records():
                    if len(records) and not records.status.any():
                        return int(records.rows["offset"][0])
        return None

    def _batch_at(self, position: int) -> np.void | None:
        """Returns the batch (a row of layout.BATCH) at `position` if its checksum is valid."""
        with self.fs.open(self.log, "r") as file:
            row = entry_row(file, position, self.size)
            return row[0] if row is not None and checksum_valid(file, row[0]) else None

    # --- times ------------------------------------------------------------------------------------------

    def largest_timestamp(self) -> int | None:
        """Returns what `closing_timestamp` does, and looks at all entries of a large index, too."""
        return None if self._times is None or not _ascends(self._times) else _closing_timestamp(self._times)

    def largest_timestamps(self, offsets: Sequence[int], largest: int | None) -> list[int | None]:
        """Returns the largest timestamp that a record below each of the offsets can have, if the segment's largest one
        is `largest`; None: unknown.
        """
        times = self._times
        if times is None or not _ascends(times):
            return [None] * len(offsets)
        rows = np.searchsorted(times.offsets, np.array(offsets, dtype=np.int64) - 1)
        return [int(times.timestamps[row]) if row < times.entries else largest for row in rows]


def closing_timestamp(fs: FileSystem, time_index: Path, base_offset: int) -> int | None:
    """Returns the largest timestamp of a segment that is no longer written, by its time index alone; None if that does
    not tell. Where zeros follow the last entry, nobody has closed the index, and the newest entry may be missing.
    """
    times = TimeIndex(fs, time_index, base_offset)
    return _closing_timestamp(times) if _readable(times, whole=False) else None


def _closing_timestamp(times: TimeIndex) -> int | None:
    if not times.entries or times.is_padded:
        return None
    # of a large index, only the last entry is read
    return times.last_entry[0] if times.size > FRONT_BYTES or _ascends(times) else None


def _ascends(times: TimeIndex) -> bool:
    """True if all entries are in order, and none is negative."""
    return all(bool((column[:1] >= 0).all() and (column[1:] > column[:-1]).all()) for column in times.columns())


def _ascends_around(times: TimeIndex, i: int) -> bool:
    """True if entry `i` and those next to it are in order."""
    near = slice(max(i - 1, 0), i + 2)
    timestamps, offsets = (column[near].tolist() for column in times.columns())
    return all(a < b for a, b in pairwise(timestamps)) and all(a <= b for a, b in pairwise(offsets))


def _readable(index: IndexFile | None, *, whole: bool = True) -> bool:
    """True if there is an index that can be read. One that cannot does not keep the log from being read: `verify`
    reports it.
    """
    if index is None:
        return False
    try:
        _ = index.columns() if whole else index.ending
    except GONE:
        raise
    except (OSError, RefusedError):
        return False
    return True
