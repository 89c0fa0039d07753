"""`seglog ls`: what lies where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from seglog_cli.options import Paths, command, flag, one_of, option, takes_urls
from seglog_cli.session import Session
from seglog_cli.tiering import Tiers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from seglog.inspect.overview import PartitionOverview


@command
@takes_urls("paths")
def run(
    session: Session,
    paths: Paths,
    tiers: Tiers,
    segments: Annotated[
        bool, flag("--long -l", "Show segments, too. A named partition and JSON lines show them anyway.")
    ] = False,
    sort: Annotated[
        str | None,
        option(
            "--sort",
            "name|size|segments|start|end|newest",
            "Sort names from a to z, or numbers and times from the largest down.",
        ),
    ] = None,
) -> int:
    """Lists partitions, segments and leftovers: sizes, offsets, times.

    The end offset is that of the next record; newest is the largest timestamp that the indexes and the end of the log
    show. Offsets of a Kafka 0.7 log are byte positions. Leftovers of a crash and files that are not Kafka's are listed
    by name. A segment stands for the partition that it lies in. The last line holds the sums. If there are several log
    directories, each row names its own. The order is that of the PATHs and names, or of --sort. A terminal of 120
    columns or more shows more than a file or a pipe gets.

    Examples:
      seglog ls /var/lib/kafka/data
      seglog ls --json orders-none-0
      seglog ls --long customers-0 payments-0
      seglog ls --sort size /var/lib/kafka/data
    """
    from seglog.inspect.overview import Unlisted, overview
    from seglog.scan.listing import TargetKind, resolve_paths
    from seglog_cli.unreadable import Unreadable
    from seglog_cli.views.overview import SORTED_BY, show_overviews

    if sort is not None:
        one_of("--sort", sort, tuple(SORTED_BY))
    session, paths = tiers.seen(session, paths)
    targets = resolve_paths(session.fs, paths)
    named = all(target.kind is not TargetKind.LOG_DIRECTORY for target in targets)
    unreadable = Unreadable.among(session, targets)

    def readable() -> Iterator[PartitionOverview]:
        for one in overview(session.fs, targets):
            if isinstance(one, Unlisted):
                with unreadable.passing_over(one.directory):
                    raise one.error
            else:
                yield one

    show_overviews(session.console, readable(), segments or named, sort, lambda: int(unreadable.exit_code))
    return tiers.code(unreadable.exit_code)
