"""Why a partition is as it is: sentences, a table of segments, advice."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from seglog_cli.console import Console
from seglog_cli.progress import bytes_text
from seglog_cli.tables import Layout

if TYPE_CHECKING:
    from seglog.operations.explain import Explanation, SegmentExplanation

_HEADING = ("SEGMENT", "SIZE", "CLEANING", "DELETION")


def show_explanation(console: Console, found: Explanation, advise: bool) -> None:
    """The explanation; the advice only when it is asked for."""
    if console.as_json:
        console.json(_record(found, advise))
        return
    console.line(console.styled(found.partition, "strong"))
    for title, sentences in (("cleaning", found.cleaning), ("deletion", found.deletion), ("reading", found.reading)):
        console.indented([f"{title + ':' if i == 0 else '':<10}{text}" for i, text in enumerate(sentences)], hang=10)
    rows = [_row(segment) for segment in found.segments]
    console.table(_HEADING, rows, Layout(right=(1,), indent=2))
    if advise:
        advice = found.advice or ("no command of seglog would clean or delete anything here now",)
        console.indented([f"{'advice:' if i == 0 else '':<10}{text}" for i, text in enumerate(advice)], hang=10)


def _row(segment: SegmentExplanation) -> tuple[str, ...]:
    from seglog.units import format_time

    until = "" if segment.deletable_ms is None else f" (by time: {format_time(segment.deletable_ms)})"
    return (str(segment.base_offset), bytes_text(segment.size), segment.cleaning, segment.deletion + until)


def _record(found: Explanation, advise: bool) -> dict[str, object]:
    state = found.state
    return {
        "type": "explanation",
        "partition": found.partition,
        "log_start_offset": found.log_start_offset,
        "high_watermark": found.high_watermark,
        "last_stable_offset": found.last_stable_offset,
        "log_end_offset": found.log_end_offset,
        "first_dirty_offset": state.first_dirty_offset,
        "first_uncleanable_offset": state.first_uncleanable_offset,
        "clean_bytes": state.clean_bytes,
        "cleanable_bytes": state.cleanable_bytes,
        "cleanable_ratio": state.cleanable_ratio,
        "eligible": found.eligible,
        "cleaning": list(found.cleaning),
        "deletion": list(found.deletion),
        "reading": list(found.reading),
        "codes": {
            "cleaning": [reason.code for reason in found.cleaning],
            "deletion": [reason.code for reason in found.deletion],
            "reading": [reason.code for reason in found.reading],
        },
        "transactions": [dataclasses.asdict(transaction) for transaction in found.transactions],
        "segments": [
            {
                **dataclasses.asdict(segment),
                "cleaning_code": segment.cleaning.code,
                "deletion_code": segment.deletion.code,
            }
            for segment in found.segments
        ],
        **({"advice": list(found.advice)} if advise else {}),
    }
