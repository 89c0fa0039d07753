"""Diagnoses for people: what is there, what a broker does, what mends it; and a verdict."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from seglog_cli.console import Console
from seglog_cli.grouping import GRAVITIES, Group, Look
from seglog_cli.views.findings import show_group

if TYPE_CHECKING:
    from seglog.prognosis.doctor import Diagnosis, DoctorSummary

_STYLES = {"blocker": "error", "danger": "warning", "note": "dim"}


def look(console: Console) -> Look[Diagnosis]:
    """How diagnoses are shown."""

    def group(found: Group[Diagnosis]) -> None:
        """What the rows have alike, a broker's reaction or the command, is said once, below them."""
        first = found.first[0]
        same_broker = all(row.broker == first.broker for row in found.first)
        same_command = all(row.command == first.command for row in found.first)
        rows = []
        for row in found.first:
            rows.append(_placed(row))
            rows += [] if same_broker else [f"  broker: {row.broker}"]
            rows += [] if same_command or not row.command else [f"  mend:   {row.command}"]
        below = [f"broker: {first.broker}"] if same_broker else []
        below += [f"mend:   {first.command}"] if same_command and first.command else []
        show_group(console, found, rows, _STYLES, below)

    return Look(
        levels=GRAVITIES,
        level_of=lambda row: row.gravity.value,
        code_of=lambda row: row.code,
        one=lambda row: show_diagnosis(console, row),
        group=group,
    )


def show_diagnosis(console: Console, row: Diagnosis) -> None:
    """One JSON line, or up to three lines of text."""
    if console.as_json:
        console.json(row.as_dict())
        return
    gravity = console.styled(row.gravity.value, _STYLES[row.gravity.value])
    console.line(f"{gravity} {row.code} {_placed(row)}")
    console.line(f"  broker: {row.broker}")
    if row.command:
        console.line(f"  mend:   {row.command}")


def _placed(row: Diagnosis) -> str:
    place = "/".join(part for part in (row.partition or row.log_directory, row.file) if part)
    if row.partition and row.file == row.partition:
        place = row.partition
    where = "" if row.position is None else f" position {row.position}"
    more = "" if row.count < 2 else f" (and {row.count - 1} more)"
    return f"{place}{where}: {row.message}{more}"


def show_doctor_summary(console: Console, summary: DoctorSummary, exit_code: int) -> None:
    """The verdict."""
    if console.as_json:
        counts = dataclasses.asdict(summary)
        console.json({"type": "summary", "exit_code": exit_code, "loads": summary.loads, **counts})
        return
    if console.quiet:
        return
    verdict = "a broker would start" if summary.loads else "a broker would not start"
    counted = ((summary.blockers, "blocker"), (summary.dangers, "danger"), (summary.notes, "note"))
    found = ", ".join(f"{n} {name}{'s' if n > 1 else ''}" for n, name in counted if n) or "nothing wrong"
    style = "error" if summary.blockers else "warning" if summary.dangers else "good"
    partitions = "1 partition" if summary.partitions == 1 else f"{summary.partitions} partitions"
    console.line(f"{partitions}: {console.styled(verdict, style)}; {found}")
