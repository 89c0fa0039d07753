"""Repairing what paths name, or planning it: lock, runs that were cut short, findings before and after (`seglog verify
--repair`).

1. Paths become one job a log directory. 2. The directory is locked for the whole job, and a run that was cut short is
settled. 3. Everything that `verify` can see is the plan's evidence. 4. The plan is carried out, and what is left is
looked at again. A plan takes no lock and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from seglog.configuration.keys import LogConfig
from seglog.configuration.settings import topic_of
from seglog.evidence.findings import Finding
from seglog.operations.undo import settle
from seglog.operations.workspace import Workspace
from seglog.repairs.findings_by_directory import Examination, examination
from seglog.repairs.plan import RepairOptions, RepairPlan
from seglog.repairs.repair import RepairOutcome, plan_repair, repair
from seglog.runs.journal import RunRecord
from seglog.scan.listing import Target, TargetKind, list_log_directory, resolve_paths
from seglog.storage import links
from seglog.storage.filesystem import FileSystem
from seglog.storage.lock import DirectoryLock
from seglog.units import count_text


@dataclass(frozen=True)
class RepairJob:
    """The partitions to repair in one log directory; `whole` when the directory itself was named."""

    log_directory: Path
    partitions: tuple[Path, ...]
    whole: bool


@dataclass(frozen=True)
class PlannedRepair:
    """What a repair would do: `before` is what is wrong, `plan` what would be done about it."""

    before: Examination
    plan: RepairPlan

    def __repr__(self) -> str:
        return f"<PlannedRepair {_place_of(self.plan)}: {_count_of(self.before)}; {len(self.plan.unrepaired)} stay>"


@dataclass(frozen=True)
class Repaired:
    """What a repair did: `before` and `after` are what was and is wrong. `run` of the outcome is what `undo` takes."""

    before: Examination
    outcome: RepairOutcome
    after: Examination

    def __repr__(self) -> str:
        run = "" if self.outcome.run is None else f"; run {self.outcome.run.name}"
        return f"<Repaired {_place_of(self.outcome.plan)}: {_count_of(self.before)}, then {_count_of(self.after)}{run}>"

    @property
    def complete(self) -> bool:
        """Whether nothing is wrong any more."""
        return self.outcome.complete and not self.after.damaged


def _place_of(plan: RepairPlan) -> str:
    return f"{plan.log_directory}, {count_text(len(plan.partitions), 'partition')}"


def _count_of(found: Examination) -> str:
    return f"{found.summary.errors} errors and {found.summary.warnings} warnings"


class RepairWatch:
    """Hears what a repair is at; this one takes no notice."""

    def settled(self, run: RunRecord) -> None:
        """A run that was cut short is finished or undone."""

    def found(self, finding: Finding) -> None:
        """Something is wrong, before the repair."""

    def examining(self) -> AbstractContextManager[Callable[[int, int], None] | None]:
        """Findings are looked for; what is given is called with (bytes done, bytes in all)."""
        return nullcontext()

    def examining_again(self) -> AbstractContextManager[Callable[[int, int], None] | None]:
        """The same after the repair."""
        return nullcontext()

    def repairing(self) -> AbstractContextManager[Callable[[int], None] | None]:
        """The repair goes on; what is given is called with bytes done."""
        return nullcontext()


def repair_jobs(fs: FileSystem, paths: Sequence[Path]) -> list[RepairJob]:
    """One job a log directory, in the order in which they were named. ValueError for a file."""
    jobs: dict[Path, RepairJob] = {}
    for target in resolve_paths(fs, [links.resolve(path) for path in paths]):
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
        raise ValueError(f"{target.path}: a repair takes partition and log directories, as a file's neighbours change")
    return RepairJob(target.path.parent, (target.path,), False)


def plan_job(
    workspace: Workspace,
    job: RepairJob,
    config_of: Callable[[str], LogConfig],
    options: RepairOptions,
    watch: RepairWatch | None = None,
) -> PlannedRepair:
    """What `repair_job` would do now."""
    before = _examined(workspace, job, watch or RepairWatch(), again=False)
    settled = _with_intervals(job, config_of, options)
    plan = plan_repair(workspace.fs, workspace.clock, job.log_directory, job.partitions, before.findings, settled)
    return PlannedRepair(before, plan)


def repair_job(
    workspace: Workspace,
    job: RepairJob,
    config_of: Callable[[str], LogConfig],
    options: RepairOptions,
    watch: RepairWatch | None = None,
) -> Repaired:
    """Repairs; see the steps above. LockedError when a broker is at work, RefusedError before anything is changed."""
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
                progress=progress,
                take_lock=False,
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
