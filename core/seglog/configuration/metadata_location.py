"""Which directory holds the cluster's metadata for a log directory (Kafka: metadata.log.dir).

A broker with several `log.dirs` keeps `__cluster_metadata-0` in only one of them. Looked at, in this order:

1. The directory that was stated (`metadata.log.dir`, `--metadata-dir`).
2. The log directory itself.
3. The other `log.dirs` that were stated, directories beside it, and those of its name beside its parent
   (`/data1/kafka`, `/data2/kafka`): only one of the same cluster, the same node and another directory id by its
   `meta.properties`, and owned by the log directory's owner or by root, because what it says decides what is deleted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from seglog.errors import ConfigError, RefusedError
from seglog.format.filenames import CLUSTER_METADATA_TOPIC, META_PROPERTIES
from seglog.format.properties import parse_properties
from seglog.storage.filesystem import FileSystem

METADATA_PARTITION = f"{CLUSTER_METADATA_TOPIC}-0"

_ROOT = 0
_MOST_NEIGHBOURS = 1024
_PROPERTIES_LIMIT = 1 << 16


def identity_of(fs: FileSystem, log_directory: Path) -> dict[str, str]:
    """`cluster.id`, `node.id`, `directory.id` … by `meta.properties`; empty where it cannot be read."""
    path = log_directory / META_PROPERTIES
    status = fs.status(path)
    if status is None or status.is_directory:
        return {}
    try:
        return parse_properties(fs.read_bytes(path, _PROPERTIES_LIMIT))
    except (ValueError, OSError, RefusedError):
        return {}  # the directory's own problem, which `doctor` reports


def find_metadata(fs: FileSystem, log_directory: Path, stated: Path | None, others: Sequence[Path] = ()) -> Path | None:
    """The log directory whose `__cluster_metadata-0` speaks for `log_directory`; None when there is none.

    `others` are the broker's other `log.dirs`, as far as they are known. ConfigError when there is no metadata in
    `stated`, RefusedError when it is another cluster's.
    """
    if stated is not None:
        return _stated(fs, log_directory, stated)
    if _has_metadata(fs, log_directory):
        return log_directory
    own = identity_of(fs, log_directory)
    if not own.get("cluster.id") or not own.get("node.id"):
        return None
    candidates = dict.fromkeys((*others, *_neighbours(fs, log_directory)))
    return next((path for path in candidates if _is_sibling(fs, log_directory, own, path)), None)


def _stated(fs: FileSystem, log_directory: Path, stated: Path) -> Path:
    found = stated.parent if stated.name == METADATA_PARTITION else stated
    if not _has_metadata(fs, found):
        raise ConfigError(f"metadata.log.dir: there is no {METADATA_PARTITION} in {found}")
    own, theirs = (identity_of(fs, path).get("cluster.id") for path in (log_directory, found))
    if own and theirs and own != theirs:
        raise RefusedError(
            f"{found}: this is the metadata of cluster {theirs}, but {log_directory} belongs to cluster {own}"
        )
    return found


def _has_metadata(fs: FileSystem, log_directory: Path) -> bool:
    status = fs.status(log_directory / METADATA_PARTITION)
    return status is not None and status.is_directory


def _neighbours(fs: FileSystem, log_directory: Path) -> Iterator[Path]:
    parent = log_directory.parent
    yield from (parent / name for name in _names(fs, parent))
    yield from (parent.parent / name / log_directory.name for name in _names(fs, parent.parent))


def _names(fs: FileSystem, directory: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return fs.list(directory)[:_MOST_NEIGHBOURS]
    return []


def _is_sibling(fs: FileSystem, log_directory: Path, own: dict[str, str], path: Path) -> bool:
    try:
        if path == log_directory or not _has_metadata(fs, path):
            return False
        owners = {status.owner for status in map(fs.status, (path, path / METADATA_PARTITION)) if status is not None}
        directory = fs.status(log_directory)
    except OSError:
        return False
    if directory is None or not owners <= {directory.owner, _ROOT}:
        return False
    theirs = identity_of(fs, path)
    same = all(own[key] == theirs.get(key) for key in ("cluster.id", "node.id"))
    return same and own.get("directory.id") != theirs.get("directory.id")
