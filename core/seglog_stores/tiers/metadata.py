"""Folds the records of `__remote_log_metadata`: which segments were copied, and which are being deleted.

Kafka: RemoteLogMetadataCache, RemoteLogMetadataTransition. An update replaces the broker, time, custom metadata and
state of a segment that was added before. The topic's partitions are read like any other log, past damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from seglog.errors import NotALogError
from seglog.format.checkpoint import EpochEntry
from seglog.format.wire import WireError
from seglog.model import TopicPartition
from seglog.scan.listing import TargetKind, list_log_directory, resolve_path
from seglog.scan.log_walk import Gap, WalkedEntries, walk_view
from seglog.scan.view import PartitionView
from seglog.storage.filesystem import FileSystem
from seglog.units import count_is, count_text
from seglog_stores.formats.remote_metadata import RemotePartitionState, RemoteSegmentState, decode_remote_metadata
from seglog_stores.formats.tier_manifest import RemoteSegment
from seglog_stores.tiers.recognition import TierPlace
from seglog_stores.tiers.segments import Problem, Remark, TierSegment

REMOTE_TOPIC = "__remote_log_metadata"

_PROBLEMS_SHOWN = 8
_DELETING = (RemoteSegmentState.DELETE_SEGMENT_STARTED, RemoteSegmentState.DELETE_SEGMENT_FINISHED)


@dataclass(frozen=True, slots=True)
class RemoteCopy:
    """The copy of a segment, by the last record about it. `size` is the log's size in bytes."""

    segment: RemoteSegment
    state: RemoteSegmentState
    size: int
    custom: bytes | None

    @property
    def is_readable(self) -> bool:
        """True if a broker would read it."""
        return self.state is RemoteSegmentState.COPY_SEGMENT_FINISHED


@dataclass(slots=True)
class RemoteLogs:
    """The folded records: copies by topic id and partition, then by segment id, and the partitions being deleted.

    `problems` are the first messages about what could not be read; `unreadable` counts all.
    """

    copies: dict[tuple[str, int], dict[str, RemoteCopy]] = field(default_factory=dict)
    deleted: dict[tuple[str, int], RemotePartitionState] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    unreadable: int = 0

    def take(self, value: bytes | None, where: str) -> None:
        """Applies the next record; `where` is for messages."""
        try:
            record = decode_remote_metadata(value)
            if record.type == 0:
                self._added(record.data)
            elif record.type == 1:
                self._updated(record.data)
            elif record.type == 2:
                key = _partition_key(record.data["topicIdPartition"])
                self.deleted[key] = RemotePartitionState(record.data["remotePartitionDeleteState"])
        except (WireError, ValueError) as error:
            self.report(f"{where}: {error}")

    def report(self, problem: str) -> None:
        """Adds a message about something that could not be read."""
        self.unreadable += 1
        if self.unreadable <= _PROBLEMS_SHOWN:
            self.problems.append(problem)

    def of(self, place: TierPlace) -> Mapping[str, RemoteCopy]:
        """Returns the copies of a partition by segment id: those of its topic id, or if unknown, of its name."""
        number = place.topic_partition.partition
        if place.topic_id is not None:
            return self.copies.get((place.topic_id, number), {})
        found: dict[str, RemoteCopy] = {}
        for copies in self.copies.values():
            found.update((k, one) for k, one in copies.items() if one.segment.topic_partition == place.topic_partition)
        return found

    def only(self, place: TierPlace) -> RemoteLogs:
        """Returns the part that `of` may need for a place."""
        number = place.topic_partition.partition
        keys = [key for key in self.copies if key[1] == number and place.topic_id in (None, key[0])]
        states = {key: state for key, state in self.deleted.items() if key[1] == number}
        return RemoteLogs({key: self.copies[key] for key in keys}, states)

    def _added(self, data: Mapping[str, Any]) -> None:
        segment = _segment(data)
        state = RemoteSegmentState(data["remoteLogSegmentState"])
        copies = self.copies.setdefault((segment.topic_id, segment.topic_partition.partition), {})
        copies[segment.segment_id] = RemoteCopy(segment, state, data["segmentSizeInBytes"], data["customMetadata"])

    def _updated(self, data: Mapping[str, Any]) -> None:
        found = data["remoteLogSegmentId"]
        copies = self.copies.get(_partition_key(found["topicIdPartition"]), {})
        known = copies.get(found["id"])
        if known is None:
            raise WireError(f"it updates segment {found['id']}, which no earlier record adds")
        state, custom = RemoteSegmentState(data["remoteLogSegmentState"]), data["customMetadata"]
        broker, stamp = data["brokerId"], data["eventTimestampMs"]
        segment = replace(known.segment, broker_id=broker, event_timestamp_ms=stamp)
        copies[found["id"]] = RemoteCopy(segment, state, known.size, custom)


def read_remote_logs(fs: FileSystem, paths: Sequence[Path]) -> RemoteLogs:
    """Reads the partitions of `__remote_log_metadata` at `paths`, which are partition or log directories.

    Raises NotALogError for a log directory without such a partition.
    """
    logs = RemoteLogs()
    for directory in _metadata_partitions(fs, paths):
        with PartitionView(fs, directory) as view:
            for segment, step in walk_view(view):
                if not (isinstance(step, Gap) and step.at_end and view.is_written(segment)):
                    _take(logs, step, segment.log)
    return logs


def checked_against(
    metadata: RemoteLogs, place: TierPlace, segments: Iterable[TierSegment], ids: set[str]
) -> tuple[list[TierSegment], list[Remark]]:
    """Returns the segments that a broker would read, and remarks on the others: objects without metadata, metadata
    without objects, incomplete and deleted copies. `ids` are those of all objects.
    """
    copies, readable, remarks = metadata.of(place), list[TierSegment](), list[Remark]()
    partition = str(place.topic_partition)
    for segment in segments:
        copy = copies.get(segment.segment_id)
        if copy is not None and copy.is_readable:
            end, epochs = copy.segment.end_offset, copy.segment.epochs
            readable.append(
                replace(segment, end_offset=end, epochs=epochs, event_timestamp_ms=copy.segment.event_timestamp_ms)
            )
            continue
        problem = Problem.ORPHAN_OBJECT if copy is None else Problem.INCOMPLETE_UPLOAD
        why = "the metadata does not have it" if copy is None else f"its state is {copy.state.name}"
        if copy is not None and copy.state in _DELETING:
            problem = Problem.DELETED
        message = f"the segment at offset {segment.start_offset} ({segment.path}) is left out: {why}"
        remarks.append(Remark(problem, partition, message, segment.start_offset, segment.end_offset, segment.path))
    for segment_id, copy in copies.items():
        if copy.is_readable and segment_id not in ids:
            first, last = copy.segment.start_offset, copy.segment.end_offset
            message = f"the metadata has offsets {first} to {last} in segment {segment_id}, which has no objects here"
            remarks.append(Remark(Problem.MISSING_OBJECT, partition, message, first, last))
    state = None if place.topic_id is None else metadata.deleted.get((place.topic_id, place.topic_partition.partition))
    if state is not None:
        remarks.append(Remark(Problem.DELETED, partition, f"the partition is being deleted: {state.name}"))
    return readable, remarks


def _metadata_partitions(fs: FileSystem, paths: Sequence[Path]) -> list[Path]:
    found = []
    for path in paths:
        target = resolve_path(fs, path)
        if target.kind is not TargetKind.LOG_DIRECTORY:
            found.append(target.directory)
            continue
        here = [one.path for one in list_log_directory(fs, path).live if one.topic_partition.topic == REMOTE_TOPIC]
        if not here:
            raise NotALogError(path, f"it has no partition of {REMOTE_TOPIC}")
        found += here
    return found


def _take(logs: RemoteLogs, step: WalkedEntries | Gap, path: Path) -> None:
    if isinstance(step, Gap):
        logs.report(f"{path}: position {step.position}: {count_is(step.length, 'byte')} not a batch")
        return
    for row in step.batches[~step.valid]:
        logs.report(f"{path}: position {int(row['position'])}: the checksum of the batch is wrong")
    for records in step.records(step.batches[step.valid]):
        for i in range(len(records)):
            logs.take(records.value(i), f"{path}: offset {int(records.rows['offset'][i])}")


def _partition_key(data: Mapping[str, Any]) -> tuple[str, int]:
    return data["id"], data["partition"]


def _segment(data: Mapping[str, Any]) -> RemoteSegment:
    found = data["remoteLogSegmentId"]
    partition = found["topicIdPartition"]
    start, end = data["startOffset"], data["endOffset"]
    epochs = sorted(EpochEntry(one["leaderEpoch"], one["offset"]) for one in data["segmentLeaderEpochs"])
    if start < 0 or end < start or not epochs:
        raise WireError(
            f"segment {found['id']} has offsets {start} to {end} and {count_text(len(epochs), 'leader epoch')}"
        )
    return RemoteSegment(
        TopicPartition(partition["name"], partition["partition"]),
        partition["id"],
        found["id"],
        start,
        end,
        data["maxTimestampMs"],
        data["brokerId"],
        data["eventTimestampMs"],
        tuple(epochs),
    )
