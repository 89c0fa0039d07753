"""`seglog clean`: one cleaning round."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.options import Check, DryRun, command, flag, one_of, parsed, size_option
from seglog_cli.session import Session

if TYPE_CHECKING:
    from seglog.cleaner.options import CleanerOptions
    from seglog.config import CleanerConfig

POLICIES = ("compact", "compact,delete", "delete,compact")

Cleanable = Annotated[
    list[Path],
    typer.Argument(metavar="PATH", help="Partition directories, log directories.", show_default=False),
]


@command
def run(
    session: Session,
    paths: Cleanable,
    dry_run: DryRun = False,
    check: Check = False,
    policy: Annotated[
        str | None,
        typer.Option("--policy", metavar="compact|compact,delete", help="The cleanup policy of the partitions named."),
    ] = None,
    dedupe_buffer_size: Annotated[
        int | None, size_option("--dedupe-buffer-size", "Memory for the offset map (log.cleaner.dedupe.buffer.size).")
    ] = None,
    load_factor: Annotated[
        str | None,
        typer.Option("--load-factor", metavar="SHARE", help="How full the map may get (default 0.9)."),
    ] = None,
    strategy: Annotated[
        str,
        typer.Option(
            "--strategy", metavar="offset|timestamp|header:NAME", help="Which record of a key survives (KIP-280)."
        ),
    ] = "offset",
    roll: Annotated[bool, flag("--roll", "Roll the active segment first, so that it is cleaned too.")] = False,
    expire: Annotated[
        bool,
        flag("--expire", "Remove tombstones and markers now that are older than delete.retention.ms."),
    ] = False,
) -> int:
    """Compacts logs: of each key the last record stays, as Kafka's log cleaner does it.

    A partition that is named is cleaned whatever its dirty ratio; of a log directory, those partitions that
    a broker would clean now, the filthiest first. The active segment is left alone unless --roll rolls it.
    Refused is a partition whose cleanup.policy is not known to be compact: it comes from --policy, the
    configuration file, or the topic's configuration in the log directory's own __cluster_metadata-0. A
    damaged batch is never rewritten: the round is refused and names it.

    However many keys there are, one round cleans everything: a small --dedupe-buffer-size costs passes over
    the log, not results. --dry-run touches and locks nothing and shows what would be written, to the byte;
    --check does the same and exits with 1 when there is something to clean. --expire also removes what a
    broker would have removed by now, had it cleaned in time. With -v, where the time went. `seglog stats`
    shows past rounds.

    Examples:
      seglog clean --dry-run customers-0
      seglog clean --policy compact --roll customers-0
      seglog clean /var/lib/kafka/data
    """
    from seglog.cleaner.requested import Cleaned, CleaningFailure, clean
    from seglog.log.listing import TargetKind, resolve_paths
    from seglog_cli.views.cleaning import keep_history, show_outcome

    targets = resolve_paths(session.fs, paths)
    if policy is not None:
        one_of("--policy", policy, POLICIES)
        if any(target.kind is TargetKind.LOG_DIRECTORY for target in targets):
            raise UsageError("--policy is for partitions that are named, not for a whole log directory")
    chosen = _chosen(policy, dedupe_buffer_size, load_factor)
    topics = {path: session.config_of(path, chosen) for path in _log_directories(targets)}
    config = next(iter(topics.values())).resolve(None).cleaner
    options = _options(config, strategy, roll, expire, session.threads)
    planned = dry_run or check
    failures: list[CleaningFailure] = []
    done: list[Cleaned] = []
    try:
        for outcome in clean(session.fs, targets, topics.__getitem__, session.clock, options, dry_run=planned):
            show_outcome(session.console, outcome)
            if isinstance(outcome, CleaningFailure):
                failures.append(outcome)
            elif isinstance(outcome, Cleaned):
                done.append(outcome)
    finally:
        keep_history(session, done)
    if failures:
        raise failures[-1].error
    return ExitCode.FOUND if check and any(cleaned.changes for cleaned in done) else ExitCode.DONE


def _chosen(policy: str | None, dedupe_buffer_size: int | None, load_factor: str | None) -> dict[str, object]:
    given = {
        "cleanup.policy": policy,
        "log.cleaner.dedupe.buffer.size": dedupe_buffer_size,
        "log.cleaner.io.buffer.load.factor": load_factor,
    }
    return {key: value for key, value in given.items() if value is not None}


def _log_directories(targets: list) -> list[Path]:  # type: ignore[type-arg]
    from seglog.log.listing import log_directory_of

    return list(dict.fromkeys(log_directory_of(target) for target in targets))


def _options(config: CleanerConfig, strategy: str, roll: bool, expire: bool, threads: int) -> CleanerOptions:
    from seglog.cleaner.options import CleanerOptions
    from seglog.cleaner.strategy import Strategy

    return CleanerOptions(
        dedupe_buffer_bytes=config.dedupe_buffer_size,
        load_factor=config.io_buffer_load_factor,
        strategy=parsed("--strategy", Strategy.parse, strategy),
        roll=roll,
        expire=expire,
        jobs=threads,
    )
