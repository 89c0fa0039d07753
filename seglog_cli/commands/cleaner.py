"""`seglog cleaner`: the cleaner as a service."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from seglog_cli.cleaning import DedupeBufferSize, StrategyName
from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import exit_code_of
from seglog_cli.measuring import Prometheus
from seglog_cli.options import (
    LogDirectoryPath,
    MetadataDirectory,
    OverridePolicy,
    command,
    flag,
    parsed,
    size_option,
)
from seglog_cli.session import Session

if TYPE_CHECKING:
    from seglog.operations.cleaner import CleanerService

_SIGNALS = {signal.SIGTERM: ExitCode.TERMINATED, signal.SIGINT: ExitCode.INTERRUPTED}


@command
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
    override_policy: OverridePolicy = False,
    metadata_dir: MetadataDirectory = None,
    prometheus: Prometheus = None,
) -> int:
    """Keeps the compacted logs of a log directory clean, as a broker's cleaner threads do.

    Runs until a signal ends it, or for one pass with --once. A pass cleans the dirtiest log until none is eligible
    (min.cleanable.dirty.ratio, max.compaction.lag.ms), then deletes what the retention of compact,delete topics allows,
    and writes the gauges that --prometheus asks for. Then it rests for log.cleaner.backoff.ms. --jobs threads, or
    log.cleaner.threads, share the dedupe buffer and the throttle. Only topics whose cleanup.policy is known to include
    compact are touched, and none whose configuration here contradicts the cluster's metadata. A partition that cannot
    be cleaned is reported with the reason, and left alone until its files change.

    The directory is locked only during a pass that has work to do. Between passes seglog can append or repair, and a
    broker can start; the service then waits. SIGTERM and SIGINT end it within a second. An unfinished round leaves no
    trace and begins again next time.

    Examples:
      seglog cleaner --once /var/lib/kafka/data
      seglog cleaner --once --throttle 50MB --prometheus seglog.prom /var/lib/kafka/data
    """
    from dataclasses import replace

    from seglog.cleaner.round import Strategy
    from seglog.operations.cleaner import CleanerService
    from seglog.operations.workspace import Sources
    from seglog.scan.listing import list_log_directory, refuse_partition
    from seglog_cli.views.service import Reporter

    refuse_partition(session.fs, log_directory)
    list_log_directory(session.fs, log_directory)
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
    )
    reporter.service = service
    with _stops(service) as received:
        service.run(passes=1 if once else None)
    if received:
        session.console.message("stopped; what is on disk is consistent")
        return _SIGNALS[received[0]]
    if once and not reporter.has_told:
        session.console.message("nothing is due for cleaning (seglog explain PARTITION says why)")
    if once and service.failure is not None:
        return exit_code_of(service.failure)  # the warning has said why
    return ExitCode.FOUND if service.uncleanable and once else ExitCode.DONE


@contextlib.contextmanager
def _stops(service: CleanerService) -> Iterator[list[signal.Signals]]:
    """While open, SIGTERM and SIGINT stop the service; the list gets the signal that came."""
    received: list[signal.Signals] = []

    def stop(number: int, _frame: object) -> None:
        received.append(signal.Signals(number))
        service.stop.set()

    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
