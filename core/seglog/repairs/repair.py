"""Examines partitions for a repair, plans it and carries it out (`repair`).

1. `examination` collects everything that `verify` finds; `plan_repair` makes the plan (`planner`).
2. `repair` checks the disk space, stages and syncs new files in the run's folder (`rebuild`) and journals the changes.
3. It makes the changes (`undo.apply`) and reads every file again; a failure takes everything back.

Afterwards the directory is as after an orderly stop: with or without the clean-shutdown marker, which the repair leaves
as it was, a broker loads the log without cutting anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seglog.clock import Clock
from seglog.errors import IncompleteError, RefusedError, SeglogError
from seglog.log.opening import incomplete_without
from seglog.progress import BytesRead, DoneOfAll
from seglog.repairs.checkpoints import checkpoint_settings, plan_checkpoints
from seglog.repairs.plan import PartitionPlan, Policy, RepairOptions, RepairPlan
from seglog.repairs.planner import plan_partition
from seglog.repairs.rebuild import PartitionBuilder
from seglog.repairs.undo.apply import apply_run, finish_run, take_back_after
from seglog.repairs.undo.journal import Change, RunRecord, read_journal
from seglog.repairs.undo.prepare import prepare_run, require_one_file_system
from seglog.scan.listing import Target, TargetKind
from seglog.storage.filesystem import FileSystem
from seglog.storage.room import room_for_indexes, salvaging
from seglog.verification.findings import Finding
from seglog.verification.segment_survey import SegmentSurveyor
from seglog.verification.verify import Level, Verification, VerifyOptions, VerifySummary


@dataclass(frozen=True, slots=True)
class Examination:
    """The `findings` by directory; those on a log directory's own files are under its path."""

    findings: dict[Path, list[Finding]]
    summary: VerifySummary

    @property
    def damaged(self) -> bool:
        """True if anything worse than a remark was found."""
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
    """Verifies `partitions` of a log directory or, with `whole`, all of it and its checkpoints.

    Calls `on_finding` with each finding as soon as it is found.
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


@dataclass(frozen=True, slots=True)
class RepairOutcome:
    """The result of a repair.

    `run` is what `undo` takes, None if there was nothing to do. `failure` is the error for which everything was taken
    back, or None.
    """

    plan: RepairPlan
    run: RunRecord | None
    failure: SeglogError | OSError | None = None

    @property
    def unrepaired(self) -> tuple[str, ...]:
        """The damage that stays."""
        return self.plan.unrepaired

    @property
    def complete(self) -> bool:
        """True if all of the damage is repaired, and every partition could be opened."""
        return not self.unrepaired and not self.plan.unopened and self.failure is None


def plan_repair(
    fs: FileSystem,
    clock: Clock,
    log_directory: Path,
    partitions: Sequence[Path],
    findings: Mapping[Path, Sequence[Finding]] | None,
    options: RepairOptions,
    progress: BytesRead | None = None,
) -> RepairPlan:
    """Plans the repair of partitions of a log directory; changes nothing.

    `findings` maps each partition directory, and the log directory for its own files, to their findings; None suspects
    every file. A partition with a file that this user may not open is left out, and named in `unopened`. Raises
    RefusedError for a partition that no repair may touch.
    """
    plans: list[PartitionPlan] = []
    unopened: list[str] = []
    for directory in partitions:
        found = None if findings is None else findings.get(directory, ())
        try:
            with incomplete_without(directory, "; nothing is repaired in this partition"):
                plans.append(plan_partition(fs, clock, directory, found, options, progress))
        except IncompleteError as error:
            unopened.append(str(error))
    own = None if findings is None else findings.get(log_directory, ())
    checkpoints = plan_checkpoints(fs, log_directory, plans, own, options)
    needed = sum(_bytes_needed(fs, plan) for plan in plans)
    return RepairPlan(log_directory, options, tuple(plans), tuple(checkpoints), needed, tuple(unopened))


def repair(
    fs: FileSystem,
    clock: Clock,
    log_directory: Path,
    partitions: Sequence[Path],
    findings: Mapping[Path, Sequence[Finding]] | None = None,
    options: RepairOptions | None = None,
    progress: BytesRead | None = None,
) -> RepairOutcome:
    """Repairs partitions of a log directory (absolute paths) by the steps above; arguments as for `plan_repair`.

    The caller holds the directory's lock and has settled any unfinished run before it made the findings. Raises
    RefusedError, before it changes anything, if disk space or a place for a quarantine is missing. An OSError or
    SeglogError while staging leaves the log alone.
    """
    plan = plan_repair(fs, clock, log_directory, partitions, findings, options or RepairOptions(), progress)
    if plan.is_empty:
        return RepairOutcome(plan, None)
    changing = [partition for partition in plan.partitions if not partition.is_empty]
    require_one_file_system(fs, log_directory, partitions)

    def stage(folder: Path) -> list[Change]:
        builders = (PartitionBuilder(fs, clock, each, plan.options, folder, progress) for each in changing)
        return [change for builder in builders for change in builder.build()]

    run, journal = prepare_run(
        fs,
        clock,
        log_directory,
        stage,
        command="repair",
        partitions=[partition.directory.name for partition in changing],
        bytes_needed=plan.bytes_needed,
        checkpoints=checkpoint_settings(plan),
        quarantine=plan.options.quarantine,
        way_out=salvaging(log_directory),
        policy=plan.options.policy.value,
    )
    failure: SeglogError | OSError | None = None
    try:
        apply_run(fs, run, journal)
        _verify_logs(fs, plan)
        finish_run(fs, run, journal)
    except (SeglogError, OSError) as error:
        take_back_after(error, fs, run, journal)
        failure = error
    except KeyboardInterrupt as stop:
        take_back_after(stop, fs, run, journal)
        raise
    return RepairOutcome(plan, read_journal(fs, run.folder), failure)


def _verify_logs(fs: FileSystem, plan: RepairPlan) -> None:
    """Raises RefusedError if a rewritten segment is not whole. Skips policy `truncate`: a broker's recovery may leave
    damage."""
    if plan.options.policy is Policy.TRUNCATE:
        return
    surveyor = SegmentSurveyor(fs, reorder=False, deep=False)
    for partition in plan.partitions:
        for segment in partition.segments:
            path = partition.directory / segment.name
            if path.suffix == ".log" and not surveyor.survey(path, segment.offsets).is_whole:
                raise RefusedError(f"{path} is damaged again after its repair: the disk may be failing")


def _bytes_needed(fs: FileSystem, plan: PartitionPlan) -> int:
    data = sum(
        segment.size_before - segment.size_after if segment.is_cut else segment.size_after for segment in plan.segments
    )
    rebuilt = {file.name.partition(".")[0] for file in plan.files if file.action == "rebuild"}
    logs = [fs.status(plan.directory / f"{stem}.log") for stem in rebuilt]
    return data + sum(room_for_indexes(status.size) for status in logs if status is not None)
