"""What `verify --repair` does around the engine's repair: paths to log directories, findings before and after."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.grouping import FindingsShown, Grouped
from seglog_cli.quarantines import remember_run
from seglog_cli.session import Session

if TYPE_CHECKING:
    from seglog.repairs.findings_by_directory import Examination
    from seglog.repairs.plan import RepairOptions
    from seglog.repairs.repair import RepairOutcome
    from seglog.scan.listing import Target

PARTS = ("log", "index", "snapshot", "epochs", "checkpoint")
POLICIES = ("smallest-loss", "truncate", "excise")


@dataclass(frozen=True)
class Job:
    """The partitions to repair in one log directory; `whole` when the directory itself was named."""

    log_directory: Path
    partitions: tuple[Path, ...]
    whole: bool


def repair_options(policy: str, only: str | None, quarantine: Path | None) -> RepairOptions:
    """The options as the engine takes them; wrong usage for names that are none."""
    from seglog.repairs.plan import Part, Policy, RepairOptions
    from seglog_cli.options import one_of

    chosen = Policy(one_of("--policy", policy, POLICIES))
    names = PARTS if only is None else [name.strip() for name in only.split(",")]
    parts = frozenset(Part(one_of("--only", name, PARTS)) for name in names)
    return RepairOptions(policy=chosen, only=parts, quarantine=quarantine)


def repair_paths(
    session: Session, paths: Sequence[Path], options: RepairOptions, shown: FindingsShown, dry_run: bool
) -> ExitCode:
    """Repairs what the paths name, or shows the plans; returns the exit code."""
    codes = [_repaired(session, job, options, shown, dry_run) for job in jobs_of(session, paths)]
    order = (ExitCode.REPAIRED_IN_PART, ExitCode.INCOMPLETE, ExitCode.REPAIRED, ExitCode.FOUND)
    return next((code for code in order if code in codes), ExitCode.DONE)


def jobs_of(session: Session, paths: Sequence[Path]) -> list[Job]:
    """One job a log directory, in the order in which they were named."""
    from seglog.scan.listing import resolve_paths

    jobs: dict[Path, Job] = {}
    for target in resolve_paths(session.fs, [session.resolved(path) for path in paths]):
        job = _job_of(session, target)
        known = jobs.get(job.log_directory, job)
        partitions = tuple(dict.fromkeys((*known.partitions, *job.partitions)))
        jobs[job.log_directory] = Job(job.log_directory, partitions, known.whole or job.whole)
    return list(jobs.values())


def _job_of(session: Session, target: Target) -> Job:
    from seglog.scan.listing import TargetKind, list_log_directory

    if target.kind is TargetKind.LOG_DIRECTORY:
        found = list_log_directory(session.fs, target.path).partitions
        mine = tuple(each.path for each in found if each.state.is_served and not each.is_cluster_metadata)
        return Job(target.path, mine, True)
    if target.kind is TargetKind.FILE:
        raise UsageError(f"{target.path}: a repair takes partition and log directories, as a file's neighbours change")
    return Job(target.path.parent, (target.path,), False)


def _repaired(session: Session, job: Job, options: RepairOptions, shown: FindingsShown, dry_run: bool) -> ExitCode:
    from dataclasses import replace

    from seglog.configuration.topic_settings import topic_of
    from seglog.repairs.repair import plan_repair, repair
    from seglog.scan.listing import Target, TargetKind
    from seglog.storage.lock import DirectoryLock
    from seglog_cli.views.repair import show_outcome, show_plan

    config_of = session.config_of(job.log_directory)
    topics = {path: topic_of(Target(path, TargetKind.PARTITION)) for path in job.partitions}
    intervals = {path.name: config_of(topic).index_interval_bytes for path, topic in topics.items() if topic}
    options = replace(options, intervals=intervals)
    with nullcontext() if dry_run else DirectoryLock(job.log_directory):
        if not dry_run:
            settle(session, job.log_directory)
        before = _examined(session, job, shown)
        if dry_run:
            plan = plan_repair(session.fs, session.clock, job.log_directory, job.partitions, before.findings, options)
            show_plan(session.console, plan)
            return ExitCode.FOUND if before.damaged or not plan.is_empty else ExitCode.DONE
        with session.progress("repair") as progress:
            outcome = repair(
                session.fs,
                session.clock,
                job.log_directory,
                job.partitions,
                before.findings,
                options,
                progress=progress.advance,
                take_lock=False,
            )
        if outcome.run is not None:
            remember_run(session, outcome.run.folder)
        after = before if outcome.run is None else _examined(session, job)
        code = _exit_code(before, after, outcome)
        show_outcome(session.console, outcome, before, after, code)
        return code


def settle(session: Session, log_directory: Path) -> None:
    """Finishes or undoes the repair that was cut short in a log directory; the caller holds its lock."""
    from seglog.runs.apply import settle_pending

    settled = settle_pending(session.fs, log_directory)
    if settled is not None:
        remember_run(session, settled.folder)
        session.console.message(f"the repair {settled.name}, which was cut short, is {settled.state.value} now")


def settle_unfinished(session: Session, log_directory: Path) -> None:
    """The same for commands that write and do not hold the lock yet; does nothing when no repair was cut short."""
    from seglog.runs.quarantine import pending_run
    from seglog.storage.lock import DirectoryLock

    if pending_run(session.fs, log_directory) is not None:
        with DirectoryLock(log_directory):
            settle(session, log_directory)


def _exit_code(before: Examination, after: Examination, outcome: RepairOutcome) -> ExitCode:
    if outcome.rolled_back or outcome.unrepaired or after.damaged:
        return ExitCode.REPAIRED_IN_PART
    if outcome.run is not None:
        return ExitCode.REPAIRED
    return ExitCode.DONE if before.summary.complete else ExitCode.INCOMPLETE


def _examined(session: Session, job: Job, shown: FindingsShown | None = None) -> Examination:
    """What is wrong; with `shown`, the findings are shown."""
    from seglog.evidence.findings import Finding
    from seglog.repairs.findings_by_directory import examination
    from seglog_cli.views.findings import look

    findings = Grouped(session, look(session.console), shown or FindingsShown())
    with findings, session.progress("verify again" if shown is None else "verify") as progress:

        def told(found: Finding) -> None:
            progress.clear()
            findings.add(found)

        return examination(
            session.fs,
            session.clock,
            job.log_directory,
            job.partitions,
            whole=job.whole,
            jobs=session.threads,
            told=None if shown is None else told,
            progress=progress.update,
        )
