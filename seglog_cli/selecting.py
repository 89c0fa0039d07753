"""The options that choose records, the same for read, dump, export, diff and spark, and how records are written."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from seglog_cli.failures import UsageError
from seglog_cli.options import OptionGroup, flag, labelled, offset_option, one_of, option, time_option

if TYPE_CHECKING:
    from collections.abc import Iterable

    from seglog.scan.selection import Selection

Isolation = Annotated[
    str | None,
    option(
        "--isolation",
        "read_committed|read_uncommitted",
        "With read_committed, leave out records of aborted and open transactions.",
    ),
]
RecordLimit = Annotated[int | None, offset_option("--limit", "Stop after N records.")]
DifferenceLimit = Annotated[int | None, offset_option("--limit", "Show at most N differences for each partition.")]
BytesAs = Annotated[
    str, option("--bytes", "auto|base64", "How to write keys, values and headers; auto writes UTF-8 as text.")
]
Decode = Annotated[bool, flag("--decode", "Decode keys and values of internal topics.")]


@dataclass(frozen=True)
class Chosen(OptionGroup):
    """Options that choose records by their own contents; None if not given."""

    from_offset: Annotated[int | None, offset_option("--from-offset", "Start at this offset.")] = None
    to_offset: Annotated[int | None, offset_option("--to-offset", "Stop before this offset.")] = None
    since: Annotated[int | None, time_option("--since", "Leave out records before this time.")] = None
    until: Annotated[int | None, time_option("--until", "Leave out records at this time or later.")] = None
    key: Annotated[str | None, option("--key", "KEY", "Take only records with this key.")] = None
    isolation: Isolation = None

    def selection(self, isolation: str = "read_uncommitted") -> Selection:
        """Returns the chosen records; `isolation` applies if the option was not given.

        Raises UsageError if no record can be between the bounds.
        """
        from seglog.model import Isolation as Level
        from seglog.scan.key_set import KeySet
        from seglog.scan.selection import Selection

        for options, first, end in (
            ("--since and --until", self.since, self.until),
            ("--from-offset and --to-offset", self.from_offset, self.to_offset),
        ):
            if first is not None and end is not None and first > end:
                raise UsageError(f"{options}: the second is before the first, so no record is between them")
        grep: str | None = getattr(self, "grep", None)
        contained = None if grep is None else os.fsencode(grep)
        return Selection(
            self.from_offset,
            self.to_offset,
            self.since,
            self.until,
            getattr(self, "producer_id", None),
            None if self.key is None else KeySet([os.fsencode(self.key)]),
            labelled("--isolation", isolation if self.isolation is None else self.isolation, Level),
            contained,
        )

    def refuse(self, why: str, *names: str) -> None:
        """Raises UsageError if one of these options (by field) was given."""
        given = [f"--{name.replace('_', '-')}" for name in names if getattr(self, name, None) is not None]
        if given:
            raise UsageError(f"{', '.join(given)}: {why}")


@dataclass(frozen=True)
class Wanted(Chosen):
    """Options that choose records by offset, time and isolation, and batches by their producer."""

    producer_id: Annotated[int | None, option("--producer-id", "ID", "Take only batches of this producer.")] = None


@dataclass(frozen=True)
class Searched(Wanted):
    """Options that choose records by offset, time, isolation and producer, and by what they contain."""

    grep: Annotated[
        str | None, option("--grep", "TEXT", "Take only records with this text in key, value or headers.")
    ] = None


def wants_base64(bytes_as: str) -> bool:
    """True if --bytes is base64. Raises UsageError for anything but auto and base64."""
    return one_of("--bytes", bytes_as, ("auto", "base64")) == "base64"


def require_decoders(decode: bool, base64: bool, partitions: Iterable[str]) -> None:
    """Raises UsageError if --decode would change nothing for partition directories with these names."""
    if not decode:
        return
    from seglog.doors import door

    if base64:
        raise UsageError("--decode and --bytes base64 are two forms of keys and values: give one of them")
    if not any(map(door("internal kind"), partitions)):
        raise UsageError(
            "--decode is for internal topics, by their names: __consumer_offsets, heartbeats, …"
            " (--value-as kafka:KIND says what a topic of another name holds)"
        )
