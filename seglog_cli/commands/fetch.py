"""`seglog fetch`: copies partitions from tiered storage into a log directory."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seglog.errors import RefusedError
from seglog.units import count_text
from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.options import argument, command, flag, option
from seglog_cli.progress import bytes_text
from seglog_cli.session import Session
from seglog_cli.tiering import Tiers

if TYPE_CHECKING:
    from seglog_stores.operations.fetch import Fetched


@command(urls=["sources"])
def run(
    session: Session,
    sources: Annotated[
        list[Path],
        argument(
            "SOURCE", "Partitions or topics in tiered storage, a whole tier, partition directories, or log directories."
        ),
    ],
    output: Annotated[Path, option("--output -o", "DIR", "LOGDIR/TOPIC-NUMBER, or a log directory for several.")],
    allow_gaps: Annotated[
        bool,
        flag("--allow-gaps", "Also fetch partitions that lack offsets or segments. Damaged batches stay an error."),
    ] = False,
    *,
    tiers: Tiers,
) -> int:
    """Copies partitions from tiered storage into a log directory.

    A broker can start on the result. It has every file that a broker keeps: logs, indexes, producer snapshots and
    leader epochs. Each batch is checked on the way: its checksum, and that no offset is missing. Damage is an error.
    Missing offsets are an error too, unless --allow-gaps is given. Transaction indexes are compared with the records:
    one that is wrong at the source, or is missing there, is made anew, and a warning says so.

    If a fetch is killed, run it again. It continues where it stopped, keeps partitions that are complete, and fetches
    again what has changed at the source meanwhile. A file gets its name when it is complete and on the disk; a
    partition gets its name when all of its files have theirs. If DIR holds anything else, the fetch is refused.

    --local also takes the local part of each partition, and prefers it where both have an offset.

    partition.metadata is not created. It holds the topic's id, and a broker sets aside a partition that lacks it. Copy
    that file from another replica, or give DIR to `seglog transplant`, which does all that another cluster needs.

    Examples:
      seglog fetch /mnt/tier/orders-AAECAwQFBgcICQoLDA0ODw/0 -o /var/lib/kafka/data/orders-0
      seglog fetch /mnt/tier --tier-key key1=private.pem -o restored
      seglog fetch /mnt/tier/kafka-tiered-storage --local /var/lib/kafka/data -o restored
    """
    from seglog_stores.operations.fetch import FetchOptions, fetch, fetch_targets

    looking, paths = tiers.seen(session, sources, warn_of_runs=False)  # the fetch itself refuses
    try:
        wanted = fetch_targets(looking.fs, paths, output)
    except ValueError as error:
        raise UsageError(f"fetch: {error}") from error
    for source, _ in wanted:
        looking.fs.list(source)  # reads the tier's listing, which reports what it lacks
    if tiers.grave and not allow_gaps:
        raise RefusedError(f"{tiers.grave}: nothing was fetched; --allow-gaps fetches the rest")
    for source, target in wanted:
        with session.progress(f"fetch {target.name}") as progress:
            done = fetch(
                looking.fs, source, session.fs, target, FetchOptions(allow_gaps), progress.update, session.settled
            )
        for sentence in done.gaps:
            session.console.warning(sentence)
            tiers.lacking = True
        for sentence in done.made_anew:
            session.console.warning(sentence)
        _show(session, done)
    return ExitCode.INCOMPLETE if tiers.grave or tiers.lacking else ExitCode.DONE


def _show(session: Session, done: Fetched) -> None:
    lists = {"gaps": list(done.gaps), "made_anew": list(done.made_anew)}
    kept = f", {count_text(done.kept, 'file')} already there" if done.kept else ""
    what = f"{count_text(done.segments, 'segment')} from offset {done.first_offset} on"
    session.console.result(
        {"type": "fetched", **asdict(done), "target": str(done.target), **lists},
        f"{done.target}: {what}; {count_text(done.files, 'file')}, {bytes_text(done.bytes)} fetched{kept}",
    )
