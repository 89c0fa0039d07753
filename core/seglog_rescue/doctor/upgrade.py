"""What a release would make of log directories that an older one wrote: a doctor for upgrades.

1. The cluster: a broker with ZooKeeper has no way past 3.9 but a migration; metadata keep their metadata.version.
2. Configuration: keys of topics (in the metadata) and of server.properties that the release no longer has.
3. Data: messages of format 0 and 1, which no release since 4.0 writes.

Each was given to real brokers of 4.3 and 4.4 (`tests/versions/test_upgrades.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seglog import layout
from seglog.configuration.cluster_metadata import METADATA_PARTITION, ClusterMetadata
from seglog.configuration.feature_levels import METADATA_VERSION, last_level, level_name
from seglog.configuration.key_history import removed_from_brokers, removed_from_topics
from seglog.configuration.keys import key_named
from seglog.configuration.settings import DirectorySettings
from seglog.configuration.writers import WITHOUT_ZOOKEEPER, Releases, is_of_zookeeper
from seglog.format.filenames import META_PROPERTIES
from seglog.kafka_version import KafkaVersion
from seglog.scan.listing import PartitionDirectory, list_partition
from seglog.storage.filesystem import FileSystem
from seglog.verification.codes import Severity
from seglog_rescue.doctor.cases import Diagnosis
from seglog_rescue.doctor.directory import DirectoryFacts, has_metadata_log
from seglog_rescue.doctor.quorum import rebuild_command

_SHOWN = 5
_SEGMENT_BYTES = "segment.bytes"
_REFUSES_SMALL_SEGMENTS = KafkaVersion(4, 1)
_IGNORES_REMOVED_KEYS = KafkaVersion(4, 3)
_LOCKED = "Starts, and then refuses every change of the topic's configuration (Unknown topic config name)."


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The release that shall start, and what the directories show of the one before, if they do."""

    to: KafkaVersion
    writer: Releases | None

    @property
    def is_one(self) -> bool:
        """True unless the release is known to be the one that wrote the directories."""
        return self.writer is None or self.writer.first < self.to


def examine_upgrade(
    fs: FileSystem, directories: Sequence[DirectoryFacts], settings: DirectorySettings, upgrade: Upgrade
) -> Iterator[Diagnosis]:
    """Yields what the upgrade would do to the log directories of one broker. `settings` are those of the first one."""
    if not upgrade.is_one:
        return
    if upgrade.to >= WITHOUT_ZOOKEEPER and not any(map(has_metadata_log, directories)):
        yield from _from_zookeeper(directories)
    metadata = next((one.around.metadata for one in directories if one.around.metadata), settings.metadata)
    if metadata is not None:
        yield from _metadata_version(directories[0], metadata, upgrade)
        yield from _topic_keys(directories[0], metadata, upgrade)
        yield from _small_segments(directories[0], metadata, upgrade)
    gone = removed_from_brokers(settings.other_keys, upgrade.to)
    if gone:
        message = f"Kafka {upgrade.to} no longer has {_listed(gone)}"
        yield directories[0].diagnosis("BROKER_KEYS_REMOVED", settings.file or "server.properties", message)
    if upgrade.to >= WITHOUT_ZOOKEEPER:
        for directory in directories:
            yield from _old_formats(fs, directory)


def _from_zookeeper(directories: Sequence[DirectoryFacts]) -> Iterator[Diagnosis]:
    """Yields what becomes of a broker's directories whose topics only ZooKeeper knows.

    A directory without a cluster.id is refused (META_PROPERTIES_INVALID) before anything is renamed.
    """
    command = rebuild_command([directory.listing.path for directory in directories])
    for directory in directories:
        meta, served = directory.around.meta, directory.listing.live
        if meta is not None and is_of_zookeeper(meta) and meta.cluster_id is not None and served:
            message = f"broker {meta.node_id} of a cluster with ZooKeeper, which alone knows its topics"
            yield directory.diagnosis("ZOOKEEPER_UPGRADE", META_PROPERTIES, message, command=command, count=len(served))


def _metadata_version(directory: DirectoryFacts, metadata: ClusterMetadata, upgrade: Upgrade) -> Iterator[Diagnosis]:
    level = metadata.levels.get(METADATA_VERSION, 0)
    last = last_level(upgrade.to)
    if 0 < level < last:
        message = f"the cluster's metadata.version is {level_name(level)}; Kafka {upgrade.to} has {level_name(last)}"
        command = f"kafka-features.sh --bootstrap-server HOST:PORT upgrade --release-version {upgrade.to}"
        yield directory.diagnosis("METADATA_VERSION_STAYS", METADATA_PARTITION, message, command=command)


def _topic_keys(directory: DirectoryFacts, metadata: ClusterMetadata, upgrade: Upgrade) -> Iterator[Diagnosis]:
    for topic, values in sorted(metadata.topics.items()):
        gone = removed_from_topics(values, upgrade.to)
        if gone:
            message = f"the topic {topic} has {_listed(gone)}, which Kafka {upgrade.to} no longer has"
            names = ",".join(gone)
            command = f"kafka-configs.sh --bootstrap-server HOST:PORT --alter --topic {topic} --delete-config {names}"
            fields: dict[str, object] = {"command": command}
            if upgrade.to < _IGNORES_REMOVED_KEYS:
                fields |= {"gravity": Severity.DANGER, "broker": _LOCKED}
            yield directory.diagnosis("TOPIC_KEYS_REMOVED", METADATA_PARTITION, message, **fields)


def _small_segments(directory: DirectoryFacts, metadata: ClusterMetadata, upgrade: Upgrade) -> Iterator[Diagnosis]:
    """Yields the topics with a segment.bytes that older releases took (KIP-1030)."""
    least = key_named(_SEGMENT_BYTES).broker_minimum
    for topic, values in sorted(metadata.topics.items()):
        stated = values[_SEGMENT_BYTES].value if _SEGMENT_BYTES in values else ""
        if upgrade.to >= _REFUSES_SMALL_SEGMENTS and stated.isdecimal() and int(stated) < least:
            message = f"the topic {topic} has {_SEGMENT_BYTES}={stated}, less than {least:.0f}"
            added = f"--add-config {_SEGMENT_BYTES}={least:.0f}"
            command = f"kafka-configs.sh --bootstrap-server HOST:PORT --alter --topic {topic} {added}"
            yield directory.diagnosis("TOPIC_VALUE_REFUSED", METADATA_PARTITION, message, command=command)


def _old_formats(fs: FileSystem, directory: DirectoryFacts) -> Iterator[Diagnosis]:
    """Yields a diagnosis if segments begin with messages of format 0 or 1. A log's format only grows, but for a topic
    whose message.format.version was set back; so each segment's first batch is looked at.
    """
    found: dict[int, list[str]] = {}
    for partition in directory.listing.partitions:
        if partition.state.is_served and not partition.is_cluster_metadata:
            for magic in set(_magics(fs, partition)):
                found.setdefault(magic, []).append(str(partition.topic_partition))
    if found:
        names = "; ".join(f"format {magic}: {_listed(names)}" for magic, names in sorted(found.items()))
        message = f"segments begin with old messages ({names})"
        yield directory.diagnosis("OLD_MESSAGE_FORMAT", "", message)


def _magics(fs: FileSystem, partition: PartitionDirectory) -> list[int]:
    """Returns the old formats, one for each segment that begins with one. What cannot be read is said elsewhere."""
    found = []
    try:
        for segment in list_partition(fs, partition.path).segments:
            with fs.open(segment.log, "r") as file:
                magic = file.read_at(layout.HEADER_UP_TO_MAGIC - 1, 1)
            if magic in (b"\0", b"\1") and segment.size >= layout.HEADER_UP_TO_MAGIC:
                found.append(magic[0])
    except OSError:
        return []
    return found


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
