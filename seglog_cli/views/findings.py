"""Findings for people: one line each or grouped by code, and the summary line of a verification."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from seglog.units import count_text
from seglog_cli.console import Console
from seglog_cli.grouping import SEVERITIES, CodeGroup, RowLook
from seglog_cli.progress import bytes_text

if TYPE_CHECKING:
    from seglog.verification.findings import Finding
    from seglog.verification.verify import VerifySummary

_STYLES = {"error": "error", "warning": "warning", "info": "dim"}


def show_finding(console: Console, finding: Finding) -> None:
    """Shows a finding as JSON, or as text with place and offsets."""
    if console.as_json:
        console.json(finding.as_dict())
    elif console.screen is not None:
        severity = console.styled(finding.severity.value, _STYLES[finding.severity.value])
        console.lines([f"{severity} {console.styled(finding.code, 'strong')}", f"  {_placed(finding)}"])
    else:
        console.line(finding_text(console, finding))


def look(console: Console) -> RowLook[Finding]:
    def group(found: CodeGroup[Finding]) -> None:
        show_group(console, found, [_placed(one) for one in found.first], _STYLES)

    return RowLook(
        levels=SEVERITIES,
        level_of=lambda one: one.severity.value,
        code_of=lambda one: one.code,
        one=lambda one: show_finding(console, one),
        group=group,
    )


def show_group(
    console: Console, found: CodeGroup[Any], rows: Sequence[str], styles: Mapping[str, str], below: Sequence[str] = ()
) -> None:
    """Shows a heading with the count, the first rows, the number of further ones, and the lines `below`."""
    severity = console.styled(found.severity, styles[found.severity])
    more = [f"… and {found.more:,} more (--all)"] if found.more else []
    console.line(f"{severity} {console.styled(found.code, 'strong')}: {count_text(found.count, 'finding', ',')}")
    console.indented([*rows, *more, *below])


def finding_text(console: Console, finding: Finding) -> str:
    """Returns text such as `error CRC_MISMATCH orders-0/….log position 200, 100 bytes, offsets 106 to 108: …`."""
    severity = console.styled(finding.severity.value, _STYLES[finding.severity.value])
    return f"{severity} {finding.code} {_placed(finding)}"


def _placed(finding: Finding) -> str:
    file = f"{finding.partition}/{finding.file}" if finding.partition else finding.file
    return f"{file}{place_text(finding)}: {finding.message}"


def place_text(finding: Finding) -> str:
    """Returns the position in the file and the offsets, as far as the finding has them."""
    parts = []
    if finding.position is not None:
        parts.append(f"position {finding.position}")
    if finding.length is not None:
        parts.append(count_text(finding.length, "byte"))
    if finding.first_offset is not None:
        last = finding.last_offset
        same = last is None or last == finding.first_offset
        parts.append(f"offset {finding.first_offset}" if same else f"offsets {finding.first_offset} to {last}")
    return " " + ", ".join(parts) if parts else ""


def show_summary(console: Console, summary: VerifySummary, exit_code: int) -> None:
    """Shows what a verification read and found."""
    if console.as_json:
        console.json({"type": "summary", "exit_code": exit_code, **dataclasses.asdict(summary)})
        return
    if console.quiet:
        return
    seen = (
        f"{count_text(summary.batches, 'batch')}, {count_text(summary.records, 'record')}, {bytes_text(summary.bytes)}"
    )
    counts = ((summary.errors, "error"), (summary.warnings, "warning"), (summary.infos, "remark"))
    found = ", ".join(count_text(n, name) for n, name in counts if n) or "nothing wrong"
    style = "error" if summary.errors else "warning" if summary.warnings else "good"
    lost = f"; {count_text(summary.lost_offsets, 'offset')} lost at most" if summary.lost_offsets else ""
    part = "" if summary.complete else " (not everything was looked at)"
    console.line(f"{seen}: {console.styled(found, style)}{lost}{part}")
