"""`seglog truncate`: the end of a log, cut off."""

from __future__ import annotations

from typing import Annotated

from seglog_cli.failures import UsageError
from seglog_cli.options import DryRun, Partition, command, flag, offset_option, time_option
from seglog_cli.session import Session


@command
def run(
    session: Session,
    partition: Partition,
    to_offset: Annotated[int | None, offset_option("--to-offset", "Drop this offset and everything behind it.")] = None,
    to_time: Annotated[
        int | None, time_option("--to-time", "Drop the first record of this time or later, and all behind it.")
    ] = None,
    at_damage: Annotated[bool, flag("--at-damage", "Drop the first damaged batch and all behind it.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Cuts off the end of a log, as a broker truncates a follower: whole batches, with indexes and checkpoints.

    A batch that holds the offset goes as a whole. Nothing happens when the log ends before the offset; an
    offset below the log start is refused. --at-damage does what a recovery would.

    Examples:
      seglog truncate orders-none-0 --to-offset 1000 --dry-run
      seglog truncate orders-none-0 --at-damage
    """
    from seglog.log.cutting import Cut, plan_cut
    from seglog_cli.views.cut import show_cut

    given = [to_offset is not None, to_time is not None, at_damage]
    if sum(given) != 1:
        raise UsageError("one of --to-offset, --to-time and --at-damage says where to cut")
    if at_damage:
        from seglog_cli.commands.recover import recover_path

        recover_path(session, partition, dry_run)
        return
    with session.open_log(partition, writable=not dry_run) as log:
        cut: Cut = plan_cut(log, to_offset, to_time)
        if not dry_run:
            cut.apply(log)
        show_cut(session.console, cut, dry_run)
