"""Verification: what is wrong with logs, from headers to meaning, without changing or locking anything.

Levels (each includes those before): *header* framing, offsets, flags; *crc* checksums; *record* the structure of
every record; *index* offset and time indexes; *semantic* control records, transactions, producers, epochs.

Steps, for each partition:

1. Names: leftovers, orphans, strangers (from level *index* on).
2. Below *index*: all segments are cut into ranges, which threads verify. A segment in which anything is not
   right is gone through once more, in order, and tells what. From *index* on a single pass does all.
3. Checkpoints of the log directory against the logs' extents.

Damage never ends it: the next good batch is looked for. Kafka has nothing of the kind; `kafka-dump-log` reports
part of it and exits 0.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from seglog import layout
from seglog.clock import Clock
from seglog.diagnosis.findings import Finding, Severity, finding
from seglog.diagnosis.resync import OffsetRange, next_entry
from seglog.diagnosis.verify_batches import Level, RangeResult, SegmentVerifier, Totals, clean_range
from seglog.diagnosis.verify_files import verify_07, verify_log_directory, verify_names
from seglog.diagnosis.verify_indexes import IndexObserver
from seglog.diagnosis.verify_semantics import SemanticObserver
from seglog.format.filenames import FileKind, PartitionState, parse_file_name
from seglog.log.listing import (
    PartitionListing,
    SegmentFiles,
    Target,
    TargetKind,
    list_log_directory,
    list_partition,
)
from seglog.model import TopicPartition
from seglog.storage.filesystem import FileSystem

__all__ = ["Level", "Verification", "VerifyOptions", "VerifySummary"]

_RANGE_BYTES = 32 << 20
_SAMPLE_BYTES = 4 << 20
_HASH_STEP = 0x9E3779B97F4A7C15

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """What `Verification` looks at.

    `live`: a broker may be writing, so a torn tail of the last segment is none. `sample` (0 to 1) verifies that
    part of the bytes, chosen by `seed`, up to level *record*. `max_duration_s` ends it early, complete to there.
    """

    level: Level = Level.RECORD
    live: bool = False
    jobs: int = 2
    sample: float | None = None
    seed: int = 0
    max_duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class VerifySummary:
    """What was looked at and found. `complete` is false when time ran out, a file was unreadable, or for a sample."""

    files: int = 0
    bytes: int = 0
    batches: int = 0
    records: int = 0
    damaged_bytes: int = 0
    lost_offsets: int = 0
    errors: int = 0
    warnings: int = 0
    infos: int = 0
    complete: bool = True

    @property
    def damaged(self) -> bool:
        """Whether anything worse than a remark was found."""
        return self.errors > 0 or self.warnings > 0


@dataclass(frozen=True, slots=True)
class _Work:
    """One segment to verify, and where its offsets may lie."""

    segment: SegmentFiles
    offsets: OffsetRange
    is_last: bool


class Verification:
    """Iterates over the findings on `targets`, in order; `summary` is whole when the iteration has ended.

    `progress` is called with (bytes done, bytes in all). An OSError on a file becomes a finding.
    """

    def __init__(
        self,
        fs: FileSystem,
        targets: Sequence[Target],
        options: VerifyOptions,
        clock: Clock,
        progress: Progress | None = None,
    ) -> None:
        self._fs, self._targets, self._options, self._clock = fs, targets, options, clock
        self._progress = progress
        self._totals = Totals()
        self._done = self._total = 0
        self._ends_at = None if options.max_duration_s is None else clock.monotonic() + options.max_duration_s
        self._sampled = options.sample is not None and options.sample < 1
        self.summary = VerifySummary(complete=not self._sampled)

    def __iter__(self) -> Iterator[Finding]:
        plans = [plan for target in self._targets for plan in self._plans(target)]
        self._total = sum(work.segment.size for plan in plans for work in plan.works)
        for plan in plans:
            for found in self._partition(plan):
                self._count(found)
                yield found
        for target in self._targets:
            if target.kind is TargetKind.LOG_DIRECTORY and self._options.level >= Level.INDEX:
                for found in verify_log_directory(
                    self._fs, list_log_directory(self._fs, target.path), self._extents(plans, target)
                ):
                    self._count(found)
                    yield found
        self._summarise()

    # --- what there is to do

    def _plans(self, target: Target) -> Iterator[_Plan]:
        if target.kind is TargetKind.FILE:
            yield self._file_plan(target.path)
        elif target.kind is TargetKind.PARTITION:
            yield _plan_of(list_partition(self._fs, target.path))
        else:
            for partition in list_log_directory(self._fs, target.path).partitions:
                if partition.state is not PartitionState.DELETED:
                    yield _plan_of(list_partition(self._fs, partition.path))

    def _file_plan(self, path: Path) -> _Plan:
        """One segment with its indexes, within the offsets that its neighbours leave it; or a lone log file."""
        listing = list_partition(self._fs, path.parent)
        for work in _plan_of(listing).works:
            if work.segment.log.name == path.name:
                return _Plan(listing, (work,), whole=False)
        name, status = parse_file_name(path.name), self._fs.status(path)
        base = 0 if name is None or name.kind is FileKind.METADATA_SNAPSHOT else name.offset
        size, modified = (0, 0) if status is None else (status.size, status.modified_ms)
        segment = SegmentFiles(base, path, size, modified, None, None, None)
        return _Plan(listing, (_Work(segment, OffsetRange(), True),), whole=False)

    def _extents(self, plans: Sequence[_Plan], target: Target) -> dict[TopicPartition, tuple[int, int]]:
        return {
            plan.listing.topic_partition: (plan.works[0].segment.base_offset, plan.end_offset)
            for plan in plans
            if plan.works
            and plan.end_offset is not None
            and plan.listing.topic_partition is not None
            and plan.listing.directory.parent == target.path
            and plan.listing.directory.name == str(plan.listing.topic_partition)
        }

    # --- doing it

    def _partition(self, plan: _Plan) -> Iterator[Finding]:
        try:
            if plan.whole and self._options.level >= Level.INDEX:
                yield from verify_names(self._fs, plan.listing)
            if plan.listing.format == "0.7":
                yield from verify_07(self._fs, plan.listing)
                self._totals.bytes += plan.listing.size
                self._advance(plan.listing.size)
            elif self._sampled:
                yield from self._samples(plan)
            elif self._options.level >= Level.INDEX:
                yield from self._in_one_pass(plan)
            else:
                yield from self._in_ranges(plan)
        except OSError as error:
            self.summary = replace(self.summary, complete=False)
            name = Path(error.filename).name if isinstance(error.filename, str) else ""
            partition = plan.listing.directory.resolve().name
            yield finding("UNREADABLE_FILE", partition, name, error.strerror or str(error))

    def _verifier(self, plan: _Plan, work: _Work) -> SegmentVerifier:
        return SegmentVerifier(
            self._fs,
            work.segment.log,
            work.segment.base_offset,
            work.offsets,
            self._options.level,
            last_offset=plan.last_offset,
            leader_epoch=plan.leader_epoch,
            tail_expected=self._options.live and work.is_last,
        )

    def _in_one_pass(self, plan: _Plan) -> Iterator[Finding]:
        semantic = None
        if self._options.level >= Level.SEMANTIC and plan.whole:
            semantic = SemanticObserver(self._fs, plan.listing)
        for work in plan.works:
            if self._is_late():
                return
            observers = [IndexObserver(self._fs, work.segment, closed=not work.is_last)]
            if semantic is not None:
                yield from semantic.begin(work.segment)
            yield from self._detailed(plan, work, [*observers, *([] if semantic is None else [semantic])])
        if semantic is not None and plan.works:
            yield from semantic.finish_partition(plan.end_offset or 0)

    def _detailed(self, plan: _Plan, work: _Work, observers: Sequence[object] = ()) -> Iterator[Finding]:
        verifier = self._verifier(plan, work)
        yield from verifier.findings(observers)  # type: ignore[arg-type]
        self._totals.add(verifier.totals)
        plan.last_offset, plan.leader_epoch = verifier.last_offset, verifier.leader_epoch
        plan.end_offset = max(plan.last_offset + 1, work.segment.base_offset)
        self._advance(work.segment.size)

    def _in_ranges(self, plan: _Plan) -> Iterator[Finding]:
        """Ranges of all segments under threads, a few segments ahead; results in order."""
        waiting: deque[tuple[_Work, list[Future[RangeResult | None]]]] = deque()
        works = iter(plan.works)
        with ThreadPoolExecutor(max(1, self._options.jobs), "seglog-verify") as pool:
            while True:
                while sum(len(futures) for _, futures in waiting) < 2 * self._options.jobs:
                    work = next(works, None)
                    if work is None:
                        break
                    waiting.append((work, self._submitted(pool, work)))
                if not waiting:
                    return
                work, futures = waiting.popleft()
                yield from self._finished(plan, work, futures)
                if self._is_late():
                    for _, left in waiting:
                        for future in left:
                            future.cancel()
                    return

    def _submitted(self, pool: ThreadPoolExecutor, work: _Work) -> list[Future[RangeResult | None]]:
        starts = [0]
        size = work.segment.size
        if size > 2 * _RANGE_BYTES or (self._options.jobs > 1 and size > _RANGE_BYTES // 2):
            pieces = max(self._options.jobs, size // _RANGE_BYTES)
            starts = self._boundaries(work, [i * size // pieces for i in range(pieces)])
        ends = [*starts[1:], size]
        level = self._options.level
        return [
            pool.submit(clean_range, self._fs, work.segment.log, start, end, work.offsets, level)
            for start, end in zip(starts, ends, strict=True)
        ]

    def _boundaries(self, work: _Work, positions: Sequence[int]) -> list[int]:
        """Where entries begin at or behind `positions`, ascending and without repetition."""
        found = (self._boundary(work, position) for position in positions if position)
        return sorted({0, *(position for position in found if position is not None)})

    def _boundary(self, work: _Work, position: int) -> int | None:
        """Where the first good entry at or behind `position` begins; None when none does nearby."""
        with self._fs.open(work.segment.log, "r") as file:
            stop = min(file.size(), work.segment.size)
            near = min(stop, position + 2 * _SAMPLE_BYTES)
            found = next_entry(file, position, near, work.offsets) if position < near else near
        return found if found < near else None

    def _finished(self, plan: _Plan, work: _Work, futures: Sequence[Future[RangeResult | None]]) -> Iterator[Finding]:
        results = [future.result() for future in futures]
        totals = Totals()
        last_offset, epoch = plan.last_offset, plan.leader_epoch
        for result in results:
            if result is None or (0 <= result.first_offset <= last_offset) or 0 <= result.leader_epoch < epoch:
                yield from self._detailed(plan, work)
                return
            totals.add(result.totals)
            last_offset, epoch = max(last_offset, result.last_offset), max(epoch, result.leader_epoch)
        self._totals.add(totals)
        plan.last_offset, plan.leader_epoch = last_offset, epoch
        self._advance(work.segment.size)

    def _samples(self, plan: _Plan) -> Iterator[Finding]:
        """Ranges of each segment, each taken with the wanted probability; damage in them is told in detail."""
        share = self._options.sample or 0.0
        level = min(self._options.level, Level.RECORD)
        for work in plan.works:
            for start in range(0, work.segment.size, _SAMPLE_BYTES):
                if self._is_late():
                    return
                self._advance(min(_SAMPLE_BYTES, work.segment.size - start), files=0 if start else 1)
                if not self._chosen(work.segment.log, start, share):
                    continue
                begin = 0 if start == 0 else self._boundary(work, start)
                end = self._boundary(work, start + _SAMPLE_BYTES)
                if begin is None:
                    continue  # one batch covers the whole range: it belongs to the one before
                end = work.segment.size if end is None else end
                result = clean_range(self._fs, work.segment.log, begin, end, work.offsets, level)
                if result is None:
                    yield from self._detailed(plan, work)
                    break
                self._totals.add(result.totals)

    def _chosen(self, path: Path, start: int, share: float) -> bool:
        mixed = (self._options.seed + 1) * _HASH_STEP
        for byte in os.fsencode(f"{path.name}:{start}"):
            mixed = ((mixed ^ byte) * _HASH_STEP) & 0xFFFFFFFFFFFFFFFF
        return (mixed >> 11) / 2**53 < share

    # --- keeping count

    def _is_late(self) -> bool:
        if self._ends_at is None or self._clock.monotonic() < self._ends_at:
            return False
        self.summary = replace(self.summary, complete=False)
        return True

    def _advance(self, size: int, files: int = 1) -> None:
        self._done = min(self._total, self._done + size)
        self.summary = replace(self.summary, files=self.summary.files + files)
        if self._progress is not None:
            self._progress(self._done, self._total)

    def _count(self, found: Finding) -> None:
        name = {Severity.ERROR: "errors", Severity.WARNING: "warnings", Severity.INFO: "infos"}[found.severity]
        self.summary = replace(self.summary, **{name: getattr(self.summary, name) + 1})

    def _summarise(self) -> None:
        totals = self._totals
        self.summary = replace(
            self.summary,
            bytes=totals.bytes,
            batches=totals.batches,
            records=totals.records,
            damaged_bytes=totals.damaged_bytes,
            lost_offsets=totals.lost_offsets,
        )


@dataclass(slots=True)
class _Plan:
    """A partition's segments to verify, and what is known behind the last one verified."""

    listing: PartitionListing
    works: tuple[_Work, ...]
    whole: bool = True
    last_offset: int = -1
    leader_epoch: int = -1
    end_offset: int | None = None


def _plan_of(listing: PartitionListing) -> _Plan:
    segments = listing.segments
    works = []
    for i, segment in enumerate(segments):
        most = min(segment.base_offset + layout.INT32_MAX, layout.INT64_MAX)
        if i + 1 < len(segments):
            most = min(most, segments[i + 1].base_offset - 1)
        works.append(_Work(segment, OffsetRange(segment.base_offset, most), i + 1 == len(segments)))
    return _Plan(listing, tuple(works))
