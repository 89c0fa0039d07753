"""`seglog explain`: why is it so?"""

from __future__ import annotations

from typing import Annotated

from seglog_cli.options import MetadataDirectory, Partition, command, flag, takes_urls
from seglog_cli.session import Session
from seglog_cli.tiering import Tiers


@command
@takes_urls("partition", "metadata_dir")
def run(
    session: Session,
    partition: Partition,
    tiers: Tiers,
    advise: Annotated[bool, flag("--advise", "Name the commands that would help.")] = False,
    quick: Annotated[
        bool, flag("--quick", "Read only indexes and headers, and leave out the dry run of the round.")
    ] = False,
    metadata_dir: MetadataDirectory = None,
) -> None:
    """Explains why a partition is not cleaned, not deleted, or not readable past an offset.

    Each segment gets a verdict: clean, dirty, or what keeps it from being cleaned (the active segment, an open
    transaction, min.compaction.lag.ms), and what keeps it from being deleted. The rules are those that `clean` and
    `retain` apply, and a dry run of the round shows whether damage would end it; --quick leaves that out and reads only
    indexes and headers. Readers are held back by the high watermark, an open transaction, or an end that cannot be
    read; `seglog verify` finds damage before the end. With --advise, each command that cleans or deletes is tried in
    memory first, and shown only if it would do something. Nothing is changed. In JSON each reason has a code, such as
    OPEN_TRANSACTION, that stays when the sentence is written better.

    Examples:
      seglog explain customers-0
      seglog explain --advise --json payments-0
    """
    from seglog.operations.explain import explain_partition
    from seglog.operations.workspace import Sources
    from seglog_cli.views.explanation import show_explanation

    sources = Sources(metadata_directory=metadata_dir)
    session, (partition,) = tiers.seen(session, [partition])
    settings = session.config_of(session.resolved(partition).parent, sources)
    found = explain_partition(session.workspace("--now"), partition, settings, sources, quick=quick)
    show_explanation(session.console, found, advise)
