"""`seglog retain`: the delete policy."""

from __future__ import annotations

from typing import Annotated

import typer

from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.options import Check, DryRun, Paths, command, duration_option, one_of, size_option
from seglog_cli.session import Session

POLICIES = ("delete", "compact,delete", "delete,compact")


@command
def run(
    session: Session,
    paths: Paths,
    retention_ms: Annotated[
        int | None, duration_option("--retention-ms", "Delete segments older than this (-1: none).")
    ] = None,
    retention_bytes: Annotated[
        int | None, size_option("--retention-bytes", "Delete the oldest segments down to this size (-1: none).")
    ] = None,
    free: Annotated[
        int | None, size_option("--free", "Delete the oldest closed segments until this much is free.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option("--policy", metavar="delete|compact,delete", help="The cleanup policy of the partitions named."),
    ] = None,
    delay: Annotated[
        int | None,
        duration_option("--delay", "0 removes the files at once; else they stay as .deleted (file.delete.delay.ms)."),
    ] = None,
    dry_run: DryRun = False,
    check: Check = False,
) -> int:
    """Deletes old segments as a broker does: below the log start, over retention.bytes, older than retention.ms.

    Each segment is shown with the reason why it goes or stays; a record with a timestamp in the future, which
    holds back everything behind it, with its offset and with the time when it lets go. A rule that was
    given neither here nor in the configuration does not count, and of a partition whose cleanup.policy
    nobody stated, nothing goes by size or time unless it is named together with a rule.

    --free takes whole closed segments, oldest records first, out of all partitions whose policy has delete,
    and removes their files at once. Otherwise files are renamed to .deleted first, as a broker does, and
    removed when the log is next opened for writing, by a broker or by seglog; with --delay 0 at the end of
    the command.

    Examples:
      seglog retain --dry-run --retention-ms 7d orders-none-0
      seglog retain --retention-bytes 10GiB --delay 0 orders-none-0
      seglog retain --free 50GB /var/lib/kafka/data
    """
    from seglog.cleaner.manager import check_checkpoints
    from seglog.log.listing import TargetKind, log_directory_of, resolve_paths
    from seglog.log.retaining import RetentionFailure, RetentionRequest, retain
    from seglog_cli.views.retention import show_retained, show_shortage

    targets = resolve_paths(session.fs, paths)
    if free is not None and (retention_ms is not None or retention_bytes is not None or free <= 0):
        raise UsageError("--free takes a size above 0, and goes with neither --retention-ms nor --retention-bytes")
    if policy is not None:
        one_of("--policy", policy, POLICIES)
        if any(target.kind is TargetKind.LOG_DIRECTORY for target in targets):
            raise UsageError("--policy is for partitions that are named, not for a whole log directory")
    for log_directory in dict.fromkeys(log_directory_of(target) for target in targets):
        check_checkpoints(session.fs, log_directory)
    given = {"retention.ms": retention_ms, "retention.bytes": retention_bytes, "cleanup.policy": policy}
    chosen = {key: value for key, value in given.items() if value is not None}
    ruled = retention_ms is not None or retention_bytes is not None
    planned = dry_run or check
    request = RetentionRequest(planned, ruled, free, 0 if free is not None and delay is None else delay)
    failures, found, freed = [], 0, 0
    for outcome in retain(session.fs, targets, lambda path: session.config_of(path, chosen), session.clock, request):
        if isinstance(outcome, RetentionFailure):
            failures.append(outcome)
            session.console.message(f"{outcome.directory.name}: left as it was: {outcome.error}")
            continue
        show_retained(session.console, outcome, planned)
        found += len(outcome.plan.removed)
        freed += outcome.plan.removed_bytes
    if free is not None:
        show_shortage(session.console, free, freed, planned)
    if failures:
        raise failures[-1].error
    return ExitCode.FOUND if check and found else ExitCode.DONE
