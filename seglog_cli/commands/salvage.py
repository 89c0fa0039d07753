"""`seglog salvage`: the good batches of a damaged log, in a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from seglog_cli.exit_codes import ExitCode
from seglog_cli.options import Paths, command, flag, option, size_option, takes_urls
from seglog_cli.session import Session
from seglog_cli.tiering import Tiers


@command
@takes_urls("paths")
def run(
    session: Session,
    paths: Paths,
    output: Annotated[
        Path,
        option(
            "--output -o", "DIR", "The new partition directory, or with --carve the directory of all that are found."
        ),
    ],
    tiers: Tiers,
    carve: Annotated[bool, flag("--carve", "Search every byte of every file, as in images of disks.")] = False,
    into_one: Annotated[bool, flag("--into-one", "Join all that is found into one log.")] = False,
    segment_bytes: Annotated[
        int | None, size_option("--segment-bytes", "The size of the new segments (segment.bytes).", least=1)
    ] = None,
) -> int:
    """Copies every good batch that it finds into a new, valid log; never writes to its sources.

    It looks for batches in segments, before and after damage, and in .swap, .deleted and .cleaned files; with --carve
    in any file, at any place. It sorts them by offset and takes one of several copies, from a live segment rather than
    a leftover. It rebuilds indexes, snapshots and leader epochs. The output shows what each file held and which offsets
    are missing; compaction leaves such gaps, too. If a file cannot be read, or not to its end, it copies what it could
    read of all files, names that file, and exits with 3.

    An image holds many logs, and no batch names its topic. They are distinguished by offsets that go on, leader epochs,
    producers and their sequences, codec, time, and how keys and values look; a batch that the file system has cut in
    two is put together. Several logs go to DIR/carved-0, DIR/carved-1 …, or under the name of the partition whose files
    are given too. A part that might belong to either of two logs stays apart, is marked, and makes the exit code 1:
    look at the records, and join what belongs together with --into-one, which makes one log of everything. Where
    offsets contradict each other, one batch is taken, and the others are counted.

    In a Kafka 0.7 log offsets are positions, so messages after damage get new ones.

    Examples:
      seglog salvage orders-0 -o /tmp/rescued/orders-0
      seglog salvage --carve /tmp/disk.img -o /tmp/rescued/logs
      seglog salvage --into-one /tmp/rescued/logs/carved-0 /tmp/rescued/logs/carved-3 -o /tmp/rescued/orders-0
    """
    from seglog.salvage.salvage import DEFAULT_SEGMENT_BYTES, SalvageOptions, salvage
    from seglog_cli.views.repair import show_salvage

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
