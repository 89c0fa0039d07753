"""Finds good batches in any bytes: segments, leftovers, disk images.

`carve_log` reads a file that is or was a `.log`: batches follow each other, and it skips bytes that are not a batch.
`carve_image` assumes no structure: it tries every byte by header and checksum, and so finds batches in raw images,
after foreign data and at any alignment. Both return references to batches (FOUND rows), never their bytes;
`FoundBytes` reads these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np

from seglog import layout
from seglog.format.filenames import parse_file_name
from seglog.progress import BytesRead
from seglog.scan.resync import PlausibleOffsets, next_entry
from seglog.storage.files import copy_range, pieces
from seglog.storage.filesystem import File, FileSystem
from seglog.verification.segment_survey import batches_anywhere, judged_batches

FOUND = np.dtype(
    [
        ("first_offset", np.int64),
        ("last_offset", np.int64),
        ("position", np.int64),
        ("second_position", np.int64),
        ("base_timestamp", np.int64),
        ("max_timestamp", np.int64),
        ("producer_id", np.int64),
        ("crc", np.int64),
        ("size", np.int32),
        ("first_size", np.int32),
        ("leader_epoch", np.int32),
        ("base_sequence", np.int32),
        ("source", np.int32),
        ("producer_epoch", np.int16),
        ("attributes", np.uint8),
        ("magic", np.int8),
        ("outside", np.bool_),
    ]
)
"""A good batch: its offsets, its place in a source, and the header fields that tell logs apart.

A batch in two halves (`fragments`) has `first_size` bytes at `position` and the rest at `second_position`; both fields
are 0 for any other batch. `outside` is set if the file's name contradicts the batch's offsets.
"""

_OPEN_FILES = 64
_MIN_RUN = 3  # ascending batches that confirm each other, if none of them joins another batch
_MAX_GAP = 1 << 20  # the most offsets that cleaning removes between two batches of a file

_COPIED = (
    "last_offset",
    "position",
    "size",
    "crc",
    "magic",
    "attributes",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "leader_epoch",
)


def carve_log(fs: FileSystem, path: Path, source: int, progress: BytesRead | None) -> Iterator[np.ndarray]:
    """Yields the good batches of a log file as FOUND rows.

    The file's name contradicts the offsets of those marked `outside`, and says nothing about those that only the second
    walk finds (`batches_anywhere`). Either the name is wrong or the offset, which no checksum covers; `vouched` decides
    by other batches.
    """
    name = parse_file_name(path.name)
    offsets = PlausibleOffsets() if name is None else PlausibleOffsets.of_segment(name.offset)
    for rows, first, name_is_wrong in batches_anywhere(fs, path, offsets, progress):
        found = found_rows(rows, first, source, offsets)
        found["outside"] |= name_is_wrong
        yield found


def vouched(found: np.ndarray, names: Iterable[int]) -> np.ndarray:
    """Returns FOUND rows without the `outside` ones whose offsets may be wrong; `names` are base offsets of log files.

    Three kinds of evidence confirm an offset:

    - It follows another batch's offsets exactly, or begins or ends at a file's base offset.
    - Offsets ascend from batch to batch of one file (a cleaned log has gaps). The first and the last batch of such a
      run have only one neighbour; they are dropped if flipping one bit would join them to it.
    - The batch's time, which the checksum covers, lies between the times of the batches on both sides.

    A name that more batches contradict than fit says nothing. Then all batches of its file count as `outside`, because
    a broken offset may fit such a name.
    """
    if not found["outside"].any():
        return found
    bases = np.unique(np.fromiter(names, dtype=np.int64))
    begins = np.union1d(found["first_offset"], bases)
    ends = np.union1d(found["last_offset"], bases - 1)
    joins = np.isin(found["first_offset"] - 1, ends) | np.isin(found["last_offset"] + 1, begins)
    sound = ~found["outside"] | joins
    order = np.lexsort((found["position"], found["source"]))
    rows = found[order]
    ascends = rows["outside"][1:] & rows["outside"][:-1] & (rows["source"][1:] == rows["source"][:-1])
    ascends &= rows["first_offset"][1:] > rows["last_offset"][:-1]
    for run in np.split(order, np.flatnonzero(~ascends) + 1):
        if len(run) >= _MIN_RUN or (len(run) > 1 and joins[run].any()):
            sound[run[1:-1]] = True
            sound[run[0]] |= not _one_bit_off(found[run[0]], found[run[1]])
            sound[run[-1]] |= not _one_bit_off(found[run[-1]], found[run[-2]])
    doubtful = np.flatnonzero(~sound)
    sound[doubtful] = _are_timely(found[doubtful], found[sound])
    contradicts = np.bincount(found["source"], np.where(found["outside"], 1, -1))[found["source"]] > 0
    kept: np.ndarray = found[sound]
    kept["outside"] |= contradicts[sound]
    return kept


def _are_timely(rows: np.ndarray, sound: np.ndarray) -> np.ndarray:
    """Marks those of `rows` that lie in an offset gap of the `sound` rows, with a time between those of its two sides.

    Before the first sound row, being older is enough. After the last one nothing fits, as it would move the log end.
    """
    timely = np.zeros(len(rows), dtype=bool)
    order = np.argsort(sound["first_offset"], kind="stable")
    first, times = sound["first_offset"][order], sound["max_timestamp"][order]
    reached = np.maximum.accumulate(sound["last_offset"][order])
    at = np.searchsorted(first, rows["first_offset"])
    for i in np.flatnonzero(at < len(first)).tolist():
        after = int(at[i])
        time, next_time = int(rows["max_timestamp"][i]), int(times[after])
        distance = int(first[after]) - int(rows["last_offset"][i])
        if not 0 < distance <= _MAX_GAP:
            continue
        if after == 0:
            timely[i] = -1 <= time < next_time
        elif int(reached[after - 1]) < int(rows["first_offset"][i]):
            last_time = int(times[after - 1])
            timely[i] = last_time <= time <= next_time and last_time < next_time
    return timely


def _one_bit_off(row: np.void, neighbour: np.void) -> bool:
    """True if flipping one bit would make the offsets of the two batches adjacent, or if a gap too wide parts them."""
    first, last = int(row["first_offset"]), int(row["last_offset"])
    if first > int(neighbour["last_offset"]):
        wrong, gap = first ^ (int(neighbour["last_offset"]) + 1), first - int(neighbour["last_offset"])
    else:
        wrong, gap = last ^ (int(neighbour["first_offset"]) - 1), int(neighbour["first_offset"]) - last
    return wrong.bit_count() == 1 or gap > _MAX_GAP


def carve_image(fs: FileSystem, path: Path, source: int, progress: BytesRead | None = None) -> Iterator[np.ndarray]:
    """Yields the good batches anywhere in a file as FOUND rows."""
    status = fs.status(path)
    size = 0 if status is None else status.size
    with fs.open(path, "r") as file:
        start = next_entry(file, 0, size, PlausibleOffsets())
    for rows, first in judged_batches(fs, path, PlausibleOffsets(), progress, start) if start < size else ():
        yield found_rows(rows, first, source)


def found_rows(rows: np.ndarray, first: np.ndarray, source: int, allowed: PlausibleOffsets | None = None) -> np.ndarray:
    """Converts batches (layout.BATCH) and their first offsets to FOUND rows; `allowed` offsets fit the file's name."""
    # INT64_MAX as an offset comes from bytes that look like a batch by accident. A batch of over 2^31 offsets fits no
    # segment: it is a wrapper of magic 0 with a broken end, which no checksum covers.
    last = rows["last_offset"]
    sound = (first >= 0) & (last >= first) & (last < layout.INT64_MAX) & (last - first <= layout.INT32_MAX)
    found = np.zeros(int(np.count_nonzero(sound)), dtype=FOUND)
    for name in _COPIED:
        found[name] = rows[name][sound]
    found["first_offset"], found["source"] = first[sound], source
    if allowed is not None:
        found["outside"] = ((rows["base_offset"] < allowed.least) | (rows["last_offset"] > allowed.most))[sound]
    return found


class FoundBytes:
    """Reads the batches that FOUND rows refer to, `source` counting `paths`; keeps at most 64 files open."""

    def __init__(self, fs: FileSystem, paths: Sequence[Path]) -> None:
        self._fs, self._paths = fs, paths
        self._files: dict[int, File] = {}

    def __enter__(self) -> FoundBytes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()

    def read(self, row: np.void) -> Iterator[bytes]:
        """Yields the bytes of a batch in pieces."""
        for file, start, end in self._spans(row):
            yield from pieces(file, start, end)

    def copy(self, row: np.void, target: File, position: int) -> int:
        """Writes a batch to `target` at `position`; returns the position after it. Raises RefusedError if its file
        has become too short."""
        for file, start, end in self._spans(row):
            copy_range(file, start, end, target, position)
            position += end - start
        return position

    def _spans(self, row: np.void) -> Iterator[tuple[File, int, int]]:
        file = self._opened(int(row["source"]))
        size, first_size, position = int(row["size"]), int(row["first_size"]), int(row["position"])
        yield file, position, position + (first_size or size)
        if first_size:
            second = int(row["second_position"])
            yield file, second, second + size - first_size

    def _opened(self, source: int) -> File:
        file = self._files.pop(source, None)
        if file is None:
            if len(self._files) >= _OPEN_FILES:
                self._files.pop(next(iter(self._files))).close()  # the one not used for longest
            file = self._fs.open(self._paths[source], "r")
        self._files[source] = file
        return file
