"""Why a partition is not cleaned, not deleted, or not readable past an offset: a verdict on every segment.

Nothing is decided here: the answers are those of `manager.log_to_clean`, `retention.plan_retention` and the log's own
offsets, put beside the segments. What would help is said as advice, command by command.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from seglog.cleaner.manager import LogToClean, log_to_clean
from seglog.cleaner.requested import policy_problem
from seglog.log.directory import LogDirectory
from seglog.log.log import Log
from seglog.log.retaining import UNKNOWN_POLICY
from seglog.log.retention import RetentionPlan, SegmentVerdict, plan_retention
from seglog.log.segment import LogSegment
from seglog.precedence import ResolvedConfig
from seglog.units import format_duration, format_time


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction without a marker: what its producer last did (epoch milliseconds, -1 unknown)."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_timestamp: int


@dataclass(frozen=True, slots=True)
class SegmentExplanation:
    """One segment: `cleaning` and `deletion` say what keeps it from either, or that nothing does."""

    base_offset: int
    next_offset: int
    size: int
    cleaning: str
    deletion: str
    deletable_ms: int | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a partition is as it is. `cleaning`, `deletion` and `reading` are the sentences on the whole of it."""

    partition: str
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    state: LogToClean
    cleaning: tuple[str, ...]
    deletion: tuple[str, ...]
    reading: tuple[str, ...]
    segments: tuple[SegmentExplanation, ...]
    transactions: tuple[OpenTransaction, ...]
    advice: tuple[str, ...]


def explain(directory: LogDirectory, log: Log, resolved: ResolvedConfig, now_ms: int) -> Explanation:
    """Explains `log`, which may be open for reading only, at `now_ms` (epoch milliseconds)."""
    key = log.topic_partition
    watermark = min(directory.high_watermarks.get(key, log.high_watermark), log.log_end_offset)
    state = log_to_clean(log, directory.cleaner_offsets.get(key), now_ms)
    plan = plan_retention(log, now_ms, watermark)
    open_ = tuple(_open_transactions(log))
    problem = policy_problem(resolved, key.topic)
    return Explanation(
        partition=str(key),
        log_start_offset=log.log_start_offset,
        high_watermark=watermark,
        last_stable_offset=min(log.last_stable_offset, watermark),
        log_end_offset=log.log_end_offset,
        state=state,
        cleaning=tuple(_cleaning(log, state, problem, open_, now_ms)),
        deletion=tuple(_deletion(plan, resolved)),
        reading=tuple(_reading(log, watermark, open_)),
        segments=tuple(_segments(log, state, plan, problem, resolved)),
        transactions=open_,
        advice=tuple(_advice(log, state, plan, resolved, open_)),
    )


def _open_transactions(log: Log) -> Iterator[OpenTransaction]:
    for first_offset, producer_id in sorted(log.producers.open_transactions.items()):
        producer = log.producers.producers.get(producer_id)
        epoch, last = (-1, -1) if producer is None else (producer.epoch, producer.last_timestamp)
        yield OpenTransaction(producer_id, epoch, first_offset, last)


# --- sentences on the whole


def _cleaning(
    log: Log, state: LogToClean, problem: str, transactions: tuple[OpenTransaction, ...], now_ms: int
) -> Iterator[str]:
    if problem:
        yield f"it is not cleaned: {problem}"
        return
    yield f"a broker's cleaner {'takes' if state.eligible else 'does not take'} it now: {state.why}"
    if state.checkpoint_reset:
        yield f"its cleaner checkpoint lies outside the log: cleaning begins at the log start {log.log_start_offset}"
    if state.first_uncleanable_offset < log.log_end_offset:
        yield f"nothing is cleaned from offset {state.first_uncleanable_offset} on: {state.limit_reason}"
    if transactions and transactions[0].first_offset <= state.first_uncleanable_offset + log.segments.active.size:
        yield _hanging(transactions[0], now_ms)
    lag = log.config.min_compaction_lag_ms
    young = _young_until(log, state, lag)
    if young is not None and young > now_ms:
        yield f"min.compaction.lag.ms ({format_duration(lag)}) lets go of the next segment at {format_time(young)}"


def _young_until(log: Log, state: LogToClean, lag_ms: int) -> int | None:
    """When the segment at the end of the cleanable range is old enough; None without a lag."""
    segment = log.segments.get(state.first_uncleanable_offset)
    if lag_ms <= 0 or segment is None or segment is log.segments.active:
        return None
    return segment.largest_timestamp() + lag_ms


def _hanging(transaction: OpenTransaction, now_ms: int) -> str:
    age = (
        "" if transaction.last_timestamp < 0 else f", silent for {format_duration(now_ms - transaction.last_timestamp)}"
    )
    return (
        f"producer {transaction.producer_id} (epoch {transaction.producer_epoch}) has an open transaction"
        f" since offset {transaction.first_offset}{age}"
    )


def _deletion(plan: RetentionPlan, resolved: ResolvedConfig) -> Iterator[str]:
    if not resolved.policy_known:
        yield UNKNOWN_POLICY
    if plan.removed:
        yield f"{len(plan.removed)} of {len(plan.segments)} segments would be deleted now"
        return
    yield f"nothing would be deleted now: segment {plan.segments[0].base_offset}: {plan.segments[0].reason}"
    if resolved.log.delete and resolved.settings["retention.ms"].origin == "default":
        yield f"retention.ms is Kafka's default, {format_duration(resolved.log.retention_ms)}: nobody stated it"


def _reading(log: Log, watermark: int, transactions: tuple[OpenTransaction, ...]) -> Iterator[str]:
    yield f"offsets {log.log_start_offset} to {log.log_end_offset - 1} are in the log"
    if watermark < log.log_end_offset:
        yield f"consumers read up to offset {watermark - 1}: the high watermark a broker left is {watermark}"
    if transactions and transactions[0].first_offset < watermark:
        first = transactions[0].first_offset
        yield f"read_committed consumers stop before offset {first}: a transaction of producer" \
              f" {transactions[0].producer_id} is open"  # fmt: skip
    active = log.segments.active
    if active.trailing_bytes:
        yield f"{active.trailing_bytes} bytes behind the last whole batch of {active.path.name} cannot be read"
    report = log.recovery
    if report is not None and report.truncated_bytes:
        yield f"damage: opening the log for writing would cut off {report.truncated_bytes} bytes"


# --- segments


def _segments(
    log: Log, state: LogToClean, plan: RetentionPlan, problem: str, resolved: ResolvedConfig
) -> Iterator[SegmentExplanation]:
    for segment, verdict in zip(log.segments.snapshot(), plan.segments, strict=True):
        deletion = f"goes: {verdict.reason}" if verdict.removed else verdict.reason
        if not resolved.policy_known and not verdict.removed:
            deletion = "cleanup.policy is not known"
        yield SegmentExplanation(
            segment.base_offset,
            verdict.next_offset,
            segment.size,
            "not compacted" if problem else _cleaning_of(log, segment, verdict, state),
            deletion,
            verdict.deletable_ms,
        )


def _cleaning_of(log: Log, segment: LogSegment, verdict: SegmentVerdict, state: LogToClean) -> str:
    if segment is log.segments.active:
        return "active: never cleaned until it is rolled"
    if segment.base_offset >= state.first_uncleanable_offset:
        return f"not yet: {state.limit_reason}"
    if verdict.next_offset <= state.first_dirty_offset:
        return "clean"
    return "dirty" if segment.base_offset >= state.first_dirty_offset else f"clean up to {state.first_dirty_offset}"


# --- advice


def _advice(
    log: Log,
    state: LogToClean,
    plan: RetentionPlan,
    resolved: ResolvedConfig,
    transactions: tuple[OpenTransaction, ...],
) -> Iterator[str]:
    path = log.directory
    if resolved.policy_known and resolved.log.compact:
        yield from _cleaning_advice(log, state, held=bool(transactions))
    elif not resolved.policy_known:
        yield f"state the policy: --policy, cleanup.policy in seglog.yaml, or look at `seglog config show {path}`"
    if transactions:
        yield f"look at the open transaction: seglog txn {path}"
    blocked = next((segment for segment in plan.segments if segment.in_future and not segment.removed), None)
    if blocked is not None:
        until = "" if blocked.deletable_ms is None else f" before {format_time(blocked.deletable_ms)}"
        what = f"a timestamp in the future keeps segment {blocked.base_offset}"
        yield f"{what}; to delete it{until}: seglog retain --free SIZE {path}"
    if log.recovery is not None and log.recovery.truncated_bytes:
        yield f"look at the damage: seglog verify {path}"


def _cleaning_advice(log: Log, state: LogToClean, held: bool) -> Iterator[str]:
    path, active = log.directory, log.segments.active
    if state.cleanable_bytes and not state.eligible:
        yield f"clean it now, whatever its ratio: seglog clean {path}"
    if active.size and not held:
        yield f"clean the active segment ({active.size} bytes) too: seglog clean --roll {path}"
    if not state.cleanable_bytes and not active.size:
        yield f"tombstones and markers that outlived delete.retention.ms go with: seglog clean --expire {path}"
