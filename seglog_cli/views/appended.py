"""What an append acknowledges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seglog_cli.console import Console

if TYPE_CHECKING:
    from seglog.operations.append import Appended


def show_appended(console: Console, appended: Appended) -> None:
    """One line, handed to the operating system at once: whoever waits for it may rely on it."""
    partition, first, last = str(appended.topic_partition), appended.first_offset, appended.last_offset
    if console.as_json:
        record = {"type": "appended", "partition": partition, "first_offset": first, "last_offset": last}
        console.json({**record, "durable": True})
    else:
        console.line(f"appended {partition} offsets {first} to {last} durable")
    console.flush()
