"""`seglog explain`: why is it so?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seglog_cli.options import MetadataDirectory, Partition, command, flag
from seglog_cli.session import Session, Sources

if TYPE_CHECKING:
    from seglog.operations.clean import Outcome
    from seglog.operations.retain import TopicConfigs


@command
def run(
    session: Session,
    partition: Partition,
    advise: Annotated[bool, flag("--advise", "Say what would help, command by command.")] = False,
    quick: Annotated[bool, flag("--quick", "Read only indexes and headers: no dry run of the round.")] = False,
    metadata_dir: MetadataDirectory = None,
) -> None:
    """Explains why a partition is not cleaned, not deleted, or not readable past an offset.

    Each segment gets a verdict: clean, dirty, or what keeps it from being cleaned (the active segment, an
    open transaction, min.compaction.lag.ms), and what keeps it from being deleted. The rules are those that
    `clean` and `retain` apply, and a dry run of the round shows whether damage would end it; --quick leaves
    that out and reads only indexes and headers. With --advise, each command that cleans or deletes is
    tried in memory first, and shown only if it would do something. Nothing is changed.

    Examples:
      seglog explain customers-0
      seglog explain --advise --json payments-0
    """
    from seglog.log.directory import open_partition
    from seglog.operations.explain import explain
    from seglog.operations.retain import retention_config
    from seglog_cli.views.explanation import show_explanation

    sources = Sources(metadata_directory=metadata_dir)
    settings = session.config_of(session.resolved(partition).parent, sources)
    owner, log = open_partition(
        partition,
        fs=session.fs,
        clock=session.clock,
        config_of=lambda topic: retention_config(settings.resolve(topic)),
        writable=False,
    )
    with owner:
        resolved = settings.resolve(log.topic_partition.topic)
        trial = None if quick else Trial(session, partition, sources)
        found = explain(owner, log, resolved, session.clock.now_ms(), trial, _given(session, metadata_dir))
    show_explanation(session.console, found, advise)


def _given(session: Session, metadata_dir: Path | None) -> list[str]:
    """The options of this command that the commands which it advises need too."""
    options = [part for override in session.overrides for part in ("--set", override)]
    options += ["--config", str(session.config)] if session.config is not None else []
    return [*options, *(["--metadata-dir", str(metadata_dir)] if metadata_dir is not None else [])]


class Trial:
    """A dry run of `seglog clean` on a partition."""

    def __init__(self, session: Session, partition: Path, sources: Sources) -> None:
        self._session, self._partition, self._sources = session, partition, sources

    def __call__(
        self, *, roll: bool = False, expire: bool = False, chosen: Mapping[str, object] | None = None
    ) -> Outcome:
        from seglog.cleaner.options import CleanerOptions
        from seglog.errors import SeglogError
        from seglog.operations.clean import CleaningFailure, clean
        from seglog.scan.listing import Target, TargetKind

        session = self._session
        sources = replace(self._sources, chosen={**self._sources.chosen, **(chosen or {})})

        def topics_of(log_directory: Path) -> TopicConfigs:
            return session.config_of(log_directory, sources, tell=False)

        target, options = Target(self._partition, TargetKind.PARTITION), CleanerOptions(roll=roll, expire=expire)
        try:
            (outcome,) = clean(session.fs, [target], topics_of, session.clock, options, dry_run=True)
        except SeglogError as error:  # before the round: a checkpoint that cannot be read
            return CleaningFailure(self._partition, error)
        return outcome
