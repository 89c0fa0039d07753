"""Partitions that checkpoints or the controller name, but that are not in the broker's log directories.

A starting broker creates an empty log for a missing partition, and serves it. A partition that the controller has
deleted or given to other brokers is not reported. Without the controller's log the checkpoints are trusted, because a
broker always writes them with all its partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seglog.format import filenames
from seglog.format.filenames import PartitionState
from seglog.model import TopicPartition
from seglog.scan.listing import LogDirectoryListing, list_partition
from seglog.verification.codes import Severity
from seglog.verification.surroundings import Surroundings


@dataclass(frozen=True, slots=True)
class AbsentPartition:
    """A partition that the log directory `path` should hold.

    It held the offsets `first_offset` to `last_offset`. They are None, and `severity` is INFO, if nothing shows that it
    held any; `severity` is WARNING if only committed offsets show it.
    """

    path: Path
    topic_partition: TopicPartition
    message: str
    first_offset: int | None = None
    last_offset: int | None = None
    severity: Severity = Severity.INFO


def absent_partitions(directories: Sequence[tuple[LogDirectoryListing, Surroundings]]) -> Iterator[AbsentPartition]:
    """Yields the partitions missing from directories of one broker. The broker may have further directories, so only
    partitions that belong in one of these are reported. Raises OSError.
    """
    present = {
        p.topic_partition
        for listing, around in directories
        for p in listing.partitions
        if p.state is PartitionState.LIVE
        # an empty future copy does not stand for its partition
        or (p.state is PartitionState.FUTURE and list_partition(around.fs, p.path).size > 0)
    }
    metadata = next((m for _, around in directories if (m := around.metadata) is not None and m.knows_topics), None)
    node_id = next((around.node_id for _, around in directories if around.node_id is not None), None)
    for listing, around in directories:
        leaving = {p.topic_partition for p in listing.partitions if not p.state.is_served}
        expected = set(around.named)
        if metadata is not None and node_id is not None and (own := around.directory_id) is not None:
            assigned = metadata.assigned_to(node_id)
            expected |= {each for each, _, found in assigned if found.directory_of(node_id) == own}
        for key in sorted(expected - present - leaving):
            if metadata is None or node_id is None:
                yield _absent(around, key, "the checkpoints name it")
            else:
                assignment = metadata.assignment(metadata.topic_ids.get(key.topic, ""), key.partition)
                if assignment is not None and node_id in assignment.replicas:
                    others = ", ".join(str(node) for node in assignment.replicas if node != node_id)
                    copies = f"brokers {others} have copies" if others else "no other broker has a copy"
                    yield _absent(around, key, f"the cluster's metadata puts it on this broker; {copies}")


def _absent(around: Surroundings, key: TopicPartition, reason: str) -> AbsentPartition:
    start = around.offset(filenames.LOG_START_OFFSET_CHECKPOINT, key) or 0
    names = {
        filenames.HIGH_WATERMARK_CHECKPOINT: "high watermark",
        filenames.RECOVERY_POINT_CHECKPOINT: "recovery point",
    }
    offsets = {what: offset for name, what in names.items() if (offset := around.offset(name, key)) is not None}
    severity = Severity.ERROR if max(offsets.values(), default=0) > start else Severity.WARNING
    committed = around.committed.get(key)
    if committed is not None:
        offsets[f"group {committed.group} has read up to"] = committed.offset
    reached = max(offsets.values(), default=0)
    message = f"there is no directory, but {reason}"
    if reached <= start:
        nothing_lost = around.broker_files and not around.damage
        return AbsentPartition(around.path, key, f"{message}; it held no records" if nothing_lost else message)
    reports = ", ".join(f"{what} {offset}" for what, offset in offsets.items())
    return AbsentPartition(around.path, key, f"{message} ({reports})", start, reached - 1, severity)
