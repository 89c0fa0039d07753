"""A truncation, done or planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seglog_cli.console import Console
from seglog_cli.progress import bytes_text

if TYPE_CHECKING:
    from seglog.log.cutting import Cut


def show_cut(console: Console, cut: Cut, dry_run: bool) -> None:
    """One line of data."""
    if console.as_json:
        console.json(
            {
                "type": "truncation",
                "partition": str(cut.topic_partition),
                "dry_run": dry_run,
                "to_offset": min(cut.offset, cut.end_before),
                "end_offset_before": cut.end_before,
                "deleted_segments": list(cut.segments),
                "truncated_bytes": cut.bytes,
            }
        )
        return
    if cut.empty:
        console.line(f"{cut.topic_partition}: nothing to cut, the log ends at offset {cut.end_before}")
        return
    did = "would cut" if dry_run else "cut"
    gone = f", {len(cut.segments)} segments with it" if cut.segments else ""
    offsets = f"offsets {cut.offset} to {cut.end_before - 1}"
    console.line(f"{did} {cut.topic_partition}: {offsets}, {bytes_text(cut.bytes)}{gone}")
