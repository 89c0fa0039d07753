"""`seglog backup`: snapshots of log directories in a repository, and what comes back from them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seglog.errors import CorruptTierError
from seglog.units import count_text, parse_part
from seglog_cli.commands.backup_redact import RepositoryPlace, opened_repository, redact
from seglog_cli.commands.stats import Prometheus, require_gauges_file
from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.help_option import HelpOption
from seglog_cli.options import (
    CONTEXT,
    DryRun,
    Sample,
    argument,
    command,
    duration_option,
    flag,
    option,
    parsed,
    size_option,
    time_option,
)
from seglog_cli.parameters import PlainCommand, with_default
from seglog_cli.progress import bytes_text
from seglog_cli.services import SIGNALS, stops
from seglog_cli.session import Session
from seglog_cli.tables import Layout, time_cell

if TYPE_CHECKING:
    from seglog_rescue.backup.summaries import SnapshotSummary
    from seglog_rescue.operations.backup import BackupOutcome, BackupRequest
    from seglog_rescue.operations.backup_service import RunOfBackup

app = typer.Typer(cls=with_default("create"), rich_markup_mode=None, context_settings=CONTEXT)

_HEADING = ("SNAPSHOT", "ENDED", "DIRECTORIES", "PARTITIONS", "SIZE", "DAMAGED")


@app.callback()
def group(show_help: HelpOption = False) -> None:
    """Stores log directories as snapshots, beside a broker too.

    `seglog backup LOGDIR --to REPOSITORY` is short for `seglog backup create LOGDIR --to REPOSITORY`.

    Commands that read take a snapshot where it is, as a log directory, and copy nothing first: `REPOSITORY#latest`,
    `REPOSITORY#ID/orders-0`. ID is the start of a snapshot's id. If several sets of log directories are stored in
    REPOSITORY, `latest-` and the last 8 characters of an id name the newest of one set. A name that exists is never
    taken for a snapshot.
    """


@app.command("create", cls=PlainCommand, context_settings=CONTEXT)
@command(urls=["to"])
def create(
    session: Session,
    log_directories: Annotated[list[Path], argument("LOGDIR", "Log directories of one broker; only read.")],
    to: Annotated[Path, option("--to", "REPOSITORY", "A new or empty directory or URL, or a repository.")],
    uncommitted: Annotated[
        bool, flag("--uncommitted", "Of a stopped broker, also store what lies above the high watermarks.")
    ] = False,
    leaders: Annotated[
        bool, flag("--leaders", "Leave partitions to the brokers that lead them, by the cluster's metadata.")
    ] = False,
    every: Annotated[
        int | None, duration_option("--every", "Make a snapshot again and again, until a signal ends it.", 1000)
    ] = None,
    throttle: Annotated[
        int | None, size_option("--throttle", "Read at most this many bytes a second from LOGDIR.")
    ] = None,
    prometheus: Prometheus = None,
    dry_run: DryRun = False,
) -> int:
    """Makes a snapshot of log directories, beside a running broker or from the disks of a stopped one.

    The files are stored byte for byte, with their offsets, indexes, producer snapshots, leader epochs, checkpoints and
    metadata. The next run sends only what is new: what a log grew by, and segments that a compaction has rewritten.
    Give all log directories of a broker to one run. Several brokers may write into one repository at the same time.
    Back up controllers after the brokers: a restored cluster sets partitions aside whose topics its controllers do not
    know.

    A log is stored up to its high watermark, and each batch's checksum is compared. Damage is stored as it is and
    reported. Beside a running broker, a run waits up to twice for a checkpoint of the high watermarks, which brokers
    write every five seconds: the snapshot has all that was acknowledged before the run began. It waits again for a log
    that was compacted meanwhile. Groups' offsets are stored before the other partitions, so no restored group is above
    its log.

    Records that were deleted from a log's beginning come back if its broker has not written that down yet, which it
    does once a minute, and with their segments.

    After a crash, the last checkpoint is up to five seconds older than the log. --uncommitted stores such a log to its
    end, also what a new leader would perhaps cut off.

    --leaders is for a repository into which every broker of a cluster writes: of each partition it gets one replica
    instead of all. What the broker's own copy of the metadata does not name, or names without a leader, is stored.
    While a leader changes between two brokers' runs, neither of these runs may have its partitions; the next ones have.
    Do not start a whole cluster on such snapshots as they are: a broker without a copy may lead, and the only copy is
    cut. A group may be above a log that another broker stored before. `seglog help dead-cluster` says in situation 2
    what to do.

    With --every, SIGTERM and SIGINT end the service within a second, and nothing of a run that was cut short is
    listed. A run that fails is reported and tried again, first after ten seconds, then after twice as long each time,
    at most DURATION. A first run that is refused ends the service.

    The snapshot exists when the run has ended; a run that was cut short leaves none. Deleted, stray and future
    directories are not stored. The exit code is 1 if damage was stored, and 3 if a partition could not be.

    Examples:
      seglog backup /var/lib/kafka/data --to /mnt/backup
      seglog backup create --dry-run /var/lib/kafka/data --to /mnt/backup
      seglog backup /var/lib/kafka/data --to /mnt/backup --every 5m --throttle 50MB --prometheus seglog.prom
    """
    import threading

    from seglog.storage.routing import machine_files
    from seglog_rescue.operations.backup import BackupRequest, backup
    from seglog_rescue.operations.backup_service import gate_of

    request = BackupRequest(log_directories, to, uncommitted, dry_run, leaders)
    if every is not None:
        return _serve(session, request, every, throttle, prometheus)
    if prometheus is not None:
        raise UsageError("--prometheus is for the service: give --every, too")
    gate = gate_of(session.clock, throttle, threading.Event())
    with session.progress("back up", _log_bytes(session, log_directories)) as progress, gate.cleaning():
        outcome = backup(session.fs, machine_files(), session.clock, request, progress.advance, gate)
    return show_outcome(session, outcome, dry_run=dry_run)


def _serve(
    session: Session,
    request: BackupRequest,
    every: int,
    throttle: int | None,
    prometheus: Path | None,
) -> int:
    """Makes snapshots until a signal ends it."""
    from seglog.storage.routing import machine_files
    from seglog_rescue.operations.backup_service import FIRST_GAUGE, BackupService

    if request.dry_run:
        raise UsageError("--dry-run and --every contradict each other")
    if prometheus is not None:
        require_gauges_file(session, prometheus, FIRST_GAUGE)
    reporter = _Reporter(session, str(request.repository), prometheus)
    service = BackupService(session.fs, machine_files(), session.clock, request, every, reporter, throttle)
    with stops(service.stop) as received:
        service.run()
    session.console.message("stopped; what is listed is complete")
    return SIGNALS[received[0]] if received else ExitCode.DONE


class _Reporter:
    """The service's listener: a line for each run, and the gauges."""

    def __init__(self, session: Session, repository: str, prometheus: Path | None) -> None:
        self._session, self._repository, self._prometheus = session, repository, prometheus
        self._last_success: RunOfBackup | None = None

    def ended(self, run: RunOfBackup) -> None:
        console = self._session.console
        if run.outcome is not None:
            self._last_success = run
            show_outcome(self._session, run.outcome, dry_run=False)
        else:
            console.warning(f"the run failed, and is tried again in {run.wait_s:.0f} s: {run.error}", again=True)
            if self._session.as_json:
                console.json({"type": "failure", "message": str(run.error), "failures": run.failures})
        console.flush()
        if self._prometheus is not None:
            self._write_gauges(run, self._prometheus)
        console.end_round()

    def _write_gauges(self, run: RunOfBackup, path: Path) -> None:
        from seglog.storage.gauges import write_gauges
        from seglog_rescue.operations.backup_service import gauges_of

        try:
            write_gauges(self._session.fs, path, gauges_of(self._repository, self._last_success, run))
        except OSError as error:
            self._session.console.warning(f"{error.filename or path}: not written: {error.strerror}")


def _log_bytes(session: Session, directories: list[Path]) -> int | None:
    """Returns the bytes of all logs if progress is shown."""
    if session.progress_choice == "none" or session.console.quiet:
        return None
    from seglog.scan.listing import list_log_directory

    size = 0
    for directory in directories:
        for partition in list_log_directory(session.fs, directory).live:
            with contextlib.suppress(FileNotFoundError):  # a broker deletes topics
                entries = session.fs.entries(partition.path)
                size += sum(status.size for name, status in entries if name.endswith(".log"))
    return size


def show_outcome(session: Session, outcome: BackupOutcome, *, dry_run: bool) -> int:
    """Shows what a run stored; returns the exit code."""
    from seglog_rescue.backup.restoring import damage_of

    snapshot, console = outcome.snapshot, session.console
    damage = list(damage_of(snapshot))
    for sentence in (*outcome.remarks, *outcome.left_out, *damage):
        console.warning(sentence)
    partitions = [partition for directory in snapshot.directories for partition in directory.partitions]
    code = ExitCode.INCOMPLETE if outcome.left_out else ExitCode.FOUND if damage else ExitCode.DONE
    sent = outcome.sent.bytes + outcome.manifest_bytes
    what = f"{count_text(len(partitions), 'partition')} ({outcome.unchanged} unchanged), {bytes_text(snapshot.size)}"
    sending = f"{bytes_text(sent)} in {count_text(outcome.sent.objects + 1, 'object')}"
    console.result(
        {
            "type": "summary",
            "exit_code": int(code),
            "snapshot": None if dry_run else snapshot.id,
            "partitions": len(partitions),
            "unchanged": outcome.unchanged,
            "led_elsewhere": outcome.led_elsewhere,
            "cut": sum(partition.cut is not None for partition in partitions),
            "size": snapshot.size,
            "sent_bytes": sent,
            "objects": outcome.sent.objects,
            "damage": damage,
            "left_out": outcome.left_out,
            "remarks": outcome.remarks,
        },
        f"a run would store {what}, and send {sending}" if dry_run else f"{snapshot.id}: {what}; sent {sending}",
    )
    return code


@app.command("list", cls=PlainCommand, context_settings=CONTEXT)
@command(urls=["repository"])
def list_(session: Session, repository: RepositoryPlace) -> int:
    """Lists the snapshots in a repository, the oldest first.

    DAMAGED counts the places in logs that were damaged at the source. The exit code is 1 if a manifest is damaged.

    Examples:
      seglog backup list /mnt/backup
    """
    from seglog_rescue.backup.summaries import Summaries

    opened, summaries, rows, damaged = opened_repository(repository), Summaries(), [], 0
    for identity in opened.ids():
        try:
            snapshot = summaries.of(opened.manifest(identity))
        except CorruptTierError as error:
            damaged += 1
            session.console.warning(str(error))
            continue
        except FileNotFoundError:
            continue  # pruned meanwhile
        if session.as_json:
            session.console.json(_snapshot_fields(snapshot))
        rows.append(_row(snapshot))
    code = ExitCode.FOUND if damaged else ExitCode.DONE
    if session.as_json:
        counts = {"snapshots": len(rows), "damaged": damaged}
        session.console.json({"type": "summary", "exit_code": int(code), **counts})
    elif rows:
        session.console.table(_HEADING, rows, Layout(right=(3, 4, 5), yielding=(2,)))
    else:
        session.console.message(f"{repository} has no snapshot")
    return code


def _row(snapshot: SnapshotSummary) -> tuple[str, ...]:
    return (
        snapshot.id,
        time_cell(snapshot.ended_ms),
        ", ".join(directory.path for directory, _ in snapshot.directories),
        str(snapshot.partitions),
        bytes_text(snapshot.size),
        str(snapshot.damaged),
    )


def _snapshot_fields(snapshot: SnapshotSummary) -> dict[str, Any]:
    directories = [
        {
            "path": directory.path,
            "cluster_id": directory.cluster_id,
            "node_id": directory.node_id,
            "directory_id": directory.directory_id,
            "clean": directory.clean,
            "partitions": partitions,
        }
        for directory, partitions in snapshot.directories
    ]
    return {
        "type": "snapshot",
        "snapshot": snapshot.id,
        "started": snapshot.started_ms,
        "ended": snapshot.ended_ms,
        "uncommitted": snapshot.uncommitted,
        "leaders": snapshot.leaders,
        "size": snapshot.size,
        "damaged": snapshot.damaged,
        "directories": directories,
    }


@app.command("verify", cls=PlainCommand, context_settings=CONTEXT)
@command(urls=["repository"])
def verify(
    session: Session,
    repository: RepositoryPlace,
    snapshot: Annotated[str | None, option("--snapshot", "ID", "Only this one; the start of its id will do.")] = None,
    sample: Sample = None,
) -> int:
    """Reads a repository, and compares it with what was stored.

    Everything that a snapshot names is read once, and its digest compared. Missing, cut and changed objects are
    reported with the snapshots that they belong to; the exit code is then 1.

    Examples:
      seglog backup verify /mnt/backup
      seglog backup verify --sample 5% /mnt/backup
    """
    import random

    from seglog_rescue.backup.restoring import snapshots_text, verify_snapshots

    share = 1.0 if sample is None else parsed("--sample", parse_part, sample)
    opened = opened_repository(repository)
    ids = opened.ids() if snapshot is None else [opened.named(snapshot)]
    with session.progress("verify") as progress:
        done = verify_snapshots(opened, ids, share, random.Random(), progress.advance)
    code = ExitCode.FOUND if done.problems else ExitCode.DONE
    for error, named in done.problems:
        line = {"type": "problem", "path": str(error.path), "message": str(error), "snapshots": list(named)}
        session.console.result(line, f"{error} ({snapshots_text(named)})")
    counts = {"snapshots": done.snapshots, "extents": done.extents, "bytes": done.bytes}
    what = f"{count_text(done.snapshots, 'snapshot')}: {bytes_text(done.bytes)} read"
    session.console.result(
        {"type": "summary", "exit_code": int(code), **counts, "problems": len(done.problems)},
        f"{what}, {count_text(len(done.problems), 'problem') if done.problems else 'nothing wrong'}",
    )
    return code


@app.command("restore", cls=PlainCommand, context_settings=CONTEXT)
@command(urls=["repository"])
def restore(
    session: Session,
    repository: RepositoryPlace,
    output: Annotated[Path, option("--output -o", "DIR", "A new directory for the log directory, or for several.")],
    snapshot: Annotated[
        str | None, option("--snapshot", "ID", "Only this snapshot; the start of its id, or latest.")
    ] = None,
    at: Annotated[int | None, time_option("--at", "The newest snapshots that had ended at this time.")] = None,
) -> int:
    """Makes log directories from a snapshot.

    Every byte is compared with what was stored, and DIR gets its name when all of it is complete and on the disk. A
    snapshot of one log directory becomes DIR; of several, each gets its name within DIR.

    A broker starts on the result: with the same node id and cluster id, on the disks that it had, or on others.
    `seglog transplant` takes the partitions to another cluster, and `seglog serve` serves them as they are. Indexes are
    those of the source; where a log was cut, the broker adds to them what is missing.

    Snapshots lie at one instant for each broker. Of several brokers, the newest snapshot of each is restored, with --at
    the newest that had ended by then; `seglog replicas` on the result tells which copy of each partition to trust.

    Examples:
      seglog backup restore /mnt/backup -o /tmp/restored
      seglog backup restore /mnt/backup --snapshot latest -o /tmp/restored
    """
    from seglog_rescue.backup.restoring import restore_snapshots, size_of
    from seglog_rescue.operations.backup import chosen_snapshots

    if snapshot is not None and at is not None:
        raise UsageError("--snapshot and --at both choose a snapshot: give one of them")
    opened = opened_repository(repository)
    chosen = chosen_snapshots(opened, snapshot, at)
    with session.progress("restore", size_of(chosen)) as progress:
        done = restore_snapshots(opened, chosen, session.fs, session.resolved(output), progress.advance)
    ids = [each.id for each in chosen]
    if session.as_json:
        directories = [str(path) for path in done.directories]
        counts = {"partitions": done.partitions, "files": done.files, "bytes": done.bytes}
        line = {"type": "summary", "exit_code": 0, "snapshots": ids, "directories": directories, **counts}
        session.console.json(line)
        return ExitCode.DONE
    what = f"{count_text(done.partitions, 'partition')}, {count_text(done.files, 'file')}, {bytes_text(done.bytes)}"
    for path in done.directories:
        session.console.line(str(path))
    session.console.message(f"{'snapshot' if len(ids) == 1 else 'snapshots'} {', '.join(ids)}: {what}")
    return ExitCode.DONE


@app.command("prune", cls=PlainCommand, context_settings=CONTEXT)
@command(urls=["repository"])
def prune(
    session: Session,
    repository: RepositoryPlace,
    keep_last: Annotated[int, option("--keep-last", "N", "Keep the last N snapshots.", least=0)] = 0,
    keep_daily: Annotated[int, option("--keep-daily", "N", "Keep the last one of N days.", least=0)] = 0,
    keep_weekly: Annotated[int, option("--keep-weekly", "N", "Keep the last one of N weeks.", least=0)] = 0,
    keep_monthly: Annotated[int, option("--keep-monthly", "N", "Keep the last one of N months.", least=0)] = 0,
    grace: Annotated[
        int, duration_option("--grace", "How long objects stay that no snapshot names (default: 24h).", 0)
    ] = 24 * 60 * 60 * 1000,
    dry_run: DryRun = False,
) -> int:
    """Removes old snapshots, and later what only they named.

    A snapshot stays if a rule keeps it: the last ones, and the last one of each of the last days, weeks (from Monday)
    and months that have any, in UTC. The rules apply to each set of log directories by itself, and its newest snapshot
    always stays.

    Space comes free later: a run that is going on may build on a removed snapshot, so what only that one named stays
    for the grace period, and the first prune after it removes it. The remains of runs that were cut short go in the
    same way. No run may take longer than --grace; 0 is for repositories that nobody uses now.

    A pack of small pieces goes when no snapshot names any of them. If snapshots name less than half of it, that is
    stored in a new pack, and the old one goes in the same way; whoever reads a snapshot in place for longer opens it
    again. A prune that is cut short leaves every listed snapshot whole. It removes nothing if a manifest is damaged,
    because what that names is not known.

    Examples:
      seglog backup prune /mnt/backup --keep-daily 7 --keep-weekly 5 --keep-monthly 12 --dry-run
      seglog backup prune /mnt/backup --keep-last 3
    """
    from seglog_rescue.backup.pruning import KeepRules
    from seglog_rescue.backup.pruning import prune as prune_repository

    rules = KeepRules(keep_last, keep_daily, keep_weekly, keep_monthly)
    if rules == KeepRules():
        raise UsageError("backup prune: say what to keep, such as --keep-daily 7")
    done = prune_repository(opened_repository(repository), rules, session.clock.now_ms(), grace, dry_run=dry_run)
    for identity in done.removed:
        session.console.result({"type": "removed", "snapshot": identity}, identity)
    if session.as_json:
        counts = {"removed": len(done.removed), "kept": len(done.staying), "objects": done.objects, "bytes": done.bytes}
        line = {"type": "summary", "exit_code": 0, **counts, "packs_written_anew": done.packs}
        session.console.json(line)
        return ExitCode.DONE
    would = "would be " if dry_run else ""
    what = f"{count_text(len(done.removed), 'snapshot')} {would}removed, {len(done.staying)} kept"
    what += f"; {bytes_text(done.bytes)} in {count_text(done.objects, 'object')} {would}removed"
    session.console.message(what + (f"; {count_text(done.packs, 'pack')} {would}written anew" if done.packs else ""))
    return ExitCode.DONE


app.command("redact", cls=PlainCommand, context_settings=CONTEXT)(redact)
