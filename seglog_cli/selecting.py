"""The one grammar of "which records": what read, dump, export, diff and spark take alike, and how they are written."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from seglog_cli.failures import UsageError
from seglog_cli.options import OptionGroup, flag, labelled, offset_option, one_of, option, time_option
from seglog_cli.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterable

    from seglog.dump.selection import Selection

Isolation = Annotated[
    str | None,
    option(
        "--isolation",
        "read_committed|read_uncommitted",
        "Whether to leave out records of aborted and open transactions (read_committed), or not.",
    ),
]
RecordLimit = Annotated[int | None, offset_option("--limit", "Stop after N records.")]
DifferenceLimit = Annotated[int | None, offset_option("--limit", "Show at most N differences of each partition.")]
BytesAs = Annotated[
    str, option("--bytes", "auto|base64", "How to write keys, values and headers; auto: as text where they are UTF-8.")
]
Decode = Annotated[bool, flag("--decode", "Decode keys and values of Kafka's internal topics.")]


@dataclass(frozen=True)
class Chosen(OptionGroup):
    """The options that choose records by what the records themselves say; None where one was not given."""

    from_offset: Annotated[int | None, offset_option("--from-offset", "Begin at this offset.")] = None
    to_offset: Annotated[int | None, offset_option("--to-offset", "End before this offset.")] = None
    since: Annotated[int | None, time_option("--since", "Leave out records from before this time.")] = None
    until: Annotated[int | None, time_option("--until", "Leave out records of this time or later.")] = None
    key: Annotated[str | None, option("--key", "KEY", "Take only records with this key.")] = None
    isolation: Isolation = None

    def selection(self, isolation: str = "read_uncommitted") -> Selection:
        """The records that are asked for; `isolation` is what counts where the option was not given. Wrong usage where
        no record can lie between the bounds."""
        from seglog.dump.selection import Selection
        from seglog.model import Isolation as Level

        for options, first, end in (
            ("--since and --until", self.since, self.until),
            ("--from-offset and --to-offset", self.from_offset, self.to_offset),
        ):
            if first is not None and end is not None and first > end:
                raise UsageError(f"{options}: the second is before the first, and no record lies between")
        return Selection(
            self.from_offset,
            self.to_offset,
            self.since,
            self.until,
            getattr(self, "producer_id", None),
            None if self.key is None else os.fsencode(self.key),
            labelled("--isolation", self.isolation or isolation, Level),
        )

    def refuse(self, why: str, *names: str) -> None:
        """Wrong usage when one of these options (by field) was given."""
        given = [f"--{name.replace('_', '-')}" for name in names if getattr(self, name, None) is not None]
        if given:
            raise UsageError(f"{', '.join(given)}: {why}")


@dataclass(frozen=True)
class Wanted(Chosen):
    """The same, and what the batches around the records say."""

    producer_id: Annotated[int | None, option("--producer-id", "ID", "Take only batches of this producer.")] = None


def wants_base64(bytes_as: str) -> bool:
    """What --bytes says; wrong usage for anything but auto and base64."""
    return one_of("--bytes", bytes_as, ("auto", "base64")) == "base64"


def require_decoders(decode: bool, base64: bool, partitions: Iterable[str]) -> None:
    """Wrong usage where --decode would change nothing, of partition directories with these names."""
    if not decode:
        return
    from seglog.dump.internal_topics import DECODERS, decoder_of

    if base64:
        raise UsageError("--decode and --bytes base64 are two forms of keys and values: give one of them")
    if not any(map(decoder_of, partitions)):
        raise UsageError(f"--decode is for Kafka's internal topics: {', '.join(DECODERS)}")


def renamed(session: Session, value: int | None, old: str, new: str, given: int | None) -> int | None:
    """The value of an option that has another name now: the old name counts for one release more, with a note."""
    if given is None:
        return value
    if value is not None:
        raise UsageError(f"{old} is the old name of {new}: give one of them")
    session.console.message(f"note: {old} is called {new} now; the old name goes with the next release")
    return given
