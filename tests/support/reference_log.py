"""A log as lists of records: slow, obvious, and nothing of the engine in it. The model that `Log` is compared with."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Entry:
    """A record with its place in the log."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


@dataclass
class ReferenceSegment:
    """A base offset and batches, each a list of entries that stays or goes as a whole."""

    base_offset: int
    batches: list[list[Entry]] = field(default_factory=list)

    @property
    def next_offset(self) -> int:
        return self.batches[-1][-1].offset + 1 if self.batches else self.base_offset


class ReferenceLog:
    """What a log must contain after appends, rolls, truncations and being opened again."""

    def __init__(self) -> None:
        self.segments = [ReferenceSegment(0)]
        self.log_start_offset = 0
        self.log_end_offset = 0

    def entries(self, offset: int = 0) -> list[Entry]:
        """All records from `offset` on."""
        found = [entry for segment in self.segments for batch in segment.batches for entry in batch]
        return [entry for entry in found if entry.offset >= max(offset, self.log_start_offset)]

    def append(self, batches: list[list[tuple[int, bytes | None, bytes | None]]]) -> None:
        """Batches of (timestamp, key, value)."""
        for batch in batches:
            numbered = [Entry(self.log_end_offset + i, *item) for i, item in enumerate(batch)]
            self.segments[-1].batches.append(numbered)
            self.log_end_offset += len(batch)

    def roll(self) -> None:
        if self.segments[-1].base_offset != self.log_end_offset:
            self.segments.append(ReferenceSegment(self.log_end_offset))

    def truncate_to(self, offset: int) -> None:
        """Whole batches go; the log end is set to `offset` although the last batch may end before it."""
        if offset >= self.log_end_offset:
            return
        self.segments = [segment for segment in self.segments if segment.base_offset <= offset]
        last = self.segments[-1]
        last.batches = [batch for batch in last.batches if batch[-1].offset < offset]
        self.log_end_offset = offset

    def reopen(self) -> None:
        """The log end is found again from what is there."""
        self.log_end_offset = self.segments[-1].next_offset

    def search(self, timestamp: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record at `timestamp` or later in the first segment that reaches it. An
        empty one has the time of its file, which is later than every record's: as in Kafka, none after it is searched.
        """
        for segment in self.segments:
            entries = [entry for batch in segment.batches for entry in batch]
            hits = [(entry.timestamp, entry.offset) for entry in entries if entry.timestamp >= timestamp]
            if hits or not entries:
                return hits[0] if hits else None
        return None

    def largest(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record with the largest timestamp."""
        entries = self.entries()
        if not entries:
            return None
        largest = max(entry.timestamp for entry in entries)
        return largest, next(entry.offset for entry in entries if entry.timestamp == largest)
