"""The topic id in a `partition.metadata`, as Kafka prints it."""

from __future__ import annotations

from pathlib import Path

from seglog.format.checkpoint import parse_partition_metadata
from seglog.format.filenames import PARTITION_METADATA
from seglog.format.uuids import format_uuid
from seglog.storage.filesystem import FileSystem


def topic_id_in(fs: FileSystem, path: Path) -> str:
    """Reads it from a file. Raises OSError, RefusedError for a large file, and CorruptCheckpointError."""
    return topic_id_of(fs.read_bytes(path), path)


def topic_id_of_partition(fs: FileSystem, directory: Path) -> str | None:
    """Reads that of a partition directory, None if it has none. Raises as `topic_id_in` does."""
    path = directory / PARTITION_METADATA
    return None if fs.status(path) is None else topic_id_in(fs, path)


def topic_id_of(data: bytes, path: Path) -> str:
    """Reads it from the contents of `path`. Raises CorruptCheckpointError."""
    return format_uuid(parse_partition_metadata(data, path).topic_id)
