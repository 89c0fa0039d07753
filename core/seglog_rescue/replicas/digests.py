"""Digests of a log by stretches, which two hosts can compare without the log.

Each good batch gives a number made of its offsets, epoch, size and checksum, and a mark holds the sum over all batches
before it. So two marks of a log tell about the stretch between them, wherever the log begins and wherever
compaction has left it alone. Marks lie where offsets cross a multiple of a power of two, and where an epoch begins:
copies that hold the same batches have the same marks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from seglog import layout
from seglog.format.decoder import control_batches

DIGEST_BITS = 48  # so that every reader of JSON keeps a digest exactly
_FINE_MARKS = 256
_COARSE_MARKS = 4
_FINER = 4  # towards the end of the log
_LAST_EPOCHS = 2
_LEAST_STEP = 16
_ROWS_AT_ONCE = 4096
_GOLDEN, _LAST_SHIFT = 0x9E3779B97F4A7C15, np.uint64(31)
_ROUNDS = (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB))
_WHOLE = np.dtype((np.void, layout.BATCH.itemsize))  # rows are copied as such in a fortieth of the time


@dataclass(frozen=True, slots=True)
class Mark:
    """A batch boundary: `offset` is the first offset of the batch there, or the end of the log.

    `batches`, `records` and `digest` (DIGEST_BITS) are sums over all good batches before it; `first_timestamp` is the
    smallest base timestamp between it and the next mark, -1 without one.
    """

    offset: int
    batches: int
    records: int
    digest: int
    first_timestamp: int


@dataclass(frozen=True, slots=True)
class EpochFall:
    """A batch (`offset` to `last_offset`, at `position` in its file) whose leader `epoch` is below that of one
    `before`."""

    offset: int
    last_offset: int
    position: int
    epoch: int
    before: int


class LogDigest:
    """Collects the marks of a log from its batches, in order. Memory is bounded."""

    def __init__(self) -> None:
        self._step = _LEAST_STEP
        self._marks: list[tuple[Mark, int, bool]] = []  # with the offset before it, and whether an epoch begins there
        self._batches = self._records = self._digest = 0
        self._before, self._epoch, self._end = -1, -1, 0
        self._epochs: list[tuple[int, int]] = []
        self._fall: EpochFall | None = None
        self._last: EpochFall | None = None
        self._newest_timestamp = -1
        self._waiting = np.empty(_ROWS_AT_ONCE, dtype=layout.BATCH)  # a step costs the same for few and for many
        self._waiting_whole = self._waiting.view(_WHOLE)
        self._count = 0

    @property
    def is_empty(self) -> bool:
        """True if it has no batch."""
        return not self._marks and not self._count

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """The leader epochs with their first offsets, both ascending. An epoch that a later batch falls below is not
        believed: no checksum covers it, and a leader never goes back."""
        self._take()
        return self._epochs

    @property
    def fall(self) -> EpochFall | None:
        """The first batch before which epochs fall."""
        self._take()
        return self._fall

    @property
    def last(self) -> EpochFall | None:
        """The last batch, None without one; nothing is `before` it."""
        self._take()
        return self._last

    @property
    def newest_timestamp(self) -> int:
        """The largest timestamp, -1 without one."""
        self._take()
        return self._newest_timestamp

    def add(self, rows: np.ndarray) -> None:
        """Adds good batches (rows of layout.BATCH), whose offsets ascend."""
        if not len(rows):
            return
        if self._count + len(rows) > _ROWS_AT_ONCE:
            self._take()
        if len(rows) > _ROWS_AT_ONCE:
            self._add(rows)
            return
        self._waiting_whole[self._count : self._count + len(rows)] = rows.view(_WHOLE)
        self._count += len(rows)

    def _take(self) -> None:
        if self._count:
            rows, self._count = self._waiting[: self._count], 0
            self._add(rows)

    def _add(self, rows: np.ndarray) -> None:
        base, epochs = rows["base_offset"], rows["leader_epoch"]
        self._coarsen(len(rows), int(base[-1]) - int(base[0]))
        before = np.concatenate(([self._before], base[:-1]))
        begins = epochs > np.concatenate(([self._epoch], epochs[:-1]))
        counts = _record_counts(rows)
        sums = np.cumsum(_hashes(rows), dtype=np.uint64) + np.uint64(self._digest)
        batches, records = self._batches, np.cumsum(counts) + self._records
        edges = np.flatnonzero((base // self._step != before // self._step) | begins).tolist()
        if (edges and edges[0] > 0) or not edges:
            self._mind(rows["base_timestamp"][: edges[0] if edges else len(rows)])
        least = _smallest_of_each(rows["base_timestamp"], edges)
        for at, time in zip(edges, least, strict=True):
            total = int(records[at - 1]) if at else self._records
            digest = (int(sums[at - 1]) if at else self._digest) % (1 << DIGEST_BITS)
            mark = Mark(int(base[at]), batches + at, total, digest, time)
            self._marks.append((mark, int(before[at]), bool(begins[at])))
        self._note_epochs(rows, begins)
        self._batches, self._records, self._digest = batches + len(rows), int(records[-1]), int(sums[-1])
        self._before = int(base[-1])
        self._end = int(rows["last_offset"][-1]) + 1
        self._last = EpochFall(self._before, self._end - 1, int(rows["position"][-1]), int(epochs[-1]), -1)
        self._newest_timestamp = max(self._newest_timestamp, int(rows["max_timestamp"].max()))
        self._coarsen()

    def _note_epochs(self, rows: np.ndarray, begins: np.ndarray) -> None:
        epochs = rows["leader_epoch"]
        falls = (epochs[1:] < epochs[:-1]).any() or epochs[0] < self._epoch
        for at in range(len(epochs)) if falls else np.flatnonzero(begins).tolist():
            epoch, offset = int(epochs[at]), int(rows["base_offset"][at])
            if epoch < 0:
                continue
            if self._fall is None and self._epochs and epoch < self._epochs[-1][0]:
                last, position = int(rows["last_offset"][at]), int(rows["position"][at])
                self._fall = EpochFall(offset, last, position, epoch, self._epochs[-1][0])
            while self._epochs and self._epochs[-1][0] > epoch:
                self._epochs.pop()
            if not self._epochs or self._epochs[-1][0] < epoch:
                self._epochs.append((epoch, offset))
        self._epoch = self._epochs[-1][0] if self._epochs else -1

    def _coarsen(self, rows: int = 0, span: int = 0) -> None:
        """Makes room for the marks of so many rows, which lie in so many offsets, if there would be too many."""
        while len(self._marks) + min(rows, span // self._step) > 2 * _FINE_MARKS:
            self._step *= 2
            self._thin(self._is_fine)

    def _is_fine(self, mark: Mark, before: int, begins: bool) -> bool:
        newest = self._epochs[-_LAST_EPOCHS:]
        begins = begins and bool(newest)
        return mark.offset // self._step != before // self._step or (begins and mark.offset >= newest[0][1])

    def _mind(self, times: np.ndarray) -> None:
        if not self._marks:
            return
        mark, before, begins = self._marks[-1]
        least = _least_time(mark.first_timestamp, _smallest(times))
        self._marks[-1] = (replace(mark, first_timestamp=least), before, begins)

    def _thin(self, keep: Callable[[Mark, int, bool], bool]) -> None:
        """Drops marks that are not retained; the one before takes over their smallest timestamps."""
        retained: list[tuple[Mark, int, bool]] = []
        times: list[int] = []
        for entry in self._marks:
            if not retained or keep(*entry):
                retained.append(entry)
                times.append(entry[0].first_timestamp)
            else:
                times[-1] = _least_time(times[-1], entry[0].first_timestamp)
        for at, ((mark, before, begins), time) in enumerate(zip(retained, times, strict=True)):
            if mark.first_timestamp != time:
                retained[at] = replace(mark, first_timestamp=time), before, begins
        self._marks = retained

    def marks(self) -> tuple[Mark, ...]:
        """Returns few marks: coarse ones over the whole log, finer ones towards its end, the newest epochs, and the
        end itself."""
        self._take()
        if not self._marks:
            return ()
        start, end = self._marks[0][0].offset, self._end
        coarse, last = 1, set()
        while (end - start) // coarse > _COARSE_MARKS:
            coarse *= 2
        fine = coarse
        while fine >= self._step:
            last.add(end // fine * fine)
            fine //= _FINER
        newest = {first for _, first in self.epochs[-_LAST_EPOCHS:]}

        def keep(mark: Mark, before: int, _begins: bool) -> bool:
            crosses = any(before < edge <= mark.offset for edge in last)
            return mark.offset // coarse != before // coarse or mark.offset in newest or crosses

        self._thin(keep)
        final = Mark(end, self._batches, self._records, self._digest % (1 << DIGEST_BITS), -1)
        return (*(mark for mark, _, _ in self._marks), final)


@dataclass(frozen=True, slots=True)
class Extent:
    """Records of a stretch of offsets: at most `records`, exactly so many if `exact`. `first_timestamp` is no later
    than the earliest of them, -1 if it is unknown."""

    records: int
    exact: bool
    first_timestamp: int


def extent(marks: tuple[Mark, ...], first: int, end: int) -> Extent:
    """Returns what the marks of a log tell about the offsets from `first` to `end` (exclusive)."""
    records, exact, least = 0, True, -1
    for mark, following in pairwise(marks):
        low, high = max(first, mark.offset), min(end, following.offset)
        if low >= high:
            continue
        held, span = following.records - mark.records, following.offset - mark.offset
        records += min(held, high - low)
        exact = exact and (held == span or (low == mark.offset and high == following.offset) or held == 0)
        least = _least_time(least, mark.first_timestamp)
    return Extent(records, exact, least)


def different(marks: tuple[Mark, ...], other: tuple[Mark, ...], first: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields the stretches (first, end) between `first` and `end` in which two logs hold different batches, as finely
    as their common marks tell. Stretches without a common mark on both sides are not compared."""
    theirs = {mark.offset: mark for mark in other}
    shared = [(mark, theirs[mark.offset]) for mark in marks if mark.offset in theirs and first <= mark.offset <= end]
    for (mine, their), (my_next, their_next) in pairwise(shared):
        same = my_next.digest - mine.digest - (their_next.digest - their.digest)
        if same % (1 << DIGEST_BITS) or my_next.batches - mine.batches != their_next.batches - their.batches:
            yield mine.offset, my_next.offset


def _hashes(rows: np.ndarray) -> np.ndarray:
    columns = ("base_offset", "last_offset", "leader_epoch", "size", "crc")
    return mixed((rows[name] for name in columns), len(rows))


def mixed(columns: Iterable[np.ndarray], count: int) -> np.ndarray:
    """Returns a number of 64 bits for each row (splitmix64 over its columns)."""
    value = np.full(count, _GOLDEN, dtype=np.uint64)
    for column in columns:
        value ^= column.astype(np.int64).view(np.uint64)
        for shift, factor in _ROUNDS:
            value ^= value >> shift
            value *= factor
        value ^= value >> _LAST_SHIFT
    return value


def _record_counts(rows: np.ndarray) -> np.ndarray:
    """Returns the records of each batch; markers of transactions are none. A legacy entry has at least one."""
    counts = np.where(rows["magic"] >= 2, rows["count"], np.maximum(rows["count"], 1)).astype(np.int64)
    return np.where(control_batches(rows), 0, np.maximum(counts, 0))


def _smallest(times: np.ndarray) -> int:
    stamped = times[times >= 0]
    return int(stamped.min()) if len(stamped) else -1


def _smallest_of_each(times: np.ndarray, edges: list[int]) -> list[int]:
    """Returns `_smallest` of each stretch from one of the edges to the next; the last one ends with `times`."""
    if not edges:
        return []
    none = np.iinfo(np.int64).max
    least = np.minimum.reduceat(np.where(times >= 0, times, none), edges)
    smallest: list[int] = np.where(least == none, -1, least).tolist()
    return smallest


def _least_time(time: int, other: int) -> int:
    return other if time < 0 else time if other < 0 else min(time, other)
