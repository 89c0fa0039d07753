"""Finds the bytes of a log that hold the batches of a range of offsets and times, by its indexes.

1. A segment is left out if its name, the next one's, or its time index says that it holds nothing wanted.
2. In the first one, reading begins at the last index entry before the range. A time index is only believed if its
   entry names a batch that is there; a log without indexes is read from its start.
3. Reading ends after `_SLACK_BYTES` of batches at or beyond the range's end. Timestamps may be out of order, so no
   single late one ends it.

What is left out is not checked for damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from seglog.errors import RefusedError
from seglog.log.indexes import IndexFile, OffsetIndex, TimeIndex
from seglog.log.places import SegmentPlaces
from seglog.scan.listing import SegmentFiles
from seglog.scan.log_walk import Gap, LogWalk, WalkedEntries
from seglog.scan.segment_scan import CHUNK_BYTES, SegmentScan, find_batch, indexed_batch
from seglog.storage.filesystem import FileSystem

_SLACK_BYTES = 512 << 10
_CHUNK_BYTES = 256 << 10
_LOOK_BYTES = 32 << 10


@dataclass(frozen=True, slots=True)
class Extent:
    """Wanted offsets and times (epoch milliseconds): inclusive at the start, exclusive at the end; None: no bound.

    `few`: reading may end long before the range does.
    """

    first_offset: int | None = None
    end_offset: int | None = None
    first_timestamp: int | None = None
    end_timestamp: int | None = None
    few: bool = False

    @property
    def ends(self) -> bool:
        """True if the range has an end."""
        return self.end_offset is not None or self.end_timestamp is not None

    def ended(self, batches: np.ndarray) -> np.ndarray:
        """Returns which batches (bool) lie at or beyond the end. A batch's smallest timestamp is in no header."""
        beyond = np.zeros(len(batches), dtype=bool)
        if self.end_offset is not None:
            beyond |= batches["base_offset"] >= self.end_offset
        if self.end_timestamp is not None:
            beyond |= np.minimum(batches["base_timestamp"], batches["max_timestamp"]) >= self.end_timestamp
        return beyond


@dataclass(slots=True)
class Reading:
    """How far reading a partition has come, in the order of its files. `passed` are the bytes of good batches beyond
    the range's end that followed the last wanted one.
    """

    extent: Extent
    passed: int = 0

    @property
    def over(self) -> bool:
        """True if nothing more is read."""
        return self.passed > _SLACK_BYTES

    def steps(self, walk: Iterable[WalkedEntries | Gap]) -> Iterator[WalkedEntries | Gap]:
        """Yields the steps of a walk until it is over."""
        for step in walk:
            yield step
            if isinstance(step, WalkedEntries) and self.extent.ends:
                self.read(step.batches[step.valid])
                if self.over:
                    return

    def read(self, good: np.ndarray) -> None:
        """Counts good batches (BATCH rows) that were read."""
        wanted = np.flatnonzero(~self.extent.ended(good))
        if len(wanted):
            self.passed = 0
        self.passed += int(good["size"][wanted[-1] + 1 if len(wanted) else 0 :].sum())


@dataclass(frozen=True, slots=True)
class Stretch:
    """The part of a `.log` to read: from byte `start`, where the batch with `first_offset` begins (None: the file's
    start). The indexes expect the range to end at byte `expected`, if they know it.
    """

    reading: Reading
    start: int = 0
    first_offset: int | None = None
    expected: int | None = None

    def walk(self, fs: FileSystem, path: Path, *, fresh: bool) -> Iterator[WalkedEntries | Gap]:
        """Walks through it."""
        extent = self.reading.extent
        chunk = _CHUNK_BYTES if extent.ends or extent.few else CHUNK_BYTES
        walk = LogWalk(fs, path, self.start, chunk_bytes=chunk, fresh=fresh, expected=self.expected)
        return self.reading.steps(walk)


def stretch_of(fs: FileSystem, segment: SegmentFiles, following: int | None, reading: Reading) -> Stretch:
    """Returns the part of a segment to read. `following` is the next one's base offset, None for the last one."""
    try:
        return _Indexed(fs, segment, following, reading).stretch()
    except OSError:
        return Stretch(reading)  # reading the log raises that


@dataclass(slots=True)
class _Indexed:
    """A segment with its indexes, which are read when they are needed."""

    fs: FileSystem
    segment: SegmentFiles
    following: int | None
    reading: Reading
    _offsets: OffsetIndex | None = field(init=False)
    _times: TimeIndex | None = field(init=False)

    def __post_init__(self) -> None:
        segment, base = self.segment, self.segment.base_offset
        self._offsets = None if segment.offset_index is None else OffsetIndex(self.fs, segment.offset_index, base)
        self._times = None if segment.time_index is None else TimeIndex(self.fs, segment.time_index, base)

    def stretch(self) -> Stretch:
        extent = self.reading.extent
        if self._has_nothing():
            return Stretch(self.reading, self.segment.size)
        if extent.first_offset is None and extent.first_timestamp is None and not extent.ends:
            return Stretch(self.reading)
        if extent.first_timestamp is not None or extent.end_timestamp is not None:
            self._times = self._believed_times()
        if self._offsets is not None and not _readable(self._offsets):
            self._offsets = None
        if self._is_older():
            return Stretch(self.reading, self.segment.size)
        begin = max(self._by_offset(), self._by_time(), key=lambda found: found[0])
        return Stretch(self.reading, *begin, self._expected(begin[0]))

    def _has_nothing(self) -> bool:
        extent, following = self.reading.extent, self.following
        ended = extent.end_offset is not None and self.segment.base_offset >= extent.end_offset
        older = extent.first_offset is not None and following is not None and following <= extent.first_offset
        return self.reading.over or ended or older

    def _believed_times(self) -> TimeIndex | None:
        """Returns the time index if its entries ascend and nothing follows them."""
        times = self._times
        if times is None or not _readable(times) or not times.entries:
            return None
        status = self.fs.status(times.path)
        ascending = (np.diff(times.timestamps) > 0).all() and (np.diff(times.offsets) >= 0).all()
        return times if ascending and status is not None and status.size == times.size else None

    def _is_older(self) -> bool:
        """True if every record of a segment that is no longer written is older than the range, as retention judges."""
        first, times = self.reading.extent.first_timestamp, self._times
        return first is not None and self.following is not None and times is not None and times.last_entry[0] < first

    def _by_offset(self) -> tuple[int, int | None]:
        """Returns (position, offset) of the batch to begin with for the first offset."""
        first = self.reading.extent.first_offset
        return (0, None) if first is None else self._indexed(first)

    def _by_time(self) -> tuple[int, int | None]:
        """Returns (position, offset) of the batch to begin with for the first timestamp.

        Records with a later timestamp than an entry's lie after it.
        """
        first = self.reading.extent.first_timestamp
        if first is None or self._times is None:
            return 0, None
        timestamp, offset = self._times.lookup(first - 1)
        if timestamp < 0:
            return 0, None
        log, size = self.segment.log, self.segment.size
        found = find_batch(SegmentScan(self.fs, log, self._indexed(offset)[0], size, chunk_bytes=_LOOK_BYTES), offset)
        if found is None:
            return 0, None
        with self.fs.open(log, "r") as file:
            row = indexed_batch(file, size, self.segment.base_offset, [(offset, found.position)])
        if row is None or int(row["max_timestamp"][0]) != timestamp:
            return 0, None
        return found.position, int(row["base_offset"][0])

    def _indexed(self, offset: int) -> tuple[int, int | None]:
        if self._offsets is None:
            return 0, None
        place = SegmentPlaces(self.fs, self.segment).start(offset)
        return place.position, place.base_offset

    def _expected(self, start: int) -> int | None:
        """Returns where the range ends by the indexes, if they know it: a hint for reading ahead."""
        extent = self.reading.extent
        if not extent.ends:
            return None
        ends = [self.segment.size]  # and the slack is read, too
        if extent.end_offset is not None:
            ends.append(self._after(extent.end_offset) + _SLACK_BYTES)
        if extent.end_timestamp is not None and self._times is not None:
            timestamps, offsets = self._times.timestamps, self._times.offsets
            i = int(np.searchsorted(timestamps, extent.end_timestamp))
            if i < len(offsets):
                ends.append(self._after(int(offsets[i])) + _SLACK_BYTES)
        end = min(ends)
        return end if end > start else None

    def _after(self, offset: int) -> int:
        """Returns the position of the entry after the first one that reaches `offset`."""
        if self._offsets is None:
            return self.segment.size
        offsets, positions = self._offsets.offsets, self._offsets.positions
        i = int(np.searchsorted(offsets, offset)) + 1
        return int(positions[i]) if i < len(positions) else self.segment.size


def _readable(index: IndexFile) -> bool:
    """True if an index can be read. The log is read even if one cannot: `verify` reports it."""
    try:
        index.columns()
    except (OSError, RefusedError):
        return False
    return True
