"""Findings by directory, as a repair wants them: everything that `verify` can see of some partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from seglog.clock import Clock
from seglog.evidence.findings import Finding
from seglog.progress import DoneOfAll
from seglog.scan.listing import Target, TargetKind
from seglog.storage.filesystem import FileSystem
from seglog.verification.verify import Level, Verification, VerifyOptions, VerifySummary


@dataclass(frozen=True, slots=True)
class Examination:
    """`findings` by directory: those on a log directory's own files stand under its path."""

    findings: dict[Path, list[Finding]]
    summary: VerifySummary

    @property
    def damaged(self) -> bool:
        """Whether anything worse than a remark was found."""
        return self.summary.damaged


def examination(
    fs: FileSystem,
    clock: Clock,
    log_directory: Path,
    partitions: Sequence[Path],
    *,
    whole: bool = False,
    jobs: int = 1,
    on_finding: Callable[[Finding], None] | None = None,
    progress: DoneOfAll | None = None,
) -> Examination:
    """Verifies `partitions` of a log directory, or with `whole` all of it and its checkpoints.

    `on_finding` is called for each finding as it comes.
    """
    if whole:
        targets = [Target(log_directory, TargetKind.LOG_DIRECTORY)]
    else:
        targets = [Target(directory, TargetKind.PARTITION) for directory in partitions]
    found: dict[Path, list[Finding]] = {log_directory: []}
    verification = Verification(fs, targets, VerifyOptions(level=Level.SEMANTIC, jobs=jobs), clock, progress)
    for each in verification:
        found.setdefault(log_directory / each.partition if each.partition else log_directory, []).append(each)
        if on_finding is not None:
            on_finding(each)
    return Examination(found, verification.summary)
