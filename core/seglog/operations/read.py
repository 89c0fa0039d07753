"""Reads a log from an offset or a time to its end, or a single fetch, for `seglog read`; also one of Kafka 0.7."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from seglog.errors import CorruptRecordError, OffsetOutOfRangeError
from seglog.format.columns import Records
from seglog.log.log import Log
from seglog.scan.listing import PartitionListing
from seglog.scan.selection import Selection
from seglog.storage.filesystem import FileSystem
from seglog.verification.stretches import Reading


def fetch_records(log: Log, selection: Selection, *, max_bytes: int | None, limit: int | None) -> Iterator[Records]:
    """Yields the selected records, from the selection's first offset or time on, else from the log start.

    `max_bytes` makes it a single fetch; `limit` bounds the records. Yields nothing if every record is older than the
    first time. Raises OffsetOutOfRangeError with the valid range, and CorruptRecordError when it reaches damage, after
    the records before it, also for a log that ends within a batch. Reading ends some batches after the range
    (`verification.stretches`), as timestamps may be out of order.
    """
    start = log.log_start_offset if selection.first_offset is None else selection.first_offset
    if selection.first_timestamp is not None:
        position = log.offset_for_timestamp(max(selection.first_timestamp, 0))  # negative numbers are Kafka's codes
        if position is None:
            _require_end(log)
            return
        start = max(start, position.offset) if selection.first_offset is not None else position.offset
    if max_bytes is None:
        parts = log.columns(start, selection.isolation)
    else:
        parts = log.read(start, max_bytes, selection.isolation).columns()
    reading, left = Reading(selection), limit
    for records in parts:
        selected = replace(records, rows=selection.of(records, True).rows[:left])
        left = None if left is None else left - len(selected)
        yield selected
        if left is not None and left <= 0:
            return
        end = selection.end_offset
        if end is not None and len(records) and records.rows["offset"][-1] >= end - 1:
            return
        if selection.ends:
            reading.read(records.batches)
            if reading.over:
                return
    if max_bytes is None or start >= log.log_end_offset:
        _require_end(log)


def _require_end(log: Log) -> None:
    """Raises CorruptRecordError if the last file continues after the log end, also for an incomplete write."""
    found = log.unreadable_end
    if found is not None:
        raise found.error()


def read_07(
    fs: FileSystem,
    listing: PartitionListing,
    offset: int | None,
    limit: int | None,
    max_bytes: int | None,
    base64_values: bool,
) -> Iterator[dict[str, Any]]:
    """Yields the records from `offset` on, as a consumer of Kafka 0.7 (SimpleConsumer) gets them: at most `limit`, or
    whole messages of at most `max_bytes` (at least one).

    Raises OffsetOutOfRangeError outside the log, CorruptRecordError at damage, also at a torn end.
    """
    from seglog.verification.findings import Finding  # only such a log needs these
    from seglog.verification.messages_07 import Messages07

    segments = listing.segments
    start = segments[0].base_offset if segments else 0
    end = segments[-1].base_offset + segments[-1].size if segments else 0
    if offset is not None and not start <= offset <= end:
        raise OffsetOutOfRangeError(offset, start, end, listing.directory.name)
    shown = used = 0
    for segment in segments:
        left = None if limit is None else limit - shown
        messages = Messages07(fs, segment.log, base64_values=base64_values, first_offset=offset or 0, limit=left)
        for row in messages.rows():
            if isinstance(row, Finding):
                raise CorruptRecordError(segment.log, row.message, row.position, row.first_offset)
            kind, fields = row
            if kind == "record":
                yield fields
                continue
            used += int(fields["size"])
            if max_bytes is not None and used > max_bytes and used > fields["size"]:
                return
        shown += messages.shown
