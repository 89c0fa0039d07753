"""Joins the parts of one log: copies of a partition's directory, and segments that repairs took out of it.

1. Read every `.log` of every part: its good batches are referenced by place, all other bytes are damage.
2. Sort the batches by offset. Take a batch of several parts once if its bytes are equal; refuse parts that contradict
   each other, and name both places.
3. Find the missing offsets. Gaps within a part come from compaction and lose nothing; those between parts and at
   damage do.

Segments begin where they began in the parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.errors import NotALogError, RefusedError
from seglog.format.filenames import FileKind, segment_file_name
from seglog.progress import BytesRead
from seglog.scan.listing import PartitionListing
from seglog.storage.files import pieces
from seglog.storage.filesystem import FileSystem
from seglog_rescue.salvage.carve import FOUND, FoundBytes, carve_log

_LOG = FileKind.LOG.value
_IDENTITY = ["first_offset", "last_offset", "size", "crc"]


@dataclass(frozen=True, slots=True)
class PartFile:
    """A `.log` of a part. `base_offset` comes from its name; the tail of a cut file may begin with another offset."""

    path: Path
    base_offset: int
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class DamagedBytes:
    """Bytes of a part's file outside its good batches."""

    path: Path
    position: int
    size: int


@dataclass(frozen=True, slots=True)
class MissingOffsets:
    """Offsets that no part has, `first` to `last` inclusive, between the files `after` and `before`."""

    first: int
    last: int
    after: Path
    before: Path


@dataclass(slots=True)
class Joined:
    """A log joined from its parts: `rows` (FOUND, by offset), whose `source` counts `files`.

    `copies` is the number of batches dropped because another part has them, too.
    """

    files: list[PartFile]
    rows: np.ndarray
    copies: int = 0
    damage: list[DamagedBytes] = field(default_factory=list)
    missing: list[MissingOffsets] = field(default_factory=list)

    @property
    def log_start(self) -> int:
        """The first offset; the end of an empty log."""
        return int(self.rows["first_offset"][0]) if len(self.rows) else self.log_end

    @property
    def log_end(self) -> int:
        """The offset after the last one, at least the highest base offset: the last segment may be empty."""
        last = int(self.rows["last_offset"][-1]) + 1 if len(self.rows) else 0
        return max(last, max(one.base_offset for one in self.files))

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return int(self.rows["size"].sum(dtype=np.int64))


def files_of(listing: PartitionListing) -> list[PartFile]:
    """Returns the `.log` files of a partition's directory."""
    return [PartFile(one.log, one.base_offset, one.size, one.modified_ms) for one in listing.segments]


def join(fs: FileSystem, files: Sequence[PartFile], progress: BytesRead | None = None) -> Joined:
    """Joins the parts. Raises NotALogError if they hold no good batch, RefusedError if they contradict each other."""
    tables = [_table(fs, file, number, progress) for number, file in enumerate(files)]
    damage = [part for file, rows in zip(files, tables, strict=True) for part in _damage(file, rows)]
    table = np.concatenate(tables)
    if not len(table) and damage:
        raise NotALogError(damage[0].path, "it holds no good batch")
    order = np.lexsort((table["source"], table["first_offset"]))
    rows = _without_copies(fs, files, table[order])
    joined = Joined(list(files), rows, len(table) - len(rows), damage)
    joined.missing += _missing(joined)
    return joined


def write_segments(fs: FileSystem, joined: Joined, target: Path) -> None:
    """Writes the log's segments into `target`."""
    with FoundBytes(fs, [one.path for one in joined.files]) as batches:
        for base, rows in _segments(joined):
            with fs.open(target / segment_file_name(base), "create_new") as writer:
                position = 0
                for row in rows:
                    position = batches.copy(row, writer, position)
                writer.sync()


def keep_times(fs: FileSystem, joined: Joined, target: Path) -> None:
    """Gives the new `.log` files the times of the parts' files: messages of magic 0 and 1 are cleaned and deleted by
    them."""
    for base, rows in _segments(joined):
        numbers = np.unique(rows["source"]).tolist() or range(len(joined.files))
        newest = max(joined.files[number].modified_ms for number in numbers)
        fs.set_modified(target / segment_file_name(base), newest)


def is_written(fs: FileSystem, joined: Joined, target: Path) -> bool:
    """True if `target` holds the log's segments byte for byte, and no others."""
    found = fs.status(target)
    if found is None or not found.is_directory:
        return False
    wanted = {segment_file_name(base): rows for base, rows in _segments(joined)}
    sizes = {name: int(rows["size"].sum(dtype=np.int64)) for name, rows in wanted.items()}
    logs = {name: status.size for name, status in fs.entries(target) if name.endswith(_LOG)}
    return logs == sizes and all(_is_same(fs, joined, rows, target / name) for name, rows in wanted.items())


def _is_same(fs: FileSystem, joined: Joined, rows: np.ndarray, path: Path) -> bool:
    """True if a file, whose size is that of the rows, has their bytes."""
    position = 0
    with FoundBytes(fs, [one.path for one in joined.files]) as batches, fs.open(path, "r") as file:
        for row in rows:
            end = position + int(row["size"])
            if not _equal(batches.read(row), pieces(file, position, end)):
                return False
            position = end
    return True


def _equal(one: Iterator[bytes], other: Iterator[bytes]) -> bool:
    """True if the pieces are the same; a file that became shorter since it was listed has fewer."""
    return all(bytes(a) == bytes(b) for a, b in zip_longest(one, other, fillvalue=b""))


def _table(fs: FileSystem, file: PartFile, number: int, progress: BytesRead | None) -> np.ndarray:
    parts = [rows[~rows["outside"]] for rows in carve_log(fs, file.path, number, progress)]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=FOUND)


def _damage(file: PartFile, rows: np.ndarray) -> Iterator[DamagedBytes]:
    """Yields the bytes between good batches, and after the last."""
    rows = rows[np.argsort(rows["position"])]
    starts = [*rows["position"].tolist(), file.size]
    ends = [0, *(rows["position"] + rows["size"]).tolist()]
    for start, end in zip(starts, ends, strict=True):
        if start > end:
            yield DamagedBytes(file.path, end, start - end)


def _without_copies(fs: FileSystem, files: Sequence[PartFile], rows: np.ndarray) -> np.ndarray:
    """Drops copies. Raises RefusedError for batches that overlap and differ."""
    if not len(rows):
        return rows
    reached = np.maximum.accumulate(rows["last_offset"])[:-1]
    overlapping = np.flatnonzero(rows["first_offset"][1:] <= reached) + 1
    kept = np.ones(len(rows), dtype=bool)
    with FoundBytes(fs, [one.path for one in files]) as batches:
        for i in overlapping.tolist():
            other = i - 1
            while not kept[other]:
                other -= 1
            same_header = rows[_IDENTITY][i] == rows[_IDENTITY][other]
            if not same_header or not _equal(batches.read(rows[other]), batches.read(rows[i])):
                raise RefusedError(_contradiction(files, rows[other], rows[i]))
            kept[i] = False
    return rows[kept]


def _contradiction(files: Sequence[PartFile], one: np.void, other: np.void) -> str:
    places = [
        f"{files[int(row['source'])].path} (offsets {int(row['first_offset'])} to {int(row['last_offset'])} at position"
        f" {int(row['position'])})"
        for row in (one, other)
    ]
    return (
        f"{places[0]} and {places[1]} overlap but differ in their bytes: the parts belong to different logs (seglog"
        " diff compares them), or one was compacted; give the parts of one log"
    )


def _missing(joined: Joined) -> Iterator[MissingOffsets]:
    rows, files = joined.rows, joined.files
    for i in np.flatnonzero(rows["first_offset"][1:] > rows["last_offset"][:-1] + 1).tolist():
        left, right = files[int(rows["source"][i])].path, files[int(rows["source"][i + 1])].path
        after, before = int(rows["position"][i]), int(rows["position"][i + 1])
        damaged = any(
            (one.path == left and one.position > after and (left != right or one.position < before))
            or (one.path == right and left != right and one.position < before)
            for one in joined.damage
        )
        if damaged or left.parent != right.parent:
            yield MissingOffsets(int(rows["last_offset"][i]) + 1, int(rows["first_offset"][i + 1]) - 1, left, right)


def _segments(joined: Joined) -> Iterator[tuple[int, np.ndarray]]:
    """Yields the base offset and rows of each segment; a batch from another file begins a new one."""
    rows, files = joined.rows, joined.files
    begin, base, end = 0, -1, 0
    for i in range(len(rows)):
        named = files[int(rows["source"][i])].base_offset
        first, last = int(rows["first_offset"][i]), int(rows["last_offset"][i])
        turns = i == 0 or (rows["source"][i] != rows["source"][i - 1] and named > base)
        if turns or last - base > layout.INT32_MAX:
            if i:
                yield base, rows[begin:i]
            begin, base = i, named if named >= end and last - named <= layout.INT32_MAX else first
        end = last + 1
    if len(rows):
        yield base, rows[begin:]
    if joined.log_end > end or not len(rows):
        yield joined.log_end, rows[:0]
