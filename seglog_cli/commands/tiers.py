"""`seglog tiers`: what lies where in tiered storage."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from seglog_cli.exit_codes import ExitCode
from seglog_cli.options import argument, command, flag, takes_urls
from seglog_cli.session import Session
from seglog_cli.tiering import Tiers


@command
@takes_urls("paths")
def run(
    session: Session,
    paths: Annotated[
        list[Path],
        argument(
            "PATH", "A partition or a topic in tiered storage, a whole tier, or an object of a segment; URLs, too."
        ),
    ],
    tiers: Tiers,
    segments: Annotated[bool, flag("--long -l", "Show segments, too. JSON lines show them anyway.")] = False,
) -> int:
    """Shows which segments lie in tiered storage, which are missing, and what a restore would need.

    PATH is a directory of a tier: one partition, a topic, or the whole tier. seglog knows the layouts of Aiven's
    plugin, of Kafka's own LocalTieredStorage, of Pinterest's uploader, and of the logs that seglog's Spark jobs commit
    to a bucket. LAST is the last offset, BYTES are the bytes of log that a restore brings. MISSING counts the offsets
    between segments that are nowhere. With --local, the partitions of that log directory count from their first segment
    on.

    A segment that lacks its manifest, or some of its files, was not uploaded completely and does not count. With
    --remote-metadata, the records of __remote_log_metadata decide: an object without a record is an orphan, and a
    record without an object is a missing segment. Where a record names another prefix or key (the custom metadata of
    Aiven's plugin), the segment is read from there. Leaders of several epochs may have uploaded the same offsets.
    Segments of epochs that the log's leader epochs do not name are left out, and overlaps are cut; the output reports
    both.

    In a committed log, an object that no manifest names is an orphan, too: a job that runs, or one that died, has put
    it there. No reader reads it and nothing removes it. Remove it yourself when no job writes there.

    The exit code is 1 when something is missing, damaged, incomplete or an orphan, and 3 when something could not be
    read. Every reading command takes such a PATH itself (ls, dump, read, verify, stats, txn, explain, export, diff,
    groups, serve, replay and doctor; convert and salvage as their source). So does the library.

    Examples:
      seglog tiers /mnt/tier
      seglog tiers --long --local /var/lib/kafka/data /mnt/tier/kafka-tiered-storage
      seglog tiers --json --remote-metadata /var/lib/kafka/data /mnt/tier
    """
    from seglog.tiers.segments import Problem, Remark
    from seglog.tiers.survey import FOUND, Surveyed, survey
    from seglog_cli.views.tiers import show_tiers

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
