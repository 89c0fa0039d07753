"""A redaction's plan, its report as JSON and as a page for a person, and what a search found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from seglog.escaping import escaped
from seglog.units import count_text, format_time
from seglog_cli.console import Console
from seglog_cli.progress import bytes_text
from seglog_cli.tables import Layout

if TYPE_CHECKING:
    from seglog.operations.redact import RedactionReport
    from seglog.redaction.finding import FoundRecords
    from seglog.redaction.searching import SearchReport

_HEADING = ("PARTITION", "RECORDS", "BATCHES", "SEGMENTS", "WRITTEN ANEW", "ERASED BEFORE")
_FREED = (
    "Blocks that the file system has freed keep the old bytes until they are used again; on solid-state disks and on"
    " file systems that copy on write, nothing can overwrite them on purpose."
)


def show_plan(console: Console, every: Sequence[FoundRecords], *, dry_run: bool) -> None:
    """Shows how much is erased where."""
    if console.as_json:
        return
    did = "would erase" if dry_run else "erases"
    where = count_text(sum(1 for found in every if found.segments), "partition")
    console.line(f"{did} {count_text(sum(found.records for found in every), 'record')} in {where}")
    rows = [
        (
            found.directory.name,
            str(found.records),
            str(sum(len(segment.batches) for segment in found.segments)),
            str(len(found.segments)),
            bytes_text(sum(segment.size for segment in found.segments)),
            str(found.already),
        )
        for found in every
        if found.segments or found.already
    ]
    if rows:
        console.table(_HEADING, rows, Layout(right=(1, 2, 3, 4, 5), indent=2))


def show_report(console: Console, report: RedactionReport, *, dry_run: bool) -> None:
    """Shows what was written anew, where else copies may lie, and what a search found."""
    if console.as_json:
        console.json(report_record(report, dry_run=dry_run))
        return
    for file in report.files:
        console.detail(f"{file.path}: {file.size_before} bytes became {file.size_after}")
    if report.elsewhere:
        console.line("copies may also lie here:")
        console.indented([f"{place.what}: {place.remedy}" for place in report.elsewhere])
    if report.searched is not None:
        _show_search(console, report, report.searched)


def _show_search(console: Console, report: RedactionReport, searched: SearchReport) -> None:
    for trace in report.traces:
        console.warning(f"not erased: {trace}")
    for path, reason in searched.unread:
        console.warning(f"{escaped(str(path))}: not searched: {reason}")
    result = "nothing of it is left" if report.complete else "it is not complete"
    console.line(
        f"searched {count_text(searched.files, 'file')}, {bytes_text(searched.bytes)},"
        f" {count_text(searched.records, 'record')}: {result}"
    )


def report_record(report: RedactionReport, *, dry_run: bool) -> dict[str, Any]:
    """Returns the report as a JSON object: no key, no value, and no digest of either."""
    return {
        "type": "redaction",
        "request": report.reference,
        "dry_run": dry_run,
        "rule": report.rule,
        "erased": report.erased,
        "user": report.user,
        "host": report.host,
        "started": report.started_ms,
        "ended": report.ended_ms,
        "records": sum(found.records for found in report.found),
        "partitions": [_partition_record(found) for found in report.found],
        "files": [
            {
                "path": str(file.path),
                "size_before": file.size_before,
                "size": file.size_after,
                "sha256_before": file.digest_before,
                "sha256": file.digest_after,
            }
            for file in report.files
        ],
        "elsewhere": [{"what": place.what, "remedy": place.remedy} for place in report.elsewhere],
        "search": None if report.searched is None else _search_record(report, report.searched),
    }


def _search_record(report: RedactionReport, searched: SearchReport) -> dict[str, Any]:
    traces = [
        {
            "path": str(trace.path),
            "records": trace.records,
            "places": trace.places,
            "position": trace.first_position,
        }
        for trace in report.traces
    ]
    return {
        "complete": report.complete,
        "files": searched.files,
        "bytes": searched.bytes,
        "records": searched.records,
        "byte_strings": searched.needles,
        "traces": traces,
        "unread": [{"path": str(path), "reason": reason} for path, reason in searched.unread],
    }


def _partition_record(found: FoundRecords) -> dict[str, Any]:
    segments = [
        {
            "base_offset": segment.base_offset,
            "size": segment.size,
            "batches": [
                {"position": batch.position, "base_offset": batch.base_offset, "records": len(batch.offsets)}
                for batch in segment.batches
            ],
        }
        for segment in found.segments
    ]
    return {
        "directory": str(found.directory),
        "partition": str(found.topic_partition),
        "records": found.records,
        "erased_before": found.already,
        "searched_bytes": found.searched,
        "segments": segments,
    }


def report_text(report: RedactionReport, *, dry_run: bool) -> str:
    """Returns the report as a page for a person: plain text with the same facts."""
    lines = [
        "ERASURE OF RECORDS" + (" (only planned: nothing was changed)" if dry_run else ""),
        "",
        f"Request:       {escaped(report.reference) or '(none named)'}",
        f"Records:       {sum(found.records for found in report.found)}",
        f"Chosen:        {report.rule}",
        f"Erased:        {report.erased}",
        f"Performed by:  {escaped(report.user)} on {escaped(report.host)}, with seglog",
        f"From, to:      {format_time(report.started_ms)}, {format_time(report.ended_ms)}",
        "",
        "What was done",
    ]
    for found in report.found:
        if found.segments or found.already:
            before = f", {found.already} had been erased before" if found.already else ""
            lines.append(f"- {escaped(str(found.directory))}: {count_text(found.records, 'record')}{before}")
    lines += ["", "Files written anew (SHA-256 before, after)"]
    for file in report.files:
        lines += [
            f"- {escaped(str(file.path))}: {file.size_before} bytes, then {file.size_after}",
            f"  {file.digest_before}",
            f"  {file.digest_after}",
        ]
    lines += ["", "Where else copies may lie"]
    lines += [f"- {escaped(place.what)}: {escaped(place.remedy)}" for place in report.elsewhere] or ["- nowhere known"]
    lines += [f"- {_FREED}", "", "Verified"]
    searched = report.searched
    if searched is None:
        lines.append("- no search was asked for (--verify)")
    else:
        state = "nothing of what was erased is left" if report.complete else "NOT COMPLETE"
        lines.append(f"- {searched.files} files, {searched.bytes} bytes, {searched.records} records searched: {state}")
        lines += [f"- not erased: {trace}" for trace in report.traces]
        lines += [f"- not searched: {escaped(str(path))}: {reason}" for path, reason in searched.unread]
    return "\n".join(lines) + "\n"
