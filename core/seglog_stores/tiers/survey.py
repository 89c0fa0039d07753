"""Surveys tiered storage: which segments are where, and what a restore would need (`seglog tiers`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from seglog.errors import NotALogError
from seglog.remote_path import why_absent
from seglog.storage import links
from seglog.storage.filesystem import FileSystem
from seglog_stores.tiers.lineage import LineageSegment
from seglog_stores.tiers.manifests import CommittedLogs, committed_logs, orphans
from seglog_stores.tiers.recognition import TierPlace, places_in
from seglog_stores.tiers.segments import GRAVE, Problem, Remark, TierSegment, unreadable
from seglog_stores.tiers.tiered_partition import TieredPartition, TierOptions, load_partition

# What `seglog tiers` reports as found; the rest is what changes of leader and deletions leave behind.
FOUND = GRAVE | {Problem.INCOMPLETE_UPLOAD, Problem.ORPHAN_OBJECT}


class ReadFrom(Enum):
    """Where the records of a segment are read from."""

    TIER = "tier"
    TIER_IN_PART = "tier, in part"
    LOCAL = "local"
    NOWHERE = "left out"


@dataclass(frozen=True, slots=True)
class PlacedSegment:
    """A segment in tiered storage. `end_offset` is the last offset that counts."""

    segment: TierSegment
    where: ReadFrom
    end_offset: int

    @property
    def size(self) -> int:
        """The bytes of its decoded log."""
        return self.segment.log.status.size


@dataclass(frozen=True, slots=True)
class Surveyed:
    """A partition in tiered storage. `segments` are all complete ones, in offset order."""

    partition: TieredPartition
    segments: tuple[PlacedSegment, ...]

    @property
    def place(self) -> TierPlace:
        """The partition and its directory."""
        return self.partition.place

    @property
    def chosen(self) -> Sequence[LineageSegment]:
        """The segments that form its log."""
        return self.partition.chosen

    @property
    def first_offset(self) -> int | None:
        """The first offset in the tier, None if the log has no segment there."""
        return self.chosen[0].segment.start_offset if self.chosen else None

    @property
    def last_offset(self) -> int | None:
        """The last offset in the tier, None if the log has no segment there."""
        return self.chosen[-1].end_offset if self.chosen else None

    @property
    def log_bytes(self) -> int:
        """The bytes of decoded logs that a restore would fetch from the tier."""
        return sum(one.size for one in self.segments if one.where in (ReadFrom.TIER, ReadFrom.TIER_IN_PART))

    @property
    def missing(self) -> list[tuple[int, int]]:
        """The offsets (inclusive) between its segments that no segment has, which a restore would lack."""
        gaps = [each for each in self.partition.remarks if each.problem is Problem.GAP]
        ranges = ((each.first_offset, each.last_offset) for each in gaps)
        return [(first, last) for first, last in ranges if first is not None and last is not None]

    @property
    def damaged(self) -> bool:
        """True if something is missing, damaged or left over."""
        return any(remark.problem in FOUND for remark in self.partition.remarks)


def survey(fs: FileSystem, paths: Sequence[Path], options: TierOptions) -> Iterator[Surveyed | Remark]:
    """Yields the partitions at some paths one by one, and remarks on metadata without objects.

    A segment or partition that cannot be read is a remark, and the others follow. Raises NotALogError for a path
    without tiered storage, OSError for a path that cannot be listed.
    """
    if options.local is not None:
        options = TierOptions(links.resolve(options.local), options.keys, options.metadata, options.cache)
    seen = set()
    for path in paths:
        logs = committed_logs(fs, path)
        if logs is not None:
            yield from _committed(fs, logs, links.resolve(path), options)
            continue
        places = places_in(fs, path)
        if not places:
            usual = "there is no tiered storage (of Aiven, LocalTieredStorage, Pinterest or seglog)"
            raise NotALogError(path, usual if fs.status(path) is not None else why_absent(path, usual))
        for place in sorted(places, key=lambda one: (one.topic_partition, one.topic_id or "")):
            seen.add((place.topic_id, place.topic_partition.partition))
            yield _survey_of(fs, place, options)
    yield from _without_objects(options, seen)


def _committed(fs: FileSystem, logs: CommittedLogs, path: Path, options: TierOptions) -> Iterator[Surveyed | Remark]:
    """Yields the partitions of a path that a manifest names, and orphans there."""
    of_path = {path.name} if path != logs.prefix else None
    for place in sorted(logs.places(), key=lambda one: one.topic_partition):
        if of_path is None or of_path & {str(place.topic_partition), place.topic_partition.topic}:
            yield _survey_of(fs, place, options)
    yield from orphans(fs, logs, of_path)


def _survey_of(fs: FileSystem, place: TierPlace, options: TierOptions) -> Surveyed | Remark:
    try:
        found = load_partition(fs, place, options, is_survey=True)
    except OSError as error:
        return unreadable(place, error, "the partition cannot be read")
    chosen = {id(one.segment): one for one in found.chosen}
    placed = []
    for segment in found.inventory:
        one = chosen.get(id(segment))
        if one is not None:
            placed.append(
                PlacedSegment(segment, ReadFrom.TIER_IN_PART if one.is_cut else ReadFrom.TIER, one.end_offset)
            )
            continue
        is_local = found.local is not None and found.local.first <= segment.start_offset <= found.local.last
        placed.append(PlacedSegment(segment, ReadFrom.LOCAL if is_local else ReadFrom.NOWHERE, segment.end_offset))
    return Surveyed(found, tuple(placed))


def _without_objects(options: TierOptions, seen: set[tuple[str | None, int]]) -> Iterator[Remark]:
    if options.metadata is None:
        return
    for (topic_id, number), copies in sorted(options.metadata.copies.items()):
        kept = [one for one in copies.values() if one.is_readable]
        if kept and (topic_id, number) not in seen:
            first, last = min(c.segment.start_offset for c in kept), max(c.segment.end_offset for c in kept)
            partition = str(kept[0].segment.topic_partition)
            message = f"the metadata has {len(kept)} segments of topic id {topic_id}, which has no objects here"
            yield Remark(Problem.MISSING_OBJECT, partition, message, first, last)
