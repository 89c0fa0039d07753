"""The figures of a report, as plain values. Sizes are bytes of `.log` files, times epoch milliseconds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seglog.log.outline import SeenOpen
    from seglog.look.report.growth import Growth


class CompactionState(Enum):
    """What a broker's cleaner would make of a compacted log now.

    `clean`: nothing outside the active segment is dirty. `waiting`: something is, but too little. `young`: all that is
    dirty is younger than min.compaction.lag.ms. `cleanable`: a broker takes it. `blocked`: a transaction that was seen
    open keeps closed segments from being cleaned, whether others are cleanable or not.
    """

    CLEAN = "clean"
    WAITING = "waiting"
    YOUNG = "young"
    CLEANABLE = "cleanable"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True)
class PastRound:
    """A cleaning round that seglog has recorded: when it ended, the buffer used (0 to 1), and bytes in and out."""

    time: int
    buffer_utilization: float
    bytes_read: int
    bytes_written: int


@dataclass(frozen=True, slots=True)
class Compaction:
    """The compaction of a log. `dirty_ratio` is 0 to 1. `blocked_bytes` are closed, and may not be cleaned yet.

    `overdue_ms` is the excess over max.compaction.lag.ms.
    """

    state: CompactionState
    why: str
    dirty_ratio: float
    clean_bytes: int
    cleanable_bytes: int
    blocked_bytes: int
    first_dirty_offset: int
    first_uncleanable_offset: int
    overdue_ms: int
    rounds: tuple[PastRound, ...] = ()


@dataclass(frozen=True, slots=True)
class Retention:
    """The deletion of old segments. `due` is deletable now; `next_ms` is when the time rule deletes next (None: never).

    `schedule` has (time, bytes) of all segments that time will delete. `held_by` is a code for what keeps the oldest
    segment that stays, `why` the sentence. `deleted_state` says what another program keeps there and is deleted, "" if
    nothing is known.
    """

    due_segments: int
    due_bytes: int
    next_ms: int | None
    next_bytes: int
    schedule: tuple[tuple[int, int], ...]
    held_by: str
    why: str
    deleted_state: str = ""


@dataclass(frozen=True, slots=True)
class SegmentFigures:
    """One segment. `state` is "active", "due", "clean", "dirty", "young", "blocked", or "" where none applies."""

    base_offset: int
    size: int
    newest_ms: int | None
    state: str


@dataclass(frozen=True, slots=True)
class PartitionFigures:
    """One partition directory. The log ends at `end_offset` or later: the records after its indexes were not read.

    `broker` labels the broker, `directory` is the log directory. `problem` says why it could not be read.
    """

    partition: str
    topic: str
    broker: str
    directory: str
    state: str
    format: str
    bytes: int = 0
    start_offset: int | None = None
    end_offset: int | None = None
    newest_ms: int | None = None
    segments: tuple[SegmentFigures, ...] = ()
    growth: Growth | None = None
    compaction: Compaction | None = None
    compaction_problem: str = ""
    retention: Retention | None = None
    transactions: tuple[SeenOpen, ...] = ()
    leftovers: tuple[str, ...] = ()
    strangers: tuple[str, ...] = ()
    problem: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The JSON line's fields, `type` first."""
        fields = asdict(self)
        if self.compaction is not None:
            fields["compaction"]["state"] = self.compaction.state.value
        return {"type": "partition", **fields}


@dataclass(frozen=True, slots=True)
class DirectoryFigures:
    """One log directory, with what its broker has written about itself. `free_bytes` is None where nobody knows."""

    path: str
    broker: str
    node_id: int | None
    cluster_id: str | None
    running: bool
    clean_shutdown: bool
    free_bytes: int | None
    partitions: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Concern:
    """Something that needs a hand or is worth knowing. `severity` is that of `doctor`: blocker, danger or note.

    `broker` says what a broker does. `command` mends it, "" if nothing is to do. `count` counts equal things.
    """

    severity: str
    code: str
    directory: str
    partition: str
    message: str
    broker: str = ""
    command: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class Side:
    """A partition on one broker. `behind` is the distance to the furthest one, in offsets, as far as it is known."""

    broker: str
    end_offset: int
    bytes: int
    behind: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """A partition that several brokers have. `leader` is the metadata's (a node id), None if that is not known."""

    partition: str
    leader: int | None
    sides: tuple[Side, ...]

    @property
    def most_behind(self) -> int:
        """The offsets that the last one is behind."""
        return max(side.behind for side in self.sides)


def compared(partitions: Sequence[PartitionFigures], leaders: Mapping[str, int]) -> list[Comparison]:
    """Returns the partitions that several brokers have, the one with the largest distance first.

    `leaders` are the metadata's, by the partition's name. Ends are those that indexes and checkpoints show, so a
    distance of one index interval (some KiB of records) says nothing.
    """
    by_name = defaultdict[str, dict[str, PartitionFigures]](dict)
    for one in partitions:
        if one.state == "live" and one.end_offset is not None:
            by_name[one.partition].setdefault(one.broker, one)
    found = []
    for name, copies in by_name.items():
        if len(copies) < 2:
            continue
        furthest = max(one.end_offset or 0 for one in copies.values())
        sides = [
            Side(broker, one.end_offset or 0, one.bytes, furthest - (one.end_offset or 0))
            for broker, one in sorted(copies.items())
        ]
        found.append(Comparison(name, leaders.get(name), tuple(sides)))
    return sorted(found, key=lambda one: (-one.most_behind, one.partition))


@dataclass(frozen=True, slots=True)
class SettingFigures:
    """A value that differs from Kafka's default. `topic` is None for a broker's value."""

    topic: str | None
    directory: str
    key: str
    value: str
    origin: str


@dataclass(frozen=True)
class Report:
    """All figures. `verified` is False if no log file was read."""

    made_ms: int
    paths: tuple[str, ...]
    verified: bool
    directories: tuple[DirectoryFigures, ...]
    partitions: tuple[PartitionFigures, ...]
    concerns: tuple[Concern, ...]
    comparisons: tuple[Comparison, ...]
    settings: tuple[SettingFigures, ...]
    growth: Growth | None
    growth_before: int = 0
    day_bytes: Mapping[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        grave = sum(one.severity != "note" for one in self.concerns)
        return f"<Report: {len(self.partitions)} partitions, {self.bytes} bytes; {grave} need a hand>"

    @property
    def bytes(self) -> int:
        """The bytes of all logs, those of deleted, stray and future partitions included."""
        return sum(one.bytes for one in self.partitions)

    @property
    def segments(self) -> int:
        return sum(len(one.segments) for one in self.partitions)

    @property
    def live(self) -> list[PartitionFigures]:
        """The partitions that a broker serves."""
        return [one for one in self.partitions if one.state == "live"]

    @property
    def topics(self) -> dict[str, tuple[int, int]]:
        """Each topic's (bytes, partitions), the largest first; only partitions that a broker serves."""
        sizes, counts = Counter[str](), Counter[str]()
        for one in self.live:
            sizes[one.topic] += one.bytes
            counts[one.topic] += 1
        return {topic: (sizes[topic], counts[topic]) for topic in sorted(counts, key=lambda name: (-sizes[name], name))}

    @property
    def due_bytes(self) -> int:
        """What retention would delete now."""
        return sum(one.retention.due_bytes for one in self.live if one.retention is not None)

    def compaction_states(self) -> Counter[str]:
        """Counts the compacted partitions by state."""
        return Counter(one.compaction.state.value for one in self.live if one.compaction is not None)

    def records(self) -> Iterator[dict[str, Any]]:
        """Yields the JSON lines: what needs a hand first, the summary last."""
        yield from _records("concern", self.concerns)
        yield from _records("directory", self.directories)
        for topic, (size, partitions) in self.topics.items():
            yield {"type": "topic", "topic": topic, "bytes": size, "partitions": partitions}
        yield from (one.as_dict() for one in self.partitions)
        yield from _records("comparison", self.comparisons)
        yield from _records("setting", self.settings)
        if self.growth is not None:
            yield {"type": "growth", "before": self.growth_before, **asdict(self.growth)}
        yield self.summary()

    def summary(self) -> dict[str, Any]:
        return {
            "type": "summary",
            "made": self.made_ms,
            "verified": self.verified,
            "directories": len(self.directories),
            "partitions": len(self.partitions),
            "segments": self.segments,
            "bytes": self.bytes,
            "due_bytes": self.due_bytes,
            "day_bytes": dict(self.day_bytes),
            "compaction": dict(self.compaction_states()),
            "concerns": dict(Counter(one.severity for one in self.concerns)),
        }


def _records(kind: str, rows: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield {"type": kind, **asdict(row)}
