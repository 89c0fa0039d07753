"""What retention removes and keeps, segment by segment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seglog.units import count_text
from seglog_cli.console import Console
from seglog_cli.progress import bytes_text
from seglog_cli.tables import Cell, Layout, time_cell
from seglog_cli.views.settings import contradiction_record

if TYPE_CHECKING:
    from seglog.log.retention import RetentionPlan, SegmentVerdict
    from seglog.operations.retain import Freed, Retained

_HEADING = ("", "SEGMENT", "SIZE", "NEWEST", "WHY")


def show_retained(console: Console, retained: Retained, dry_run: bool) -> None:
    """A partition's plan, and what was done."""
    plan = retained.plan
    if console.as_json:
        console.json(retention_record(retained, dry_run))
        return
    if retained.note:
        console.warning(f"{plan.topic_partition}: {retained.note}")
    for contradiction in retained.contradictions:
        console.line(f"{plan.topic_partition}: this contradicts the cluster's configuration: {contradiction}")
    name = console.styled(str(plan.topic_partition), "strong")
    if plan.empty:
        console.line(f"{name}: nothing to delete")
    else:
        did = "would delete" if dry_run else "deleted"
        start = f"log start {plan.log_start_offset} to {plan.new_log_start_offset}"
        rolls = ", rolled first" if plan.rolls else ""
        count = len(plan.removed)
        console.line(f"{did} {count} of {len(plan.segments)} segments of {name}: "
                     f"{bytes_text(plan.removed_bytes)}, {start}{rolls}")  # fmt: skip
    rows = [_row(segment) for segment in plan.segments]
    console.table(_HEADING, rows, Layout(right=(2,), indent=2))
    if retained.before_recovery:
        early = count_text(retained.before_recovery, "segment")
        console.message(
            f"{plan.topic_partition}: {early} went before the log was recovered: the disk had no room for that"
        )
    if retained.left_deleted:
        console.message(f"{plan.topic_partition}: {retained.left_deleted} files wait as .deleted; they are removed when"
                        " a broker or seglog opens the log for writing (--delay 0 removes at once)")  # fmt: skip


def retention_record(retained: Retained, dry_run: bool) -> dict[str, object]:
    """The JSON line."""
    plan = retained.plan
    return {
        "type": "retention",
        "partition": str(plan.topic_partition),
        "dry_run": dry_run,
        "log_start_offset_before": plan.log_start_offset,
        "log_start_offset": plan.new_log_start_offset,
        "log_end_offset": plan.log_end_offset,
        "high_watermark": plan.high_watermark,
        "rolls": plan.rolls,
        "deleted_segments": [segment.base_offset for segment in plan.removed],
        "deleted_bytes": plan.removed_bytes,
        "left_deleted_files": retained.left_deleted,
        "deleted_before_recovery": retained.before_recovery,
        "note": retained.note,
        "contradictions": [contradiction_record(found) for found in retained.contradictions],
        "segments": [segment_record(segment) for segment in plan.segments],
    }


def segment_record(segment: SegmentVerdict) -> dict[str, object]:
    """One segment within it."""
    return {
        "base_offset": segment.base_offset,
        "next_offset": segment.next_offset,
        "size": segment.size,
        "active": segment.active,
        "largest_timestamp": segment.largest_timestamp,
        "from_modified": segment.from_modified,
        "removed": segment.removed,
        "rule": None if segment.rule is None else segment.rule.value,
        "reason": segment.reason,
        "deletable": segment.deletable_ms,
        "in_future": segment.in_future,
        "blocking_offset": segment.blocking_offset,
    }


def show_freed(console: Console, freed: Freed, dry_run: bool) -> None:
    """What `--free` came to in a log directory, and whether that is as much as it was asked for."""
    if console.as_json:
        console.json(
            {
                "type": "freed",
                "log_directory": str(freed.log_directory),
                "dry_run": dry_run,
                "wanted_bytes": freed.wanted,
                "freed_bytes": freed.freed,
                "free_bytes": freed.free,
                "reached": freed.reached,
            }
        )
    elif not freed.wanted:
        console.line(f"{freed.log_directory}: nothing to free: {bytes_text(freed.free)} are free")
    else:
        did = "would be freed" if dry_run else "were freed"
        console.line(f"{freed.log_directory}: {bytes_text(freed.freed)} {did}, {bytes_text(freed.free)} are free then")
    if not freed.reached:
        missing = bytes_text(freed.missing)
        console.warning(f"{freed.log_directory}: {missing} less than wanted: no more closed segments may go")


def advice(plan: RetentionPlan) -> list[str]:
    """Sentences on the segment that holds the others back by time."""
    from seglog.units import format_time

    found = []
    for segment in plan.segments:
        if segment.in_future and not segment.removed:
            where = (
                "" if segment.blocking_offset is None else f" (the batch that ends at offset {segment.blocking_offset})"
            )
            until = "" if segment.deletable_ms is None else f"; it lets go at {format_time(segment.deletable_ms)}"
            found.append(f"segment {segment.base_offset} holds a timestamp in the future{where}{until}")
            break
    return found


def _row(segment: SegmentVerdict) -> tuple[str, ...]:
    from seglog.units import format_time

    newest = time_cell(segment.largest_timestamp)
    if segment.from_modified:
        newest = Cell(f"{newest} (mtime)", short=f"{newest.short} (mtime)")
    why = segment.reason
    if segment.in_future and segment.deletable_ms is not None:
        where = "" if segment.blocking_offset is None else f", offset {segment.blocking_offset}"
        why += f" (until {format_time(segment.deletable_ms)}{where})"
    return ("goes" if segment.removed else "stays", str(segment.base_offset), bytes_text(segment.size), newest, why)
