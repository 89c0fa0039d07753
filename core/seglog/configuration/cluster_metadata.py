"""What the KRaft controller wrote of topics and brokers into `__cluster_metadata-0`.

Of the metadata records these matter here: TOPIC_RECORD, PARTITION_RECORD, PARTITION_CHANGE_RECORD, CONFIG_RECORD,
REMOVE_TOPIC_RECORD. `metadata_log` gives them in order; `inspect.metadata_image` takes all the others as well.

Kafka: ConfigurationsDelta, TopicsDelta, PartitionRegistration; generated messages ConfigRecord, TopicRecord,
PartitionRecord, PartitionChangeRecord, RemoveTopicRecord.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from seglog.configuration.metadata_log import MetadataRecord, MetadataReplay
from seglog.format.filenames import CLUSTER_METADATA_TOPIC
from seglog.format.uuids import format_uuid
from seglog.format.wire import FramedRecord
from seglog.model import TopicPartition
from seglog.storage.filesystem import FileSystem

TOPIC_RECORD = 2
PARTITION_RECORD = 3
CONFIG_RECORD = 4
PARTITION_CHANGE_RECORD = 5
REMOVE_TOPIC_RECORD = 9

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
CLUSTER_DEFAULT = ""  # the name of the broker resource that every broker inherits
METADATA_PARTITION = f"{CLUSTER_METADATA_TOPIC}-0"

_KINDS = (TOPIC_RECORD, CONFIG_RECORD, REMOVE_TOPIC_RECORD)
_ASSIGNMENTS = (PARTITION_RECORD, PARTITION_CHANGE_RECORD)
_NO_LEADER_CHANGE = -2
# Kafka: DirectoryId.UNASSIGNED, LOST, MIGRATING
_NO_DIRECTORY = {None, *(format_uuid(UUID(int=number)) for number in range(3))}


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

    `topics` maps a topic to its own values by Kafka's key, `brokers` a broker id as text (CLUSTER_DEFAULT: all brokers)
    to its dynamic values. `topic_ids` maps names of existing topics to their ids, as Kafka writes them; `partitions` an
    id to the assignments of the topic's partitions, by number, if these were asked for. `end_offset` is the offset
    after the last record taken, `problems` are sentences about what could not be read.
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


def read_cluster_metadata(fs: FileSystem, log_directory: Path, *, assignments: bool = False) -> ClusterMetadata | None:
    """What `log_directory`'s own metadata log says; None when it has no such log.

    `partitions` stays empty without `assignments`: a large cluster has many more of these than of all other records.
    Nothing is created or locked. Damage, and what the operating system does not let read, is reported in `problems`,
    never raised.
    """
    directory = log_directory / METADATA_PARTITION
    status = fs.status(directory)
    if status is None or not status.is_directory:
        return None
    changes = _Changes(ClusterMetadata(directory))
    replay = MetadataReplay(changes.apply, (*_KINDS, *_ASSIGNMENTS) if assignments else _KINDS)
    replay.read(fs, directory)
    changes.metadata.end_offset, changes.metadata.problems = replay.end_offset, replay.problems
    return changes.metadata


class _Changes:
    """Applies records to what is known so far."""

    def __init__(self, metadata: ClusterMetadata) -> None:
        self.metadata = metadata

    def apply(self, record: FramedRecord, source: MetadataRecord) -> None:
        data = record.data
        if record.type == CONFIG_RECORD:
            self._configure(source, data)
        elif record.type == TOPIC_RECORD:
            self.metadata.topic_ids[data["name"]] = data["topicId"]
        elif record.type == PARTITION_RECORD:
            known = self.metadata.partitions.setdefault(data["topicId"], {})
            known[int(data["partitionId"])] = Assignment(
                tuple(data["replicas"]), tuple(data["isr"]), data["leader"], tuple(data.get("directories") or ())
            )
        elif record.type == PARTITION_CHANGE_RECORD:
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

    def _configure(self, record: MetadataRecord, data: Mapping[str, Any]) -> None:
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
