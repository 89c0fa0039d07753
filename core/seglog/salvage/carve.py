"""Finding good batches in any bytes: segments, leftovers, images of disks.

`carve_log` reads a file that is or was a `.log`: batches follow each other, and what is no batch is passed over.
`carve_image` believes in no beginning: every byte is tried, by header and checksum, so that batches are found in
raw images, after foreign data and at any alignment. Both give references to batches, never their bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.evidence.segment_survey import judged_batches
from seglog.format.filenames import parse_file_name
from seglog.progress import BytesRead
from seglog.scan.resync import PlausibleOffsets, next_entry
from seglog.storage.filesystem import FileSystem

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
"""A good batch: its offsets, where it lies in which source, and what tells whose it is.

A batch in two halves (`fragments`) has `first_size` bytes at `position` and the rest at `second_position`; of any other
batch both are 0. `outside` says that the file's name contradicts its offsets.
"""

_FEWEST = 3  # so many batches that ascend, where none goes on from another
_FARTHEST = 1 << 20  # offsets that a cleaner leaves out between two batches of a file, at most

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
    """The good batches of a log file as FOUND rows.

    Those `outside` have offsets that the file's name contradicts. Either the name is wrong or the offset, which no
    checksum covers: others must vouch for them (`vouched`).
    """
    name = parse_file_name(path.name)
    offsets = PlausibleOffsets() if name is None else PlausibleOffsets.of_segment(name.offset)
    for rows, first in judged_batches(fs, path, offsets, progress, anywhere=True):
        yield found_rows(rows, first, source, offsets)


def vouched(found: np.ndarray, names: Iterable[int]) -> np.ndarray:
    """FOUND rows without those `outside` whose offsets may be an accident; `names` are base offsets of log files.

    Offsets that go on from another batch's, or that begin or end at another file's name, are none, nor are those that
    ascend from batch to batch of one file (a cleaned log has gaps). The first and the last of these have one neighbour
    alone: they go where turning over one bit would join them to it. Of all others the time decides, which the checksum
    covers: between the batches on both sides of their offsets it is no accident.
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
    goes_on = rows["outside"][1:] & rows["outside"][:-1] & (rows["source"][1:] == rows["source"][:-1])
    goes_on &= rows["first_offset"][1:] > rows["last_offset"][:-1]
    for run in np.split(order, np.flatnonzero(~goes_on) + 1):
        if len(run) >= _FEWEST or (len(run) > 1 and joins[run].any()):
            sound[run[1:-1]] = True
            sound[run[0]] |= not _one_bit_off(found[run[0]], found[run[1]])
            sound[run[-1]] |= not _one_bit_off(found[run[-1]], found[run[-2]])
    doubtful = np.flatnonzero(~sound)
    sound[doubtful] = _are_timely(found[doubtful], found[sound])
    kept: np.ndarray = found[sound]
    return kept


def _are_timely(rows: np.ndarray, sound: np.ndarray) -> np.ndarray:
    """Which of `rows` lie in gaps between the offsets of `sound` ones whose times theirs are between.

    Before the first of these it need only be older. None goes after the last: there the log's end would move.
    """
    timely = np.zeros(len(rows), dtype=bool)
    order = np.argsort(sound["first_offset"], kind="stable")
    first, times = sound["first_offset"][order], sound["max_timestamp"][order]
    reached = np.maximum.accumulate(sound["last_offset"][order])
    at = np.searchsorted(first, rows["first_offset"])
    for i in np.flatnonzero(at < len(first)).tolist():
        place, time = int(at[i]), int(rows["max_timestamp"][i])
        since = int(times[place - 1]) if place else -1
        apart = place == 0 or int(reached[place - 1]) < int(rows["first_offset"][i])
        apart = apart and int(rows["last_offset"][i]) < int(first[place])
        distance = int(first[place]) - int(rows["last_offset"][i])
        timely[i] = apart and distance <= _FARTHEST and since <= time <= int(times[place]) and since < int(times[place])
        timely[i] &= place > 0 or time < int(times[place])
    return timely


def _one_bit_off(row: np.void, beside: np.void) -> bool:
    """Whether a batch would go on from the one beside it, or that one from it, but for one bit; or lies far away."""
    first, last = int(row["first_offset"]), int(row["last_offset"])
    if first > int(beside["last_offset"]):
        wrong, gap = first ^ (int(beside["last_offset"]) + 1), first - int(beside["last_offset"])
    else:
        wrong, gap = last ^ (int(beside["first_offset"]) - 1), int(beside["first_offset"]) - last
    return wrong.bit_count() == 1 or gap > _FARTHEST


def carve_image(fs: FileSystem, path: Path, source: int, progress: BytesRead | None = None) -> Iterator[np.ndarray]:
    """The good batches anywhere in a file as FOUND rows."""
    status = fs.status(path)
    size = 0 if status is None else status.size
    with fs.open(path, "r") as file:
        start = next_entry(file, 0, size, PlausibleOffsets())
    for rows, first in judged_batches(fs, path, PlausibleOffsets(), progress, start) if start < size else ():
        yield found_rows(rows, first, source)


def found_rows(rows: np.ndarray, first: np.ndarray, source: int, allowed: PlausibleOffsets | None = None) -> np.ndarray:
    """FOUND rows of batches (layout.BATCH) with their first offsets; `allowed`: those that fit the file's name."""
    # An offset near the largest there is comes from bytes that happen to look like a batch.
    sound = (first >= 0) & (rows["last_offset"] >= first) & (rows["last_offset"] < layout.INT64_MAX)
    found = np.zeros(int(np.count_nonzero(sound)), dtype=FOUND)
    for name in _COPIED:
        found[name] = rows[name][sound]
    found["first_offset"], found["source"] = first[sound], source
    if allowed is not None:
        found["outside"] = ((rows["base_offset"] < allowed.least) | (rows["last_offset"] > allowed.most))[sound]
    return found
