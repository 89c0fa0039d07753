"""Findings for people: one line each, and a line that sums them up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from seglog_cli.console import Console

if TYPE_CHECKING:
    from seglog.diagnosis.findings import Finding

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


def count_text(findings: Iterable[Finding]) -> str:
    """Such as `2 errors, 1 warning`; empty when there are none."""
    counts = Counter(finding.severity.value for finding in findings)
    words = ((name, counts[name]) for name in ("error", "warning", "info") if counts[name])
    return ", ".join(f"{n} {name}{'s' if n > 1 and name != 'info' else ''}" for name, n in words)
