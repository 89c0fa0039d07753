"""`seglog retain`: the delete policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.options import (
    Check,
    Directories,
    DryRun,
    MetadataDirectory,
    OverridePolicy,
    command,
    duration_option,
    option,
    parsed,
    require_policy,
    size_option,
    takes_urls,
)
from seglog_cli.session import Session

if TYPE_CHECKING:
    from seglog.operations.retain import FreeSpace


@command
@takes_urls("paths", only_with=["dry_run", "check"])
def run(
    session: Session,
    paths: Directories,
    retention_ms: Annotated[
        int | None, duration_option("--retention-ms", "Delete segments that are older than this (-1: none).")
    ] = None,
    retention_bytes: Annotated[
        int | None,
        size_option(
            "--retention-bytes", "Delete the oldest segments while the others hold at least this much (-1: none)."
        ),
    ] = None,
    free: Annotated[
        str | None,
        option(
            "--free",
            "[+]SIZE",
            "Delete the oldest closed segments until SIZE is free on the disk (+SIZE: that much more).",
        ),
    ] = None,
    policy: Annotated[
        str | None, option("--policy", "delete|compact,delete", "The cleanup.policy of the named partitions.")
    ] = None,
    delay: Annotated[
        int | None,
        duration_option(
            "--delay", "With 0, remove the files at once; else they stay as .deleted (file.delete.delay.ms).", least=0
        ),
    ] = None,
    override_policy: OverridePolicy = False,
    metadata_dir: MetadataDirectory = None,
    dry_run: DryRun = False,
    check: Check = False,
) -> int:
    """Deletes old segments as a broker does: below the log start, by retention.bytes and by retention.ms.

    Each segment is shown with the reason why it is deleted or stays. A record with a timestamp in the future holds back
    everything after it; its offset is shown, with the time until which it does so. A rule counts only if it is given
    here or in the configuration. The cleanup policy of a topic is the one in the cluster's metadata; a topic listed
    there without one has the broker's default. A partition whose topic and policy are not known loses nothing by size
    or time unless it is named together with a rule. Nor does a tiered topic: a broker would delete in the tier what
    goes here. Where nothing says remote.storage.enable, a log start before the first segment, as a broker that stopped
    in order leaves it, shows such a topic.

    A rule that would delete what the cluster's own configuration keeps (--policy delete on a compacted topic, a
    --retention-ms below the topic's retention.ms) is refused; with --override-policy it is followed, and shown beside
    the plan. The metadata is __cluster_metadata-0 in the log directory, in another of the same broker's log directories
    beside it, or in --metadata-dir.

    --free is for a disk that is full: it takes whole closed segments, oldest records first, out of all partitions whose
    policy has delete, until that much is free on the log directory's file system, and removes their files at once. It
    takes nothing from Kafka's own topics and from tiered ones, and exits with 1 when it cannot free enough. Otherwise
    files are renamed to .deleted first, as a broker does, and removed when the log is next opened for writing, by a
    broker or by seglog; with --delay 0 at the end of the command.

    A log that was not closed properly is recovered first, which takes some room. Where the disk has none, the closed
    segments that go anyway go before that, at once: those that the rules, or --free, would take from the recovered log,
    which is worked out in memory. A log with damage is left as it is.

    Examples:
      seglog retain --dry-run --retention-ms 7d orders-none-0
      seglog retain --retention-bytes 10GiB --delay 0 orders-none-0
      seglog retain --free 50GB /var/lib/kafka/data
    """
    from seglog.operations.retain import POLICIES, Freed, RetentionFailure, RetentionRequest, retain
    from seglog.operations.workspace import Sources
    from seglog.scan.listing import resolve_paths
    from seglog_cli.views.recovery import ObstacleWarnings
    from seglog_cli.views.retention import show_freed, show_retained

    if dry_run or check:
        session.warn_of_runs(paths)
    targets = resolve_paths(session.fs, paths)
    space = None if free is None else _space(free)
    if space is not None and (retention_ms is not None or retention_bytes is not None or delay):
        raise UsageError(
            "--free removes files at once: do not give --retention-ms, --retention-bytes or --delay with it"
        )
    require_policy(policy, POLICIES, targets)
    chosen = {"retention.ms": retention_ms, "retention.bytes": retention_bytes, "cleanup.policy": policy}
    ruled = retention_ms is not None or retention_bytes is not None
    planned = dry_run or check
    request = RetentionRequest(planned, ruled, space, delay if space is None else 0)
    sources = Sources(chosen, override_policy, metadata_dir)
    failures, found, short, obstacles = [], 0, False, ObstacleWarnings(session)
    for outcome in retain(session.fs, targets, lambda path: session.config_of(path, sources), session.clock, request):
        if isinstance(outcome, RetentionFailure):
            failures.append(outcome)
            session.console.message(f"{outcome.directory.name}: left as it was: {outcome.error}")
        elif isinstance(outcome, Freed):
            show_freed(session.console, outcome, planned)
            short = short or not outcome.reached
        else:
            show_retained(session.console, outcome, planned)
            obstacles.tell(outcome.log_directory, outcome.plan.topic_partition)
            found += len(outcome.plan.removed)
    if planned and found:
        session.offer_to_apply()
    if failures:
        raise failures[-1].error
    return ExitCode.FOUND if short or (check and found) else ExitCode.DONE


def _space(text: str) -> FreeSpace:
    """What --free asks for."""
    from seglog.operations.retain import FreeSpace
    from seglog.units import parse_size

    size = parsed("--free", parse_size, text.removeprefix("+"))
    if size <= 0:
        raise UsageError(f"--free takes a size above 0, not {text}")
    return FreeSpace(size, more=text.startswith("+"))
