"""What the log directories of a cluster say themselves: whose they are, which partitions they hold, how far these go.

1. `meta.properties` says which cluster, broker and directory it is; each partition's `partition.metadata` the topic id.
2. How far a log goes is read from its last segment: of a directory that was stopped in order from the headers at its
   end, else the whole segment with its checksums, as a broker that recovers it sees it.
3. Producer ids come from snapshots, from these last segments, and from `__transaction_state`: a new cluster must not
   hand them out again.

Everything is only read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import numpy as np

from seglog.configuration.cluster_metadata import METADATA_PARTITION
from seglog.errors import CorruptionError, LockedError, NotALogError
from seglog.evidence.coordinator_replay import OFFSETS_TOPIC
from seglog.evidence.transactions import TRANSACTION_TOPIC, read_coordinators
from seglog.format import filenames
from seglog.format.checkpoint import (
    MetaProperties,
    parse_leader_epochs,
    parse_meta_properties,
    parse_partition_metadata,
)
from seglog.format.filenames import PartitionState
from seglog.format.index_entries import decode_offset_index, used_entries
from seglog.format.producer_snapshot import decode_snapshot
from seglog.log.checkpoints import OffsetCheckpoint
from seglog.model import TopicPartition
from seglog.progress import BytesRead
from seglog.scan.listing import (
    LogDirectoryListing,
    PartitionDirectory,
    PartitionListing,
    SegmentFiles,
    list_log_directory,
    list_partition,
)
from seglog.scan.segment_scan import SegmentScan
from seglog.scan.view import require_no_run
from seglog.storage.filesystem import FileSystem
from seglog.storage.lock import holder_of

INTERNAL_TOPICS = (OFFSETS_TOPIC, TRANSACTION_TOPIC)

_SMALL_FILE = 1 << 20
_MOST_INDEX_BYTES = 64 << 20
_MOST_SNAPSHOT_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class FoundReplica:
    """A partition's directory. `topic_id` is None where `partition.metadata` does not say it. `last_epoch` is the
    newest leader epoch that its log or its checkpoint has (-1: none), `log_end` the offset after its last record.
    """

    directory: Path
    partition: TopicPartition
    topic_id: UUID | None
    last_epoch: int
    log_end: int


@dataclass(slots=True)
class FoundDirectory:
    """A log directory. `meta` is None where `meta.properties` is missing or cannot be read, `meta_problem` says why.

    `last_producer_id` is the highest one that was found, -1 for none. `compacted` are the topics that a broker has
    compacted there. `left_out` are directories that are no live partition, and why; `notes` sentences for an operator.
    """

    path: Path
    meta: MetaProperties | None
    meta_problem: str = ""
    replicas: list[FoundReplica] = field(default_factory=list)
    last_producer_id: int = -1
    compacted: set[str] = field(default_factory=set)
    left_out: list[tuple[Path, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_directory(fs: FileSystem, path: Path, progress: BytesRead) -> FoundDirectory:
    """Reads a log directory. LockedError while a broker runs on it, RefusedError where a run that changes it is
    unfinished, NotALogError where there is none."""
    holder = holder_of(path)
    if holder is not None:
        raise LockedError(path, holder.pid, holder.describe())
    require_no_run(fs, path)
    listing = list_log_directory(fs, path)
    found = _identified(fs, path, listing)
    for partition in listing.partitions:
        if partition.is_cluster_metadata:
            continue
        if partition.state is not PartitionState.LIVE:
            found.left_out.append((partition.path, _ASIDE[partition.state]))
            continue
        found.replicas.append(_read_replica(fs, partition, found, listing.clean_shutdown, progress))
    for stranger in (*listing.strangers, *listing.misnamed):
        found.left_out.append((stranger, "not a partition; a broker does not start beside it"))
    found.compacted = _compacted(fs, found, listing)
    _take_coordinators(fs, found)
    if not found.replicas and found.meta is None and fs.status(path / METADATA_PARTITION) is None:
        raise NotALogError(path, "neither a partition nor a metadata log is there")
    return found


_ASIDE = {
    PartitionState.STRAY: "a broker had set it aside; seglog restore makes it a partition again",
    PartitionState.DELETED: "its topic was deleted; seglog restore makes it a partition again",
    PartitionState.FUTURE: "the copy of a partition that was being moved here; the partition itself is elsewhere",
}


def _identified(fs: FileSystem, path: Path, listing: LogDirectoryListing) -> FoundDirectory:
    if listing.meta_properties is None:
        return FoundDirectory(path, None, f"{filenames.META_PROPERTIES} is missing")
    try:
        meta = parse_meta_properties(fs.read_bytes(listing.meta_properties, _SMALL_FILE), listing.meta_properties)
    except CorruptionError as error:
        return FoundDirectory(path, None, str(error))
    if meta.node_id is None or meta.cluster_id is None:
        return FoundDirectory(path, None, f"{listing.meta_properties} names no cluster or no node")
    return FoundDirectory(path, meta)


def _read_replica(
    fs: FileSystem, partition: PartitionDirectory, found: FoundDirectory, clean: bool, progress: BytesRead
) -> FoundReplica:
    listing = list_partition(fs, partition.path)
    if listing.format == "0.7":
        found.notes.append(f"{partition.path} is a log of Kafka 0.7, beside which a broker begins an empty one")
    end, epoch = 0, _checkpointed_epoch(fs, listing, found)
    if listing.segments and listing.format == "kafka":
        last = listing.segments[-1]
        walked = _LastSegment(fs, last, whole=not clean, progress=progress)
        end, epoch = walked.end, max(epoch, walked.epoch)
        found.last_producer_id = max(found.last_producer_id, walked.producer_id)
    for snapshot in listing.snapshots[-1:]:
        found.last_producer_id = max(found.last_producer_id, _newest_producer(fs, snapshot.path, found))
    return FoundReplica(partition.path, partition.topic_partition, _topic_id(fs, listing, found), epoch, end)


def _topic_id(fs: FileSystem, listing: PartitionListing, found: FoundDirectory) -> UUID | None:
    if listing.partition_metadata is None:
        return None
    try:
        data = fs.read_bytes(listing.partition_metadata, _SMALL_FILE)
        return parse_partition_metadata(data, listing.partition_metadata).topic_id
    except CorruptionError as error:
        found.notes.append(str(error))
        return None


def _checkpointed_epoch(fs: FileSystem, listing: PartitionListing, found: FoundDirectory) -> int:
    path = listing.leader_epoch_checkpoint
    if path is None:
        return -1
    try:
        entries = parse_leader_epochs(fs.read_bytes(path, _MOST_INDEX_BYTES), path)
    except CorruptionError as error:
        found.notes.append(str(error))
        return -1
    return max((entry.epoch for entry in entries), default=-1)


def _newest_producer(fs: FileSystem, path: Path, found: FoundDirectory) -> int:
    try:
        entries = decode_snapshot(fs.read_bytes(path, _MOST_SNAPSHOT_BYTES), path)
    except CorruptionError as error:
        found.notes.append(str(error))
        return -1
    return max((_own_block(entry.producer_id) for entry in entries), default=-1)


class _LastSegment:
    """The end of a log: `end` is the offset after its last good batch, `epoch` and `producer_id` the newest in it.

    From the last index entry on, or `whole`: then checksums count, and what fails them ends the log.
    """

    def __init__(self, fs: FileSystem, segment: SegmentFiles, *, whole: bool, progress: BytesRead) -> None:
        self.end, self.epoch, self.producer_id = segment.base_offset, -1, -1
        start = 0 if whole else _last_indexed(fs, segment)
        if not self._walk(fs, segment, start, progress) and start:
            self._walk(fs, segment, 0, progress)

    def _walk(self, fs: FileSystem, segment: SegmentFiles, start: int, progress: BytesRead) -> bool:
        """False where no batch begins at `start`: the index leads astray."""
        seen = False
        for chunk in SegmentScan(fs, segment.log, start):
            valid = chunk.checksums_valid()
            good = len(valid) if valid.all() else int(np.argmin(valid))
            self._take(chunk.batches[:good])
            progress(chunk.size)
            seen = seen or good > 0
            if good < len(valid):
                break
        return seen

    def _take(self, rows: np.ndarray) -> None:
        if len(rows):
            self.end = max(self.end, int(rows["last_offset"][-1]) + 1)
            self.epoch = max(self.epoch, int(rows["leader_epoch"].max()))
            self.producer_id = max([self.producer_id, *map(_own_block, np.unique(rows["producer_id"]).tolist())])


def _own_block(producer_id: int) -> int:
    """Ids from 2^62 on are those of a transplant; no controller hands them out, and none can go on after them."""
    return producer_id if producer_id < 1 << 62 else -1


def _last_indexed(fs: FileSystem, segment: SegmentFiles) -> int:
    """The position of the last index entry that lies within the log, else 0."""
    status = None if segment.offset_index is None else fs.status(segment.offset_index)
    if segment.offset_index is None or status is None or status.size > _MOST_INDEX_BYTES:
        return 0
    rows = decode_offset_index(fs.read_bytes(segment.offset_index, _MOST_INDEX_BYTES), segment.base_offset)
    rows = rows[: used_entries(rows, segment.base_offset)]
    rows = rows[(rows["position"] > 0) & (rows["position"] < segment.size)]
    return int(rows["position"][-1]) if len(rows) else 0


def _compacted(fs: FileSystem, found: FoundDirectory, listing: LogDirectoryListing) -> set[str]:
    path = listing.checkpoints.get(filenames.CLEANER_OFFSET_CHECKPOINT)
    if path is None:
        return set()
    offsets = OffsetCheckpoint(fs, path, tolerant=True).offsets
    here = {replica.partition.topic for replica in found.replicas}
    return {key.topic for key, offset in offsets.items() if key.topic in here and offset > 0}


def _take_coordinators(fs: FileSystem, found: FoundDirectory) -> None:
    known = read_coordinators(fs, found.path)
    if known:
        found.last_producer_id = max([found.last_producer_id, *map(_own_block, known)])


def live_replicas(directories: list[FoundDirectory]) -> Iterator[tuple[FoundDirectory, FoundReplica]]:
    """Every replica with the directory that holds it."""
    return ((directory, replica) for directory in directories for replica in directory.replicas)
