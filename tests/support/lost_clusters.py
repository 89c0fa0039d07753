"""Log directories of brokers whose controllers are gone, written without any broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import UUID

from seglog.format.checkpoint import (
    EpochEntry,
    MetaProperties,
    PartitionMetadata,
    format_leader_epochs,
    format_meta_properties,
    format_partition_metadata,
)
from seglog.format.uuids import format_uuid, parse_uuid
from seglog_rescue.rebuild.metadata_snapshot import encode_metadata_record
from tests.support.log_files import batch

CLUSTER = "c2VnbG9nLWxvc3QtLS0tLQ"
TOPIC_IDS = {name: UUID(int=(7 << 64) + i) for i, name in enumerate(("orders", "clicks", "__consumer_offsets"), 1)}


def directory_id(node: int, number: int = 0) -> UUID:
    """The id of one of a broker's log directories."""
    return UUID(int=(9 << 64) + (node << 8) + number)


def broker_directory(
    path: Path, node: int, partitions: Mapping[str, Sequence[int]], *, cluster: str = CLUSTER, number: int = 0
) -> Path:
    """A log directory of broker `node`; `partitions` maps a name to the leader epoch of each record."""
    broker_meta(path, node, cluster=cluster, number=number)
    for name, epochs in partitions.items():
        made = path / name
        made.mkdir()
        known = PartitionMetadata(TOPIC_IDS[name.rpartition("-")[0]])
        (made / "partition.metadata").write_bytes(format_partition_metadata(known))
        (made / f"{0:020}.log").write_bytes(b"".join(batch(i, epoch=epoch) for i, epoch in enumerate(epochs)))
        starts = [EpochEntry(epoch, list(epochs).index(epoch)) for epoch in sorted(set(epochs))]
        (made / "leader-epoch-checkpoint").write_bytes(format_leader_epochs(starts))
    return path


def broker_meta(path: Path, node: int, *, cluster: str = CLUSTER, number: int = 0) -> None:
    """Makes a log directory that belongs to broker `node`, or gives it to that broker."""
    path.mkdir(parents=True, exist_ok=True)
    meta = MetaProperties(1, cluster, node, directory_id(node, number))
    (path / "meta.properties").write_bytes(format_meta_properties(meta, 0))


def topic_id(name: str) -> UUID:
    """The id of a topic."""
    return TOPIC_IDS.get(name, UUID(int=(7 << 64) + 99))


def topic_records(
    name: str, replicas: Sequence[Sequence[int]], *, epoch: int = 0, isr: Sequence[int] | None = None
) -> list[bytes]:
    """A topic as a controller wrote it: the brokers of each partition, the first of them (or of `isr`) its leader."""
    identity = format_uuid(topic_id(name))
    found = [encode_metadata_record("TOPIC_RECORD", {"name": name, "topicId": identity})]
    for number, nodes in enumerate(replicas):
        fields = {
            "partitionId": number,
            "topicId": identity,
            "replicas": list(nodes),
            "isr": list(nodes if isr is None else isr),
            "removingReplicas": [],
            "addingReplicas": [],
            "leader": (isr or nodes)[0],
            "leaderEpoch": epoch,
            "partitionEpoch": 0,
            "directories": [format_uuid(directory_id(node)) for node in nodes],
        }
        found.append(encode_metadata_record("PARTITION_RECORD", fields))
    return found


def registration(node: int, directories: int = 1) -> bytes:
    """A broker's registration, with its log directories."""
    fields = {
        "brokerId": node,
        "isMigratingZkBroker": False,
        "incarnationId": format_uuid(UUID(int=(5 << 64) + node)),
        "brokerEpoch": 1,
        "endPoints": [],
        "features": [],
        "rack": None,
        "fenced": False,
        "inControlledShutdown": False,
        "logDirs": [format_uuid(directory_id(node, number)) for number in range(directories)],
    }
    return encode_metadata_record("REGISTER_BROKER_RECORD", fields)


def changed_id(partition: Path, text: str) -> None:
    """Gives a partition's directory another topic id."""
    known = PartitionMetadata(parse_uuid(text))
    (partition / "partition.metadata").write_bytes(format_partition_metadata(known))
