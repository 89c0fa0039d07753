"""What lies where in tiered storage, and what a restore would need (`seglog tiers`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from seglog.errors import NotALogError
from seglog.remote_path import why_absent
from seglog.storage import links
from seglog.storage.filesystem import FileSystem
from seglog.tiers.lineage import Chosen
from seglog.tiers.manifests import CommittedLogs, committed_logs, orphans
from seglog.tiers.partition import TieredPartition, TierOptions, load_partition
from seglog.tiers.recognition import Place, places_in
from seglog.tiers.segments import GRAVE, Problem, Remark, TierSegment, unreadable

# What `seglog tiers` finds; the rest is what leaders that follow each other, and deletions, leave behind.
FOUND = GRAVE | {Problem.INCOMPLETE_UPLOAD, Problem.ORPHAN_OBJECT}


class Where(Enum):
    """Where the records of a segment in tiered storage are read from."""

    TIER = "tier"
    TIER_IN_PART = "tier, in part"
    LOCAL = "local"
    NOWHERE = "left out"


@dataclass(frozen=True, slots=True)
class PlacedSegment:
    """A segment in tiered storage. `end_offset` is that of what counts of it (inclusive), `size` bytes of its log."""

    segment: TierSegment
    where: Where
    end_offset: int

    @property
    def size(self) -> int:
        """Bytes of its log, when it is decoded."""
        return self.segment.log.status.size


@dataclass(frozen=True, slots=True)
class Surveyed:
    """A partition in tiered storage. `segments` are all that are complete, in the order of offsets."""

    partition: TieredPartition
    segments: tuple[PlacedSegment, ...]

    @property
    def place(self) -> Place:
        """Where it lies."""
        return self.partition.place

    @property
    def chosen(self) -> Sequence[Chosen]:
        """The segments that are its log."""
        return self.partition.chosen

    @property
    def first_offset(self) -> int | None:
        """Where the log begins in the tier; None where nothing of it is there."""
        return self.chosen[0].segment.start_offset if self.chosen else None

    @property
    def last_offset(self) -> int | None:
        """The last offset that the tier has."""
        return self.chosen[-1].end_offset if self.chosen else None

    @property
    def log_bytes(self) -> int:
        """Bytes of logs that a restore brings out of the tier, when they are decoded."""
        return sum(one.size for one in self.segments if one.where in (Where.TIER, Where.TIER_IN_PART))

    @property
    def missing(self) -> list[tuple[int, int]]:
        """The offsets (inclusive) between its segments that are nowhere: what a restore would lack."""
        found = []
        for remark in self.partition.remarks:
            if remark.problem is Problem.GAP and remark.first_offset is not None and remark.last_offset is not None:
                found.append((remark.first_offset, remark.last_offset))
        return found

    @property
    def damaged(self) -> bool:
        """Whether something is missing or lies where it should not."""
        return any(remark.problem in FOUND for remark in self.partition.remarks)


def survey(fs: FileSystem, paths: Sequence[Path], options: TierOptions) -> Iterator[Surveyed | Remark]:
    """The partitions at some paths, one after the other, and what the metadata has of which no object is there.

    A segment or a partition that cannot be read is a remark, and the others follow. NotALogError where a path holds
    nothing of tiered storage. Raises OSError where a path cannot be listed.
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
            usual = "nothing of tiered storage is there (Aiven's, LocalTieredStorage, Pinterest's or seglog's own)"
            raise NotALogError(path, usual if fs.status(path) is not None else why_absent(path, usual))
        for place in sorted(places, key=lambda one: (one.topic_partition, one.topic_id or "")):
            seen.add((place.topic_id, place.topic_partition.partition))
            yield _survey_of(fs, place, options)
    yield from _without_objects(options, seen)


def _committed(fs: FileSystem, logs: CommittedLogs, path: Path, options: TierOptions) -> Iterator[Surveyed | Remark]:
    """What a manifest names of a path, and what lies there that it does not name."""
    of_path = {path.name} if path != logs.prefix else None
    for place in sorted(logs.places(), key=lambda one: one.topic_partition):
        if of_path is None or of_path & {str(place.topic_partition), place.topic_partition.topic}:
            yield _survey_of(fs, place, options)
    yield from orphans(fs, logs, of_path)


def _survey_of(fs: FileSystem, place: Place, options: TierOptions) -> Surveyed | Remark:
    try:
        return _surveyed(load_partition(fs, place, options, is_survey=True))
    except OSError as error:
        return unreadable(place, error, "nothing of it is known")


def _surveyed(found: TieredPartition) -> Surveyed:
    chosen = {id(one.segment): one for one in found.chosen}
    placed = []
    for segment in found.inventory:
        one = chosen.get(id(segment))
        if one is not None:
            placed.append(PlacedSegment(segment, Where.TIER_IN_PART if one.is_cut else Where.TIER, one.end_offset))
            continue
        is_local = found.local is not None and found.local.first <= segment.start_offset <= found.local.last
        placed.append(PlacedSegment(segment, Where.LOCAL if is_local else Where.NOWHERE, segment.end_offset))
    return Surveyed(found, tuple(placed))


def _without_objects(options: TierOptions, seen: set[tuple[str | None, int]]) -> Iterator[Remark]:
    if options.metadata is None:
        return
    for (topic_id, number), copies in sorted(options.metadata.copies.items()):
        kept = [one for one in copies.values() if one.is_readable]
        if kept and (topic_id, number) not in seen:
            first, last = min(c.segment.start_offset for c in kept), max(c.segment.end_offset for c in kept)
            partition = str(kept[0].segment.topic_partition)
            message = f"the metadata has {len(kept)} segments of topic id {topic_id}, and nothing of it is here"
            yield Remark(Problem.MISSING_OBJECT, partition, message, first, last)
