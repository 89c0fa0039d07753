"""`seglog salvage`: copies the good batches of a damaged log into a new one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from seglog.units import count_text
from seglog_cli.console import Console
from seglog_cli.exit_codes import ExitCode
from seglog_cli.options import Paths, command, flag, option, size_option
from seglog_cli.progress import bytes_text
from seglog_cli.session import Session
from seglog_cli.tiering import Tiers

if TYPE_CHECKING:
    from seglog_rescue.salvage.salvage import SalvagedLog, SalvageReport

_MISSING_SHOWN = 20
_LOG_FIELDS = (
    "batches",
    "bytes",
    "log_start_offset",
    "log_end_offset",
    "missing_offsets",
    "undecided",
    "contradicting",
)


@command(urls=["paths"])
def run(
    session: Session,
    paths: Paths,
    output: Annotated[
        Path,
        option(
            "--output -o",
            "DIR",
            "The new partition directory; with --carve, the directory for all logs that are found.",
        ),
    ],
    carve: Annotated[bool, flag("--carve", "Search every byte of every file, such as a disk image.")] = False,
    into_one: Annotated[bool, flag("--into-one", "Join everything that is found into one log.")] = False,
    segment_bytes: Annotated[
        int | None, size_option("--segment-bytes", "The size of the new segments (segment.bytes).", least=1)
    ] = None,
    *,
    tiers: Tiers,
) -> int:
    """Copies every good batch from damaged files into a new, valid log.

    The sources are never written to. Batches are searched in segments, before and after damage, and in .swap, .deleted
    and .cleaned files. They are sorted by offset; of several copies of a batch, one from a live segment is preferred to
    a leftover. Indexes, snapshots and leader epochs are rebuilt.

    The output shows what each file held and which offsets are missing; compaction leaves such gaps too. If a file
    cannot be read, or not to its end, the command copies what it could read from all files, names that file, and exits
    with 3.

    --carve searches any file at any position, such as a disk image. An image holds many logs, and no batch names its
    topic. Logs are told apart by consecutive offsets, leader epochs, producers and their sequences, codec, time, and
    the look of keys and values. A batch that the file system has cut in two is put together. Several logs go to
    DIR/carved-0, DIR/carved-1 …, or take the name of the partition whose files you also give.

    A part that may belong to either of two logs is kept apart and marked, and the exit code is 1. Look at its records,
    and join what belongs together with --into-one, which makes one log of everything. Where offsets contradict each
    other, one batch is taken and the others are counted.

    In a log of Kafka 0.7 offsets are positions, so messages after damage get new ones.

    Examples:
      seglog salvage orders-0 -o /tmp/rescued/orders-0
      seglog salvage --carve /tmp/disk.img -o /tmp/rescued/logs
      seglog salvage --into-one /tmp/rescued/logs/carved-0 /tmp/rescued/logs/carved-3 -o /tmp/rescued/orders-0
    """
    from seglog_rescue.salvage.salvage import DEFAULT_SEGMENT_BYTES, SalvageOptions, salvage

    options = SalvageOptions(
        carve, DEFAULT_SEGMENT_BYTES if segment_bytes is None else segment_bytes, into_one=into_one
    )
    looking, paths = tiers.seen(session, paths)
    with session.progress("salvage") as progress:
        report = salvage(looking.fs, session.clock, paths, output, options, progress.advance)
    doubtful = report.undecided or (into_one and any(log.contradicting for log in report.logs))
    code = ExitCode.FOUND if doubtful else ExitCode.DONE
    code = tiers.code(code if report.is_complete else ExitCode.INCOMPLETE)
    show_salvage(session.console, report, code)
    return code


def show_salvage(console: Console, report: SalvageReport, code: ExitCode) -> None:
    """Shows what each source held, what was used, and which offsets are in no source."""
    for source in report.sources:
        fields: dict[str, Any] = {**dataclasses.asdict(source), "path": str(source.path)}
        if console.as_json:
            console.json({"type": "source", **fields})
        elif source.found:
            used = f"{source.used} of {count_text(source.found, 'batch')} used"
            console.line(f"{source.path.name}: {used}, {bytes_text(source.used_bytes)}")
        else:
            console.line(f"{source.path.name}: nothing good")
        if source.unreadable and not console.as_json:
            console.warning(f"{source.path}: it could not be read completely: {source.unreadable}")
    for log in report.logs:
        _show_log(console, log, several=len(report.logs) > 1)
    if console.as_json:
        first = report.logs[0]
        offsets = {"log_start_offset": first.log_start_offset, "log_end_offset": first.log_end_offset}
        counts = {"batches": report.batches, "bytes": sum(log.bytes for log in report.logs)}
        doubts = {"missing_offsets": report.missing_offsets, "undecided": report.undecided, "logs": len(report.logs)}
        of_one = offsets if len(report.logs) == 1 else {}
        console.json({"type": "summary", "exit_code": int(code), **counts, **of_one, **doubts})


def _show_log(console: Console, log: SalvagedLog, several: bool) -> None:
    name = {"log": log.directory.name} if several else {}
    if console.as_json:
        for first, last in log.missing:
            console.json({"type": "missing", **name, "first_offset": first, "last_offset": last})
        if several:
            fields = {each: getattr(log, each) for each in _LOG_FIELDS}
            console.json({"type": "log", "directory": str(log.directory), **fields})
        return
    where = f"{log.directory.name}: " if several else ""
    for first, last in log.missing[:_MISSING_SHOWN]:
        console.line(f"{where}missing: offsets {first} to {last}")
    if len(log.missing) > _MISSING_SHOWN:
        console.line(f"{where}missing: {len(log.missing) - _MISSING_SHOWN} more ranges (--json lists all)")
    console.line(
        f"{count_text(log.batches, 'batch')}, {bytes_text(log.bytes)}, offsets {log.log_start_offset} to"
        f" {log.log_end_offset} in {log.directory}; {log.missing_offsets} offsets are missing"
    )
    if log.undecided:
        console.warning(f"{where}it might be a part of another log here; --into-one joins logs that belong together")
    if log.contradicting:
        console.warning(
            f"{where}{count_text(log.contradicting, 'good batch')} left out: the offsets contradict those of others"
        )
