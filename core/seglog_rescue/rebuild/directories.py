"""Reads a cluster's log directories: their owners, their partitions, and the ends of these.

1. `meta.properties` names the cluster, the broker and the directory; each `partition.metadata` holds the topic id.
2. The last segment tells where a log ends. After a clean shutdown the headers at its end are enough, else the whole
   segment is read with its checksums, as a recovering broker does.
3. Producer ids come from snapshots, these last segments, and `__transaction_state`: a new cluster must not hand them
   out again.

Everything is only read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from seglog.errors import CorruptionError, NotALogError
from seglog.format import filenames
from seglog.format.checkpoint import (
    MetaProperties,
    parse_meta_properties,
    parse_partition_metadata,
)
from seglog.format.filenames import PartitionState
from seglog.format.producer_snapshot import decode_snapshot
from seglog.log.checkpoints import OffsetCheckpoint
from seglog.model import TopicPartition
from seglog.progress import BytesRead
from seglog.scan.listing import (
    LogDirectoryListing,
    PartitionDirectory,
    list_log_directory,
    list_partition,
)
from seglog.scan.view import require_no_run
from seglog.storage.filesystem import FileSystem
from seglog.storage.lock import require_unlocked
from seglog.verification.transaction_coordinators import read_coordinators
from seglog_rescue.log_ends import LogEnd, LogEnds, highest_own

_SMALL_FILE = 1 << 20
_MAX_SNAPSHOT_BYTES = 256 << 20
_ASIDE = {
    PartitionState.STRAY: "a broker had set it aside; seglog restore makes it a partition again",
    PartitionState.DELETED: "its topic was deleted; seglog restore makes it a partition again",
    PartitionState.FUTURE: "the copy of a partition that was being moved here; the partition itself is elsewhere",
}
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class FoundReplica:
    """A partition's directory. `topic_id` is None without a readable `partition.metadata`."""

    directory: Path
    partition: TopicPartition
    topic_id: UUID | None
    end: LogEnd

    @property
    def last_epoch(self) -> int:
        """The newest leader epoch in its log or its checkpoint, -1 for none."""
        return self.end.epoch

    @property
    def log_end(self) -> int:
        """The offset after its last record."""
        return self.end.offset


@dataclass(slots=True)
class FoundDirectory:
    """A log directory. `meta` is None without a readable `meta.properties`; `meta_problem` then says why.

    `last_producer_id` is the highest id found, -1 for none. `compacted` are the topics that a broker has compacted
    there. `metadata_log` is the directory of its metadata log. `left_out` lists what is not a live partition,
    with reasons; `notes` are sentences for the operator.
    """

    path: Path
    meta: MetaProperties | None
    meta_problem: str = ""
    replicas: list[FoundReplica] = field(default_factory=list)
    last_producer_id: int = -1
    compacted: set[str] = field(default_factory=set)
    metadata_log: Path | None = None
    left_out: list[tuple[Path, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_directory(fs: FileSystem, path: Path, progress: BytesRead) -> FoundDirectory:
    """Reads a log directory. Raises LockedError while a broker runs on it, RefusedError if a run that changes it is
    unfinished, NotALogError if it is not a log directory."""
    require_unlocked(path)
    require_no_run(fs, path)
    listing = list_log_directory(fs, path)
    found, ends = _identified(fs, path, listing), LogEnds(fs)
    for partition in listing.partitions:
        if partition.is_cluster_metadata:
            found.metadata_log = partition.path
            continue
        if partition.state is not PartitionState.LIVE:
            found.left_out.append((partition.path, _ASIDE[partition.state]))
            continue
        found.replicas.append(_read_replica(fs, partition, found, ends, progress))
    for stranger in (*listing.strangers, *listing.misnamed):
        found.left_out.append((stranger, "not a partition; a broker does not start beside it"))
    found.compacted = _compacted(fs, found, listing)
    found.last_producer_id = max(found.last_producer_id, highest_own(read_coordinators(fs, path) or ()))
    if not found.replicas and found.meta is None and found.metadata_log is None:
        raise NotALogError(path, "it holds neither a partition nor a metadata log")
    return found


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
    fs: FileSystem, partition: PartitionDirectory, found: FoundDirectory, ends: LogEnds, progress: BytesRead
) -> FoundReplica:
    listing = list_partition(fs, partition.path)
    if listing.format == "0.7":
        found.notes.append(f"{partition.path} is a log of Kafka 0.7, beside which a broker begins an empty one")
    end = ends.of(listing, progress, lambda error: found.notes.append(str(error)))
    found.last_producer_id = max(found.last_producer_id, end.producer_id)
    for snapshot in listing.snapshots[-1:]:
        producers = _parsed(fs, snapshot.path, _MAX_SNAPSHOT_BYTES, decode_snapshot, found) or ()
        found.last_producer_id = max(found.last_producer_id, highest_own(entry.producer_id for entry in producers))
    metadata = _parsed(fs, listing.partition_metadata, _SMALL_FILE, parse_partition_metadata, found)
    topic_id = None if metadata is None else metadata.topic_id
    return FoundReplica(partition.path, partition.topic_partition, topic_id, end)


def _parsed(
    fs: FileSystem, path: Path | None, limit: int, parse: Callable[[bytes, Path], _T], found: FoundDirectory
) -> _T | None:
    """Parses a file of at most `limit` bytes; None if it is missing, or damaged, which is noted."""
    if path is None:
        return None
    try:
        return parse(fs.read_bytes(path, limit), path)
    except CorruptionError as error:
        found.notes.append(str(error))
        return None


def _compacted(fs: FileSystem, found: FoundDirectory, listing: LogDirectoryListing) -> set[str]:
    path = listing.checkpoints.get(filenames.CLEANER_OFFSET_CHECKPOINT)
    if path is None:
        return set()
    offsets = OffsetCheckpoint(fs, path, tolerant=True).offsets
    here = {replica.partition.topic for replica in found.replicas}
    return {key.topic for key, offset in offsets.items() if key.topic in here and offset > 0}
