"""`seglog tiers`: the contents of tiered storage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seglog_cli.console import Console
from seglog_cli.exit_codes import ExitCode
from seglog_cli.options import argument, command, flag
from seglog_cli.session import Session
from seglog_cli.tables import Layout, number_cell
from seglog_cli.tiering import Tiers

if TYPE_CHECKING:
    from seglog_stores.tiers.segments import Remark
    from seglog_stores.tiers.survey import Surveyed

_PARTITIONS = ("PARTITION", "LAYOUT", "SEGMENTS", "START", "LAST", "BYTES", "LOCAL FROM", "MISSING")
_SEGMENTS = ("PARTITION", "START", "LAST", "BYTES", "WHERE", "SEGMENT")


@command(urls=["paths"])
def run(
    session: Session,
    paths: Annotated[
        list[Path],
        argument(
            "PATH", "A partition or a topic in tiered storage, a whole tier, or an object of a segment; URLs too."
        ),
    ],
    segments: Annotated[bool, flag("--long -l", "Show segments too. JSON lines always show them.")] = False,
    *,
    tiers: Tiers,
) -> int:
    """Shows which segments are in tiered storage, and which are missing.

    The output also shows what a restore would need. PATH is a directory of a tier: one partition, a topic, or the whole
    tier. seglog knows the layouts of Aiven's plugin, of Kafka's own LocalTieredStorage, of Pinterest's uploader, and of
    the logs that seglog's Spark jobs commit to a bucket.

    LAST is the last offset. BYTES is the size of the log that a restore brings. MISSING counts the offsets between
    segments that are nowhere. With --local, the partitions of that log directory count from their first segment on.

    A segment that lacks its manifest, or some of its files, was not uploaded completely and does not count. With
    --remote-metadata, the records of __remote_log_metadata decide: an object without a record is an orphan, and a
    record without an object is a missing segment. If a record names another prefix or key (the custom metadata of
    Aiven's plugin), the segment is read from there.

    Leaders of several epochs may have uploaded the same offsets. Segments of epochs that are not among the log's leader
    epochs are left out, and overlaps are cut; the output reports both.

    In a committed log, an object that no manifest names is an orphan too: it comes from a job that is running, or that
    died. No reader reads it, and nothing removes it. Remove it yourself when no job is writing there.

    The exit code is 1 if something is missing, damaged, incomplete or an orphan, and 3 if something could not be read.

    Every reading command takes such a PATH itself (ls, dump, read, verify, stats, txn, explain, export, diff, groups,
    serve, replay and doctor; convert and salvage as their source). So does the library.

    Examples:
      seglog tiers /mnt/tier
      seglog tiers --long --local /var/lib/kafka/data /mnt/tier/kafka-tiered-storage
      seglog tiers --json --remote-metadata /var/lib/kafka/data /mnt/tier
    """
    from seglog_stores.tiers.segments import Problem, Remark
    from seglog_stores.tiers.survey import FOUND, Surveyed, survey

    session.warn_of_runs([*paths, *filter(None, (tiers.local,))])
    found, remarks = list[Surveyed](), list[Remark]()
    for one in survey(session.fs, paths, tiers.options(session)):
        if isinstance(one, Surveyed):
            found.append(one)
            remarks += one.partition.remarks
        else:
            remarks.append(one)
    show_tiers(session.console, found, remarks, segments=segments)
    if any(remark.problem is Problem.UNREADABLE for remark in remarks):
        return ExitCode.INCOMPLETE
    is_found = any(remark.problem in FOUND for remark in remarks)
    return ExitCode.FOUND if is_found else ExitCode.INCOMPLETE if tiers.lacking else ExitCode.DONE


def show_tiers(console: Console, partitions: Sequence[Surveyed], remarks: Sequence[Remark], *, segments: bool) -> None:
    """Shows partitions, with `segments` their segments too, and the remarks."""
    if console.as_json:
        _json(console, partitions, remarks)
        return
    rows = []
    for surveyed in partitions:
        local = None if surveyed.partition.local is None else surveyed.partition.local.first
        numbers = (surveyed.first_offset, surveyed.last_offset, surveyed.log_bytes, local, _offsets(surveyed.missing))
        name, layout = str(surveyed.place.topic_partition), surveyed.place.layout.value
        rows.append((name, layout, str(len(surveyed.chosen)), *map(number_cell, numbers)))
    console.table(_PARTITIONS, rows, Layout(right=(2, 3, 4, 5, 6, 7), spare=(1,)))
    if segments:
        console.line()
        lines = [
            (
                str(surveyed.place.topic_partition),
                str(segment.segment.start_offset),
                str(segment.end_offset),
                str(segment.size),
                segment.where.value,
                segment.segment.segment_id or "-",
            )
            for surveyed in partitions
            for segment in surveyed.segments
        ]
        console.table(_SEGMENTS, lines, Layout(right=(1, 2, 3), spare=(5,)))
    for remark in remarks:
        (console.warning if remark.is_grave else console.message)(f"{remark.problem.value}: {remark}")


def _offsets(ranges: Sequence[tuple[int, int]]) -> int:
    return sum(last - first + 1 for first, last in ranges)


def _json(console: Console, partitions: Sequence[Surveyed], remarks: Sequence[Remark]) -> None:
    for surveyed in partitions:
        partition = str(surveyed.place.topic_partition)
        console.json(
            {
                "type": "tier",
                "partition": partition,
                "layout": surveyed.place.layout.value,
                "topic_id": surveyed.place.topic_id,
                "directory": str(surveyed.place.directory),
                "segments": len(surveyed.chosen),
                "start_offset": surveyed.first_offset,
                "last_offset": surveyed.last_offset,
                "log_bytes": surveyed.log_bytes,
                "local_start_offset": None if surveyed.partition.local is None else surveyed.partition.local.first,
                "missing": [{"first_offset": first, "last_offset": last} for first, last in surveyed.missing],
            }
        )
        for segment in surveyed.segments:
            console.json(
                {
                    "type": "tier_segment",
                    "partition": partition,
                    "segment_id": segment.segment.segment_id or None,
                    "start_offset": segment.segment.start_offset,
                    "last_offset": segment.end_offset,
                    "log_bytes": segment.size,
                    "where": segment.where.name.lower(),
                }
            )
    for remark in remarks:
        console.json(
            {
                "type": "tier_remark",
                "severity": "error" if remark.is_grave else "info",
                "code": remark.problem.name,
                "partition": remark.partition,
                "first_offset": remark.first_offset,
                "last_offset": remark.last_offset,
                "file": None if remark.path is None else str(remark.path),
                "message": remark.message,
            }
        )
