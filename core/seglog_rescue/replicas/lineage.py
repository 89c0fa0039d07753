"""Where two copies of a log part, by their leader epochs alone.

A leader gives each batch its epoch, and a follower keeps it. So two logs are equal up to the smaller end of the newest
epoch that both have, and a follower cuts its log there before it fetches.

Kafka: KIP-101, KIP-279, KIP-320; LeaderEpochFileCache.endOffsetFor, UnifiedLog.endOffsetForEpoch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Lineage:
    """The offsets of a log from `start` to `end` (exclusive), and (leader epoch, its first offset) in order."""

    start: int
    end: int
    epochs: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, start: int, end: int, epochs: Iterable[tuple[int, int]]) -> Lineage:
        """Returns a lineage in which epochs and their first offsets ascend; of two entries that contradict each other
        the one with the higher epoch stays, as in Kafka's cache."""
        entries: list[tuple[int, int]] = []
        for epoch, first in sorted(set(epochs)):
            if entries and entries[-1][0] == epoch:
                continue
            while entries and entries[-1][1] >= first:
                entries.pop()
            entries.append((epoch, first))
        return cls(start, end, tuple(entries))

    @property
    def newest_epoch(self) -> int:
        """The newest epoch that begins no later than the log ends, -1 for none. A leader that has written nothing has
        begun one at the end."""
        return max((epoch for epoch, first in self.epochs if first <= self.end), default=-1)

    def cut(self, end: int) -> Lineage:
        """Returns what is left after a truncation to `end`."""
        if end >= self.end:
            return self
        return Lineage(min(self.start, end), end, tuple(entry for entry in self.epochs if entry[1] < end))

    def end_of(self, epoch: int) -> int:
        """Returns the offset after the last one of `epoch`, which must be there."""
        following = [first for number, first in self.epochs if number > epoch]
        return min([self.end, *following[:1]])

    def epoch_at(self, offset: int) -> int:
        """Returns the epoch of an offset, -1 if it is unknown."""
        return max((epoch for epoch, first in self.epochs if first <= offset), default=-1)


def common_end(log: Lineage, other: Lineage) -> int:
    """Returns the offset at which two logs part, or the smaller end: what lies below it in both is the same."""
    if log.epochs and log.epochs == other.epochs and log.epochs[-1][1] < min(log.end, other.end):
        return min(log.end, other.end)  # most copies are alike, and thousands are compared
    mine = {epoch for epoch, first in log.epochs if first < log.end}
    shared = mine & {epoch for epoch, first in other.epochs if first < other.end}
    least = min(log.end, other.end)
    if shared:
        newest = max(shared)
        return min(log.end_of(newest), other.end_of(newest))
    if not log.epochs or not other.epochs or max(log.start, other.start) >= least:
        return least  # without epochs (before 0.11) the end alone decides; nor do logs part that share no offset
    return max(log.start, other.start)


def contradiction(log: Lineage, other: Lineage) -> int | None:
    """Returns the first shared offset that the logs give to different epochs, although no follower would cut there."""
    start, end = max(log.start, other.start), common_end(log, other)
    if start >= end or not log.epochs or not other.epochs:
        return None
    edges = sorted({start, *(first for _, first in (*log.epochs, *other.epochs) if start < first < end), end})
    for first, _ in pairwise(edges):
        if log.epoch_at(first) != other.epoch_at(first):
            return first
    return None
