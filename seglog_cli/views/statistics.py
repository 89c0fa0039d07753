"""Distributions, past cleaning rounds and the cleaner's sizing, as text or JSON lines."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from seglog.units import count_text, format_time
from seglog_cli.console import Console, key_fields
from seglog_cli.progress import bytes_text
from seglog_cli.tables import Layout, time_cell
from seglog_cli.views.plots import bars, curve

if TYPE_CHECKING:
    from seglog.look.inspect.sizing import Sizing
    from seglog.look.inspect.statistics import FrequentKey, LogStatistics
    from seglog.look.report.growth import Growth

_HISTOGRAMS = (
    ("key_sizes", "key sizes (bytes)"),
    ("value_sizes", "value sizes (bytes)"),
    ("batch_sizes", "batch sizes (bytes)"),
    ("records_per_batch", "records a batch"),
)
_ROUND_HEADING = ("CLEANED", "DIRTY SECTION", "READ", "WRITTEN", "RECORDS", "KEPT", "BUFFER", "PASSES", "SECONDS")


def show_statistics(console: Console, found: LogStatistics, plot: bool, growth: Growth | None = None) -> None:
    """Shows a partition's distributions; with `plot`, pictures of them, and of its `growth`."""
    if console.as_json:
        console.json(_record(found))
        return
    console.line(console.styled(found.partition, "strong"))
    console.indented([f"{name:<22}{value}" for name, value in _facts(found)], hang=22)
    rows = [
        f"{codec.codec:<22}{count_text(codec.batches, 'batch', ',')}, {bytes_text(codec.bytes)},"
        f" ratio {codec.ratio:.2f}"
        for codec in found.codecs
    ]
    rows += [
        f"frequent key          {_key_text(key)}: at least {count_text(key.count, 'record', ',')}"
        for key in found.frequent_keys
    ]
    console.indented(rows)
    if plot:
        console.lines(list(_plots(found, growth)))


def show_rounds(console: Console, rounds: Sequence[Mapping[str, Any]]) -> None:
    """Shows the last cleaning rounds of a partition."""
    if console.as_json:
        for round_ in rounds:
            console.json({"type": "cleaning_round", **{k: v for k, v in round_.items() if k != "type"}})
        return
    if rounds:
        rows = [_round_row(round_) for round_ in rounds]
        console.table(_ROUND_HEADING, rows, Layout(right=(2, 3, 4, 5, 6, 7, 8), spare=(4, 6, 7), indent=2))


def show_sizing(console: Console, sizing: Sizing) -> None:
    """Shows the sizing of one log, one line for each fact."""
    if console.as_json:
        console.json({"type": "sizing", **dataclasses.asdict(sizing), "keeps_up": sizing.keeps_up})
        return
    console.indented(_sizing_lines(sizing), hang=22)


def _facts(found: LogStatistics) -> list[tuple[str, str]]:
    oldest, newest = (
        "-" if time is None else format_time(time) for time in (found.oldest_timestamp, found.newest_timestamp)
    )
    batches = f"{found.batches:,} ({found.control_batches:,} control, {found.transactional_batches:,} transactional)"
    facts = [
        ("size", f"{bytes_text(found.bytes)} in {count_text(found.segments, 'segment')}"),
        ("batches", batches),
        ("records", f"{found.records:,}, from {oldest} to {newest}"),
        ("distinct keys", f"about {found.distinct_keys:,}"),
        ("tombstones", f"{found.tombstones:,}"),
        ("without key", f"{found.null_keys:,}"),
        ("headers", f"{found.headers:,} on {count_text(found.records_with_headers, 'record', ',')}"),
        ("keys", f"{bytes_text(found.key_bytes)}, the largest {bytes_text(found.largest_key)}"),
        ("values", f"{bytes_text(found.value_bytes)}, the largest {bytes_text(found.largest_value)}"),
        ("out of order by time", f"{found.out_of_order:,}"),
        ("producers", f"{found.producers:,}"),
    ]
    return [*facts, ("damaged", bytes_text(found.damaged_bytes))] if found.damaged_bytes else facts


def _plots(found: LogStatistics, growth: Growth | None) -> Iterator[str]:
    """Yields the pictures: growth, distributions by powers of two, codecs, and frequent keys."""
    if growth is not None:
        first, last = (str(time_cell(moment))[:16].replace("T", " ") for moment in (growth.first_ms, growth.last_ms))
        title = "growth (bytes that are still there, by the time of their records)"
        yield from curve(title, growth.bytes, first, last, bytes_text(max(growth.bytes)))
    for name, title in _HISTOGRAMS:
        yield from bars(title, _buckets(getattr(found, name)))
    codecs = [
        (codec.codec, codec.bytes, f"{bytes_text(codec.bytes)}, ratio {codec.ratio:.2f}") for codec in found.codecs
    ]
    yield from bars("bytes by codec", codecs)
    keys = [(_key_text(key), key.count, f"at least {key.count:,}") for key in found.frequent_keys]
    yield from bars("frequent keys (records)", keys)


def _buckets(histogram: Mapping[int, int]) -> Iterator[tuple[str, float, str]]:
    """Yields the buckets from the smallest that is used to the largest, with the empty ones between."""
    for least in [0, *(1 << power for power in range(63))]:
        if histogram and min(histogram) <= least <= max(histogram):
            count = histogram.get(least, 0)
            yield str(least) if least < 2 else f"{least}-{2 * least - 1}", count, f"{count:,}"


def _record(found: LogStatistics) -> dict[str, object]:
    facts = dataclasses.asdict(found)
    for name, _ in _HISTOGRAMS:
        facts[name] = [{"least": least, "count": count} for least, count in getattr(found, name).items()]
    facts["codecs"] = [{**dataclasses.asdict(codec), "ratio": codec.ratio} for codec in found.codecs]
    facts["frequent_keys"] = [
        {**key_fields(key.key), "size": key.size, "count": key.count} for key in found.frequent_keys
    ]
    return {"type": "statistics", **facts}


def _key_text(key: FrequentKey) -> str:
    more = "…" if key.size > len(key.key) else ""
    return ascii(key.key.decode("utf-8", "replace")) + more


def _round_row(round_: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        time_cell(round_["time"]),
        f"[{round_['first_dirty_offset']}, {round_['end_offset']})",
        bytes_text(round_["bytes_read"]),
        bytes_text(round_["bytes_written"]),
        f"{round_['records_read']:,}",
        f"{round_['records_written']:,}",
        f"{100 * round_['buffer_utilization']:.1f}%",
        str(round_["index_passes"]),
        f"{round_['index_seconds'] + round_['clean_seconds']:.2f}",
    )


def _sizing_lines(s: Sizing) -> list[str]:
    buffer = f"{bytes_text(s.buffer_bytes)} a thread: {s.slots:,} slots, {s.capacity_keys:,} keys a round"
    need = (
        f"{bytes_text(s.needed_buffer_bytes)} for all {s.keys:,} keys in one round (24 bytes / {s.load_factor:g} a key)"
    )
    if s.kafka_rounds == 1:
        rounds = "one, in Kafka as here"
    else:
        rounds = f"{s.kafka_rounds} in Kafka"
        if s.kafka_rounds != s.least_kafka_rounds:
            rounds += f" if all keys come equally often, at least {s.least_kafka_rounds}"
        rounds += f", copying about {bytes_text(s.recopied_bytes)} again and again;"
        rounds += f" here one round of {s.index_passes} index passes"
    dirty = f"{bytes_text(s.dirty_bytes)} of {bytes_text(s.dirty_bytes + s.clean_bytes)} ({100 * s.dirty_ratio:.1f}%)"
    if not s.dirty_bytes + s.clean_bytes:
        dirty = f"nothing of {bytes_text(s.log_bytes)}: {s.why}"
    lines = [("buffer", buffer), ("buffer needed", need), ("rounds", rounds), ("dirty", dirty)]
    lines.append(("disk for a round", f"up to {bytes_text(s.headroom_bytes)} until the old segments can go"))
    if s.write_bytes_per_second is None or s.day_bytes is None:
        lines.append(("write rate", "unknown: the timestamps do not show it (--write-rate)"))
    else:
        day = f"a day without cleaner takes {bytes_text(s.day_bytes)} more"
        lines.append(("write rate", f"{bytes_text(round(s.write_bytes_per_second))}/s: {day}"))
    lines.append(("keeps up", _keeps_up_text(s)))
    return [f"{name:<22}{text}" for name, text in lines]


def _keeps_up_text(s: Sizing) -> str:
    if s.cleaner_bytes_per_second is None or s.sustainable_bytes_per_second is None:
        return "not known: no round was measured yet (seglog clean)"
    speed = f"{bytes_text(round(s.cleaner_bytes_per_second))}/s cleaned"
    limit = f"up to {bytes_text(round(s.sustainable_bytes_per_second))}/s written"
    answer = {True: "yes", False: "no", None: "not known"}[s.keeps_up]
    return f"{answer}: {speed}, enough for {limit}"
