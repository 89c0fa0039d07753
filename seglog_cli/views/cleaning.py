"""Cleaning rounds: the broker's text block, what became of the records, where the time went; and their history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seglog.units import count_text
from seglog_cli.console import Console
from seglog_cli.progress import bytes_text
from seglog_cli.views.settings import contradiction_record

if TYPE_CHECKING:
    from seglog.cleaner.output import CleaningResult
    from seglog.configuration.precedence import Contradiction
    from seglog.operations.clean import Cleaned, CleaningFailure, Outcome

# What became of records and batches: of one, of several.
_REASONS = {
    "records_kept": ("record kept: the newest of its key", "records kept: the newest of their key"),
    "tombstones_kept": (
        "tombstone kept: delete.retention.ms has not passed since it was first cleaned",
        "tombstones kept: delete.retention.ms has not passed since they were first cleaned",
    ),
    "control_records_kept": ("transaction marker kept", "transaction markers kept"),
    "records_superseded": ("record dropped: a later one has its key", "records dropped: a later one has their key"),
    "records_without_key": ("record dropped: without a key", "records dropped: without a key"),
    "tombstones_expired": ("tombstone dropped: expired", "tombstones dropped: expired"),
    "records_discarded": (
        "record dropped: aborted transactions and expired markers",
        "records dropped: aborted transactions and expired markers",
    ),
    "batches_discarded": ("batch dropped whole", "batches dropped whole"),
    "batches_verbatim": ("batch copied as it is", "batches copied as they are"),
    "batches_rebuilt": ("batch written anew", "batches written anew"),
    "batches_emptied": (
        "batch kept empty: the last of a producer or of the range",
        "batches kept empty: the last of a producer or of the range",
    ),
    "delete_horizons_set": ("delete horizon set", "delete horizons set"),
}


def show_outcome(console: Console, outcome: Outcome, contradictions: Sequence[Contradiction] = ()) -> None:
    """A partition: its round, with what went against the cluster's configuration, or why there was none."""
    from seglog.operations.clean import Cleaned, CleaningFailure

    if isinstance(outcome, Cleaned):
        _show_cleaned(console, outcome, contradictions)
    elif isinstance(outcome, CleaningFailure):
        _tell_failure(console, outcome)
    else:
        console.detail(f"{outcome.directory.name}: not cleaned: {outcome.reason}")


def _tell_failure(console: Console, failure: CleaningFailure) -> None:
    console.message(f"{failure.directory.name}: not cleaned, left as it was")
    console.detail(str(failure.error))


def _show_cleaned(console: Console, cleaned: Cleaned, contradictions: Sequence[Contradiction]) -> None:
    result = cleaned.result
    if console.as_json:
        console.json({**result.to_json(), "contradictions": [contradiction_record(found) for found in contradictions]})
        return
    for found in contradictions:
        console.line(f"{result.topic_partition}: this contradicts the cluster's configuration: {found}")
    if not result.segments_before:
        active = (
            f"; {bytes_text(cleaned.active_bytes)} lie in the active segment (--roll)" if cleaned.active_bytes else ""
        )
        why = f": {result.limit_reason}" if result.limit_reason else ""
        console.line(f"{result.topic_partition}: nothing to clean{why}{active}")
        return
    console.lines(summary_lines(console, result))
    _tell_phases(console, result)
    console.block(result.text().rstrip("\n"))


def summary_lines(console: Console, result: CleaningResult) -> list[str]:
    """What was, or would be, written; every reason that applies to a record."""
    stats = result.stats
    before = sum(size for _, size in result.segments_before)
    did = "would clean" if result.dry_run else "cleaned"
    name = console.styled(str(result.topic_partition), "strong")
    segments = f"{count_text(len(result.segments_before), 'segment')} to {len(result.segments_after)}"
    lines = [f"{did} {name}: {bytes_text(before)} to {bytes_text(result.bytes_written)}, {segments}"]
    for reason, count in stats.reasons().items():
        if count:
            one, several = _REASONS[reason]
            lines.append(f"  {count:>12,} {one if count == 1 else several}")
    passes = count_text(stats.index_passes, "index pass")
    utilization = f"{100 * result.buffer_utilization:.1f}% of the buffer's {result.map_slots:,} slots"
    lines.append(f"  {count_text(stats.map_entries, 'key', '>12,')} indexed in {passes}, {utilization}")
    if result.limit_reason:
        lines.append(f"  up to offset {result.end_offset}: {result.limit_reason}")
    return lines


def _tell_phases(console: Console, result: CleaningResult) -> None:
    """With -v, seconds by what they were spent on, over all threads, and what the copy was spared."""
    from seglog.cleaner.output import PHASES

    phases = result.stats.phases
    if phases:
        spent = ", ".join(f"{name} {phases[name]:.3f} s" for name in PHASES if name in phases)
        console.detail(f"{result.topic_partition}: time went to: {spent} (of {result.stats.seconds:.3f} s)")
    if result.stats.bytes_unread:
        dead, all_ = bytes_text(result.stats.bytes_unread), bytes_text(result.stats.bytes_read)
        console.detail(f"{result.topic_partition}: {dead} of {all_} were read once, as no record of them survives")
