"""The partitions that a table reads, and what its reads have left out."""

from __future__ import annotations

from dataclasses import dataclass, field

from seglog.errors import SeglogError
from seglog.storage.filesystem import FileSystem
from seglog.units import count_text
from seglog_ask.table.plan.options import ReadOptions
from seglog_ask.table.plan.partition_log import PartitionLog
from seglog_ask.table.read.damage import Damage, handle

Failure = SeglogError | OSError

_REMEMBERED = 100_000


@dataclass(slots=True)
class LeftOut:
    """The damage that reads with `on_corrupt="skip"` have left out, each range once."""

    ranges: int = 0
    bytes: int = 0
    first: str = ""
    _seen: set[tuple[str, int]] = field(default_factory=set, repr=False)

    def add(self, damage: Damage, options: ReadOptions) -> None:
        """Counts damage, unless it is expected. Raises it if the options do not skip it."""
        if options.on_corrupt == "fail":
            handle(damage, options)
        place = damage.path, damage.position
        if damage.expected or options.on_corrupt == "fail" or place in self._seen:
            return
        if len(self._seen) < _REMEMBERED:
            self._seen.add(place)
        self.ranges, self.bytes = self.ranges + 1, self.bytes + damage.size
        self.first = self.first or f"{damage.path}, position {damage.position}: {damage.reason}"

    def __str__(self) -> str:
        if not self.ranges:
            return "left out nothing"
        sizes = f"{count_text(self.ranges, 'damaged range')}, {count_text(self.bytes, 'byte')}"
        return f"left out {sizes}; {'the first' if self.ranges > 1 else 'it'} is {self.first}"


@dataclass(slots=True)
class Distant:
    """Timestamps that no column of time holds (`columns.TIMESTAMPS`): `first` is where one is; an empty text
    without any.
    """

    first: str = ""

    def __str__(self) -> str:
        return (
            f"timestamps are beyond the years -260000 to 260000, the first at {self.first}: the column timestamp has"
            " the nearest time within, timestamp_ms the number itself"
        )


@dataclass(frozen=True)
class Source:
    """What a table reads: partitions as they were found, by which options, and through which files.

    `fs` opens what pieces name. `left_out` counts what all scans have skipped, `distant` tells of timestamps that they
    did not show as they are. `failures` gets the error that ended a scan: engines pass on no more than its text.
    """

    fs: FileSystem
    options: ReadOptions
    logs: list[PartitionLog]
    left_out: LeftOut = field(default_factory=LeftOut)
    distant: Distant = field(default_factory=Distant)
    failures: list[Failure] = field(default_factory=list)
