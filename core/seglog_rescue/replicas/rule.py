"""The rule by which a replica is chosen: the one rule of `replicas`, `rebuild` and `transplant`.

1. A replica in sync by the metadata, if that is no older than the logs, and if its log has not lost records below a
   high watermark since, or all of them.
2. The newest leader epoch: Kafka gives an epoch to one leader, so an older one was left behind.
3. The fewest acknowledged offsets missing: the log ends below a high watermark, or is damaged below it.
4. The longest log, then the least damaged one.
5. The former leader; else in turn by the partition's number, so that leaders are spread over the brokers.

Steps 2 and 4 are Kafka's (KIP-966, unclean recovery).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seglog_rescue.replicas.lineage import Lineage, common_end

if TYPE_CHECKING:
    from seglog_rescue.rebuild.known import KnownPartition


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica as its broker would have it after a start. `node` is -1 where its broker is not known.

    `high_watermark` is the checkpointed one, 0 if it is unknown. `holes` are ranges (first, end) of offsets that are
    damaged or missing inside; `falls` counts batches with a leader epoch that is not believed.
    """

    node: int
    lineage: Lineage
    high_watermark: int = 0
    holes: tuple[tuple[int, int], ...] = ()
    falls: int = 0

    @property
    def damage(self) -> int:
        """The number of damaged or missing offsets, and of batches with a wrong leader epoch."""
        return sum(end - first for first, end in self.holes) + self.falls


@dataclass(frozen=True, slots=True)
class Metadata:
    """What the controllers say of a partition; `in_sync` are the replicas that have every acknowledged record, none
    if the controllers do not know of any (KIP-966: after all of them had crashed)."""

    leader: int
    leader_epoch: int
    in_sync: Collection[int]

    @classmethod
    def of(cls, entry: KnownPartition | None) -> Metadata | None:
        """Returns what a partition's entry says, None without one."""
        return None if entry is None else cls(entry.leader, entry.leader_epoch, [*entry.isr, *entry.eligible])


def acknowledged_end(lineage: Lineage, candidates: Sequence[Candidate]) -> int:
    """Returns the end of what was surely acknowledged in a log: by the high watermark of any copy, as far as the two
    are the same log."""
    return max((min(each.high_watermark, common_end(lineage, each.lineage)) for each in candidates), default=0)


def is_current(metadata: Metadata | None, candidates: Sequence[Candidate]) -> bool:
    """True if the metadata is no older than the logs."""
    return metadata is not None and metadata.leader_epoch >= max(
        (candidate.lineage.newest_epoch for candidate in candidates), default=-1
    )


def ranked(
    candidates: Sequence[Candidate], metadata: Metadata | None = None, number: int = 0
) -> list[tuple[Candidate, bool]]:
    """Returns the candidates, the best one first, each with whether it counts as in sync."""
    current = is_current(metadata, candidates)
    lost = {id(candidate): missing_acknowledged(candidate, candidates) for candidate in candidates}

    def in_sync(candidate: Candidate) -> bool:
        assert metadata is not None
        return candidate.node in metadata.in_sync and not lost[id(candidate)] and not is_emptied(candidate, candidates)

    def order(candidate: Candidate) -> tuple[int, ...]:
        lineage = candidate.lineage
        synced = current and in_sync(candidate)
        return -synced, -lineage.newest_epoch, lost[id(candidate)], -lineage.end, candidate.damage

    ordered = sorted(candidates, key=lambda candidate: (order(candidate), candidate.node))
    equals = [candidate for candidate in ordered if order(candidate) == order(ordered[0])]
    before = [candidate for candidate in equals if metadata is not None and candidate.node == metadata.leader]
    if equals:
        best = before[0] if before else equals[number % len(equals)]
        ordered = [best, *(candidate for candidate in ordered if candidate is not best)]
    return [(candidate, current and in_sync(candidate)) for candidate in ordered]


def ranked_by_reading(
    candidates: list[Candidate], read: Callable[[int], Candidate], metadata: Metadata | None = None, number: int = 0
) -> list[tuple[int, bool]]:
    """As `ranked`, for candidates of which only the ends are known; returns their places in the list.

    Of several, the first one is read in whole (`read` gets its place) until the first one has been: reading finds
    damage and what a start would cut, so it makes a copy worse, never better. `candidates` then holds what was read.
    """
    whole: set[int] = set()
    while True:
        places = {id(candidate): place for place, candidate in enumerate(candidates)}
        order = [(places[id(candidate)], synced) for candidate, synced in ranked(candidates, metadata, number)]
        best = order[0][0]
        if best in whole or len(candidates) == 1:
            return order
        candidates[best] = read(best)
        whole.add(best)


def is_emptied(candidate: Candidate, candidates: Sequence[Candidate]) -> bool:
    """True if a copy has no record, and never had by its offsets, while another one has some: retention would leave its
    log start above 0."""
    return candidate.lineage.end == 0 and any(each.lineage.end > 0 for each in candidates)


def missing_acknowledged(candidate: Candidate, candidates: Sequence[Candidate]) -> int:
    """Returns how many acknowledged offsets a copy lacks: those that a copy of its newest epoch or a later one has,
    those that it had itself by its own high watermark before its start cut it, and those that are damaged. What the
    older epochs alone have, an election had given up."""
    lineage = candidate.lineage
    missing = candidate.high_watermark - lineage.end
    for other in candidates:
        if other.lineage.newest_epoch >= lineage.newest_epoch:
            parted = common_end(lineage, other.lineage)
            missing = max(missing, min(other.high_watermark, other.lineage.end) - parted)
    committed = acknowledged_end(lineage, candidates)
    damaged = sum(max(0, min(end, committed) - first) for first, end in candidate.holes)
    return max(0, missing) + damaged
