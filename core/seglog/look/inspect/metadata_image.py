"""Replays a metadata log into an image of the cluster, like Kafka's: topics, brokers, configuration, users, ACLs.

A `MetadataImage` is plain data: `tree()` returns it as nested mappings for people and JSON, `entries()` as a flat
mapping from path to fact, by which two images are compared. It never holds secrets: of SCRAM credentials and delegation
tokens it keeps only names, mechanisms and times, and it hides the values of sensitive configuration keys.

Kafka: MetadataImage, TopicsDelta, ClusterDelta, ConfigurationsDelta, FeaturesDelta, ClientQuotasDelta, AclsDelta,
ScramDelta, DelegationTokenDelta, ProducerIdsDelta; PartitionRegistration.merge, BrokerRegistration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seglog.configuration.cluster_metadata import METADATA_PARTITION
from seglog.configuration.feature_levels import METADATA_VERSION, level_name, release_of
from seglog.configuration.metadata_log import MetadataRecord, MetadataReplay
from seglog.configuration.precedence import Settings
from seglog.configuration.sensitive import HIDDEN, is_sensitive
from seglog.configuration.settings import DirectorySettings
from seglog.errors import NotALogError
from seglog.format.control import Voter
from seglog.format.wire import FramedRecord
from seglog.kafka_version import KafkaVersion
from seglog.storage import links
from seglog.storage.filesystem import FileSystem

_RESOURCES = {2: "topic", 4: "broker", 8: "broker logger", 16: "client metrics", 32: "group"}
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_PROTOCOLS = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}
_LEADER_RECOVERY = {0: "recovered", 1: "recovering"}
_NO_CHANGE = -2  # the leader stays
_CHANGE = {0: None, 1: True, -1: False}  # BrokerRegistrationFencingChange: FENCE is 1, UNFENCE -1

# Kafka: AclOperation, AclPermissionType, ResourceType
_OPERATIONS = (
    *("unknown", "any", "all", "read", "write", "create", "delete", "alter", "describe", "cluster_action"),
    *("describe_configs", "alter_configs", "idempotent_write", "create_tokens", "describe_tokens", "two_phase_commit"),
)
_PERMISSIONS = ("unknown", "any", "deny", "allow")
_ACL_RESOURCES = ("unknown", "any", "topic", "group", "cluster", "transactional_id", "delegation_token", "user")
_PATTERNS = ("unknown", "any", "match", "literal", "prefixed")

Facts = dict[str, Any]


@dataclass(slots=True)
class MetadataImage:
    """The state of the cluster after a number of records of its metadata log.

    `topics` maps a name to its id, its own configuration and its partitions by number; `configs` has the values of all
    other resources by kind and name. `end_offset` is the offset after the last record read. `snapshot` is the name of
    the snapshot file with which the log begins. `open_transaction` is the offset at which an unfinished transaction
    began, whose records do not count. `voters` are those of a dynamic quorum (KIP-853). `problems` are sentences about
    records that could not be read.
    """

    source: Path
    end_offset: int = 0
    snapshot: str | None = None
    open_transaction: int | None = None
    records: int = 0
    features: dict[str, int] = field(default_factory=dict)
    voters: dict[int, Facts] = field(default_factory=dict)
    topics: dict[str, Facts] = field(default_factory=dict)
    brokers: dict[int, Facts] = field(default_factory=dict)
    controllers: dict[int, Facts] = field(default_factory=dict)
    configs: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)
    users: dict[str, dict[str, Facts]] = field(default_factory=dict)
    quotas: dict[str, dict[str, float]] = field(default_factory=dict)
    acls: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, Facts] = field(default_factory=dict)
    next_producer_id: int | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def metadata_version(self) -> str:
        """Kafka's name of the level of metadata.version, such as 3.6-IV2; "" if it is unknown."""
        return level_name(self.features.get(METADATA_VERSION, 0))

    def releases(self) -> dict[int, KafkaVersion]:
        """Returns the release of each broker, by the last metadata.version that it knows."""
        lasts = {number: broker["features"].get(METADATA_VERSION, "") for number, broker in self.brokers.items()}
        known = {number: release_of(int(last.rpartition("-")[2] or 0)) for number, last in lasts.items()}
        return {number: release for number, release in sorted(known.items()) if release is not None}

    def tree(self) -> Facts:
        """Returns all non-empty parts, nested, in a stable order."""
        configured = {
            kind: {name: values for name, values in resources.items() if values}
            for kind, resources in sorted(self.configs.items())
        }
        parts: Facts = {
            "features": dict(sorted(self.features.items())),
            "voters": _sorted(self.voters),
            "controllers": _sorted(self.controllers),
            "brokers": _sorted(self.brokers),
            "topics": _sorted(self.topics),
            "configs": {kind: _sorted(resources_of) for kind, resources_of in configured.items() if resources_of},
            "users": _sorted(self.users),
            "quotas": _sorted(self.quotas),
            "acls": dict(sorted(self.acls.items(), key=lambda item: item[1])),
            "tokens": _sorted(self.tokens),
        }
        filled = {name: part for name, part in parts.items() if part}
        if self.next_producer_id is not None:
            filled["next_producer_id"] = self.next_producer_id
        return filled

    def entries(self) -> dict[tuple[str, ...], object]:
        """Returns each fact by its path, such as ("topics", "orders", "partitions", "0", "isr")."""
        return dict(_flat((), self.tree()))


@dataclass(frozen=True, slots=True)
class Difference:
    """A fact that differs between two images; None on a side that lacks it."""

    path: tuple[str, ...]
    left: object
    right: object


def read_metadata_image(fs: FileSystem, path: Path, *, end: int | None = None) -> MetadataImage:
    """Reads the image from a log directory, a metadata log's directory, or one snapshot file.

    Only records before the offset `end` count (None: all). Raises `NotALogError` if there is no metadata log, and if
    `end` lies before the oldest snapshot that still exists. Creates and locks nothing; `problems` lists damage.
    """
    status = fs.status(path)
    changes = _Changes(MetadataImage(path))
    replay = MetadataReplay(changes.apply, end=end)
    if status is not None and not status.is_directory:
        if path.suffix != ".checkpoint":
            raise NotALogError(path, "neither a directory nor a snapshot of the metadata (*.checkpoint)")
        replay.read_snapshot(fs, path)
    else:
        replay.read(fs, _metadata_directory(fs, path))
    image = changes.image
    image.end_offset, image.open_transaction = replay.end_offset, replay.open_transaction
    image.voters = {voter.node: _voter(voter) for voter in replay.voters}
    image.snapshot = None if replay.snapshot is None else replay.snapshot.name
    image.problems += [*replay.problems, *replay.torn]
    return image


def differences(left: MetadataImage, right: MetadataImage) -> list[Difference]:
    """Returns the facts in which two images differ, by path."""
    one, other = left.entries(), right.entries()
    return [
        Difference(path, one.get(path), other.get(path))
        for path in sorted({*one, *other})
        if one.get(path) != other.get(path)
    ]


def _metadata_directory(fs: FileSystem, path: Path) -> Path:
    inside = path if links.name_of(path) == METADATA_PARTITION else path / METADATA_PARTITION
    status = fs.status(inside)
    if status is None or not status.is_directory:
        raise NotALogError(path, f"it has no {METADATA_PARTITION}: {_elsewhere(fs, path)}")
    return inside


def _elsewhere(fs: FileSystem, log_directory: Path) -> str:
    """Says where the metadata is instead."""
    writer = DirectorySettings(fs, log_directory, Settings()).writer
    if writer is not None and writer.zookeeper:
        return f"ZooKeeper has the metadata ({writer.sentence})"
    return "name the controller's log directory"


class _Changes:
    """Applies each record to the image."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self._topic_names: dict[str, str] = {}
        self._appliers: Mapping[str, Callable[[Mapping[str, Any]], object]] = {
            "REGISTER_BROKER_RECORD": self._register_broker,
            "UNREGISTER_BROKER_RECORD": lambda data: image.brokers.pop(data["brokerId"], None),
            "BROKER_REGISTRATION_CHANGE_RECORD": self._change_broker,
            "FENCE_BROKER_RECORD": lambda data: self._fence(data, True),
            "UNFENCE_BROKER_RECORD": lambda data: self._fence(data, False),
            "REGISTER_CONTROLLER_RECORD": self._register_controller,
            "UNREGISTER_CONTROLLER_RECORD": lambda data: image.controllers.pop(data["controllerId"], None),
            "TOPIC_RECORD": self._add_topic,
            "REMOVE_TOPIC_RECORD": self._remove_topic,
            "PARTITION_RECORD": self._add_partition,
            "PARTITION_CHANGE_RECORD": self._change_partition,
            "CLEAR_ELR_RECORD": self._clear_eligible,
            "CONFIG_RECORD": self._configure,
            "FEATURE_LEVEL_RECORD": self._set_feature,
            "USER_SCRAM_CREDENTIAL_RECORD": self._add_user,
            "REMOVE_USER_SCRAM_CREDENTIAL_RECORD": self._remove_user,
            "CLIENT_QUOTA_RECORD": self._set_quota,
            "ACCESS_CONTROL_ENTRY_RECORD": self._add_acl,
            "REMOVE_ACCESS_CONTROL_ENTRY_RECORD": lambda data: image.acls.pop(data["id"], None),
            "DELEGATION_TOKEN_RECORD": self._add_token,
            "REMOVE_DELEGATION_TOKEN_RECORD": lambda data: image.tokens.pop(data["tokenId"], None),
            "PRODUCER_IDS_RECORD": self._take_producer_ids,
        }

    def apply(self, record: FramedRecord, source: MetadataRecord) -> None:
        self.image.records += 1
        applier = self._appliers.get(record.name)
        if applier is None:
            return  # does not change the image: NO_OP_RECORD, ZK_MIGRATION_STATE_RECORD
        try:
            applier(record.data)
        except KeyError as error:
            unknown = f"{record.name} is about {error.args[0]}, which no record before it names"
            self.image.problems.append(f"{source.path}: offset {source.offset}: {unknown}")

    def _register_broker(self, data: Mapping[str, Any]) -> None:
        self.image.brokers[data["brokerId"]] = {
            "epoch": data["brokerEpoch"],
            "incarnation": data["incarnationId"],
            "rack": data["rack"],
            "fenced": data["fenced"],
            "in_controlled_shutdown": data.get("inControlledShutdown", False),
            "listeners": _listeners(data),
            "log_directories": list(data.get("logDirs") or ()),
            "features": _ranges(data),
        }

    def _change_broker(self, data: Mapping[str, Any]) -> None:
        broker = self._broker(data["brokerId"])
        fenced = _CHANGE.get(data.get("fenced", 0))
        if fenced is not None:
            broker["fenced"] = fenced
        if data.get("inControlledShutdown", 0) == 1:
            broker["in_controlled_shutdown"] = True
        if data.get("logDirs"):
            broker["log_directories"] = list(data["logDirs"])
        if data.get("cordonedLogDirs") is not None:
            broker["cordoned_log_directories"] = list(data["cordonedLogDirs"])

    def _fence(self, data: Mapping[str, Any], fenced: bool) -> None:
        self._broker(data["id"])["fenced"] = fenced

    def _broker(self, number: int) -> Facts:
        if number not in self.image.brokers:
            raise KeyError(f"broker {number}")
        return self.image.brokers[number]

    def _register_controller(self, data: Mapping[str, Any]) -> None:
        self.image.controllers[data["controllerId"]] = {
            "incarnation": data["incarnationId"],
            "listeners": _listeners(data),
            "features": _ranges(data),
        }

    def _add_topic(self, data: Mapping[str, Any]) -> None:
        self._topic_names[data["topicId"]] = data["name"]
        configs = self.image.configs.get("topic", {}).pop(data["name"], {})
        self.image.topics[data["name"]] = {"id": data["topicId"], "configs": configs, "partitions": {}}

    def _remove_topic(self, data: Mapping[str, Any]) -> None:
        self.image.topics.pop(self._topic_name(data), None)
        del self._topic_names[data["topicId"]]

    def _topic_name(self, data: Mapping[str, Any]) -> str:
        if data["topicId"] not in self._topic_names:
            raise KeyError(f"topic id {data['topicId']}")
        return self._topic_names[data["topicId"]]

    def _partitions(self, data: Mapping[str, Any]) -> dict[int, Facts]:
        partitions: dict[int, Facts] = self.image.topics[self._topic_name(data)]["partitions"]
        return partitions

    def _add_partition(self, data: Mapping[str, Any]) -> None:
        self._partitions(data)[data["partitionId"]] = {
            "replicas": list(data["replicas"]),
            "isr": list(data["isr"]),
            "adding": list(data["addingReplicas"]),
            "removing": list(data["removingReplicas"]),
            "eligible": list(data.get("eligibleLeaderReplicas") or ()),
            "last_known_eligible": list(data.get("lastKnownElr") or ()),
            "leader": data["leader"],
            "leader_recovery": _LEADER_RECOVERY.get(data.get("leaderRecoveryState", 0), "unknown"),
            "leader_epoch": data["leaderEpoch"],
            "partition_epoch": data["partitionEpoch"],
            "directories": list(data.get("directories") or ()),
        }

    def _change_partition(self, data: Mapping[str, Any]) -> None:
        """Applies a change: raises the partition epoch and, for a new leader, the leader epoch; other facts stay."""
        number = data["partitionId"]
        partition = self._partitions(data).get(number)
        if partition is None:
            raise KeyError(f"partition {number} of topic id {data['topicId']}")
        for name, kafka in _LISTS.items():
            if data.get(kafka) is not None:
                partition[name] = list(data[kafka])
        if data.get("leader", _NO_CHANGE) != _NO_CHANGE:
            partition["leader"] = data["leader"]
            partition["leader_epoch"] += 1
        if data.get("leaderRecoveryState", -1) in _LEADER_RECOVERY:
            partition["leader_recovery"] = _LEADER_RECOVERY[data["leaderRecoveryState"]]
        partition["partition_epoch"] += 1

    def _clear_eligible(self, data: Mapping[str, Any]) -> None:
        """Clears eligible leaders of one topic, or of all if the name is empty; only affected partitions change."""
        names = [data["topicName"]] if data["topicName"] else list(self.image.topics)
        for name in names:
            if name not in self.image.topics:
                raise KeyError(f"topic {name}")
            for partition in self.image.topics[name]["partitions"].values():
                if partition["eligible"] or partition["last_known_eligible"]:
                    partition["eligible"], partition["last_known_eligible"] = [], []
                    partition["partition_epoch"] += 1

    def _configure(self, data: Mapping[str, Any]) -> None:
        """Sets a configuration value; null removes it. The values of an existing topic are stored with the topic."""
        kind = _RESOURCES.get(data["resourceType"], f"resource type {data['resourceType']}")
        name = data["resourceName"]
        if kind == "topic" and name in self.image.topics:
            values = self.image.topics[name]["configs"]
        else:
            values = self.image.configs.setdefault(kind, {}).setdefault(name, {})
        if data["value"] is None:
            values.pop(data["name"], None)
        else:
            values[data["name"]] = HIDDEN if is_sensitive(data["name"]) else data["value"]

    def _set_feature(self, data: Mapping[str, Any]) -> None:
        if data["featureLevel"] == 0:  # the feature is off
            self.image.features.pop(data["name"], None)
        else:
            self.image.features[data["name"]] = data["featureLevel"]

    def _add_user(self, data: Mapping[str, Any]) -> None:
        mechanism = _MECHANISMS.get(data["mechanism"], f"mechanism {data['mechanism']}")
        self.image.users.setdefault(data["name"], {})[mechanism] = {"iterations": data["iterations"]}

    def _remove_user(self, data: Mapping[str, Any]) -> None:
        mechanism = _MECHANISMS.get(data["mechanism"], f"mechanism {data['mechanism']}")
        known = self.image.users.get(data["name"], {})
        known.pop(mechanism, None)
        if not known:
            self.image.users.pop(data["name"], None)

    def _set_quota(self, data: Mapping[str, Any]) -> None:
        """Sets or removes a quota; an entity whose name is null is the default of its kind."""
        parts = sorted((one["entityType"], one["entityName"]) for one in data["entity"])
        entity = ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in parts)
        known = self.image.quotas.setdefault(entity, {})
        if data["remove"]:
            known.pop(data["key"], None)
        else:
            known[data["key"]] = data["value"]
        if not known:
            self.image.quotas.pop(entity, None)

    def _add_acl(self, data: Mapping[str, Any]) -> None:
        permission, operation = _named(_PERMISSIONS, data["permissionType"]), _named(_OPERATIONS, data["operation"])
        resource = _named(_ACL_RESOURCES, data["resourceType"])
        pattern = _named(_PATTERNS, data["patternType"])
        self.image.acls[data["id"]] = (
            f"{permission} {operation} on {resource} {data['resourceName']} ({pattern})"
            f" to {data['principal']} from {data['host']}"
        )

    def _add_token(self, data: Mapping[str, Any]) -> None:
        self.image.tokens[data["tokenId"]] = {
            "owner": data["owner"],
            "requester": data["requester"],
            "renewers": list(data["renewers"]),
            "issued": data["issueTimestamp"],
            "expires": data["expirationTimestamp"],
            "ends": data["maxTimestamp"],
        }

    def _take_producer_ids(self, data: Mapping[str, Any]) -> None:
        self.image.next_producer_id = data["nextProducerId"]


_LISTS = {
    "replicas": "replicas",
    "isr": "isr",
    "adding": "addingReplicas",
    "removing": "removingReplicas",
    "eligible": "eligibleLeaderReplicas",
    "last_known_eligible": "lastKnownElr",
    "directories": "directories",
}


def _voter(voter: Voter) -> Facts:
    return {
        "directory_id": voter.directory_id,
        "listeners": {name: f"{host}:{port}" for name, host, port in voter.endpoints},
        "features": {"kraft.version": f"{voter.least_version}-{voter.last_version}"},
    }


def _listeners(data: Mapping[str, Any]) -> dict[str, str]:
    return {
        one["name"]: f"{_PROTOCOLS.get(one['securityProtocol'], 'unknown')}://{one['host']}:{one['port']}"
        for one in data["endPoints"]
    }


def _ranges(data: Mapping[str, Any]) -> dict[str, str]:
    return {
        one["name"]: f"{one['minSupportedVersion']}-{one['maxSupportedVersion']}"
        for one in sorted(data["features"], key=lambda one: str(one["name"]))
    }


def _named(names: tuple[str, ...], number: int) -> str:
    return names[number] if 0 <= number < len(names) else str(number)


def _sorted(mapping: Mapping[Any, Any]) -> dict[str, Any]:
    """Returns a mapping with its keys as text, sorted by the original keys, including those nested in a topic."""
    ordered = {}
    for key, value in sorted(mapping.items()):
        if isinstance(value, Mapping):
            value = {name: _sorted(part) if name in _NESTED else part for name, part in value.items()}
        ordered[str(key)] = value
    return ordered


_NESTED = frozenset({"partitions", "configs"})


def _flat(path: tuple[str, ...], value: object) -> Iterator[tuple[tuple[str, ...], object]]:
    if isinstance(value, Mapping) and value:
        for name, part in value.items():
            yield from _flat((*path, str(name)), part)
    else:
        yield path, value
