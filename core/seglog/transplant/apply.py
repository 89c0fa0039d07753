"""Carrying a plan out, as one run over all partitions: what is cut short anywhere is finished or taken back.

1. Room on the disk is checked, and all new files are staged (`staging`) and the checkpoints with them.
2. The run is made as any other (`runs.apply`): the target's old files, which hold no data, go to its folder.
3. Every file is read again; a failure takes everything back.

The caller holds the log directory's lock from before the plan was made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from seglog.clock import Clock
from seglog.configuration.keys import LogConfig
from seglog.errors import SeglogError
from seglog.format import filenames
from seglog.format.checkpoint import format_offset_checkpoint, parse_offset_checkpoint
from seglog.model import TopicPartition
from seglog.progress import BytesRead
from seglog.runs.apply import apply_run, finish_run, take_back_after
from seglog.runs.journal import NEW, Change, RunRecord, read_journal
from seglog.runs.prepare import prepare_run, require_one_file_system
from seglog.runs.quarantine import facts_of
from seglog.storage.filesystem import Access, FileSystem
from seglog.transplant.plan import PartitionPlan, TransplantPlan
from seglog.transplant.staging import stage_partition


@dataclass(frozen=True, slots=True)
class TransplantOutcome:
    """What became of a plan. `run` is what `undo` takes, None when nothing was to be done; `failure` is why
    everything was taken back, None when it was not."""

    plan: TransplantPlan
    run: RunRecord | None
    failure: SeglogError | OSError | None = None


def carry_out(
    fs: FileSystem,
    clock: Clock,
    plan: TransplantPlan,
    config_of: Callable[[str], LogConfig],
    progress: BytesRead,
) -> TransplantOutcome:
    """Does what the plan says. RefusedError, OSError while staging leave the target as it was."""
    if not plan.pending:
        return TransplantOutcome(plan, None)
    require_one_file_system(fs, plan.log_directory, [one.target.directory for one in plan.pending])

    def stage(folder: Path) -> list[Change]:
        changes = [
            change
            for one in plan.pending
            for change in stage_partition(fs, clock, one, config_of(one.partition.topic), folder, progress)
        ]
        return changes + _stage_checkpoints(fs, plan, folder)

    run, journal = prepare_run(
        fs,
        clock,
        plan.log_directory,
        stage,
        command="transplant",
        partitions=[str(one.partition) for one in plan.pending],
        bytes_needed=plan.bytes_needed,
        quarantine=plan.quarantine,
        sources=[str(one.source.directory) for one in plan.pending],
    )
    try:
        apply_run(fs, run, journal)
        finish_run(fs, run, journal)
    except (SeglogError, OSError) as error:
        take_back_after(error, fs, run, journal)
        return TransplantOutcome(plan, read_journal(fs, run.folder), error)
    except KeyboardInterrupt as stop:
        take_back_after(stop, fs, run, journal)
        raise
    return TransplantOutcome(plan, read_journal(fs, run.folder))


def _stage_checkpoints(fs: FileSystem, plan: TransplantPlan, folder: Path) -> list[Change]:
    """The checkpoints as after an orderly stop with the new logs; files that would not change are left alone."""
    changes, staging = [], folder / NEW
    around = fs.status(plan.log_directory)
    assert around is not None
    for name, entry_of in _ENTRIES.items():
        path = plan.log_directory / name
        known = fs.status(path) is not None
        before = parse_offset_checkpoint(fs.read_bytes(path), path) if known else {}
        after: dict[TopicPartition, int] = dict(before)
        for one in plan.pending:
            offset = entry_of(one)
            after.pop(one.partition, None)
            if offset is not None:
                after[one.partition] = offset
        if after == before:
            continue
        with fs.open(staging / name, "create_new") as file:
            file.give(Access.within(around))
            file.write_at(0, format_offset_checkpoint(after))
            file.sync()
        if known:
            fs.copy_attributes(path, staging / name)
        changes.append(Change.of("replace", name, facts_of(fs, path), facts_of(fs, staging / name)))
    fs.sync_directory(staging)
    fs.sync_directory(folder)
    return changes


def _log_end(plan: PartitionPlan) -> int:
    """All of it is on stable storage, and was acknowledged."""
    return plan.log_end


def _log_start(plan: PartitionPlan) -> int | None:
    """Only a start that no segment's name says."""
    start = plan.source.log_start
    return start if start > plan.source.segments[0].base_offset else None


def _nothing(_plan: PartitionPlan) -> None:
    """Cleaning begins at the start."""


_ENTRIES: dict[str, Callable[[PartitionPlan], int | None]] = {
    filenames.RECOVERY_POINT_CHECKPOINT: _log_end,
    filenames.HIGH_WATERMARK_CHECKPOINT: _log_end,
    filenames.LOG_START_OFFSET_CHECKPOINT: _log_start,
    filenames.CLEANER_OFFSET_CHECKPOINT: _nothing,
}
