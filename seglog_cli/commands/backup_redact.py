"""`seglog backup redact`: erases named records from the snapshots of a backup."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seglog.units import count_text
from seglog_cli.commands.redact import ChosenErasure
from seglog_cli.exit_codes import ExitCode
from seglog_cli.options import DryRun, argument, command, flag, option
from seglog_cli.session import Session, return_large_blocks
from seglog_cli.views.redaction import show_plan

if TYPE_CHECKING:
    from seglog_rescue.backup.repository import Repository

RepositoryPlace = Annotated[Path, argument("REPOSITORY", "A directory or URL that `seglog backup --to` has made.")]


def opened_repository(place: Path) -> Repository:
    """Returns the repository at a place. Raises NotALogError if there is none, CorruptTierError, OSError."""
    return_large_blocks()  # manifests are, and come one after the other
    from seglog.storage.routing import machine_files
    from seglog_rescue.operations.backup import opened

    return opened(machine_files(), place)


@command(urls=["repository"])
def redact(
    session: Session,
    repository: RepositoryPlace,
    erasure: ChosenErasure,
    topics: Annotated[
        list[str] | None, option("--topic", "TOPIC", "Only in this topic; may be repeated (default: all topics).")
    ] = None,
    resume: Annotated[bool, flag("--resume", "Go on where an erasure in REPOSITORY was cut short.")] = False,
    dry_run: DryRun = False,
) -> int:
    """Erases named records from all snapshots in a repository, and proves it.

    `seglog redact` erases records from logs; `seglog redact --backups REPOSITORY` names the snapshots that hold them
    still. This command takes the same choice of records, erases the same of them, and writes the same report. Erase
    them from the logs first: the next run of `seglog backup` stores what it finds there.

    Snapshots keep their ids and times. What several of them share is written anew once. New objects are written and
    read back before a manifest names them, new manifests take the place of all old ones at once, and only then the old
    objects go. So does everything that no snapshot names: what pruned snapshots and runs that were cut short left.
    Packs are written anew where a part of them is not named any more.

    A run of `seglog backup` that goes on meanwhile is refused at its end and stores nothing. A second erasure is
    refused, too. After one that was cut short, --resume goes on; until then every snapshot restores, and no run of
    `seglog backup` begins. Whoever reads a snapshot in place may lose it.

    Refused before anything changes: damage in a log that must be searched, and --with zeros, because a snapshot does
    not say which topics are compacted. Kafka's own topics are not searched for keys. --erase record leaves out the
    indexes of the segments that it changes; brokers build them again.

    There is no undo. A bucket that keeps versions of objects keeps the old ones; delete them there. --verify then reads
    and searches all that the snapshots name, as `seglog redact --verify` does.

    Examples:
      seglog backup redact /mnt/backup --key order-7 --dry-run
      seglog backup redact /mnt/backup --key order-7 --request DSR-42 --verify --yes
    """
    from seglog_rescue.operations.backup_redact import BackupRedaction

    asked = erasure.requested(session, dry_run=dry_run)
    with erasure.showing(session, dry_run=dry_run) as show:
        with session.progress("redact") as progress:
            work = BackupRedaction(opened_repository(repository), session.clock, asked, topics or (), progress.advance)
            work.search()
        show_plan(session.console, work.found, dry_run=dry_run)
        if not dry_run:
            erasure.agree(session, work.records)
            work.apply(resume=resume)
            session.console.message(f"removed {count_text(work.removed, 'object')} that no snapshot names")
        traces = work.prove() if erasure.verify else None
        done = work.report(traces)
        show(done)
    return ExitCode.FOUND if traces is not None and not done.complete else ExitCode.DONE
