"""`seglog verify`: finds damage in logs, and repairs it with --repair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from seglog.escaping import command_line
from seglog.units import parse_part
from seglog_cli.commands.repairing import repair_paths
from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.grouping import FindingsShown, Grouped
from seglog_cli.options import (
    DryRun,
    PathsHere,
    Quarantine,
    RepairOnly,
    RepairPolicy,
    Sample,
    command,
    duration_option,
    flag,
    option,
    parsed,
)
from seglog_cli.session import Session
from seglog_cli.tiering import Tiers
from seglog_cli.views.findings import look, show_summary
from seglog_cli.views.kept import tell_of_kept_records

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from seglog.scan.listing import Target
    from seglog.verification.verify import VerifySummary

LevelName = Annotated[str, option("--level", "header|crc|record|index|semantic", "How thoroughly to verify.")]
Live = Annotated[bool, flag("--live", "Expect a broker to write here, even if its lock is not seen.")]


@command(urls=["paths"], not_with=["repair"])
def run(
    session: Session,
    paths: PathsHere = None,
    level: LevelName = "semantic",
    live: Live = False,
    sample: Sample = None,
    max_duration: Annotated[int | None, duration_option("--max-duration", "Stop after this time.", least=0)] = None,
    repair: Annotated[bool, flag("--repair", "Repair what is wrong. `seglog undo` takes the repair back.")] = False,
    policy: RepairPolicy = "smallest-loss",
    only: RepairOnly = None,
    dry_run: DryRun = False,
    quarantine: Quarantine = None,
    *,
    shown: FindingsShown,
    tiers: Tiers,
) -> int:
    """Verifies logs, past damage too; --repair repairs them.

    Without --repair, nothing is changed, locked or created.

    Each level includes those before it:

      header    framing and offsets
      crc       checksums
      record    the structure of every record
      index     offset and time indexes
      semantic  transactions, producers, epochs, checkpoints

    Gaps that compaction leaves are not errors. A missing segment, log end or partition is an error if checkpoints,
    snapshots, indexes, epochs, the groups' offsets or the cluster's metadata mention it. Each finding names the place,
    the offsets, what a broker would do, and the repair; seglog-findings(7) lists the codes.

    Findings are grouped by code and counted, the gravest first. The first three of each code are shown; --all shows
    every finding as it is found. -q prints nothing: only the exit code tells. The exit code is 1 if there is an error
    or a warning, and 3 if some input could not be read or time ran out. One line more names the records that an
    earlier run, such as a repair, took out of the log and keeps: they are not findings.

    A log may be verified while a broker writes to it. The broker is recognised by its lock; give --live if the lock is
    not seen, as from another container. Each partition is verified as it was when its turn came, and a batch that is
    being written is not damage. A grave finding counts if it is still there after two seconds; otherwise it is the
    remark CHANGED_WHILE_READ.

    --repair repairs what is found, as `seglog repair` does, whose help describes --policy and --only. The exit code is
    4 if everything is repaired, and 5 if something remains.

    Examples:
      seglog verify orders-none-0
      seglog verify --json --level crc /var/lib/kafka/data
      seglog verify --repair --dry-run orders-none-0
      seglog verify --live --sample 5% --max-duration 10m /var/lib/kafka/data
    """
    if repair:
        from seglog.operations.repair import RepairRequest

        _require_everything(live, sample is not None or max_duration is not None or level != "semantic", paths)
        return repair_paths(session, RepairRequest(tuple(paths or ()), policy, only, quarantine), shown, dry_run)
    if dry_run or only is not None or quarantine is not None or policy != "smallest-loss":
        raise UsageError("--policy, --only, --dry-run and --quarantine need --repair")
    from seglog.scan.listing import resolve_paths
    from seglog.verification.verify import Verification, VerifyOptions

    options = VerifyOptions.of(
        level,
        live=live,
        jobs=session.begin_threads(),
        sample=None if sample is None else parsed("--sample", parse_part, sample),
        max_duration_s=None if max_duration is None else max_duration / 1000,
    )
    session, paths = tiers.seen(session, session.paths_or_here(paths))
    findings = Grouped(session, look(session.console), shown)
    with findings, session.progress("verify") as progress:
        targets = resolve_paths(session.fs, paths)
        verification = Verification(session.fs, targets, options, session.clock, progress.reporter)
        for finding in verification:
            progress.clear()
            findings.add(finding)
    summary = verification.summary
    if summary.live and not live:
        session.console.message("a broker, or another process, is at work here: verified as with --live")
    code = ExitCode.DONE if sample is not None and not summary.damaged else verdict(summary)
    code = tiers.code(code, ExitCode.FOUND)
    show_summary(session.console, summary, int(code))
    tell_of_kept_records(session, targets)
    if summary.damaged and not session.as_json:
        session.console.next_steps(_next_steps(targets))
    return code


def _require_everything(live: bool, in_part: bool, paths: Sequence[Path] | None) -> None:
    """Raises UsageError for options that --repair does not take, and where it is not told what to repair."""
    if live:
        raise UsageError("--repair never works on a log that a broker writes to")
    if in_part:
        raise UsageError("--repair looks at everything: do not give --level, --sample or --max-duration with it")
    if not paths:
        raise UsageError("name what --repair shall work on")


def verdict(summary: VerifySummary) -> ExitCode:
    """Returns the exit code of a verification of everything."""
    return ExitCode.FOUND if summary.damaged else ExitCode.DONE if summary.complete else ExitCode.INCOMPLETE


def _next_steps(targets: Sequence[Target]) -> list[tuple[str, str]]:
    """Returns the suggested commands for damage in these targets.

    `explain` takes one partition, `repair` no URL; what is around a single file at a URL may not be listable.
    """
    from seglog.remote_path import RemotePath
    from seglog.scan.listing import TargetKind

    remote = [target for target in targets if isinstance(target.path, RemotePath)]
    directories = list(dict.fromkeys(target.directory for target in targets))
    partitions = [target.directory for target in targets if target.kind is not TargetKind.LOG_DIRECTORY]
    steps = []
    if not remote:
        repair = command_line("seglog", "repair", "--dry-run", *directories)
        steps.append((repair, "shows what a repair would do, and changes nothing"))
    alone = any(target.kind is TargetKind.FILE for target in remote)
    if partitions and not alone:
        explain = command_line("seglog", "explain", partitions[0])
        steps.append((explain, "shows how far it can be cleaned, deleted and read"))
    elif not alone:
        steps.append((command_line("seglog", "doctor", *directories), "shows what a broker would do with this data"))
    return [*steps, ("seglog explain CODE", "explains what a code means")]
