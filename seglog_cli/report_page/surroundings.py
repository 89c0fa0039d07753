"""Sections on the whole: headline, what needs a hand, brokers side by side, settings, leftovers, how it was read."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from seglog.units import count_text
from seglog_cli.progress import bytes_text as size
from seglog_cli.report_page.words import NOTHING, moment, more, number, said, table

if TYPE_CHECKING:
    from seglog.look.report.figures import Concern, Report, SettingFigures, Side

_CONCERNS_SHOWN = 3  # of a code, before the rest is folded
_CONCERNS_LISTED = 200
_ROWS = 200
_SETTING_TOPICS = 8
_WORDS = {"blocker": "Blocker", "danger": "Danger", "note": "Note"}


def headline(report: Report) -> str:
    """The title, and the sums."""
    grave = sum(concern.severity != "note" for concern in report.concerns)
    places = ", ".join(said(concern.path) for concern in report.directories)
    states = report.compaction_states()
    facts = [
        (size(report.bytes), "in logs"),
        (number(len(report.partitions)), "partitions"),
        (number(report.segments), "segments"),
        (number(grave), "things need a hand" if grave != 1 else "thing needs a hand"),
        (size(report.due_bytes), "retention frees now"),
    ]
    if states:
        facts.append((f"{number(states['cleanable'])} of {number(sum(states.values()))}", "compacted are cleanable"))
    free = [directory.free_bytes for directory in report.directories if directory.free_bytes is not None]
    if len(free) == 1:
        facts.append((size(free[0]), "free on the disk"))
    terms = "".join(f"<div><dt>{words}</dt><dd>{value}</dd></div>" for value, words in facts)
    html = f"<h1>Log report</h1><p class=m>{places}<br>{moment(report.made_ms)} UTC</p><dl>{terms}</dl>\n"
    return html + (_directories(report) if len(report.directories) > 1 else "")


def _directories(report: Report) -> str:
    rows = []
    for directory in report.directories:
        stopped = "stopped in order" if directory.clean_shutdown else "killed, or not stopped in order"
        state = "running" if directory.running else stopped
        free = NOTHING if directory.free_bytes is None else size(directory.free_bytes)
        numbers = (number(directory.partitions), size(directory.bytes), free)
        rows.append((said(directory.path), said(directory.broker), state, *numbers))
    heads = ("Log directory", "Broker", "State", ">Partitions", ">Bytes", ">Free")
    return table("The log directories of this report", heads, rows)


def hands_section(report: Report) -> str:
    """What needs a hand, the gravest first, with the command that mends it."""
    grouped: dict[tuple[str, str], list[Concern]] = defaultdict(list)
    for concern in report.concerns:
        grouped[concern.severity, concern.code].append(concern)
    parts = ["<h2>What needs a hand</h2>"]
    if not grouped:
        read = "All data was read." if report.verified else "Names, indexes and checkpoints say so; data was not read."
        parts.append(f"<p>Nothing. <span class=m>{read}</span></p>\n")
    for (severity, code), concerns in grouped.items():
        first = concerns[0]
        total = sum(concern.count for concern in concerns)
        times = f" <span class=m>{total:,} times</span>" if total > 1 else ""
        broker = f"<p class=m>A broker: {said(first.broker)}</p>" if first.broker else ""
        items = [_concern(concern) for concern in concerns]
        rest = len(items) - _CONCERNS_SHOWN
        listed = f"<ul>{''.join(items[_CONCERNS_SHOWN:_CONCERNS_LISTED])}</ul>{more(len(items) - _CONCERNS_LISTED)}"
        folded = f"<details><summary>{rest:,} more</summary>{listed}</details>" if rest > 0 else ""
        parts.append(
            f"<div class='c {severity}'><h3><b class={severity}>{_WORDS[severity]}</b> {said(code)}{times}</h3>"
            f"{broker}<ul>{''.join(items[:_CONCERNS_SHOWN])}</ul>{folded}</div>\n"
        )
    return "".join(parts)


def _concern(concern: Concern) -> str:
    where = f"<b>{said(concern.partition)}</b>: " if concern.partition else ""
    from seglog_rescue.doctor.mends import TOOLS

    mend = said(concern.command)
    if concern.command.startswith(TOOLS):  # else a sentence
        mend = f"<code>{mend}</code>"
    mend = f"<br>{mend}" if mend else ""
    return f"<li>{where}{said(concern.message)}{mend}"


def sides_section(report: Report) -> str:
    """The partitions that several brokers have: who leads, who lags."""
    if not report.comparisons:
        return ""
    brokers = sorted({side.broker for comparison in report.comparisons for side in comparison.sides})
    behind = [comparison for comparison in report.comparisons if comparison.most_behind]
    rows = []
    for comparison in report.comparisons[:_ROWS]:
        by_broker = {side.broker: side for side in comparison.sides}
        leader = NOTHING if comparison.leader is None else f"broker {comparison.leader}"
        rows.append((said(comparison.partition), leader, *(_side(by_broker.get(name)) for name in brokers)))
    heads = ("Partition", "Leader by metadata", *(f">{said(name)}" for name in brokers))
    verb = "differs" if len(behind) == 1 else "differ"
    total = count_text(len(report.comparisons), "partition", ",")
    return (
        f"<h2>Brokers side by side</h2><p>{total} on several brokers; {len(behind):,} {verb}.</p>"
        "<p class=m>The end is what indexes and checkpoints show. A difference of some KiB of records says"
        " nothing; <code>seglog replicas</code> reads the stopped brokers' logs, and tells which copy holds what.</p>"
        + table("End offsets, those that differ most first", heads, rows)
        + more(len(report.comparisons) - _ROWS)
    )


def _side(side: Side | None) -> str:
    if side is None:
        return ""
    text = "furthest" if not side.behind else f"{side.behind:,} behind"
    return f"{side.end_offset:,}<br><span class=m>{text}</span>"


def settings_section(report: Report) -> str:
    """The values that differ from Kafka's defaults, with topics of equal values together."""
    heading = "<h2>Settings that differ from their defaults</h2>"
    if not report.settings:
        return heading + "<p>None is known.</p>\n"
    by_owner: dict[tuple[str, str | None], list[SettingFigures]] = defaultdict(list)
    for setting in report.settings:
        by_owner[setting.directory, setting.topic].append(setting)
    equal: dict[tuple[bool, tuple[tuple[str, str, str], ...]], list[str]] = defaultdict(list)
    for (directory, topic), settings in by_owner.items():
        values = tuple((setting.key, setting.value, setting.origin) for setting in settings)
        equal[topic is None, values].append(directory if topic is None else topic)
    rows = []
    for (is_broker, values), names in sorted(equal.items(), key=lambda item: (not item[0][0], item[1])):
        unique = list(dict.fromkeys(names))
        owners = ", ".join(map(said, unique[:_SETTING_TOPICS]))
        others = f" and {len(unique) - _SETTING_TOPICS:,} more" if len(unique) > _SETTING_TOPICS else ""
        texts = "<br>".join(f"<code>{said(key)}={said(value)}</code>" for key, value, _ in values)
        origins = "<br>".join(dict.fromkeys(said(origin) for _, _, origin in values))
        rows.append((f"{'Broker: ' if is_broker else ''}{owners}{others}", texts, origins))
    return heading + table("", ("Of", "Value", "Set in"), rows[:_ROWS]) + more(len(rows) - _ROWS, " groups")


def leftovers_section(report: Report) -> str:
    """Files and directories that no running log needs."""
    aside = [partition for partition in report.partitions if partition.state != "live"]
    rows = [
        (said(partition.partition), said(partition.state), size(partition.bytes))
        for partition in sorted(aside, key=lambda partition: -partition.bytes)
    ]
    for partition in report.live:
        for kind, names in (("unfinished", partition.leftovers), ("not Kafka's", partition.strangers)):
            if names:
                some = ", ".join(map(said, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
                rows.append((f"{said(partition.partition)}: {some}", kind, ""))
    if not rows:
        return "<h2>Leftovers</h2><p>None.</p>\n"
    return "<h2>Leftovers</h2>" + table("", ("Name", "Kind", ">Bytes"), rows[:_ROWS]) + more(len(rows) - _ROWS)


def reading_section(report: Report) -> str:
    """What the figures rest on."""
    read = (
        "All data was read (--verify)."
        if report.verified
        else "No log file was opened: the figures come from names, sizes, indexes, snapshots and checkpoints."
    )
    return (
        f"<h2>How to read this</h2><p>{read} A log ends at the offset shown or later, by less than one index interval"
        " or what was written since the last checkpoint. Bytes are those of log files. Times are in UTC.</p>"
        "<p>A curve shows the bytes that are still there, by the time of their records: not what was deleted or"
        " compacted away meanwhile. <code>seglog report --json</code> gives the same figures.</p>\n"
    )
