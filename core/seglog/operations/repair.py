"""Repairs partitions and log directories, or plans it (`seglog repair`).

1. Groups the paths into one job per log directory.
2. Locks the directory for the whole job and settles an unfinished run.
3. Verifies everything; the findings are the evidence for the plan.
4. Carries the plan out and verifies again. Planning alone takes no lock and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from seglog.configuration.keys import LogConfig
from seglog.configuration.settings import topic_of
from seglog.operations.undo import settle
from seglog.operations.workspace import Workspace
from seglog.repairs.plan import RepairOptions, RepairPlan
from seglog.repairs.repair import Examination, RepairOutcome, examination, plan_repair, repair
from seglog.repairs.undo.journal import RunRecord
from seglog.scan.listing import Target, TargetKind, list_log_directory, resolve_paths
from seglog.storage.filesystem import FileSystem
from seglog.storage.lock import DirectoryLock, partition_path
from seglog.units import count_text
from seglog.verification.findings import Finding


@dataclass(frozen=True)
class RepairJob:
    """The partitions to repair in one log directory; `whole` if the directory itself was named."""

    log_directory: Path
    partitions: tuple[Path, ...]
    whole: bool


@dataclass(frozen=True)
class PlannedRepair:
    """A planned repair: the damage (`before`) and the `plan` to repair it."""

    before: Examination
    plan: RepairPlan

    def __repr__(self) -> str:
        return f"<PlannedRepair {_place_of(self.plan)}: {_count_of(self.before)}; {len(self.plan.unrepaired)} remain>"


@dataclass(frozen=True)
class Repaired:
    """A finished repair: the damage `before` and `after` it, and its `outcome`, whose `run` is what `undo` takes."""

    before: Examination
    outcome: RepairOutcome
    after: Examination

    def __repr__(self) -> str:
        run = "" if self.outcome.run is None else f"; run {self.outcome.run.name}"
        return f"<Repaired {_place_of(self.outcome.plan)}: {_count_of(self.before)}, then {_count_of(self.after)}{run}>"

    @property
    def complete(self) -> bool:
        """True if no damage is left."""
        return self.outcome.complete and not self.after.damaged


def _place_of(plan: RepairPlan) -> str:
    return f"{plan.log_directory}, {count_text(len(plan.partitions), 'partition')}"


def _count_of(found: Examination) -> str:
    return f"{found.summary.errors} errors and {found.summary.warnings} warnings"


class RepairWatch:
    """Receives a repair's progress; this base class ignores it."""

    def settled(self, run: RunRecord) -> None:
        """Called after an unfinished run was finished or undone."""

    def found(self, finding: Finding) -> None:
        """Called for each finding before the repair."""

    def examining(self) -> AbstractContextManager[Callable[[int, int], None] | None]:
        """Entered while the first verification runs; yields a callback for (bytes done, bytes in all), or None."""
        return nullcontext()

    def examining_again(self) -> AbstractContextManager[Callable[[int, int], None] | None]:
        """The same for the verification after the repair."""
        return nullcontext()

    def repairing(self) -> AbstractContextManager[Callable[[int], None] | None]:
        """Entered while the repair runs; yields a callback for bytes done, or None."""
        return nullcontext()


def repair_jobs(fs: FileSystem, paths: Sequence[Path]) -> list[RepairJob]:
    """Returns one job per log directory, in the order of the paths. Raises ValueError for a file."""
    jobs: dict[Path, RepairJob] = {}
    for target in resolve_paths(fs, [partition_path(path) for path in paths]):
        job = _job_of(fs, target)
        known = jobs.get(job.log_directory, job)
        partitions = tuple(dict.fromkeys((*known.partitions, *job.partitions)))
        jobs[job.log_directory] = RepairJob(job.log_directory, partitions, known.whole or job.whole)
    return list(jobs.values())


def _job_of(fs: FileSystem, target: Target) -> RepairJob:
    if target.kind is TargetKind.LOG_DIRECTORY:
        found = list_log_directory(fs, target.path).partitions
        mine = tuple(each.path for each in found if each.state.is_served and not each.is_cluster_metadata)
        return RepairJob(target.path, mine, True)
    if target.kind is TargetKind.FILE:
        raise ValueError(
            f"{target.path}: a repair takes partition and log directories, as it changes a file's neighbours too"
        )
    return RepairJob(target.path.parent, (target.path,), False)


def plan_job(
    workspace: Workspace,
    job: RepairJob,
    config_of: Callable[[str], LogConfig],
    options: RepairOptions,
    watch: RepairWatch | None = None,
) -> PlannedRepair:
    """Plans a job; changes nothing."""
    before = _examined(workspace, job, watch or RepairWatch(), again=False)
    options = _with_intervals(job, config_of, options)
    plan = plan_repair(workspace.fs, workspace.clock, job.log_directory, job.partitions, before.findings, options)
    return PlannedRepair(before, plan)


def repair_job(
    workspace: Workspace,
    job: RepairJob,
    config_of: Callable[[str], LogConfig],
    options: RepairOptions,
    watch: RepairWatch | None = None,
) -> Repaired:
    """Repairs a job by the steps above.

    Raises LockedError if a broker or another seglog holds the lock, RefusedError before anything is changed.
    """
    watch, fs = watch or RepairWatch(), workspace.fs
    with DirectoryLock(job.log_directory):
        settle(fs, job.log_directory, watch.settled)
        before = _examined(workspace, job, watch, again=False)
        with watch.repairing() as progress:
            outcome = repair(
                fs,
                workspace.clock,
                job.log_directory,
                job.partitions,
                before.findings,
                _with_intervals(job, config_of, options),
                progress,
            )
        after = before if outcome.run is None else _examined(workspace, job, watch, again=True)
        return Repaired(before, outcome, after)


def _with_intervals(job: RepairJob, config_of: Callable[[str], LogConfig], options: RepairOptions) -> RepairOptions:
    topics = {path: topic_of(Target(path, TargetKind.PARTITION)) for path in job.partitions}
    intervals = {path.name: config_of(topic).index_interval_bytes for path, topic in topics.items() if topic}
    return replace(options, intervals=intervals)


def _examined(workspace: Workspace, job: RepairJob, watch: RepairWatch, *, again: bool) -> Examination:
    with watch.examining_again() if again else watch.examining() as progress:
        return examination(
            workspace.fs,
            workspace.clock,
            job.log_directory,
            job.partitions,
            whole=job.whole,
            jobs=workspace.threads,
            on_finding=None if again else watch.found,
            progress=progress,
        )
