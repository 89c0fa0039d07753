"""Carries a plan out as one run over all partitions; a run cut short anywhere is finished or undone.

1. Check the room on the disk, and stage all new files (`staging`) and checkpoints.
2. Apply the run (`repairs.undo.apply`): the target's old files, which hold no data, go to its folder.
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
from seglog.progress import BytesRead
from seglog.repairs.undo.apply import apply_run, finish_run, take_back_after
from seglog.repairs.undo.journal import Change, RunRecord, read_journal
from seglog.repairs.undo.partition_state import Settings
from seglog.repairs.undo.prepare import prepare_run, require_one_file_system
from seglog.scan.listing import OFFSET_CHECKPOINTS
from seglog.storage.filesystem import FileSystem
from seglog_rescue.transplant.plan import PartitionPlan, TransplantPlan
from seglog_rescue.transplant.staging import stage_partition


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
        return [
            change
            for one in plan.pending
            for change in stage_partition(fs, clock, one, config_of(one.partition.topic), folder, progress)
        ]

    run, journal = prepare_run(
        fs,
        clock,
        plan.log_directory,
        stage,
        command="transplant",
        partitions=[str(one.partition) for one in plan.pending],
        bytes_needed=plan.bytes_needed,
        checkpoints=_checkpoints(plan),
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


def _checkpoints(plan: TransplantPlan) -> Settings:
    """Returns the new logs' entries in the checkpoints of a clean shutdown."""
    entries = {one.partition: _checkpoint_entries(one) for one in plan.pending}
    return {name: {key: own.get(name) for key, own in entries.items()} for name in OFFSET_CHECKPOINTS}


def _checkpoint_entries(plan: PartitionPlan) -> dict[str, int]:
    """Returns the partition's offset in each checkpoint that gets an entry.

    The whole log is on stable storage and was acknowledged. Its start is noted only if no segment's name shows it.
    Cleaning begins at the start.
    """
    entries = {filenames.RECOVERY_POINT_CHECKPOINT: plan.log_end, filenames.HIGH_WATERMARK_CHECKPOINT: plan.log_end}
    if plan.source.log_start > plan.source.segments[0].base_offset:
        entries[filenames.LOG_START_OFFSET_CHECKPOINT] = plan.source.log_start
    return entries
