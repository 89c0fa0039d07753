"""How many partitions a topic of the sources had: their metadata says it, or else their directories, at least.

A broker keeps `__cluster_metadata-0` in one of its log directories, and a controller has one of its own. So each source
of a cluster counts for all its other sources. A source without an identity (a copy that was restored) may belong to
any cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from seglog.configuration.cluster_metadata import ClusterMetadata, read_cluster_metadata
from seglog.configuration.settings import identity_of
from seglog.scan.listing import list_log_directory
from seglog.storage.filesystem import FileSystem


class SourceCounts:
    """The numbers of partitions that topics had in the clusters of these log directories; each is read once."""

    def __init__(self, fs: FileSystem, log_directories: Sequence[Path]) -> None:
        self._fs, self._paths = fs, tuple(dict.fromkeys(log_directories))

    def stated(self, topic: str, log_directory: Path) -> int | None:
        """Returns the number that the cluster's newest metadata has; None without metadata that knows the topic."""
        around = [self._metadata[path] for path in self._around(log_directory) if path in self._metadata]
        for metadata in sorted(around, key=lambda metadata: metadata.end_offset, reverse=True):
            topic_id = metadata.topic_ids.get(topic)
            count = 0 if topic_id is None else len(metadata.partitions.get(topic_id, {}))
            if count:
                return count
        return None

    def least(self, topic: str, log_directory: Path) -> int:
        """Returns the least number that the topic must have had, by the directories of the cluster's partitions."""
        return max(self._least[path].get(topic, 0) for path in self._around(log_directory))

    def _around(self, log_directory: Path) -> Iterator[Path]:
        """Yields the log directories that may be of the same cluster, itself among them."""
        own = self._clusters[log_directory]
        yield from (path for path, other in self._clusters.items() if not own or not other or own == other)

    @cached_property
    def _clusters(self) -> dict[Path, str]:
        return {path: identity_of(self._fs, path).get("cluster.id", "") for path in self._paths}

    @cached_property
    def _metadata(self) -> dict[Path, ClusterMetadata]:
        read = ((path, read_cluster_metadata(self._fs, path, assignments=True)) for path in self._paths)
        return {path: found for path, found in read if found is not None}

    @cached_property
    def _least(self) -> dict[Path, dict[str, int]]:
        found: dict[Path, dict[str, int]] = {}
        for path in self._paths:
            numbers = list_log_directory(self._fs, path).largest_numbers
            found[path] = {topic: number + 1 for topic, number in numbers.items()}
        return found
