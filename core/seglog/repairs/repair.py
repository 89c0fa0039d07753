"""`verify --repair`: plan, stage, journal, apply, verify; what fails is taken back.

1. The directory's `.lock` is taken for the whole run; a run that was cut short is finished or undone first.
2. The plan is made (`planner`), its need of disk space checked.
3. New files are staged and synced in the run's folder (`rebuild`), the journal says what will change (`journal`).
4. The changes are made (`apply`) and every file is read again; a failure takes everything back.

What is left is a directory as after an orderly stop: whether a broker finds the clean-shutdown marker or not, it
loads the log without cutting anything. The marker itself stays as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from seglog.clock import Clock
from seglog.errors import RefusedError, SeglogError
from seglog.evidence.findings import Finding
from seglog.evidence.segment_survey import SegmentSurveyor
from seglog.progress import BytesRead
from seglog.repairs.checkpoints import plan_checkpoints, stage_checkpoints
from seglog.repairs.plan import PartitionPlan, Policy, RepairOptions, RepairPlan
from seglog.repairs.planner import plan_partition
from seglog.repairs.rebuild import PartitionBuilder
from seglog.runs.apply import apply_run, finish_run, settle_pending, take_back_after
from seglog.runs.journal import Change, Journal, RunRecord, read_journal
from seglog.runs.prepare import prepare_run, require_one_file_system
from seglog.storage.filesystem import FileSystem
from seglog.storage.lock import DirectoryLock
from seglog.storage.room import room_for_indexes, salvaging


@dataclass(frozen=True, slots=True)
class RepairOutcome:
    """What a repair did. `run` is what `undo` takes, None when nothing was to be done.

    `failure` is why everything was taken back, None when it was not; `unrepaired` says what stays wrong.
    """

    plan: RepairPlan
    run: RunRecord | None
    unrepaired: tuple[str, ...]
    failure: SeglogError | OSError | None = None

    @property
    def complete(self) -> bool:
        """Whether all of the damage is mended."""
        return not self.unrepaired and self.failure is None


def plan_repair(
    fs: FileSystem,
    clock: Clock,
    log_directory: Path,
    partitions: Sequence[Path],
    findings: Mapping[Path, Sequence[Finding]] | None,
    options: RepairOptions,
    progress: BytesRead | None = None,
) -> RepairPlan:
    """What repairing these partitions of a log directory would do; only looks.

    `findings` are those of each partition directory, and of the log directory itself under its own path; None
    suspects every file. RefusedError for what no repair may touch.
    """
    plans = tuple(
        plan_partition(
            fs, clock, directory, None if findings is None else findings.get(directory, ()), options, progress
        )
        for directory in partitions
    )
    own = None if findings is None else findings.get(log_directory, ())
    checkpoints = plan_checkpoints(fs, log_directory, plans, own, options)
    needed = sum(_bytes_needed(fs, plan) for plan in plans)
    return RepairPlan(log_directory, options, plans, tuple(checkpoints), needed)


def repair(
    fs: FileSystem,
    clock: Clock,
    log_directory: Path,
    partitions: Sequence[Path],
    findings: Mapping[Path, Sequence[Finding]] | None = None,
    options: RepairOptions | None = None,
    *,
    progress: BytesRead | None = None,
    take_lock: bool = True,
) -> RepairOutcome:
    """Repairs partitions of a log directory (absolute paths); see the steps above.

    LockedError when a broker or another seglog is at work; RefusedError before anything is changed when there is
    not enough disk space or no place for a quarantine. OSError or SeglogError while staging leaves the log alone.
    """
    options = RepairOptions() if options is None else options
    with DirectoryLock(log_directory) if take_lock else nullcontext():
        if settle_pending(fs, log_directory) is not None:
            findings = None  # they speak of files that the settled run has changed
        plan = plan_repair(fs, clock, log_directory, partitions, findings, options, progress)
        return apply_plan(fs, clock, plan, progress)


def apply_plan(fs: FileSystem, clock: Clock, plan: RepairPlan, progress: BytesRead | None = None) -> RepairOutcome:
    """Carries a plan out; the caller holds the directory's lock and changed nothing since it was made."""
    if plan.is_empty:
        return RepairOutcome(plan, None, plan.unrepaired)
    require_one_file_system(fs, plan.log_directory, [partition.directory for partition in plan.partitions])
    run, journal = prepare_run(
        fs,
        clock,
        plan.log_directory,
        lambda folder: _stage(fs, clock, plan, folder, progress),
        command="repair",
        partitions=[partition.directory.name for partition in plan.partitions if not partition.is_empty],
        bytes_needed=plan.bytes_needed,
        quarantine=plan.options.quarantine,
        way_out=salvaging(plan.log_directory),
        policy=plan.options.policy.value,
    )
    return _carried_out(fs, plan, run, journal)


def _stage(fs: FileSystem, clock: Clock, plan: RepairPlan, folder: Path, progress: BytesRead | None) -> list[Change]:
    changes = []
    for partition in plan.partitions:
        if not partition.is_empty:
            changes += PartitionBuilder(fs, clock, partition, plan.options, folder, progress).build()
    return changes + stage_checkpoints(fs, plan, folder)


def _carried_out(fs: FileSystem, plan: RepairPlan, run: RunRecord, journal: Journal) -> RepairOutcome:
    try:
        apply_run(fs, run, journal)
        _verify_logs(fs, plan)
        finish_run(fs, run, journal)
    except (SeglogError, OSError) as error:
        take_back_after(error, fs, run, journal)
        return RepairOutcome(plan, read_journal(fs, run.folder), plan.unrepaired, error)
    except KeyboardInterrupt as stop:
        take_back_after(stop, fs, run, journal)
        raise
    return RepairOutcome(plan, read_journal(fs, run.folder), plan.unrepaired)


def _verify_logs(fs: FileSystem, plan: RepairPlan) -> None:
    """The segments that were written must now be whole (a broker's recovery may leave more than it should)."""
    if plan.options.policy is Policy.TRUNCATE:
        return
    surveyor = SegmentSurveyor(fs, reorder=False, deep=False)
    for partition in plan.partitions:
        for segment in partition.segments:
            path = partition.directory / segment.name
            if path.suffix == ".log" and not surveyor.survey(path, segment.offsets).is_whole:
                raise RefusedError(f"{path} is damaged again after it was repaired: the disk may be failing")


def _bytes_needed(fs: FileSystem, plan: PartitionPlan) -> int:
    data = sum(
        segment.size_before - segment.size_after if segment.is_cut else segment.size_after for segment in plan.segments
    )
    rebuilt = {file.name.partition(".")[0] for file in plan.files if file.action == "rebuild"}
    logs = [fs.status(plan.directory / f"{stem}.log") for stem in rebuilt]
    return data + sum(room_for_indexes(status.size) for status in logs if status is not None)
