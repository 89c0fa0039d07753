"""Partitions that ought to be in a broker's log directories and are not: named by checkpoints or by the controller.

A starting broker makes an empty log in the place of one that is missing, and serves it. What the controller has
given to other brokers, or deleted, is not missed; without its log a checkpoint is believed, as a broker writes it
anew with every partition that it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seglog.configuration.cluster_metadata import Assignment, ClusterMetadata
from seglog.evidence.findings import Severity
from seglog.evidence.surroundings import Surroundings
from seglog.format import filenames
from seglog.model import TopicPartition
from seglog.scan.listing import LogDirectoryListing


@dataclass(frozen=True, slots=True)
class AbsentPartition:
    """A partition that log directory `path` should hold. Offsets `first_offset` to `last_offset` were in it, None
    where nothing says that it held any. `severity` is INFO then, and WARNING where only readers say so.
    """

    path: Path
    topic_partition: TopicPartition
    message: str
    first_offset: int | None = None
    last_offset: int | None = None
    severity: Severity = Severity.INFO


def absent_partitions(directories: Sequence[tuple[LogDirectoryListing, Surroundings]]) -> Iterator[AbsentPartition]:
    """What is missing in the directories of one broker. Those that are not given may hold more: only what belongs in
    one of these is missed. Raises OSError.
    """
    there = {p.topic_partition for listing, _ in directories for p in listing.partitions if p.state.is_served}
    metadata = next((m for _, around in directories if (m := around.metadata) is not None and m.knows_topics), None)
    node_id = next((around.node_id for _, around in directories if around.node_id is not None), None)
    for listing, around in directories:
        leaving = {p.topic_partition for p in listing.partitions if not p.state.is_served}
        expected = set(around.named)
        if metadata is not None and node_id is not None:
            expected |= _assigned_here(metadata, node_id, around)
        for key in sorted(expected - there - leaving):
            if metadata is None or node_id is None:
                yield _absent(around, key, "the checkpoints name it")
            else:
                assignment = metadata.assignment(metadata.topic_ids.get(key.topic, ""), key.partition)
                if assignment is not None and node_id in assignment.replicas:
                    yield _absent(around, key, _wanted(assignment, node_id))


def _assigned_here(metadata: ClusterMetadata, node_id: int, around: Surroundings) -> set[TopicPartition]:
    """What the controller has put into this very directory."""
    own = around.directory_id
    if own is None:
        return set()
    return {key for key, _, found in metadata.assigned_to(node_id) if found.directory_of(node_id) == own}


def _wanted(assignment: Assignment, node_id: int) -> str:
    others = [str(node) for node in assignment.replicas if node != node_id]
    copies = f"; brokers {', '.join(others)} have copies" if others else "; no other broker has a copy"
    return f"the cluster's metadata has it on this broker{copies}"


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
        offsets[f"group {committed.group} up to"] = committed.offset
    reached = max(offsets.values(), default=0)
    if reached <= start:
        if around.broker_files and not around.damage:
            return AbsentPartition(around.path, key, f"there is no directory, but {reason}; it held no records")
        return AbsentPartition(around.path, key, f"there is no directory, but {reason}")
    told = ", ".join(f"{what} {offset}" for what, offset in offsets.items())
    return AbsentPartition(
        around.path, key, f"there is no directory, but {reason} ({told})", start, reached - 1, severity
    )
