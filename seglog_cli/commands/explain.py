"""`seglog explain`: why is it so?"""

from __future__ import annotations

from typing import Annotated

from seglog_cli.options import MetadataDirectory, Partition, command, flag
from seglog_cli.session import Session, Sources


@command
def run(
    session: Session,
    partition: Partition,
    advise: Annotated[bool, flag("--advise", "Say what would help, command by command.")] = False,
    metadata_dir: MetadataDirectory = None,
) -> None:
    """Explains why a partition is not cleaned, not deleted, or not readable past an offset.

    Each segment gets a verdict: clean, dirty, or what keeps it from being cleaned (the active segment, an
    open transaction, min.compaction.lag.ms), and what keeps it from being deleted. Looks and changes
    nothing; the rules are those that `clean` and `retain` apply.

    Examples:
      seglog explain customers-0
      seglog explain --advise --json payments-0
    """
    from seglog.cleaner.explain import explain
    from seglog.log.directory import open_partition
    from seglog.log.retaining import stated_retention
    from seglog_cli.views.explanation import show_explanation

    settings = session.config_of(partition.resolve().parent, Sources(metadata_directory=metadata_dir))
    owner, log = open_partition(
        partition,
        fs=session.fs,
        clock=session.clock,
        config_of=lambda topic: stated_retention(settings.resolve(topic)),
        writable=False,
    )
    with owner:
        resolved = settings.resolve(log.topic_partition.topic)
        found = explain(owner, log, resolved, session.clock.now_ms())
    show_explanation(session.console, found, advise)
