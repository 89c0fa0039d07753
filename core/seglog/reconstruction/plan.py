"""What a rebuilt cluster consists of, as data: `--dry-run` prints it, `write` makes files of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from seglog.format.metadata_snapshot import encode_metadata_record
from seglog.format.wire import FramedRecord
from seglog.reconstruction.known import TOPIC_RESOURCE

UNASSIGNED_DIRECTORY = "A" * 22  # Kafka: DirectoryId.UNASSIGNED; the broker says itself where the replica is

_WITH_DIRECTORIES = 17  # metadata.version 3.7-IV2


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """A partition of the new cluster. `origin` is "directories" where data was found, "metadata" where only the
    controllers knew it, "empty" where nothing is left. `log_end` is its leader's, None where no log was found.

    The leader is alone in sync at first: the others catch up from it.
    """

    number: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    directories: tuple[str, ...]
    origin: str
    log_end: int | None

    def fields(self, topic_id: str) -> dict[str, object]:
        """Its PARTITION_RECORD."""
        return {
            "partitionId": self.number,
            "topicId": topic_id,
            "replicas": list(self.replicas),
            "isr": list(self.isr),
            "removingReplicas": [],
            "addingReplicas": [],
            "leader": self.leader,
            "leaderEpoch": self.leader_epoch,
            "partitionEpoch": 0,
            "directories": list(self.directories),
        }


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """A topic: its id in Kafka's text form, its own values by Kafka's key. `id_is_new` where none was found."""

    name: str
    topic_id: str
    id_is_new: bool
    configuration: Mapping[str, str]
    configuration_known: bool
    partitions: tuple[PlannedPartition, ...]


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that is missing in a log directory: the node that it is of, where it belongs, and its contents."""

    node: int
    place: Path
    contents: bytes


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """The whole cluster. `features` are levels by name, `records` those that were read and are kept as they are.
    `nodes` are brokers with their log directories, `directories` all that were read.

    `files` are to be copied into the log directories. `source` is the metadata that could be read, up to `end_offset`;
    `problems` say what could not. `left_out` are directories that are not taken, and why; `notes` are sentences that
    an operator should read.
    """

    cluster_id: str
    cluster_id_is_new: bool
    features: Mapping[str, int]
    topics: tuple[PlannedTopic, ...]
    records: tuple[FramedRecord, ...]
    next_producer_id: int
    nodes: Mapping[int, tuple[Path, ...]]
    directories: tuple[Path, ...]
    files: tuple[NewFile, ...]
    source: Path | None
    end_offset: int
    problems: tuple[str, ...]
    left_out: tuple[tuple[Path, str], ...]
    notes: tuple[str, ...]

    @property
    def partitions(self) -> int:
        """How many there are."""
        return sum(len(topic.partitions) for topic in self.topics)

    def values(self) -> Iterator[bytes]:
        """The records of the bootstrap snapshot: features, topics, everything else that was known, producer ids."""
        for name, level in self.features.items():
            yield encode_metadata_record("FEATURE_LEVEL_RECORD", {"name": name, "featureLevel": level})
        version = 1 if self.features["metadata.version"] >= _WITH_DIRECTORIES else 0
        for topic in self.topics:
            yield encode_metadata_record("TOPIC_RECORD", {"name": topic.name, "topicId": topic.topic_id})
            for partition in topic.partitions:
                yield encode_metadata_record("PARTITION_RECORD", partition.fields(topic.topic_id), version)
            for key, value in topic.configuration.items():
                said = {"resourceType": TOPIC_RESOURCE, "resourceName": topic.name, "name": key, "value": value}
                yield encode_metadata_record("CONFIG_RECORD", said)
        for record in self.records:
            yield encode_metadata_record(record.name, record.data, record.version)
        said = {"brokerId": min(self.nodes, default=0), "brokerEpoch": 0, "nextProducerId": self.next_producer_id}
        yield encode_metadata_record("PRODUCER_IDS_RECORD", said)
