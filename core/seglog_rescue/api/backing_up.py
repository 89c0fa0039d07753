"""Functions for backups: snapshots of log directories in a repository, and what comes back from them.

A repository is a directory or a URL. Whatever reads logs also takes a snapshot where it is: `REPOSITORY#latest`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from seglog.api.calling import public, public_verb
from seglog.api.erasing import Erasing, ErasureKeywords
from seglog.arguments import flag, number, several
from seglog.clock import Clock
from seglog.errors import ArgumentError
from seglog.operations.redact import RedactionReport
from seglog.operations.workspace import (
    CommonArguments,
    Location,
    local_path,
    local_paths_of,
    optional_duration,
    optional_integer,
    optional_time,
    path_of,
    request_of,
    warn,
    workspace_of,
)
from seglog.storage.routing import machine_files
from seglog_rescue.backup.pruning import GRACE_MS, KeepRules, PrunedBackup
from seglog_rescue.backup.pruning import prune as prune_repository
from seglog_rescue.backup.repository import Repository
from seglog_rescue.backup.restoring import CheckedBackup, RestoredBackup, restore_snapshots, verify_snapshots
from seglog_rescue.operations.backup import BackupOutcome, BackupRequest, chosen_snapshots, opened
from seglog_rescue.operations.backup import backup as run_backup
from seglog_rescue.operations.backup_redact import BackupRedaction
from seglog_stores.formats.snapshot_manifest import Part, Snapshot
from seglog_stores.formats.snapshot_reading import KnownLines


@public
def plan_backup(
    *log_directories: Location,
    to: Location,
    uncommitted: bool = False,
    leaders: bool = False,
    **common: Unpack[CommonArguments],
) -> BackupOutcome:
    """Returns what `backup` would store and send now. Reads what is new, and writes nothing.

    >>> import os, tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as place:
    ...     os.mkdir(place + "/logs")
    ...     with seglog.open_log(place + "/logs/t-0", create=True) as log:
    ...         info = log.append([seglog.Record(b"value", timestamp=1000)])
    ...     plan = seglog.plan_backup(place + "/logs", to=place + "/backup", uncommitted=True)
    ...     len(plan.snapshot.directories[0].partitions), os.path.exists(place + "/backup")
    (1, False)
    """
    return _backup(log_directories, to, common, uncommitted=uncommitted, leaders=leaders, dry_run=True)


@public
def backup(
    *log_directories: Location,
    to: Location,
    uncommitted: bool = False,
    leaders: bool = False,
    **common: Unpack[CommonArguments],
) -> BackupOutcome:
    """Stores log directories of one broker as a snapshot in the repository `to`, beside the running broker too.

    A new or empty `to` becomes a repository. What earlier snapshots stored is not sent again. Logs are stored up to
    their high watermarks; `uncommitted` stores those of a stopped broker to their ends. `leaders` leaves partitions to
    the brokers that lead them by the cluster's metadata. Damage is stored as it is:
    `outcome.snapshot` has it by partition. `outcome.left_out` are sentences on partitions that could not be stored.

    Raises NotALogError, RefusedError if an unfinished run changes a log directory or `to` holds something else,
    CorruptTierError for a damaged repository, OSError.

    >>> import os, tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as place:
    ...     os.mkdir(place + "/logs")
    ...     with seglog.open_log(place + "/logs/t-0", create=True) as log:
    ...         info = log.append([seglog.Record(b"value", timestamp=1000)])
    ...     outcome = seglog.backup(place + "/logs", to=place + "/backup", uncommitted=True)
    ...     seglog.snapshots(place + "/backup")[0].id == outcome.snapshot.id, outcome.left_out
    ...     with seglog.open_log(place + "/backup#latest/t-0") as log:
    ...         print([record.value for record in log.records()])
    (True, [])
    [b'value']
    """
    return _backup(log_directories, to, common, uncommitted=uncommitted, leaders=leaders, dry_run=False)


def _backup(
    log_directories: tuple[Location, ...],
    to: Location,
    common: CommonArguments,
    *,
    uncommitted: bool,
    leaders: bool,
    dry_run: bool,
) -> BackupOutcome:
    directories = local_paths_of(log_directories)
    work = workspace_of(common, directories)
    flags = flag("uncommitted", uncommitted), dry_run, flag("leaders", leaders)
    outcome = run_backup(work.fs, machine_files(), work.clock, BackupRequest(directories, path_of("to", to), *flags))
    warn(*outcome.remarks)
    return outcome


@public
def snapshots(repository: Location, **common: Unpack[CommonArguments]) -> list[Snapshot]:
    """Returns the snapshots in a repository, the oldest first. Raises CorruptTierError for a damaged manifest.

    The example of `backup` shows it.
    """
    opened_repository = _opened(repository, common)
    known = KnownLines[Part](lambda part: part)  # what snapshots have in common is in memory once
    return [opened_repository.manifest(identity).snapshot(known) for identity in opened_repository.ids()]


@public
def verify_backup(
    repository: Location, *, snapshot: str | None = None, share: float = 1.0, **common: Unpack[CommonArguments]
) -> CheckedBackup:
    """Reads what the snapshots of a repository name, or one of them, and compares it with what was stored.

    `share` (0 to 1) of the data is chosen by chance. `checked.problems` are errors, each with the snapshots that it
    concerns.

    >>> import os, tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as place:
    ...     os.mkdir(place + "/logs")
    ...     with seglog.open_log(place + "/logs/t-0", create=True) as log:
    ...         info = log.append([seglog.Record(b"value", timestamp=1000)])
    ...     outcome = seglog.backup(place + "/logs", to=place + "/backup", uncommitted=True)
    ...     seglog.verify_backup(place + "/backup").problems
    []
    """
    part = number("share", share)
    if not 0 < part <= 1:
        raise ArgumentError("share", f"{share} is not above 0 and at most 1")
    from_repository = _opened(repository, common)
    ids = from_repository.ids() if snapshot is None else [from_repository.named(snapshot)]
    return verify_snapshots(from_repository, ids, part, random.Random(), lambda _size: None)


@public
def restore_backup(
    repository: Location,
    output: Location,
    *,
    snapshot: str | None = None,
    at_ms: int | str | None = None,
    **common: Unpack[CommonArguments],
) -> RestoredBackup:
    """Makes a log directory, or a directory of several, from a snapshot; every byte is compared with what was stored.

    `snapshot` is the start of an id, or "latest". Without it, the newest snapshot of each broker counts, with `at_ms`
    the newest that had ended then.
    Raises RefusedError if `output` is not empty, CorruptTierError for damage in the repository; then nothing is there.

    >>> import os, tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as place:
    ...     os.mkdir(place + "/logs")
    ...     with seglog.open_log(place + "/logs/t-0", create=True) as log:
    ...         info = log.append([seglog.Record(b"value", timestamp=1000)])
    ...     outcome = seglog.backup(place + "/logs", to=place + "/backup", uncommitted=True)
    ...     seglog.restore_backup(place + "/backup", place + "/new").partitions
    1
    """
    work = workspace_of(common)
    if snapshot is not None and at_ms is not None:
        raise ValueError("snapshot and at_ms both choose a snapshot: give one of them")
    from_repository = _opened(repository, common)
    chosen = chosen_snapshots(from_repository, snapshot, optional_time("at_ms", at_ms, work.clock))
    return restore_snapshots(from_repository, chosen, work.fs, local_path("output", output), lambda _size: None)


@public
def plan_prune_backup(
    repository: Location,
    *,
    keep_last: int = 0,
    keep_daily: int = 0,
    keep_weekly: int = 0,
    keep_monthly: int = 0,
    grace_ms: int | str = GRACE_MS,
    **common: Unpack[CommonArguments],
) -> PrunedBackup:
    """Returns what `prune_backup` would remove now. The example of that function shows it."""
    rules = _rules(keep_last, keep_daily, keep_weekly, keep_monthly)
    return _prune(repository, rules, grace_ms, common, dry_run=True)


@public
def prune_backup(
    repository: Location,
    *,
    keep_last: int = 0,
    keep_daily: int = 0,
    keep_weekly: int = 0,
    keep_monthly: int = 0,
    grace_ms: int | str = GRACE_MS,
    **common: Unpack[CommonArguments],
) -> PrunedBackup:
    """Removes the snapshots that no rule keeps, and what no snapshot has named for `grace_ms` (milliseconds or "24h").

    The newest snapshot of each set of log directories stays. Raises RefusedError without a rule.

    >>> import os, tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as place:
    ...     os.mkdir(place + "/logs")
    ...     with seglog.open_log(place + "/logs/t-0", create=True) as log:
    ...         info = log.append([seglog.Record(b"value", timestamp=1000)])
    ...     for _ in range(2):
    ...         outcome = seglog.backup(place + "/logs", to=place + "/backup", uncommitted=True)
    ...     plan = seglog.plan_prune_backup(place + "/backup", keep_last=1)
    ...     plan.removed == seglog.prune_backup(place + "/backup", keep_last=1).removed, len(plan.removed)
    (True, 1)
    """
    rules = _rules(keep_last, keep_daily, keep_weekly, keep_monthly)
    return _prune(repository, rules, grace_ms, common, dry_run=False)


def _rules(last: int, daily: int, weekly: int, monthly: int) -> KeepRules:
    given = {"keep_last": last, "keep_daily": daily, "keep_weekly": weekly, "keep_monthly": monthly}
    return KeepRules(*(optional_integer(name, count, 0) or 0 for name, count in given.items()))


def _prune(
    repository: Location, rules: KeepRules, grace_ms: int | str, common: CommonArguments, *, dry_run: bool
) -> PrunedBackup:
    now_ms, grace = workspace_of(common).clock.now_ms(), optional_duration("grace_ms", grace_ms, 0) or 0
    return prune_repository(_opened(repository, common), rules, now_ms, grace, dry_run=dry_run)


class BackupRedactionKeywords(ErasureKeywords, total=False):
    """The keyword arguments of `redact_backup`: the fields of `_RedactedBackup`."""

    topics: Iterable[str]


class BackupRedactionArguments(BackupRedactionKeywords, CommonArguments, total=False):
    """Those of `redact_backup`, and those of every function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RedactedBackup(Erasing):
    """What to erase from the snapshots of a repository; of `topics`, if any, only those are searched."""

    topics: Iterable[str] = ()

    def report(self, repository: Path, clock: Clock, *, dry_run: bool, resume: bool = False) -> RedactionReport:
        """Does it, or finds out what would be done. Raises as `redact_backup`."""
        asked, is_verified = self.requested(dry_run=dry_run), flag("verify", self.verify)
        names = several("topics", self.topics, "an iterable of names")
        work = BackupRedaction(opened(machine_files(), repository), clock, asked, names)
        work.search()
        if not dry_run:
            work.apply(resume=resume)
        return work.report(work.prove() if is_verified else None)


@public_verb(_RedactedBackup)
def plan_redact_backup(repository: Location, **given: Unpack[BackupRedactionArguments]) -> RedactionReport:
    """Returns what `redact_backup` would erase now; with `verify` also where copies are. Changes nothing.

    The example of that function shows it.
    """
    work, keywords = request_of(given, BackupRedactionKeywords, ())
    place = path_of("repository", repository)
    return _RedactedBackup(**keywords).report(place, work.clock, dry_run=True)


@public_verb(_RedactedBackup)
def redact_backup(
    repository: Location, *, resume: bool = False, **given: Unpack[BackupRedactionArguments]
) -> RedactionReport:
    """Erases the records with these `keys`, or at these `offsets` of each partition, from all snapshots, for good.

    `erase`, `digest_keys`, `drop_headers`, `request` and `verify` are those of `redact`. Of `topics`, if any, only
    those are searched. Snapshots keep their ids; what no snapshot names is removed. `resume` goes on where
    an erasure was cut short. Erase the records from the logs first: the next `backup` stores what it finds.

    Raises, before any snapshot changes: RefusedError for damage in a log that must be searched, for what must not be
    rewritten, and while another erasure is at work; UnsupportedError, CorruptTierError for a damaged repository.

    >>> import os, tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as place:
    ...     os.mkdir(place + "/logs")
    ...     with seglog.open_log(place + "/logs/t-0", create=True) as log:
    ...         info = log.append([seglog.Record(b"secret", key=b"a", timestamp=1000)])
    ...     outcome = seglog.backup(place + "/logs", to=place + "/backup", uncommitted=True)
    ...     plan = seglog.plan_redact_backup(place + "/backup", keys=[b"a"])
    ...     report = seglog.redact_backup(place + "/backup", keys=[b"a"], verify=True)
    ...     with seglog.open_log(place + "/backup#latest/t-0") as log:
    ...         plan.found[0].records, report.complete, [record.value for record in log.records()]
    (1, True, [None])
    """
    work, keywords = request_of(given, BackupRedactionKeywords, ())
    place, is_resumed = path_of("repository", repository), flag("resume", resume)
    return _RedactedBackup(**keywords).report(place, work.clock, dry_run=False, resume=is_resumed)


def _opened(repository: Location, common: CommonArguments) -> Repository:
    workspace_of(common)  # wrong arguments are named before anything is read
    return opened(machine_files(), path_of("repository", repository))
