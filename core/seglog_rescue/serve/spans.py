"""Finds the bytes that a fetch sends: whole, checked batches of one segment from an offset on (Kafka: LocalLog.read).

1. Start at or before the offset: at the end of an earlier span (`SpanEnds`), else at the position in the segment's
   index. Walk the log from there, past any damage, a piece at a time, and compare every checksum: only good batches go
   out.
2. The span begins with the first batch that reaches the offset. It ends before the size limit (but holds at least its
   first batch), the offset limit, or damage, whichever comes first.
3. Damage at the offset is raised; or skipped, and the span begins after it. If nothing good follows, an empty batch
   covers the lost offsets, as the cleaner's do, so that consumers get past them.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.errors import CorruptRecordError
from seglog.format.builder import BatchOptions
from seglog.format.decoder import wrong_checksum
from seglog.kernels.encode import seal_batch
from seglog.log.indexes import AbortedTransaction
from seglog.log.segment import LogSegment
from seglog.log.segments import LogView, collect_aborted
from seglog.model import NO_TIMESTAMP, Isolation
from seglog.remote_path import RemotePath
from seglog.scan.log_walk import Gap, LogWalk, WalkedEntries
from seglog.scan.resync import PlausibleOffsets
from seglog.storage.filesystem import File

_MIN_WALK_BYTES = 64 << 10
_MAX_WALK_BYTES = 4 << 20
_MAX_ENDS = 256
_PROBE_BYTES = 128 << 10
_NO_WAIT: int | None = getattr(os, "RWF_NOWAIT", None)  # Linux


@dataclass(frozen=True, slots=True)
class FileSpan:
    """`size` bytes at `position` of an open file, which the sender closes."""

    file: File
    position: int
    size: int

    def __len__(self) -> int:
        return self.size


@dataclass(frozen=True, slots=True)
class Found:
    """The data of a fetch: a span, an empty batch for lost offsets, or no bytes at the end of the log.

    `aborted` are the transactions that a read_committed reader drops. `end_offset` is the offset after a span.
    """

    data: FileSpan | bytes
    aborted: tuple[AbortedTransaction, ...] = ()
    end_offset: int = -1


Report = Callable[[CorruptRecordError], None]


class SpanEnds:
    """The ends of a partition's last spans. The next fetch begins there, and need not read from an index entry on.

    Like an index entry, an end is only a hint, for any number of threads: the batch there is checked first.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[int, tuple[int, int]] = OrderedDict()

    def note(self, offset: int, base_offset: int, position: int) -> None:
        """Notes a span that ended before `offset`, at a byte position of the segment with that base offset."""
        self._known[offset] = base_offset, position
        if len(self._known) > _MAX_ENDS:
            self._known.popitem(last=False)

    def find(self, offset: int, base_offset: int) -> int:
        """Returns the position in that segment, or 0."""
        found = self._known.get(offset)
        return 0 if found is None or found[0] != base_offset else found[1]


def find_span(
    view: LogView,
    offset: int,
    max_bytes: int,
    isolation: Isolation,
    ends: SpanEnds,
    *,
    skip_damage: bool,
    report: Report,
) -> Found:
    """Finds the data of a fetch from `offset` on; `ends` are the view's. Reports all damage on the way, every time.

    Raises OffsetOutOfRangeError outside [log start, log end], and without `skip_damage` CorruptRecordError if the
    offset cannot be read.
    """
    index = view.first_segment(offset)
    limit = view.limit(isolation)
    if offset >= limit:
        return Found(b"")
    bounds = _Bounds(offset, max_bytes, limit if limit < view.log_end_offset else layout.INT64_MAX)
    damage: CorruptRecordError | None = None
    taken = _take(view, index, bounds, ends)
    while not taken.size and not taken.limit_reached and index + 1 < len(view.segments):
        damage, index = taken.damage or damage, index + 1
        taken = _take(view, index, bounds)
    damage = taken.damage or damage
    with ExitStack() as stack:
        if taken.file is not None:
            stack.enter_context(taken.file)
        if damage is not None and (not taken.size or taken.base_offset > offset):
            report(damage)
            if not skip_damage:
                raise damage
        if taken.file is None:
            return Found(b"" if damage is None else empty_batch(offset, limit - 1))
        aborted: list[AbortedTransaction] = []
        if isolation == Isolation.READ_COMMITTED:
            aborted = collect_aborted(view.segments, index, offset, taken.last_offset + 1)
        stack.pop_all()
    ends.note(taken.last_offset + 1, view.segments[index].base_offset, taken.position + taken.size)
    return Found(FileSpan(taken.file, taken.position, taken.size), tuple(aborted), taken.last_offset + 1)


def is_at_hand(view: LogView, offset: int, max_bytes: int, ends: SpanEnds) -> bool:
    """True if the page cache has what a fetch from `offset` reads, as far as a byte of each 128 KiB tells.

    Only where an earlier span ended: elsewhere the index and what lies before the offset are read, too.
    """
    if _NO_WAIT is None or not view.log_start_offset <= offset < view.log_end_offset:
        return False
    index = view.first_segment(offset)
    segment = view.segments[index]
    if isinstance(segment.path, RemotePath):
        return False  # opening it would ask the store
    begin = ends.find(offset, segment.base_offset)
    end = min(begin + max_bytes, view.size_of(index))
    if not 0 < begin < end:
        return False
    probe = bytearray(1)
    try:
        with segment.fs.open(segment.path, "r") as file:
            descriptor = file.fileno()
            for position in (*range(begin, end, _PROBE_BYTES), end - 1):
                os.preadv(descriptor, [probe], position, _NO_WAIT)
    except OSError:  # not cached, no descriptor, or a file system that cannot tell
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The bounds of a fetch; batches that reach `limit` are not wanted."""

    offset: int
    max_bytes: int
    limit: int


@dataclass(slots=True)
class _Taken:
    """Adjacent good batches of one segment, and the damage just before them, or before the segment's end. `file` is the
    open segment if there are batches.
    """

    position: int = 0
    size: int = 0
    base_offset: int = -1
    last_offset: int = -1
    damage: CorruptRecordError | None = None
    limit_reached: bool = False
    file: File | None = None


def _take(view: LogView, index: int, bounds: _Bounds, ends: SpanEnds | None = None) -> _Taken:
    """Takes batches of a segment. Without `ends` it starts at the beginning, as in segments after the first one."""
    segment = view.segments[index]
    with ExitStack() as stack:
        file, size = stack.enter_context(segment.fs.open(segment.path, "r")), view.size_of(index)
        hint = 0 if ends is None else ends.find(bounds.offset, segment.base_offset)
        taken = _take_at(hint, _steps(segment, file, hint, size, bounds.max_bytes), bounds) if hint else None
        if taken is None:
            start = 0 if ends is None else view.search_start(index, bounds.offset, file)
            taken = _walk(_steps(segment, file, start, size, bounds.max_bytes), bounds)
        if taken.size:
            stack.pop_all()
            taken.file = file
        return taken


def _take_at(hint: int, steps: Iterator[np.ndarray | CorruptRecordError], bounds: _Bounds) -> _Taken | None:
    """Takes batches if a good one lies just at the hint and begins at or before the offset; else the hint is wrong."""
    first = next(steps, None)
    if first is None or isinstance(first, CorruptRecordError):
        return None
    if int(first["position"][0]) != hint or int(first["base_offset"][0]) > bounds.offset:
        return None
    return _walk(chain((first,), steps), bounds)


def _walk(steps: Iterator[np.ndarray | CorruptRecordError], bounds: _Bounds) -> _Taken:
    taken = _Taken()
    for step in steps:
        if isinstance(step, CorruptRecordError):
            if taken.size:
                break
            taken.damage = step
        elif not _extend(taken, step, bounds):
            break
    return taken


def _extend(taken: _Taken, batches: np.ndarray, bounds: _Bounds) -> bool:
    """Adds adjacent good batches; returns False if no more are wanted."""
    last = batches["last_offset"]
    begin = 0
    if not taken.size:
        reached = last >= bounds.offset
        begin = int(np.argmax(reached)) if reached.any() else len(batches)
        if begin:
            taken.damage = None  # a good batch below the offset follows it
        if begin == len(batches):
            return True
        if int(last[begin]) >= bounds.limit:
            taken.limit_reached = True
            return False
        taken.position, taken.base_offset = int(batches["position"][begin]), int(batches["base_offset"][begin])
    ends = batches["position"][begin:] + batches["size"][begin:]
    fits = (ends <= taken.position + bounds.max_bytes) & (last[begin:] < bounds.limit)
    if not taken.size:
        fits[0] = True
    count = len(fits) if fits.all() else int(np.argmin(fits))
    if count:
        taken.size = int(ends[count - 1]) - taken.position
        taken.last_offset = max(taken.last_offset, int(last[begin : begin + count].max()))
    return count == len(fits) and taken.size < bounds.max_bytes // 2  # the rest is not worth another read


def _steps(
    segment: LogSegment, file: File, start: int, end: int, max_bytes: int
) -> Iterator[np.ndarray | CorruptRecordError]:
    """Yields runs of good batches, and damage, from byte `start` of a segment's file to `end`."""
    chunk = min(max(max_bytes, _MIN_WALK_BYTES), _MAX_WALK_BYTES)
    offsets = PlausibleOffsets.of_segment(segment.base_offset)
    walk = LogWalk(segment.fs, segment.path, start, end, offsets=offsets, chunk_bytes=chunk, file=file)
    for step in walk:
        if isinstance(step, Gap):
            yield CorruptRecordError(segment.path, step.why, step.position)
        else:
            yield from _good_runs(segment.path, step)


def _good_runs(path: Path, piece: WalkedEntries) -> Iterator[np.ndarray | CorruptRecordError]:
    begin = 0
    for bad in np.flatnonzero(~piece.valid).tolist():
        if bad > begin:
            yield piece.batches[begin:bad]
        yield wrong_checksum(path, piece.batches[bad])
        begin = bad + 1
    if begin < len(piece.batches):
        yield piece.batches[begin:]


def empty_batch(first_offset: int, last_offset: int) -> bytes:
    """Returns a batch without records that covers offsets (Kafka: DefaultRecordBatch.writeEmptyHeader).

    It covers at most 2^31 offsets; the reader's next fetch gets another one.
    """
    row = BatchOptions(leader_epoch=0).template(first_offset, 0)
    row["last_offset"] = min(last_offset, first_offset + layout.INT32_MAX)
    row["base_timestamp"] = row["max_timestamp"] = NO_TIMESTAMP
    row["size"] = layout.RECORD_BATCH_OVERHEAD
    sealed = np.zeros(layout.RECORD_BATCH_OVERHEAD, dtype=np.uint8)
    seal_batch(sealed, 0, row[0], True)
    return sealed.tobytes()
