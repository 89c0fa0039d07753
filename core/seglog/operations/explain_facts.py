"""What is known of a partition that `explain` speaks of: its log, what retention and a cleaning round would do to it,
and what a broker's cleaner meets in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from seglog.cleaner.dirtiness import LogToClean, log_to_clean, policy_problem
from seglog.cleaner.hazards import DROPS, FAILS, LAUNDERS, Hazard, HazardReason, cleaner_hazards, largest_decompressed
from seglog.cleaner.round import CleanerOptions
from seglog.configuration.precedence import ResolvedConfig
from seglog.errors import SeglogError
from seglog.escaping import command_line
from seglog.kafka_version import KafkaVersion
from seglog.log.directory import LogDirectory
from seglog.log.log import Log
from seglog.log.retention import RetentionPlan, plan_retention
from seglog.operations.clean import (
    Cleaned,
    CleaningFailure,
    Outcome,
    clean_directories,
    directories_of,
)
from seglog.operations.reasons import Reason
from seglog.operations.workspace import Sources, Workspace, by_log_directory
from seglog.remote_path import COPY_ON_A_DISK, RemotePath
from seglog.scan.listing import Target, TargetKind, list_partition


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction without a marker. `last_timestamp` is its producer's latest (epoch milliseconds, -1 unknown)."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_timestamp: int


_BY_METADATA = frozenset({"clean", "config show", "retain"})  # the commands that use a topic's configuration
_UNCONFIGURED = frozenset({"txn"})
_ON_URLS = frozenset({"config show", "txn", "verify"})


@dataclass(frozen=True, slots=True)
class CleanTrial:
    """A dry run of `seglog clean` on a partition."""

    work: Workspace
    partition: Path
    sources: Sources
    kafka: KafkaVersion

    def __call__(
        self, *, roll: bool = False, expire: bool = False, chosen: Mapping[str, object] | None = None
    ) -> Outcome:
        """Tries a round with these options and the `chosen` configuration values."""
        fs, sources = self.work.fs, replace(self.sources, chosen={**self.sources.chosen, **(chosen or {})})
        options = CleanerOptions(roll=roll, expire=expire, kafka=self.kafka)
        try:
            places = by_log_directory([Target(self.partition, TargetKind.PARTITION)])
            parts = directories_of(fs, places, partial(self.work.settings, sources=sources), options)
            (outcome,) = clean_directories(fs, self.work.clock, parts, dry_run=True)
        except SeglogError as error:  # before the round, for example an unreadable checkpoint
            return CleaningFailure(self.partition, error)
        return outcome


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts on the partition. `tried` is the round as asked for, None if cleaning is neither tried nor advised;
    `failure` is the error that ends it, `hazards` what a broker's cleaner meets.
    """

    log: Log
    resolved: ResolvedConfig
    now_ms: int
    watermark: int
    state: LogToClean
    plan: RetentionPlan
    problem: str
    transactions: tuple[OpenTransaction, ...]
    trial: CleanTrial
    tried: Outcome | None
    hazards: tuple[Hazard, ...]

    @classmethod
    def of(
        cls,
        directory: LogDirectory,
        log: Log,
        retained: Log,
        resolved: ResolvedConfig,
        trial: CleanTrial,
        quick: bool,
    ) -> Facts:
        """Gathers the facts on a log whose configuration is that of `operations.retain.retention_config`; `retained` is
        it as `retain` would open it.
        """
        key, now_ms = log.topic_partition, trial.work.clock.now_ms()
        watermark = min(directory.high_watermarks.get(key, log.high_watermark), log.log_end_offset)
        state = log_to_clean(log, directory.cleaner_offsets.get(key), now_ms)
        problem = policy_problem(resolved, key.topic)
        tried = None if quick or problem else trial()
        return cls(
            log=log,
            resolved=resolved,
            now_ms=now_ms,
            watermark=watermark,
            state=state,
            plan=plan_retention(retained, now_ms, min(watermark, retained.log_end_offset)),
            problem=problem,
            transactions=tuple(_open_transactions(log)),
            trial=trial,
            tried=tried,
            hazards=() if tried is None else tuple(_cleaner_hazards(log, state, tried, trial.kafka)),
        )

    @property
    def failure(self) -> str:
        return str(self.tried.error) if isinstance(self.tried, CleaningFailure) else ""

    @property
    def eligible(self) -> bool:
        succeeds = not self.failure or self._met(LAUNDERS) is not None
        taken = self.state.eligible and self.resolved.cleaner.enable and not self.problem
        return taken and succeeds and self._met(FAILS) is None

    @property
    def broker_fate(self) -> Reason | None:
        """What a broker's cleaner does that it should not, with what it meets; None if it does its work."""
        fails, launders = self._met(FAILS), self._met(LAUNDERS)
        if fails is None and launders is not None:
            taken = "takes it now, and gives" if self.state.eligible else "would give"
            what = f"{taken} damage a valid checksum: {launders.place}"
            return Reason("CLEANING_LAUNDERS", f"a broker's cleaner {what}")
        reason = self.failure if fails is None else fails.place
        taken = "takes it now, fails, and then leaves it alone" if self.state.eligible else "would fail on it"
        return Reason("CLEANING_FAILS", f"a broker's cleaner {taken}: {reason}") if reason else None

    @property
    def keyless(self) -> int:
        """The records without a key that a round drops."""
        return sum(hazard.count for hazard in self.hazards if hazard.code == DROPS)

    def _met(self, code: str) -> Hazard | None:
        return next((hazard for hazard in self.hazards if hazard.code == code), None)

    def command(self, verb: str, *arguments: str, after: Sequence[str] = ()) -> str:
        """Returns a command line for this partition, with those of the user's options that the command takes."""
        options, metadata = self.trial.work.given_options(arguments), self.trial.sources.metadata_directory
        if verb in _UNCONFIGURED:
            options = []
        if verb in _BY_METADATA and metadata is not None:
            options += ["--metadata-dir", str(metadata)]
        directory = self.log.directory
        if isinstance(directory, RemotePath) and verb not in _ON_URLS:
            directory = Path(COPY_ON_A_DISK) / directory.name
        return command_line("seglog", *verb.split(), *options, *arguments, directory, *after)


def _open_transactions(log: Log) -> Iterator[OpenTransaction]:
    for first_offset, producer_id in sorted(log.producers.open_transactions.items()):
        producer = log.producers.producers.get(producer_id)
        epoch, last = (-1, -1) if producer is None else (producer.epoch, producer.last_timestamp)
        yield OpenTransaction(producer_id, epoch, first_offset, last)


def _cleaner_hazards(log: Log, state: LogToClean, tried: Outcome, kafka: KafkaVersion) -> Iterator[Hazard]:
    """Yields what a broker's cleaner meets in the segments that it would rewrite. A negative timestamp is in its way
    only where it rewrites a batch, which the dry run of seglog's round tells.
    """
    rewrites = not isinstance(tried, Cleaned) or tried.result.stats.reasons()["batches_rebuilt"] > 0
    segments, largest = list_partition(log.fs, log.directory).segments, largest_decompressed(kafka, log.config)
    for hazard in cleaner_hazards(log.fs, segments, largest=largest):
        is_met = rewrites or hazard.reason is not HazardReason.NEGATIVE_TIMESTAMP
        if is_met and hazard.segment.base_offset < state.first_uncleanable_offset:
            yield hazard
