"""Opening a log to change it only where that loses nothing.

A log that was not closed properly is recovered when it is opened for writing, and recovery cuts it at the first damage
(Kafka: LogLoader.recoverLog). Cleaning and retention must not do that on the side: they ask first what opening would
cut, and refuse.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from seglog.errors import CorruptRecordError
from seglog.format.filenames import segment_file_name
from seglog.log.directory import LogDirectory
from seglog.log.loader import RecoveryReport, plan_recovery
from seglog.log.log import Log


def open_undamaged(directory: LogDirectory, partition: Path) -> Log:
    """The log in `partition`, a sub-directory of `directory`, opened as that was.

    CorruptRecordError when opening it for writing would cut off anything; then nothing was changed.
    """
    options = replace(directory.load_options(partition), writable=True)
    if not options.clean_shutdown:
        refuse_losses(plan_recovery(directory.fs, partition, directory.clock, options))
    return directory.log_in(partition)


def refuse_losses(report: RecoveryReport) -> None:
    """CorruptRecordError when the recovery would cut anything off."""
    if not report.truncated_bytes:
        return
    cut = next(iter(report.truncated_segments), None)
    base = cut.base_offset if cut is not None else report.deleted_segments[0]
    reason = (cut.reason if cut is not None else "") or "the segment lies behind damage"
    raise CorruptRecordError(
        report.directory / segment_file_name(base),
        f"{reason}; opening the log would cut {report.truncated_bytes} bytes: `seglog verify` shows the damage,"
        " `seglog verify --repair` loses the least, `seglog recover` does what a broker does",
        None if cut is None else cut.valid_bytes,
        None if cut is None else cut.next_offset,
    )
