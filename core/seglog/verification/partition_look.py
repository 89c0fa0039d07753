"""One look at one partition (or one file): everything that `verify` finds in it, through a stable view.

All segments are cut into ranges, which threads verify, a few ahead of the consumer. From level *index* on, the headers
of a range's batches then pass the observers that compare them with other files, in log order. A segment with anything
wrong is read again from that range on, in order, and reports what is wrong.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from seglog.format.filenames import LOG_START_OFFSET_CHECKPOINT
from seglog.ordered_pool import Account, MemoryBudget, bytes_in_flight
from seglog.scan.listing import PartitionListing, SegmentFiles
from seglog.scan.resync import PlausibleOffsets, next_entry
from seglog.scan.view import PartitionView, SingleFile
from seglog.storage.filesystem import FileSystem
from seglog.storage.links import name_of
from seglog.verification.batches import Level, Observer, RangeResult, SegmentVerifier, Totals, clean_range
from seglog.verification.codes import Severity
from seglog.verification.findings import Finding, finding
from seglog.verification.indexes import IndexObserver
from seglog.verification.losses import LOG_END_MISSING, ExtentObserver, losses_of
from seglog.verification.semantics import SemanticObserver
from seglog.verification.small_files import verify_07, verify_names
from seglog.verification.surroundings import Surroundings

BOUNDARY_BYTES = 8 << 20  # how far from a cut the first batch is searched

_RANGE_BYTES = 32 << 20
_SAMPLE_BYTES = 4 << 20
_SMALL_BYTES = 4 << 20
_ROUND_PARTS = 8  # requests per range: ranges begin where requests to an object store begin
_HASH_STEP = 0x9E3779B97F4A7C15

LookedAt = tuple[int, RangeResult | None]  # where a range ends, and its result, None if anything is wrong there
# What is known of the ranges of a log from its first byte on; None if nothing is known of its present state.
Known = Callable[[FileSystem, Path], Iterator[LookedAt] | None]


def boundary(fs: FileSystem, log: Path, size: int, position: int, offsets: PlausibleOffsets) -> int | None:
    """Returns the position of the first good entry at or after `position`, None if there is none nearby."""
    with fs.open(log, "r") as file:
        stop = min(file.size(), size)
        near = min(stop, position + BOUNDARY_BYTES)
        found = next_entry(file, position, near, offsets) if position < near else near
    return found if found < near else None


@dataclass(frozen=True, slots=True)
class LookOptions:
    """The options of a look. `file` limits it to one `.log`, `sample` to a share of the bytes, chosen by `seed`.

    `is_late` says that time is up; `advance` is called with bytes and files done. `known` tells what was verified
    elsewhere.
    """

    level: Level
    jobs: int = 1
    is_late: Callable[[], bool] = lambda: False
    advance: Callable[[int, int], None] | None = None
    sample: float | None = None
    seed: int = 0
    file: str | None = None
    known: Known = lambda _fs, _log: None


@dataclass(slots=True)
class PartitionLook:
    """Iterates over the findings on the partition in `view`. Afterwards `totals` are complete, and `end_offset` is the
    log end (None if the last segment was not read).

    `has_producers` then tells whether a good batch has a producer (True if that was not looked at).

    `only` are the base offsets of segments to look at again, without the checks that need the whole log; None looks at
    everything. Raises OSError.
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
    has_producers: bool = True
    _counted: list[tuple[int, int]] = field(default_factory=list)  # offsets that the damage of one segment has cost

    @property
    def listing(self) -> PartitionListing:
        return self.view.listing

    @property
    def whole(self) -> bool:
        """True if the look covers the whole partition."""
        return self.only is None and self.options.file is None

    def __iter__(self) -> Iterator[Finding]:
        deep = self.options.level >= Level.INDEX
        if self.whole and deep:
            yield from verify_names(self.view.fs, self.listing, live=self.view.live)
        if self.listing.format == "0.7":
            yield from verify_07(self.view.fs, self.listing, self.totals, self.options.file)
            self._advance(self.listing.size, 0)
        elif self.options.sample is not None:
            yield from self._samples(self.options.sample)
        else:
            yield from self._in_ranges(deep)

    @property
    def threads(self) -> int:
        """The number of jobs, or of simultaneous reads of the file system if that is larger."""
        return max(1, self.options.jobs, self.view.fs.reads_at_once(self.listing.directory))

    @property
    def _is_alone(self) -> bool:
        return isinstance(self.view, SingleFile) and self.view.is_alone

    def works(self) -> Iterator[_Work]:
        """Yields the segments to verify, in order."""
        segments = self.listing.segments
        for i, segment in enumerate(segments):
            if self.options.file is not None and segment.log.name != self.options.file:
                continue
            if self.only is not None and segment.base_offset not in self.only:
                continue
            yield _Work(segment, PlausibleOffsets.of_number(segments, i), i + 1 == len(segments))

    # --- in ranges, under threads -------------------------------------------------------------------------

    def _in_ranges(self, deep: bool) -> Iterator[Finding]:
        """Verifies segment after segment, with ranges ahead; with `deep` against all other files."""
        extent = ExtentObserver()
        semantic = None
        if self.options.level >= Level.SEMANTIC and self.whole:
            semantic = SemanticObserver(self.view.fs, self.listing, self._log_start(), live=self.view.live)
        small = self.threads == 1 and self.listing.size <= _SMALL_BYTES
        with nullcontext() if small else ThreadPoolExecutor(self.threads, "seglog-verify") as pool:
            complete = yield from self._looked_at(deep, pool, extent, semantic)
        if not complete:
            return
        if semantic is not None:
            self.has_producers = semantic.has_producers
        if semantic is not None and self.listing.segments:
            yield from semantic.finish_partition(self.end_offset or 0)
        if deep and self.whole:
            yield from self._losses(extent)
        if deep and self._is_alone:
            indexes = " and ".join(path.name for segment in self.listing.segments for path in segment.files[1:])
            seen = f"beside the log only {indexes}" if indexes else "no indexes, snapshots or other segments"
            message = f"the directory cannot be listed: {seen} could be read"
            yield finding("NEIGHBOURS_UNSEEN", name_of(self.listing.directory), self.options.file or "", message)

    def _looked_at(
        self, deep: bool, pool: ThreadPoolExecutor | None, extent: ExtentObserver, semantic: SemanticObserver | None
    ) -> Generator[Finding, None, bool]:
        """Verifies the segments one after the other; returns False if time was up before the end."""
        with closing(_Ahead(self, pool)) as ahead:
            for work in self.works():
                if self.options.is_late():
                    return False
                ahead.ask()
                observers: list[Observer] = []
                if deep:
                    closed, live = not work.is_last, self.view.live
                    index = IndexObserver(self.view.fs, work.segment, closed, live=live, is_alone=self._is_alone)
                    extent.begin(work.segment)
                    observers += [index, extent]
                if semantic is not None:
                    yield from semantic.begin(work.segment)
                    observers.append(semantic)
                yield from self._segment(work, ahead, observers)
        return True

    def _segment(self, work: _Work, ahead: _Ahead, observers: Sequence[Observer]) -> Iterator[Finding]:
        """Verifies range after range, and in detail from the first range with anything wrong."""
        reached = 0
        for end, result in ahead.results(work):
            while True:
                if result is None or not result.follows(self.last_offset, self.leader_epoch):
                    ahead.give_up(work)
                    yield from self._detailed(work, observers, reached)
                    self._passed(work)
                    return
                self.totals.add(result.totals)
                reached, self.last_offset = result.end, max(self.last_offset, result.last_offset)
                self.leader_epoch = max(self.leader_epoch, result.leader_epoch)
                for piece in result.pieces:
                    for observer in observers:
                        yield from observer.take(piece)
                if reached >= end:
                    break
                result = ahead.clean(work, reached, end)
        for observer in observers:
            yield from observer.finish()
        self._passed(work)

    def _advance(self, size: int, files: int) -> None:
        if self.options.advance is not None:
            self.options.advance(size, files)

    def _passed(self, work: _Work) -> None:
        if work.is_last:
            self.end_offset = max(self.last_offset + 1, work.segment.base_offset)
        self._advance(work.segment.size, 1)

    def _losses(self, extent: ExtentObserver) -> Iterator[Finding]:
        """Yields the findings on lost offsets."""
        if self.around is None:
            return
        for loss in losses_of(self.view.fs, self.listing, extent.extent, self.around):
            if loss.severity is Severity.ERROR:
                self.totals.lost_offsets += max(0, loss.offsets_lost - self._counted_in(loss))
            yield loss

    def _counted_in(self, loss: Finding) -> int:
        """Returns how many offsets of a loss at the log's end were counted with the damage before it."""
        if loss.code != LOG_END_MISSING or loss.first_offset is None or loss.last_offset is None:
            return 0
        spans = ((max(first, loss.first_offset), min(last, loss.last_offset)) for first, last in self._counted)
        return sum(last + 1 - first for first, last in spans if first <= last)

    def _log_start(self) -> int | None:
        key = self.listing.topic_partition
        if self.around is None or key is None or name_of(self.listing.directory) != str(key):
            return None
        return self.around.offset(LOG_START_OFFSET_CHECKPOINT, key)

    def _detailed(self, work: _Work, observers: Sequence[Observer] = (), start: int = 0) -> Iterator[Finding]:
        verifier = SegmentVerifier(
            self.view.fs,
            work.segment.log,
            work.segment.base_offset,
            work.offsets,
            self.options.level,
            last_offset=self.last_offset,
            leader_epoch=self.leader_epoch,
            growing=self.view.is_written(work.segment),
            preallocated="reported" if self._may_end_with_zeros(work) else "damage",
            start=start,
        )
        self._counted = []
        for each in verifier.findings(observers):
            if each.offsets_lost and each.first_offset is not None and each.last_offset is not None:
                self._counted.append((each.first_offset, each.last_offset))
            yield each
        self.totals.add(verifier.totals)
        self.last_offset, self.leader_epoch = verifier.last_offset, verifier.leader_epoch

    def _may_end_with_zeros(self, work: _Work) -> bool:
        """True for the last log, unless the broker was stopped in order: it then cuts zeros off, and fails to start on
        them.
        """
        return work.is_last and (self.around is None or not self.around.clean)

    def ranges(self, work: _Work) -> Iterator[tuple[int, int]]:
        """Yields the ranges of a segment, each from the beginning of one entry to that of another, lazily."""
        size, threads, start = work.segment.size, self.threads, 0
        if self.listing.size >= threads * _RANGE_BYTES:
            threads = min(threads, self.options.jobs)  # other segments have enough ranges for waiting threads
        pieces = 1
        if size > 2 * _RANGE_BYTES or (threads > 1 and size > _RANGE_BYTES // 2):
            pieces = max(self.options.jobs, min(threads, 4 * size // _RANGE_BYTES), size // _RANGE_BYTES)
        step = max(1, _RANGE_BYTES // _ROUND_PARTS)  # where requests begin
        cuts = [i * size // pieces // step * step for i in range(1, pieces)]
        if cuts:
            with self.view.fs.open(work.segment.log, "r") as file:
                for cut in cuts:
                    file.advise_wanted(cut, 1)
        for cut in cuts:
            end = self._boundary(work, cut)
            if end is not None and end > start:
                yield start, end
                start = end
        yield start, size

    def announce_neighbours(self, work: _Work) -> None:
        """Announces the small files beside a segment, which the look reads one after the other later."""
        segment, snapshots = work.segment, self.listing.snapshots
        first = bisect_right(snapshots, segment.base_offset, key=lambda one: one.offset)
        stop = bisect_right(snapshots, work.offsets.most + 1, key=lambda one: one.offset)
        beside = [*segment.files[1:], *(one.path for one in snapshots[first:stop])]
        if work.is_last and self.listing.leader_epoch_checkpoint is not None:
            beside.append(self.listing.leader_epoch_checkpoint)
        for path in beside:
            with suppress(OSError), self.view.fs.open(path, "r") as file:  # the later read will report the error
                file.advise_wanted(0, file.size())

    def _boundary(self, work: _Work, position: int) -> int | None:
        """Returns the position of the first good entry at or after `position`, None if there is none nearby."""
        return boundary(self.view.fs, work.segment.log, work.segment.size, position, work.offsets)

    # --- samples ------------------------------------------------------------------------------------------

    def _samples(self, share: float) -> Iterator[Finding]:
        """Verifies ranges of each segment, each with the given probability; reports damage in them in detail."""
        level = min(self.options.level, Level.RECORD)
        for work in self.works():
            for start in range(0, work.segment.size, _SAMPLE_BYTES):
                if self.options.is_late():
                    return
                self._advance(min(_SAMPLE_BYTES, work.segment.size - start), 0 if start else 1)
                if not self._chosen(work.segment.log.name, start, share):
                    continue
                begin = 0 if start == 0 else self._boundary(work, start)
                end = self._boundary(work, start + _SAMPLE_BYTES)
                if begin is None:
                    continue  # one batch covers the whole range; it belongs to the range before
                end = work.segment.size if end is None else end
                result = clean_range(self.view.fs, work.segment.log, begin, end, work.offsets, level)
                if result is None:
                    yield from self._detailed(work)
                    self._advance(max(0, work.segment.size - start - _SAMPLE_BYTES), 0)
                    break
                self.totals.add(result.totals)

    def _chosen(self, name: str, start: int, share: float) -> bool:
        mixed = (self.options.seed + 1) * _HASH_STEP
        for byte in os.fsencode(f"{name}:{start}"):
            mixed = ((mixed ^ byte) * _HASH_STEP) & 0xFFFFFFFFFFFFFFFF
        return (mixed >> 11) / 2**53 < share


@dataclass(frozen=True, slots=True)
class _Work:
    """One segment to verify, and its possible offsets."""

    segment: SegmentFiles
    offsets: PlausibleOffsets
    is_last: bool


@dataclass(frozen=True, slots=True)
class _Asked:
    """A range that a thread verifies or will verify."""

    work: _Work
    end: int
    account: Account
    future: Future[RangeResult | None]

    def cancel(self) -> None:
        """Cancels the work unless it has begun; then it ends by itself and closes its account."""
        if self.future.cancel():
            self.account.close()


class _Ahead:
    """Verifies the ranges of a look's segments in threads, a few ahead of the consumer; without a pool at their turn.

    A small partition takes less time than starting a thread for it, and a broker has thousands.
    """

    def __init__(self, look: PartitionLook, pool: ThreadPoolExecutor | None) -> None:
        self._look, self._pool = look, pool
        self._budget = MemoryBudget(bytes_in_flight(look.threads))
        self._ranges = self._all_ranges()
        self._asked: deque[_Asked] = deque()
        self._given_up: _Work | None = None

    def results(self, work: _Work) -> Iterator[LookedAt]:
        """Yields (end, result) of each range of a segment, in order. Call it for the segments in their order."""
        known = self._known(work)
        if known is not None:
            reached = 0
            for reached, result in known:
                yield reached, result
            if reached < work.segment.size:
                yield work.segment.size, self.clean(work, reached, work.segment.size)
            return
        if self._pool is None:
            for start, end in self._look.ranges(work):
                if self._given_up == work:
                    return
                yield end, self.clean(work, start, end)
            return
        self.ask()
        while self._asked and self._asked[0].work == work:
            asked = self._asked.popleft()
            yield asked.end, asked.future.result()
            self.ask()

    def clean(self, work: _Work, start: int, end: int, account: Account | None = None) -> RangeResult | None:
        """Verifies a range. Returns None if anything is wrong."""
        level, side_by_side = self._look.options.level, self._look.threads > 1
        place, keep = (self._look.view.fs, work.segment.log), level >= Level.INDEX
        return clean_range(*place, start, end, work.offsets, level, account, keep=keep, side_by_side=side_by_side)

    def give_up(self, work: _Work) -> None:
        """Cancels the remaining ranges of that segment."""
        self._given_up = work
        while self._asked and self._asked[0].work == work:
            self._asked.popleft().cancel()

    def close(self) -> None:
        """Cancels all ranges."""
        for asked in self._asked:
            asked.cancel()

    def _known(self, work: _Work) -> Iterator[LookedAt] | None:
        return self._look.options.known(self._look.view.fs, work.segment.log)

    def _all_ranges(self) -> Iterator[tuple[_Work, int, int]]:
        for work in self._look.works():
            if self._look.options.level >= Level.INDEX:
                self._look.announce_neighbours(work)
            if self._known(work) is not None:
                continue
            for start, end in self._look.ranges(work):
                if self._given_up == work:
                    break
                yield work, start, end

    def ask(self) -> None:
        """Submits the next ranges to the threads, and announces the files beside their segments."""
        if self._pool is None:
            return
        most = self._look.threads + self._look.options.jobs
        for work, start, end in islice(self._ranges, max(0, most - len(self._asked))):
            account = self._budget.account()
            self._asked.append(_Asked(work, end, account, self._pool.submit(self.clean, work, start, end, account)))
