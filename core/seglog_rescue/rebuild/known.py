"""Reads the metadata that is left of a cluster: controllers' logs, snapshots, and `bootstrap.checkpoint`.

It keeps the last record of each key unchanged: topics with their partitions, and everything else that a new cluster
takes over (features, configuration, quotas, ACLs, users with their credentials, tokens, producer ids). Brokers and
controllers register again; the brokers' registrations only say which log directories the cluster had. Of several
voters, the one readable furthest counts.

Kafka: TopicsDelta, ConfigurationsDelta, FeaturesDelta, ClientQuotasDelta, AclsDelta, ScramDelta, DelegationTokenDelta,
PartitionRegistration.merge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seglog.configuration.cluster_metadata import BROKER_RESOURCE, CLUSTER_DEFAULT, METADATA_PARTITION
from seglog.configuration.metadata_log import MetadataRecord, MetadataReplay
from seglog.errors import NotALogError
from seglog.format.control import Voter
from seglog.format.filenames import BOOTSTRAP_CHECKPOINT, FIRST_SNAPSHOT
from seglog.format.wire import FramedRecord
from seglog.storage.filesystem import FileSystem

TOPIC_RESOURCE = 2
_NO_LEADER_CHANGE = -2
_Key = tuple[object, ...]

# The fields that make up the key of each kind of record; then the kinds of record that remove another one.
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
_BROKERS = ("REGISTER_BROKER_RECORD", "BROKER_REGISTRATION_CHANGE_RECORD", "UNREGISTER_BROKER_RECORD")


@dataclass(slots=True)
class KnownPartition:
    """The last state of a partition in the controller; `leader` is -1 without one.

    Since `clean_since`, a leader epoch, every leader was elected among those that had all acknowledged records, as far
    as the log was read: a snapshot does not tell how its leaders were elected.
    """

    replicas: list[int]
    isr: list[int]
    leader: int
    leader_epoch: int
    directories: list[str]  # ids, in the order of `replicas`; may be empty
    eligible: list[int] = field(default_factory=list)  # out of sync, with every acknowledged record (KIP-966)
    clean_since: int = 0
    last_known: list[int] = field(default_factory=list)  # led it last; elected if nobody in sync is left (KIP-966)

    @property
    def in_sync(self) -> list[int]:
        """The replicas that have every acknowledged record; all of them if none is known to."""
        return [*self.isr, *self.eligible] or self.replicas

    def directory_of(self, node: int) -> str:
        """Returns the id of the log directory in which a broker has its replica, "" if the controller knows of none."""
        return dict(zip(self.replicas, self.directories, strict=False)).get(node, "")


@dataclass(slots=True)
class KnownTopic:
    """A topic's id (Kafka's text form) and its partitions by number."""

    topic_id: str
    partitions: dict[int, KnownPartition] = field(default_factory=dict)


@dataclass(slots=True)
class KnownMetadata:
    """The contents of a metadata log or snapshot: `topics`, and the `records` of all other kinds by key.

    `brokers` maps the registered ones to the ids of their log directories. `end_offset` is the offset after the last
    record read; `problems` are sentences about what could not be read. `voters` are those of a dynamic quorum.
    `registered_at` are the offsets of the brokers' last registrations in the log, without those that a snapshot has.
    """

    source: Path
    topics: dict[str, KnownTopic] = field(default_factory=dict)
    brokers: dict[int, list[str]] = field(default_factory=dict)
    records: dict[_Key, FramedRecord] = field(default_factory=dict)
    end_offset: int = 0
    problems: list[str] = field(default_factory=list)
    voters: tuple[Voter, ...] = ()
    registered_at: dict[int, int] = field(default_factory=dict)

    def broker_default(self, key: str) -> str:
        """Returns the dynamic value of all brokers, "" if there is none."""
        record = self.records.get(("CONFIG_RECORD", BROKER_RESOURCE, CLUSTER_DEFAULT, key))
        return "" if record is None else str(record.data["value"])

    def configuration(self, topic: str) -> dict[str, str]:
        """Returns a topic's own configuration values by Kafka's keys."""
        values = (
            record.data for key, record in self.records.items() if key[:3] == ("CONFIG_RECORD", TOPIC_RESOURCE, topic)
        )
        return {str(data["name"]): str(data["value"]) for data in values}

    @property
    def feature_levels(self) -> dict[str, int]:
        """The levels of features by name."""
        features = (record.data for key, record in self.records.items() if key[0] == "FEATURE_LEVEL_RECORD")
        return {str(data["name"]): int(data["featureLevel"]) for data in features}

    @property
    def next_producer_id(self) -> int:
        """The first producer id that no broker was given yet; 0 if it is unknown."""
        last = self.records.get(("PRODUCER_IDS_RECORD",))
        return 0 if last is None else int(last.data["nextProducerId"])


def read_known(fs: FileSystem, path: Path) -> KnownMetadata | None:
    """Reads the metadata log of a log directory, that log's own directory, or a snapshot; None if there is none.

    Raises NotALogError for a file that is not a snapshot. Creates and locks nothing; `problems` lists damage.
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
        status = fs.status(inside)
        if status is None or not status.is_directory:
            return None
        changes.known.source = inside
        replay.read(fs, inside)
    changes.known.end_offset = replay.end_offset
    changes.known.problems += [*replay.problems, *replay.torn]  # another copy may go on there
    changes.known.voters = replay.voters
    return changes.known


def furthest(images: Sequence[KnownMetadata]) -> KnownMetadata | None:
    """Returns the most complete one: one with records before one without, then the one readable furthest."""
    return max(images, key=lambda image: (bool(image.records), image.end_offset, not image.problems), default=None)


def formatted_with(fs: FileSystem, directories: Sequence[Path]) -> KnownMetadata | None:
    """Reads the first bootstrap snapshot with a metadata.version: the cluster's first features, and its users."""
    for directory in directories:
        for path in (directory / BOOTSTRAP_CHECKPOINT, directory / METADATA_PARTITION / FIRST_SNAPSHOT):
            status = fs.status(path)
            if status is not None and not status.is_directory:
                image = read_known(fs, path)
                if image is not None and ("FEATURE_LEVEL_RECORD", "metadata.version") in image.records:
                    return image
    return None


def newest_voters(images: Sequence[KnownMetadata]) -> KnownMetadata | None:
    """Returns the image whose voters count: of a directory that was formatted for the new quorum and has not been used
    yet, else of the one readable furthest; None without any."""
    with_voters = [image for image in images if image.voters]
    return max(with_voters, key=lambda image: (image.end_offset == 0, image.end_offset), default=None)


class _Changes:
    """Applies the records of a metadata log to `known`, one after the other."""

    def __init__(self, known: KnownMetadata) -> None:
        self.known = known
        self._names: dict[str, str] = {}

    def apply(self, record: FramedRecord, source: MetadataRecord) -> None:
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
        elif record.name in _BROKERS:
            self._register(record.name, data, source)
        elif record.name == "CLEAR_ELR_RECORD":
            self._clear_eligible(data["topicName"])
        elif record.name in _REMOVERS:
            self.known.records.pop(_key(_REMOVERS[record.name], data), None)
        elif record.name in _KEYS:
            key = _key(record.name, data)
            self.known.records.pop(key, None)  # the new one goes to the end
            if not _removes_itself(record):
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
                list(data.get("eligibleLeaderReplicas") or ()),
                data["leaderEpoch"],
                list(data.get("lastKnownElr") or ()),
            )

    def _change_partition(self, data: Mapping[str, Any]) -> None:
        """Applies a change: fields that it lacks stay as they are, and each new leader raises the epoch."""
        topic = self._topic(data["topicId"])
        partition = None if topic is None else topic.partitions.get(data["partitionId"])
        if partition is None:
            return
        before = {*partition.isr, *partition.eligible}
        for name in ("replicas", "isr", "directories"):
            if data.get(name) is not None:
                setattr(partition, name, list(data[name]))
        for name, attribute in (("eligibleLeaderReplicas", "eligible"), ("lastKnownElr", "last_known")):
            if data.get(name) is not None:
                setattr(partition, attribute, list(data[name]))
        if data.get("leader", _NO_LEADER_CHANGE) != _NO_LEADER_CHANGE:
            partition.leader = data["leader"]
            partition.leader_epoch += 1
            if partition.leader >= 0 and partition.leader not in before:
                partition.clean_since = partition.leader_epoch

    def _clear_eligible(self, topic: str) -> None:
        """Forgets the eligible replicas of a topic; of all without a name."""
        for name, known in self.known.topics.items():
            for partition in known.partitions.values() if topic in ("", name) else ():
                partition.eligible, partition.last_known = [], []

    def _register(self, kind: str, data: Mapping[str, Any], source: MetadataRecord) -> None:
        node, directories = int(data["brokerId"]), data.get("logDirs")
        if kind == "REGISTER_BROKER_RECORD" and source.path.suffix == ".log":
            self.known.registered_at[node] = source.offset
        if kind == "UNREGISTER_BROKER_RECORD":
            self.known.brokers.pop(node, None)
        elif kind == "REGISTER_BROKER_RECORD" or (directories and node in self.known.brokers):
            self.known.brokers[node] = list(directories or ())


def _removes_itself(record: FramedRecord) -> bool:
    """True if a record of a kind without a remover takes its key back."""
    data = record.data
    return bool(
        (record.name == "CONFIG_RECORD" and data["value"] is None)
        or (record.name == "CLIENT_QUOTA_RECORD" and data["remove"])
        or (record.name == "FEATURE_LEVEL_RECORD" and data["featureLevel"] == 0)
    )


def _key(kind: str, data: Mapping[str, Any]) -> _Key:
    return (kind, *(_hashable(data[name]) for name in _KEYS[kind]))


def _hashable(value: object) -> object:
    """Returns a list of structs, which is a quota's entity in no fixed order, as a set."""
    if isinstance(value, list):
        return frozenset((part["entityType"], part["entityName"]) for part in value)
    return value
