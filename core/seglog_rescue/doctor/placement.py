"""Whether a partition directory belongs on this broker, by the controller's metadata.

A broker goes by the topic id in `partition.metadata` and the partition number in the directory's name, never by the
topic's name. It calls a log stray and renames its directory if there is no topic id, if no topic of that id has such a
partition, or if this broker is not one of its replicas. The log directory that the controller has recorded does not
matter, unless the partition has other copies (`copies`).

Kafka: BrokerMetadataPublisher.initializeManagers, LogManager.loadLog, LogManager.isStrayReplica.
LogManager.getOrCreateLog discovers later that the name is another topic's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from seglog.configuration.cluster_metadata import ClusterMetadata
from seglog.errors import CorruptCheckpointError, RefusedError
from seglog.escaping import command_line
from seglog.format.checkpoint import UnforeseenByKafkaError
from seglog.model import TopicPartition
from seglog.scan.topic_ids import topic_id_in
from seglog.units import count_text
from seglog.verification.codes import ASIDE, Severity
from seglog_rescue.doctor.cases import Diagnosis
from seglog_rescue.doctor.directory import DirectoryFacts
from seglog_rescue.doctor.mends import UNFORESEEN
from seglog_rescue.doctor.partition_facts import PartitionFacts
from seglog_rescue.transplant.internal_topics import NOT_TAKEN


def placement(facts: PartitionFacts) -> Iterator[Diagnosis]:
    """Yields the diagnoses on `partition.metadata` and on where the partition belongs. Fills `facts.topic_id`."""
    path = facts.listing.partition_metadata
    if path is not None:
        try:
            facts.topic_id = topic_id_in(facts.fs, path)
        except (CorruptCheckpointError, RefusedError) as error:
            fields = {"broker": UNFORESEEN} if isinstance(error, UnforeseenByKafkaError) else {}
            yield facts.diagnosis("PARTITION_METADATA_UNREADABLE", path, str(error).removeprefix(f"{path}: "), **fields)
            return
    key = facts.listing.topic_partition
    topic_id = facts.topic_id
    if facts.metadata is None or key is None:
        return
    if topic_id is None:
        # a broker writes it before the first append: a log without it is empty, unless the file was removed
        gravity = Severity.DANGER if facts.listing.size else Severity.NOTE
        message = "there is no partition.metadata with a topic id"
        yield _stray(facts, facts.metadata, key, message, gravity=gravity)
        return
    reason = _stray_reason(facts.metadata, key, topic_id, facts.around.node_id)
    if reason:
        yield _stray(facts, facts.metadata, key, reason)
    elif facts.metadata.topic_ids.get(key.topic) != topic_id:
        broker = _REFUSES if key.topic in facts.metadata.topic_ids else _UNSERVED
        message = f"its topic id belongs to the topic {_name_of(facts.metadata, topic_id)}"
        yield facts.diagnosis("FOREIGN_PARTITION", "partition.metadata", message, broker=broker)


def is_rightly_placed(
    metadata: ClusterMetadata | None, key: TopicPartition, topic_id: str | None, node_id: int | None
) -> bool:
    """True if `placement` has nothing to say of a partition with this id in its readable `partition.metadata`."""
    if metadata is None:
        return True
    return (
        topic_id is not None
        and metadata.topic_ids.get(key.topic) == topic_id
        and not _stray_reason(metadata, key, topic_id, node_id)
    )


def directories_not_given(
    directories: Sequence[DirectoryFacts], metadata: ClusterMetadata, node_id: int
) -> Iterator[Diagnosis]:
    """Yields a diagnosis for each log directory in which the controller knows replicas of this broker, and which is not
    among those examined. Nothing is said if one of these has no id: it may be that one."""
    given = {directory.around.directory_id for directory in directories}
    if None in given:
        return
    elsewhere = Counter(assignment.directory_of(node_id) for _, _, assignment in metadata.assigned_to(node_id))
    for identity, count in sorted((identity, n) for identity, n in elsewhere.items() if identity is not None):
        if identity not in given:
            message = (
                f"the metadata knows {count_text(count, 'replica')} of this broker in the log directory with the"
                f" directory.id {identity}, which was not given"
            )
            yield directories[0].diagnosis("DIRECTORY_NOT_GIVEN", "meta.properties", message, count=count)


def _stray(
    facts: PartitionFacts, metadata: ClusterMetadata, key: TopicPartition, reason: str, **fields: Severity
) -> Diagnosis:
    """Returns the diagnosis of a stray partition. If it holds anything, the command takes it out of a broker's way, and
    the message says how its records come into a topic: one of the same name, or a new one if the cluster has that name
    already."""
    if not facts.listing.size or key.topic in NOT_TAKEN:
        return facts.diagnosis("STRAY_PARTITION", "partition.metadata", reason, **fields)
    directory, new = facts.listing.directory, key.topic not in metadata.topic_ids
    aside = ASIDE / str(key)
    renamed = () if new else ("--topic", f"{key.topic}=NEW-TOPIC")
    made = f"the topic {key.topic}" if new else "NEW-TOPIC"
    message = (
        f"{reason}; to bring its records back, move it aside, start the broker, create {made}, stop the broker, and"
    )
    message += " " + command_line("seglog", "transplant", aside, "--into", directory.parent, *renamed)
    command = command_line("mv", directory, aside)
    return facts.diagnosis("STRAY_PARTITION", "partition.metadata", message, command=command, **fields)


_REFUSES = "Fails to apply the controller's records for the topic of that name, and does not serve its partition."
_UNSERVED = "Loads it under a name that no topic has: no client can read it, and nothing deletes it."


def _stray_reason(metadata: ClusterMetadata, key: TopicPartition, topic_id: str, node_id: int | None) -> str:
    """Returns why a broker would call the partition stray, "" if it would not."""
    assignment = metadata.assignment(topic_id, key.partition)
    if assignment is not None:
        if node_id is None or node_id in assignment.replicas:
            return ""
        replicas = ", ".join(map(str, assignment.replicas))
        return f"the cluster's metadata puts its replicas on brokers {replicas}, not on this one ({node_id})"
    name = _name_of(metadata, topic_id)
    if name:
        count = count_text(len(metadata.partitions.get(topic_id, {})), "partition")
        return f"the topic {name} has {count}, but no partition {key.partition}"
    if key.topic in metadata.topic_ids:
        return "its topic id differs from the topic's id in the cluster's metadata: the topic was deleted and recreated"
    return "the cluster's metadata has no topic of that id"


def _name_of(metadata: ClusterMetadata, topic_id: str) -> str:
    return next((name for name, known in metadata.topic_ids.items() if known == topic_id), "")
