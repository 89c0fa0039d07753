"""What `dump`, `export` and `read` share: options on which records are wanted and how they are written."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from seglog_cli.options import offset_option, one_of, time_option

if TYPE_CHECKING:
    from seglog.dump.selection import Selection

FromOffset = Annotated[int | None, offset_option("--from-offset", "From this offset on.")]
ToOffset = Annotated[int | None, offset_option("--to-offset", "Up to this offset, without it.")]
Since = Annotated[int | None, time_option("--since", "From this time on.")]
Until = Annotated[int | None, time_option("--until", "Up to this time, without it.")]
Key = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Only records with this key.")]
ProducerId = Annotated[int | None, typer.Option("--producer-id", metavar="ID", help="Only batches of this producer.")]


def selection(
    from_offset: int | None,
    to_offset: int | None,
    since: int | None,
    until: int | None,
    producer_id: int | None,
    key: str | None,
) -> Selection:
    """The records that the options ask for."""
    from seglog.dump.selection import Selection

    return Selection(from_offset, to_offset, since, until, producer_id, None if key is None else os.fsencode(key))


def wants_base64(bytes_as: str) -> bool:
    """What --bytes says; wrong usage for anything but auto and base64."""
    return one_of("--bytes", bytes_as, ("auto", "base64")) == "base64"
