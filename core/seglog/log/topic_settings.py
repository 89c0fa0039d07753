"""The settings of one log directory: what the user gave, then what its own cluster metadata says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from seglog.config import LogConfig
from seglog.format.filenames import META_PROPERTIES, parse_partition_directory
from seglog.format.properties import parse_properties
from seglog.log.cluster_metadata import ClusterMetadata, StoredValue, read_cluster_metadata
from seglog.log.listing import Target, TargetKind
from seglog.settings import ResolvedConfig, Settings
from seglog.storage.filesystem import FileSystem


class DirectorySettings:
    """Topic and broker configuration for the partitions in `log_directory`.

    Call it with a topic to get its LogConfig (the `config_of` of LogDirectory). `chosen` are values that
    options of a command give, by Kafka's key. `problems` are sentences about metadata that could not be
    read.
    """

    def __init__(
        self,
        fs: FileSystem,
        log_directory: Path,
        given: Settings,
        chosen: Mapping[str, object] | None = None,
    ) -> None:
        self.metadata: ClusterMetadata | None = read_cluster_metadata(fs, log_directory)
        self.problems = () if self.metadata is None else tuple(self.metadata.problems)
        self._given, self._chosen = given, chosen
        self._brokers: dict[str, tuple[str, str]] = {}
        if self.metadata is not None:
            self._brokers = _stored(self.metadata.broker_values(_node_id(fs, log_directory)))

    def resolve(self, topic: str | None) -> ResolvedConfig:
        """Everything that counts for a topic, or with None for the broker alone, with its origins."""
        own = {} if self.metadata is None or topic is None else _stored(self.metadata.topic_values(topic))
        return self._given.resolve(topic, chosen=self._chosen, stored=own, stored_brokers=self._brokers)

    def __call__(self, topic: str) -> LogConfig:
        return self.resolve(topic).log


def topic_of(target: Target) -> str | None:
    """The topic of a partition that was named; None for a log directory."""
    if target.kind is TargetKind.LOG_DIRECTORY:
        return None
    name = target.directory.resolve().name
    found = parse_partition_directory(name)
    return name if found is None else found.topic_partition.topic


def _stored(values: Mapping[str, StoredValue]) -> dict[str, tuple[str, str]]:
    return {
        key: (stored.value, f"{stored.path.parent.name}/{stored.path.name} offset {stored.offset}")
        for key, stored in values.items()
    }


def _node_id(fs: FileSystem, log_directory: Path) -> int | None:
    """The node that owns the directory, by its `meta.properties`; None where it does not tell."""
    path = log_directory / META_PROPERTIES
    if fs.status(path) is None:
        return None
    try:
        text = parse_properties(fs.read_bytes(path)).get("node.id", "")
    except ValueError:
        return None  # the directory's own problem, which `doctor` tells
    return int(text) if text.isascii() and text.isdigit() else None
