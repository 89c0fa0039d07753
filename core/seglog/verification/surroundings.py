"""The surroundings of a log directory's partitions: checkpoints, identity, cluster metadata, committed offsets.

A partition's own files show what exists; the surroundings show what should exist. They are read before the logs,
because under a running broker a log has by now what a checkpoint promised a moment ago. Expensive ones are read once,
on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from seglog.configuration.cluster_metadata import ClusterMetadata, read_cluster_metadata
from seglog.configuration.precedence import KAFKAS_OWN_TOPICS, POLICY
from seglog.doors import door
from seglog.errors import CorruptCheckpointError, RefusedError, SeglogError
from seglog.format import filenames
from seglog.format.checkpoint import MetaProperties, parse_meta_properties, parse_offset_checkpoint
from seglog.format.uuids import format_uuid
from seglog.model import TopicPartition
from seglog.scan.listing import OFFSET_CHECKPOINTS
from seglog.storage.filesystem import FileSystem

_COMPLETE_CHECKPOINTS = (filenames.RECOVERY_POINT_CHECKPOINT, filenames.HIGH_WATERMARK_CHECKPOINT)


@dataclass(frozen=True, slots=True)
class Committed:
    """A group has read everything below `offset`."""

    group: str
    offset: int
    share: bool = False


@dataclass
class Surroundings:
    """The surroundings in the log directory `path`.

    `offsets` holds the readable checkpoints by name, `damage` the errors of the others, `written_ms` when each was last
    written, `unread` the errors of files that could not be read (only if `read_surroundings` was to go on). Without
    `ask_readers` the group topics are not read, which are larger than all the rest. `foreseen` is the cluster metadata
    that a start would leave, if it would cut the controller's log. `owner` is the node that the directory belongs to,
    where `meta.properties` names another one, with which no start gets as far as to the partitions.
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
    foreseen: ClusterMetadata | None = None
    unread: dict[str, OSError] = field(default_factory=dict)
    owner: int | None = None

    @property
    def broker_files(self) -> bool:
        """True if the checkpoints exist that every broker writes. What they do not name was not in the directory."""
        return any(name in self.offsets for name in _COMPLETE_CHECKPOINTS)

    @property
    def node_id(self) -> int | None:
        """The id of the broker that owns the directory, by `meta.properties` unless that is known to be wrong."""
        stated = None if self.meta is None else self.meta.node_id
        return stated if self.owner is None else self.owner

    @property
    def directory_id(self) -> str | None:
        """The directory's own id, in Kafka's text form."""
        known = None if self.meta is None else self.meta.directory_id
        return None if known is None else format_uuid(known)

    def offset(self, checkpoint: str, key: TopicPartition) -> int | None:
        """Returns a partition's offset in a checkpoint, None if it has none."""
        return self.offsets.get(checkpoint, {}).get(key)

    @property
    def named(self) -> set[TopicPartition]:
        """The partitions named by the checkpoints that a broker always writes with all its partitions."""
        return {key for name in _COMPLETE_CHECKPOINTS for key in self.offsets.get(name, {})}

    @property
    def metadata(self) -> ClusterMetadata | None:
        """The cluster metadata with the assignments of partitions, if the controller's log is in this directory."""
        return self.foreseen or self._stored_metadata

    @cached_property
    def _stored_metadata(self) -> ClusterMetadata | None:
        return read_cluster_metadata(self.fs, self.path, assignments=True)

    @cached_property
    def committed(self) -> Mapping[TopicPartition, Committed]:
        """The greatest committed offset of each partition, from the group topics in this directory; empty without
        `ask_readers`.
        """
        if not self.ask_readers:
            return {}
        names = {} if self.metadata is None else {value: name for name, value in self.metadata.topic_ids.items()}
        committed: Mapping[TopicPartition, Committed] = door("committed offsets")(self.fs, self.path, names.get)
        return committed

    def compacted(self, topic: str) -> bool | None:
        """True if the topic's policy compacts, None if the policy is unknown.

        A topic in the metadata without a policy of its own has the broker's policy, by default `delete`.
        """
        policy = self._policy(topic)
        return None if policy is None else "compact" in policy

    def deletes(self, topic: str) -> bool | None:
        """True if the topic's policy deletes old segments, None if the policy is unknown."""
        policy = self._policy(topic)
        return None if policy is None else "delete" in policy

    def tiered(self, topic: str) -> bool | None:
        """True if older segments may have moved to remote storage, None if that is unknown."""
        stated = self._topic_value(topic, "remote.storage.enable", "")
        if stated is None and (self.metadata is None or topic not in self.metadata.topic_ids):
            return None
        return (stated or "").lower() == "true"

    def _policy(self, topic: str) -> str | None:
        if topic in KAFKAS_OWN_TOPICS:
            return KAFKAS_OWN_TOPICS[topic][POLICY]
        stated = self._topic_value(topic, POLICY, "log.cleanup.policy")
        if stated is None and self.metadata is not None and self.metadata.knows_topics:
            return "delete" if topic in self.metadata.topic_ids else None
        return stated

    def _topic_value(self, topic: str, key: str, broker_key: str) -> str | None:
        if self.metadata is None:
            return None
        own = self.metadata.topic_values(topic).get(key)
        stored = own or self.metadata.broker_values(self.node_id).get(broker_key)
        return None if stored is None else stored.value


def read_surroundings(
    fs: FileSystem,
    log_directory: Path,
    *,
    ask_readers: bool = True,
    goes_on: Callable[[OSError], bool] = lambda _error: False,
) -> Surroundings:
    """Reads the checkpoints and the identity of a log directory. Raises OSError, except for a missing file and where
    `goes_on` is true of it.
    """
    found = Surroundings(fs, log_directory, ask_readers=ask_readers)
    found.clean = fs.status(log_directory / filenames.CLEAN_SHUTDOWN_FILE) is not None
    for name in (*OFFSET_CHECKPOINTS, filenames.META_PROPERTIES):
        try:
            _read_small_file(found, name)
        except OSError as error:
            if not goes_on(error):
                raise
            found.unread[name] = error
    return found


def _read_small_file(found: Surroundings, name: str) -> None:
    fs, path = found.fs, found.path / name
    status = fs.status(path)
    if status is None:
        return
    if status.no_file:
        no_file = CorruptCheckpointError(path, f"{status.no_file}, not a file")
        if name == filenames.META_PROPERTIES:
            found.meta_damage = no_file
        elif status.is_special:  # such a directory is not a partition's, and is reported as that
            found.damage[name] = no_file
        return
    if name == filenames.META_PROPERTIES:
        try:
            found.meta = parse_meta_properties(fs.read_bytes(path), path)
        except (CorruptCheckpointError, RefusedError) as error:
            found.meta_damage = error
        return
    try:
        found.offsets[name] = parse_offset_checkpoint(fs.read_bytes(path), path)
    except FileNotFoundError:
        return
    except (CorruptCheckpointError, RefusedError) as error:
        found.damage[name] = error
    found.written_ms[name] = status.modified_ms
