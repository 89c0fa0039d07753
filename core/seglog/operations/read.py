"""Reading a log from an offset or a time to its end, or one fetch of it: what `seglog read` shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from seglog.format.columns import Records
from seglog.log.log import Log
from seglog.model import Isolation


def fetch_records(
    log: Log,
    *,
    offset: int | None = None,
    timestamp: int | None = None,
    max_bytes: int | None = None,
    isolation: Isolation | str = Isolation.READ_UNCOMMITTED,
    limit: int | None = None,
) -> Iterator[Records]:
    """Records from `offset`, or from the first one at `timestamp` (epoch milliseconds) or later.

    With neither, from the log start. `max_bytes` makes it one fetch; `limit` bounds the records. Nothing
    comes when no record is as young as `timestamp`. OffsetOutOfRangeError names the valid range.
    """
    start = log.log_start_offset if offset is None else offset
    if timestamp is not None:
        found = log.offset_for_timestamp(max(timestamp, 0))  # below 0 are Kafka's codes
        if found is None:
            return
        start = found.offset
    if max_bytes is None:
        parts = log.columns(start, isolation)
    else:
        parts = log.read(start, max_bytes, isolation).columns()
    left = limit
    for records in parts:
        if left is None:
            yield records
            continue
        if left <= 0:
            return
        shown = replace(records, rows=records.rows[:left])
        left -= len(shown)
        yield shown
