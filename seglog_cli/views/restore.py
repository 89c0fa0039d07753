"""Partitions that were put together again: out of which parts, which offsets, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from seglog.units import count_text
from seglog_cli.console import Console

if TYPE_CHECKING:
    from seglog.operations.restore import RestoredPartition, RestorePlan
    from seglog_cli.exit_codes import ExitCode


def show_restored(console: Console, plan: RestorePlan, code: ExitCode, *, dry_run: bool) -> None:
    """Each partition, and what could not be restored of it."""
    for one in plan.partitions:
        if console.as_json:
            console.json(_row(one, dry_run))
            continue
        goes = "is there already, in" if one.is_there else "would go to" if dry_run else "to"
        console.line(f"{console.styled(str(one.partition), 'strong')} {goes} {one.target}")
        for sentence in _sentences(one):
            console.line(f"  {sentence}")
    for path, reason in plan.left_out:
        if console.as_json:
            console.json({"type": "left_out", "path": str(path), "reason": reason})
        else:
            console.line(f"left out {path}: {reason}")
    if console.as_json:
        missing = sum(len(one.joined.missing) for one in plan.partitions)
        damaged = sum(len(one.joined.damage) for one in plan.partitions)
        counts = {"partitions": len(plan.partitions), "gaps": missing, "damaged": damaged}
        console.json({"type": "summary", "exit_code": int(code), **counts})


def _sentences(one: RestoredPartition) -> Iterator[str]:
    joined = one.joined
    yield f"parts: {', '.join(str(part.directory) for part in one.parts)}"
    if len(joined.rows):
        offsets = f"offsets {joined.log_start} to {joined.log_end - 1}"
        yield f"{count_text(len(joined.rows), 'batch')}, {joined.size} bytes, {offsets}"
    else:
        yield f"empty; the log goes on at offset {joined.log_end}"
    if joined.copies:
        yield f"{count_text(joined.copies, 'batch')} in several parts, with equal bytes"
    yield f"topic id {one.topic_id}" if one.topic_id else "no part says which topic id it had"
    for damage in joined.damage:
        place = f"from position {damage.position} on"
        yield f"{damage.path}: {damage.size} bytes {place} are not a good batch, and left out"
    for gap in joined.missing:
        yield f"offsets {gap.first} to {gap.last} are missing, between {gap.after} and {gap.before}"


def _row(one: RestoredPartition, dry_run: bool) -> dict[str, Any]:
    joined = one.joined
    return {
        "type": "restored_partition",
        "partition": str(one.partition),
        "directory": str(one.target),
        "dry_run": dry_run,
        "already_there": one.is_there,
        "parts": [str(part.directory) for part in one.parts],
        "topic_id": one.topic_id,
        "log_start_offset": joined.log_start,
        "log_end_offset": joined.log_end,
        "batches": len(joined.rows),
        "bytes": joined.size,
        "copies": joined.copies,
        "damaged": [{"file": str(each.path), "position": each.position, "length": each.size} for each in joined.damage],
        "missing": [
            {"first_offset": gap.first, "last_offset": gap.last, "after": str(gap.after), "before": str(gap.before)}
            for gap in joined.missing
        ],
    }
