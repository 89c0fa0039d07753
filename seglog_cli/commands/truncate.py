"""`seglog truncate`: the end of a log, cut off."""

from __future__ import annotations

from typing import Annotated

from seglog_cli.failures import UsageError
from seglog_cli.options import (
    DryRun,
    NoKeep,
    Partition,
    Quarantine,
    check_keeping,
    command,
    flag,
    offset_option,
    time_option,
)
from seglog_cli.quarantines import remember_run
from seglog_cli.session import Session


@command
def run(
    session: Session,
    partition: Partition,
    to_offset: Annotated[int | None, offset_option("--to-offset", "Drop this offset and everything after it.")] = None,
    to_time: Annotated[
        int | None, time_option("--to-time", "Drop the first record of this time or later, and everything after it.")
    ] = None,
    at_damage: Annotated[bool, flag("--at-damage", "Drop the first damaged batch and everything after it.")] = False,
    dry_run: DryRun = False,
    no_keep: NoKeep = False,
    quarantine: Quarantine = None,
) -> None:
    """Cuts off the end of a log as a broker truncates a follower: whole batches, indexes and checkpoints.

    One of --to-offset, --to-time and --at-damage says where. A batch that holds the offset is cut as a whole, and the
    log then ends before it; the output says what was cut. Nothing is cut when the log ends before the offset. An offset
    below the log start is an error. --at-damage does what a recovery of the whole log would do. A log that was not
    closed properly is recovered first, whether or not there is anything to cut.

    What is cut goes to the quarantine first, and `seglog undo` gives it back; with --no-keep it is gone.

    Examples:
      seglog truncate orders-none-0 --to-offset 1000 --dry-run
      seglog truncate orders-none-0 --at-damage
    """
    from seglog.operations.keeping import Keeper
    from seglog_cli.views.cut import show_cut
    from seglog_cli.views.recovery import tell_recovery

    check_keeping(no_keep, quarantine)
    given = [to_offset is not None, to_time is not None, at_damage]
    if sum(given) != 1:
        raise UsageError("give one of --to-offset, --to-time and --at-damage: it says where to cut")
    if at_damage:
        from seglog.scan.listing import require_partition
        from seglog_cli.commands.recover import recover_path

        require_partition(session.fs, partition)
        recover_path(session, partition, dry_run, 0, not no_keep, quarantine, "truncate")
        return
    config_of = session.config_of(session.resolved(partition).parent)
    keeper = Keeper(session.fs, session.clock, config_of, "truncate", quarantine, session.settled)
    done = keeper.truncate(partition, to_offset, to_time, dry_run=dry_run, keep=not no_keep)
    tell_recovery(session, done.recovery)
    if done.run is not None:
        remember_run(session, done.run.folder)
    show_cut(session.console, done.cut, dry_run, done.run)
