"""Makes snapshots again and again, as a service (`seglog backup --every`).

A run that fails is told, and tried again after a wait that doubles each time, from ten seconds to the interval. Nothing
of it is listed, and what it has sent is used by the next one. A stop takes effect at the next read of a file.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Protocol

from seglog.clock import Clock
from seglog.errors import NotALogError, RefusedError, SeglogError
from seglog.storage.filesystem import FileSystem
from seglog.storage.gauges import Gauge
from seglog.storage.metered_files import CleaningStoppedError, Gate, Throttle
from seglog.storage.routing import RoutingFileSystem
from seglog_rescue.operations.backup import BackupOutcome, BackupRequest, backup

_FIRST_WAIT_S = 10.0
_SLICE_S = 0.2


@dataclass(frozen=True, slots=True)
class RunOfBackup:
    """A run: what it stored, or the error that ended it and the seconds until the next try. `failures`: in a row."""

    outcome: BackupOutcome | None
    error: SeglogError | OSError | None
    seconds: float
    ended_ms: int
    failures: int = 0
    wait_s: float = 0.0


class Listener(Protocol):
    """Receives each run when it has ended."""

    def ended(self, run: RunOfBackup) -> None: ...


class BackupService:
    """Makes a snapshot every `every_ms`, from begin to begin, until `stop` is set."""

    def __init__(
        self,
        fs: FileSystem,
        store: RoutingFileSystem,
        clock: Clock,
        request: BackupRequest,
        every_ms: int,
        listener: Listener,
        throttle: int | None = None,
    ) -> None:
        self.stop = threading.Event()
        self._fs, self._store, self._clock, self._request = fs, store, clock, request
        self._every_s, self._listener = every_ms / 1000, listener
        self._gate = gate_of(clock, throttle, self.stop)
        self._failures = 0
        self._has_succeeded = False

    def run(self, runs: int | None = None) -> None:
        """Makes snapshots until `stop` is set, or so many tries.

        Raises NotALogError and RefusedError of the first run: what was asked for is impossible.
        """
        done = 0
        while not self.stop.is_set():
            began = self._clock.monotonic()
            wait_s = self._run_once()
            done += 1
            if runs is not None and done >= runs:
                return
            self._rest(wait_s if self._failures else began + self._every_s - self._clock.monotonic())

    def _run_once(self) -> float:
        began = self._clock.monotonic()
        outcome: BackupOutcome | None = None
        failure: SeglogError | OSError | None = None
        try:
            with self._gate.cleaning():
                outcome = backup(self._fs, self._store, self._clock, self._request, gate=self._gate)
        except CleaningStoppedError:
            return 0
        except (NotALogError, RefusedError) as error:
            if not self._has_succeeded and not self._failures:
                raise
            failure = error
        except (SeglogError, OSError) as error:
            failure = error
        self._has_succeeded = self._has_succeeded or failure is None
        self._failures = self._failures + 1 if failure is not None else 0
        wait_s = min(self._every_s, _FIRST_WAIT_S * 2 ** min(self._failures - 1, 20)) if failure is not None else 0.0
        seconds = self._clock.monotonic() - began
        self._listener.ended(RunOfBackup(outcome, failure, seconds, self._clock.now_ms(), self._failures, wait_s))
        return wait_s

    def _rest(self, seconds: float) -> None:
        until = self._clock.monotonic() + seconds
        while not self.stop.is_set() and (left := until - self._clock.monotonic()) > 0:
            self._clock.sleep(min(left, _SLICE_S))


def gate_of(clock: Clock, throttle: int | None, stop: threading.Event) -> Gate:
    """Returns what lets reads through: at most `throttle` bytes a second, and none once `stop` is set."""
    return Gate(None if throttle is None else Throttle(throttle, clock, stop.is_set), stop.is_set)


# --- gauges -----------------------------------------------------------------------------------------------

FIRST_GAUGE = "seglog_backup_last_success_timestamp_seconds"
_HELP = {
    FIRST_GAUGE: "When the last snapshot ended, 0 if none has since the start.",
    "seglog_backup_failed_runs": "Runs that failed since the last snapshot.",
    "seglog_backup_last_run_seconds": "How long the last run took.",
    "seglog_backup_partitions": "Partitions in the last snapshot.",
    "seglog_backup_left_out_partitions": "Partitions that the last snapshot could not take.",
    "seglog_backup_damaged_places": "Damaged places in the logs of the last snapshot.",
    "seglog_backup_size_bytes": "Bytes of the files in the last snapshot.",
    "seglog_backup_sent_bytes": "Bytes that the last snapshot has sent.",
}


def gauges_of(repository: str, last_success: RunOfBackup | None, last: RunOfBackup) -> list[Gauge]:
    """Returns the gauges of a service: of its last snapshot, and of its last run."""
    values = [0.0 if last_success is None else last_success.ended_ms / 1000, last.failures, last.seconds]
    outcome = None if last_success is None else last_success.outcome
    if outcome is None:
        values += [0] * (len(_HELP) - len(values))
    else:
        partitions = [each for directory in outcome.snapshot.directories for each in directory.partitions]
        damaged = sum(len(partition.damage) for partition in partitions)
        values += [len(partitions), len(outcome.left_out), damaged, outcome.snapshot.size]
        values.append(outcome.sent.bytes + outcome.manifest_bytes)
    labels = {"repository": repository}
    return [Gauge(name, text, [(labels, value)]) for (name, text), value in zip(_HELP.items(), values, strict=True)]
