"""What can still be read of a cluster's metadata: logs of controllers, snapshots, and what they were formatted with.

Records are kept as they are, the last word of each key: topics with their partitions, and everything else that a new
cluster takes as it was (features, configuration, quotas, ACLs, users with their credentials, tokens, producer ids).
Registrations of brokers and controllers are not kept: these register again. Of several voters the one that is
readable furthest counts.

Kafka: TopicsDelta, ConfigurationsDelta, FeaturesDelta, ClientQuotasDelta, AclsDelta, ScramDelta, DelegationTokenDelta,
PartitionRegistration.merge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seglog.configuration.cluster_metadata import METADATA_PARTITION
from seglog.configuration.metadata_log import MetadataRecord, MetadataReplay
from seglog.errors import NotALogError
from seglog.format.filenames import BOOTSTRAP_CHECKPOINT
from seglog.format.wire import FramedRecord
from seglog.storage.filesystem import FileSystem

TOPIC_RESOURCE = 2
_NO_CHANGE = -2  # of a leader
_Key = tuple[object, ...]

# Of each kind what distinguishes its records; the value of a record that takes another one back.
_KEYS: Mapping[str, tuple[str, ...]] = {
    "FEATURE_LEVEL_RECORD": ("name",),
    "CONFIG_RECORD": ("resourceType", "resourceName", "name"),
    "CLIENT_QUOTA_RECORD": ("entity", "key"),
    "ACCESS_CONTROL_ENTRY_RECORD": ("id",),
    "USER_SCRAM_CREDENTIAL_RECORD": ("name", "mechanism"),
    "DELEGATION_TOKEN_RECORD": ("tokenId",),
    "PRODUCER_IDS_RECORD": (),
}
_REMOVERS = {
    "REMOVE_ACCESS_CONTROL_ENTRY_RECORD": "ACCESS_CONTROL_ENTRY_RECORD",
    "REMOVE_USER_SCRAM_CREDENTIAL_RECORD": "USER_SCRAM_CREDENTIAL_RECORD",
    "REMOVE_DELEGATION_TOKEN_RECORD": "DELEGATION_TOKEN_RECORD",
}


@dataclass(slots=True)
class KnownPartition:
    """A partition as the controller had it last; `leader` is -1 without one."""

    replicas: list[int]
    isr: list[int]
    leader: int
    leader_epoch: int
    directories: list[str]

    def directory_of(self, node_id: int) -> str | None:
        """The id of the log directory of a replica, None where nothing says it."""
        return dict(zip(self.replicas, self.directories, strict=False)).get(node_id)


@dataclass(slots=True)
class KnownTopic:
    """A topic's id (Kafka's text form) and its partitions by number."""

    topic_id: str
    partitions: dict[int, KnownPartition] = field(default_factory=dict)


@dataclass(slots=True)
class KnownMetadata:
    """What a metadata log or snapshot says. `end_offset` is the offset after the last record that was read, `problems`
    are sentences about what could not be read. `records` are those of all other kinds, by what they are about.
    """

    source: Path
    topics: dict[str, KnownTopic] = field(default_factory=dict)
    records: dict[_Key, FramedRecord] = field(default_factory=dict)
    end_offset: int = 0
    problems: list[str] = field(default_factory=list)

    def configuration(self, topic: str) -> dict[str, str]:
        """A topic's own values, by Kafka's key."""
        found = (one.data for key, one in self.records.items() if key[:3] == ("CONFIG_RECORD", TOPIC_RESOURCE, topic))
        return {str(data["name"]): str(data["value"]) for data in found}

    @property
    def next_producer_id(self) -> int:
        """The first producer id that no broker had got yet; 0 where nothing says it."""
        found = self.records.get(("PRODUCER_IDS_RECORD",))
        return 0 if found is None else int(found.data["nextProducerId"])


def read_known(fs: FileSystem, path: Path) -> KnownMetadata | None:
    """What a log directory's metadata log, that log's own directory, or a snapshot says; None where there is none.

    NotALogError for a file that is no snapshot. Nothing is created or locked; damage is in `problems`.
    """
    status = fs.status(path)
    changes = _Changes(KnownMetadata(path))
    replay = MetadataReplay(changes.apply)
    if status is not None and not status.is_directory:
        if path.suffix != ".checkpoint":
            raise NotALogError(path, "neither a directory nor a snapshot of the metadata (*.checkpoint)")
        replay.read_snapshot(fs, path)
    else:
        inside = path if path.name == METADATA_PARTITION else path / METADATA_PARTITION
        found = fs.status(inside)
        if found is None or not found.is_directory:
            return None
        changes.known.source = inside
        replay.read(fs, inside)
    changes.known.end_offset = replay.end_offset
    changes.known.problems += replay.problems
    return changes.known


def furthest(found: Sequence[KnownMetadata]) -> KnownMetadata | None:
    """The one that says most: first those that name topics or anything else, then the one readable furthest."""
    return max(found, key=lambda one: (bool(one.records), one.end_offset, not one.problems), default=None)


def formatted_with(fs: FileSystem, directories: Sequence[Path]) -> KnownMetadata | None:
    """What the directories' `bootstrap.checkpoint` says: the features that the cluster began with, and its users."""
    for directory in directories:
        path = directory / BOOTSTRAP_CHECKPOINT
        status = fs.status(path)
        if status is not None and not status.is_directory:
            known = read_known(fs, path)
            if known is not None and ("FEATURE_LEVEL_RECORD", "metadata.version") in known.records:
                return known
    return None


class _Changes:
    """Applies each record to what is known so far."""

    def __init__(self, known: KnownMetadata) -> None:
        self.known = known
        self._names: dict[str, str] = {}

    def apply(self, record: FramedRecord, _source: MetadataRecord) -> None:
        data = record.data
        if record.name == "TOPIC_RECORD":
            self._names[data["topicId"]] = data["name"]
            self.known.topics[data["name"]] = KnownTopic(data["topicId"])
        elif record.name == "REMOVE_TOPIC_RECORD":
            self._remove_topic(data["topicId"])
        elif record.name == "PARTITION_RECORD":
            self._add_partition(data)
        elif record.name == "PARTITION_CHANGE_RECORD":
            self._change_partition(data)
        elif record.name in _REMOVERS:
            kind = _REMOVERS[record.name]
            self.known.records.pop(_key(kind, data), None)
        elif record.name in _KEYS:
            self._keep(record)

    def _keep(self, record: FramedRecord) -> None:
        key = _key(record.name, record.data)
        is_config, is_quota = record.name == "CONFIG_RECORD", record.name == "CLIENT_QUOTA_RECORD"
        gone = (is_config and record.data["value"] is None) or (is_quota and record.data["remove"])
        self.known.records.pop(key, None)
        if not gone and not (record.name == "FEATURE_LEVEL_RECORD" and record.data["featureLevel"] == 0):
            self.known.records[key] = record

    def _remove_topic(self, topic_id: str) -> None:
        name = self._names.pop(topic_id, None)
        if name is None:
            return
        del self.known.topics[name]
        for key in [key for key in self.known.records if key[:3] == ("CONFIG_RECORD", TOPIC_RESOURCE, name)]:
            del self.known.records[key]

    def _topic(self, topic_id: str) -> KnownTopic | None:
        name = self._names.get(topic_id)
        return None if name is None else self.known.topics[name]

    def _add_partition(self, data: Mapping[str, Any]) -> None:
        topic = self._topic(data["topicId"])
        if topic is not None:
            topic.partitions[data["partitionId"]] = KnownPartition(
                list(data["replicas"]),
                list(data["isr"]),
                data["leader"],
                data["leaderEpoch"],
                list(data.get("directories") or ()),
            )

    def _change_partition(self, data: Mapping[str, Any]) -> None:
        """What a change does not mention stays; each new leader raises the epoch."""
        topic = self._topic(data["topicId"])
        known = None if topic is None else topic.partitions.get(data["partitionId"])
        if known is None:
            return
        for name in ("replicas", "isr", "directories"):
            if data.get(name) is not None:
                setattr(known, name, list(data[name]))
        if data.get("leader", _NO_CHANGE) != _NO_CHANGE:
            known.leader = data["leader"]
            known.leader_epoch += 1


def _key(kind: str, data: Mapping[str, Any]) -> _Key:
    return (kind, *(_hashable(data[name]) for name in _KEYS[kind]))


def _hashable(value: object) -> object:
    """Entities of quotas are lists of structs, in no fixed order."""
    if isinstance(value, list):
        return frozenset((one["entityType"], one["entityName"]) for one in value)
    return value
