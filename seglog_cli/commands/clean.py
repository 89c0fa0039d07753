"""`seglog clean`: one cleaning round."""

from __future__ import annotations

from seglog_cli.cleaning import RoundProgress, Rounds, show_outcomes
from seglog_cli.exit_codes import ExitCode
from seglog_cli.options import Check, Directories, DryRun, MetadataDirectory, OverridePolicy, command, takes_urls
from seglog_cli.session import Session


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
    """Compacts logs as Kafka's log cleaner does: the last record of each key stays.

    A named partition is cleaned whatever its dirty ratio. In a log directory, those partitions are cleaned that a
    broker would clean now, the dirtiest first. The active segment is left alone unless --roll rolls it. A partition is
    cleaned only if its cleanup.policy is known to include compact: from --policy, the configuration, or the cluster's
    metadata (__cluster_metadata-0 in the log directory, in another of the same broker's log directories beside it, or
    in --metadata-dir). A policy that contradicts the metadata is an error. --override-policy cleans nevertheless, and
    the plan shows the contradiction. A damaged batch is never rewritten: the round stops with an error that names it.

    However many keys there are, one round cleans everything: a small --dedupe-buffer-size costs passes over the log,
    not results. --dry-run changes and locks nothing and shows what would be written, to the byte; --check does the same
    and exits with 1 when there is something to clean. --expire also removes what a broker would have removed by now,
    had it cleaned in time. -v shows where the time went. `seglog stats` shows past rounds.

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
