"""`seglog convert`: copies a partition with another magic or codec."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from seglog.units import count_text
from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.options import Partition, codec_option, command, labelled, option
from seglog_cli.progress import bytes_text
from seglog_cli.session import Session
from seglog_cli.tiering import Tiers


@command(urls=["partition"])
def run(
    session: Session,
    partition: Partition,
    output: Annotated[
        Path, option("--output -o", "DIR", "The new partition directory, or a directory to create it in.")
    ],
    magic: Annotated[
        int, typer.Option("--magic", metavar="2|1|0", min=0, max=2, help="The record format (magic) to write.")
    ] = 2,
    codec: Annotated[
        str | None,
        codec_option("Compress batches with this codec (default: each batch keeps its own)."),
    ] = None,
    *,
    tiers: Tiers,
) -> int:
    """Copies a partition with another record format or codec.

    The source is only read. Offsets and timestamps stay the same. From magic 2 to magic 2, producers, transactions and
    leader epochs stay too.

    Magic 0 and 1 have no headers, transactions or zstd, so converting a log that has them is an error. Magic 0 has no
    timestamps. Damage is an error too: first copy the good batches with `salvage`.

    Segment sizes and index intervals come from the configuration (`--set segment.bytes=…`).

    Examples:
      seglog convert orders-none-0 -o converted --codec zstd
      seglog convert v0-none-0 -o new/v2-none-0 --magic 2 --codec lz4
    """
    from seglog.format.filenames import parse_topic_partition
    from seglog.model import Compression
    from seglog.operations.convert import ConvertOptions, convert_to, convertible
    from seglog.storage import links

    wanted = None if codec is None else labelled("--codec", codec, Compression)
    options = ConvertOptions(magic, wanted)
    looking, (partition,) = tiers.seen(session, [partition])
    listing = convertible(looking.fs, partition)
    name = links.name_of(partition)
    directory = output if parse_topic_partition(links.name_of(output)) is not None else output / name
    if parse_topic_partition(links.name_of(directory)) is None:
        raise UsageError(f"convert: {directory.name} is not of the form topic-partition; name it with -o")
    log_directory = session.resolved(directory).parent
    config_of = session.config_of(log_directory)
    with session.progress("convert", listing.size) as progress:
        done, end = convert_to(
            looking.fs, session.clock, listing, directory, options, config_of, progress.update, session.settled
        )
    record = {"type": "converted", "directory": str(directory), "log_end_offset": end}
    before = f"{count_text(done.batches_read, 'batch')} of {bytes_text(done.bytes_read)}"
    after = f"{done.batches_written} of {bytes_text(done.bytes_written)}"
    session.console.result(
        {**record, **dataclasses.asdict(done)}, f"{directory}: {before} became {after}; the log ends at offset {end}"
    )
    return tiers.code(ExitCode.DONE)
