"""Partitions and segments as tables or JSON lines."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

from seglog_cli.console import Console
from seglog_cli.progress import bytes_text
from seglog_cli.tables import table

if TYPE_CHECKING:
    from seglog.inspect.overview import PartitionOverview, SegmentOverview

_PARTITION_HEADING = ("PARTITION", "STATE", "SEGMENTS", "SIZE", "START", "END", "NEWEST")
_SEGMENT_HEADING = ("SEGMENT", "", "SIZE", "INDEXES", "START", "END", "NEWEST", "MODIFIED")


def show_overviews(console: Console, overviews: Iterable[PartitionOverview], segments: bool) -> None:
    """One line a partition, or with `segments` a table of its segments below it."""
    if console.as_json:
        for one in overviews:
            _json(console, one)
        return
    found = list(overviews)
    if not segments:
        console.lines(table(_PARTITION_HEADING, [_partition_row(one) for one in found], right=(2, 3, 4, 5)))
    for one in found:
        if segments:
            console.lines(table(_PARTITION_HEADING, [_partition_row(one)], right=(2, 3, 4, 5)))
            rows = [_segment_row(segment) for segment in one.segments]
            console.lines([f"  {line}" for line in table(_SEGMENT_HEADING, rows, right=(2, 3, 4, 5))])
        for name in one.leftovers:
            console.line(f"  leftover {one.partition}/{name}")
        for name in one.strangers:
            console.line(f"  stranger {one.partition}/{name}")


def _json(console: Console, one: PartitionOverview) -> None:
    fields = {name: getattr(one, name) for name in ("state", "format", "size", "start_offset", "end_offset")}
    console.json(
        {
            "type": "partition",
            "partition": one.partition,
            "directory": str(one.directory),
            **fields,
            "modified": one.modified_ms,
            "segments": len(one.segments),
            "leftovers": list(one.leftovers),
            "strangers": list(one.strangers),
        }
    )
    for segment in one.segments:
        values = dataclasses.asdict(segment)
        values["modified"] = values.pop("modified_ms")
        console.json({"type": "segment", "partition": one.partition, **values})


def _partition_row(one: PartitionOverview) -> tuple[str, ...]:
    newest = max((s.max_timestamp for s in one.segments if s.max_timestamp is not None), default=None)
    state = one.state if one.format == "kafka" else f"{one.state} {one.format}"
    offsets = (_number(one.start_offset), _number(one.end_offset))
    return (one.partition, state, str(len(one.segments)), bytes_text(one.size), *offsets, _time(newest))


def _segment_row(one: SegmentOverview) -> tuple[str, ...]:
    return (
        one.file,
        "active" if one.active else "",
        bytes_text(one.size),
        bytes_text(one.index_size),
        _number(one.base_offset),
        _number(one.end_offset),
        _time(one.max_timestamp),
        _time(one.modified_ms),
    )


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _time(timestamp: int | None) -> str:
    from seglog.units import format_time

    return "-" if timestamp is None or timestamp < 0 else format_time(timestamp)
