"""Findings by directory, as a repair wants them: everything that `verify` can see of some partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from seglog.clock import Clock
from seglog.diagnosis.findings import Finding
from seglog.diagnosis.verify import Level, Progress, Verification, VerifyOptions
from seglog.log.listing import Target, TargetKind
from seglog.storage.filesystem import FileSystem


def examine(
    fs: FileSystem,
    clock: Clock,
    log_directory: Path,
    partitions: Sequence[Path],
    *,
    whole: bool = False,
    level: Level = Level.SEMANTIC,
    jobs: int = 1,
    told: Callable[[Finding], None] | None = None,
    progress: Progress | None = None,
) -> dict[Path, list[Finding]]:
    """Verifies `partitions` of a log directory, or with `whole` all of it and its checkpoints.

    `told` is called for each finding as it comes. Findings on the log directory's own files stand under its path.
    """
    if whole:
        targets = [Target(log_directory, TargetKind.LOG_DIRECTORY)]
    else:
        targets = [Target(directory, TargetKind.PARTITION) for directory in partitions]
    found: dict[Path, list[Finding]] = {log_directory: []}
    for each in Verification(fs, targets, VerifyOptions(level=level, jobs=jobs), clock, progress):
        found.setdefault(log_directory / each.partition if each.partition else log_directory, []).append(each)
        if told is not None:
            told(each)
    return found
