"""Which record of a key survives (KIP-280, which Kafka accepted and never shipped).

`offset` keeps the record with the highest offset, as Kafka does. `timestamp` and `header:NAME` keep the one with the
highest timestamp, or the highest value of a header. Ties go to the higher offset. A header's value is a number of
8 bytes, big-endian and signed; of several headers with the name the last one counts; a record without such a
value loses to one that has it. Whatever the strategy, the record with the last offset of the range stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from seglog.errors import ConfigError


class StrategyKind(IntEnum):
    """How versions compare; the values are the offset map's."""

    OFFSET = 0
    TIMESTAMP = 1
    HEADER = 2


@dataclass(frozen=True, slots=True)
class Strategy:
    """A compaction strategy; `header` is the name of the header that holds the version."""

    kind: StrategyKind
    header: str = ""

    @classmethod
    def parse(cls, text: str) -> Strategy:
        """`offset`, `timestamp` or `header:NAME`; ConfigError for anything else."""
        name, colon, header = text.partition(":")
        if name == "header" and header:
            return cls(StrategyKind.HEADER, header)
        if not colon and name in ("offset", "timestamp"):
            return cls(StrategyKind[name.upper()])
        raise ConfigError(f"unknown compaction strategy {text!r}: offset, timestamp or header:NAME")

    def __str__(self) -> str:
        return f"header:{self.header}" if self.kind is StrategyKind.HEADER else self.kind.name.lower()


OFFSET = Strategy(StrategyKind.OFFSET)
