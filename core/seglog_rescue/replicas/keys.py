"""What a compacted log tells about its keys, so that copies that were compacted apart can be compared.

A cleaner takes away other records on each broker, but never the newest one of a key among those that it has reached,
and it does not reach the last segment. So below any offset in or after the last segment of both copies, each key has
the same newest record in both, whatever was compacted. A tombstone counts as no record: a cleaner drops it at last.

A mark holds the number of keys and a sum over their newest records. Marks lie at the end of the log, and at the last
multiples of the powers of four before it: two copies that end apart share one of them. Memory is bounded: beyond some
number of keys, only those count whose hash begins with zeros.

Kafka: LogCleanerManager.cleanableOffsets, Cleaner.shouldRetainRecord.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from seglog import layout
from seglog.format.decoder import control_batches
from seglog.kernels import row_keys
from seglog.scan.log_walk import WalkedEntries
from seglog.verification.unsettled import Unsettled
from seglog_rescue.replicas.digests import DIGEST_BITS, mixed

_COARSE_MARKS = 4
_MOST_KEYS = 1 << 20
_LEAST_MERGED = 1 << 16
_SHIFT = 2  # bits: powers of four
_ROW = np.dtype([("key", np.int64), ("value", np.int64), ("offset", np.int64)])
# FORMAT.md has them: facts of two hosts must agree. The hash is `kernels.hashing`.
_SEEDS = np.array([0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179, 0x6A09E667F3BCC909, 0x3C6EF372FE94F82B], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class KeyMark:
    """The keys whose newest record below `offset` has a value: how many there are, and a sum over these records.

    Only keys whose hash begins with `sampled` zero bits count.
    """

    offset: int
    keys: int
    digest: int
    sampled: int = 0


@dataclass(frozen=True, slots=True)
class KeysBeside:
    """Two copies' keys below `end`: whether each key has the same newest record in both, and how many keys there are in
    the chosen copy and in the other."""

    end: int
    agree: bool
    chosen: int
    other: int


def edges(active: int, end: int) -> list[int]:
    """Returns the offsets of the marks of a log that ends at `end` and whose last segment begins at `active`."""
    places: list[int] = []
    shift = 0
    while (edge := end >> shift << shift) >= active and shift < 63 and edge > 0:
        places.append(edge)
        shift += _SHIFT
    coarse = sorted(set(places))
    return [*coarse[:_COARSE_MARKS], *coarse[_COARSE_MARKS:][-1:]]


def compared(chosen: Sequence[KeyMark], other: Sequence[KeyMark], end: int) -> KeysBeside | None:
    """Compares two copies at the last mark that both have, at most at `end`, where they part; None without one."""
    theirs = {(mark.offset, mark.sampled): mark for mark in other}
    for mark in reversed(chosen):
        beside = theirs.get((mark.offset, mark.sampled))
        if beside is not None and mark.offset <= end:
            return KeysBeside(mark.offset, mark == beside, mark.keys, beside.keys)
    return None


class NewestRecords:
    """Collects the newest record of each key from a log's good batches, in order, and marks it at some offsets."""

    def __init__(self, places: Sequence[int], find_unsettled: Callable[[], Unsettled]) -> None:
        self._places, self._find_unsettled = sorted(places), find_unsettled
        self._unsettled: Unsettled | None = None
        self._marks: list[KeyMark] = []
        self._kept, self._parts, self._waiting = np.zeros(0, dtype=_ROW), list[np.ndarray](), 0
        self._sampled, self._is_readable = 0, True

    def add(self, step: WalkedEntries, batches: np.ndarray) -> None:
        """Adds good batches of a piece of the log."""
        if not (self._is_readable and self._places):
            return
        for records in step.records(batches[self._counts(batches)]):
            if records.status.any():
                self._is_readable = False  # nothing is proved by keys that cannot be read
                return
            rows = records.rows[records.rows["key_size"] >= 0]
            self._take(_hashed(records.arena, rows))

    def _counts(self, batches: np.ndarray) -> np.ndarray:
        """Returns a bool per batch: True unless it is a control batch or belongs to an aborted or open transaction."""
        counting = ~control_batches(batches)
        if ((batches["magic"] >= 2) & (batches["attributes"] & layout.TRANSACTIONAL_MASK != 0)).any():
            if self._unsettled is None:
                self._unsettled = self._find_unsettled()
            counting &= ~self._unsettled.transactions.mask(batches)
        return np.asarray(counting, dtype=bool)

    def _take(self, rows: np.ndarray) -> None:
        rows = self._of_sample(rows)
        while self._places and len(rows) and rows["offset"][-1] >= self._places[0]:
            cut = int(np.searchsorted(rows["offset"], self._places[0]))
            self._parts.append(rows[:cut])
            self._mark(self._places.pop(0))
            rows = self._of_sample(rows[cut:])
        self._parts.append(rows)
        self._waiting += len(rows)
        if self._waiting > max(_LEAST_MERGED, len(self._kept)):
            self._merge()

    def _of_sample(self, rows: np.ndarray) -> np.ndarray:
        if not self._sampled:
            return rows
        sample: np.ndarray = rows[rows["key"].view(np.uint64) >> np.uint64(64 - self._sampled) == 0]
        return sample

    def _merge(self) -> None:
        rows = np.concatenate([self._kept, *self._parts])
        rows = rows[np.lexsort((rows["offset"], rows["key"]))]
        last = np.ones(len(rows), dtype=bool)
        last[:-1] = rows["key"][1:] != rows["key"][:-1]
        self._kept = rows[last & (rows["value"] != row_keys.NULL)]
        self._parts, self._waiting = [], 0
        while len(self._kept) > _MOST_KEYS:
            self._sampled += 1
            self._kept = self._of_sample(self._kept)

    def _mark(self, place: int) -> None:
        self._merge()
        columns = (self._kept[name] for name in ("key", "value", "offset"))
        digest = int(mixed(columns, len(self._kept)).sum(dtype=np.uint64))
        self._marks.append(KeyMark(place, len(self._kept), digest % (1 << DIGEST_BITS), self._sampled))

    def marks(self) -> tuple[KeyMark, ...]:
        """Returns the marks after the whole log was added; none if its records could not all be read."""
        while self._places and self._is_readable:
            self._mark(self._places.pop(0))
        return tuple(self._marks) if self._is_readable else ()


def _hashed(arena: np.ndarray, rows: np.ndarray) -> np.ndarray:
    out, column = np.empty(len(rows), dtype=_ROW), np.empty(len(rows), dtype=np.int64)
    for name in ("key", "value"):
        row_keys.hash_spans(arena, rows[f"{name}_position"], rows[f"{name}_size"], _SEEDS, column)
        out[name] = column
    out["offset"] = rows["offset"]
    return out
