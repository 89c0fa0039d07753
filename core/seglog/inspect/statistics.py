"""Distributions over a partition in one pass, in constant memory (`seglog stats`).

Damage is passed over and counted; control batches count as batches, not as records. Distinct keys are an
estimate (0.8 % standard error), counts of frequent keys are lower bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.kernels import sketch
from seglog.log.viewed_directory import whole_view
from seglog.model import Compression
from seglog.scan.listing import PartitionListing
from seglog.scan.log_walk import Gap, LogWalk, WalkedEntries
from seglog.scan.view import steadily
from seglog.storage.filesystem import FileSystem
from seglog.storage.links import name_of

_MOST_PRODUCERS = 100_000


@dataclass(frozen=True, slots=True)
class CodecStatistics:
    """Batches of one codec: `bytes` of records as they lie on disk, `uncompressed_bytes` when expanded."""

    codec: str
    batches: int
    bytes: int
    uncompressed_bytes: int

    @property
    def ratio(self) -> float:
        """How many times smaller the records lie on disk."""
        return self.uncompressed_bytes / self.bytes if self.bytes else 1.0


@dataclass(frozen=True, slots=True)
class FrequentKey:
    """A key that many records have, cut to 64 bytes (`size` is its whole size); `count` is a lower bound."""

    key: bytes
    size: int
    count: int


@dataclass(frozen=True, slots=True)
class LogStatistics:
    """What a partition holds. Histograms map the least size of a bucket (0, 1, 2, 4, 8, …) to a count.

    `tombstones` have a key and a null value. `out_of_order` counts records older than one before them. `producers`
    counts producer ids, at most 100000.
    """

    partition: str
    segments: int
    bytes: int
    damaged_bytes: int
    batches: int
    control_batches: int
    transactional_batches: int
    records: int
    null_keys: int
    tombstones: int
    headers: int
    records_with_headers: int
    key_bytes: int
    value_bytes: int
    largest_key: int
    largest_value: int
    distinct_keys: int
    oldest_timestamp: int | None
    newest_timestamp: int | None
    out_of_order: int
    producers: int
    key_sizes: dict[int, int]
    value_sizes: dict[int, int]
    batch_sizes: dict[int, int]
    records_per_batch: dict[int, int]
    codecs: tuple[CodecStatistics, ...]
    frequent_keys: tuple[FrequentKey, ...]


def log_statistics(fs: FileSystem, listing: PartitionListing, frequent_keys: int = 10) -> LogStatistics:
    """The statistics of a partition of Kafka 0.8 or later. Raises OSError where it cannot be read."""
    gathering = _Gathering()
    for segment in listing.segments:
        for step in LogWalk(fs, segment.log):
            gathering.take(step)
    return gathering.result(listing, frequent_keys)


def view_statistics(fs: FileSystem, directory: Path, frequent_keys: int = 10) -> LogStatistics:
    """The statistics of a partition as it is now, whatever a broker does meanwhile. Raises OSError, NotALogError."""
    with whole_view(fs, directory) as view:
        return steadily(view, lambda seen: log_statistics(seen.fs, seen.listing, frequent_keys))


class _Gathering:
    """The running counts."""

    def __init__(self) -> None:
        self.counters = np.zeros(sketch.COUNTERS, dtype=np.int64)
        self.counters[[sketch.NEWEST, sketch.OLDEST]] = -1
        self.key_sizes, self.value_sizes, self.batch_sizes, self.per_batch = (
            np.zeros(sketch.BUCKETS, dtype=np.int64) for _ in range(4)
        )
        self.registers = np.zeros(sketch.REGISTERS, dtype=np.uint8)
        self.votes = np.zeros((sketch.SLOTS, 3), dtype=np.int64)
        self.keys = np.zeros(sketch.SLOTS * sketch.SLOT_KEY_BYTES, dtype=np.uint8)
        self.seeds = sketch.new_seeds()
        self.damaged = self.batches = self.control = self.transactional = 0
        self.producers: set[int] = set()
        self.by_codec = np.zeros((8, 3), dtype=np.int64)  # batches, bytes, uncompressed bytes

    def take(self, step: WalkedEntries | Gap) -> None:
        if isinstance(step, Gap):
            self.damaged += step.length
            return
        self.damaged += int(step.batches["size"][~step.valid].astype(np.int64).sum())
        good = step.batches[step.valid]
        self._batches(good)
        plain = good[(good["attributes"] & layout.CONTROL_MASK == 0) | (good["magic"] < 2)]
        for records in step.records(plain):
            self._records(records.arena, records.rows)
            codecs = records.batches["attributes"] & layout.CODEC_MASK
            sizes = np.bincount(records.rows["batch"], records.rows["size"], len(records.batches))
            np.add.at(self.by_codec[:, 2], codecs, sizes.astype(np.int64))
            if records.rows_after:
                continue  # the batch counts with its last part
            counts = np.bincount(records.rows["batch"], minlength=len(records.batches))
            counts[:1] += records.rows_before
            _add(self.per_batch, counts)
            np.add.at(self.by_codec[:, 0], codecs, 1)
            overhead = np.where(records.batches["magic"] >= 2, layout.RECORD_BATCH_OVERHEAD, 0)
            np.add.at(self.by_codec[:, 1], codecs, records.batches["size"] - overhead)

    def _batches(self, good: np.ndarray) -> None:
        flags = np.where(good["magic"] >= 2, good["attributes"], 0)
        self.batches += len(good)
        self.control += int(np.count_nonzero(flags & layout.CONTROL_MASK))
        self.transactional += int(np.count_nonzero(flags & layout.TRANSACTIONAL_MASK))
        _add(self.batch_sizes, good["size"])
        if len(self.producers) < _MOST_PRODUCERS:
            self.producers.update(np.unique(good["producer_id"][good["producer_id"] >= 0]).tolist())

    def _records(self, arena: np.ndarray, rows: np.ndarray) -> None:
        sketch.count_records(
            arena,
            rows,
            self.seeds,
            self.counters,
            self.key_sizes,
            self.value_sizes,
            self.registers,
            self.votes,
            self.keys,
        )

    def result(self, listing: PartitionListing, frequent_keys: int) -> LogStatistics:
        count = self.counters.tolist()
        oldest, newest = count[sketch.OLDEST], count[sketch.NEWEST]
        return LogStatistics(
            partition=name_of(listing.directory),
            segments=len(listing.segments),
            bytes=listing.size,
            damaged_bytes=self.damaged,
            batches=self.batches,
            control_batches=self.control,
            transactional_batches=self.transactional,
            records=count[sketch.RECORDS],
            null_keys=count[sketch.NULL_KEYS],
            tombstones=count[sketch.TOMBSTONES],
            headers=count[sketch.HEADERS],
            records_with_headers=count[sketch.RECORDS_WITH_HEADERS],
            key_bytes=count[sketch.KEY_BYTES],
            value_bytes=count[sketch.VALUE_BYTES],
            largest_key=count[sketch.LARGEST_KEY],
            largest_value=count[sketch.LARGEST_VALUE],
            distinct_keys=_distinct(self.registers),
            oldest_timestamp=None if oldest < 0 else oldest,
            newest_timestamp=None if newest < 0 else newest,
            out_of_order=count[sketch.OUT_OF_ORDER],
            producers=len(self.producers),
            key_sizes=_histogram(self.key_sizes),
            value_sizes=_histogram(self.value_sizes),
            batch_sizes=_histogram(self.batch_sizes),
            records_per_batch=_histogram(self.per_batch),
            codecs=self._codecs(),
            frequent_keys=self._frequent(frequent_keys),
        )

    def _codecs(self) -> tuple[CodecStatistics, ...]:
        found = []
        for codec in np.flatnonzero(self.by_codec[:, 0]).tolist():
            name = Compression(codec).label if codec <= Compression.ZSTD else "unknown"
            found.append(CodecStatistics(name, *self.by_codec[codec].tolist()))
        return tuple(found)

    def _frequent(self, most: int) -> tuple[FrequentKey, ...]:
        found = []
        for slot in np.argsort(-self.votes[:, 1], kind="stable")[:most].tolist():
            count, size = int(self.votes[slot, 1]), int(self.votes[slot, 2])
            if count > 1:
                start = slot * sketch.SLOT_KEY_BYTES
                key = self.keys[start : start + min(size, sketch.SLOT_KEY_BYTES)].tobytes()
                found.append(FrequentKey(key, size, count))
        return tuple(found)


def _add(histogram: np.ndarray, sizes: np.ndarray) -> None:
    buckets = np.zeros(len(sizes), dtype=np.int64)
    positive = sizes > 0
    buckets[positive] = np.floor(np.log2(sizes[positive])).astype(np.int64) + 1
    np.add.at(histogram, np.minimum(buckets, sketch.BUCKETS - 1), 1)


def _histogram(counts: np.ndarray) -> dict[int, int]:
    return {(0 if i == 0 else 1 << (i - 1)): int(counts[i]) for i in np.flatnonzero(counts).tolist()}


def _distinct(registers: np.ndarray) -> int:
    """HyperLogLog's estimate, with linear counting where few registers are used."""
    size = len(registers)
    estimate = 0.7213 / (1 + 1.079 / size) * size * size / float(np.exp2(-registers.astype(np.float64)).sum())
    empty = int(np.count_nonzero(registers == 0))
    if estimate <= 2.5 * size and empty:
        estimate = size * math.log(size / empty)
    return round(estimate)
