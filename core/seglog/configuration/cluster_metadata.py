"""Topics, partitions and configuration in the KRaft controller's log, `__cluster_metadata-0`.

This module reads TOPIC_RECORD, PARTITION_RECORD, PARTITION_CHANGE_RECORD, CONFIG_RECORD and REMOVE_TOPIC_RECORD, and
the levels of features in FEATURE_LEVEL_RECORD and REGISTER_BROKER_RECORD. `metadata_log` yields the records in order;
`inspect.metadata_image` reads all the others as well.

Kafka: ConfigurationsDelta, TopicsDelta, PartitionRegistration; generated messages ConfigRecord, TopicRecord,
PartitionRecord, PartitionChangeRecord, RemoveTopicRecord.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from seglog.configuration.feature_levels import METADATA_VERSION
from seglog.configuration.metadata_log import MetadataRecord, MetadataReplay
from seglog.format.filenames import CLUSTER_METADATA_TOPIC, topic_name_problem
from seglog.format.uuids import format_uuid
from seglog.format.wire import FramedRecord
from seglog.model import TopicPartition
from seglog.storage.filesystem import FileSystem

REGISTER_BROKER_RECORD = 0
TOPIC_RECORD = 2
PARTITION_RECORD = 3
CONFIG_RECORD = 4
PARTITION_CHANGE_RECORD = 5
REMOVE_TOPIC_RECORD = 9
FEATURE_LEVEL_RECORD = 12

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
GROUP_RESOURCE = 32
CLUSTER_DEFAULT = ""  # the name of the broker resource that all brokers inherit
METADATA_PARTITION = f"{CLUSTER_METADATA_TOPIC}-0"

_KINDS = (TOPIC_RECORD, CONFIG_RECORD, REMOVE_TOPIC_RECORD, REGISTER_BROKER_RECORD, FEATURE_LEVEL_RECORD)
_ASSIGNMENTS = (PARTITION_RECORD, PARTITION_CHANGE_RECORD)
_NO_LEADER_CHANGE = -2
# Kafka: DirectoryId.UNASSIGNED, LOST, MIGRATING
_NO_DIRECTORY = {None, *(format_uuid(UUID(int=number)) for number in range(3))}


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A configuration value, and the record that set it: its file and offset in the metadata log."""

    value: str
    path: Path
    offset: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """The controller's assignment of a partition: broker ids, and for each replica the id of its log directory.

    `directories` is empty if the controller's log has none (before metadata version 3.7). `leader` is -1 if there is
    no leader.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    directories: tuple[str, ...] = ()

    def directory_of(self, node_id: int) -> str | None:
        """Returns the id of the log directory on a broker, None if unknown."""
        named = dict(zip(self.replicas, self.directories, strict=False)).get(node_id)
        return None if named in _NO_DIRECTORY else named


@dataclass(slots=True)
class ClusterMetadata:
    """The topics, partitions and configuration in the controller's log.

    `topics` maps a topic to its own values by Kafka's key; `brokers` maps a broker id as text (CLUSTER_DEFAULT: all
    brokers) to its dynamic values, and `groups` a group to its own. `topic_ids` maps the names of existing topics to
    their ids, as Kafka writes them. `partitions` maps a topic id to the assignments of its partitions by number, if
    requested. `end_offset` is the offset after the last record applied; `problems` are messages about what could not be
    read, and `torn` is one about an end that is a part of a batch: nothing before it is missing. `levels` are those of
    the features, by name; `registered` the last metadata.version that a broker's own release knows, by its id.
    """

    directory: Path
    topics: dict[str, dict[str, StoredValue]] = field(default_factory=dict)
    brokers: dict[str, dict[str, StoredValue]] = field(default_factory=dict)
    groups: dict[str, dict[str, StoredValue]] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    partitions: dict[str, dict[int, Assignment]] = field(default_factory=dict)
    levels: dict[str, int] = field(default_factory=dict)
    registered: dict[int, int] = field(default_factory=dict)
    end_offset: int = 0
    problems: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)

    @property
    def knows_topics(self) -> bool:
        """True if it was read completely and names any topic; then topics it does not name do not exist."""
        return bool(self.topic_ids) and not self.problems

    def assignment(self, topic_id: str, partition: int) -> Assignment | None:
        """Returns the assignment of a partition, None if the partition does not exist."""
        return self.partitions.get(topic_id, {}).get(partition)

    def assigned_to(self, node_id: int) -> Iterator[tuple[TopicPartition, str, Assignment]]:
        """Yields the partitions that have a replica on a broker, with their topic's id."""
        for topic, topic_id in sorted(self.topic_ids.items()):
            for number, found in sorted(self.partitions.get(topic_id, {}).items()):
                if node_id in found.replicas:
                    yield TopicPartition(topic, number), topic_id, found

    def topic_values(self, topic: str) -> dict[str, StoredValue]:
        """Returns the topic's own values; empty if it has none."""
        return self.topics.get(topic, {})

    def broker_values(self, node_id: int | None = None) -> dict[str, StoredValue]:
        """Returns the dynamic values of one broker, or with None those that all brokers inherit."""
        return self.brokers.get(CLUSTER_DEFAULT if node_id is None else str(node_id), {})


def read_cluster_metadata(fs: FileSystem, log_directory: Path, *, assignments: bool = False) -> ClusterMetadata | None:
    """Reads the metadata log in `log_directory`. Returns None if there is none.

    `partitions` stays empty without `assignments`: in a large cluster those are most of the records. Nothing is created
    or locked. Damage and read errors are reported in `problems`, never raised.
    """
    directory = log_directory / METADATA_PARTITION
    status = fs.status(directory)
    if status is None or not status.is_directory:
        return None
    changes = MetadataChanges(ClusterMetadata(directory))
    replay = MetadataReplay(changes.apply, (*_KINDS, *_ASSIGNMENTS) if assignments else _KINDS)
    replay.read(fs, directory)
    changes.metadata.end_offset = replay.end_offset
    changes.metadata.problems = [*replay.problems, *changes.problems]
    changes.metadata.torn = replay.torn
    return changes.metadata


class MetadataChanges:
    """Applies the records of a replay to `metadata`; `problems` are messages about those that are left out."""

    def __init__(self, metadata: ClusterMetadata) -> None:
        self.metadata = metadata
        self.problems: list[str] = []

    def apply(self, record: FramedRecord, source: MetadataRecord) -> None:
        data = record.data
        if record.type == CONFIG_RECORD:
            self._configure(source, data)
        elif record.type == TOPIC_RECORD:
            wrong = topic_name_problem(data["name"])  # names of directories are made of it
            if wrong is None:
                self.metadata.topic_ids[data["name"]] = data["topicId"]
            else:
                self.problems.append(f"{source.path}: offset {source.offset}: {wrong}")
        elif record.type == PARTITION_RECORD:
            known = self.metadata.partitions.setdefault(data["topicId"], {})
            known[int(data["partitionId"])] = Assignment(
                tuple(data["replicas"]), tuple(data["isr"]), data["leader"], tuple(data.get("directories") or ())
            )
        elif record.type == PARTITION_CHANGE_RECORD:
            self._change_partition(data)
        elif record.type == FEATURE_LEVEL_RECORD:
            self.metadata.levels[data["name"]] = data["featureLevel"]
        elif record.type == REGISTER_BROKER_RECORD:
            levels = {feature["name"]: feature["maxSupportedVersion"] for feature in data["features"]}
            if METADATA_VERSION in levels:
                self.metadata.registered[data["brokerId"]] = levels[METADATA_VERSION]
        else:
            self._remove_topic(data["topicId"])

    def _change_partition(self, data: Mapping[str, Any]) -> None:
        """Applies a change; what it does not mention stays (Kafka: PartitionRegistration.merge)."""
        partitions = self.metadata.partitions.get(data["topicId"], {})
        before = partitions.get(int(data["partitionId"]))
        if before is None:
            return  # the topic is gone; the controller would refuse the record
        changed: dict[str, Any] = {}
        for name in ("replicas", "isr", "directories"):
            if data.get(name) is not None:
                changed[name] = tuple(data[name])
        if data.get("leader", _NO_LEADER_CHANGE) != _NO_LEADER_CHANGE:
            changed["leader"] = data["leader"]
        partitions[int(data["partitionId"])] = replace(before, **changed)

    def _configure(self, record: MetadataRecord, data: Mapping[str, Any]) -> None:
        """Sets a configuration value; null removes it."""
        known = self.metadata
        owners = {TOPIC_RESOURCE: known.topics, BROKER_RESOURCE: known.brokers, GROUP_RESOURCE: known.groups}
        values_of = owners.get(data["resourceType"])
        if values_of is None:
            return  # another kind of resource, which nothing here uses
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
