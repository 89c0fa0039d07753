"""Where a log ends, and in which leader epoch: what decides which of several replicas has every acknowledged record.

After a clean shutdown the headers at the log's end are enough, else the whole last segment is read with its checksums,
as a recovering broker does. `replicas.rule` chooses by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seglog.errors import CorruptionError
from seglog.format import filenames
from seglog.format.checkpoint import parse_leader_epochs
from seglog.log.checkpoints import OffsetCheckpoint
from seglog.model import TopicPartition
from seglog.progress import BytesRead
from seglog.scan.index_files import read_index
from seglog.scan.listing import PartitionListing, SegmentFiles
from seglog.scan.segment_scan import SegmentScan
from seglog.storage.filesystem import FileSystem
from seglog_rescue.replicas.lineage import Lineage
from seglog_rescue.replicas.rule import Candidate

MAX_INDEX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class LogEnd:
    """A log as far as its names, its epochs and its last segment tell. `producer_id` is the highest one in that
    segment, -1 for none; `high_watermark` is 0 if it is unknown."""

    lineage: Lineage
    high_watermark: int = 0
    producer_id: int = -1

    @property
    def epoch(self) -> int:
        """The newest leader epoch in the log or its checkpoint, -1 for none."""
        return self.lineage.newest_epoch

    @property
    def offset(self) -> int:
        """The offset after the last good record."""
        return self.lineage.end

    def candidate(self, node: int) -> Candidate:
        """Returns it as the rule compares it."""
        return Candidate(node, self.lineage, self.high_watermark)


class LogEnds:
    """Reads where logs end. The files that a log directory has for all its partitions are read once."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._around: dict[Path, tuple[bool, Mapping[TopicPartition, int]]] = {}

    def of(
        self,
        listing: PartitionListing,
        progress: BytesRead = lambda _size: None,
        on_damage: Callable[[CorruptionError], None] = lambda _error: None,
    ) -> LogEnd:
        """Reads the end of a partition; a damaged checkpoint of its epochs does not count."""
        fs, epochs = self._fs, dict[int, int]()
        if listing.leader_epoch_checkpoint is not None:
            try:
                data = fs.read_bytes(listing.leader_epoch_checkpoint, MAX_INDEX_BYTES)
                entries = parse_leader_epochs(data, listing.leader_epoch_checkpoint)
                epochs = {entry.epoch: entry.start_offset for entry in entries}
            except CorruptionError as error:
                on_damage(error)  # the batches have their epochs, too
        if not listing.segments or listing.format != "kafka":
            return LogEnd(Lineage.of(0, 0, epochs.items()))
        clean, watermarks = self._surroundings(listing.directory.parent)
        last = LastSegment(fs, listing.segments[-1], whole=not clean, progress=progress)
        lineage = Lineage.of(listing.segments[0].base_offset, last.end, {**last.epochs, **epochs}.items())
        key = listing.topic_partition
        return LogEnd(lineage, 0 if key is None else watermarks.get(key, 0), last.producer_id)

    def _surroundings(self, log_directory: Path) -> tuple[bool, Mapping[TopicPartition, int]]:
        """Returns whether the broker closed the logs of a directory, and their high watermarks."""
        if log_directory not in self._around:
            clean = self._fs.status(log_directory / filenames.CLEAN_SHUTDOWN_FILE) is not None
            path = log_directory / filenames.HIGH_WATERMARK_CHECKPOINT
            self._around[log_directory] = clean, OffsetCheckpoint(self._fs, path, tolerant=True).offsets
        return self._around[log_directory]


def highest_own(producer_ids: Iterable[int]) -> int:
    """Returns the highest id below 2^62, -1 for none: the ids above come from transplants, not from a controller."""
    return max((each for each in producer_ids if each < 1 << 62), default=-1)


class LastSegment:
    """The end of a log: `end` is the offset after its last good batch, `producer_id` the highest read. `epochs` are the
    leader epochs that were read, with the first offset of each.

    It reads from the last index entry on, or the `whole` segment. A batch that fails its checksum ends the log.
    """

    def __init__(self, fs: FileSystem, segment: SegmentFiles, *, whole: bool, progress: BytesRead) -> None:
        self.end, self.producer_id = segment.base_offset, -1
        self.epochs: dict[int, int] = {}
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
                for epoch, at in zip(*np.unique(rows["leader_epoch"], return_index=True), strict=True):
                    if epoch >= 0:
                        self.epochs.setdefault(int(epoch), int(rows["base_offset"][at]))
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
