"""The plan of a rebuilt cluster as data: `--dry-run` prints it, `operations.rebuild` writes it to files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from seglog.configuration.cluster_metadata import METADATA_PARTITION
from seglog.format.control import Voter
from seglog.format.filenames import BOOTSTRAP_CHECKPOINT, FIRST_SNAPSHOT
from seglog.format.wire import FramedRecord
from seglog_rescue.rebuild.known import TOPIC_RESOURCE
from seglog_rescue.rebuild.metadata_snapshot import encode_metadata_record, metadata_snapshot

UNASSIGNED_DIRECTORY = "A" * 22  # Kafka: DirectoryId.UNASSIGNED; the broker reports the replica's directory itself

_WITH_DIRECTORIES = 17  # metadata.version 3.7-IV2


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """A partition of the new cluster. `origin` is "directories" if data was found, "metadata" if only the controllers
    knew it, "empty" if nothing is left. `log_end` is its leader's, None if no log was found.

    At first only the leader is in sync; the other replicas catch up from it.
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
        """Returns the fields of its PARTITION_RECORD."""
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
    """A topic: its id in Kafka's text form (`id_is_new` if none was found), its own configuration by Kafka's keys."""

    name: str
    topic_id: str
    id_is_new: bool
    configuration: Mapping[str, str]
    configuration_known: bool
    partitions: tuple[PlannedPartition, ...]


@dataclass(frozen=True, slots=True)
class RebuiltFile:
    """A file that a log directory lacks: the node it belongs to, its place there, and its contents."""

    node: int
    place: Path
    contents: bytes


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """The whole cluster. `features` are levels by name; `records` are kept as they were read. `nodes` maps brokers to
    their log directories; `directories` lists all directories read.

    `old_metadata` are the metadata logs in them, a broker's copies too, which must not be there when a broker starts.
    `files` are to be copied into the log directories. `source` is the metadata that was read, up to `end_offset`;
    `problems` are sentences about unreadable parts. `left_out` lists directories not taken, with reasons; `notes` are
    sentences for the operator. `voters` are those of a dynamic quorum, as `voters_source` names them. `without` are the
    brokers that get new directories in place of lost ones.
    """

    cluster_id: str
    cluster_id_is_new: bool
    features: Mapping[str, int]
    topics: tuple[PlannedTopic, ...]
    records: tuple[FramedRecord, ...]
    next_producer_id: int
    nodes: Mapping[int, tuple[Path, ...]]
    directories: tuple[Path, ...]
    old_metadata: tuple[Path, ...]
    files: tuple[RebuiltFile, ...]
    source: Path | None
    end_offset: int
    problems: tuple[str, ...]
    left_out: tuple[tuple[Path, str], ...]
    notes: tuple[str, ...]
    voters: tuple[Voter, ...] = ()
    voters_source: Path | None = None
    without: tuple[int, ...] = ()

    @property
    def partitions(self) -> int:
        """The number of partitions of all topics."""
        return sum(len(topic.partitions) for topic in self.topics)

    @property
    def quorum_is_known(self) -> bool:
        """Whether its voters are known, or that it has none of its own: a static quorum's metadata names none."""
        is_log = self.source is not None and self.source.name != BOOTSTRAP_CHECKPOINT
        return bool(self.voters) or (is_log and not self.problems)

    def snapshots(self, now_ms: int) -> dict[Path, bytes]:
        """Returns the bootstrap snapshot by its places below a controller's `metadata.log.dir`: up to 4.3 a controller
        reads the first, from 4.4 on the second, and either passes over the other's records."""
        records = list(self.values())
        return {
            Path(BOOTSTRAP_CHECKPOINT): metadata_snapshot(records, now_ms),
            Path(METADATA_PARTITION, FIRST_SNAPSHOT): metadata_snapshot(records, now_ms, self.voters),
        }

    def values(self) -> Iterator[bytes]:
        """Yields the records of the bootstrap snapshot: features, topics, all other known records, producer ids."""
        for name, level in self.features.items():
            yield encode_metadata_record("FEATURE_LEVEL_RECORD", {"name": name, "featureLevel": level})
        version = 1 if self.features["metadata.version"] >= _WITH_DIRECTORIES else 0
        for topic in self.topics:
            yield encode_metadata_record("TOPIC_RECORD", {"name": topic.name, "topicId": topic.topic_id})
            for partition in topic.partitions:
                yield encode_metadata_record("PARTITION_RECORD", partition.fields(topic.topic_id), version)
            for key, value in topic.configuration.items():
                config = {"resourceType": TOPIC_RESOURCE, "resourceName": topic.name, "name": key, "value": value}
                yield encode_metadata_record("CONFIG_RECORD", config)
        for record in self.records:
            yield encode_metadata_record(record.name, record.data, record.version)
        block = {"brokerId": min(self.nodes, default=0), "brokerEpoch": 0, "nextProducerId": self.next_producer_id}
        yield encode_metadata_record("PRODUCER_IDS_RECORD", block)
