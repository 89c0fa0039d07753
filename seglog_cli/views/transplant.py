"""A transplant, planned or done: the steps for each partition, what stays behind, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from seglog.units import count_text
from seglog_cli.console import Console
from seglog_cli.failures import message_of
from seglog_cli.progress import bytes_text

if TYPE_CHECKING:
    from seglog.transplant.apply import TransplantOutcome
    from seglog.transplant.plan import PartitionPlan, TransplantPlan
    from seglog_cli.exit_codes import ExitCode


def show_plan(console: Console, plan: TransplantPlan) -> None:
    """What would be done."""
    _partitions(console, plan, dry_run=True)
    if console.as_json:
        console.json({"type": "summary", "exit_code": 0, "run": None, **_counts(plan)})
    elif plan.pending:
        console.line(
            f"{_sentence(plan)} would be transplanted; {bytes_text(plan.bytes_needed)} of disk space is needed"
        )
    else:
        console.line("nothing to do: the target holds this data already")


def show_outcome(console: Console, outcome: TransplantOutcome, code: ExitCode) -> None:
    """What was done, and what the operator does next."""
    plan = outcome.plan
    run = None if outcome.run is None or outcome.failure is not None else outcome.run.name
    if outcome.failure is None:
        _partitions(console, plan, dry_run=False)
    if outcome.failure is not None:
        console.error(f"the transplant failed and was taken back: {message_of(outcome.failure)}")
    steps = _next_steps(plan, run) if run is not None else []
    if console.as_json:
        console.json({"type": "summary", "exit_code": int(code), "run": run, **_counts(plan), "next": steps})
    elif run is not None:
        console.line(console.styled(f"{_sentence(plan)} transplanted", "good"))
        console.line("next:")
        for number, step in enumerate(steps, 1):
            console.line(f"  {number}. {step}")
    elif outcome.failure is None:
        console.line("nothing to do: the target holds this data already")


def _partitions(console: Console, plan: TransplantPlan, *, dry_run: bool) -> None:
    for one in plan.partitions:
        if console.as_json:
            console.json(_row(one, dry_run))
            continue
        console.line(f"{console.styled(str(one.partition), 'strong')} from {one.source.directory}")
        for step in one.steps():
            console.line(f"  {step}")
    for path, reason in plan.left_out:
        if console.as_json:
            console.json({"type": "left_out", "path": path, "reason": reason})
        else:
            console.line(f"left out {path}: {reason}")
    for note in plan.notes:
        console.warning(note)


def _row(one: PartitionPlan, dry_run: bool) -> dict[str, Any]:
    source = one.source
    return {
        "type": "transplant",
        "partition": str(one.partition),
        "source": str(source.directory),
        "dry_run": dry_run,
        "already_there": one.done,
        "topic_id": one.target.topic_id,
        "log_start_offset": source.log_start,
        "log_end_offset": one.log_end,
        "segments": len(source.segments),
        "batches": source.batches,
        "bytes": source.size,
        "torn_bytes": source.torn_bytes,
        "leader_epochs_changed": source.changes.epochs,
        "producers_removed": source.changes.forgotten,
        "producers_moved": source.changes.moved,
        "transactions_ended": [
            {
                "producer_id": ending.transaction.producer_id,
                "first_offset": ending.transaction.first_offset,
                "records": ending.transaction.records,
                "marker": ending.marker,
                "offset": ending.offset,
                "reason": ending.why,
            }
            for ending in one.endings
        ],
        "steps": list(one.steps()),
        "notes": list(one.notes),
    }


def _counts(plan: TransplantPlan) -> dict[str, int]:
    committed = sum(ending.commit for ending in plan.endings)
    return {
        "partitions": len(plan.pending),
        "already_there": len(plan.partitions) - len(plan.pending),
        "bytes": sum(one.source.size for one in plan.pending),
        "transactions_aborted": len(plan.endings) - committed,
        "transactions_committed": committed,
    }


def _sentence(plan: TransplantPlan) -> str:
    counts = _counts(plan)
    aborted, committed = counts["transactions_aborted"], counts["transactions_committed"]
    ended = f", {count_text(aborted, 'open transaction')} ended by ABORT" if aborted else ""
    ended += f", {committed} by COMMIT" if committed else ""
    return f"{count_text(len(plan.pending), 'partition')}, {bytes_text(counts['bytes'])}{ended}:"


def _next_steps(plan: TransplantPlan, run: str) -> list[str]:
    first = plan.pending[0]
    return [
        f"start the broker of {plan.log_directory}; its log says of {first.partition}: logEndOffset={first.log_end}",
        "restart producers and consumers of the old cluster: what they remember of it does not hold in this one",
        "add replicas with kafka-reassign-partitions when the broker leads the partitions",
        f"until the broker has started, seglog undo {run} takes it back",
    ]
