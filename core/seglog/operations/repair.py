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
from typing import Literal, TypedDict

from seglog.configuration.keys import LogConfig
from seglog.configuration.settings import topic_of
from seglog.errors import ArgumentError
from seglog.model import member
from seglog.operations.undo import settle
from seglog.operations.workspace import (
    CommonArguments,
    Location,
    Workspace,
    by_log_directory,
    optional_path,
    settings_of,
    text_list,
    warn_of_runs,
)
from seglog.repairs.plan import Policy, RepairOptions, RepairPart, RepairPlan
from seglog.repairs.repair import Examination, RepairOutcome, examination, plan_repair, repair
from seglog.repairs.undo.journal import RunRecord
from seglog.repairs.undo.quarantine import quarantine_of
from seglog.scan.listing import Target, TargetKind, list_log_directory, resolve_paths
from seglog.storage.lock import DirectoryLock, partition_path
from seglog.units import count_text
from seglog.verification.findings import Finding


class RepairKeywords(TypedDict, total=False):
    """The keyword arguments of `seglog.repair`: the fields of `RepairRequest`."""

    policy: Literal["smallest-loss", "truncate", "excise"]
    only: str | Sequence[str] | None
    quarantine: Location | None


class RepairArguments(RepairKeywords, CommonArguments, total=False):
    """Those of `seglog.repair`, and those of every function."""


@dataclass(frozen=True, slots=True)
class RepairRequest:
    """What to repair and how, as the user said it. `only` names parts, as a list or separated by commas."""

    paths: tuple[Path, ...]
    policy: str = Policy.SMALLEST_LOSS.value
    only: str | Sequence[str] | None = None
    quarantine: Location | None = None

    @property
    def options(self) -> RepairOptions:
        """How to repair. Raises ArgumentError or TypeError for a bad value."""
        names = text_list("only", self.only)
        parts = RepairPart if names is None else (member(RepairPart, name, "only") for name in names)
        quarantine = optional_path("quarantine", self.quarantine)
        return RepairOptions(member(Policy, self.policy, "policy"), frozenset(parts), quarantine)


@dataclass(frozen=True)
class RepairJob:
    """The partitions to repair in one log directory, and how; `whole` if the directory itself was named."""

    log_directory: Path
    partitions: tuple[Path, ...]
    whole: bool
    options: RepairOptions


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
    return f"{count_text(found.summary.errors, 'error')} and {count_text(found.summary.warnings, 'warning')}"


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
        """Entered while the second verification runs; yields a callback for (bytes done, bytes in all), or None."""
        return nullcontext()

    def repairing(self) -> AbstractContextManager[Callable[[int], None] | None]:
        """Entered while the repair runs; yields a callback for bytes done, or None."""
        return nullcontext()


def repair_jobs(work: Workspace, request: RepairRequest, *, dry_run: bool = False) -> list[RepairJob]:
    """Returns one job per log directory, in the order of the paths; for a dry run, warns of unfinished runs.

    Raises ArgumentError for a file, and for a bad value.
    """
    options = request.options
    if dry_run:
        warn_of_runs(work, request.paths)
    targets, jobs = resolve_paths(work.fs, [partition_path(path) for path in request.paths]), []
    for target in targets:
        if target.kind is TargetKind.FILE:
            why = "a repair takes partition and log directories, as it changes a file's neighbours too"
            raise ArgumentError("", f"{target.path}: {why}")
    for place in by_log_directory(targets):
        listed = list_log_directory(work.fs, place.log_directory).partitions if place.whole else ()
        served = (each.path for each in listed if each.state.is_served and not each.is_cluster_metadata)
        partitions = tuple(dict.fromkeys((*place.partitions, *served)))
        jobs.append(RepairJob(place.log_directory, partitions, place.whole, options))
    return jobs


def plan_job(workspace: Workspace, job: RepairJob, watch: RepairWatch | None = None) -> PlannedRepair:
    """Plans a job; changes nothing."""
    config_of = settings_of(workspace, job.log_directory)
    _require_quarantine(workspace, job)
    before = _examined(workspace, job, watch or RepairWatch(), again=False)
    options = _with_intervals(job, config_of)
    plan = plan_repair(workspace.fs, workspace.clock, job.log_directory, job.partitions, before.findings, options)
    return PlannedRepair(before, plan)


def repair_job(workspace: Workspace, job: RepairJob, watch: RepairWatch | None = None) -> Repaired:
    """Repairs a job by the steps above.

    Raises LockedError if a broker or another seglog holds the lock, RefusedError before anything is changed.
    """
    watch, fs, config_of = watch or RepairWatch(), workspace.fs, settings_of(workspace, job.log_directory)
    _require_quarantine(workspace, job)
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
                _with_intervals(job, config_of),
                progress,
            )
        after = before if outcome.run is None else _examined(workspace, job, watch, again=True)
        return Repaired(before, outcome, after)


def _require_quarantine(workspace: Workspace, job: RepairJob) -> None:
    """Raises RefusedError if a chosen quarantine cannot be there: before an hour of verification, not after it."""
    if job.options.quarantine is not None:
        quarantine_of(workspace.fs, job.log_directory, job.options.quarantine)


def _with_intervals(job: RepairJob, config_of: Callable[[str], LogConfig]) -> RepairOptions:
    topics = {path: topic_of(Target(path, TargetKind.PARTITION)) for path in job.partitions}
    intervals = {path.name: config_of(topic).index_interval_bytes for path, topic in topics.items() if topic}
    return replace(job.options, intervals=intervals)


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
