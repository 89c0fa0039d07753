"""Findings for people: one line each, and a line that sums a verification up."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from seglog_cli.console import Console
from seglog_cli.progress import bytes_text

if TYPE_CHECKING:
    from seglog.evidence.findings import Finding
    from seglog.verification.verify import VerifySummary

_STYLES = {"error": "error", "warning": "warning", "info": "dim"}


def show_finding(console: Console, finding: Finding) -> None:
    """A finding as a line of data: JSON, or text with place and offsets."""
    if console.as_json:
        console.json(finding.as_dict())
    else:
        console.line(finding_text(console, finding))


def finding_text(console: Console, finding: Finding) -> str:
    """Such as `error CRC_MISMATCH orders-0/….log position 200, 100 bytes, offsets 106 to 108: …`."""
    severity = console.styled(finding.severity.value, _STYLES[finding.severity.value])
    file = f"{finding.partition}/{finding.file}" if finding.partition else finding.file
    return f"{severity} {finding.code} {file}{place_text(finding)}: {finding.message}"


def place_text(finding: Finding) -> str:
    """Where in the file, and which offsets, as far as the finding says."""
    parts = []
    if finding.position is not None:
        parts.append(f"position {finding.position}")
    if finding.length is not None:
        parts.append(f"{finding.length} bytes")
    if finding.first_offset is not None:
        last = finding.last_offset
        same = last is None or last == finding.first_offset
        parts.append(f"offset {finding.first_offset}" if same else f"offsets {finding.first_offset} to {last}")
    return " " + ", ".join(parts) if parts else ""


def show_summary(console: Console, summary: VerifySummary, exit_code: int) -> None:
    """What a verification looked at and found."""
    if console.as_json:
        console.json({"type": "summary", "exit_code": exit_code, **dataclasses.asdict(summary)})
        return
    seen = f"{summary.batches} batches, {summary.records} records, {bytes_text(summary.bytes)}"
    counts = ((summary.errors, "error"), (summary.warnings, "warning"), (summary.infos, "remark"))
    found = ", ".join(f"{n} {name}{'s' if n > 1 else ''}" for n, name in counts if n) or "nothing wrong"
    style = "error" if summary.errors else "warning" if summary.warnings else "good"
    lost = f"; {summary.lost_offsets} offsets lost at most" if summary.lost_offsets else ""
    part = "" if summary.complete else " (not everything was looked at)"
    console.line(f"{seen}: {console.styled(found, style)}{lost}{part}")
