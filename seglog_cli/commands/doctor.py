"""`seglog doctor`: whether a broker would start on a log directory, and what it would do to the data."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seglog.units import count_text
from seglog_cli.console import Console
from seglog_cli.exit_codes import ExitCode
from seglog_cli.grouping import GRAVITIES, CodeGroup, DiagnosesShown, Grouped, RowLook
from seglog_cli.options import SpokenFor, argument, command, flag, kafka_named
from seglog_cli.session import Session
from seglog_cli.tiering import Tiers
from seglog_cli.views.findings import show_group

if TYPE_CHECKING:
    from seglog_rescue.doctor.doctor import Diagnosis, DoctorSummary

_STEPS_SHOWN = 8
_STYLES = {"blocker": "error", "danger": "warning", "note": "dim"}


@command(urls=["log_directories"])
def run(
    session: Session,
    log_directories: Annotated[
        list[Path] | None,
        argument("LOGDIR", "The log directories of one broker: all of its log.dirs (default: the current directory)."),
    ] = None,
    quick: Annotated[
        bool, flag("--quick", "Read only names, indexes, log ends, and what recovery would read.")
    ] = False,
    kafka_version: SpokenFor = None,
    *,
    shown: DiagnosesShown,
    tiers: Tiers,
) -> int:
    """Tells whether a broker would start here, and what it would do.

    The last line names the release that the answer is for. It is the one that wrote the directory, as far as the
    metadata log and meta.properties show it, and otherwise Kafka 4.3. What a broker does to files and data is Kafka
    4.3's behaviour; releases differ in the metadata and identities that they take, and the doctor knows how.

    With --kafka-version of a newer release the doctor also tells what an upgrade to it would do: clusters with
    ZooKeeper, metadata.version, keys that are gone (in topics, and in server.properties with --config), and old message
    formats.

    Each row is one of these, and names the place, what the broker does, and the command that mends it:

      blocker  the broker does not start, or takes the directory offline
      danger   it cuts, deletes or serves what it should not, or one of its
               threads dies
      note     it settles this by itself

    Give all log directories of one broker at once, so that partitions that are in two of them are found. Nothing is
    changed, created or locked.

    A broker that finds the clean-shutdown marker trusts the files. Without the marker it recovers every log; the doctor
    tries that recovery in memory to find what it would cost.

    Rows are grouped by code and counted, the gravest first. The first three of each code are shown; --all shows every
    row. The exit code is 1 if there is a blocker or a danger, else 3 if this user could not read everything. -q prints
    nothing: only the exit code tells.

    Examples:
      seglog doctor /var/lib/kafka/data
      seglog doctor --json --quick /disk1/kafka /disk2/kafka
      seglog doctor --kafka-version 4.4 --config server.properties /var/lib/kafka/data
    """
    from seglog_rescue.doctor.doctor import Doctor

    session, log_directories = tiers.seen(session, session.paths_or_here(log_directories), warn_of_runs=False)
    mends: dict[str, str] = {}
    rows = Grouped(session, look(session.console), shown)
    with rows, session.progress("doctor", unit="partitions") as progress:
        doctor = Doctor(
            session.fs,
            log_directories,
            session.clock,
            session.config_of,
            deep=not quick,
            kafka=kafka_named(kafka_version),
            progress=progress.update,
        )
        for row in doctor:
            progress.clear()
            rows.add(row)
            if row.command and row.command not in mends:
                mends[row.command] = f"{row.gravity.value} {row.code}"
    summary = doctor.summary
    unread = ExitCode.INCOMPLETE if summary.not_examined else ExitCode.DONE
    code = ExitCode.FOUND if summary.blockers or summary.dangers else tiers.code(unread, ExitCode.FOUND)
    show_doctor_summary(session.console, summary, int(code))
    session.console.next_steps(list(mends.items())[:_STEPS_SHOWN])
    return code


def look(console: Console) -> RowLook[Diagnosis]:
    def group(found: CodeGroup[Diagnosis]) -> None:
        """Shows a reaction of the broker or a command once, below the rows, if all rows share it."""
        first = found.first[0]
        same_broker = all(row.broker == first.broker for row in found.first)
        same_command = all(row.command == first.command for row in found.first)
        rows = []
        for row in found.first:
            rows.append(_placed(row))
            rows += [] if same_broker else [f"  broker: {row.broker}"]
            rows += [] if same_command or not row.command else [f"  mend:   {mend_text(console, row.command)}"]
        below = [f"broker: {first.broker}"] if same_broker else []
        below += [f"mend:   {mend_text(console, first.command)}"] if same_command and first.command else []
        show_group(console, found, rows, _STYLES, below)

    return RowLook(
        levels=GRAVITIES,
        level_of=lambda row: row.gravity.value,
        code_of=lambda row: row.code,
        one=lambda row: show_diagnosis(console, row),
        group=group,
    )


def show_diagnosis(console: Console, row: Diagnosis) -> None:
    """Shows one JSON line, or up to three lines of text."""
    if console.as_json:
        console.json(row.as_dict())
        return
    gravity = console.styled(row.gravity.value, _STYLES[row.gravity.value])
    if console.screen is None:
        console.line(f"{gravity} {row.code} {_placed(row)}")
    else:
        console.lines([f"{gravity} {console.styled(row.code, 'strong')}", f"  {_placed(row)}"])
    console.line(f"  broker: {row.broker}")
    if row.command:
        console.line(f"  mend:   {mend_text(console, row.command)}")


def mend_text(console: Console, mend: str) -> str:
    """Returns what mends a diagnosis: a command, which is not broken over lines, or a sentence."""
    from seglog_rescue.doctor.mends import TOOLS

    return console.command(mend) if mend.startswith(TOOLS) else mend


def _placed(row: Diagnosis) -> str:
    place = "/".join(part for part in (row.partition or row.log_directory, row.file) if part)
    if row.partition and row.file == row.partition:
        place = row.partition
    where = "" if row.position is None else f" position {row.position}"
    more = "" if row.count < 2 else f" (and {row.count - 1} more)"
    return f"{place}{where}: {row.message}{more}"


def show_doctor_summary(console: Console, summary: DoctorSummary, exit_code: int) -> None:
    """Shows the verdict."""
    if console.as_json:
        counts = dataclasses.asdict(summary)
        writer = None if summary.writer is None else str(summary.writer)
        console.json({"type": "summary", "exit_code": exit_code, "loads": summary.loads, **counts, "writer": writer})
        return
    if console.quiet:
        return
    process = f" (process {summary.broker})" if summary.broker else ""
    verdict = f"a Kafka {summary.kafka} broker would{'' if summary.loads else ' not'} start"
    if summary.broker is not None and summary.loads:
        verdict = f"a broker runs here{process}"
    if summary.writer is not None and summary.kafka != str(summary.writer):
        console.line(summary.writer.sentence)
    counted = ((summary.blockers, "blocker"), (summary.dangers, "danger"), (summary.notes, "note"))
    found = ", ".join(count_text(n, name) for n, name in counted if n) or "nothing wrong"
    style = "error" if summary.blockers else "warning" if summary.dangers else "good"
    console.line(f"{count_text(summary.partitions, 'partition')}: {console.styled(verdict, style)}; {found}")
