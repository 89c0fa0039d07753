"""`Releases`: the releases of Kafka that can have written a log directory, by what is in it.

A broker's registration in the metadata log (REGISTER_BROKER_RECORD) names the last metadata.version that its software
knows, and so its release. Without it the cluster's metadata.version says that the release is that one or a later one.
A `meta.properties` of version 0 with `broker.id` is of a broker with ZooKeeper: 0.8.2 to 3.9; with `cluster.id` 2.4 or
later, if topics have a `partition.metadata` 2.8 or later. One of version 1 is of 2.8 or later, with `directory.id` 3.7.

Kafka: MetaProperties, BrokerLifecycleManager, PartitionMetadataFile.
"""

from __future__ import annotations

from dataclasses import dataclass

from seglog.configuration.cluster_metadata import ClusterMetadata
from seglog.configuration.feature_levels import METADATA_VERSION, level_name, release_of
from seglog.format.checkpoint import MetaProperties
from seglog.kafka_version import NEWEST, SPOKEN_FOR, KafkaVersion

IN_ZOOKEEPER = "topics have their configuration in ZooKeeper, where it is not seen: give what applies by --set"
WITHOUT_ZOOKEEPER = KafkaVersion(4, 0)
WITH_TOPIC_IDS = KafkaVersion(2, 8)
_LAST_WITH_ZOOKEEPER = KafkaVersion(3, 9)
_WITH_DIRECTORY_IDS = KafkaVersion(3, 7)


@dataclass(frozen=True, slots=True)
class Releases:
    """The releases from `first` to `last`. `zookeeper`: of a cluster with ZooKeeper; `evidence`: why, as a phrase."""

    first: KafkaVersion
    last: KafkaVersion
    zookeeper: bool
    evidence: str

    @property
    def is_exact(self) -> bool:
        """True if it is one release."""
        return self.first == self.last

    @property
    def is_unusual(self) -> bool:
        """True unless it is the release that commands speak for by default."""
        return not self.is_exact or self.last != SPOKEN_FOR

    @property
    def sentence(self) -> str:
        """Says who wrote the directory, and why that is known."""
        return f"Kafka {self} wrote the log directory: {self.evidence}"

    def __str__(self) -> str:
        return str(self.first) if self.is_exact else f"{self.first} to {self.last}"


def release_for(writer: Releases | None, chosen: KafkaVersion | None = None) -> KafkaVersion:
    """Returns the release that a command speaks for: the `chosen` one, else the one that wrote the directory."""
    return chosen or (writer.last if writer is not None and writer.is_exact else SPOKEN_FOR)


def recognise(
    meta: MetaProperties | None, metadata: ClusterMetadata | None = None, *, topic_ids: bool = False
) -> Releases | None:
    """Returns who wrote a log directory, None if nothing shows it.

    `metadata` is that of the broker's cluster, `topic_ids` whether any partition has a `partition.metadata`.
    """
    node = None if meta is None else meta.node_id
    if metadata is not None and node is not None and node in metadata.registered:
        level = metadata.registered[node]
        release = release_of(level)
        if release is not None:
            evidence = f"broker {node} registered metadata.version up to {level_name(level)}"
            return Releases(release, release, zookeeper=False, evidence=evidence)
    level = 0 if metadata is None else metadata.levels.get(METADATA_VERSION, 0)
    first = release_of(level)
    if first is not None:
        evidence = f"the cluster's metadata.version is {level_name(level)}"
        return Releases(first, NEWEST, zookeeper=False, evidence=evidence)
    return None if meta is None else _by_identity(meta, topic_ids)


def _by_identity(meta: MetaProperties, topic_ids: bool) -> Releases | None:
    """Returns what `meta.properties` shows."""
    if is_of_zookeeper(meta):
        if meta.cluster_id is None:
            return Releases(KafkaVersion(0, 8), KafkaVersion(2, 3), True, "meta.properties has no cluster.id")
        if topic_ids:
            return Releases(
                WITH_TOPIC_IDS, _LAST_WITH_ZOOKEEPER, True, "meta.properties has broker.id, topics have ids"
            )
        return Releases(KafkaVersion(2, 4), _LAST_WITH_ZOOKEEPER, True, "meta.properties has broker.id and cluster.id")
    if meta.version != 1 or meta.node_id is None:
        return None
    if meta.directory_id is not None:
        return Releases(_WITH_DIRECTORY_IDS, NEWEST, False, "meta.properties has a directory.id")
    return Releases(WITH_TOPIC_IDS, NEWEST, False, "meta.properties has version 1")


def is_of_zookeeper(meta: MetaProperties) -> bool:
    """True for the identity of a broker in a cluster with ZooKeeper: version 0, which has `broker.id`."""
    return meta.version == 0 and meta.node_id is not None and meta.directory_id is None
