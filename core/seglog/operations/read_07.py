"""Reads a log of Kafka 0.7 from an offset on (Kafka 0.7: SimpleConsumer)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from seglog.errors import CorruptRecordError, OffsetOutOfRangeError
from seglog.evidence.findings import Finding
from seglog.evidence.messages_07 import Messages07
from seglog.scan.listing import PartitionListing
from seglog.storage.filesystem import FileSystem


def read_07(
    fs: FileSystem,
    listing: PartitionListing,
    offset: int | None,
    limit: int | None,
    max_bytes: int | None,
    base64_values: bool,
) -> Iterator[dict[str, Any]]:
    """Yields the records from `offset` on, as a consumer of Kafka 0.7 gets them: at most `limit`, or whole messages of
    at most `max_bytes` (at least one).

    Raises OffsetOutOfRangeError outside the log, CorruptRecordError at damage, also at a torn end.
    """
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
