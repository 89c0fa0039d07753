"""`seglog groups`: how far each group had read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Annotated

from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.options import Paths, command, flag, one_of, option, takes_urls, time_option
from seglog_cli.session import Session
from seglog_cli.tiering import Tiers

FORMATS = ("table", "json", "reset-csv")


@command
@takes_urls("paths")
def run(
    session: Session,
    paths: Paths,
    tiers: Tiers,
    group: Annotated[
        list[str] | None,
        option("--group", "NAME", "Show only this group, or those that match a pattern with * and ?; repeatable."),
    ] = None,
    at: Annotated[int | None, time_option("--at", "Show what was committed at that time.")] = None,
    output_format: Annotated[
        str | None, option("--format", "table|json|reset-csv", "The form of the output (default: table).")
    ] = None,
    as_csv: Annotated[bool, flag("--csv", "The same as --format reset-csv.")] = False,
) -> int:
    """Shows committed offsets, lag and members of consumer groups from __consumer_offsets on disk.

    PATH is a log directory, several of them, or single partitions of __consumer_offsets and __share_group_state. When a
    partition has several replicas, the most advanced one counts. Offsets that a transaction committed count if its
    marker is COMMIT. Lag is counted to the end of the longest log of a partition that is there, also with --at. A share
    group shows its start offset. A group's state is what a broker that loads the group would take it for.

    --csv writes what `kafka-consumer-groups --reset-offsets --from-file` takes: topic,partition,offset for one group,
    and group,topic,partition,offset for several. It leaves out share groups.

    Damage is passed over and reported; the exit code is then 3.

    Examples:
      seglog groups /var/lib/kafka/data
      seglog groups --group "app-*" --json /var/lib/kafka/data
      seglog groups --at 2026-11-21T05:03:44Z /var/lib/kafka/data
      seglog groups --csv /var/lib/kafka/data
    """
    from seglog.operations.groups import read_groups
    from seglog.scan.listing import resolve_paths
    from seglog_cli.views.groups import show_groups, show_reset_csv

    asked = {"reset-csv"} if as_csv else set()
    asked |= {one_of("--format", output_format, FORMATS)} if output_format is not None else set()
    asked |= {"json"} if session.as_json else set()
    if len(asked) > 1:
        raise UsageError(f"give one form: {' or '.join(sorted(asked))}")
    shown = asked.pop() if asked else "table"
    session, paths = tiers.seen(session, paths)
    report = read_groups(session.fs, resolve_paths(session.fs, paths), at_ms=at, wanted=_wanted(group))
    for sentence in (*report.problems, *report.notes):
        session.console.warning(sentence)
    for pattern in group or ():
        if not any(_wanted([pattern])(one.name) for one in report.groups):
            session.console.warning(f"--group {pattern}: no such group")
    if shown == "reset-csv":
        show_reset_csv(session.console, report.groups)
    else:
        show_groups(session.console, report.groups, as_json=shown == "json")
    return tiers.code(ExitCode.INCOMPLETE if report.problems else ExitCode.DONE)


def _wanted(patterns: Sequence[str] | None) -> Callable[[str], bool]:
    """Whether a name is one of those asked for, or fits one of the patterns; all do when none is asked for."""
    return lambda name: not patterns or any(name == each or fnmatchcase(name, each) for each in patterns)
