"""The figures of one partition, from its outline: compaction, retention, growth, leftovers.

What a broker would clean and delete is decided where `clean`, `retain` and `explain` decide it, too
(`cleaner.dirtiness`, `log.retention`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seglog.cleaner.dirtiness import LogToClean, log_to_clean, round_down
from seglog.configuration.keys import LogConfig
from seglog.format.filenames import CLEANER_OFFSET_CHECKPOINT
from seglog.log.outline import OutlinedLog, outline
from seglog.log.retention import RetentionPlan, SegmentVerdict, plan_retention
from seglog.look.report.figures import (
    Compaction,
    CompactionState,
    PartitionFigures,
    PastRound,
    Retention,
    SegmentFigures,
)
from seglog.look.report.growth import growth_of
from seglog.model import TopicPartition
from seglog.scan.listing import PartitionDirectory, list_partition
from seglog.storage.filesystem import FileSystem

_MOST_DUE_TIMES = 48  # of a schedule; what is due later is added to the last one


@dataclass(frozen=True)
class TopicRules:
    """The configuration of a topic, without default retention values.

    `compaction_problem` says why the topic is not compacted ("" if it is), `policy_known` whether its policy is known.
    `deleted_state` says what another program keeps there and the policy deletes.
    """

    config: LogConfig
    compaction_problem: str
    policy_known: bool
    deleted_state: str = ""


@dataclass(frozen=True)
class Surrounding:
    """What a log directory says of its partitions. `rounds` are recorded cleaning rounds by partition."""

    path: str
    broker: str
    rules_of: Callable[[str], TopicRules]
    checkpoints: Mapping[str, Mapping[TopicPartition, int]]
    now_ms: int
    rounds: Mapping[str, Sequence[PastRound]] = field(default_factory=dict)


def partition_figures(fs: FileSystem, found: PartitionDirectory, around: Surrounding) -> PartitionFigures:
    """Returns the figures of a partition. Opens no log file. Raises OSError, NotALogError."""
    listing = list_partition(fs, found.path)
    key = found.topic_partition
    common: dict[str, Any] = {
        "partition": found.path.name,
        "topic": key.topic,
        "broker": around.broker,
        "directory": around.path,
        "state": found.state.value.removeprefix("-") or "live",
        "format": listing.format,
        "bytes": listing.size,
        "leftovers": tuple(path.name for path in listing.leftovers),
        "strangers": tuple(path.name for path in listing.strangers),
    }
    if not found.state.is_served or listing.format != "kafka":
        plain = tuple(SegmentFigures(one.base_offset, one.size, None, "") for one in listing.segments)
        return PartitionFigures(**common, segments=plain)
    rules = around.rules_of(key.topic)
    checkpoints = {name: offsets[key] for name, offsets in around.checkpoints.items() if key in offsets}
    log = outline(fs, listing, key, rules.config, checkpoints)
    if log is None:
        return PartitionFigures(**common)
    plan = plan_retention(log, around.now_ms, log.high_watermark)
    dirty = None
    if not rules.compaction_problem:
        dirty = log_to_clean(log, checkpoints.get(CLEANER_OFFSET_CHECKPOINT), around.now_ms)
    timed = [segment.max_timestamp for segment in log.segments if segment.max_timestamp >= 0]
    return PartitionFigures(
        **common,
        start_offset=log.log_start_offset,
        end_offset=log.log_end_offset,
        newest_ms=max(timed, default=None),
        segments=_segments(log, plan, dirty),
        growth=growth_of(log, around.now_ms),
        compaction=None if dirty is None else compaction_of(log, dirty, tuple(around.rounds.get(found.path.name, ()))),
        compaction_problem=rules.compaction_problem,
        retention=retention_of(plan, rules),
        transactions=log.transactions,
    )


def compaction_of(log: OutlinedLog, dirty: LogToClean, rounds: tuple[PastRound, ...] = ()) -> Compaction:
    """Returns the compaction of a log from what its cleaner would be told."""
    handled = dirty.clean_bytes + dirty.cleanable_bytes
    blocked = max(0, dirty.closed_bytes - handled)
    if blocked and is_held_by_transaction(log, dirty):
        state = CompactionState.BLOCKED
    elif dirty.eligible:
        state = CompactionState.CLEANABLE
    elif dirty.cleanable_bytes:
        state = CompactionState.WAITING
    else:
        state = CompactionState.YOUNG if blocked else CompactionState.CLEAN
    why = dirty.why
    if blocked and dirty.cleanable_bytes:
        why += f"; from offset {dirty.first_uncleanable_offset} on: {dirty.limit_reason}"
    return Compaction(
        state=state,
        why=why,
        dirty_ratio=dirty.cleanable_ratio,
        clean_bytes=dirty.clean_bytes,
        cleanable_bytes=dirty.cleanable_bytes,
        blocked_bytes=blocked,
        first_dirty_offset=dirty.first_dirty_offset,
        first_uncleanable_offset=dirty.first_uncleanable_offset,
        overdue_ms=dirty.delay_ms if dirty.cleanable_bytes else 0,
        rounds=rounds,
    )


def is_held_by_transaction(log: OutlinedLog, dirty: LogToClean) -> bool:
    """True if the range to clean ends at a transaction that was seen open, not at the active segment or at an age."""
    first = log.last_stable_offset
    return first < dirty.active_base_offset and round_down(log.segments, first) == dirty.first_uncleanable_offset


def retention_of(plan: RetentionPlan, rules: TopicRules) -> Retention:
    """Returns what a plan deletes now and when, and what holds the rest."""
    kept = [segment for segment in plan.segments if not segment.removed]
    due_at = Counter[int]()
    for segment in kept:
        if segment.deletable_ms is not None:
            due_at[max(segment.deletable_ms, plan.now_ms)] += segment.size
    schedule = sorted(due_at.items())
    if len(schedule) > _MOST_DUE_TIMES:
        rest = schedule[_MOST_DUE_TIMES - 1 :]
        schedule = [*schedule[: _MOST_DUE_TIMES - 1], (rest[-1][0], sum(size for _, size in rest))]
    first = kept[0] if kept else None
    return Retention(
        due_segments=len(plan.removed),
        due_bytes=plan.removed_bytes,
        next_ms=schedule[0][0] if schedule else None,
        next_bytes=schedule[0][1] if schedule else 0,
        schedule=tuple(schedule),
        held_by="" if first is None else _held_by(first, plan, rules),
        why="" if first is None else first.reason,
        deleted_state=rules.deleted_state,
    )


def _held_by(first: SegmentVerdict, plan: RetentionPlan, rules: TopicRules) -> str:
    """Returns the code for what keeps the oldest segment that stays."""
    config = rules.config
    if not rules.policy_known:
        return "POLICY_UNKNOWN"
    if plan.high_watermark < first.next_offset:
        return "NOT_REPLICATED"
    if config.remote_storage_enable:
        return "TIERED"
    if not config.delete:
        return "COMPACTED"
    if first.in_future:
        return "FUTURE_TIMESTAMP"
    if first.deletable_ms is not None:
        return "TIME"
    return "SIZE" if config.retention_bytes >= 0 else "NO_RULE"


def _segments(log: OutlinedLog, plan: RetentionPlan, dirty: LogToClean | None) -> tuple[SegmentFigures, ...]:
    found = []
    later = "blocked" if dirty is not None and is_held_by_transaction(log, dirty) else "young"
    for segment, verdict in zip(log.segments.snapshot(), plan.segments, strict=True):
        newest = segment.max_timestamp if segment.max_timestamp >= 0 else None
        found.append(SegmentFigures(segment.base_offset, segment.size, newest, _state_of(verdict, dirty, later)))
    return tuple(found)


def _state_of(verdict: SegmentVerdict, dirty: LogToClean | None, later: str) -> str:
    """`later` is the state of closed segments after the range to clean."""
    if verdict.removed:
        return "due"
    if verdict.active:
        return "active"
    if dirty is None:
        return ""
    if verdict.next_offset <= dirty.first_dirty_offset:
        return "clean"
    return later if verdict.base_offset >= dirty.first_uncleanable_offset else "dirty"
