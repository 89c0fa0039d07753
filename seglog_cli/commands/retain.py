"""`seglog retain`: applies the delete policy."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

from seglog.units import count_text, format_time
from seglog_cli.console import Console
from seglog_cli.exit_codes import ExitCode
from seglog_cli.options import (
    Check,
    Directories,
    DryRun,
    MetadataDirectory,
    OverridePolicy,
    command,
    duration_option,
    option,
    size_option,
)
from seglog_cli.progress import bytes_text
from seglog_cli.session import Session
from seglog_cli.tables import Cell, Layout, time_cell
from seglog_cli.views.recovery import ObstacleWarnings
from seglog_cli.views.settings import contradiction_record

if TYPE_CHECKING:
    from seglog.log.retention import SegmentVerdict
    from seglog.operations.free_space import Freed
    from seglog.operations.retain import Retained

_HEADING = ("", "SEGMENT", "SIZE", "NEWEST", "WHY")


@command(urls=["paths"], only_with=["dry_run", "check"])
def run(
    session: Session,
    paths: Directories,
    retention_ms: Annotated[
        int | None, duration_option("--retention-ms", "Delete segments that are older than this (-1: none).")
    ] = None,
    retention_bytes: Annotated[
        int | None,
        size_option(
            "--retention-bytes", "Delete the oldest segments as long as the rest holds at least this much (-1: none)."
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
            "--delay",
            "With 0, remove the files at once; otherwise they stay as .deleted (file.delete.delay.ms).",
            least=0,
        ),
    ] = None,
    override_policy: OverridePolicy = False,
    metadata_dir: MetadataDirectory = None,
    dry_run: DryRun = False,
    check: Check = False,
) -> int:
    """Deletes old segments by the retention rules of a broker.

    Segments are deleted below the log start, by retention.bytes and by retention.ms. Each segment is shown with the
    reason why it is deleted or stays. --dry-run shows the same and deletes nothing.

    A rule counts only if it is given here or in the configuration. A topic's cleanup policy comes from the cluster's
    metadata: __cluster_metadata-0 in the log directory, in another log directory of the same broker beside it, or in
    --metadata-dir. A topic that the metadata lists without a policy has the broker's default. A partition whose topic
    and policy are not known loses nothing by size or time, unless you name it together with a rule.

    A record with a timestamp in the future holds back everything after it. The output shows its offset and how long it
    holds.

    A rule is refused if it would delete what the cluster's own configuration keeps: --policy delete on a compacted
    topic, or a --retention-ms below the topic's retention.ms. --override-policy follows it anyway, and the plan shows
    the contradiction.

    A tiered topic loses nothing by size or time either: a broker would also delete the data in the tier. Unless
    remote.storage.enable is known, a log start before the first segment, as a cleanly stopped broker leaves it, marks a
    topic as tiered.

    --free is for a full disk. It takes whole closed segments, oldest records first, from all partitions whose policy
    includes delete, until that much space is free on the log directory's file system, and removes their files at once.
    It takes nothing from Kafka's own topics or from tiered ones, and exits with 1 if it cannot free enough. Partitions
    that give nothing are counted by the reason; -v shows each. A log that
    is damaged only in its last segment, as by a full disk, gives its closed segments and stays unrecovered.

    Without --free, files are first renamed to .deleted, as in a broker. They are removed when a broker or seglog next
    opens the log for writing, or with --delay 0 at the end of the command.

    A log that was not closed properly is recovered first, which needs some room. If the disk has none, the closed
    segments that would go anyway are removed before that, at once: those that the rules or --free would take from the
    recovered log, as worked out in memory. A log with other damage is left as it is. Of several log directories on such
    a disk, those that can give room come first.

    Examples:
      seglog retain --dry-run --retention-ms 7d orders-none-0
      seglog retain --retention-bytes 10GiB --delay 0 orders-none-0
      seglog retain --free 50GB /var/lib/kafka/data
    """
    from seglog.operations.free_space import Freed
    from seglog.operations.retain import RetentionFailure, RetentionRequest, retain

    request = RetentionRequest(
        tuple(paths), retention_ms, retention_bytes, free, policy, delay, override_policy, metadata_dir
    )
    planned, work = dry_run or check, session.workspace("--config", "--set", "--now")
    failures, removed, short, obstacles = [], 0, False, ObstacleWarnings(session)
    spared = KeptWhole(session.console)
    for outcome in retain(work, request, dry_run=planned):
        if isinstance(outcome, RetentionFailure):
            failures.append(outcome)
            session.console.message(f"{outcome.directory.name}: left unchanged: {outcome.error}")
        elif isinstance(outcome, Freed):
            spared.show()
            show_freed(session.console, outcome, planned)
            short = short or not outcome.reached
        else:
            if free is None or not spared.takes(outcome):
                show_retained(session.console, outcome, planned, by_segment=free is None)
            obstacles.tell(outcome.log_directory, outcome.plan.topic_partition)
            removed += len(outcome.plan.removed)
    if planned and removed:
        session.offer_to_apply()
    if failures:
        raise failures[-1].error
    return ExitCode.FOUND if short or (check and removed) else ExitCode.DONE


class KeptWhole:
    """The partitions of a log directory from which `--free` takes nothing, counted by the reason."""

    def __init__(self, console: Console) -> None:
        self._console, self._reasons = console, Counter[str]()

    def takes(self, retained: Retained) -> bool:
        """True if the partition is counted here, not shown by itself."""
        plan = retained.plan
        if (
            not plan.empty
            or retained.leftovers.files
            or retained.left_deleted
            or retained.contradictions
            or retained.before_recovery
        ):
            return False
        if self._console.as_json or self._console.verbose:
            return False
        self._reasons[retained.note or (plan.segments[0].reason if plan.segments else "it has no segment")] += 1
        return True

    def show(self) -> None:
        """Shows the counts, and begins anew."""
        if self._reasons:
            count = count_text(self._reasons.total(), "partition")
            self._console.line(f"{count} {'give' if self._reasons.total() > 1 else 'gives'} nothing (-v names them):")
            for reason, number in self._reasons.most_common():
                self._console.line(f"  {number}: {reason}")
        self._reasons.clear()


def show_retained(console: Console, retained: Retained, dry_run: bool, *, by_segment: bool = True) -> None:
    """Shows a partition's plan, and what was done; with `by_segment` also the verdict on each segment.

    Otherwise a partition that loses nothing says why its oldest segment stays.
    """
    plan = retained.plan
    if console.as_json:
        console.json(retention_record(retained, dry_run))
        return
    if retained.note:
        console.warning(f"{plan.topic_partition}: {retained.note}")
    for contradiction in retained.contradictions:
        console.line(f"{plan.topic_partition}: this contradicts the cluster's configuration: {contradiction}")
    name = console.styled(str(plan.topic_partition), "strong")
    if plan.empty:
        why = f": {plan.segments[0].reason}" if plan.segments and not (by_segment or retained.note) else ""
        console.line(f"{name}: nothing to delete{why}")
    else:
        did = "would delete" if dry_run else "deleted"
        start = f"log start {plan.log_start_offset} to {plan.new_log_start_offset}"
        rolls = ", rolled first" if plan.rolls else ""
        count = len(plan.removed)
        console.line(f"{did} {count} of {len(plan.segments)} segments of {name}: "
                     f"{bytes_text(plan.removed_bytes)}, {start}{rolls}")  # fmt: skip
    if by_segment:
        rows = [_row(segment) for segment in plan.segments]
        console.table(_HEADING, rows, Layout(right=(2,), indent=2))
    if retained.before_recovery:
        early = count_text(retained.before_recovery, "segment")
        console.message(
            f"{plan.topic_partition}: {early} removed before the log was recovered: the disk had no room for recovery"
        )
    if retained.leftovers.files:
        files, size = count_text(retained.leftovers.files, "file"), bytes_text(retained.leftovers.size)
        console.line(f"{'would remove' if dry_run else 'removed'} {files} of an unfinished deletion in {name}: {size}")
    if retained.left_deleted:
        console.message(f"{plan.topic_partition}: {retained.left_deleted} files wait as .deleted; they are removed when"
                        " a broker or seglog opens the log for writing (--delay 0 removes at once)")  # fmt: skip


def retention_record(retained: Retained, dry_run: bool) -> dict[str, object]:
    plan = retained.plan
    return {
        "type": "retention",
        "partition": str(plan.topic_partition),
        "dry_run": dry_run,
        "log_start_offset_before": plan.log_start_offset,
        "log_start_offset": plan.new_log_start_offset,
        "log_end_offset": plan.log_end_offset,
        "high_watermark": plan.high_watermark,
        "rolls": plan.rolls,
        "deleted_segments": [segment.base_offset for segment in plan.removed],
        "deleted_bytes": plan.removed_bytes,
        "left_deleted_files": retained.left_deleted,
        "leftover_files": retained.leftovers.files,
        "leftover_bytes": retained.leftovers.size,
        "deleted_before_recovery": retained.before_recovery,
        "note": retained.note,
        "contradictions": [contradiction_record(found) for found in retained.contradictions],
        "segments": [segment_record(segment) for segment in plan.segments],
    }


def segment_record(segment: SegmentVerdict) -> dict[str, object]:
    """Returns a segment as part of the JSON line."""
    return {
        "base_offset": segment.base_offset,
        "next_offset": segment.next_offset,
        "size": segment.size,
        "active": segment.active,
        "largest_timestamp": segment.largest_timestamp,
        "from_modified": segment.from_modified,
        "removed": segment.removed,
        "rule": None if segment.rule is None else segment.rule.value,
        "reason": segment.reason,
        "deletable": segment.deletable_ms,
        "in_future": segment.in_future,
        "blocking_offset": segment.blocking_offset,
    }


def show_freed(console: Console, freed: Freed, dry_run: bool) -> None:
    """Shows what `--free` freed in a log directory, and whether it is as much as requested."""
    console.result(
        {
            "type": "freed",
            "log_directory": str(freed.log_directory),
            "dry_run": dry_run,
            "wanted_bytes": freed.wanted,
            "freed_bytes": freed.freed,
            "free_bytes": freed.free,
            "leftover_bytes": freed.left_over,
            "reached": freed.reached,
        },
        f"{freed.log_directory}: {_freed_text(freed, dry_run)}",
    )
    if not freed.reached:
        missing = bytes_text(freed.missing)
        console.warning(f"{freed.log_directory}: {missing} less than wanted: no more closed segments may go")


def _freed_text(freed: Freed, dry_run: bool) -> str:
    left_over = f"{bytes_text(freed.left_over)} of files of an unfinished deletion" if freed.left_over else ""
    did = "would be freed" if dry_run else "were freed"
    if freed.wanted:
        besides = f" besides {left_over}" if left_over else ""
        return f"{bytes_text(freed.freed)} {did}{besides}, {bytes_text(freed.free)} are free then"
    return f"{f'{left_over} {did}' if left_over else 'nothing to free'}: {bytes_text(freed.free)} are free"


def _row(segment: SegmentVerdict) -> tuple[str, ...]:
    newest = time_cell(segment.largest_timestamp)
    if segment.from_modified:
        newest = Cell(f"{newest} (mtime)", short=f"{newest.short} (mtime)")
    why = segment.reason
    if segment.in_future and segment.deletable_ms is not None:
        where = "" if segment.blocking_offset is None else f", offset {segment.blocking_offset}"
        why += f" (until {format_time(segment.deletable_ms)}{where})"
    return ("goes" if segment.removed else "stays", str(segment.base_offset), bytes_text(segment.size), newest, why)
