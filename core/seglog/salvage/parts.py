"""Parts of one log, put together again: copies of a partition's directory, and what repairs took out of it.

1. Every `.log` of every part is read; its good batches are known by place, the rest is damage.
2. They are sorted by offset. What several parts have is taken once, if its bytes are equal; parts that contradict each
   other are refused with both places.
3. Offsets that are missing are distinguished: compaction leaves gaps within a part, which are no loss. Between parts,
   and at damage, they are.

Segments begin where they began in the parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.errors import NotALogError, RefusedError
from seglog.format.filenames import FileKind, segment_file_name
from seglog.progress import BytesRead
from seglog.salvage.carve import FOUND, carve_log
from seglog.scan.listing import PartitionListing
from seglog.storage.files import copy_range, pieces
from seglog.storage.filesystem import File, FileSystem

_OPEN_FILES = 64
_LOG = FileKind.LOG.value
_IDENTITY = ["first_offset", "last_offset", "size", "crc"]


@dataclass(frozen=True, slots=True)
class PartFile:
    """A `.log` of a part. `base_offset` is that of its name, which the tail of a file may not begin with."""

    path: Path
    base_offset: int
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a part's file that are not a good batch."""

    path: Path
    position: int
    size: int


@dataclass(frozen=True, slots=True)
class MissingOffsets:
    """Offsets that no part has, first and last included; `after` and `before` are the files on both sides."""

    first: int
    last: int
    after: Path
    before: Path


@dataclass(slots=True)
class Joined:
    """A log out of its parts: `rows` (FOUND, by offset) with `source` counting `files`.

    `copies` counts the batches that another part has, too.
    """

    files: list[PartFile]
    rows: np.ndarray
    copies: int = 0
    damage: list[Damage] = field(default_factory=list)
    missing: list[MissingOffsets] = field(default_factory=list)

    @property
    def log_start(self) -> int:
        """The first offset; of an empty log where it begins."""
        return int(self.rows["first_offset"][0]) if len(self.rows) else self.log_end

    @property
    def log_end(self) -> int:
        """The offset after the last one; an empty segment tells it, too."""
        last = int(self.rows["last_offset"][-1]) + 1 if len(self.rows) else 0
        return max(last, max(one.base_offset for one in self.files))

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return int(self.rows["size"].sum(dtype=np.int64))


def files_of(listing: PartitionListing) -> list[PartFile]:
    """The logs of a part that is a partition's directory."""
    return [PartFile(one.log, one.base_offset, one.size, one.modified_ms) for one in listing.segments]


def join(fs: FileSystem, files: Sequence[PartFile], progress: BytesRead | None = None) -> Joined:
    """Puts the parts together. NotALogError where nothing in them is good; RefusedError where they
    contradict each other."""
    tables = [_table(fs, one, number, progress) for number, one in enumerate(files)]
    damage = [each for one, rows in zip(files, tables, strict=True) for each in _damage(one, rows)]
    found = np.concatenate(tables)
    if not len(found) and damage:
        raise NotALogError(damage[0].path, "no good batch is in it")
    order = np.lexsort((found["source"], found["first_offset"]))
    rows, copies = _once(fs, files, found[order])
    joined = Joined(list(files), rows, copies, damage)
    joined.missing += _missing(joined)
    return joined


def write_segments(fs: FileSystem, joined: Joined, target: Path) -> None:
    """Writes the log's segments into `target`, with the times of their files."""
    files: dict[int, File] = {}
    try:
        for base, rows in _segments(joined):
            path = target / segment_file_name(base)
            with fs.open(path, "create_new") as writer:
                position = 0
                for row in rows:
                    source, start, size = int(row["source"]), int(row["position"]), int(row["size"])
                    copy_range(_opened(fs, joined, files, source), start, start + size, writer, position)
                    position += size
                writer.sync()
    finally:
        for file in files.values():
            file.close()


def keep_times(fs: FileSystem, joined: Joined, target: Path) -> None:
    """Gives the logs the times of the parts' files, by which messages of magic 0 and 1 are cleaned and deleted."""
    for base, rows in _segments(joined):
        numbers = np.unique(rows["source"]).tolist() or range(len(joined.files))
        newest = max(joined.files[number].modified_ms for number in numbers)
        fs.set_modified(target / segment_file_name(base), newest)


def is_written(fs: FileSystem, joined: Joined, target: Path) -> bool:
    """Whether `target` holds the log's segments byte for byte, and no others."""
    found = fs.status(target)
    if found is None or not found.is_directory:
        return False
    wanted = {segment_file_name(base): rows for base, rows in _segments(joined)}
    sizes = {name: int(rows["size"].sum(dtype=np.int64)) for name, rows in wanted.items()}
    logs = {name: status.size for name, status in fs.entries(target) if name.endswith(_LOG)}
    return logs == sizes and all(_is_same(fs, joined, rows, target / name) for name, rows in wanted.items())


def _is_same(fs: FileSystem, joined: Joined, rows: np.ndarray, path: Path) -> bool:
    """Whether a file, whose size is that of the rows, has their bytes."""
    files: dict[int, File] = {}
    try:
        with fs.open(path, "r") as there:
            position = 0
            for row in rows:
                source, start, size = int(row["source"]), int(row["position"]), int(row["size"])
                wanted = pieces(_opened(fs, joined, files, source), start, start + size)
                held = pieces(there, position, position + size)
                if not all(bytes(a) == bytes(b) for a, b in zip(wanted, held, strict=True)):
                    return False
                position += size
    finally:
        for file in files.values():
            file.close()
    return True


def _table(fs: FileSystem, file: PartFile, number: int, progress: BytesRead | None) -> np.ndarray:
    parts = [rows[~rows["outside"]] for rows in carve_log(fs, file.path, number, progress)]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=FOUND)


def _damage(file: PartFile, rows: np.ndarray) -> Iterator[Damage]:
    """What lies between good batches, or after the last."""
    rows = rows[np.argsort(rows["position"])]
    starts = [*rows["position"].tolist(), file.size]
    ends = [0, *(rows["position"] + rows["size"]).tolist()]
    for start, end in zip(starts, ends, strict=True):
        if start > end:
            yield Damage(file.path, end, start - end)


def _once(fs: FileSystem, files: Sequence[PartFile], rows: np.ndarray) -> tuple[np.ndarray, int]:
    """The rows without copies, and how many there were. RefusedError for batches that overlap and differ."""
    if not len(rows):
        return rows, 0
    before = np.maximum.accumulate(rows["last_offset"])[:-1]
    overlapping = np.flatnonzero(rows["first_offset"][1:] <= before) + 1
    kept = np.ones(len(rows), dtype=bool)
    for i in overlapping.tolist():
        other = i - 1
        while not kept[other]:
            other -= 1
        if rows[_IDENTITY][i] != rows[_IDENTITY][other] or not _equal(fs, files, rows[other], rows[i]):
            raise RefusedError(_contradiction(files, rows[other], rows[i]))
        kept[i] = False
    return rows[kept], len(overlapping)


def _equal(fs: FileSystem, files: Sequence[PartFile], one: np.void, other: np.void) -> bool:
    """Whether two batches are the same bytes."""
    streams = []
    with fs.open(files[int(one["source"])].path, "r") as left, fs.open(files[int(other["source"])].path, "r") as right:
        for file, row in ((left, one), (right, other)):
            start = int(row["position"])
            streams.append(pieces(file, start, start + int(row["size"])))
        return all(bytes(a) == bytes(b) for a, b in zip(*streams, strict=True))


def _contradiction(files: Sequence[PartFile], one: np.void, other: np.void) -> str:
    places = [
        f"{files[int(row['source'])].path} (offsets {int(row['first_offset'])} to {int(row['last_offset'])} at position"
        f" {int(row['position'])})"
        for row in (one, other)
    ]
    return (
        f"{places[0]} and {places[1]} are not the same bytes: the parts are of logs that differ (seglog diff shows"
        " how), or one was compacted; give those of one"
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
    """Base offset and rows of each segment: a new one begins with the first batch out of another file."""
    rows, files = joined.rows, joined.files
    begin, base, end = 0, -1, 0
    empty = rows[:0]
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
        yield joined.log_end, empty


def _opened(fs: FileSystem, joined: Joined, files: dict[int, File], source: int) -> File:
    if source not in files:
        if len(files) >= _OPEN_FILES:
            files.pop(next(iter(files))).close()
        files[source] = fs.open(joined.files[source].path, "r")
    return files[source]
