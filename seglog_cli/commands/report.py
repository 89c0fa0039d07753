"""`seglog report`: where bytes are, what grows, is cleaned, deleted, or needs a hand, as one page or as figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seglog.errors import RefusedError
from seglog.units import count_text
from seglog_cli.console import Console
from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.options import MetadataDirectory, PathsHere, Replace, command, flag, option
from seglog_cli.progress import bytes_text
from seglog_cli.session import Session
from seglog_cli.tiering import Tiers

if TYPE_CHECKING:
    from seglog.look.report.figures import Report


@command(urls=["paths", "metadata_dir"])
def run(
    session: Session,
    paths: PathsHere = None,
    output: Annotated[Path | None, option("--output -o", "FILE", "The file to write; - is standard output.")] = None,
    verify: Annotated[bool, flag("--verify", "Read all data too, and show what is damaged.")] = False,
    replace: Replace = False,
    metadata_dir: MetadataDirectory = None,
    *,
    tiers: Tiers,
) -> int:
    """Shows where bytes are, what grows, and what needs a hand.

    With -o the report is one page for a browser: what needs a hand first, with the command that mends it; the bytes by
    topic and partition; growth; compaction, with what blocks it; retention, with what holds it; settings that differ
    from their defaults; leftovers. The page needs no network and no script. --json writes the same figures as lines.
    Without either, the headline is shown.

    PATH is a partition or a log directory, also a URL. Name all log directories of a broker, or those of several
    brokers: then the partitions that they share are compared.

    No log file is opened, except the controller's own: the figures come from names, sizes, indexes, snapshots and
    checkpoints. They may be taken beside a running broker. Nothing is changed or locked. --verify reads all data, as
    `seglog doctor` and `seglog verify` do.

    The exit code is 1 if something needs a hand.

    Examples:
      seglog report . -o report.html
      seglog report --json orders-none-0 customers-0
      seglog report --verify /var/lib/kafka/data
    """
    from seglog.operations.report import ReportRequest, report
    from seglog.operations.workspace import Sources
    from seglog.scan.listing import resolve_paths

    if output is not None and session.as_json:
        raise UsageError("--output writes a page, and --json figures to standard output: give one of them")
    if replace and output is None:
        raise UsageError("--replace is for --output")
    to_stdout = output is not None and str(output) == "-"
    if replace and to_stdout:
        raise UsageError("--replace is for a FILE, and this is standard output")
    if output is not None and not to_stdout:
        _require_place(session, output, replace)
    looking, paths = tiers.seen(session, session.paths_or_here(paths))
    sources = Sources(metadata_directory=metadata_dir)
    with looking.progress("report", unit="partitions") as progress:
        found = report(
            looking.fs,
            resolve_paths(looking.fs, paths),
            lambda directory: looking.config_of(directory, sources),
            looking.clock,
            ReportRequest(verify=verify),
            progress=progress.update,
            tell=looking.console.warning,
        )
    code = ExitCode.FOUND if any(one.severity != "note" for one in found.concerns) else ExitCode.DONE
    if session.as_json:
        for record in found.records():
            session.console.json({**record, "exit_code": int(code)} if record["type"] == "summary" else record)
        return tiers.code(code, ExitCode.FOUND)
    if output is None:
        show_headline(session.console, found)
        return tiers.code(code, ExitCode.FOUND)
    from seglog.storage.filesystem import write_atomically
    from seglog_cli.report_page.page import page

    data = page(found).encode()
    if to_stdout:
        session.console.write_exactly(data)
    else:
        show_headline(session.console, found)
        write_atomically(session.fs, output, data)
        session.console.message(f"{bytes_text(len(data))} written to {output}")
    return tiers.code(code, ExitCode.FOUND)


def _require_place(session: Session, output: Path, replace: bool) -> None:
    """Raises an error, before anything is read, for a file that must not be written."""
    from seglog.scan.listing import is_beside_logs

    folder = session.fs.status(output.absolute().parent)
    if folder is None or not folder.is_directory:
        raise UsageError(f"--output: {output.absolute().parent} is not a directory")
    status = session.fs.status(output)
    if status is not None and (status.is_directory or status.is_special):
        raise RefusedError(f"--output: {output} cannot be written: it is not a regular file")
    if is_beside_logs(output) or output.suffix == ".log":
        raise RefusedError(f"--output: {output} has the name of a file of Kafka")
    if status is not None and not replace:
        raise RefusedError(f"--output: {output} exists; --replace replaces it")


def show_headline(console: Console, found: Report) -> None:
    """Shows the sums, and what needs a hand by code."""
    topics = count_text(len(found.topics), "topic", ",")
    console.line(
        f"{bytes_text(found.bytes)} in {count_text(len(found.partitions), 'partition', ',')} of {topics},"
        f" {count_text(found.segments, 'segment', ',')}"
    )
    console.line(f"  last 24 hours         {bytes_text(sum(found.day_bytes.values()))} of records")
    states = found.compaction_states()
    compaction = ", ".join(f"{count:,} {state}" for state, count in sorted(states.items())) or "none known"
    console.line(f"  compacted             {compaction}")
    console.line(f"  retention frees now   {bytes_text(found.due_bytes)}")
    behind = [one for one in found.comparisons if one.most_behind]
    if found.comparisons:
        console.line(
            f"  on several brokers    {len(found.comparisons):,}, of which {len(behind):,} differ (seglog replicas)"
        )
    counted: dict[tuple[str, str], int] = {}
    for one in found.concerns:
        counted[one.severity, one.code] = counted.get((one.severity, one.code), 0) + one.count
    for (severity, code), count in counted.items():
        style = {"blocker": "error", "danger": "warning"}.get(severity, "dim")
        console.line(f"{console.styled(severity, style)} {code}: {count_text(count, 'time', ',')}")
    mends = {one.command: one.code for one in found.concerns if one.command and one.severity != "note"}
    console.next_steps(list(mends.items())[:5])
