"""Sections on what changes logs: growth, compaction and retention."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from seglog.units import count_text
from seglog_cli.progress import bytes_text as size
from seglog_cli.report_page.charts import bar, curve, rounds
from seglog_cli.report_page.logs import state_text
from seglog_cli.report_page.words import Cell, moment, more, number, percent, said, table

_ROWS = 100
_STATES = ("blocked", "cleanable", "waiting", "young", "clean")
_HOUR = 3_600_000
_TERMS = (
    (0, "now"),
    (_HOUR, "within an hour"),
    (24 * _HOUR, "within a day"),
    (7 * 24 * _HOUR, "within a week"),
    (30 * 24 * _HOUR, "within 30 days"),
    (None, "later"),
)

if TYPE_CHECKING:
    from seglog.look.report.figures import PartitionFigures, Report
_HELD = {
    "TIME": "not old enough yet",
    "SIZE": "within retention.bytes",
    "COMPACTED": "compacted only: nothing is deleted by age or size",
    "NO_RULE": "no rule of retention is known",
    "POLICY_UNKNOWN": "the cleanup policy is not known",
    "TIERED": "tiered: only the broker knows what was copied",
    "NOT_REPLICATED": "above the high watermark",
    "FUTURE_TIMESTAMP": "a record from the future holds it",
}


def growth_section(report: Report) -> str:
    """How the present bytes came."""
    growth = report.growth
    if growth is None:
        return "<h2>How it grew</h2><p>No time index says.</p>\n"
    last_day = sum(report.day_bytes.values())
    before = f" {size(report.growth_before)} are as old as its left end, or older." if report.growth_before else ""
    return (
        f"<h2>How it grew</h2><p>The records of the last 24 hours take {size(last_day)}."
        f" <span class=m>The curve shows the bytes that are still there, by the time of their records.{before}</span>"
        "</p>"
        f"<p class=x><span>{size(max(growth.bytes))}</span></p>{curve(growth)}"
        f"<p class=x><span>{moment(growth.first_ms)}</span><span>{moment(growth.last_ms)}</span></p>\n"
    )


def compaction_section(report: Report) -> str:
    """Which logs are clean, which a broker would clean, which it may not, and past rounds."""
    compacted = [partition for partition in report.live if partition.compaction is not None]
    unknown = sum(
        partition.retention is not None and partition.retention.held_by == "POLICY_UNKNOWN" for partition in report.live
    )
    parts = ["<h2>Compaction</h2>"]
    if unknown:
        parts.append(
            f"<p><b class=warn>{count_text(unknown, 'partition', ',')}</b> with an unknown cleanup policy. Name the log"
            " directory that has the cluster's metadata with <code>--metadata-dir</code>.</p>"
        )
    if not compacted:
        return "".join(parts) + "<p>No partition is known to be compacted.</p>\n"
    states = report.compaction_states()
    counted = ", ".join(f"{states[state]:,} {state}" for state in _STATES if states[state])
    parts.append(f"<p>{count_text(len(compacted), 'compacted partition', ',')}: {counted}.</p>")
    order = {state: number for number, state in enumerate(_STATES)}
    rows = sorted(compacted, key=lambda partition: (order[_state(partition)], -_dirty(partition)))
    parts.append(
        table(
            "Blocked and cleanable first",
            ("Partition", "State", ".<span class=h>Bar</span>", ">Dirty", ">Dirty bytes", ">Held back", "Why"),
            map(_compaction_row, rows[:_ROWS]),
        )
    )
    parts.append(more(len(rows) - _ROWS))
    return "".join(parts) + _rounds(compacted)


def _state(partition: PartitionFigures) -> str:
    return "" if partition.compaction is None else partition.compaction.state.value


def _dirty(partition: PartitionFigures) -> int:
    return (
        0 if partition.compaction is None else partition.compaction.cleanable_bytes + partition.compaction.blocked_bytes
    )


def _compaction_row(partition: PartitionFigures) -> tuple[str | Cell, ...]:
    compaction = partition.compaction
    assert compaction is not None
    numbers = (percent(compaction.dirty_ratio), size(compaction.cleanable_bytes), size(compaction.blocked_bytes))
    why = Cell(said(compaction.why), style="y")
    return (said(partition.partition), state_text(partition), bar(compaction.dirty_ratio, 80), *numbers, why)


def _rounds(compacted: list[PartitionFigures]) -> str:
    """Past rounds on a time line, by how much of the dedupe buffer they used."""
    past = [
        (partition.partition, round_)
        for partition in compacted
        if partition.compaction is not None
        for round_ in partition.compaction.rounds
    ]
    if not past:
        return "<h3>Past rounds</h3><p class=m>None is recorded: seglog records those of clean and cleaner.</p>\n"
    first, last = min(round_.time for _, round_ in past), max(round_.time for _, round_ in past)
    length = max(1, last - first)
    points = [
        (
            (round_.time - first) / length,
            round_.buffer_utilization,
            f"{name} {moment(round_.time)}: {percent(round_.buffer_utilization)} of the buffer,"
            f" {size(round_.bytes_read)} read, {size(round_.bytes_written)} written",
        )
        for name, round_ in past
    ]
    fullest = max(round_.buffer_utilization for _, round_ in past)
    return (
        f"<h3>Past rounds</h3><p>{count_text(len(past), 'round', ',')}; the fullest used {percent(fullest)} of its"
        " dedupe buffer. <span class=m>Each dot is a round; its height is the buffer used, from 0 to 100 %.</span></p>"
        f"{rounds(points)}<p class=x><span>{moment(first)}</span><span>{moment(last)}</span></p>\n"
    )


def retention_section(report: Report) -> str:
    """What is deleted when, and what holds the rest."""
    due = Counter[str]()
    held: dict[str, list[int]] = {}
    for partition in report.live:
        retention = partition.retention
        if retention is None:
            continue
        due["now"] += retention.due_bytes
        for when, length in retention.schedule:
            distance_ms = when - report.made_ms
            term = next(words for limit, words in _TERMS[1:] if limit is None or distance_ms <= limit)
            due[term] += length
        staying = partition.bytes - retention.due_bytes
        if retention.held_by and staying:
            held.setdefault(retention.held_by, []).append(staying)
    most = max(due.values(), default=0)
    rows = [(words, bar(due[words] / most if most else 0), size(due[words])) for _, words in _TERMS if due[words]]
    parts = ["<h2>Retention</h2>"]
    if rows:
        parts.append(table("When bytes come due by age", ("When", ".<span class=h>Bar</span>", ">Bytes"), rows))
    else:
        parts.append("<p>No segment comes due by a known rule of age.</p>")
    kept_rows = [
        (_HELD[code], number(len(sizes)), size(sum(sizes)))
        for code, sizes in sorted(held.items(), key=lambda item: -sum(item[1]))
    ]
    if kept_rows:
        parts.append(table("What holds the oldest segment that stays", ("Held by", ">Partitions", ">Bytes"), kept_rows))
    first = sorted(filter(_due_bytes, report.live), key=lambda partition: -_due_bytes(partition))
    if first:
        listed = [
            (said(partition.partition), size(_due_bytes(partition)), said(partition.retention.why))
            for partition in first[:_ROWS]
            if partition.retention is not None
        ]
        parts.append(table("Deletable now", ("Partition", ">Bytes", "Then holds"), listed))
        parts.append(more(len(first) - _ROWS))
    return "".join(parts) + "\n"


def _due_bytes(partition: PartitionFigures) -> int:
    return 0 if partition.retention is None else partition.retention.due_bytes
