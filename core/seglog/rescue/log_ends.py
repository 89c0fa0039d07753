"""Where a log ends, and in which leader epoch: what decides which of several replicas has every acknowledged record.

After a clean shutdown the headers at the log's end are enough, else the whole last segment is read with its checksums,
as a recovering broker does. Kafka elects by the leader epoch first, then by the length.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seglog.errors import CorruptionError
from seglog.format import filenames
from seglog.format.checkpoint import EpochEntry, parse_leader_epochs
from seglog.progress import BytesRead
from seglog.scan.index_files import read_index
from seglog.scan.listing import SegmentFiles, list_partition
from seglog.scan.segment_scan import SegmentScan
from seglog.storage.filesystem import FileSystem

MAX_INDEX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, order=True)
class LogEnd:
    """The newest leader epoch in a log or its checkpoint (-1: none), and the offset after its last good record."""

    epoch: int
    offset: int


def end_of(fs: FileSystem, directory: Path, progress: BytesRead = lambda _size: None) -> LogEnd:
    """Reads the end of the partition in `directory`; a damaged checkpoint of its epochs does not count."""
    listing = list_partition(fs, directory)
    epoch, offset = -1, 0
    if listing.leader_epoch_checkpoint is not None:
        try:
            data = fs.read_bytes(listing.leader_epoch_checkpoint, MAX_INDEX_BYTES)
            epoch = newest_epoch(parse_leader_epochs(data, listing.leader_epoch_checkpoint))
        except CorruptionError:
            epoch = -1  # the batches have their epochs, too
    if listing.segments and listing.format == "kafka":
        clean = fs.status(directory.parent / filenames.CLEAN_SHUTDOWN_FILE) is not None
        last = LastSegment(fs, listing.segments[-1], whole=not clean, progress=progress)
        epoch, offset = max(epoch, last.epoch), last.end
    return LogEnd(epoch, offset)


def newest_epoch(entries: Iterable[EpochEntry]) -> int:
    """Returns the newest epoch of a checkpoint, -1 for none."""
    return max((entry.epoch for entry in entries), default=-1)


def highest_own(producer_ids: Iterable[int]) -> int:
    """Returns the highest id below 2^62, -1 for none: the ids above come from transplants, not from a controller."""
    return max((each for each in producer_ids if each < 1 << 62), default=-1)


class LastSegment:
    """The end of a log: `end` is the offset after its last good batch, `epoch` and `producer_id` the highest read.

    It reads from the last index entry on, or the `whole` segment. A batch that fails its checksum ends the log.
    """

    def __init__(self, fs: FileSystem, segment: SegmentFiles, *, whole: bool, progress: BytesRead) -> None:
        self.end, self.epoch, self.producer_id = segment.base_offset, -1, -1
        start = 0 if whole else _last_indexed(fs, segment)
        if not self._walk(fs, segment, start, progress) and start:
            self._walk(fs, segment, 0, progress)

    def _walk(self, fs: FileSystem, segment: SegmentFiles, start: int, progress: BytesRead) -> bool:
        """Returns False if no good batch begins at `start`: the index is wrong."""
        seen = False
        for chunk in SegmentScan(fs, segment.log, start):
            valid = chunk.checksums_valid()
            good = len(valid) if valid.all() else int(np.argmin(valid))
            rows = chunk.batches[:good]
            if good:
                seen = True
                self.end = max(self.end, int(rows["last_offset"][-1]) + 1)
                self.epoch = max(self.epoch, int(rows["leader_epoch"].max()))
                self.producer_id = max(self.producer_id, highest_own(np.unique(rows["producer_id"]).tolist()))
            progress(chunk.size)
            if good < len(valid):
                break
        return seen


def _last_indexed(fs: FileSystem, segment: SegmentFiles) -> int:
    """Returns the position of the last index entry within the log, else 0."""
    status = None if segment.offset_index is None else fs.status(segment.offset_index)
    if segment.offset_index is None or status is None or status.size > MAX_INDEX_BYTES:
        return 0
    rows = read_index(fs, segment.offset_index, segment.base_offset).rows
    rows = rows[(rows["position"] > 0) & (rows["position"] < segment.size)]
    return int(rows["position"][-1]) if len(rows) else 0
