"""Recovers and opens logs and keeps the data that they lose, so that `undo` can restore it (`truncate` cuts them so).

Opening a log that was not closed properly recovers it, and recovery cuts it at the first damage (Kafka: LogLoader).
Here it is opened in memory first (`LogDirectory.try_log`). If no byte of data was lost there, the changes are made on
disk as they are, and nothing is read again; else that partition is recovered as a run (`undoable`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seglog.clock import Clock
from seglog.log.directory import ConfigOf, LogDirectory
from seglog.log.loader import RecoveryReport
from seglog.log.log import Log
from seglog.log.opening import open_partition
from seglog.log.reader import require_end
from seglog.operations.undo import Settled, settle_unfinished, unsettled
from seglog.repairs.undo.undoable import undoable
from seglog.scan.listing import require_partition
from seglog.storage.filesystem import FileSystem
from seglog.storage.lock import partition_path


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
            with self.opened(overlay, partition) as directory:
                return directory.log_in(partition, recover_from=recover_from).recovery

        report, run = undoable(self.fs, self.clock, partition, self.command, work, self.quarantine, unclean)
        report.run = None if run is None else run.folder
        return report

    def open(self, partition: Path, *, create: bool = False) -> tuple[LogDirectory, Log, RecoveryReport]:
        """Opens a partition for writing (`open_partition`); returns the recovery's report as well.

        Raises CorruptRecordError, before anything is changed, if a log that was closed properly ends because of damage,
        behind which good batches may follow.
        """
        partition, report = partition_path(partition), None
        settle_unfinished(self.fs, partition.parent, self.settled)
        if self.fs.status(partition) is not None:
            require_partition(self.fs, partition)
            owner = self.locked(partition)
            try:
                with owner.try_log(partition) as tried:
                    if not tried.recovery.truncated_bytes:
                        require_end(tried.view, writing=True)
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

    def locked(self, partition: Path) -> LogDirectory:
        """Opens the log directory around a partition for writing, and takes its lock."""
        return LogDirectory.open(
            partition.parent, fs=self.fs, clock=self.clock, config_of=self.config_of, writable=True
        )

    def opened(self, fs: FileSystem, partition: Path) -> LogDirectory:
        """Opens the log directory around a partition for writing through `fs`, under a lock that is held already."""
        return LogDirectory.open(
            partition.parent,
            fs=fs,
            clock=self.clock,
            config_of=self.config_of,
            writable=True,
            take_lock=False,
            settle=False,
        )
