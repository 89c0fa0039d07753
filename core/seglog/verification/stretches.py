"""Finds the bytes of a log that hold the batches of a selection's offsets and times, by its indexes.

1. A segment is left out if its name, the next one's, or its time index says that it holds nothing wanted.
2. In the first one, reading begins at the last index entry before the range. A time index is only believed if its
   entry names a batch that is there; a log without indexes is read from its start.
3. Reading ends after `_SLACK_BYTES` of batches at or beyond the range's end. Timestamps may be out of order, so no
   single late one ends it.

What is left out is not checked for damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seglog.log.places import Place, SegmentPlaces
from seglog.scan.listing import SegmentFiles
from seglog.scan.log_walk import Gap, LogWalk, WalkedEntries
from seglog.scan.segment_scan import CHUNK_BYTES
from seglog.scan.selection import Selection
from seglog.storage.filesystem import FileSystem

_SLACK_BYTES = 512 << 10
_CHUNK_BYTES = 256 << 10


@dataclass(slots=True)
class Reading:
    """How far reading a partition for a selection has come, in the order of its files. `few`: it may end long before
    the range does. `passed` are the bytes of good batches beyond the range's end that followed the last wanted one.
    """

    selection: Selection
    few: bool = False
    passed: int = 0

    @property
    def takes_all(self) -> bool:
        """True if it goes through all files in any case."""
        return not (self.few or self.selection.begins or self.selection.ends)

    @property
    def over(self) -> bool:
        """True if nothing more is read."""
        return self.passed > _SLACK_BYTES

    def steps(self, walk: Iterable[WalkedEntries | Gap]) -> Iterator[WalkedEntries | Gap]:
        """Yields the steps of a walk until it is over."""
        for step in walk:
            yield step
            if isinstance(step, WalkedEntries) and self.selection.ends:
                self.read(step.batches[step.valid])
                if self.over:
                    return

    def read(self, good: np.ndarray) -> None:
        """Counts good batches (BATCH rows) that were read."""
        wanted = np.flatnonzero(~self.selection.ended(good))
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
        is_short = self.reading.selection.ends or self.reading.few
        chunk = _CHUNK_BYTES if is_short else CHUNK_BYTES
        walk = LogWalk(fs, path, self.start, chunk_bytes=chunk, fresh=fresh, expected=self.expected)
        return self.reading.steps(walk)


def stretch_of(fs: FileSystem, segment: SegmentFiles, following: int | None, reading: Reading) -> Stretch:
    """Returns the part of a segment to read. `following` is the next one's base offset, None for the last one."""
    selection, last_offset = reading.selection, None if following is None else following - 1
    if reading.over or not selection.reaches(segment.base_offset, last_offset):
        return Stretch(reading, segment.size)
    if not selection.begins and not selection.ends:
        return Stretch(reading)
    try:
        return _stretch(SegmentPlaces.of(fs, segment), following, reading)
    except OSError:
        return Stretch(reading)  # reading the log raises that


def _stretch(places: SegmentPlaces, following: int | None, reading: Reading) -> Stretch:
    selection, begin = reading.selection, Place()
    if selection.first_offset is not None:
        begin = places.start(selection.first_offset)
    if selection.first_timestamp is not None:
        largest = None if following is None else places.largest_timestamp()
        if largest is not None and largest < selection.first_timestamp:  # as retention judges
            return Stretch(reading, places.size)
        begin = max(begin, places.start_of_time(selection.first_timestamp), key=lambda place: place.position)
    expected = places.size
    if selection.ends:
        expected = min(expected, places.expected_end(selection.end_offset, selection.end_timestamp) + _SLACK_BYTES)
    is_known = selection.ends and expected > begin.position
    return Stretch(reading, begin.position, begin.base_offset, expected if is_known else None)
