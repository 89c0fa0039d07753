"""Which partitions of a broker are stored by the brokers that lead them (`seglog backup --leaders`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seglog.configuration.cluster_metadata import read_cluster_metadata
from seglog.errors import RefusedError
from seglog.format import filenames
from seglog.model import TopicPartition
from seglog.storage.filesystem import FileSystem
from seglog_stores.formats.snapshot_manifest import StoredDirectory


def led_elsewhere(fs: FileSystem, directories: Sequence[StoredDirectory]) -> set[TopicPartition]:
    """Returns the partitions on a broker's log directories that another broker leads, by the newest of their metadata.

    Raises RefusedError if none has it, or if a directory does not tell whose it is. A partition without a leader, or of
    which the metadata does not know, is not among them.
    """
    nodes = {directory.node_id for directory in directories}
    if len(nodes) != 1 or None in nodes:
        raise RefusedError(
            "--leaders needs the log directories of one broker, each with its node.id in meta.properties"
        )
    (node_id,) = (node for node in nodes if node is not None)
    known = [read_cluster_metadata(fs, Path(directory.path), assignments=True) for directory in directories]
    images = sorted((each for each in known if each is not None), key=lambda image: image.end_offset)
    if not images:
        raise RefusedError(
            f"leaders are not known: none of {', '.join(directory.path for directory in directories)} has the cluster's"
            f" metadata, {filenames.CLUSTER_METADATA_TOPIC}-0; name metadata.log.dir, too"
        )
    assigned = images[-1].assigned_to(node_id)
    return {key for key, _, assignment in assigned if assignment.leader not in (node_id, -1)}
