"""A replay: what is to be sent, what was, and the groups' offsets in the other cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seglog.units import count_text
from seglog_cli.console import Console

if TYPE_CHECKING:
    from seglog.replay.replay import PlannedPartition, Translated
    from seglog.replay.state import ReplayState


def show_plan(console: Console, planned: Sequence[PlannedPartition]) -> None:
    """Which offsets of each partition are to be sent, and where to."""
    for one in planned:
        if console.as_json:
            console.json(
                {
                    "type": "replay_plan",
                    "partition": str(one.source),
                    "directory": str(one.directory),
                    "target": str(one.target),
                    "from_offset": one.next_offset,
                    "to_offset": one.end_offset,
                }
            )
        else:
            console.line(f"{one.source} → {one.target}: from offset {one.next_offset} to {one.end_offset - 1}")


def show_replayed(console: Console, state: ReplayState) -> None:
    """What has arrived of each partition, by this run and those before it."""
    for source, progress in sorted(state.partitions.items()):
        if console.as_json:
            console.json(
                {
                    "type": "replayed",
                    "partition": str(source),
                    "target": str(progress.target),
                    "records": progress.records,
                    "next_offset": progress.next_offset,
                    "target_end_offset": progress.target_end,
                }
            )
        else:
            console.line(f"{source} → {progress.target}: {count_text(progress.records, 'record')} replayed in all")


def show_translated(console: Console, one: Translated) -> None:
    """A group's offset, old and new."""
    if console.as_json:
        console.json(
            {
                "type": "group_offset",
                "group": one.group,
                "partition": str(one.source),
                "offset": one.offset,
                "target": str(one.target),
                "new_offset": one.new_offset,
            }
        )
    else:
        console.line(f"group {one.group}: {one.source} offset {one.offset} → {one.target} {one.new_offset}")
