"""`seglog cleaner`: the cleaner as a service."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seglog_cli.commands.clean import DedupeBufferSize, StrategyName, WrittenKafka, summary_lines
from seglog_cli.commands.retain import retention_record
from seglog_cli.commands.stats import Prometheus, require_gauges_file
from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import exit_code_of
from seglog_cli.options import (
    LogDirectoryPath,
    MetadataDirectory,
    OverridePolicy,
    command,
    flag,
    parsed,
    size_option,
)
from seglog_cli.progress import bytes_text
from seglog_cli.services import SIGNALS, stops
from seglog_cli.session import Session

if TYPE_CHECKING:
    from seglog.cleaner.manager import Uncleanable
    from seglog.cleaner.output import CleaningResult
    from seglog.log.retention import RetentionPlan
    from seglog.operations.cleaner import CleanerService, PassOutcome


@command()
def run(
    session: Session,
    log_directory: LogDirectoryPath,
    once: Annotated[bool, flag("--once", "Make one pass, then exit.")] = False,
    throttle: Annotated[
        int | None,
        size_option(
            "--throttle", "Read and write at most this many bytes a second (log.cleaner.io.max.bytes.per.second)."
        ),
    ] = None,
    dedupe_buffer_size: DedupeBufferSize = None,
    strategy: StrategyName = "offset",
    kafka_version: WrittenKafka = "4.3",
    override_policy: OverridePolicy = False,
    metadata_dir: MetadataDirectory = None,
    prometheus: Prometheus = None,
) -> int:
    """Keeps compacted logs clean, as a broker's cleaner threads do.

    The service runs until a signal ends it, or for one pass with --once. Each pass cleans the dirtiest log until none
    is eligible (min.cleanable.dirty.ratio, max.compaction.lag.ms), then deletes what the retention of compact,delete
    topics allows, and writes the gauges that --prometheus asks for. Then the service rests for log.cleaner.backoff.ms.

    --jobs threads, or log.cleaner.threads, share the dedupe buffer and the throttle.

    The service cleans only topics whose cleanup.policy is known to include compact, and none whose configuration here
    contradicts the cluster's metadata. It reports a partition that cannot be cleaned, with the reason, and leaves it
    alone until its files change.

    The directory is locked only during a pass that has work to do. Between passes seglog can append or repair, and a
    broker can start; the service then waits. SIGTERM and SIGINT end it within a second. An unfinished round leaves no
    trace and begins again next time.

    Examples:
      seglog cleaner --once /var/lib/kafka/data
      seglog cleaner --once --throttle 50MB --prometheus seglog.prom /var/lib/kafka/data
    """
    from dataclasses import replace

    from seglog.cleaner.round import Strategy
    from seglog.kafka_version import KafkaVersion
    from seglog.operations.cleaner import CleanerService
    from seglog.operations.workspace import Sources
    from seglog.scan.listing import list_log_directory, refuse_partition

    refuse_partition(session.fs, log_directory)
    list_log_directory(session.fs, log_directory)
    if prometheus is not None:
        require_gauges_file(session, prometheus)
    chosen = {"log.cleaner.dedupe.buffer.size": dedupe_buffer_size, "log.cleaner.io.max.bytes.per.second": throttle}
    sources = Sources(chosen, override_policy, metadata_dir)
    config = session.config_of(session.resolved(log_directory), sources).resolve(None).cleaner
    threads = session.begin_threads()
    if session.jobs is not None:
        config = replace(config, threads=threads)
    reporter = Reporter(session, session.resolved(log_directory), prometheus)
    service = CleanerService(
        session.fs,
        session.resolved(log_directory),
        lambda: session.config_of(session.resolved(log_directory), sources, tell=False),
        config,
        session.clock,
        reporter,
        strategy=parsed("--strategy", Strategy.parse, strategy),
        kafka=parsed("--kafka-version", KafkaVersion.parse, kafka_version),
    )
    reporter.service = service
    with stops(service.stop) as received:
        service.run(passes=1 if once else None)
    if received:
        session.console.message("stopped; what is on disk is consistent")
        return SIGNALS[received[0]]
    if once and not reporter.has_told:
        session.console.message("nothing is due for cleaning (seglog explain PARTITION says why)")
    if once and service.failure is not None:
        return exit_code_of(service.failure)  # its warning was already shown
    return ExitCode.FOUND if service.uncleanable and once else ExitCode.DONE


class Reporter:
    """The service's listener. Rounds go to stdout as they end, everything else to stderr."""

    def __init__(self, session: Session, log_directory: Path, prometheus: Path | None) -> None:
        from seglog.operations.workspace import CleaningHistory
        from seglog.storage.state import state_directory

        self.service: CleanerService | None = None
        self._session, self._console, self._prometheus = session, session.console, prometheus
        self._directory = log_directory
        self._history = CleaningHistory(session.fs, state_directory(os.environ), log_directory)
        self.has_told = False
        self._lock = threading.Lock()
        self._last_run_ms: int | None = None

    def cleaned(self, result: CleaningResult, thread: int) -> None:
        with self._lock:
            self.has_told = True
            if self._console.as_json:
                self._console.json(result.to_json())
            else:
                if self._console.verbose:
                    self._console.lines(summary_lines(self._console, result))
                self._console.block(result.text(thread).rstrip("\n"))
            self._console.flush()

    def retained(self, plan: RetentionPlan) -> None:
        from seglog.operations.retain import Retained

        with self._lock:
            self.has_told = True
            gone = ", ".join(str(segment.base_offset) for segment in plan.removed)
            self._console.result(
                retention_record(Retained(self._directory, plan), False),
                f"{plan.topic_partition}: deleted segments {gone} ({bytes_text(plan.removed_bytes)})",
            )
            self._console.flush()

    def uncleanable(self, found: Uncleanable) -> None:
        with self._lock:
            self.has_told = True
            self._console.warning(f"{found.topic_partition} is uncleanable until its files change: {found.reason}")

    def problem(self, sentence: str) -> None:
        with self._lock:
            self.has_told = True
            self._console.warning(sentence)

    def passed(self, outcome: PassOutcome) -> None:
        delayed = [log for log in outcome.logs if log.delay_ms > 0]
        if delayed:
            most = max(log.delay_ms for log in delayed)
            dirty = sum(log.eligible for log in outcome.logs)
            self._console.detail(
                f"Cleanable partitions: {dirty}, Delayed partitions: {len(delayed)}, max delay: {most}"
            )
        for result in outcome.results:
            if result.stats.invalid_records:
                self._console.warning(
                    f"{result.topic_partition}: found {result.stats.invalid_records} invalid messages during compaction"
                )
        try:
            self._history.add(outcome.results, outcome.ended_ms)
            self._write_gauges(outcome)
        except OSError as error:
            self._console.warning(f"{error.filename or self._history.path}: not written: {error.strerror}")
        self._console.end_round()  # a held lock is reported once, not every 15 seconds

    def _write_gauges(self, outcome: PassOutcome) -> None:
        from seglog.cleaner.metrics import CleanerGauges, gauges_of
        from seglog.storage.gauges import write_gauges

        since = None if self._last_run_ms is None else outcome.ended_ms - self._last_run_ms
        self._last_run_ms = outcome.ended_ms
        if self._prometheus is None or self.service is None:
            return
        gauges = CleanerGauges(
            directory=str(self._directory),
            rounds=tuple(result.to_json() for result in outcome.results),
            max_dirty_ratio=max((log.cleanable_ratio for log in outcome.logs), default=0.0),
            max_delay_ms=max((log.delay_ms for log in outcome.logs), default=0),
            uncleanable={
                str(one.topic_partition): (one.reason, one.bytes) for one in self.service.uncleanable.values()
            },
            ms_since_last_run=since,
        )
        write_gauges(self._session.fs, self._prometheus, gauges_of([gauges]))
