"""One look at one partition (or one file): everything `verify` finds in it, through a view that holds still.

Below level *index* all segments are cut into ranges, which threads verify; a segment in which anything is not right is
gone through once more, in order, and tells what. From *index* on a single pass does all.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from seglog import layout
from seglog.evidence.findings import Finding, finding
from seglog.evidence.losses import ExtentObserver, losses_of
from seglog.evidence.surroundings import Surroundings
from seglog.format.filenames import LOG_START_OFFSET_CHECKPOINT
from seglog.memory_budget import MemoryBudget, bytes_in_flight
from seglog.scan.listing import PartitionListing, SegmentFiles
from seglog.scan.resync import OffsetRange, next_entry
from seglog.scan.view import PartitionView, SingleFile
from seglog.storage.links import name_of
from seglog.verification.batches import Level, RangeResult, SegmentVerifier, Totals, clean_range
from seglog.verification.files import verify_07, verify_names
from seglog.verification.indexes import IndexObserver
from seglog.verification.semantics import SemanticObserver

_RANGE_BYTES = 32 << 20
_SAMPLE_BYTES = 4 << 20
_HASH_STEP = 0x9E3779B97F4A7C15


def _uncounted(size: int, files: int) -> None:
    """Nobody counts what is done."""


@dataclass(frozen=True, slots=True)
class LookOptions:
    """What a look looks at. `file` limits it to one `.log`, `sample` to part of the bytes, chosen by `seed`.

    `is_late` says that time is up; `advance` is called with bytes and files done.
    """

    level: Level
    jobs: int = 1
    is_late: Callable[[], bool] = lambda: False
    advance: Callable[[int, int], None] = _uncounted
    sample: float | None = None
    seed: int = 0
    file: str | None = None


@dataclass(slots=True)
class PartitionLook:
    """Iterates over the findings on the partition in `view`; then `totals` are whole, and `end_offset` is the log's end
    (None when that was not looked at).

    `only` are base offsets of segments to look at again, without what the whole of the log is needed for; None looks
    at all. Raises OSError.
    """

    view: PartitionView | SingleFile
    around: Surroundings | None
    options: LookOptions
    only: Collection[int] | None = None
    totals: Totals = field(default_factory=Totals)
    last_offset: int = -1
    leader_epoch: int = -1
    end_offset: int | None = None
    damaged: bool = False

    @property
    def listing(self) -> PartitionListing:
        return self.view.listing

    @property
    def whole(self) -> bool:
        """Whether it is the whole partition that is looked at."""
        return self.only is None and self.options.file is None

    def __iter__(self) -> Iterator[Finding]:
        deep = self.options.level >= Level.INDEX
        if self.whole and deep:
            yield from verify_names(self.view.fs, self.listing, live=self.view.live)
        if self.listing.format == "0.7":
            yield from verify_07(self.view.fs, self.listing, self.totals, self.options.file)
            self.options.advance(self.listing.size, 0)
        elif self.options.sample is not None:
            yield from self._samples(self.options.sample)
        elif deep:
            yield from self._in_one_pass()
        else:
            yield from self._in_ranges()

    def _works(self) -> Iterator[_Work]:
        segments = self.listing.segments
        for i, segment in enumerate(segments):
            if self.options.file is not None and segment.log.name != self.options.file:
                continue
            if self.only is not None and segment.base_offset not in self.only:
                continue
            most = min(segment.base_offset + layout.INT32_MAX, layout.INT64_MAX)
            if i + 1 < len(segments):
                most = min(most, segments[i + 1].base_offset - 1)
            yield _Work(segment, OffsetRange(segment.base_offset, most), i + 1 == len(segments))

    # --- in one pass --------------------------------------------------------------------------------------

    def _in_one_pass(self) -> Iterator[Finding]:
        fs, whole = self.view.fs, self.whole
        extent = ExtentObserver()
        semantic = None
        if self.options.level >= Level.SEMANTIC and whole:
            semantic = SemanticObserver(fs, self.listing, self._log_start(), live=self.view.live)
        for work in self._works():
            if self.options.is_late():
                return
            closed = not work.is_last
            observers = [IndexObserver(fs, work.segment, closed=closed, live=self.view.live)]
            extent.begin(work.segment)
            if semantic is not None:
                yield from semantic.begin(work.segment)
            yield from self._detailed(work, [*observers, extent, *([] if semantic is None else [semantic])])
        if semantic is not None and self.listing.segments:
            yield from semantic.finish_partition(self.end_offset or 0)
        if whole and self.around is not None:
            for loss in losses_of(fs, self.listing, extent.extent, self.around):
                where = {"first_offset": loss.first_offset, "last_offset": loss.last_offset}
                name = name_of(self.listing.directory)
                lost = 0 if loss.last_offset is None or loss.first_offset is None else loss.last_offset + 1
                yield finding(
                    loss.code,
                    name,
                    loss.file,
                    loss.message,
                    severity=loss.severity,
                    offsets_lost=max(0, lost - (loss.first_offset or 0)),
                    **where,
                )

    def _log_start(self) -> int | None:
        key = self.listing.topic_partition
        if self.around is None or key is None or name_of(self.listing.directory) != str(key):
            return None
        return self.around.offset(LOG_START_OFFSET_CHECKPOINT, key)

    def _detailed(self, work: _Work, observers: Sequence[object] = ()) -> Iterator[Finding]:
        verifier = SegmentVerifier(
            self.view.fs,
            work.segment.log,
            work.segment.base_offset,
            work.offsets,
            self.options.level,
            last_offset=self.last_offset,
            leader_epoch=self.leader_epoch,
            growing=self.view.is_written(work.segment),
        )
        yield from verifier.findings(observers)  # type: ignore[arg-type]
        self.totals.add(verifier.totals)
        self.last_offset, self.leader_epoch = verifier.last_offset, verifier.leader_epoch
        self.end_offset = max(self.last_offset + 1, work.segment.base_offset)
        self.options.advance(work.segment.size, 1)

    # --- in ranges, under threads -------------------------------------------------------------------------

    def _in_ranges(self) -> Iterator[Finding]:
        """Ranges of all segments, a few segments ahead; results in order."""
        waiting: deque[tuple[_Work, list[Future[RangeResult | None]]]] = deque()
        works, budget = self._works(), MemoryBudget(bytes_in_flight(self.options.jobs))
        with ThreadPoolExecutor(max(1, self.options.jobs), "seglog-verify") as pool:
            while True:
                while sum(len(futures) for _, futures in waiting) < 2 * self.options.jobs:
                    work = next(works, None)
                    if work is None:
                        break
                    waiting.append((work, self._submitted(pool, work, budget)))
                if not waiting:
                    return
                work, futures = waiting.popleft()
                yield from self._finished(work, futures)
                if self.options.is_late():
                    for _, left in waiting:
                        for future in left:
                            future.cancel()
                    return

    def _submitted(
        self, pool: ThreadPoolExecutor, work: _Work, budget: MemoryBudget
    ) -> list[Future[RangeResult | None]]:
        starts = [0]
        size, jobs = work.segment.size, self.options.jobs
        if size > 2 * _RANGE_BYTES or (jobs > 1 and size > _RANGE_BYTES // 2):
            pieces = max(jobs, size // _RANGE_BYTES)
            starts = self._boundaries(work, [i * size // pieces for i in range(pieces)])
        ends = [*starts[1:], size]
        place, level = (self.view.fs, work.segment.log), self.options.level
        return [
            pool.submit(clean_range, *place, start, end, work.offsets, level, budget.account())
            for start, end in zip(starts, ends, strict=True)
        ]

    def _boundaries(self, work: _Work, positions: Sequence[int]) -> list[int]:
        """Where entries begin at or after `positions`, ascending and without repetition."""
        found = (self._boundary(work, position) for position in positions if position)
        return sorted({0, *(position for position in found if position is not None)})

    def _boundary(self, work: _Work, position: int) -> int | None:
        """Where the first good entry at or after `position` begins; None when none does nearby."""
        with self.view.fs.open(work.segment.log, "r") as file:
            stop = min(file.size(), work.segment.size)
            near = min(stop, position + 2 * _SAMPLE_BYTES)
            found = next_entry(file, position, near, work.offsets) if position < near else near
        return found if found < near else None

    def _finished(self, work: _Work, futures: Sequence[Future[RangeResult | None]]) -> Iterator[Finding]:
        results = [future.result() for future in futures]
        totals = Totals()
        last_offset, epoch = self.last_offset, self.leader_epoch
        for result in results:
            if result is None or (0 <= result.first_offset <= last_offset) or 0 <= result.leader_epoch < epoch:
                yield from self._detailed(work)
                return
            totals.add(result.totals)
            last_offset, epoch = max(last_offset, result.last_offset), max(epoch, result.leader_epoch)
        self.totals.add(totals)
        self.last_offset, self.leader_epoch = last_offset, epoch
        self.options.advance(work.segment.size, 1)

    # --- samples ------------------------------------------------------------------------------------------

    def _samples(self, share: float) -> Iterator[Finding]:
        """Ranges of each segment, each taken with the wanted probability; damage in them is told in detail."""
        level = min(self.options.level, Level.RECORD)
        for work in self._works():
            for start in range(0, work.segment.size, _SAMPLE_BYTES):
                if self.options.is_late():
                    return
                self.options.advance(min(_SAMPLE_BYTES, work.segment.size - start), 0 if start else 1)
                if not self._chosen(work.segment.log.name, start, share):
                    continue
                begin = 0 if start == 0 else self._boundary(work, start)
                end = self._boundary(work, start + _SAMPLE_BYTES)
                if begin is None:
                    continue  # one batch covers the whole range: it belongs to the one before
                end = work.segment.size if end is None else end
                result = clean_range(self.view.fs, work.segment.log, begin, end, work.offsets, level)
                if result is None:
                    yield from self._detailed(work)
                    break
                self.totals.add(result.totals)

    def _chosen(self, name: str, start: int, share: float) -> bool:
        mixed = (self.options.seed + 1) * _HASH_STEP
        for byte in os.fsencode(f"{name}:{start}"):
            mixed = ((mixed ^ byte) * _HASH_STEP) & 0xFFFFFFFFFFFFFFFF
        return (mixed >> 11) / 2**53 < share


@dataclass(frozen=True, slots=True)
class _Work:
    """One segment to verify, and where its offsets may lie."""

    segment: SegmentFiles
    offsets: OffsetRange
    is_last: bool
