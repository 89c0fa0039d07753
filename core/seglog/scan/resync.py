"""Finds the next good entry of a `.log` after damage.

The checksum does not cover an entry's size field. So after a wrong checksum either the bytes inside are damaged, or the
size is, and it swallowed the following entries. Steps:

1. Believe the size if a plausible entry begins right after it (or the file ends there), unless a chain of entries with
   right checksums lies inside and ends at that very position: then the size swallowed them.
2. Otherwise try every byte as the start of an entry; take the first one with a right checksum and an offset that the
   segment can hold.
3. Entries with other offsets count if they follow one another up to that very position: then they lie in the wrong
   file. Entries inside a damaged record do not end there, because something follows a record's value.

Work is bounded: a hostile file of plausible headers costs a fixed number of checksummed bytes for each byte searched;
when that is spent, larger candidates are skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seglog import layout
from seglog.format.checksum import byte_view
from seglog.format.decoder import checksums_match, scan_batches
from seglog.kernels.batches import WALK_COMPLETE, WALK_FULL
from seglog.kernels.crc32c import HARDWARE
from seglog.kernels.validate import find_entry, find_good_entry
from seglog.scan.listing import SegmentFiles
from seglog.scan.segment_scan import checksum_valid, entry_row
from seglog.storage.filesystem import File

_FIRST_WINDOW_BYTES = 64 << 10
_WINDOW_BYTES = 1 << 20
_INTERIOR_BYTES = 4 << 20  # larger damaged batches with a fitting size are not searched for swallowed ones
_MOST_RUNS = 128
_WORK_BYTES = 1 << 28
_WORK_PER_BYTE = 16


@dataclass(frozen=True, slots=True)
class PlausibleOffsets:
    """The offsets that a segment, or a part of one, can hold: from `least` to `most`, inclusive."""

    least: int = 0
    most: int = layout.INT64_MAX

    @classmethod
    def of_segment(cls, base_offset: int, following: int | None = None) -> PlausibleOffsets:
        """Returns the offsets of a segment that starts at `base_offset`, before the one that starts at `following`, if
        there is one: relative offsets have 31 bits, offsets 63.
        """
        most = layout.INT64_MAX if following is None else following - 1
        return cls(base_offset, min(base_offset + layout.INT32_MAX, most))

    @classmethod
    def of_number(cls, segments: Sequence[SegmentFiles], number: int) -> PlausibleOffsets:
        """Returns the offsets of the segment with that number among those of a log."""
        following = segments[number + 1].base_offset if number + 1 < len(segments) else None
        return cls.of_segment(segments[number].base_offset, following)


def entry_end(file: File, position: int, size: int, stop: int, offsets: PlausibleOffsets) -> int:
    """Returns where the damaged entry at `position` with declared `size` really ends: at a good entry or `stop`."""
    declared = position + size
    if declared <= stop and (declared == stop or _plausible_at(file, declared, stop, offsets)):
        if size <= _INTERIOR_BYTES:
            swallowed = _chain_inside(file, position, declared, offsets)
            if swallowed is not None:
                return swallowed
        return declared
    return next_entry(file, position + 1, stop, offsets)


def next_entry(file: File, position: int, stop: int, offsets: PlausibleOffsets) -> int:
    """Returns the first position from `position` on where an entry with a right checksum begins, or `stop`.

    Looks for entries with offsets in `offsets` first, for others only if there is none.
    """
    found = _search(file, position, stop, offsets)
    if found == stop and (offsets.least > 0 or offsets.most < layout.INT64_MAX):
        found = _search(file, position, stop, PlausibleOffsets())
    return found


def first_of_run(file: File, position: int, found: int, offsets: PlausibleOffsets) -> int:
    """Returns where a run of good entries from `position` on begins that ends at the entry at `found`; else `found`.

    `found` is the result of `next_entry` for `offsets`: the entries of the run have others.
    """
    if offsets == PlausibleOffsets():
        return found
    at = position
    for _ in range(_MOST_RUNS):
        at = end = _search(file, at, found, PlausibleOffsets(), _WORK_BYTES // _MOST_RUNS)
        while end < found and (row := entry_row(file, end, found)) is not None and checksum_valid(file, row[0]):
            end += int(row["size"][0])
        if end == found:
            return at
        at = end + 1
    return found


def _search(file: File, position: int, stop: int, offsets: PlausibleOffsets, work: int = _WORK_BYTES) -> int:
    window = np.empty(max(0, min(_FIRST_WINDOW_BYTES, stop - position)), dtype=np.uint8)
    while position < stop:
        filled = file.read_into(position, byte_view(window[: min(len(window), stop - position)]))
        beyond = stop - position - filled
        found, work = _search_window(file, position, window[:filled], stop, offsets, work)
        if found is not None:
            return found
        work += _WORK_PER_BYTE * filled
        if filled < layout.RECORD_BATCH_OVERHEAD or beyond == 0:
            return stop
        position += filled - layout.RECORD_BATCH_OVERHEAD + 1
        if len(window) < _WINDOW_BYTES:
            window = np.empty(_WINDOW_BYTES, dtype=np.uint8)
    return stop


def _search_window(
    file: File, position: int, window: np.ndarray, stop: int, offsets: PlausibleOffsets, work: int
) -> tuple[int | None, int]:
    """Returns (first good entry that begins in `window`, or None; work left). `window[0]` lies at `position`."""
    size, beyond, at = len(window), stop - position - len(window), 0
    while True:
        checked = False
        if HARDWARE:
            at, checked, work = find_good_entry(window, at, size, beyond, offsets.least, offsets.most, work)
        else:
            at = find_entry(window, at, size, beyond, offsets.least, offsets.most)
        if at < 0:
            return None, work
        if checked:
            return position + at, work
        row = entry_row(file, position + at, stop)
        if row is not None and int(row["size"][0]) <= work:
            work -= int(row["size"][0])
            if checksum_valid(file, row[0]):
                return position + at, work
        at += 1


def _plausible_at(file: File, position: int, stop: int, offsets: PlausibleOffsets) -> bool:
    head = np.zeros(layout.RECORD_BATCH_OVERHEAD, dtype=np.uint8)
    filled = file.read_into(position, byte_view(head[: min(len(head), stop - position)]))
    beyond = stop - position - filled
    return find_entry(head, 0, filled, beyond, offsets.least, offsets.most) == 0


def _chain_inside(file: File, position: int, declared: int, offsets: PlausibleOffsets) -> int | None:
    """Returns where a run of entries with right checksums in (`position`, `declared`) begins that ends with it."""
    data = np.frombuffer(file.read_at(position, declared - position), dtype=np.uint8)
    at = 1
    for _ in range(1000):
        at = find_entry(data, at, len(data), 0, offsets.least, offsets.most)
        if at < 0:
            return None
        found = scan_batches(data, at, len(data), position + at)
        whole = found.status in (WALK_COMPLETE, WALK_FULL) and found.consumed == len(data)
        if whole and checksums_match(data, found.batches, position).all():
            return position + at
        at += 1
    return None
