"""Obstacles that stop a broker from opening a partition or a log directory although its logs are whole.

They are unreadable small files, and names without the offset that they should have. Recovering, cleaning and deleting
do not need most of these files, so they report what a starting broker would (Kafka: LogManager.loadLog,
LogLoader.loadSegmentFiles, PartitionMetadataFile, LeaderEpochCheckpointFile, MetaPropertiesEnsemble).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from seglog.errors import CorruptionError, RefusedError
from seglog.format import filenames
from seglog.format.checkpoint import (
    CheckpointEndsError,
    CheckpointNumberError,
    parse_meta_properties,
    parse_offset_checkpoint,
    parse_partition_metadata,
)
from seglog.log.leader_epochs import LeaderEpochCache
from seglog.scan.listing import OFFSET_CHECKPOINTS
from seglog.storage.filesystem import FileSystem

NAMED_BY_OFFSET = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".cleaned", ".swap")
_NUMBER = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)


def is_offset(text: str) -> bool:
    """True if Java would parse the text as a long."""
    return _NUMBER.fullmatch(text) is not None and -(2**63) <= int(text) < 2**63


def partition_obstacles(fs: FileSystem, directory: Path) -> Iterator[str]:
    """Yields why a broker would not open the partition in `directory`, as sentences; nothing for a missing one."""
    found = fs.status(directory)
    if found is None or not found.is_directory:
        return
    metadata = directory / filenames.PARTITION_METADATA
    yield from _unreadable(fs, metadata, lambda path: parse_partition_metadata(fs.read_bytes(path), path))
    epochs = directory / filenames.LEADER_EPOCH_CHECKPOINT
    yield from _unreadable(fs, epochs, lambda path: LeaderEpochCache(fs, path.parent))
    for name, status in fs.entries(directory):
        if not status.is_directory and name.endswith(NAMED_BY_OFFSET) and not is_offset(name.partition(".")[0]):
            yield f"{directory / name}: the name is not an offset"


def directory_obstacles(fs: FileSystem, log_directory: Path) -> Iterator[str]:
    """Yields why a broker would not open the log directory, as sentences."""
    properties = log_directory / filenames.META_PROPERTIES
    yield from _unreadable(fs, properties, lambda path: parse_meta_properties(fs.read_bytes(path), path))
    for name in OFFSET_CHECKPOINTS:
        yield from _unreadable(fs, log_directory / name, lambda path: _read_checkpoint(fs, path))


def _read_checkpoint(fs: FileSystem, path: Path) -> None:
    try:
        parse_offset_checkpoint(fs.read_bytes(path), path)
    except CheckpointEndsError:
        return  # counts as empty for a broker
    except CheckpointNumberError as error:
        if path.name in (filenames.RECOVERY_POINT_CHECKPOINT, filenames.LOG_START_OFFSET_CHECKPOINT):
            return  # and this one too
        raise error


def _unreadable(fs: FileSystem, path: Path, read: Callable[[Path], object]) -> Iterator[str]:
    if fs.status(path) is None:
        return
    try:
        read(path)
    except (CorruptionError, RefusedError) as error:
        yield str(error)
    except OSError as error:
        yield f"{path}: {error.strerror or error}"
