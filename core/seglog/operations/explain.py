"""Explains why a partition is not cleaned, not deleted, or not readable past an offset, with a verdict on each segment
(`seglog explain`).

This module decides nothing: the answers come from `dirtiness.log_to_clean`, `retention.plan_retention`, the log's own
offsets, and a dry run of the round, which alone shows whether damage would end it. The advice lists the commands that
would help; it includes a command that cleans or deletes only if its dry run changes something.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seglog.arguments import flag
from seglog.cleaner.dirtiness import LogToClean, unknown_policy
from seglog.configuration.keys import DELETE, LogConfig
from seglog.configuration.precedence import DEFAULT, KAFKAS_OWN_TOPICS
from seglog.configuration.writers import release_for
from seglog.log.log import Log
from seglog.log.opening import open_directory_of
from seglog.log.retention import RetentionPlan, SegmentVerdict, plan_freeing
from seglog.log.segment import LogSegment
from seglog.log.stateful_topics import state_lost
from seglog.operations.clean import Cleaned, Outcome
from seglog.operations.explain_facts import CleanTrial, Facts, OpenTransaction
from seglog.operations.reasons import Reason, releases
from seglog.operations.retain import UNKNOWN_POLICY, retention_config
from seglog.operations.retain_ahead import opened_as_retain
from seglog.operations.workspace import (
    Location,
    Sources,
    Workspace,
    optional_path,
    optional_release,
    settings_of,
)
from seglog.storage.lock import partition_path
from seglog.units import count_text, format_duration, format_time, rough_duration


@dataclass(frozen=True, slots=True)
class SegmentExplanation:
    """One segment. `cleaning` and `deletion` say what prevents either, or that nothing does."""

    base_offset: int
    next_offset: int
    size: int
    cleaning: Reason
    deletion: Reason
    deletable_ms: int | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a partition. `cleaning`, `deletion` and `reading` are sentences on the whole partition.

    `kafka` are sentences on the release whose broker is spoken of, and on the one that wrote the log directory;
    `is_unusual` is true if that is another one than commands speak for by default, or was chosen.
    `eligible` is true if a broker's cleaner would take it now and succeed.
    """

    partition: str
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    state: LogToClean
    eligible: bool
    cleaning: tuple[Reason, ...]
    deletion: tuple[Reason, ...]
    reading: tuple[Reason, ...]
    segments: tuple[SegmentExplanation, ...]
    transactions: tuple[OpenTransaction, ...]
    advice: tuple[str, ...]
    kafka: tuple[Reason, ...] = ()
    is_unusual: bool = False

    def __repr__(self) -> str:
        taken = "would be cleaned" if self.eligible else "would not be cleaned"
        offsets = f"offsets {self.log_start_offset} to {self.log_end_offset}"
        return f"<Explanation {self.partition}: {offsets}, {count_text(len(self.segments), 'segment')}; {taken}>"


@dataclass(frozen=True, slots=True)
class ExplainRequest:
    """Which partition to explain and how, as the user said it.

    `quick` reads only indexes and headers: no dry run of the round, and no advice to clean. `kafka_version` is the
    release that is spoken of (None: see `release_for`).
    """

    partition: Path
    quick: bool = False
    metadata_directory: Location | None = None
    kafka_version: str | None = None


def explain(work: Workspace, request: ExplainRequest) -> Explanation:
    """Explains a partition, which is opened only for reading, at the workspace's time.

    Advised commands carry the configuration that the user gave. Raises NotALogError, OSError, and ConfigError for a bad
    value or configuration.
    """
    quick, kafka = flag("quick", request.quick), optional_release("kafka_version", request.kafka_version)
    sources = Sources(metadata_directory=optional_path("metadata_directory", request.metadata_directory))
    settings = settings_of(work, partition_path(request.partition).parent, sources)
    release = release_for(settings.writer, kafka)
    trial = CleanTrial(work, request.partition, sources, release)

    def config_of(topic: str) -> LogConfig:
        return retention_config(settings.resolve(topic))

    partition = partition_path(request.partition)
    owner = open_directory_of(partition, fs=work.fs, clock=work.clock, config_of=config_of, writable=False)
    with owner, opened_as_retain(owner, partition) as (log, retained):
        resolved = settings.resolve(log.topic_partition.topic)
        facts = Facts.of(owner, log, retained, resolved, trial, quick)
        return Explanation(
            partition=str(log.topic_partition),
            log_start_offset=log.log_start_offset,
            high_watermark=facts.watermark,
            last_stable_offset=min(log.last_stable_offset, facts.watermark),
            log_end_offset=log.log_end_offset,
            state=facts.state,
            eligible=facts.eligible,
            cleaning=tuple(_cleaning(facts)),
            deletion=tuple(_deletion(facts)),
            reading=tuple(_reading(facts)),
            segments=tuple(_segments(facts)),
            transactions=facts.transactions,
            advice=tuple(_advice(facts)),
            kafka=tuple(releases(release, settings.writer)),
            is_unusual=kafka is not None or (settings.writer is not None and settings.writer.is_unusual),
        )


# --- sentences on the whole


def _cleaning(facts: Facts) -> Iterator[Reason]:
    log, state, now_ms = facts.log, facts.state, facts.now_ms
    if facts.problem:
        why = facts.problem if facts.resolved.policy_known else unknown_policy(log.topic_partition.topic)
        yield Reason("NOT_COMPACTED", f"it is not cleaned: {why}")
        return
    if not facts.resolved.cleaner.enable:
        origin = facts.resolved.settings["log.cleaner.enable"].origin
        yield Reason("CLEANER_DISABLED", f"a broker cleans nothing: log.cleaner.enable is false ({origin})")
    elif facts.broker_fate is not None:
        yield facts.broker_fate
        if not facts.failure:
            yield Reason("SEGLOG_CLEANS", "seglog's cleaner does the round all the same: the data is whole")
    else:
        code = "ELIGIBLE" if state.eligible else "NOT_ELIGIBLE"
        takes = "takes" if state.eligible else "does not take"
        yield Reason(code, f"a broker's cleaner {takes} it now: {state.why}")
    if facts.keyless:
        why = "every cleaner does: the policy became compact after they were written"
        yield Reason("KEYLESS_DROPPED", f"a round drops {count_text(facts.keyless, 'record')} without a key, as {why}")
    if state.checkpoint_reset:
        where = f"cleaning begins at the log start {log.log_start_offset}"
        yield Reason("CHECKPOINT_OUTSIDE_LOG", f"its cleaner checkpoint is outside the log: {where}")
    if state.first_uncleanable_offset < log.log_end_offset:
        first = state.first_uncleanable_offset
        yield Reason("UNCLEANABLE", f"nothing is cleaned from offset {first} on: {state.limit_reason}")
    if facts.transactions:
        yield Reason("OPEN_TRANSACTION", _hanging(facts.transactions[0], now_ms))
    lag = log.config.min_compaction_lag_ms
    young = _young_until(log, state, lag)
    if young is not None and young > now_ms:
        until = f"ends for the next segment at {format_time(young)}"
        yield Reason("COMPACTION_LAG", f"min.compaction.lag.ms ({format_duration(lag)}) {until}")


def _young_until(log: Log, state: LogToClean, lag_ms: int) -> int | None:
    """Returns when the first uncleanable segment will be old enough; None if no lag applies to it."""
    segment = log.segments.get(state.first_uncleanable_offset)
    if lag_ms <= 0 or segment is None or segment is log.segments.active:
        return None
    return segment.largest_timestamp() + lag_ms


def _hanging(transaction: OpenTransaction, now_ms: int) -> str:
    silent = now_ms - transaction.last_timestamp
    age = "" if transaction.last_timestamp < 0 or silent < 0 else f", silent for {rough_duration(silent)}"
    return (
        f"producer {transaction.producer_id} (epoch {transaction.producer_epoch}) has an open transaction"
        f" since offset {transaction.first_offset}{age}"
    )


def _deletion(facts: Facts) -> Iterator[Reason]:
    plan, resolved = facts.plan, facts.resolved
    if not resolved.policy_known:
        yield Reason("POLICY_UNKNOWN", UNKNOWN_POLICY)
    refusal = resolved.refusal(DELETE)
    if refusal:
        yield Reason("RETENTION_REFUSED", f"seglog retain refuses it: {refusal}")
    if plan.removed:
        count = f"{len(plan.removed)} of {count_text(len(plan.segments), 'segment')}"
        parts = (f"{count} would be deleted now", state_lost(plan, resolved.log.cleanup_policy))
        yield Reason("DELETABLE", ": ".join(filter(None, parts)))
        return
    blocked = _in_future(plan) if resolved.log.remote_storage_enable else None
    if blocked is not None:
        offset, base = blocked.blocking_offset, blocked.base_offset
        later = rough_duration(blocked.largest_timestamp - facts.now_ms)
        where = f"segment {base}" if offset is None else f"the batch that ends at offset {offset}"
        what = f"holds back local retention (local.retention.ms) from segment {base} on"
        yield Reason("LOCAL_RETENTION_HELD", f"a timestamp {later} in the future, in {where}, {what}")
    if resolved.policy_known:
        first = plan.segments[0]
        why = f"segment {first.base_offset} stays: {first.reason}"
        yield Reason("NOT_DELETABLE", f"nothing would be deleted now; {why}")
    if resolved.policy_known and resolved.log.delete and resolved.settings["retention.ms"].origin == DEFAULT:
        default = format_duration(resolved.log.retention_ms)
        rule = f"a broker applies its default, {default}, and seglog applies none"
        yield Reason("RETENTION_NOT_SET", f"retention.ms is not set: {rule}")


def _reading(facts: Facts) -> Iterator[Reason]:
    log, watermark = facts.log, facts.watermark
    if log.log_start_offset == log.log_end_offset:
        yield Reason("EMPTY", f"the log is empty; the next record gets offset {log.log_end_offset}")
    else:
        yield Reason("OFFSETS", f"offsets {log.log_start_offset} to {log.log_end_offset - 1} are in the log")
    if watermark < log.log_end_offset:
        left = f"the broker's last high watermark is {watermark}"
        yield Reason("HIGH_WATERMARK", f"consumers read up to offset {watermark - 1}: {left}")
    if facts.transactions and facts.transactions[0].first_offset < watermark:
        first = facts.transactions[0]
        stop = f"read_committed consumers stop before offset {first.first_offset}"
        yield Reason("OPEN_TRANSACTION", f"{stop}: a transaction of producer {first.producer_id} is open")
    active = log.segments.active
    if active.trailing_bytes:
        after = f"after the last whole batch of {active.path.name}"
        yield Reason("TORN_TAIL", f"{count_text(active.trailing_bytes, 'byte')} {after} cannot be read")
    if log.recovery is not None and log.recovery.truncated_bytes:
        cut = f"opening the log for writing would cut off {count_text(log.recovery.truncated_bytes, 'byte')}"
        yield Reason("DAMAGE", f"damage: {cut}")


# --- segments


def _segments(facts: Facts) -> Iterator[SegmentExplanation]:
    for segment, verdict in zip(facts.log.segments.snapshot(), facts.plan.segments, strict=True):
        deletion = Reason("KEPT", verdict.reason)
        if verdict.rule is not None:
            deletion = Reason(verdict.rule.name, f"deletable: {verdict.reason}")
        elif not facts.resolved.policy_known:
            deletion = Reason("POLICY_UNKNOWN", "cleanup.policy is not known")
        cleaning = Reason("NOT_COMPACTED", "not compacted")
        if not facts.problem:
            cleaning = _cleaning_of(facts.log, segment, verdict, facts.state)
        yield SegmentExplanation(
            segment.base_offset, verdict.next_offset, segment.size, cleaning, deletion, verdict.deletable_ms
        )


def _cleaning_of(log: Log, segment: LogSegment, verdict: SegmentVerdict, state: LogToClean) -> Reason:
    if segment is log.segments.active:
        return Reason("ACTIVE", "active: not cleaned before it is rolled")
    if verdict.next_offset <= log.log_start_offset:
        return Reason("BELOW_LOG_START", f"not cleaned: it ends below the log start offset {log.log_start_offset}")
    if segment.base_offset >= state.first_uncleanable_offset:
        return Reason("UNCLEANABLE", f"not yet: {state.limit_reason}")
    if verdict.next_offset <= state.first_dirty_offset:
        return Reason("CLEAN", "clean")
    if segment.base_offset >= state.first_dirty_offset:
        return Reason("DIRTY", "dirty")
    return Reason("PARTLY_CLEAN", f"clean up to {state.first_dirty_offset}")


# --- advice


def _advice(facts: Facts) -> Iterator[str]:
    log, resolved = facts.log, facts.resolved
    if not resolved.policy_known:
        yield (
            "state the policy with --set cleanup.policy=compact or in seglog.yaml, or name the log directory that holds"
            f" the cluster's metadata with --metadata-dir; to see the known settings: {facts.command('config show')}"
        )
    elif facts.failure:
        trial_run = facts.command("repair", "--dry-run")
        yield f"look at the damage and the planned repair: {trial_run}"
    elif facts.tried is not None:
        yield from _cleaning_advice(facts, facts.tried)
    if facts.transactions:
        yield f"look at the open transaction: {facts.command('txn', after=['open'])}"
    if facts.plan.removed and resolved.policy_known and not resolved.refusal(DELETE):
        yield f"delete the deletable segments: {facts.command('retain')}"
    yield from _freeing_advice(facts)
    if log.recovery is not None and log.recovery.truncated_bytes:
        yield f"look at the damage: {facts.command('verify')}"


def _cleaning_advice(facts: Facts, tried: Outcome) -> Iterator[str]:
    """Yields each command whose dry run changes something that the previous one does not."""
    trial, done = facts.trial, _saved(tried)
    if done is not None:
        yield f"clean it now, whatever its ratio ({done}): {facts.command('clean')}"
    config = facts.log.config
    if config.min_compaction_lag_ms > 0 and "lag" in facts.state.limit_reason:
        wait = ("--set", "min.compaction.lag.ms=0")
        done = _saved(trial(chosen={"min.compaction.lag.ms": 0}))
        if done is not None:
            yield f"clean records younger than min.compaction.lag.ms too ({done}): {facts.command('clean', *wait)}"
    if facts.log.segments.active.size and not facts.transactions:
        yield from _rolling_advice(facts)
    expired = trial(expire=True)
    if not isinstance(expired, Cleaned) or not isinstance(tried, Cleaned):
        return
    if expired.result.bytes_written < tried.result.bytes_written:
        expire = f"({_saved(expired)}): {facts.command('clean', '--expire')}"
        yield f"remove tombstones and markers past delete.retention.ms too {expire}"


def _rolling_advice(facts: Facts) -> Iterator[str]:
    """Yields the command that cleans the active segment too, whose records may also be too young."""
    done = _saved(facts.trial(roll=True))
    if done is not None:
        yield f"clean the active segment too ({done}): {facts.command('clean', '--roll')}"
    elif facts.log.config.min_compaction_lag_ms > 0:
        done = _saved(facts.trial(roll=True, chosen={"min.compaction.lag.ms": 0}))
        both = facts.command("clean", "--roll", "--set", "min.compaction.lag.ms=0")
        if done is not None:
            yield f"clean the active segment too, although it is younger than min.compaction.lag.ms ({done}): {both}"


def _saved(outcome: Outcome | None) -> str | None:
    """Returns the size of the rewritten bytes before and after a round; None if it changes nothing or fails."""
    if not isinstance(outcome, Cleaned) or not outcome.changes:
        return None
    before = sum(size for _, size in outcome.result.segments_before)
    return f"{before} to {count_text(outcome.result.bytes_written, 'byte')}"


def _in_future(plan: RetentionPlan) -> SegmentVerdict | None:
    """Returns the first segment that stays because of a timestamp in the future."""
    return next((segment for segment in plan.segments if segment.in_future and not segment.removed), None)


def _freeing_advice(facts: Facts) -> Iterator[str]:
    """Yields how to delete a segment that a timestamp in the future keeps."""
    blocked = _in_future(facts.plan)
    if blocked is None or facts.resolved.log.remote_storage_enable:
        return
    what = f"a timestamp in the future keeps segment {blocked.base_offset}"
    when = "" if blocked.deletable_ms is None else format_time(blocked.deletable_ms)
    key = facts.log.topic_partition
    (freeing,) = plan_freeing([facts.log], 1 << 62, facts.now_ms, {key: facts.watermark})
    goes = any(segment.base_offset == blocked.base_offset for segment in freeing.removed)
    if goes and key.topic not in KAFKAS_OWN_TOPICS:
        before = sum(each.disk_bytes for each in freeing.removed if each.base_offset < blocked.base_offset)
        size = before + 1
        yield f"{what}; to delete it before {when}: {facts.command('retain', '--free', f'+{size}')}"
    else:
        yield f"{what} until {when}"
