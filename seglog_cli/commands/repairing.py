"""Repairs for `repair`: runs or plans them, shows the steps and the outcome, and chooses the exit code."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from seglog.units import count_text
from seglog_cli.console import Console
from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import exit_code_of, message_of
from seglog_cli.grouping import FindingsShown, Grouped
from seglog_cli.progress import bytes_text
from seglog_cli.session import Session
from seglog_cli.views.findings import look

if TYPE_CHECKING:
    from seglog.operations.repair import Repaired, RepairJob, RepairRequest, RepairWatch
    from seglog.repairs.plan import RepairPlan
    from seglog.repairs.repair import Examination, RepairOutcome
    from seglog.repairs.undo.journal import RunRecord
    from seglog.verification.findings import Finding

_PAST = {
    "cut": "cut",
    "excise": "excised",
    "reorder": "reordered",
    "gather": "gathered",
    "split": "split",
    "rebuild": "rebuilt",
    "remove": "removed",
    "move": "renamed",
    "set": "set",
    "mend": "mended",
    "note": "noted",
    "derive": "derived",
}


def repair_paths(session: Session, request: RepairRequest, shown: FindingsShown, dry_run: bool) -> ExitCode:
    """Repairs what the request names, or shows the plans; returns the exit code."""
    from seglog.operations.repair import repair_jobs

    jobs = repair_jobs(session.workspace("--config", "--set"), request, dry_run=dry_run)
    codes = [(_planned if dry_run else _repaired)(session, job, shown) for job in jobs]
    milder = (ExitCode.REPAIRED_IN_PART, ExitCode.INCOMPLETE, ExitCode.REPAIRED, ExitCode.FOUND, ExitCode.DONE)
    failures = sorted(set(codes).difference(milder), reverse=True)
    return next(code for code in (*failures, *milder) if code in codes)


def _planned(session: Session, job: RepairJob, shown: FindingsShown) -> ExitCode:
    from seglog.operations.repair import plan_job

    planned = plan_job(session.workspace("--now", "--jobs"), job, _watch(session, shown))
    show_plan(session.console, planned.plan)
    if not planned.plan.is_empty:
        session.offer_to_apply()
    if planned.plan.unopened or (planned.plan.is_empty and not planned.before.summary.complete):
        return ExitCode.INCOMPLETE
    return ExitCode.FOUND if planned.before.damaged or not planned.plan.is_empty else ExitCode.DONE


def _repaired(session: Session, job: RepairJob, shown: FindingsShown) -> ExitCode:
    from seglog.operations.repair import repair_job

    done = repair_job(session.workspace("--now", "--jobs"), job, _watch(session, shown))
    if done.outcome.run is not None:
        session.remember_run(done.outcome.run.folder)
    code = _exit_code(done)
    show_outcome(session.console, done.outcome, done.before, done.after, code)
    return code


def _exit_code(done: Repaired) -> ExitCode:
    if done.outcome.failure is not None:
        return exit_code_of(done.outcome.failure)  # nothing was repaired
    if done.outcome.plan.unopened or (done.outcome.run is None and not done.before.summary.complete):
        return ExitCode.INCOMPLETE
    if not done.complete:
        return ExitCode.REPAIRED_IN_PART
    return ExitCode.DONE if done.outcome.run is None else ExitCode.REPAIRED


def _watch(session: Session, shown: FindingsShown) -> RepairWatch:
    """Shows findings, progress, and runs that were settled."""
    from seglog.operations.repair import RepairWatch

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


def show_plan(console: Console, plan: RepairPlan) -> None:
    """Shows the steps of a plan, its costs, and what it does not repair."""
    rows = list(plan.rows())
    for row in rows:
        console.result(row, _step_text(console, row["action"], row))
    for sentence in plan.notes:
        console.warning(sentence)
    for sentence in plan.unrepaired:
        console.warning(f"stays: {sentence}")
    for sentence in plan.unopened:
        console.error(sentence)
    if not rows:
        console.message("nothing can be repaired" if plan.unrepaired or plan.unopened else "nothing to repair")
    elif not console.as_json:
        lost = sum(partition.removed_bytes for partition in plan.partitions)
        console.line(
            f"{count_text(len(rows), 'step')}; {bytes_text(lost)} of damage would go to the quarantine, and"
            f" {bytes_text(plan.bytes_needed)} of disk space is needed"
        )


def show_outcome(
    console: Console, outcome: RepairOutcome, before: Examination, after: Examination, code: ExitCode
) -> None:
    """Shows what a repair did, and what is still wrong."""
    run = None if outcome.run is None or outcome.failure is not None else outcome.run.name
    if run is not None:
        for row in outcome.plan.rows():
            console.result(row, _step_text(console, _PAST[row["action"]], row))
    for sentence in outcome.plan.notes:
        console.warning(sentence)
    if outcome.failure is not None:
        console.error(f"the repair failed and was taken back: {message_of(outcome.failure)}")
    for sentence in outcome.unrepaired:
        console.warning(f"stays: {sentence}")
    for sentence in outcome.plan.unopened:
        console.error(sentence)
    # A rebuilt checkpoint no longer shows which offsets are lost: what stays may be no finding afterwards.
    left = max(after.summary.errors + after.summary.warnings, len(outcome.unrepaired) + len(outcome.plan.unopened))
    if console.as_json:
        counts = dataclasses.asdict(before.summary)
        console.json({"type": "summary", "exit_code": int(code), "run": run, **counts, "remaining": left})
    elif run is not None:
        rest = "everything is repaired" if not left else f"{count_text(left, 'finding')} left"
        assert outcome.run is not None
        for sentence in _what_left(outcome.plan, outcome.run):
            console.line(sentence)
        console.line(f"{console.styled(rest, 'warning' if left else 'good')}; seglog undo {run} takes it back")
    elif not before.damaged and before.summary.complete and not left:
        console.line(console.styled("nothing wrong", "good"))


def _what_left(plan: RepairPlan, run: RunRecord) -> Iterator[str]:
    """Yields a sentence for each log that lost bytes: how many, which offsets, and where they are kept."""
    for partition in plan.partitions:
        if not partition.removed_bytes:
            continue
        known = [each for segment in partition.segments for each in segment.removed if each.first_offset is not None]
        first = min((each.first_offset for each in known if each.first_offset is not None), default=None)
        last = max((each.last_offset for each in known if each.last_offset is not None), default=first)
        between = "" if first is None else f", which claim offsets between {first} and {last},"
        yield (
            f"{bytes_text(partition.removed_bytes)}{between} are no longer in {partition.directory.name}, and are kept"
            f" in {run.folder}"
        )


def _step_text(console: Console, action: str, row: dict[str, Any]) -> str:
    subject = f"{row['partition']}/{row['file']}" if row["partition"] else row["file"]
    parts = [row["reason"]]
    if "position" in row:
        parts.append(
            f"position {row['position']}" + (f", {count_text(row['length'], 'byte')}" if "length" in row else "")
        )
        if row.get("first_offset") is not None:
            last = row["last_offset"]
            same = last is None or last == row["first_offset"]
            parts.append(f"offset {row['first_offset']}" if same else f"offsets {row['first_offset']} to {last}")
    if "before" in row:
        parts.append(_change_text(row["before"], row["after"]))
    if row.get("source"):
        parts.append(f"from {row['source']}")
    return f"{console.styled(action, 'strong')} {subject}: {', '.join(parts)}"


def _change_text(before: object, after: object) -> str:
    """Describes the change of a value; None: a checkpoint that is rewritten, or has no entry before or after."""
    if before is None:
        return "rewritten" if after is None else f"set to {after}"
    return f"{before} is removed" if after is None else f"{before} becomes {after}"
