"""The driver's part of a round that tasks have worked out: take the staged files, check, swap (Kafka: replaceSegments).

1. Every group must have been staged exactly once, and every source must be the file that was planned.
2. The staged files are renamed into the partition directory as `.cleaned`, which a crash leaves to be thrown away.
3. `Log.replace_segments` puts them in place, lowest offsets first, as `clean_log` does.

Until step 2 nothing but the staging directory is there; what a crash leaves of it goes with the next round
(`make_staging`), which holds the log directory's lock and so knows that nobody works in it.
"""

from __future__ import annotations

import errno
import logging
import uuid
from collections.abc import Iterable
from pathlib import Path

from seglog.cleaner.output import CleanerStats, CleaningResult, SegmentSummary
from seglog.cleaner.round import RoundPlan
from seglog.clock import Clock
from seglog.errors import IncompleteError, RefusedError
from seglog.format.filenames import FileState
from seglog.log.log import Log
from seglog.log.segment import LogSegment
from seglog.log.swap import Replacement
from seglog.spark.cleaning_spec import RoundSpec, StagedGroup, TaskOutcome, check_unchanged, staged_groups
from seglog.storage import files
from seglog.storage.filesystem import FileSystem

_logger = logging.getLogger(__name__)

STAGING_PREFIX = ".seglog-clean-"
_SPACE_SLACK_BYTES = 16 << 20


def make_staging(fs: FileSystem, partition: Path) -> Path:
    """A new staging directory in a partition directory; those of rounds that died are removed. The lock is held."""
    for name in fs.list(partition):
        if name.startswith(STAGING_PREFIX):
            remove_tree(fs, partition / name)
    path = partition / f"{STAGING_PREFIX}{uuid.uuid4().hex[:12]}"
    fs.make_directory(path)
    return path


def remove_staging(fs: FileSystem, spec: RoundSpec) -> None:
    """Removes what attempts have left."""
    if fs.status(Path(spec.staging)) is not None:
        remove_tree(fs, Path(spec.staging))


def remove_tree(fs: FileSystem, directory: Path) -> None:
    """Removes a staging directory.

    An attempt that is told to stop only later may still write there: what it puts back meanwhile stays, and is logged.
    """
    try:
        files.remove_tree(fs, directory)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        _logger.warning("%s: a task still writes there; remove it later", directory)


def check_space(log: Log, plan: RoundPlan) -> None:
    """RefusedError unless the output has room even if nothing goes."""
    free, needed = log.fs.free_bytes(plan.directory), plan.source_bytes + _SPACE_SLACK_BYTES
    if free < needed:
        raise RefusedError(
            f"{plan.directory}: cleaning may write {needed} bytes before it can free any, and {free} are free;"
            " nothing was changed (`seglog clean` counts the output first)"
        )


def finish_round(log: Log, spec: RoundSpec, outcomes: Iterable[TaskOutcome], clock: Clock) -> CleaningResult:
    """Swaps what tasks have staged. Raises a task's error, IncompleteError or RefusedError with the log as it was."""
    stats = CleanerStats(clock)
    staged = staged_groups(spec, outcomes, stats, "changed")
    replaced = _sources(log, spec)
    with stats.phase("swap"):
        cleaned = [_adopted(log.fs, spec, group) for group in staged]
        log.replace_segments([Replacement(new, old) for new, old in zip(cleaned, replaced, strict=True)])
    remove_staging(log.fs, spec)
    stats.all_done()
    summaries = [summary for group in staged for summary in group.summaries]
    return CleaningResult.of(spec.plan, stats, summaries, dry_run=False)


def _sources(log: Log, spec: RoundSpec) -> list[list[LogSegment]]:
    """The log's own segments, group by group. RefusedError when they are not the ones that were read."""
    known = {segment.base_offset: segment for segment in log.segments}
    replaced: list[list[LogSegment]] = []
    for begin, end in spec.plan.groups:
        bases = spec.plan.bases[begin:end]
        for base in bases:
            if base not in known:
                raise RefusedError(f"{spec.plan.directory}: the log changed while it was cleaned; nothing was changed")
            check_unchanged(log.fs, known[base].path, spec.sources[base])
        replaced.append([known[base] for base in bases])
    return replaced


def _adopted(fs: FileSystem, spec: RoundSpec, group: StagedGroup) -> list[LogSegment]:
    """The staged segments, moved into the partition directory as `.cleaned`."""
    staging, directory = Path(group.directory), spec.plan.directory
    for name in fs.list(staging):
        fs.rename(staging / name, directory / name)
    return [_arrived(fs, spec, summary) for summary in group.summaries]


def _arrived(fs: FileSystem, spec: RoundSpec, summary: SegmentSummary) -> LogSegment:
    segment = LogSegment(
        fs,
        spec.plan.directory,
        summary.base_offset,
        index_interval_bytes=spec.plan.bounds.index_interval_bytes,
        state=FileState.CLEANED,
    )
    if segment.size != summary.size:
        raise IncompleteError(
            f"{segment.path}: {segment.size} bytes arrived of {summary.size}; do all executors share this file system?"
        )
    return segment
