"""`seglog verify`: what is wrong with logs."""

from __future__ import annotations

from typing import Annotated

import typer

from seglog_cli.exit_codes import ExitCode
from seglog_cli.options import Paths, command, duration_option, flag, one_of
from seglog_cli.session import Session

LEVELS = ("header", "crc", "record", "index", "semantic")


@command
def run(
    session: Session,
    paths: Paths,
    level: Annotated[
        str, typer.Option("--level", metavar="header|crc|record|index|semantic", help="How deep to look.")
    ] = "semantic",
    live: Annotated[bool, flag("--live", "A broker is writing: a torn tail is no damage.")] = False,
    sample: Annotated[
        str | None, typer.Option("--sample", metavar="SHARE", help="Verify this part only, such as 5%.")
    ] = None,
    max_duration: Annotated[int | None, duration_option("--max-duration", "Stop after this long.")] = None,
) -> int:
    """Verifies logs and goes on past damage; changes, locks and creates nothing.

    Levels, each with those before it: header (framing, offsets), crc (checksums), record (every record's
    structure), index (offset and time indexes), semantic (transactions, producers, epochs, checkpoints).
    Gaps that compaction leaves are no errors. Each finding names place, offsets, what a broker would make
    of it, and what mends it; the codes are in seglog-findings(7). The exit code is 1 when there is an error
    or a warning, 3 when some input could not be read or time ran out.

    Examples:
      seglog verify orders-none-0
      seglog verify --json --level crc /var/lib/kafka/data
      seglog verify --live --sample 5% --max-duration 10m /var/lib/kafka/data
    """
    from seglog.diagnosis.verify import Level, Verification, VerifyOptions
    from seglog.log.listing import resolve_paths
    from seglog.units import parse_share
    from seglog_cli.options import parsed
    from seglog_cli.views.findings import show_finding, show_summary

    options = VerifyOptions(
        level=Level[one_of("--level", level, LEVELS).upper()],
        live=live,
        jobs=session.threads,
        sample=None if sample is None else parsed("--sample", parse_share, sample),
        max_duration_s=None if max_duration is None else max_duration / 1000,
    )
    with session.progress("verify") as progress:
        targets = resolve_paths(session.fs, paths)
        verification = Verification(session.fs, targets, options, session.clock, progress.update)
        for finding in verification:
            progress.clear()
            show_finding(session.console, finding)
    summary = verification.summary
    code = ExitCode.FOUND if summary.damaged else ExitCode.DONE if summary.complete else ExitCode.INCOMPLETE
    if sample is not None and not summary.damaged:
        code = ExitCode.DONE
    show_summary(session.console, summary, int(code))
    return code
