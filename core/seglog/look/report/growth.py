"""How logs grew, by their time indexes: bytes that are still there, by the time of their records.

A time index entry says that every record up to an offset is at most so old. Within a segment, bytes are spread evenly
over its offsets, so no offset index is read. What was deleted or compacted away meanwhile is not counted: the curve
shows how the present bytes came, not how large the log was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from seglog.log.outline import OutlinedLog

POINTS = 24  # of one log's curve
_AXIS_POINTS = 72  # of the curve of all
_LEFT_OUT = 0.005  # the share of bytes that may lie before the axis, such as those of records with absurd times
DAY_MS = 86_400_000
_SHARES = np.linspace(0, 1, POINTS)


@dataclass(frozen=True, slots=True)
class Growth:
    """Bytes still in the log by the time of their records, at evenly spaced moments from `first_ms` to `last_ms`."""

    first_ms: int
    last_ms: int
    bytes: tuple[int, ...]


def growth_of(log: OutlinedLog, now_ms: int) -> Growth | None:
    """Returns the growth of one log up to now; None for an empty one. A record of the future counts as one of now."""
    times, sizes = _curve(log, now_ms)
    if not times or not sizes[-1]:
        return None
    first, last = times[0], times[-1]
    if last == first:
        return Growth(first, last, (int(sizes[-1]),) * POINTS)
    moments = first + (last - first) * _SHARES
    return Growth(first, last, tuple(map(int, np.interp(moments, times, sizes).tolist())))


def _curve(log: OutlinedLog, now_ms: int) -> tuple[list[int], list[float]]:
    """Returns ascending times, and for each the bytes of the log up to there. Not by numpy: a broker has thousands of
    partitions, and most have few entries.
    """
    times: list[int] = []
    sizes: list[float] = []
    done = 0
    segments = log.segments.snapshot()
    for number, segment in enumerate(segments):
        if not segment.size:
            continue
        base = segment.base_offset
        end = segments[number + 1].base_offset if number + 1 < len(segments) else log.log_end_offset
        rows = [row for row in segment.times.tolist() if row[0] > 0]
        first = rows[0][0] if rows else segment.modified_ms
        times += [first, *(timestamp for timestamp, _ in rows), max(first, segment.largest_timestamp())]
        shares = (min(max((offset + 1 - base) / max(1, end - base), 0), 1) for _, offset in rows)
        sizes += [done, *(done + share * segment.size for share in shares), done + segment.size]
        done += segment.size
    return list(accumulate((min(moment, now_ms) for moment in times), max)), list(accumulate(sizes, max))


def bytes_at(growth: Growth, moments: np.ndarray) -> np.ndarray:
    """Returns the bytes of a log at each of ascending moments: 0 before its first record, all after its last."""
    if growth.last_ms <= growth.first_ms:
        whole: np.ndarray = np.where(moments >= growth.last_ms, growth.bytes[-1], 0)
        return whole
    times = np.linspace(growth.first_ms, growth.last_ms, len(growth.bytes))
    found: np.ndarray = np.interp(moments, times, growth.bytes, left=0)
    return found


def growth_of_all(grown: Sequence[Growth], now_ms: int) -> tuple[Growth | None, int]:
    """Returns the growth of all logs together, and the bytes before its first moment.

    The axis begins where all but a half percent of the bytes begin: one log with records of 1970 does not press the
    others together.
    """
    if not grown:
        return None, 0
    ordered = sorted(grown, key=lambda one: one.first_ms)
    total, skipped, first = sum(one.bytes[-1] for one in ordered), 0, ordered[0].first_ms
    for one in ordered:
        first = one.first_ms
        skipped += one.bytes[-1]
        if skipped > total * _LEFT_OUT:
            break
    moments = np.linspace(first, max(now_ms, first + 1), _AXIS_POINTS)
    found = np.zeros(_AXIS_POINTS)
    for one in grown:
        found += bytes_at(one, moments)
    return Growth(first, int(moments[-1]), tuple(int(size) for size in found)), int(found[0])


def bytes_of_last_day(grown: Sequence[Growth], now_ms: int) -> int:
    """Returns the bytes of records of the last 24 hours."""
    moments = np.array([now_ms - DAY_MS, now_ms], dtype=np.float64)
    return sum(int(np.subtract(*bytes_at(one, moments)[::-1])) for one in grown)
