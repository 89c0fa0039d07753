"""Tiers as tables and JSON lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seglog_cli.console import Console
from seglog_cli.tables import Layout, number_cell

if TYPE_CHECKING:
    from seglog.tiers.segments import Remark
    from seglog.tiers.survey import Surveyed

_PARTITIONS = ("PARTITION", "LAYOUT", "SEGMENTS", "START", "LAST", "BYTES", "LOCAL FROM", "MISSING")
_SEGMENTS = ("PARTITION", "START", "LAST", "BYTES", "WHERE", "SEGMENT")


def show_tiers(console: Console, found: Sequence[Surveyed], remarks: Sequence[Remark], *, segments: bool) -> None:
    """Partitions, with `segments` those too, and what must be said about them."""
    from seglog.tiers.segments import GRAVE

    if console.as_json:
        _json(console, found, remarks)
        return
    rows = []
    for one in found:
        local = None if one.partition.local is None else one.partition.local.first
        numbers = (one.first_offset, one.last_offset, one.log_bytes, local, _offsets(one.missing))
        name, layout = str(one.place.topic_partition), one.place.layout.value
        rows.append((name, layout, str(len(one.chosen)), *map(number_cell, numbers)))
    console.table(_PARTITIONS, rows, Layout(right=(2, 3, 4, 5, 6, 7), spare=(1,)))
    if segments:
        console.line()
        lines = [
            (
                str(one.place.topic_partition),
                str(each.segment.start_offset),
                str(each.end_offset),
                str(each.size),
                each.where.value,
                each.segment.segment_id or "-",
            )
            for one in found
            for each in one.segments
        ]
        console.table(_SEGMENTS, lines, Layout(right=(1, 2, 3), spare=(5,)))
    for remark in remarks:
        (console.warning if remark.problem in GRAVE else console.message)(f"{remark.problem.value}: {remark}")


def _offsets(ranges: Sequence[tuple[int, int]]) -> int:
    return sum(last - first + 1 for first, last in ranges)


def _json(console: Console, found: Sequence[Surveyed], remarks: Sequence[Remark]) -> None:
    from seglog.tiers.segments import GRAVE

    for one in found:
        partition = str(one.place.topic_partition)
        console.json(
            {
                "type": "tier",
                "partition": partition,
                "layout": one.place.layout.value,
                "topic_id": one.place.topic_id,
                "directory": str(one.place.directory),
                "segments": len(one.chosen),
                "start_offset": one.first_offset,
                "last_offset": one.last_offset,
                "log_bytes": one.log_bytes,
                "local_start_offset": None if one.partition.local is None else one.partition.local.first,
                "missing": [{"first_offset": first, "last_offset": last} for first, last in one.missing],
            }
        )
        for each in one.segments:
            console.json(
                {
                    "type": "tier_segment",
                    "partition": partition,
                    "segment_id": each.segment.segment_id or None,
                    "start_offset": each.segment.start_offset,
                    "last_offset": each.end_offset,
                    "log_bytes": each.size,
                    "where": each.where.name.lower(),
                }
            )
    for remark in remarks:
        console.json(
            {
                "type": "tier_remark",
                "severity": "error" if remark.problem in GRAVE else "info",
                "code": remark.problem.name,
                "partition": remark.partition,
                "first_offset": remark.first_offset,
                "last_offset": remark.last_offset,
                "file": None if remark.path is None else str(remark.path),
                "message": remark.message,
            }
        )
