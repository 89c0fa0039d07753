"""Chooses which of a partition's segments in tiered storage form its log, and how much of each.

Leaders of different epochs may have uploaded the same offsets, and a deposed leader may have uploaded records that
never became part of the log. A broker consults its leader epochs. Offline, the lineage is the local log's epochs, if
there is one, or the checkpoint of the segment with the highest last epoch. Then:

1. A segment counts as far as its own epochs match the lineage. The rest is left out.
2. Where segments overlap, the later one counts from its first offset, and the earlier one ends there. A segment inside
   another one is a duplicate.
3. The local log counts from its first segment.

Everything left out or cut, and every offset in between that no segment has, is a `Remark`. Kafka:
RemoteLogManager.isRemoteSegmentWithinLeaderEpochs, RemoteLogMetadataCache.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from seglog.errors import CorruptionError
from seglog.format.checkpoint import EpochEntry
from seglog.layout import INT64_MAX
from seglog_stores.tiers.segments import Problem, Remark, TierSegment


@dataclass(frozen=True, slots=True)
class Local:
    """The local part of a partition: base offsets of its first and last segment, and its leader epochs."""

    first: int
    last: int
    epochs: tuple[EpochEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class LineageSegment:
    """A segment that is part of the log up to `end_offset` (inclusive), which is below its own if it is cut."""

    segment: TierSegment
    end_offset: int

    @property
    def is_cut(self) -> bool:
        """True if batches at its end are left out."""
        return self.end_offset < self.segment.end_offset


@dataclass(slots=True)
class Choice:
    """The result of `choose`: `chosen` segments in offset order, and `remarks` about the rest."""

    partition: str
    chosen: list[LineageSegment]
    remarks: list[Remark]

    def remark(self, problem: Problem, segment: TierSegment, message: str, first: int | None = None) -> None:
        """Adds a remark about a segment from `first` (default: its start) to its end."""
        begin = segment.start_offset if first is None else first
        self.remarks.append(Remark(problem, self.partition, message, begin, segment.end_offset, segment.path))


def lineage_of(
    segments: Iterable[TierSegment], on_error: Callable[[TierSegment, OSError], None] | None
) -> tuple[EpochEntry, ...]:
    """Returns the leader epochs of the segment with the highest last epoch and end; () if no segment has any.

    Skips a segment whose checkpoint is invalid or does not ascend. With `on_error` also skips one that cannot be read;
    without it that raises OSError.
    """
    with_epochs = [segment for segment in segments if segment.epochs]
    for segment in sorted(
        with_epochs, key=lambda segment: (segment.epochs[-1].epoch, segment.end_offset), reverse=True
    ):
        try:
            lineage = segment.lineage()
        except CorruptionError:
            lineage = ()
        except OSError as error:
            if on_error is None:
                raise
            on_error(segment, error)
            lineage = ()
        if lineage and is_ascending(lineage):
            return lineage
    return ()


def is_ascending(epochs: Sequence[EpochEntry]) -> bool:
    """True if epochs and their offsets both ascend."""
    pairs = itertools.pairwise(epochs)
    return all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairs)


def choose(
    partition: str, segments: Sequence[TierSegment], local: Local | None = None, lineage: Sequence[EpochEntry] = ()
) -> Choice:
    """Returns the segments that form the log. Without a `lineage` every segment counts completely."""
    choice = Choice(partition, [], [])
    counted = []
    for segment in segments:
        end = _end_in_lineage(segment, lineage) if lineage and segment.epochs else segment.end_offset
        if end < segment.start_offset:
            choice.remark(
                Problem.OUTSIDE_LINEAGE,
                segment,
                f"offsets {segment.start_offset} to {segment.end_offset} of {segment.path} are left out: a leader of"
                " another lineage wrote them",
            )
            continue
        if end < segment.end_offset:
            choice.remark(
                Problem.OUTSIDE_LINEAGE,
                segment,
                f"offsets {end + 1} to {segment.end_offset} of {segment.path} are left out: a leader of another lineage"
                " wrote them",
                end + 1,
            )
        counted.append(LineageSegment(segment, end))
    counted.sort(
        key=lambda chosen: (chosen.segment.start_offset, -chosen.end_offset, -chosen.segment.event_timestamp_ms)
    )
    _without_overlaps(choice, counted)
    if local is not None:
        _before_local(choice, local)
    _remark_gaps(choice, local)
    return choice


def _end_in_lineage(segment: TierSegment, lineage: Sequence[EpochEntry]) -> int:
    """Returns the last offset of a segment that is in the lineage; an offset below its start if none is."""
    starts = {entry.epoch: entry.start_offset for entry in lineage}
    ends = {a.epoch: b.start_offset - 1 for a, b in itertools.pairwise(lineage)}
    oldest = lineage[0]
    reached = segment.start_offset - 1
    own = [(e.epoch, e.start_offset) for e in segment.epochs]
    for i, (epoch, start) in enumerate(own):
        last = own[i + 1][1] - 1 if i + 1 < len(own) else segment.end_offset
        if epoch < oldest.epoch and own[-1][0] >= oldest.epoch:
            reached = last  # the log has been deleted up to somewhere in this segment
            continue
        if epoch not in starts or (start < starts[epoch] and epoch != oldest.epoch):
            return reached
        if i and start != starts[epoch] and epoch != oldest.epoch:
            return reached
        end = ends.get(epoch, INT64_MAX)
        reached = min(last, end)
        if end < last:
            return max(reached, segment.start_offset - 1)
    return reached


def _without_overlaps(choice: Choice, counted: Iterable[LineageSegment]) -> None:
    for chosen in counted:
        segment, before = chosen.segment, choice.chosen[-1] if choice.chosen else None
        if before is not None and chosen.end_offset <= before.end_offset:
            first, last = segment.start_offset, chosen.end_offset
            message = f"offsets {first} to {last} are in two segments; {segment.path} is left out"
            choice.remark(Problem.DUPLICATE, segment, message)
            continue
        if before is not None and segment.start_offset <= before.end_offset:
            message = (
                f"offsets {segment.start_offset} to {before.end_offset} are in two segments; {before.segment.path}"
                f" counts only up to offset {segment.start_offset - 1}"
            )
            choice.remark(Problem.OVERLAP, before.segment, message, segment.start_offset)
            choice.chosen[-1] = replace(before, end_offset=segment.start_offset - 1)
        choice.chosen.append(chosen)


def _before_local(choice: Choice, local: Local) -> None:
    kept = []
    for chosen in choice.chosen:
        segment = chosen.segment
        if segment.start_offset > local.last:
            message = (
                f"{segment.path} is left out: it begins at offset {segment.start_offset}, after the last local segment"
                f" at {local.last}, so the local log is older than the tier"
            )
            choice.remark(Problem.LOCAL_BEHIND, segment, message)
        elif segment.start_offset < local.first:
            kept.append(replace(chosen, end_offset=min(chosen.end_offset, local.first - 1)))
    choice.chosen = kept


def _remark_gaps(choice: Choice, local: Local | None) -> None:
    ends = [(chosen.segment.start_offset, chosen.end_offset) for chosen in choice.chosen]
    if local is not None:
        ends.append((local.first, local.first))
    for (_, end), (start, _) in itertools.pairwise(ends):
        if start > end + 1:
            message = f"offsets {end + 1} to {start - 1} are in no segment"
            choice.remarks.append(Remark(Problem.GAP, choice.partition, message, end + 1, start - 1))
