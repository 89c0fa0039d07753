"""Measures distributions over a partition in one pass, in constant memory (`seglog stats`).

Damage is skipped and counted; control batches count as batches but not as records. The number of distinct keys is an
estimate (0.8 % standard error); counts of frequent keys are lower bounds.

A log is measured in stretches of neighbouring segments (`stretches_of`), each separately, and the results are added in
log order. A stretch can therefore be measured elsewhere with the same result (`seglog_ask.spark.stretches`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.errors import SeglogError
from seglog.format.columns import Records
from seglog.format.decoder import control_batches
from seglog.kernels import sketch
from seglog.log.read_loader import whole_view
from seglog.model import codec_name
from seglog.scan.listing import PartitionListing, SegmentFiles
from seglog.scan.log_walk import Gap, LogWalk, WalkedEntries
from seglog.scan.small_log import small_log_at_rest
from seglog.scan.view import steadily
from seglog.storage.filesystem import FileSystem
from seglog.storage.links import name_of

_MOST_PRODUCERS = 100_000
_MOST_FREQUENT = 10
_STRETCH_BYTES, _MOST_STRETCHES = 256 << 20, 256  # a larger log has larger stretches: their results are transferred


@dataclass(frozen=True, slots=True)
class CodecStatistics:
    """Batches of one codec: the records' `bytes` on disk and their `uncompressed_bytes`."""

    codec: str
    batches: int
    bytes: int
    uncompressed_bytes: int

    @property
    def ratio(self) -> float:
        """The factor by which compression shrinks the records."""
        return self.uncompressed_bytes / self.bytes if self.bytes else 1.0


@dataclass(frozen=True, slots=True)
class FrequentKey:
    """A frequent key, cut to 64 bytes (`size` is its full size); `count` is a lower bound of its records."""

    key: bytes
    size: int
    count: int


@dataclass(frozen=True, slots=True)
class LogStatistics:
    """The statistics of a partition. Histograms map the lower bound of a bucket (0, 1, 2, 4, 8, …) to a count.

    `tombstones` counts records with a key and a null value, `out_of_order` records older than an earlier one,
    `producers` the producer ids, up to 100000.
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


Stretch = tuple[Path, ...]  # logs of neighbouring segments
# What is known of a stretch that follows records with a newest timestamp (-1: none) at most; None: it must be read.
Known = Callable[[FileSystem, Stretch, int], "Gathering | None"]


def stretches_of(segments: Sequence[SegmentFiles]) -> list[Stretch]:
    """Splits segments into stretches of up to 256 MiB or a single segment; larger ones for a log beyond 64 GiB."""
    most, total = _STRETCH_BYTES, sum(segment.size for segment in segments)
    while most * _MOST_STRETCHES < total:
        most *= 2  # doubling keeps the stretches the same while a log grows a little
    stretches: list[list[Path]] = []
    held = 0
    for segment in segments:
        if not stretches or held + segment.size > most:
            stretches.append([])
            held = 0
        stretches[-1].append(segment.log)
        held += segment.size
    return [tuple(stretch) for stretch in stretches]


def log_statistics(fs: FileSystem, listing: PartitionListing, known: Known | None = None) -> LogStatistics:
    """Returns the statistics of a partition of Kafka 0.8 or later. Raises OSError if it cannot be read.

    Stretches that are `known` are not read.
    """
    total: Gathering | None = None
    for logs in stretches_of(listing.segments):
        newest = -1 if total is None else total.newest
        gathering = None if known is None else known(fs, logs, newest)
        if gathering is None:
            gathering = Gathering(newest=newest)
            gathering.walk(fs, logs)
        if total is None:
            total = gathering
        else:
            total.add(gathering)
    return (total or Gathering()).result(listing)


def view_statistics(fs: FileSystem, directory: Path, known: Known | None = None) -> LogStatistics:
    """Returns the statistics of a partition as of now, even while a broker changes it. Raises OSError, NotALogError."""
    small = small_log_at_rest(fs, directory) if known is None else None
    if small is not None:
        with suppress(SeglogError):  # the view meets it again, and tells where it lies
            gathering = Gathering()
            gathering.take(small.entries)
            return gathering.result(small.listing)
    with whole_view(fs, directory) as view:
        return steadily(view, lambda seen: log_statistics(seen.fs, seen.listing, known))


class Gathering:
    """The running counts. `newest` is the newest timestamp of the records before (-1: none)."""

    def __init__(self, newest: int = -1) -> None:
        self.counters = np.zeros(sketch.COUNTERS, dtype=np.int64)
        self.counters[[sketch.NEWEST, sketch.OLDEST]] = newest, -1
        self.key_sizes, self.value_sizes, self.batch_sizes, self.per_batch = (
            np.zeros(sketch.BUCKETS, dtype=np.int64) for _ in range(4)
        )
        self.registers = np.zeros(sketch.REGISTERS, dtype=np.uint8)
        self.votes = np.zeros((sketch.SLOTS, sketch.VOTE_COLUMNS), dtype=np.int64)
        self.keys = np.zeros(sketch.SLOTS * sketch.SLOT_KEY_BYTES, dtype=np.uint8)
        self.seeds = sketch.new_seeds()
        self.damaged = self.batches = self.control = self.transactional = 0
        self.producers: set[int] = set()
        self.by_codec = np.zeros((8, 3), dtype=np.int64)  # batches, bytes, uncompressed bytes

    @property
    def newest(self) -> int:
        """The newest timestamp so far, -1 if no record has one."""
        return int(self.counters[sketch.NEWEST])

    def walk(self, fs: FileSystem, logs: Stretch) -> None:
        """Counts logs, one after the other."""
        for log in logs:
            for step in LogWalk(fs, log):
                self.take(step)

    def add(self, other: Gathering) -> None:
        """Adds the counts of the records that follow."""
        mine, its = self.counters, other.counters
        most = (sketch.NEWEST, sketch.LARGEST_KEY, sketch.LARGEST_VALUE)
        oldest = [time for time in (int(mine[sketch.OLDEST]), int(its[sketch.OLDEST])) if time >= 0]
        extremes = {index: max(int(mine[index]), int(its[index])) for index in most}
        extremes[sketch.OLDEST] = min(oldest, default=-1)
        mine += its
        for index, value in extremes.items():
            mine[index] = value
        self.key_sizes += other.key_sizes
        self.value_sizes += other.value_sizes
        self.batch_sizes += other.batch_sizes
        self.per_batch += other.per_batch
        self.by_codec += other.by_codec
        np.maximum(self.registers, other.registers, out=self.registers)
        self._add_votes(other)
        self.damaged += other.damaged
        self.batches += other.batches
        self.control += other.control
        self.transactional += other.transactional
        if len(self.producers) < _MOST_PRODUCERS:
            self.producers |= other.producers

    def _add_votes(self, other: Gathering) -> None:
        """Merges each slot's candidates: equal keys add their votes; otherwise the stronger keeps the difference."""
        slots = np.flatnonzero(other.votes[:, sketch.VOTE_COUNT] > 0)
        mine, its = self.votes[slots], other.votes[slots]
        my_count, its_count = mine[:, sketch.VOTE_COUNT], its[:, sketch.VOTE_COUNT]
        same = (my_count > 0) & (mine[:, sketch.VOTE_HASH] == its[:, sketch.VOTE_HASH])
        stronger = ~same & (its_count > my_count)
        left = np.where(same, my_count + its_count, np.abs(my_count - its_count))
        self.votes[slots] = np.where(stronger[:, None], its, mine)
        self.votes[slots, sketch.VOTE_COUNT] = left
        replaced, width = slots[stronger], sketch.SLOT_KEY_BYTES
        self.keys.reshape(-1, width)[replaced] = other.keys.reshape(-1, width)[replaced]

    def take(self, step: WalkedEntries | Gap) -> None:
        if isinstance(step, Gap):
            self.damaged += step.length
            return
        self.damaged += int(step.batches["size"][~step.valid].astype(np.int64).sum())
        good = step.batches[step.valid]
        self._batches(good)
        plain = good[~control_batches(good)]
        for records in step.records(plain):
            self.count(records)

    def count(self, records: Records) -> None:
        """Counts records of data batches, and their codecs."""
        sketch.count_records(
            records.arena,
            records.rows,
            self.seeds,
            self.counters,
            self.key_sizes,
            self.value_sizes,
            self.registers,
            self.votes,
            self.keys,
        )
        codecs = records.batches["attributes"] & layout.CODEC_MASK
        sizes = np.bincount(records.rows["batch"], records.rows["size"], len(records.batches))
        np.add.at(self.by_codec[:, 2], codecs, sizes.astype(np.int64))
        if records.rows_after:
            return  # a batch in parts counts with its last part
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

    def result(self, listing: PartitionListing) -> LogStatistics:
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
            frequent_keys=self._frequent(),
        )

    def _codecs(self) -> tuple[CodecStatistics, ...]:
        codecs = []
        for codec in np.flatnonzero(self.by_codec[:, 0]).tolist():
            codecs.append(CodecStatistics(codec_name(codec), *self.by_codec[codec].tolist()))
        return tuple(codecs)

    def _frequent(self) -> tuple[FrequentKey, ...]:
        keys = []
        several = np.flatnonzero(self.votes[:, sketch.VOTE_COUNT] > 1)
        order = np.argsort(-self.votes[several, sketch.VOTE_COUNT], kind="stable")[:_MOST_FREQUENT]
        for slot in several[order].tolist():
            count, size = int(self.votes[slot, sketch.VOTE_COUNT]), int(self.votes[slot, sketch.VOTE_KEY_SIZE])
            start = slot * sketch.SLOT_KEY_BYTES
            key = self.keys[start : start + min(size, sketch.SLOT_KEY_BYTES)].tobytes()
            keys.append(FrequentKey(key, size, count))
        return tuple(keys)


def _add(histogram: np.ndarray, sizes: np.ndarray) -> None:
    buckets = np.zeros(len(sizes), dtype=np.int64)
    positive = sizes > 0
    buckets[positive] = np.floor(np.log2(sizes[positive])).astype(np.int64) + 1
    np.add.at(histogram, np.minimum(buckets, sketch.BUCKETS - 1), 1)


def _histogram(counts: np.ndarray) -> dict[int, int]:
    return {(0 if i == 0 else 1 << (i - 1)): int(counts[i]) for i in np.flatnonzero(counts).tolist()}


def _distinct(registers: np.ndarray) -> int:
    """Returns HyperLogLog's estimate, or that of linear counting if few registers are used."""
    size, used = len(registers), registers[registers > 0]
    empty = size - len(used)  # each counts as 2 ** -0
    estimate = 0.7213 / (1 + 1.079 / size) * size * size / (empty + float(np.exp2(-used.astype(np.float64)).sum()))
    if estimate <= 2.5 * size and empty:
        estimate = size * math.log(size / empty)
    return round(estimate)
