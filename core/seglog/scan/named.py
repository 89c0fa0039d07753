"""What a user named, by log directory: partitions one by one, or the directory itself. Each path is resolved once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from seglog.errors import NotALogError
from seglog.scan.listing import Target, TargetKind
from seglog.storage import links
from seglog.storage.lock import partition_path


@dataclass(frozen=True, slots=True)
class NamedLogs:
    """What was named in one log directory: `partitions` one by one, each once, and with `whole` the directory itself.

    Paths are resolved (`partition_path`).
    """

    log_directory: Path
    partitions: tuple[Path, ...]
    whole: bool


def by_log_directory(targets: Iterable[Target], no_file: str = "") -> list[NamedLogs]:
    """Groups targets by log directory, in their order. A file counts as its partition, or with `no_file` is a
    NotALogError with this text.
    """
    named: dict[Path, dict[Path, None]] = {}
    whole: set[Path] = set()
    for target in targets:
        if no_file and target.kind is TargetKind.FILE:
            raise NotALogError(target.path, no_file)
        if target.kind is TargetKind.LOG_DIRECTORY:
            log_directory = links.resolve(target.path)
            named.setdefault(log_directory, {})
            whole.add(log_directory)
        else:
            partition = partition_path(target.directory)
            named.setdefault(partition.parent, {})[partition] = None
    return [NamedLogs(path, tuple(partitions), path in whole) for path, partitions in named.items()]
