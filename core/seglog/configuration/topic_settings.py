"""The settings of one log directory: what the user gave, and what the cluster's metadata says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from seglog.configuration.cluster_metadata import ClusterMetadata, StoredValue, read_cluster_metadata
from seglog.configuration.keys import LogConfig
from seglog.configuration.metadata_location import find_metadata, identity_of
from seglog.configuration.precedence import ResolvedConfig
from seglog.configuration.sources import Settings
from seglog.errors import ConfigError, SeglogError
from seglog.format.filenames import parse_partition_directory
from seglog.locations import parse_location
from seglog.scan.listing import Target, TargetKind
from seglog.storage.filesystem import FileSystem
from seglog.storage.links import name_of


class DirectorySettings:
    """Topic and broker configuration for the partitions in `log_directory`.

    Call it with a topic to get its LogConfig (the `config_of` of LogDirectory). `chosen` are values that
    options of a command give, by Kafka's key. `problems` are sentences about metadata that could not be
    read. With `override_policy` the user insists on what contradicts the metadata.
    """

    def __init__(
        self,
        fs: FileSystem,
        log_directory: Path,
        given: Settings,
        chosen: Mapping[str, object] | None = None,
        *,
        override_policy: bool = False,
    ) -> None:
        self._given, self._chosen, self._override_policy = given, chosen, override_policy
        broker = given.resolve(None, chosen=chosen).broker
        stated = _directory("metadata.log.dir", broker.metadata_log_dir) if broker.metadata_log_dir else None
        others = tuple(_directory("log.dirs", path) for path in broker.log_dirs)
        self._log_directory = log_directory
        self.metadata_directory = find_metadata(fs, log_directory, stated, others)
        self.metadata: ClusterMetadata | None = None
        self._node: dict[str, tuple[str, str]] = {}
        self._cluster: dict[str, tuple[str, str]] = {}
        if self.metadata_directory is not None:
            self.metadata = read_cluster_metadata(fs, self.metadata_directory)
        if self.metadata is not None:
            node_id = identity_of(fs, log_directory).get("node.id", "")
            self._cluster = self._stored(self.metadata.broker_values())
            if node_id.isascii() and node_id.isdigit():
                self._node = self._stored(self.metadata.broker_values(int(node_id)))
        self.problems = () if self.metadata is None else tuple(self.metadata.problems)

    def resolve(self, topic: str | None) -> ResolvedConfig:
        """Everything that counts for a topic, or with None for the broker alone, with its origins."""
        own = {} if self.metadata is None or topic is None else self._stored(self.metadata.topic_values(topic))
        return self._given.resolve(
            topic,
            chosen=self._chosen,
            stored=own,
            stored_brokers=self._cluster,
            stored_node=self._node,
            listed=self._listed(topic),
            override_policy=self._override_policy,
        )

    def __call__(self, topic: str) -> LogConfig:
        return self.resolve(topic).log

    def _listed(self, topic: str | None) -> str:
        """Where the metadata lists the topic: its name; empty too where part of the metadata is missing."""
        metadata = self.metadata
        if metadata is None or metadata.problems or topic not in metadata.topic_ids:
            return ""
        return self._name_of(metadata.directory)

    def _stored(self, values: Mapping[str, StoredValue]) -> dict[str, tuple[str, str]]:
        return {
            key: (stored.value, f"{self._name_of(stored.path)} offset {stored.offset}")
            for key, stored in values.items()
        }

    def _name_of(self, path: Path) -> str:
        """A path within the metadata: from the log directory on, or whole where that is another one."""
        return str(path.relative_to(self._log_directory) if path.is_relative_to(self._log_directory) else path)


def topic_of(target: Target) -> str | None:
    """The topic of a partition that was named; None for a log directory."""
    if target.kind is TargetKind.LOG_DIRECTORY:
        return None
    name = name_of(target.directory)
    found = parse_partition_directory(name)
    return name if found is None else found.topic_partition.topic


def _directory(key: str, text: str) -> Path:
    try:
        return parse_location(text)
    except SeglogError as error:
        raise ConfigError(f"{key}: {error}") from error
