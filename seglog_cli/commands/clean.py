"""`seglog clean`: one cleaning round; `spark clean` shares its options and its output."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seglog.units import count_text
from seglog_cli.console import Console
from seglog_cli.exit_codes import ExitCode
from seglog_cli.options import (
    Check,
    Directories,
    DryRun,
    MetadataDirectory,
    OptionGroup,
    OverridePolicy,
    command,
    flag,
    option,
    size_option,
)
from seglog_cli.progress import bytes_text
from seglog_cli.session import Session
from seglog_cli.views.recovery import ObstacleWarnings
from seglog_cli.views.settings import contradiction_record

if TYPE_CHECKING:
    from seglog.cleaner.output import CleaningResult
    from seglog.model import TopicPartition
    from seglog.operations.clean import Cleaned, CleaningFailure, CleaningRequest, Outcome
    from seglog.operations.workspace import Workspace
    from seglog_cli.progress import Progress

DedupeBufferSize = Annotated[
    int | None,
    size_option(
        "--dedupe-buffer-size", "Memory for the offset maps of all threads together (log.cleaner.dedupe.buffer.size)."
    ),
]
StrategyName = Annotated[
    str, option("--strategy", "offset|timestamp|header:NAME", "Which record of each key stays (KIP-280).")
]
WrittenKafka = Annotated[
    str,
    option(
        "--kafka-version",
        "VERSION",
        "The Kafka whose files a round writes: 4.4 keeps fewer empty batches (default: 4.3).",
    ),
]
# The fate of records and batches: singular, plural.
_REASONS = {
    "records_kept": ("record kept: the newest of its key", "records kept: the newest of their key"),
    "tombstones_kept": (
        "tombstone kept: delete.retention.ms has not passed since it was first cleaned",
        "tombstones kept: delete.retention.ms has not passed since they were first cleaned",
    ),
    "control_records_kept": ("transaction marker kept", "transaction markers kept"),
    "records_superseded": ("record dropped: a later one has its key", "records dropped: a later one has their key"),
    "records_without_key": ("record dropped: without a key", "records dropped: without a key"),
    "tombstones_expired": ("tombstone dropped: expired", "tombstones dropped: expired"),
    "records_discarded": (
        "record dropped: aborted transactions and expired markers",
        "records dropped: aborted transactions and expired markers",
    ),
    "batches_discarded": ("batch dropped whole", "batches dropped whole"),
    "batches_verbatim": ("batch copied unchanged", "batches copied unchanged"),
    "batches_rebuilt": ("batch rewritten", "batches rewritten"),
    "batches_emptied": (
        "batch kept empty: the last of a producer or of the range",
        "batches kept empty: the last of a producer or of the range",
    ),
    "delete_horizons_set": ("delete horizon set", "delete horizons set"),
}


@dataclass(frozen=True)
class Rounds(OptionGroup):
    """How logs are cleaned."""

    policy: Annotated[
        str | None, option("--policy", "compact|compact,delete", "The cleanup.policy of the named partitions.")
    ] = None
    dedupe_buffer_size: DedupeBufferSize = None
    load_factor: Annotated[
        str | None, option("--load-factor", "SHARE", "How full the offset map may get (default: 0.9).")
    ] = None
    strategy: StrategyName = "offset"
    roll: Annotated[bool, flag("--roll", "Roll the active segment first, so that it is cleaned too.")] = False
    expire: Annotated[
        bool, flag("--expire", "Remove tombstones and markers that are older than delete.retention.ms at once.")
    ] = False
    kafka_version: WrittenKafka = "4.3"

    def request(self, paths: list[Path], override_policy: bool, metadata_dir: Path | None) -> CleaningRequest:
        from seglog.operations.clean import CleaningRequest

        return CleaningRequest(
            tuple(paths), override_policy=override_policy, metadata_directory=metadata_dir, **vars(self)
        )


@command(urls=["paths", "metadata_dir"], only_with=["dry_run", "check"])
def run(
    session: Session,
    paths: Directories,
    dry_run: DryRun = False,
    check: Check = False,
    *,
    rounds: Rounds,
    override_policy: OverridePolicy = False,
    metadata_dir: MetadataDirectory = None,
) -> int:
    """Compacts logs: the last record of each key stays.

    A round does what Kafka's log cleaner does. A partition that you name is cleaned whatever its dirty ratio. In a log
    directory, the command cleans the partitions that a broker would clean now, the dirtiest first. The active segment
    is left alone; --roll rolls it first.

    --dry-run shows what would be written, to the byte, and changes and locks nothing. --check does the same and exits
    with 1 if there is something to clean.

    A partition is cleaned only if its cleanup.policy is known to include compact. The policy comes from --policy, from
    the configuration, or from the cluster's metadata: __cluster_metadata-0 in the log directory, in another log
    directory of the same broker beside it, or in --metadata-dir. A policy that contradicts the metadata is an error;
    --override-policy cleans anyway, and the plan shows the contradiction.

    A damaged batch is never rewritten: the round stops with an error that names it.

    One round cleans everything, however many keys there are. A small --dedupe-buffer-size costs passes over the log,
    not results. --expire also removes what a broker would have removed by now if it had cleaned in time.

    -v shows where the time went, and the block that a broker logs. `seglog stats` shows past rounds.

    Examples:
      seglog clean --dry-run customers-0
      seglog clean --policy compact --roll customers-0
      seglog clean /var/lib/kafka/data
    """
    from seglog.operations.clean import clean
    from seglog.storage.metered_files import GatedFileSystem, ReadMeter

    request = rounds.request(paths, override_policy, metadata_dir)
    with session.progress("clean") as progress:
        steps = RoundProgress(progress)
        work = cleaning_workspace(session)
        work = replace(work, fs=GatedFileSystem(work.fs, ReadMeter(steps.advance, progress.wait)))
        view = OutcomesShown(session)
        with closing(clean(work, request, dry_run=dry_run or check, begin=steps.begin)) as outcomes:
            for outcome in outcomes:
                progress.clear()
                view.show(outcome)
    view.raise_failure()
    if not view.rounds:
        session.console.message("nothing is due for cleaning (-v says why, and so does seglog explain PARTITION)")
    if (dry_run or check) and view.changes:
        session.offer_to_apply()
    return ExitCode.FOUND if check and view.changes else ExitCode.DONE


def cleaning_workspace(session: Session) -> Workspace:
    """Returns the workspace of a cleaning, which uses all common options."""
    session.begin_threads()
    return session.workspace("--config", "--set", "--now")


class RoundProgress:
    """Shows a round's steps by the bytes read.

    A step reads slightly more than announced: the start of a batch at the end of each chunk, headers, and indexes.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress, self._begun = progress, False

    def begin(self, topic_partition: TopicPartition, step: str, size: int) -> None:
        self._begun = True
        self._progress.begin(f"{topic_partition}: {step}", size)

    def advance(self, size: int) -> None:
        """Counts `size` bytes read. Bytes before the first step, from opening logs, do not count."""
        if self._begun:
            self._progress.advance(size)


class OutcomesShown:
    """Shows the outcomes of a cleaning; `rounds` counts the cleaned partitions, `changes` tells if any changes."""

    def __init__(self, session: Session) -> None:
        self._console, self._obstacles = session.console, ObstacleWarnings(session)
        self._failures: list[CleaningFailure] = []
        self.rounds, self.changes = 0, False

    def show(self, outcome: Outcome) -> None:
        from seglog.operations.clean import Cleaned, CleaningFailure

        if isinstance(outcome, Cleaned):
            self._obstacles.tell(outcome.log_directory, outcome.result.topic_partition)
            _show_cleaned(self._console, outcome)
            self.rounds, self.changes = self.rounds + 1, self.changes or outcome.changes
        elif isinstance(outcome, CleaningFailure):
            self._console.message(f"{outcome.directory.name}: not cleaned, left unchanged")
            self._console.detail(str(outcome.error))
            self._failures.append(outcome)
        else:
            self._console.detail(f"{outcome.directory.name}: not cleaned: {outcome.reason}")

    def raise_failure(self) -> None:
        """Raises the error of the last partition that could not be cleaned, if there is one."""
        if self._failures:
            raise self._failures[-1].error


def _show_cleaned(console: Console, cleaned: Cleaned) -> None:
    result = cleaned.result
    if console.as_json:
        against = list(map(contradiction_record, cleaned.contradictions))
        console.json({**result.to_json(), "contradictions": against, "broker_fails": cleaned.broker_fails or None})
        return
    for contradiction in cleaned.contradictions:
        console.line(f"{result.topic_partition}: this contradicts the cluster's configuration: {contradiction}")
    if not result.segments_before:
        size = bytes_text(cleaned.active_bytes)
        active = f"; {size} are in the active segment (--roll)" if cleaned.active_bytes else ""
        why = f": {result.limit_reason}" if result.limit_reason else ""
        console.line(f"{result.topic_partition}: nothing to clean{why}{active}")
        return
    console.lines(summary_lines(console, result))
    if cleaned.broker_fails:
        console.line(f"  {cleaned.broker_fails}")
    _tell_phases(console, result)
    if console.verbose:  # it says the same in other units
        console.block(result.text().rstrip("\n"))


def summary_lines(console: Console, result: CleaningResult) -> list[str]:
    """Returns what was or would be written, with a count for each reason."""
    stats = result.stats
    before = sum(size for _, size in result.segments_before)
    did = "would clean" if result.dry_run else "cleaned"
    name = console.styled(str(result.topic_partition), "strong")
    segments = f"{count_text(len(result.segments_before), 'segment')} to {len(result.segments_after)}"
    lines = [f"{did} {name}: {bytes_text(before)} to {bytes_text(result.bytes_written)}, {segments}"]
    for reason, count in stats.reasons().items():
        if count:
            one, several = _REASONS[reason]
            lines.append(f"  {count:>12,} {one if count == 1 else several}")
    passes = count_text(stats.index_passes, "index pass")
    utilization = f"{100 * result.buffer_utilization:.1f}% of the buffer's {result.map_slots:,} slots"
    lines.append(f"  {count_text(stats.map_entries, 'key', '>12,')} indexed in {passes}, {utilization}")
    if result.limit_reason:
        lines.append(f"  up to offset {result.end_offset}: {result.limit_reason}")
    return lines


def _tell_phases(console: Console, result: CleaningResult) -> None:
    """With -v, shows where the time went, over all threads, and how much the copy did not read."""
    from seglog.cleaner.output import PHASES

    phases = result.stats.phases
    if phases:
        spent = ", ".join(f"{name} {phases[name]:.3f} s" for name in PHASES if name in phases)
        console.detail(f"{result.topic_partition}: time went to: {spent} (of {result.stats.seconds:.3f} s)")
    if result.stats.bytes_unread:
        dead, all_ = bytes_text(result.stats.bytes_unread), bytes_text(result.stats.bytes_read)
        console.detail(f"{result.topic_partition}: {dead} of {all_} were read once, because no record in them survives")
