"""What `verify --repair` shows of a repair, and its exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from seglog_cli.completing import PARTS
from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError, exit_code_of
from seglog_cli.grouping import FindingsShown, Grouped
from seglog_cli.quarantines import remember_run
from seglog_cli.session import Session

if TYPE_CHECKING:
    from seglog.evidence.findings import Finding
    from seglog.operations.repair import Repaired, RepairJob, RepairWatch
    from seglog.repairs.plan import RepairOptions
    from seglog.runs.journal import RunRecord

POLICIES = ("smallest-loss", "truncate", "excise")


def repair_options(policy: str, only: str | None, quarantine: Path | None) -> RepairOptions:
    """The options as the engine takes them; wrong usage for names that are none."""
    from seglog.repairs.plan import Policy, RepairOptions, RepairPart
    from seglog_cli.options import one_of

    chosen = Policy(one_of("--policy", policy, POLICIES))
    names = PARTS if only is None else [name.strip() for name in only.split(",")]
    parts = frozenset(RepairPart(one_of("--only", name, PARTS)) for name in names)
    return RepairOptions(policy=chosen, only=parts, quarantine=quarantine)


def repair_paths(
    session: Session, paths: Sequence[Path], options: RepairOptions, shown: FindingsShown, dry_run: bool
) -> ExitCode:
    """Repairs what the paths name, or shows the plans; returns the exit code."""
    from seglog.operations.repair import repair_jobs

    try:
        jobs = repair_jobs(session.fs, paths)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if dry_run:
        session.warn_of_runs(paths)
    codes = [(_planned if dry_run else _repaired)(session, job, options, shown) for job in jobs]
    milder = (ExitCode.REPAIRED_IN_PART, ExitCode.INCOMPLETE, ExitCode.REPAIRED, ExitCode.FOUND, ExitCode.DONE)
    failures = sorted(set(codes).difference(milder), reverse=True)
    return next(code for code in (*failures, *milder) if code in codes)


def _planned(session: Session, job: RepairJob, options: RepairOptions, shown: FindingsShown) -> ExitCode:
    from seglog.operations.repair import plan_job
    from seglog_cli.views.repair import show_plan

    config_of = session.config_of(job.log_directory)
    found = plan_job(session.workspace("--now", "--jobs"), job, config_of, options, _watch(session, shown))
    show_plan(session.console, found.plan)
    if not found.plan.is_empty:
        session.offer_to_apply()
    return ExitCode.FOUND if found.before.damaged or not found.plan.is_empty else ExitCode.DONE


def _repaired(session: Session, job: RepairJob, options: RepairOptions, shown: FindingsShown) -> ExitCode:
    from seglog.operations.repair import repair_job
    from seglog_cli.views.repair import show_outcome

    config_of = session.config_of(job.log_directory)
    done = repair_job(session.workspace("--now", "--jobs"), job, config_of, options, _watch(session, shown))
    if done.outcome.run is not None:
        remember_run(session, done.outcome.run.folder)
    code = _exit_code(done)
    show_outcome(session.console, done.outcome, done.before, done.after, code)
    return code


def _exit_code(done: Repaired) -> ExitCode:
    if done.outcome.failure is not None:
        return exit_code_of(done.outcome.failure)  # nothing is repaired
    if not done.complete:
        return ExitCode.REPAIRED_IN_PART
    if done.outcome.run is not None:
        return ExitCode.REPAIRED
    return ExitCode.DONE if done.before.summary.complete else ExitCode.INCOMPLETE


def _watch(session: Session, shown: FindingsShown) -> RepairWatch:
    """Shows findings and progress, and says what was settled."""
    from seglog.operations.repair import RepairWatch
    from seglog_cli.views.findings import look

    findings = Grouped(session, look(session.console), shown)

    class Shown(RepairWatch):
        def settled(self, run: RunRecord) -> None:
            session.settled(run)

        def found(self, finding: Finding) -> None:
            self._progress.clear()
            findings.add(finding)

        @contextmanager
        def examining(self) -> Iterator[Callable[[int, int], None]]:
            with findings, session.progress("verify") as self._progress:
                yield self._progress.update

        @contextmanager
        def examining_again(self) -> Iterator[Callable[[int, int], None]]:
            with session.progress("verify again") as progress:
                yield progress.update

        @contextmanager
        def repairing(self) -> Iterator[Callable[[int], None]]:
            with session.progress("repair") as progress:
                yield progress.advance

    return Shown()
