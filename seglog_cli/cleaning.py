"""What `clean` and `spark clean` share: their options, the request these make, and showing what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seglog_cli.options import OptionGroup, flag, option, parsed, require_policy, size_option
from seglog_cli.session import Session

if TYPE_CHECKING:
    from seglog.configuration.precedence import Contradiction
    from seglog.model import TopicPartition
    from seglog.operations.clean import Cleaned, CleaningOrder, Outcome
    from seglog_cli.progress import Progress


DedupeBufferSize = Annotated[
    int | None,
    size_option(
        "--dedupe-buffer-size", "Memory for the offset map, of all threads together (log.cleaner.dedupe.buffer.size)."
    ),
]
StrategyName = Annotated[
    str, option("--strategy", "offset|timestamp|header:NAME", "Which record of each key stays (KIP-280).")
]


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
    roll: Annotated[bool, flag("--roll", "Roll the active segment first, so that it is cleaned, too.")] = False
    expire: Annotated[
        bool, flag("--expire", "Remove at once the tombstones and markers that are older than delete.retention.ms.")
    ] = False

    def order(
        self, session: Session, paths: list[Path], override_policy: bool, metadata_dir: Path | None
    ) -> CleaningOrder:
        """The cleaning that is asked for; UsageError where options do not go together."""
        from seglog.cleaner.round import Strategy
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
        )


class RoundProgress:
    """Shows a round's steps by the bytes that are read. A step reads a little more than it was said to: the beginnings
    of batches that a chunk ends in, headers and indexes."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._begun = progress, False

    def begin(self, topic_partition: TopicPartition, step: str, size: int) -> None:
        """A step begins."""
        self._begun = True
        self._progress.begin(f"{topic_partition}: {step}", size)

    def advance(self, size: int) -> None:
        """`size` more bytes were read; before the first step, when logs are opened, they do not count."""
        if self._begun:
            self._progress.advance(size)

    def cleared(self, outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
        """The outcomes, with the display out of the way."""
        for outcome in outcomes:
            self._progress.clear()
            yield outcome


def show_outcomes(
    session: Session, order: CleaningOrder, outcomes: Iterable[Outcome], *, keep: bool = True
) -> list[Cleaned]:
    """Shows outcomes as they come and, with `keep`, keeps the rounds' history: of logs that were changed. Returns the
    rounds. Raises the last failure's error.
    """
    from seglog.configuration.keys import COMPACT
    from seglog.operations.clean import Cleaned, CleaningFailure, keep_history
    from seglog_cli.views.cleaning import show_outcome
    from seglog_cli.views.recovery import ObstacleWarnings

    failures: list[CleaningFailure] = []
    done: list[Cleaned] = []
    obstacles = ObstacleWarnings(session)
    try:
        for outcome in outcomes:
            contradictions: tuple[Contradiction, ...] = ()
            if isinstance(outcome, Cleaned):
                topic = outcome.result.topic_partition.topic
                contradictions = order.settings[outcome.log_directory].resolve(topic).against(COMPACT)
                obstacles.tell(outcome.log_directory, outcome.result.topic_partition)
            show_outcome(session.console, outcome, contradictions)
            if isinstance(outcome, CleaningFailure):
                failures.append(outcome)
            elif isinstance(outcome, Cleaned):
                done.append(outcome)
    finally:
        problem = keep_history(session.workspace(), done if keep else [])
        if problem:
            session.console.warning(problem)
    if failures:
        raise failures[-1].error
    return done
