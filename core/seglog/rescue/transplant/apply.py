"""Carries a plan out as one run over all partitions; a run cut short anywhere is finished or undone.

1. Check the room on the disk, and stage all new files (`staging`) and checkpoints.
2. Apply the run (`undo.apply`): the target's old files, which hold no data, go to its folder.
3. Read every file again; a failure undoes everything.

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
from seglog.progress import BytesRead
from seglog.repairs.undo.apply import apply_run, finish_run, take_back_after
from seglog.repairs.undo.journal import NEW, Change, RunRecord, read_journal
from seglog.repairs.undo.prepare import prepare_run, require_one_file_system
from seglog.repairs.undo.quarantine import facts_of
from seglog.rescue.transplant.plan import PartitionPlan, TransplantPlan
from seglog.rescue.transplant.staging import stage_partition
from seglog.storage.filesystem import Access, FileSystem

_CHECKPOINTS = (
    filenames.RECOVERY_POINT_CHECKPOINT,
    filenames.HIGH_WATERMARK_CHECKPOINT,
    filenames.LOG_START_OFFSET_CHECKPOINT,
    filenames.CLEANER_OFFSET_CHECKPOINT,
)


@dataclass(frozen=True, slots=True)
class TransplantOutcome:
    """The outcome of a plan. `undo` takes `run`, which is None if there was nothing to do; `failure` is the error that
    undid everything, None on success."""

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
    """Carries the plan out. RefusedError and OSError while staging leave the target unchanged."""
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
    """Stages the checkpoints of a clean shutdown with the new logs; skips files that would not change."""
    changes, staging = [], folder / NEW
    directory = fs.status(plan.log_directory)
    assert directory is not None
    entries = {one.partition: _checkpoint_entries(one) for one in plan.pending}
    for name in _CHECKPOINTS:
        path = plan.log_directory / name
        known = fs.status(path) is not None
        before = parse_offset_checkpoint(fs.read_bytes(path), path) if known else {}
        after = {key: offset for key, offset in before.items() if key not in entries}
        after |= {key: own[name] for key, own in entries.items() if name in own}
        if after == before:
            continue
        with fs.open(staging / name, "create_new") as file:
            file.give(Access.within(directory))
            file.write_at(0, format_offset_checkpoint(after))
            file.sync()
        if known:
            fs.copy_attributes(path, staging / name)
        changes.append(Change.of("replace", name, facts_of(fs, path), facts_of(fs, staging / name)))
    fs.sync_directory(staging)
    fs.sync_directory(folder)
    return changes


def _checkpoint_entries(plan: PartitionPlan) -> dict[str, int]:
    """Returns the partition's offset in each checkpoint that gets an entry.

    The whole log is on stable storage and was acknowledged. Its start is noted only if no segment's name shows it.
    Cleaning begins at the start.
    """
    entries = {filenames.RECOVERY_POINT_CHECKPOINT: plan.log_end, filenames.HIGH_WATERMARK_CHECKPOINT: plan.log_end}
    if plan.source.log_start > plan.source.segments[0].base_offset:
        entries[filenames.LOG_START_OFFSET_CHECKPOINT] = plan.source.log_start
    return entries
