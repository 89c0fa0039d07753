"""`seglog clean`: one cleaning round; `spark clean` shares its options and its output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
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
    parsed,
    require_policy,
    size_option,
    takes_urls,
)
from seglog_cli.progress import bytes_text
from seglog_cli.session import Session
from seglog_cli.views.settings import contradiction_record

if TYPE_CHECKING:
    from seglog.cleaner.output import CleaningResult
    from seglog.configuration.precedence import Contradiction
    from seglog.model import TopicPartition
    from seglog.operations.clean import Cleaned, CleaningFailure, CleaningOrder, Outcome
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

    def order(
        self, session: Session, paths: list[Path], override_policy: bool, metadata_dir: Path | None
    ) -> CleaningOrder:
        """Returns the cleaning order; raises UsageError for options that contradict each other."""
        from seglog.cleaner.round import Strategy
        from seglog.kafka_version import KafkaVersion
        from seglog.operations.clean import POLICIES, CleaningOrder
        from seglog.operations.workspace import Sources
        from seglog.scan.listing import resolve_paths

        targets = resolve_paths(session.fs, paths)
        require_policy(self.policy, POLICIES, targets)
        chosen = {
            "cleanup.policy": self.policy,
            "log.cleaner.dedupe.buffer.size": self.dedupe_buffer_size,
            "log.cleaner.io.buffer.load.factor": self.load_factor,
        }
        sources = Sources(chosen, override_policy, metadata_dir)
        return CleaningOrder.of(
            targets,
            lambda path: session.config_of(path, sources),
            strategy=parsed("--strategy", Strategy.parse, self.strategy),
            roll=self.roll,
            expire=self.expire,
            threads=session.begin_threads(),
            kafka=parsed("--kafka-version", KafkaVersion.parse, self.kafka_version),
        )


@command
@takes_urls("paths", "metadata_dir", only_with=["dry_run", "check"])
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

    -v shows where the time went, and on a terminal the block that a broker logs. `seglog stats` shows past rounds.

    Examples:
      seglog clean --dry-run customers-0
      seglog clean --policy compact --roll customers-0
      seglog clean /var/lib/kafka/data
    """
    from seglog.operations.clean import clean
    from seglog.storage.metered_files import GatedFileSystem, ReadMeter

    order = rounds.order(session, paths, override_policy, metadata_dir)
    with session.progress("clean") as progress:
        shown = RoundProgress(progress)
        outcomes = clean(
            GatedFileSystem(session.fs, ReadMeter(shown.advance, progress.wait)),
            order.targets,
            order.settings.__getitem__,
            session.clock,
            order.options,
            dry_run=dry_run or check,
            begin=shown.begin,
        )
        done = show_outcomes(session, order, shown.cleared(outcomes))
    if not done:
        session.console.message("nothing is due for cleaning (-v says why, and so does seglog explain PARTITION)")
    if (dry_run or check) and any(cleaned.changes for cleaned in done):
        session.offer_to_apply()
    return ExitCode.FOUND if check and any(cleaned.changes for cleaned in done) else ExitCode.DONE


class RoundProgress:
    """Shows a round's steps by the bytes read.

    A step reads slightly more than announced: the start of a batch at the end of each chunk, headers, and indexes.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress, self._begun = progress, False

    def begin(self, topic_partition: TopicPartition, step: str, size: int) -> None:
        """Begins a step."""
        self._begun = True
        self._progress.begin(f"{topic_partition}: {step}", size)

    def advance(self, size: int) -> None:
        """Counts `size` bytes read. Bytes before the first step, from opening logs, do not count."""
        if self._begun:
            self._progress.advance(size)

    def cleared(self, outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
        """Yields the outcomes; the display is removed before each."""
        for outcome in outcomes:
            self._progress.clear()
            yield outcome


def show_outcomes(
    session: Session, order: CleaningOrder, outcomes: Iterable[Outcome], *, keep: bool = True
) -> list[Cleaned]:
    """Shows outcomes as they come; with `keep`, saves the statistics of the rounds. Returns the rounds.

    Raises the error of the last failure.
    """
    from seglog.configuration.keys import COMPACT
    from seglog.operations.clean import Cleaned, CleaningFailure, keep_history
    from seglog_cli.views.recovery import ObstacleWarnings

    failures: list[CleaningFailure] = []
    done: list[Cleaned] = []
    obstacles = ObstacleWarnings(session)
    try:
        for outcome in outcomes:
            if isinstance(outcome, Cleaned):
                topic_partition = outcome.result.topic_partition
                obstacles.tell(outcome.log_directory, topic_partition)
                config = order.settings[outcome.log_directory].resolve(topic_partition.topic)
                _show_cleaned(session.console, outcome, config.against(COMPACT))
                done.append(outcome)
            elif isinstance(outcome, CleaningFailure):
                session.console.message(f"{outcome.directory.name}: not cleaned, left unchanged")
                session.console.detail(str(outcome.error))
                failures.append(outcome)
            else:
                session.console.detail(f"{outcome.directory.name}: not cleaned: {outcome.reason}")
    finally:
        problem = keep_history(session.workspace(), done if keep else [])
        if problem:
            session.console.warning(problem)
    if failures:
        raise failures[-1].error
    return done


def _show_cleaned(console: Console, cleaned: Cleaned, contradictions: Sequence[Contradiction]) -> None:
    result = cleaned.result
    if console.as_json:
        console.json({**result.to_json(), "contradictions": [contradiction_record(found) for found in contradictions]})
        return
    for found in contradictions:
        console.line(f"{result.topic_partition}: this contradicts the cluster's configuration: {found}")
    if not result.segments_before:
        size = bytes_text(cleaned.active_bytes)
        active = f"; {size} are in the active segment (--roll)" if cleaned.active_bytes else ""
        why = f": {result.limit_reason}" if result.limit_reason else ""
        console.line(f"{result.topic_partition}: nothing to clean{why}{active}")
        return
    console.lines(summary_lines(console, result))
    _tell_phases(console, result)
    if console.screen is None or console.verbose:  # on a terminal it would say the same in other units
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
