"""`seglog ls`: what lies where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from seglog_cli.options import Paths, command, flag
from seglog_cli.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from seglog.inspect.overview import PartitionOverview


@command
def run(
    session: Session,
    paths: Paths,
    segments: Annotated[bool, flag("--long -l", "Segments too; a partition that is named shows them anyway.")] = False,
) -> int:
    """Lists partitions, segments and leftovers: sizes, offsets, times.

    The end offset is where the next record would go; newest is the largest timestamp that the indexes and
    the end of the log tell. Offsets of a Kafka 0.7 log are byte positions. Leftovers of a crash and files
    that are not Kafka's are listed by name.

    Examples:
      seglog ls /var/lib/kafka/data
      seglog ls --json orders-none-0
      seglog ls --long customers-0 payments-0
    """
    from seglog.inspect.overview import Unlisted, overview
    from seglog.scan.listing import TargetKind, resolve_paths
    from seglog_cli.unreadable import Unreadable
    from seglog_cli.views.overview import show_overviews

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

    show_overviews(session.console, readable(), segments or named)
    return unreadable.exit_code
