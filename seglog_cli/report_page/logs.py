"""Sections on logs: the bytes by topic, and the partitions with their pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seglog.units import count_text
from seglog_cli.progress import bytes_text as size
from seglog_cli.report_page.charts import bar, spark, strip, treemap
from seglog_cli.report_page.words import NOTHING, Cell, moment, more, number, percent, said, table

_TILES = 40
_TOPICS = 25
_TOPICS_LISTED = 2_000
_PICTURED = 500  # partitions with pictures
_LISTED = 200_000  # others; the rest is only summed
_KEY = (
    ("k", "clean"),
    ("k-dirty", "dirty"),
    ("k-young", "too young to be cleaned"),
    ("k-blocked", "a transaction blocks it"),
    ("k-plain", "not compacted"),
    ("k-active", "active"),
    ("k-due", "retention deletes it now"),
)

if TYPE_CHECKING:
    from seglog.look.report.figures import PartitionFigures, Report


def topics_section(report: Report) -> str:
    """Where the bytes are."""
    topics = [(name, length, count) for name, (length, count) in report.topics.items()]
    total = sum(length for _, length, _ in topics)
    tiles = [(name, length) for name, length, _ in topics[:_TILES] if length]
    rest = sum(length for _, length, _ in topics[_TILES:])
    tiles += [(f"{len(topics) - _TILES:,} other topics", rest)] if rest else []
    most = max((length for _, length, _ in topics), default=0)

    def row(name: str, length: int, count: int) -> tuple[str, ...]:
        share = length / total if total else 0
        return said(name), bar(length / most if most else 0), size(length), percent(share), number(count)

    heads = ("Topic", ".<span class=h>Bar</span>", ">Bytes", ">Share", ">Partitions")
    listed = topics[_TOPICS : _TOPICS + _TOPICS_LISTED]
    plain = [(said(name), size(length), number(count)) for name, length, count in listed]
    others = ""
    if plain:
        left = more(len(topics) - _TOPICS - len(plain), " topics, smaller than these")
        folded = table("", ("Topic", ">Bytes", ">Partitions"), plain)
        others = f"<details><summary>{len(plain):,} more topics</summary>{folded}{left}</details>"
    return (
        f"<h2>Where the bytes are</h2><p>{size(total)} in {count_text(len(topics), 'topic', ',')}."
        f" <span class=m>Areas and bars are in proportion to bytes.</span></p>{treemap(tiles)}"
        f"{table('The largest topics', heads, (row(*partition) for partition in topics[:_TOPICS]))}{others}\n"
    )


def partitions_section(report: Report) -> str:
    """The largest partitions with their segments and growth; the others in one folded list for each log directory."""
    ordered = sorted(report.live, key=lambda partition: (-partition.bytes, partition.partition))
    pictured, others = ordered[:_PICTURED], ordered[_PICTURED:]
    several = len(report.directories) > 1
    heads = [
        "Partition",
        ">Bytes",
        ".Segments, oldest first",
        ".Growth",
        "Compaction",
        ">Dirty",
        "Next deletion",
        "Newest",
    ]
    heads += ["Log directory"] if several else []
    key = "".join(
        f"<li><svg width=16 height=12 aria-hidden=true><rect class={name} x=1 y=1 width=13 height=10 /></svg>{words}"
        for name, words in _KEY
    )
    count = "All" if not others else f"The {len(pictured)} largest"
    rows = (_row(partition, several) for partition in pictured)
    return (
        f"<h2>Partitions</h2><ul class=key>{key}</ul>"
        f"{table(f'{count} of {len(ordered):,} partitions', heads, rows, sorts=True)}"
        f"{_others(others)}\n"
    )


def _row(partition: PartitionFigures, several: bool) -> list[str | Cell]:
    newest = partition.newest_ms
    ratio = partition.compaction.dirty_ratio if partition.compaction is not None else None
    return [
        said(partition.partition),
        Cell(size(partition.bytes), partition.bytes),
        f"{strip(partition.segments)}<span class=m>{count_text(len(partition.segments), 'segment', ',')}</span>",
        spark(partition.growth),
        state_text(partition),
        Cell(NOTHING, -1) if ratio is None else Cell(percent(ratio), ratio),
        _due(partition),
        Cell(moment(newest), newest or 0),
        *([said(partition.directory)] if several else []),
    ]


def state_text(partition: PartitionFigures) -> str:
    """Returns the state of a partition's compaction in a word."""
    if partition.problem:
        return "<b class=danger>unreadable</b>"
    if partition.compaction is None:
        return "<span class=m>not compacted</span>"
    word = partition.compaction.state.value
    if word == "blocked":
        return f"<b class=danger>{word}</b>"
    return f"<b class=warn>{word}</b>" if word == "cleanable" else word


def _due(partition: PartitionFigures) -> Cell:
    """Returns when retention deletes next."""
    retention = partition.retention
    if retention is None:
        return Cell(NOTHING, float("inf"))
    if retention.due_bytes:
        return Cell(f"now: {size(retention.due_bytes)}", 0)
    return Cell(NOTHING, 9e15) if retention.next_ms is None else Cell(moment(retention.next_ms), retention.next_ms)


def _others(others: Sequence[PartitionFigures]) -> str:
    """Returns the other partitions, a row for each topic: their numbers, sizes and states."""
    by_directory: dict[str, dict[str, list[PartitionFigures]]] = {}
    for partition in others[:_LISTED]:
        by_directory.setdefault(partition.directory, {}).setdefault(partition.topic, []).append(partition)
    parts = []
    for directory, topics in by_directory.items():
        rows = ((said(topic), "; ".join(map(_short, partitions))) for topic, partitions in sorted(topics.items()))
        listed = table("", ("Topic", "Partitions: bytes, compaction"), rows)
        count = sum(map(len, topics.values()))
        words = f"{count_text(count, 'smaller partition', ',')} in {said(directory)}"
        parts.append(f"<details><summary>{words}</summary>{listed}</details>")
    rest = others[_LISTED:]
    if rest:
        total = size(sum(partition.bytes for partition in rest))
        parts.append(f"<p class=m>{len(rest):,} more, each smaller than these, {total} in all: see --json.</p>")
    return "".join(parts)


def _short(partition: PartitionFigures) -> str:
    number = said(partition.partition.removeprefix(f"{partition.topic}-"))
    state = (
        "unreadable" if partition.problem else "" if partition.compaction is None else partition.compaction.state.value
    )
    return f"{number}: {size(partition.bytes)} {state}".rstrip()
