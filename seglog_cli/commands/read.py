"""`seglog read`: records as a broker would serve them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seglog_cli.failures import UsageError
from seglog_cli.options import Partition, command, labelled, offset_option, size_option, time_option
from seglog_cli.selecting import wants_base64
from seglog_cli.session import Session

if TYPE_CHECKING:
    from seglog.scan.listing import PartitionListing

_SHOWN = 3


@command
def run(
    session: Session,
    partition: Partition,
    offset: Annotated[int | None, offset_option("--offset", "Start at this offset.")] = None,
    timestamp: Annotated[
        int | None, time_option("--timestamp", "Start at the first record of this time or later.")
    ] = None,
    max_bytes: Annotated[int | None, size_option("--max-bytes", "One fetch of at most this size.")] = None,
    isolation: Annotated[
        str,
        typer.Option("--isolation", metavar="read_committed|read_uncommitted", help="How far transactions are seen."),
    ] = "read_uncommitted",
    limit: Annotated[int | None, offset_option("--limit", "At most this many records.")] = None,
    bytes_as: Annotated[
        str, typer.Option("--bytes", metavar="auto|base64", help="How keys, values and headers are written.")
    ] = "auto",
) -> None:
    """Reads records from an offset or a time on.

    Without --offset and --timestamp it begins at the log start; without --max-bytes it reads to the end. With
    --max-bytes it makes one fetch as a consumer does: at least one batch, whatever its size. An offset
    outside the log is an error that names the valid range. With --isolation read_committed, records of
    aborted and of open transactions are left out. Where offsets do not ascend (a block written twice, moved, or
    from elsewhere) each offset is shown once, in the order of the files, and a warning says where.

    In a log of Kafka 0.7 offsets are byte positions: --offset begins at the first message there or after it.

    Examples:
      seglog read orders-lz4-0 --offset 700
      seglog read --json payments-0 --isolation read_committed --limit 3
      seglog read clicks-0 --timestamp 2026-11-21T00:00:00Z --limit 1
    """
    from seglog.dump.render_records import render_records
    from seglog.model import Isolation
    from seglog.operations.read import fetch_records

    if offset is not None and timestamp is not None:
        raise UsageError("--offset and --timestamp do not go together")
    level = labelled("--isolation", isolation, Isolation)
    base64 = wants_base64(bytes_as)
    listing = _listing_07(session, partition)
    if listing is not None:
        if timestamp is not None:
            raise UsageError(f"{partition}: messages of Kafka 0.7 have no timestamps")
        _read_07(session, listing, offset, limit, max_bytes, base64)
        return
    logging.getLogger("seglog.log.reading").addHandler(logging.NullHandler())  # it is said below, with figures
    with session.open_log(partition) as log:
        found = fetch_records(
            log,
            offset=offset,
            timestamp=timestamp,
            max_bytes=max_bytes,
            isolation=level,
            limit=limit,
        )
        for records in found:
            for block in render_records(records, as_json=session.as_json, base64=base64):
                session.console.write(block)
        for disorder in log.disorders[:_SHOWN]:
            session.console.warning(str(disorder))
        if len(log.disorders) > _SHOWN:
            session.console.warning(f"so it is in {len(log.disorders) - _SHOWN} other segments")


def _listing_07(session: Session, partition: Path) -> PartitionListing | None:
    """The files of a log of Kafka 0.7; None for any other."""
    from seglog.scan.listing import list_partition

    status = session.fs.status(partition)
    if status is None or not status.is_directory:
        return None  # opening it says so
    listing = list_partition(session.fs, partition)
    return listing if listing.format == "0.7" else None


def _read_07(
    session: Session,
    listing: PartitionListing,
    offset: int | None,
    limit: int | None,
    max_bytes: int | None,
    base64: bool,
) -> None:
    from seglog.dump.render_json import json_line, text_line
    from seglog.operations.read_07 import read_07

    line = json_line if session.as_json else text_line
    for fields in read_07(session.fs, listing, offset, limit, max_bytes, base64):
        session.console.write(line("record", fields))
