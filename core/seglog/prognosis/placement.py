"""Does a partition directory belong on this broker? What a starting broker asks of the controller's metadata.

A broker goes by the topic id in `partition.metadata` and the partition number in the directory's name, never by the
topic's name. It calls a log stray, and renames its directory, when there is no topic id, when no topic of that id has
such a partition, or when this broker is not one of its replicas. Which of the log directories the controller has noted
does not matter.

Kafka: BrokerMetadataPublisher.initializeManagers, LogManager.loadLog, LogManager.isStrayReplica; a name that is
another topic's is found out later, by LogManager.getOrCreateLog.
"""

from __future__ import annotations

from collections.abc import Iterator

from seglog.configuration.cluster_metadata import ClusterMetadata
from seglog.errors import CorruptCheckpointError, RefusedError
from seglog.format.checkpoint import UnforeseenByKafkaError, parse_partition_metadata
from seglog.format.uuids import format_uuid
from seglog.model import TopicPartition
from seglog.prognosis.cases import UNFORESEEN, Diagnosis, Gravity
from seglog.prognosis.partition_facts import Patient


def placement(patient: Patient) -> Iterator[Diagnosis]:
    """The rows on `partition.metadata` and on where the partition belongs."""
    topic_id = None
    path = patient.listing.partition_metadata
    if path is not None:
        try:
            topic_id = format_uuid(parse_partition_metadata(patient.fs.read_bytes(path), path).topic_id)
        except (CorruptCheckpointError, RefusedError) as error:
            fields = {"broker": UNFORESEEN} if isinstance(error, UnforeseenByKafkaError) else {}
            yield patient.say("PARTITION_METADATA_UNREADABLE", path, str(error).removeprefix(f"{path}: "), **fields)
            return
    key = patient.listing.topic_partition
    if patient.metadata is None or key is None:
        return
    if topic_id is None:
        # written before the first append: a log without it holds nothing, unless somebody took the file away
        gravity = Gravity.DANGER if patient.listing.size else Gravity.NOTE
        message = "there is no partition.metadata with a topic id"
        yield patient.say("STRAY_PARTITION", "partition.metadata", message, gravity=gravity)
        return
    reason = _stray(patient.metadata, key, topic_id, patient.node_id)
    if reason:
        yield patient.say("STRAY_PARTITION", "partition.metadata", reason)
    elif patient.metadata.topic_ids.get(key.topic) != topic_id:
        owner = _name_of(patient.metadata, topic_id)
        there = key.topic in patient.metadata.topic_ids
        broker = _REFUSES if there else _UNSERVED
        message = f"its topic id is that of the topic {owner}"
        yield patient.say("FOREIGN_PARTITION", "partition.metadata", message, broker=broker)


_REFUSES = "Fails to apply the controller's records for the topic of that name: its partition is not served."
_UNSERVED = "Loads it under a name that no topic has: nobody can read it, and nothing deletes it."


def _stray(metadata: ClusterMetadata, key: TopicPartition, topic_id: str, node_id: int | None) -> str:
    """Why a broker would call it stray; empty when it would not."""
    assignment = metadata.assignment(topic_id, key.partition)
    if assignment is not None:
        if node_id is None or node_id in assignment.replicas:
            return ""
        replicas = ", ".join(map(str, assignment.replicas))
        return f"the cluster's metadata has its replicas on brokers {replicas}, not on this one ({node_id})"
    name = _name_of(metadata, topic_id)
    if name:
        return f"the topic {name} has {len(metadata.partitions.get(topic_id, {}))} partitions, and none of that number"
    if key.topic in metadata.topic_ids:
        return "its topic id is not the one that the cluster's metadata gives the topic: that one was made anew"
    return "the cluster's metadata knows no topic of that id"


def _name_of(metadata: ClusterMetadata, topic_id: str) -> str:
    return next((name for name, known in metadata.topic_ids.items() if known == topic_id), "")
