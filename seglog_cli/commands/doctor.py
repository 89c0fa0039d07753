"""`seglog doctor`: would a broker start on this log directory, and what would it do to the data?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from seglog_cli.exit_codes import ExitCode
from seglog_cli.grouping import DiagnosesShown, Grouped
from seglog_cli.options import argument, command, flag, takes_urls
from seglog_cli.session import Session
from seglog_cli.tiering import Tiers

_STEPS_SHOWN = 8


@command
@takes_urls("log_directories")
def run(
    session: Session,
    log_directories: Annotated[list[Path], argument("LOGDIR", "Log directories: all that one broker has in log.dirs.")],
    shown: DiagnosesShown,
    tiers: Tiers,
    quick: Annotated[
        bool, flag("--quick", "Read only names, indexes, log ends, and what recovery would read.")
    ] = False,
) -> int:
    """Says whether a Kafka 4.3 broker would start here, and what it would do to the data.

    Each row is a blocker (the broker does not start, or takes the directory offline), a danger (it cuts, deletes or
    serves what it should not, or one of its threads dies) or a note (it settles that by itself). Each names the place,
    what the broker does, and the command that mends it. A broker that finds the clean-shutdown marker trusts what is
    there. Without the marker it recovers; what that would cost is tried in memory. Nothing is changed, created or
    locked.

    The rows are grouped by code and counted, the gravest first. Of each code the first three are shown; --all shows
    every one. The exit code is 1 when there is a blocker or a danger; with -q it alone tells. Give all directories of a
    broker at once, so that what lies in two of them is found.

    Examples:
      seglog doctor /var/lib/kafka/data
      seglog doctor --json --quick /disk1/kafka /disk2/kafka
    """
    from seglog.prognosis.doctor import Doctor
    from seglog_cli.views.doctor import look, show_doctor_summary

    session, log_directories = tiers.seen(session, log_directories, warn_of_runs=False)
    mends: dict[str, str] = {}
    rows = Grouped(session, look(session.console), shown)
    with rows, session.progress("doctor", unit="partitions") as progress:
        doctor = Doctor(
            session.fs,
            log_directories,
            session.clock,
            session.config_of,
            deep=not quick,
            progress=progress.update,
        )
        for row in doctor:
            progress.clear()
            rows.add(row)
            if row.command and row.command not in mends:
                mends[row.command] = f"{row.gravity.value} {row.code}"
    summary = doctor.summary
    code = ExitCode.FOUND if summary.blockers or summary.dangers else tiers.code(ExitCode.DONE, ExitCode.FOUND)
    show_doctor_summary(session.console, summary, int(code))
    session.console.next_steps(list(mends.items())[:_STEPS_SHOWN])
    return code
