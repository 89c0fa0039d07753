"""What lies around the partitions of a log directory and speaks of them: checkpoints, identity, metadata, readers.

A partition's own files say what is there; these say what ought to be. They are read before the logs: a broker may
be at work, and what a checkpoint promised a moment ago its log has now. What is expensive is read when first asked
for, and once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from seglog.configuration.cluster_metadata import ClusterMetadata, read_cluster_metadata
from seglog.errors import CorruptCheckpointError, RefusedError, SeglogError
from seglog.evidence.committed_offsets import Committed, read_committed_offsets
from seglog.evidence.coordinator_replay import OFFSETS_TOPIC, SHARE_TOPIC
from seglog.evidence.transactions import TRANSACTION_TOPIC
from seglog.format import filenames
from seglog.format.checkpoint import MetaProperties, parse_meta_properties, parse_offset_checkpoint
from seglog.format.uuids import format_uuid
from seglog.model import TopicPartition
from seglog.scan.listing import OFFSET_CHECKPOINTS
from seglog.storage.filesystem import FileSystem

# Topics that Kafka makes compact when it makes them.
_COMPACT_TOPICS = {OFFSETS_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC}


@dataclass
class Surroundings:
    """Of the log directory `path`. `offsets` holds the checkpoints that could be read, by name, `damage` the others.

    `written_ms` is when a checkpoint was last written. `broker_files` says that a broker keeps the directory (its
    checkpoints are there), so that what they do not name was not there. `ask_readers` off leaves the groups' topics
    unread, which are larger than all the rest.
    """

    fs: FileSystem
    path: Path
    offsets: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    damage: dict[str, SeglogError] = field(default_factory=dict)
    written_ms: dict[str, int] = field(default_factory=dict)
    clean: bool = False
    meta: MetaProperties | None = None
    meta_damage: SeglogError | None = None
    ask_readers: bool = True

    @property
    def broker_files(self) -> bool:
        """Whether the checkpoints are here that every broker writes."""
        written = (filenames.RECOVERY_POINT_CHECKPOINT, filenames.HIGH_WATERMARK_CHECKPOINT)
        return any(name in self.offsets for name in written)

    @property
    def node_id(self) -> int | None:
        """The broker that owns the directory, by its `meta.properties`."""
        return None if self.meta is None else self.meta.node_id

    @property
    def directory_id(self) -> str | None:
        """Kafka's text form of the directory's own id."""
        known = None if self.meta is None else self.meta.directory_id
        return None if known is None else format_uuid(known)

    def offset(self, checkpoint: str, key: TopicPartition) -> int | None:
        """What a checkpoint says of a partition."""
        return self.offsets.get(checkpoint, {}).get(key)

    @property
    def named(self) -> set[TopicPartition]:
        """Every partition that the checkpoints name which a broker writes anew with all its partitions."""
        names = (filenames.RECOVERY_POINT_CHECKPOINT, filenames.HIGH_WATERMARK_CHECKPOINT)
        return {key for name in names for key in self.offsets.get(name, {})}

    @cached_property
    def metadata(self) -> ClusterMetadata | None:
        """The controller's log, if it lies here, with the assignments of partitions."""
        return read_cluster_metadata(self.fs, self.path, assignments=True)

    @cached_property
    def committed(self) -> Mapping[TopicPartition, Committed]:
        """What the readers of each partition have read, as far as their topics lie here and readers are asked."""
        if not self.ask_readers:
            return {}
        names = {} if self.metadata is None else {value: name for name, value in self.metadata.topic_ids.items()}
        return read_committed_offsets(self.fs, self.path, names.get)

    def compacted(self, topic: str) -> bool | None:
        """Whether the topic's policy compacts, None where nothing says it.

        A topic that the metadata knows without a policy of its own has the broker's, by default `delete`.
        """
        policy = self._policy(topic)
        return None if policy is None else "compact" in policy

    def deletes(self, topic: str) -> bool | None:
        """Whether the topic's policy deletes old segments, None where nothing says it."""
        policy = self._policy(topic)
        return None if policy is None else "delete" in policy

    def tiered(self, topic: str) -> bool | None:
        """Whether older segments may have moved to remote storage, None where nothing says it."""
        stated = self._topic_value(topic, "remote.storage.enable", "")
        if stated is None and (self.metadata is None or topic not in self.metadata.topic_ids):
            return None
        return (stated or "").lower() == "true"

    def _policy(self, topic: str) -> str | None:
        if topic in _COMPACT_TOPICS:
            return "compact"
        stated = self._topic_value(topic, "cleanup.policy", "log.cleanup.policy")
        if stated is None and self.metadata is not None and self.metadata.knows_topics:
            return "delete" if topic in self.metadata.topic_ids else None
        return stated

    def _topic_value(self, topic: str, key: str, broker_key: str) -> str | None:
        if self.metadata is None:
            return None
        own = self.metadata.topic_values(topic).get(key)
        stored = own or self.metadata.broker_values(self.node_id).get(broker_key)
        return None if stored is None else stored.value


def read_surroundings(fs: FileSystem, log_directory: Path, *, ask_readers: bool = True) -> Surroundings:
    """Reads the checkpoints and the identity of a log directory. Raises OSError other than for a missing file."""
    found = Surroundings(fs, log_directory, ask_readers=ask_readers)
    found.clean = fs.status(log_directory / filenames.CLEAN_SHUTDOWN_FILE) is not None
    for name in OFFSET_CHECKPOINTS:
        path = log_directory / name
        status = fs.status(path)
        if status is None or status.is_directory:
            continue
        try:
            found.offsets[name] = parse_offset_checkpoint(fs.read_bytes(path), path)
        except FileNotFoundError:
            continue
        except (CorruptCheckpointError, RefusedError) as error:
            found.damage[name] = error
        found.written_ms[name] = status.modified_ms
    path = log_directory / filenames.META_PROPERTIES
    if fs.status(path) is not None:
        try:
            found.meta = parse_meta_properties(fs.read_bytes(path), path)
        except (CorruptCheckpointError, RefusedError) as error:
            found.meta_damage = error
    return found
