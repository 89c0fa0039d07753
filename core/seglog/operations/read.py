"""Reads a log from an offset or a time to its end, or a single fetch, for `seglog read`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from seglog.dump.selection import Selection
from seglog.format.columns import Records
from seglog.log.log import Log


def fetch_records(log: Log, selection: Selection, *, max_bytes: int | None, limit: int | None) -> Iterator[Records]:
    """Yields the selected records, from the selection's first offset or time on, else from the log start.

    `max_bytes` makes it a single fetch; `limit` bounds the records. Yields nothing if every record is older than the
    first time. Raises OffsetOutOfRangeError with the valid range, and CorruptRecordError when it reaches damage, after
    the records before it, also for a log that ends within a batch.
    """
    start = log.log_start_offset if selection.first_offset is None else selection.first_offset
    if selection.first_timestamp is not None:
        found = log.offset_for_timestamp(max(selection.first_timestamp, 0))  # negative numbers are Kafka's codes
        if found is None:
            _require_end(log)
            return
        start = max(start, found.offset) if selection.first_offset is not None else found.offset
    if max_bytes is None:
        parts = log.columns(start, selection.isolation)
    else:
        parts = log.read(start, max_bytes, selection.isolation).columns()
    left = limit
    for records in parts:
        shown = replace(records, rows=selection.of(records, True).rows[:left])
        left = None if left is None else left - len(shown)
        yield shown
        if left is not None and left <= 0:
            return
        wanted = selection.end_offset
        if wanted is not None and len(records) and records.rows["offset"][-1] >= wanted - 1:
            return
    if max_bytes is None or start >= log.log_end_offset:
        _require_end(log)


def _require_end(log: Log) -> None:
    """Raises CorruptRecordError if the last file continues after the log end, also for an incomplete write."""
    found = log.unreadable_end
    if found is not None:
        raise found.error()
