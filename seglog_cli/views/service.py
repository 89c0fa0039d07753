"""What the cleaner service tells while it runs, its history and its gauges."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from seglog_cli.views.cleaning import summary_lines
from seglog_cli.views.retention import retention_record

if TYPE_CHECKING:
    from seglog.cleaner.manager import Uncleanable
    from seglog.cleaner.output import CleaningResult
    from seglog.log.retention import RetentionPlan
    from seglog.operations.cleaner import CleanerService, PassOutcome
    from seglog_cli.session import Session


class Reporter:
    """The service's listener. Rounds go to stdout as they end, everything else to stderr."""

    def __init__(self, session: Session, log_directory: Path, prometheus: Path | None) -> None:
        from seglog.operations.workspace import CleaningHistory, state_directory

        self.service: CleanerService | None = None
        self._session, self._console, self._prometheus = session, session.console, prometheus
        self._directory = log_directory
        self._history = CleaningHistory(session.fs, state_directory(os.environ), log_directory)
        self.has_told = False
        self._lock = threading.Lock()
        self._last_problem = ""
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
            if self._console.as_json:
                self._console.json(retention_record(Retained(self._directory, plan), False))
            else:
                gone = ", ".join(str(segment.base_offset) for segment in plan.removed)
                self._console.line(f"{plan.topic_partition}: deleted segments {gone} ({plan.removed_bytes} bytes)")
            self._console.flush()

    def uncleanable(self, found: Uncleanable) -> None:
        with self._lock:
            self.has_told = True
            self._console.warning(f"{found.topic_partition} is uncleanable until its files change: {found.reason}")

    def problem(self, sentence: str) -> None:
        with self._lock:
            self.has_told = True
            if sentence != self._last_problem:  # a held lock is reported once, not every 15 seconds
                self._console.warning(sentence)
            self._last_problem = sentence

    def passed(self, outcome: PassOutcome) -> None:
        if not outcome.locked:
            self._last_problem = ""
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

    def _write_gauges(self, outcome: PassOutcome) -> None:
        from seglog.cleaner.metrics import CleanerGauges, write_prometheus

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
        write_prometheus(self._session.fs, self._prometheus, [gauges])
