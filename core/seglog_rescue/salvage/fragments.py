"""Finds runs of adjacent batches on a disk, and batches cut in two because their file is.

A file system keeps a file in extents: pieces of whole blocks that may lie anywhere. A log on a disk therefore consists
of *fragments*: adjacent batches with ascending offsets, in one extent. Steps:

1. Adjacent batches of one source belong to one fragment if their offsets follow exactly, or, after compaction, if
   magic, codec, kind of producer and time agree as well.
2. Half a batch may follow a fragment, with its other half before another fragment. The header holds the batch's size
   and last offset: the other fragment begins with the offset after it, and at the same place in a block at which the
   whole batch would end. The checksum over both halves decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.format.decoder import checksums_match, scan_batches
from seglog.scan.segment_scan import entry_row
from seglog.storage.filesystem import File, FileSystem
from seglog_rescue.salvage.carve import found_rows

SECTOR_BYTES = 512  # no file system has smaller blocks
_BLOCK_BYTES = 4096
_BLOCK_SIZES = (SECTOR_BYTES, 1024, 2048, _BLOCK_BYTES)
_UNCHECKED_BYTES = 16  # no checksum covers offset, size and, in batches, the epoch
_MAX_CUT_BYTES = 8 << 20  # the largest batch to look for in two halves
_MAX_TRIED_BYTES = 64 << 20  # checksummed for one pair of halves
MAX_GAP = 1000  # offsets that compaction removed between two batches; a larger gap needs more evidence
_DISORDER_MS = 60_000


@dataclass(frozen=True, slots=True)
class Fragment:
    """`rows` (FOUND) of one source, in order. `cut` is the header (layout.BATCH) of an incomplete batch right after
    them."""

    rows: np.ndarray
    cut: np.ndarray | None = None

    @property
    def first_offset(self) -> int:
        return int(self.rows["first_offset"][0])

    @property
    def next_offset(self) -> int:
        """The offset after its last batch, including a cut one."""
        last = self.rows["last_offset"][-1] if self.cut is None else self.cut["last_offset"][0]
        return int(last) + 1

    @property
    def position(self) -> int:
        return int(self.rows["position"][0])

    @property
    def end(self) -> int:
        """The byte after its last whole batch."""
        return int(self.rows["position"][-1]) + int(self.rows["size"][-1])

    def may_continue_at(self, position: int, block_bytes: int) -> bool:
        """True if the next batch may begin there: extents are whole blocks, and a new segment begins with one.

        `block_bytes` is 0 if the source shows no blocks.
        """
        if self.cut is not None:
            return (position - int(self.cut["size"][0]) - self.end) % (block_bytes or SECTOR_BYTES) == 0
        return not block_bytes or position % block_bytes == 0 or (position - self.end) % block_bytes == 0


@dataclass(frozen=True, slots=True)
class Join:
    """Fragment `after` continues `before`: one batch, `row` (FOUND), lies partly in each."""

    before: int
    after: int
    row: np.ndarray


def fragments_of(found: np.ndarray) -> list[Fragment]:
    """Splits FOUND rows, ordered by source and position, into fragments."""
    if not len(found):
        return []
    cuts = np.flatnonzero(~_together(found[:-1], found[1:])) + 1
    return [Fragment(part) for part in np.split(found, cuts)]


def _together(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Marks the rows of `one` that share a fragment with the next row, in `other` (step 1)."""
    adjacent = (one["source"] == other["source"]) & (one["position"] + one["size"] == other["position"])
    gap = other["first_offset"] - one["last_offset"] - 1
    unaligned = other["position"] % SECTOR_BYTES != 0
    kind = layout.CODEC_MASK | layout.TIMESTAMP_TYPE_MASK
    alike = (
        (one["magic"] == other["magic"])
        & (one["attributes"] & kind == other["attributes"] & kind)
        & ((one["producer_id"] >= 0) == (other["producer_id"] >= 0))
        & (other["max_timestamp"] >= one["base_timestamp"] - _DISORDER_MS)
    )
    exact = (gap == 0) & (unaligned | alike)
    compacted = (gap > 0) & (gap <= MAX_GAP) & unaligned & alike
    same: np.ndarray = adjacent & (other["leader_epoch"] >= one["leader_epoch"]) & (exact | compacted)
    return same


def with_sure_offsets(found: np.ndarray) -> np.ndarray:
    """Returns FOUND rows, ordered by source and position, without those of unsure offset.

    No checksum covers a batch's offset and epoch. If these bytes cross the end of a sector, they may be another file's,
    unless an adjacent batch has matching offsets.
    """
    start, end = found["position"], found["position"] + _UNCHECKED_BYTES - 1
    crosses = start // SECTOR_BYTES != end // SECTOR_BYTES
    gap = found["first_offset"][1:] - found["last_offset"][:-1] - 1
    agrees = (
        (found["source"][1:] == found["source"][:-1])
        & (found["position"][:-1] + found["size"][:-1] == found["position"][1:])
        & (gap >= 0)
        & (gap <= MAX_GAP)
        & (found["leader_epoch"][1:] == found["leader_epoch"][:-1])
    )
    crosses[1:] &= ~agrees
    crosses[:-1] &= ~agrees
    sure: np.ndarray = found[~crosses]
    return sure


def with_cuts(fs: FileSystem, path: Path, fragments: list[Fragment]) -> list[Fragment]:
    """Returns the fragments of one source with the cut batches after them."""
    found = []
    with fs.open(path, "r") as file:
        for fragment in fragments:
            cut = entry_row(file, fragment.end, fragment.end + layout.INT32_MAX)
            follows = cut is not None and int(cut["last_offset"][0]) >= fragment.next_offset
            found.append(Fragment(fragment.rows, cut) if follows else fragment)
    return found


def joins_of(fs: FileSystem, path: Path, fragments: list[Fragment]) -> Iterator[Join]:
    """Yields the pairs of fragments of one source that a batch in two halves joins (step 2)."""
    starts: dict[int, list[int]] = {}
    for number, fragment in enumerate(fragments):
        starts.setdefault(fragment.first_offset, []).append(number)
    with fs.open(path, "r") as file:
        for number, before in enumerate(fragments):
            for other in starts.get(before.next_offset, ()) if before.cut is not None else ():
                row = _joined(file, before, fragments[other]) if other != number else None
                if row is not None:
                    yield Join(number, other, row)
                    break


def block_bytes_of(joins: list[Join]) -> int:
    """Returns the size of the blocks at whose ends batches are cut; 0 if none is cut."""
    cuts = [int(join.row["second_position"][0]) for join in joins]
    return max((size for size in _BLOCK_SIZES if not any(cut % size for cut in cuts)), default=0) if cuts else 0


def _joined(file: File, before: Fragment, after: Fragment) -> np.ndarray | None:
    """Returns the batch that is cut after `before` and ends where `after` begins, None if no checksum fits."""
    assert before.cut is not None
    size = int(before.cut["size"][0])
    if size > _MAX_CUT_BYTES or not before.may_continue_at(after.position, SECTOR_BYTES):
        return None
    start = max(0, after.position - size)
    head, tail = file.read_at(before.end, size), file.read_at(start, after.position - start).rjust(size, b"\0")
    tried = 0
    for step in (_BLOCK_BYTES, SECTOR_BYTES):
        for first_size in range(step - before.end % step, size, step):
            if not layout.ATTRIBUTES_OFFSET <= first_size <= len(head):
                continue  # a checksum that lies in the other half says nothing about this one
            if tried > _MAX_TRIED_BYTES:
                return None
            tried += size
            data = np.frombuffer(head[:first_size] + tail[first_size:], dtype=np.uint8)
            scan = scan_batches(data, 0, size, before.end)
            if len(scan.batches) != 1 or scan.consumed != size:
                return None  # not even the header is whole
            if checksums_match(data, scan.batches, before.end)[0]:
                return _row_of(scan.batches, before, first_size, after.position - size + first_size)
    return None


def _row_of(batch: np.ndarray, before: Fragment, first_size: int, second_position: int) -> np.ndarray | None:
    """Returns the FOUND row of a batch in two halves; None if its offsets are not above those before it."""
    end = int(before.rows["last_offset"][-1])
    first = batch["base_offset"] if batch["magic"][0] == 2 else np.array([end + 1], dtype=np.int64)
    row = found_rows(batch, first, int(before.rows["source"][0]))
    row["first_size"], row["second_position"] = first_size, second_position
    return row if len(row) and first[0] > end else None
