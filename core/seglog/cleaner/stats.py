"""The account of a round: Kafka's CleanerStats, its text in the broker's log, and what became of every record.

Counts of parts of a round, such as groups of segments that were copied side by side or in tasks of Spark, are added.

The figures of past rounds are kept under `$XDG_STATE_HOME/seglog`, never in a log directory (`CleaningHistory`).
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from seglog.cleaner.output import SegmentSummary
from seglog.cleaner.round import RoundPlan
from seglog.clock import Clock
from seglog.escaping import escaped
from seglog.kernels import filter_slots
from seglog.model import TopicPartition
from seglog.storage import links
from seglog.storage.files import write_atomically
from seglog.storage.filesystem import FileSystem

MEBIBYTE = 1 << 20

# Seconds of each, over all threads; one thread alone reads keys where it puts them into the map.
PHASES = ("checksum", "decompress", "keys", "map", "filter", "compress", "write", "fsync", "swap")

MOST_ROUNDS = 500

# What readers of the history rely on.
_FIGURES = (
    *("time", "first_dirty_offset", "end_offset", "bytes_read", "bytes_written", "records_read", "records_written"),
    *("buffer_utilization", "index_passes", "index_seconds", "clean_seconds"),
)

Round = dict[str, Any]


@dataclass(eq=False)
class RoundCounts:
    """What was counted of a round, or of a part of one: values that can be added and sent.

    `map_*` count the index passes' first one, but `map_entries` the keys of all of them and `most_map_entries` those of
    the fullest. `bytes_read` are those of the sources, as Kafka counts them; `bytes_unread` of them were dead
    (`indexing`) and not read a second time. `records_read` counts records that were looked at: batches deleted
    whole count in bytes only. `phases` are seconds, over all threads.
    """

    map_bytes_read: int = 0
    map_records_read: int = 0
    map_entries: int = 0
    most_map_entries: int = 0
    index_passes: int = 1
    bytes_read: int = 0
    bytes_unread: int = 0
    bytes_written: int = 0
    batches_written: int = 0
    counters: np.ndarray = field(default_factory=lambda: np.zeros(filter_slots.COUNTER_SLOTS, dtype=np.int64))
    phases: dict[str, float] = field(default_factory=dict)

    def add(self, part: RoundCounts) -> None:
        """Adds what another object has counted of this round."""
        self.map_bytes_read += part.map_bytes_read
        self.map_records_read += part.map_records_read
        self.map_entries += part.map_entries
        self.most_map_entries = max(self.most_map_entries, part.most_map_entries)
        self.index_passes = max(self.index_passes, part.index_passes)
        self.bytes_read += part.bytes_read
        self.bytes_unread += part.bytes_unread
        self.bytes_written += part.bytes_written
        self.batches_written += part.batches_written
        self.counters += part.counters
        for name, seconds in part.phases.items():
            self.phases[name] = self.phases.get(name, 0.0) + seconds


class CleanerStats(RoundCounts):
    """The counts of one round and how long it took (Kafka: CleanerStats, plus what became of the records).

    Times are monotonic seconds of the clock given.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.started = self.map_completed = self.ended = clock.monotonic()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, object]:
        """Everything but the lock, so that plans and results travel between processes."""
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._lock = threading.Lock()

    def counts(self) -> RoundCounts:
        """The counts alone."""
        counted = RoundCounts()
        counted.add(self)
        return counted

    def resumed(self) -> CleanerStats:
        """The same once more, to go on from here: what is counted on one is not counted on the other."""
        again = CleanerStats(self.clock)
        again.add(self)
        again.started, again.map_completed = self.started, self.map_completed
        return again

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
        return self._counter(filter_slots.RECORDS_READ)

    @property
    def records_written(self) -> int:
        return self._counter(filter_slots.RECORDS_WRITTEN)

    @property
    def invalid_records(self) -> int:
        """Records without a key, which a compacted log cannot keep."""
        return self._counter(filter_slots.RECORDS_WITHOUT_KEY)

    @property
    def tombstones_kept(self) -> int:
        return self._counter(filter_slots.TOMBSTONES_KEPT)

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
        f = filter_slots
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


@dataclass(frozen=True)
class CleaningResult:
    """A round's outcome, predicted (`dry_run`) or done.

    `segments_before` are (base offset, bytes) of the segments rewritten, `segments_after` what they became.
    `limit_reason` says why nothing past `end_offset` was cleaned.
    """

    topic_partition: TopicPartition
    dry_run: bool
    first_dirty_offset: int
    end_offset: int
    segments_before: tuple[tuple[int, int], ...]
    segments_after: tuple[SegmentSummary, ...]
    map_slots: int
    stats: CleanerStats
    limit_reason: str = ""

    @classmethod
    def of(
        cls, plan: RoundPlan, stats: CleanerStats, summaries: Sequence[SegmentSummary], *, dry_run: bool
    ) -> CleaningResult:
        return cls(
            topic_partition=plan.topic_partition,
            dry_run=dry_run,
            first_dirty_offset=plan.first_dirty_offset,
            end_offset=plan.end_offset,
            segments_before=tuple(zip(plan.source_bases, plan.sizes, strict=True)),
            segments_after=tuple(summaries),
            map_slots=plan.options.map_slots,
            stats=stats,
            limit_reason=plan.limit_reason,
        )

    @property
    def buffer_utilization(self) -> float:
        """How full the dedupe buffer became, as a share of the entries that Kafka's map has in it."""
        return self.stats.most_map_entries / max(self.map_slots, 1)

    @property
    def bytes_written(self) -> int:
        """Bytes of the new `.log` files."""
        return sum(segment.size for segment in self.segments_after)

    def text(self, thread: int = 0) -> str:
        """The block that a broker logs after a round (Kafka: LogCleaner.recordStats, specification §12.10), to the
        letter; of a dry run it says what would have been done.
        """
        stats = self.stats
        read, written = stats.bytes_read / MEBIBYTE, stats.bytes_written / MEBIBYTE
        mapped, total = stats.map_bytes_read / MEBIBYTE, stats.seconds
        index, clean = stats.index_seconds, stats.clean_seconds
        rewrote = "Would have cleaned" if self.dry_run else "Cleaned"
        begin = rewrote if self.dry_run else f"Log cleaner thread {thread} cleaned"
        section = f"[{self.first_dirty_offset}, {self.end_offset}]"
        lines = [
            f"{begin} log {escaped(str(self.topic_partition))} (dirty section = {section})",
            f"{_number(read)} MB of log processed in {_number(total)} seconds ({_number(_ratio(read, total))} MB/sec).",
            f"Indexed {_number(mapped)} MB in {_plain(index)} seconds ({_number(_ratio(mapped, index))} Mb/sec,"
            f" {_plain(100 * _ratio(index, total))}% of total time)",
            f"Buffer utilization: {_plain(100 * self.buffer_utilization)}%",
            f"{rewrote} {_number(read)} MB in {_plain(clean)} seconds ({_number(_ratio(read, clean))} Mb/sec,"
            f" {_plain(100 * _ratio(clean, total))}% of total time)",
            f"Start size: {_number(read)} MB ({stats.records_read:,} messages)",
            f"End size: {_number(written)} MB ({stats.records_written:,} messages)",
            f"{_plain(100 * (1 - _ratio(stats.bytes_written, stats.bytes_read)))}% size reduction"
            f" ({_plain(100 * (1 - _ratio(stats.records_written, stats.records_read)))}% fewer messages)",
        ]
        return "\n" + "".join(f"\t{line}\n" for line in lines)

    def to_json(self) -> dict[str, Any]:
        """The object of type `cleaning` in the command line's JSON."""
        stats = self.stats
        return {
            "type": "cleaning",
            "partition": str(self.topic_partition),
            "dry_run": self.dry_run,
            "first_dirty_offset": self.first_dirty_offset,
            "end_offset": self.end_offset,
            "index_passes": stats.index_passes,
            "map_slots": self.map_slots,
            "map_entries": stats.map_entries,
            "buffer_utilization": self.buffer_utilization,
            "bytes_read": stats.bytes_read,
            "bytes_unread": stats.bytes_unread,
            "bytes_written": stats.bytes_written,
            "records_read": stats.records_read,
            "records_written": stats.records_written,
            "batches_written": stats.batches_written,
            "tombstones_kept": stats.tombstones_kept,
            "reasons": stats.reasons(),
            "segments_before": [{"base_offset": base, "size": size} for base, size in self.segments_before],
            "segments_after": [{"base_offset": s.base_offset, "size": s.size} for s in self.segments_after],
            "index_seconds": stats.index_seconds,
            "clean_seconds": stats.clean_seconds,
            "phase_seconds": dict(stats.phases),
        }


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


def state_directory(environment: Mapping[str, str]) -> Path:
    """Where seglog keeps what it knows of its own doing: `$XDG_STATE_HOME/seglog`, or below `~/.local/state`."""
    home = environment.get("XDG_STATE_HOME") or str(Path(environment.get("HOME") or "/") / ".local" / "state")
    return Path(home) / "seglog"


class CleaningHistory:
    """The rounds of the partitions of `log_directory`, in the file `path`.

    One file a log directory, `cleaning/<digest of its path>.jsonl`, a JSON object a round, the newest last; only the
    newest `MOST_ROUNDS` are kept. Only the process that holds the directory's lock writes it. A line that cannot be
    read is passed over: history is a convenience, and never in the way of cleaning.
    """

    def __init__(self, fs: FileSystem, state: Path, log_directory: Path) -> None:
        self._fs, self.log_directory = fs, links.resolve(log_directory)
        digest = hashlib.sha256(str(self.log_directory).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self.path = state / "cleaning" / f"{digest}.jsonl"

    def rounds(self) -> list[Round]:
        """The rounds that are kept, oldest first."""
        if self._fs.status(self.path) is None:
            return []
        found = [_parsed(line) for line in self._fs.read_bytes(self.path).splitlines()]
        return [round_ for round_ in found if round_ is not None]

    def add(self, results: Iterable[CleaningResult], now_ms: int) -> None:
        """Keeps rounds that ended at `now_ms` (epoch milliseconds). OSError when the file cannot be written."""
        new = [_entry(result, now_ms, self.log_directory) for result in results]
        if not new:
            return
        kept = [*self.rounds(), *new][-MOST_ROUNDS:]
        self._fs.make_directory(self.path.parent, parents=True)
        lines = (json.dumps(round_, separators=(",", ":")) + "\n" for round_ in kept)
        write_atomically(self._fs, self.path, "".join(lines).encode())


def _entry(result: CleaningResult, now_ms: int, log_directory: Path) -> Round:
    facts = result.to_json()
    for name in ("segments_before", "segments_after"):
        facts[name] = {"count": len(facts[name]), "size": sum(segment["size"] for segment in facts[name])}
    return {"time": now_ms, "directory": str(log_directory), **facts}


def _parsed(line: bytes) -> Round | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("partition"), str):
        return None
    return found if all(_is_count(found.get(name)) for name in _FIGURES) else None


def _is_count(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < 2**63
