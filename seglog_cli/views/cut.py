"""A truncation, done or planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seglog.units import count_text
from seglog_cli.console import Console
from seglog_cli.progress import bytes_text

if TYPE_CHECKING:
    from seglog.operations.truncate import Cut
    from seglog.runs.journal import RunRecord


def show_cut(console: Console, cut: Cut, dry_run: bool, run: RunRecord | None) -> None:
    """One line of data; `run` keeps what was cut."""
    if console.as_json:
        console.json(
            {
                "type": "truncation",
                "partition": str(cut.topic_partition),
                "dry_run": dry_run,
                "to_offset": min(cut.offset, cut.end_before),
                "first_offset": None if cut.empty else cut.first_offset,
                "last_offset": None if cut.empty else cut.end_before - 1,
                "end_offset_before": cut.end_before,
                "end_offset": cut.end_offset,
                "deleted_segments": list(cut.segments),
                "truncated_bytes": cut.bytes,
                "run": None if run is None else run.name,
            }
        )
        return
    if cut.empty:
        console.line(f"{cut.topic_partition}: nothing to cut, the log ends at offset {cut.end_before}")
        return
    did = "would cut" if dry_run else "cut"
    gone = f", {count_text(len(cut.segments), 'segment')} with it" if cut.segments else ""
    offsets = f"offsets {cut.first_offset} to {cut.end_before - 1}"
    console.line(f"{did} {cut.topic_partition}: {offsets}, {bytes_text(cut.bytes)}{gone}")
    if cut.first_offset < cut.offset:
        console.line(f"  offset {cut.offset} lies in a batch that begins at {cut.first_offset}: batches go as a whole")
    if run is not None:
        console.line(f"  kept: seglog undo {run.name} gives it back")
