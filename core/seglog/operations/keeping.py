"""Recovers, opens and truncates logs and keeps the data that they lose, so that `undo` can restore it.

Opening a log that was not closed properly recovers it, and recovery cuts it at the first damage (Kafka: LogLoader).
Here it is opened in memory first (`LogDirectory.try_log`). If no byte of data was lost there, the changes are made on
disk as they are, and nothing is read again; else that partition is recovered as a run (`undoable`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from seglog.arguments import flag
from seglog.clock import Clock
from seglog.log.directory import ConfigOf, LogDirectory
from seglog.log.loader import RecoveryReport
from seglog.log.log import Log
from seglog.log.opening import open_partition
from seglog.operations.truncate import Cut, plan_cut
from seglog.operations.undo import Settled, settle_unfinished, unsettled
from seglog.operations.workspace import (
    CommonArguments,
    Location,
    Workspace,
    optional_integer,
    optional_path,
    optional_time,
    settings_of,
)
from seglog.repairs.undo.journal import RunRecord
from seglog.repairs.undo.undoable import undoable
from seglog.scan.listing import require_partition
from seglog.storage.filesystem import FileSystem
from seglog.storage.lock import partition_path
from seglog.storage.overlay import OverlayFileSystem
from seglog.units import count_text


@dataclass(frozen=True, slots=True)
class Keeper:
    """Keeps the data that logs lose. `command` goes into the run's journal; `quarantine` of None is the default place.

    An unfinished run in the log directory is settled before a log is opened or cut; `settled` is called with it.
    """

    fs: FileSystem
    clock: Clock
    config_of: ConfigOf
    command: str
    quarantine: Path | None = None
    settled: Settled = unsettled

    def recover(self, partition: Path, recover_from: int | None = None, unclean: bool | None = None) -> RecoveryReport:
        """Recovers a partition as opening it does, from `recover_from` on if given; the report's `run` keeps the lost
        data. The caller holds the log directory's lock. `unclean` as for `undoable`.
        """

        def work(overlay: FileSystem) -> RecoveryReport:
            with self._opened(overlay, partition) as directory:
                return directory.log_in(partition, recover_from=recover_from).recovery

        report, run = undoable(self.fs, self.clock, partition, self.command, work, self.quarantine, unclean)
        report.run = None if run is None else run.folder
        return report

    def open(self, partition: Path, *, create: bool = False) -> tuple[LogDirectory, Log, RecoveryReport]:
        """Opens a partition for writing (`open_partition`); returns the recovery's report as well."""
        partition, report = partition_path(partition), None
        settle_unfinished(self.fs, partition.parent, self.settled)
        if self.fs.status(partition) is not None:
            require_partition(self.fs, partition)
            owner = self._locked(partition)
            try:
                with owner.try_log(partition) as tried:
                    if not tried.recovery.truncated_bytes:
                        log = owner.keep(tried)
                        return owner, log, log.recovery
                report = self.recover(partition)
            except BaseException:
                owner.close(clean=owner.clean_shutdown)
                raise
            owner.close(clean=owner.clean_shutdown)  # what it read of the checkpoints is no longer so
        owner, log = open_partition(
            partition, fs=self.fs, clock=self.clock, config_of=self.config_of, writable=True, create=create
        )
        return owner, log, report or log.recovery

    def _locked(self, partition: Path) -> LogDirectory:
        return LogDirectory.open(
            partition.parent, fs=self.fs, clock=self.clock, config_of=self.config_of, writable=True
        )

    def _opened(self, fs: FileSystem, partition: Path) -> LogDirectory:
        return LogDirectory.open(
            partition.parent,
            fs=fs,
            clock=self.clock,
            config_of=self.config_of,
            writable=True,
            take_lock=False,
            settle=False,
        )

    # --- truncation ---------------------------------------------------------------------------------------

    def truncate(
        self, partition: Path, offset: int | None, timestamp: int | None, *, dry_run: bool = False, keep: bool = True
    ) -> Truncated:
        """Truncates a log at an offset or a timestamp (`plan_cut`); a dry run does the same on an overlay.

        Without `keep` the removed data is lost.
        """
        partition = partition_path(partition)
        require_partition(self.fs, partition)

        def work(fs: FileSystem) -> Truncated:
            with self._opened(fs, partition) as directory:
                log = directory.log_in(partition)
                cut = plan_cut(log, offset, timestamp)
                cut.apply(log)
                return Truncated(cut, log.recovery)

        if dry_run:
            return work(OverlayFileSystem(self.fs))
        settle_unfinished(self.fs, partition.parent, self.settled)
        with self._locked(partition):
            if not keep:
                return work(self.fs)
            done, run = undoable(self.fs, self.clock, partition, self.command, work, self.quarantine)
        return Truncated(done.cut, done.recovery, run)


class TruncationKeywords(TypedDict, total=False):
    """The keyword arguments of `seglog.truncate`: the fields of `TruncationRequest`."""

    to_offset: int | None
    to_time_ms: int | str | None
    keep: bool
    quarantine: Location | None


class TruncationArguments(TruncationKeywords, CommonArguments, total=False):
    """Those of `seglog.truncate`, and those of every function."""


@dataclass(frozen=True, slots=True)
class TruncationRequest:
    """Where to cut a log, and what becomes of the data, as the user said it. One of offset and time is given."""

    partition: Path
    to_offset: int | None = None
    to_time_ms: int | str | None = None
    keep: bool = True
    quarantine: Location | None = None


def truncate(
    work: Workspace, request: TruncationRequest, *, dry_run: bool = False, settled: Settled = unsettled
) -> Truncated:
    """Truncates the log that the request names (`Keeper.truncate`). Raises ValueError unless it says one place."""
    offset = optional_integer("to_offset", request.to_offset, 0)
    moment = optional_time("to_time_ms", request.to_time_ms, work.clock)
    if (offset is None) == (moment is None):
        raise ValueError("give to_offset or to_time_ms: it says where to cut")
    config_of = settings_of(work, partition_path(request.partition).parent)
    place = optional_path("quarantine", request.quarantine)
    keeper = Keeper(work.fs, work.clock, config_of, "truncate", place, settled)
    return keeper.truncate(request.partition, offset, moment, dry_run=dry_run, keep=flag("keep", request.keep))


@dataclass(frozen=True, slots=True)
class Truncated:
    """A truncation, the report of the recovery before it, and the run that keeps the removed data (None: nothing was
    removed or kept).
    """

    cut: Cut
    recovery: RecoveryReport
    run: RunRecord | None = None

    def __repr__(self) -> str:
        cut, run = self.cut, "" if self.run is None else f"; run {self.run.name}"
        where = f"{cut.topic_partition}: the log ends at offset {cut.end_offset} (before: {cut.end_before})"
        return f"<Truncated {where}; {count_text(cut.bytes, 'byte')}{run}>"
