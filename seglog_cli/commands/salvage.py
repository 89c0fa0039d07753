"""`seglog salvage`: the good batches of a damaged log, in a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seglog_cli.options import Paths, command, flag, size_option
from seglog_cli.session import Session


@command
def run(
    session: Session,
    paths: Paths,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="DIR", help="The new partition directory.", show_default=False),
    ],
    carve: Annotated[bool, flag("--carve", "Search every byte of every file, such as images of disks.")] = False,
    segment_bytes: Annotated[int | None, size_option("--segment-bytes", "Size of the new segments.")] = None,
) -> None:
    """Copies every good batch that can be found into a new and valid log; never writes to where it reads.

    Batches are looked for in segments, before and behind damage, and in .swap, .deleted and .cleaned files;
    with --carve in any file, at any place. They are sorted by offset; of copies one is taken, from a live
    segment rather than a leftover. Indexes, snapshots and leader epochs are made anew. What was found where,
    and which offsets nobody has, is shown: compaction leaves such gaps, too.

    Of a Kafka 0.7 log, whose offsets are positions, the messages behind damage get new ones.

    Examples:
      seglog salvage orders-0 -o /tmp/rescued/orders-0
      seglog salvage --carve /tmp/disk.img -o /tmp/rescued/orders-0
    """
    from seglog.diagnosis.salvage import DEFAULT_SEGMENT_BYTES, SalvageOptions, salvage
    from seglog_cli.views.repair import show_salvage

    options = SalvageOptions(carve, DEFAULT_SEGMENT_BYTES if segment_bytes is None else segment_bytes)
    with session.progress("salvage") as progress:
        report = salvage(session.fs, session.clock, paths, output, options, progress.advance)
    show_salvage(session.console, report)
