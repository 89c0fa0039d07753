"""Repair plans, what became of them, and the runs in a quarantine, for people and as JSON lines."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from seglog.units import count_text
from seglog_cli.console import Console
from seglog_cli.failures import message_of
from seglog_cli.progress import bytes_text

if TYPE_CHECKING:
    from seglog.repairs.plan import RepairPlan
    from seglog.repairs.repair import Examination, RepairOutcome
    from seglog.runs.journal import RunRecord
    from seglog.salvage.salvage import SalvagedLog, SalvageReport
    from seglog_cli.exit_codes import ExitCode

_MISSING_SHOWN = 20
_LOG_FIELDS = (
    "batches",
    "bytes",
    "log_start_offset",
    "log_end_offset",
    "missing_offsets",
    "undecided",
    "contradicting",
)


def show_plan(console: Console, plan: RepairPlan) -> None:
    """The steps of a plan; what it leaves and what it costs."""
    rows = list(plan.rows())
    for row in rows:
        if console.as_json:
            console.json(row)
        else:
            console.line(f"{console.styled(row['action'], 'strong')} {_subject(row)}: {_details(row)}")
    for sentence in plan.notes:
        console.warning(sentence)
    for sentence in plan.unrepaired:
        console.warning(f"stays: {sentence}")
    if not rows:
        console.message("nothing to repair")
    elif not console.as_json:
        lost = sum(partition.removed_bytes for partition in plan.partitions)
        console.line(
            f"{count_text(len(rows), 'step')}; {bytes_text(lost)} of damage would go to the quarantine, and"
            f" {bytes_text(plan.bytes_needed)} of disk space is needed"
        )


def show_outcome(
    console: Console, outcome: RepairOutcome, before: Examination, after: Examination, code: ExitCode
) -> None:
    """What a repair did, and what is still wrong."""
    run = None if outcome.run is None or outcome.failure is not None else outcome.run.name
    if run is not None:
        for row in outcome.plan.rows():
            console.json(row) if console.as_json else console.line(_done(console, row))
    for sentence in outcome.plan.notes:
        console.warning(sentence)
    if outcome.failure is not None:
        console.error(f"the repair failed and was taken back: {message_of(outcome.failure)}")
    for sentence in outcome.unrepaired:
        console.warning(f"stays: {sentence}")
    if console.as_json:
        counts = dataclasses.asdict(before.summary)
        remaining = after.summary.errors + after.summary.warnings
        console.json({"type": "summary", "exit_code": int(code), "run": run, **counts, "remaining": remaining})
    elif run is not None:
        left = after.summary.errors + after.summary.warnings
        rest = "everything is repaired" if not left else f"{count_text(left, 'finding')} left"
        console.line(f"{console.styled(rest, 'warning' if left else 'good')}; seglog undo {run} takes it back")
    elif not before.damaged:
        console.line(console.styled("nothing wrong", "good"))


def show_runs(console: Console, runs: list[tuple[RunRecord, int]]) -> None:
    """The runs in a quarantine, oldest first, with the bytes that they hold."""
    for run, size in runs:
        if console.as_json:
            console.json({"type": "run", **_run_fields(run), "bytes": size})
            continue
        partitions = ", ".join(run.start.get("partitions", ())) or "-"
        count = count_text(len(run.changes), "file")
        console.line(f"{run.name}  {run.state.value}  {count}  {bytes_text(size)}  {run.log_directory}  {partitions}")
    if not runs and not console.as_json:
        console.message("no runs")


def show_run(console: Console, run: RunRecord, size: int) -> None:
    """One run and its changes."""
    if console.as_json:
        console.json({"type": "run", **_run_fields(run), "bytes": size})
        for change in run.changes:
            console.json({"type": "change", **dataclasses.asdict(change)})
        return
    started = datetime.fromtimestamp(run.start["started_ms"] / 1000, UTC).isoformat(timespec="seconds")
    console.line(f"{run.name}: {run.start['command']} of {run.log_directory}, {started}, {run.state.value}")
    console.line(f"folder {run.folder}, {bytes_text(size)}")
    for change in run.changes:
        sizes = " → ".join("none" if facts is None else str(facts.size) for facts in (change.before, change.after))
        origin = f" from {change.source}" if change.source else ""
        console.line(f"{change.kind} {change.path}{origin}: {sizes} bytes; {change.reason}")


def show_salvage(console: Console, report: SalvageReport, code: ExitCode) -> None:
    """What each source held, what became of it, and which offsets no source has."""
    for source in report.sources:
        fields: dict[str, Any] = {**dataclasses.asdict(source), "path": str(source.path)}
        if console.as_json:
            console.json({"type": "source", **fields})
        elif source.found:
            used = f"{source.used} of {count_text(source.found, 'batch')} used"
            console.line(f"{source.path.name}: {used}, {bytes_text(source.used_bytes)}")
        else:
            console.line(f"{source.path.name}: nothing good")
        if source.unreadable and not console.as_json:
            console.warning(f"{source.path}: not all of it could be read: {source.unreadable}")
    for log in report.logs:
        _show_log(console, log, several=len(report.logs) > 1)
    if console.as_json:
        first = report.logs[0]
        offsets = {"log_start_offset": first.log_start_offset, "log_end_offset": first.log_end_offset}
        counts = {"batches": report.batches, "bytes": sum(log.bytes for log in report.logs)}
        doubts = {"missing_offsets": report.missing_offsets, "undecided": report.undecided, "logs": len(report.logs)}
        of_one = offsets if len(report.logs) == 1 else {}
        console.json({"type": "summary", "exit_code": int(code), **counts, **of_one, **doubts})


def _show_log(console: Console, log: SalvagedLog, several: bool) -> None:
    name = {"log": log.directory.name} if several else {}
    if console.as_json:
        for first, last in log.missing:
            console.json({"type": "missing", **name, "first_offset": first, "last_offset": last})
        if several:
            fields = {each: getattr(log, each) for each in _LOG_FIELDS}
            console.json({"type": "log", "directory": str(log.directory), **fields})
        return
    where = f"{log.directory.name}: " if several else ""
    for first, last in log.missing[:_MISSING_SHOWN]:
        console.line(f"{where}missing: offsets {first} to {last}")
    if len(log.missing) > _MISSING_SHOWN:
        console.line(f"{where}missing: {len(log.missing) - _MISSING_SHOWN} more ranges (--json lists all)")
    console.line(
        f"{count_text(log.batches, 'batch')}, {bytes_text(log.bytes)}, offsets {log.log_start_offset} to"
        f" {log.log_end_offset} in {log.directory}; {log.missing_offsets} offsets are missing"
    )
    if log.undecided:
        console.warning(f"{where}it might be a part of another log here; --into-one joins what belongs together")
    if log.contradicting:
        console.warning(
            f"{where}{count_text(log.contradicting, 'good batch')} left out: the offsets contradict those of others"
        )


def _subject(row: dict[str, Any]) -> str:
    return f"{row['partition']}/{row['file']}" if row["partition"] else row["file"]


def _details(row: dict[str, Any]) -> str:
    parts = [row["reason"]]
    if "position" in row:
        parts.append(f"position {row['position']}" + (f", {row['length']} bytes" if "length" in row else ""))
        if row.get("first_offset") is not None:
            last = row["last_offset"]
            same = last is None or last == row["first_offset"]
            parts.append(f"offset {row['first_offset']}" if same else f"offsets {row['first_offset']} to {last}")
    if "before" in row:
        parts.append(_change_text(row["before"], row["after"]))
    if row.get("source"):
        parts.append(f"from {row['source']}")
    return ", ".join(parts)


def _change_text(before: object, after: object) -> str:
    """What becomes of a value; a checkpoint that is written anew, or has no entry before or after, has None."""
    if before is None:
        return "written anew" if after is None else f"set to {after}"
    return f"{before} is removed" if after is None else f"{before} becomes {after}"


_PAST = {
    "cut": "cut",
    "excise": "excised",
    "reorder": "reordered",
    "gather": "gathered",
    "rebuild": "rebuilt",
    "remove": "removed",
    "move": "renamed",
    "set": "set",
    "mend": "mended",
    "note": "noted",
    "derive": "derived",
}


def _done(console: Console, row: dict[str, Any]) -> str:
    return f"{console.styled(_PAST[row['action']], 'strong')} {_subject(row)}: {_details(row)}"


def _run_fields(run: RunRecord) -> dict[str, Any]:
    known = {name: run.start.get(name) for name in ("command", "log_directory", "started_ms", "policy", "partitions")}
    return {"run": run.name, "state": run.state.value, **known, "files": len(run.changes), "folder": str(run.folder)}
