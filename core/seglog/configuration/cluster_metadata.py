"""What the KRaft controller wrote of topics and brokers: `__cluster_metadata-0` of a log directory.

1. The newest complete snapshot (`<offset>-<epoch>.checkpoint`) is replayed, then the log from its offset on.
2. Of the metadata records these matter: TOPIC_RECORD, PARTITION_RECORD, PARTITION_CHANGE_RECORD, CONFIG_RECORD,
   REMOVE_TOPIC_RECORD, and the markers of metadata transactions (KIP-868), which hold records back until they end or
   drop them on abort.
3. A batch that is damaged, or offsets that are missing, end the replay, and `problems` says so: what came before still
   counts, but what it does not say may have been said later.

Kafka: MetadataLoader, ConfigurationsDelta, TopicsDelta, PartitionRegistration; generated messages ConfigRecord,
TopicRecord, PartitionRecord, PartitionChangeRecord, RemoveTopicRecord, as `format.coordinator` reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

from seglog import layout
from seglog.format.columns import Records
from seglog.format.coordinator import decode_metadata_record
from seglog.format.filenames import CLUSTER_METADATA_TOPIC
from seglog.format.uuids import format_uuid
from seglog.format.wire import FRAME_VERSION, WireError
from seglog.model import TopicPartition
from seglog.scan.listing import SegmentFiles
from seglog.scan.segment_scan import Chunk, EndReason, SegmentScan
from seglog.scan.view import PartitionView
from seglog.storage.filesystem import FileSystem

TOPIC_RECORD = 2
PARTITION_RECORD = 3
CONFIG_RECORD = 4
PARTITION_CHANGE_RECORD = 5
REMOVE_TOPIC_RECORD = 9
BEGIN_TRANSACTION_RECORD = 23
END_TRANSACTION_RECORD = 24
ABORT_TRANSACTION_RECORD = 25

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
CLUSTER_DEFAULT = ""  # the name of the broker resource that every broker inherits

_KINDS = (
    TOPIC_RECORD,
    CONFIG_RECORD,
    REMOVE_TOPIC_RECORD,
    BEGIN_TRANSACTION_RECORD,
    END_TRANSACTION_RECORD,
    ABORT_TRANSACTION_RECORD,
)
_ASSIGNMENTS = (PARTITION_RECORD, PARTITION_CHANGE_RECORD)
_NO_LEADER_CHANGE = -2
# Kafka: DirectoryId.UNASSIGNED, LOST, MIGRATING
_NO_DIRECTORY = {None, *(format_uuid(UUID(int=number)) for number in range(3))}

_SNAPSHOT = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A configuration value, and the record that set it: a file and an offset in the metadata log."""

    value: str
    path: Path
    offset: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where the controller wants a partition: brokers by id, and beside each replica the id of its log directory.

    `directories` is empty where the controller's log knows none (before metadata version 3.7); `leader` is -1
    without one.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    directories: tuple[str, ...] = ()

    def directory_of(self, node_id: int) -> str | None:
        """The id of the log directory on a broker; None where nothing says it."""
        named = dict(zip(self.replicas, self.directories, strict=False)).get(node_id)
        return None if named in _NO_DIRECTORY else named


@dataclass(slots=True)
class ClusterMetadata:
    """What the controller's log says of topics, their partitions and configuration.

    `topics` maps a topic to its own values by Kafka's key, `brokers` a broker id as text (CLUSTER_DEFAULT:
    all brokers) to its dynamic values. `topic_ids` maps names of existing topics to their ids, as Kafka writes them;
    `partitions` an id to the assignments of the topic's partitions, by number, if these were asked for.
    `end_offset` is the offset after the last record taken, `problems` are sentences about what could not be
    read.
    """

    directory: Path
    topics: dict[str, dict[str, StoredValue]] = field(default_factory=dict)
    brokers: dict[str, dict[str, StoredValue]] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    partitions: dict[str, dict[int, Assignment]] = field(default_factory=dict)
    end_offset: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def knows_topics(self) -> bool:
        """Whether it was read whole and names any topic: then what it does not name does not exist."""
        return bool(self.topic_ids) and not self.problems

    def assignment(self, topic_id: str, partition: int) -> Assignment | None:
        """Where a partition belongs; None for one that does not exist."""
        return self.partitions.get(topic_id, {}).get(partition)

    def assigned_to(self, node_id: int) -> Iterator[tuple[TopicPartition, str, Assignment]]:
        """The partitions that have a replica on a broker, with their topic's id."""
        for topic, topic_id in sorted(self.topic_ids.items()):
            for number, found in sorted(self.partitions.get(topic_id, {}).items()):
                if node_id in found.replicas:
                    yield TopicPartition(topic, number), topic_id, found

    def topic_values(self, topic: str) -> dict[str, StoredValue]:
        """The topic's own values; empty when it has none."""
        return self.topics.get(topic, {})

    def broker_values(self, node_id: int | None = None) -> dict[str, StoredValue]:
        """Dynamic values of one broker, or with None those that all brokers inherit."""
        return self.brokers.get(CLUSTER_DEFAULT if node_id is None else str(node_id), {})


@dataclass(frozen=True, slots=True)
class _MetadataRecord:
    kind: int
    value: bytes
    offset: int
    path: Path


def read_cluster_metadata(fs: FileSystem, log_directory: Path, *, assignments: bool = False) -> ClusterMetadata | None:
    """What `log_directory`'s own metadata log says; None when it has no such log.

    `partitions` stays empty without `assignments`: a large cluster has many more of these than of all other records.
    Nothing is created or locked. Damage, and what the operating system does not let read, is told in `problems`, never
    raised.
    """
    directory = log_directory / f"{CLUSTER_METADATA_TOPIC}-0"
    status = fs.status(directory)
    if status is None or not status.is_directory:
        return None
    metadata = ClusterMetadata(directory)
    try:
        _replay(fs, metadata, (*_KINDS, *_ASSIGNMENTS) if assignments else _KINDS)
    except OSError as error:
        reason = error.strerror or str(error)
        metadata.problems.append(f"{error.filename or directory}: {reason}; what follows was not read")
    return metadata


def _replay(fs: FileSystem, metadata: ClusterMetadata, kinds: Sequence[int]) -> None:
    replay = _Replay(metadata, kinds)
    with PartitionView(fs, metadata.directory) as view:
        snapshot = _newest_snapshot(view.fs, metadata.directory)
        if snapshot is not None:
            path, offset = snapshot
            replay.read(view.fs, path, 0)
            metadata.end_offset = offset
        start = metadata.end_offset
        segments = view.listing.segments
        for segment, following in zip(segments, (*segments[1:], None)[: len(segments)], strict=True):
            if following is not None and following.base_offset <= start:
                continue
            growing = view.is_written(segment)
            if not (replay.follows(segment) and replay.read(view.fs, segment.log, start, growing)):
                break


def _newest_snapshot(fs: FileSystem, directory: Path) -> tuple[Path, int] | None:
    """The newest finished snapshot and the offset it stands for (`.part` files are unfinished)."""
    found = [(match[1], match[2], name) for name in fs.list(directory) if (match := _SNAPSHOT.fullmatch(name))]
    if not found:
        return None
    offset, _, name = max(found)
    return directory / name, int(offset)


class _Replay:
    """Applies metadata records in order; holds those of an open transaction back."""

    def __init__(self, metadata: ClusterMetadata, kinds: Sequence[int]) -> None:
        self.metadata, self._kinds = metadata, kinds
        self._held: list[_MetadataRecord] | None = None

    def read(self, fs: FileSystem, path: Path, start: int, growing: bool = False) -> bool:
        """Replays the records of `path` from offset `start` on; False where damage ended it.

        A `growing` one may end within a batch, which a controller is writing.
        """
        scan = SegmentScan(fs, path)
        for chunk in scan:
            valid = chunk.checksums_valid()
            for record in self._records(chunk, valid, start):
                self._take(record)
            if not self._whole(chunk, valid):
                return False
        torn = growing and scan.end is not None and scan.end.reason is EndReason.TRAILING
        if scan.end is not None and scan.end.reason is not EndReason.COMPLETE and not torn:
            self._problem(path, scan.end.position, scan.end.reason.value)
            return False
        return True

    def follows(self, segment: SegmentFiles) -> bool:
        """False, and a problem noted, when offsets before the segment are missing: a metadata log has no gaps."""
        if segment.base_offset <= self.metadata.end_offset:
            return True
        missing = f"offsets {self.metadata.end_offset} to {segment.base_offset - 1} are missing before it"
        self._problem(segment.log, 0, missing)
        return False

    def _whole(self, chunk: Chunk, valid: np.ndarray) -> bool:
        """False, and a problem noted, when a batch of the chunk fails its checksum."""
        if valid.all():
            return True
        position = int(chunk.batches["position"][np.argmin(valid)])
        self._problem(chunk.path, position, "the batch fails its checksum")
        return False

    def _records(self, chunk: Chunk, valid: np.ndarray, start: int) -> Iterator[_MetadataRecord]:
        good = len(valid) if valid.all() else int(np.argmin(valid))
        batches = chunk.batches[:good]
        if good:
            self.metadata.end_offset = max(self.metadata.end_offset, int(batches["last_offset"][-1]) + 1)
        data_batches = batches[(batches["attributes"] & layout.CONTROL_MASK) == 0]
        for records in chunk.records(data_batches):
            if records.status.any() and not records.rows_before:
                position = int(records.batches["position"][np.argmax(records.status != 0)])
                self._problem(chunk.path, position, "the records of the batch cannot be decoded")
            yield from _of_interest(records, chunk.path, start, self._kinds)

    def _take(self, record: _MetadataRecord) -> None:
        if record.kind == BEGIN_TRANSACTION_RECORD:
            self._held = []
        elif record.kind == ABORT_TRANSACTION_RECORD:
            self._held = None
        elif record.kind == END_TRANSACTION_RECORD:
            held, self._held = self._held or [], None
            for each in held:
                self._apply(each)
        elif self._held is not None:
            self._held.append(record)
        else:
            self._apply(record)

    def _apply(self, record: _MetadataRecord) -> None:
        try:
            data = decode_metadata_record(record.value).data
        except WireError as error:
            self.metadata.problems.append(f"{record.path}: offset {record.offset}: {error}")
            return
        if record.kind == CONFIG_RECORD:
            self._configure(record, data)
        elif record.kind == TOPIC_RECORD:
            self.metadata.topic_ids[data["name"]] = data["topicId"]
        elif record.kind == PARTITION_RECORD:
            known = self.metadata.partitions.setdefault(data["topicId"], {})
            known[int(data["partitionId"])] = Assignment(
                tuple(data["replicas"]), tuple(data["isr"]), data["leader"], tuple(data.get("directories") or ())
            )
        elif record.kind == PARTITION_CHANGE_RECORD:
            self._change_partition(data)
        else:
            self._remove_topic(data["topicId"])

    def _change_partition(self, data: Mapping[str, Any]) -> None:
        """What a change does not mention stays (Kafka: PartitionRegistration.merge)."""
        partitions = self.metadata.partitions.get(data["topicId"], {})
        before = partitions.get(int(data["partitionId"]))
        if before is None:
            return  # of a topic that is gone: the controller would refuse the record
        changed: dict[str, Any] = {}
        for name in ("replicas", "isr", "directories"):
            if data.get(name) is not None:
                changed[name] = tuple(data[name])
        if data.get("leader", _NO_LEADER_CHANGE) != _NO_LEADER_CHANGE:
            changed["leader"] = data["leader"]
        partitions[int(data["partitionId"])] = replace(before, **changed)

    def _configure(self, record: _MetadataRecord, data: Mapping[str, Any]) -> None:
        """A null value takes the key back."""
        owners = {TOPIC_RESOURCE: self.metadata.topics, BROKER_RESOURCE: self.metadata.brokers}
        values_of = owners.get(data["resourceType"])
        if values_of is None:
            return  # another kind of resource: nothing here asks for it
        values = values_of.setdefault(data["resourceName"], {})
        if data["value"] is None:
            values.pop(data["name"], None)
        else:
            values[data["name"]] = StoredValue(data["value"], record.path, record.offset)

    def _remove_topic(self, topic_id: str) -> None:
        for name in [name for name, known in self.metadata.topic_ids.items() if known == topic_id]:
            del self.metadata.topic_ids[name]
            self.metadata.topics.pop(name, None)
        self.metadata.partitions.pop(topic_id, None)

    def _problem(self, path: Path, position: int, reason: str) -> None:
        self.metadata.problems.append(f"{path}: position {position}: {reason}; what follows was not read")


def _of_interest(records: Records, path: Path, start: int, kinds: Sequence[int]) -> Iterator[_MetadataRecord]:
    """The records of these kinds, from offset `start` on; api keys below 128 take one byte."""
    rows, arena = records.rows, records.arena
    long_enough = rows["value_size"] >= 3
    at = np.where(long_enough, rows["value_position"], 0).astype(np.int64)
    wanted = long_enough & (rows["offset"] >= start)
    if len(arena):
        wanted &= (arena[at] == FRAME_VERSION) & np.isin(arena[np.minimum(at + 1, len(arena) - 1)], kinds)
    for i in np.flatnonzero(wanted).tolist():
        value = records.value(i) or b""
        yield _MetadataRecord(value[1], value, int(rows["offset"][i]), path)
