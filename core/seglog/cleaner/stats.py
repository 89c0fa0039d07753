"""The account of a round: Kafka's CleanerStats, its text in the broker's log, and what became of every record."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from seglog.clock import Clock
from seglog.escaping import escaped
from seglog.kernels import filtering

MEBIBYTE = 1 << 20

# Seconds of each, over all threads.
PHASES = ("read", "checksum", "decompress", "map", "filter", "compress", "write", "fsync", "swap")


@dataclass
class CleanerStats:
    """Counts of one round (Kafka: CleanerStats, plus what became of the records).

    `map_*` count the index passes' first one. `records_read` counts records that were looked at: batches deleted whole
    count in bytes only. Times are monotonic seconds of the clock given.
    """

    clock: Clock
    map_bytes_read: int = 0
    map_records_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    batches_written: int = 0
    buffer_utilization: float = 0.0
    index_passes: int = 1
    map_entries: int = 0
    map_slots: int = 0
    counters: np.ndarray = field(default_factory=lambda: np.zeros(filtering.COUNTER_SLOTS, dtype=np.int64))
    phases: dict[str, float] = field(default_factory=dict)
    started: float = 0.0
    map_completed: float = 0.0
    ended: float = 0.0

    def __post_init__(self) -> None:
        self.started = self.map_completed = self.ended = self.clock.monotonic()
        self._lock = threading.Lock()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the time spent inside to a phase."""
        begin = self.clock.monotonic()
        try:
            yield
        finally:
            spent = self.clock.monotonic() - begin
            with self._lock:
                self.phases[name] = self.phases.get(name, 0.0) + spent

    def add_copy(self, part: CleanerStats) -> None:
        """Adds what another object has counted of this round's copy."""
        self.bytes_read += part.bytes_read
        self.bytes_written += part.bytes_written
        self.batches_written += part.batches_written
        self.counters += part.counters
        for name, seconds in part.phases.items():
            self.phases[name] = self.phases.get(name, 0.0) + seconds

    def index_done(self) -> None:
        """Ends the time that counts as indexing."""
        self.map_completed = self.clock.monotonic()

    def all_done(self) -> None:
        """Ends the round's time."""
        self.ended = self.clock.monotonic()

    def _counter(self, slot: int) -> int:
        return int(self.counters[slot])

    @property
    def records_read(self) -> int:
        return self._counter(filtering.RECORDS_READ)

    @property
    def records_written(self) -> int:
        return self._counter(filtering.RECORDS_WRITTEN)

    @property
    def invalid_records(self) -> int:
        """Records without a key, which a compacted log cannot keep."""
        return self._counter(filtering.RECORDS_WITHOUT_KEY)

    @property
    def tombstones_kept(self) -> int:
        return self._counter(filtering.TOMBSTONES_KEPT)

    @property
    def index_seconds(self) -> float:
        return self.map_completed - self.started

    @property
    def clean_seconds(self) -> float:
        return self.ended - self.map_completed

    @property
    def seconds(self) -> float:
        return self.ended - self.started

    def reasons(self) -> dict[str, int]:
        """How many records and batches were kept and dropped, by reason, in a fixed order."""
        f = filtering
        kept = self.records_written - self.tombstones_kept - self._counter(f.CONTROL_RECORDS_KEPT)
        return {
            "records_kept": kept,
            "tombstones_kept": self.tombstones_kept,
            "control_records_kept": self._counter(f.CONTROL_RECORDS_KEPT),
            "records_superseded": self._counter(f.RECORDS_SUPERSEDED),
            "records_without_key": self.invalid_records,
            "tombstones_expired": self._counter(f.TOMBSTONES_EXPIRED),
            "records_discarded": self._counter(f.RECORDS_DISCARDED),
            "batches_discarded": self._counter(f.BATCHES_DISCARDED),
            "batches_verbatim": self._counter(f.BATCHES_VERBATIM),
            "batches_rebuilt": self._counter(f.BATCHES_REBUILT),
            "batches_emptied": self._counter(f.BATCHES_EMPTIED),
            "delete_horizons_set": self._counter(f.HORIZONS_SET),
        }


def format_stats(
    stats: CleanerStats,
    topic_partition: object,
    first_dirty_offset: int,
    end_offset: int,
    thread: int = 0,
    *,
    dry_run: bool = False,
) -> str:
    """The block that a broker logs after a round (Kafka: LogCleaner.recordStats), to the letter; of a dry run it says
    what would have been done.
    """
    read, written = stats.bytes_read / MEBIBYTE, stats.bytes_written / MEBIBYTE
    mapped, total = stats.map_bytes_read / MEBIBYTE, stats.seconds
    index, clean = stats.index_seconds, stats.clean_seconds
    rewrote = "Would have cleaned" if dry_run else "Cleaned"
    begin = rewrote if dry_run else f"Log cleaner thread {thread} cleaned"
    lines = [
        f"{begin} log {escaped(str(topic_partition))} (dirty section = [{first_dirty_offset}, {end_offset}])",
        f"{_number(read)} MB of log processed in {_number(total)} seconds ({_number(_ratio(read, total))} MB/sec).",
        f"Indexed {_number(mapped)} MB in {_plain(index)} seconds ({_number(_ratio(mapped, index))} Mb/sec,"
        f" {_plain(100 * _ratio(index, total))}% of total time)",
        f"Buffer utilization: {_plain(100 * stats.buffer_utilization)}%",
        f"{rewrote} {_number(read)} MB in {_plain(clean)} seconds ({_number(_ratio(read, clean))} Mb/sec,"
        f" {_plain(100 * _ratio(clean, total))}% of total time)",
        f"Start size: {_number(read)} MB ({stats.records_read:,} messages)",
        f"End size: {_number(written)} MB ({stats.records_written:,} messages)",
        f"{_plain(100 * (1 - _ratio(stats.bytes_written, stats.bytes_read)))}% size reduction"
        f" ({_plain(100 * (1 - _ratio(stats.records_written, stats.records_read)))}% fewer messages)",
    ]
    return "\n" + "".join(f"\t{line}\n" for line in lines)


def _ratio(part: float, whole: float) -> float:
    """As Java divides doubles: x/0 is infinite, 0/0 not a number."""
    if whole == 0:
        return math.nan if part == 0 else math.copysign(math.inf, part)
    return part / whole


def _number(value: float) -> str:
    return _plain(value) if not math.isfinite(value) else f"{value:,.1f}"


def _plain(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return f"{value:.1f}"
