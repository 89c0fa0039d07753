"""Functions that repair a log or cut it: repair, recovery, truncation, and `undo`.

Each but `undo` has a `plan_` function, which reports what would be done, takes no lock and changes nothing. The
function itself takes the log directory's lock, raises LockedError while a broker runs, and first finishes or undoes an
interrupted run, as the command line does.
"""

from __future__ import annotations

from typing import Unpack

from seglog.api.calling import public, public_verb
from seglog.arguments import flag
from seglog.configuration.settings import DirectorySettings
from seglog.log.loader import RecoveryReport
from seglog.operations import repair as repairing
from seglog.operations.keeping import Keeper, Truncated
from seglog.operations.recover import RecoveryOptions
from seglog.operations.recover import recover as recover_target
from seglog.operations.repair import PlannedRepair, RepairArguments, Repaired, RepairKeywords, RepairRequest
from seglog.operations.undo import named_run, remember_run
from seglog.operations.undo import undo as undo_run
from seglog.operations.workspace import (
    CommonArguments,
    Location,
    Workspace,
    local_path,
    local_paths_of,
    optional_integer,
    optional_path,
    optional_time,
    path_of,
    paths_of,
    request_of,
    settings_of,
    warn,
    warn_of_runs,
    workspace_of,
)
from seglog.repairs.undo.journal import RunRecord
from seglog.scan.listing import Target, log_directory_of, resolve_path
from seglog.storage.lock import partition_path

# --- repair


@public_verb(RepairRequest)
def plan_repair(*paths: Location, **given: Unpack[RepairArguments]) -> list[PlannedRepair]:
    """Returns what `repair` would do now, one plan per log directory. Takes the same arguments.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as path:
    ...     with seglog.open_log(path + "/t-0", create=True) as log:
    ...         for value in (b"first", b"second", b"third"):
    ...             info = log.append([seglog.Record(value, timestamp=1000)])
    ...     with open(path + "/t-0/00000000000000000000.log", "r+b") as file:
    ...         position, written = file.seek(100), file.write(b"XXX")
    ...     (plan,) = seglog.plan_repair(path + "/t-0")
    ...     [(row["action"], row["first_offset"]) for row in plan.plan.rows() if "first_offset" in row]
    [('excise', 1)]
    """
    work, keywords = request_of(given, RepairKeywords)
    request = RepairRequest(tuple(paths_of(paths)), **keywords)
    return [repairing.plan_job(work, job) for job in repairing.repair_jobs(work, request, dry_run=True)]


@public_verb(RepairRequest)
def repair(*paths: Location, **given: Unpack[RepairArguments]) -> list[Repaired]:
    """Verifies partitions or log directories and repairs what is wrong, as `seglog repair` does.

    Returns one result per log directory. `policy` is "smallest-loss" (remove only the damaged ranges), "excise" (the
    same, but remove batches that are out of order, too) or "truncate" (cut the log at the first damage). `only` limits
    the repair to parts: log, index, snapshot, epochs, checkpoint; one text or a list. Removed data goes to the
    quarantine first (default: beside the log directory), and `undo(outcome.run)` restores it. A partition with a file
    that this user may not open is left out with a warning: `outcome.plan.unopened` names it, and `complete` is False.
    Raises LockedError, NotALogError, and RefusedError if the disk lacks room.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as place:
    ...     import os; os.mkdir(place + "/logs")
    ...     path = place + "/logs/t-0"
    ...     with seglog.open_log(path, create=True) as log:
    ...         for value in (b"first", b"second", b"third"):
    ...             info = log.append([seglog.Record(value, timestamp=1000)])
    ...     with open(path + "/00000000000000000000.log", "r+b") as file:
    ...         position = file.seek(100)
    ...         written = file.write(b"XXX")
    ...     (plan,) = seglog.plan_repair(path)
    ...     [row["action"] for row in plan.plan.rows()][:1]
    ...     (done,) = seglog.repair(path)
    ...     with seglog.open_log(path) as log:
    ...         print([record.value for record in log.records()])
    ...     seglog.undo(done.outcome.run).state.value
    ['excise']
    [b'first', b'third']
    'undone'
    """
    work, keywords = request_of(given, RepairKeywords)
    done = []
    for job in repairing.repair_jobs(work, RepairRequest(tuple(local_paths_of(paths)), **keywords)):
        one = repairing.repair_job(work, job)
        if one.outcome.run is not None:
            warn(remember_run(work.fs, work.environment, one.outcome.run.folder))
        warn(*one.outcome.plan.unopened)
        done.append(one)
    return done


@public
def undo(
    run: RunRecord | Location, *, quarantine: Location | None = None, **common: Unpack[CommonArguments]
) -> RunRecord:
    """Undoes a repair, recovery or truncation: restores every file. Returns the run's record, now in state "undone".

    `run` is the run's record, folder or name; a name is looked up in `quarantine` and in the usual places. Raises
    RefusedError if a file has changed since the run, NotALogError for an unknown name, LockedError while a broker runs.

    >>> import os, tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as place:
    ...     os.mkdir(place + "/logs")
    ...     with seglog.open_log(place + "/logs/t-0", create=True) as log:
    ...         info = log.append([seglog.Record(b"value", timestamp=1000)])
    ...     done = seglog.truncate(place + "/logs/t-0", to_offset=0)
    ...     print(seglog.undo(done.run).state.value)
    ...     with seglog.open_log(place + "/logs/t-0") as log:
    ...         [record.value for record in log.records()]
    undone
    [b'value']
    """
    work = workspace_of(common)
    if not isinstance(run, RunRecord):
        run = named_run(work.fs, work.environment, str(path_of("run", run)), optional_path("quarantine", quarantine))
    return undo_run(work.fs, run)


# --- recovery and truncation


@public
def plan_recover(
    path: Location, *, recovery_point: int | None = None, **common: Unpack[CommonArguments]
) -> list[RecoveryReport]:
    """Returns what `recover` would do now. Changes nothing.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as path:
    ...     with seglog.open_log(path + "/t-0", create=True) as log:
    ...         for value in (b"first", b"second", b"third"):
    ...             info = log.append([seglog.Record(value, timestamp=1000)])
    ...     with open(path + "/t-0/00000000000000000000.log", "r+b") as file:
    ...         position, written = file.seek(100), file.write(b"XXX")
    ...     (plan,) = seglog.plan_recover(path + "/t-0", recovery_point=0)
    ...     plan.log_end_offset, plan.truncated_bytes
    (1, 147)
    """
    work, target, settings = _one(common, path)
    warn_of_runs(work, [target.path])
    options = RecoveryOptions(optional_integer("recovery_point", recovery_point, 0), dry_run=True)
    return list(recover_target(work.fs, work.clock, target, settings, options))


@public
def recover(
    path: Location,
    *,
    recovery_point: int | None = None,
    keep: bool = True,
    quarantine: Location | None = None,
    **common: Unpack[CommonArguments],
) -> list[RecoveryReport]:
    """Recovers a partition, or all of a log directory, as a broker does that starts after a crash.

    Returns one report per partition. Reading begins at the offset `recovery_point`, or at the checkpointed one.
    Everything after the first damage is cut off; `repair` loses less. With `keep`, the data goes to the quarantine
    first, and `undo(report.run)` restores it. Raises LockedError, NotALogError, CorruptionError if a broker would not
    start.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as place:
    ...     import os; os.mkdir(place + "/logs")
    ...     path = place + "/logs/t-0"
    ...     with seglog.open_log(path, create=True) as log:
    ...         for value in (b"first", b"second", b"third"):
    ...             info = log.append([seglog.Record(value, timestamp=1000)])
    ...     with open(path + "/00000000000000000000.log", "r+b") as file:
    ...         position = file.seek(100)
    ...         written = file.write(b"XXX")
    ...     (plan,) = seglog.plan_recover(path, recovery_point=0)
    ...     (done,) = seglog.recover(path, recovery_point=0)
    ...     plan.log_end_offset, done.log_end_offset, done.truncated_bytes
    ...     seglog.undo(done.run).state.value
    (1, 1, 147)
    'undone'
    """
    work, target, settings = _one(common, local_path("path", path))
    keeper = Keeper(work.fs, work.clock, settings, "recover", optional_path("quarantine", quarantine))
    point = optional_integer("recovery_point", recovery_point, 0)
    options = RecoveryOptions(point, keeper=keeper if flag("keep", keep) else None)
    done = list(recover_target(work.fs, work.clock, target, settings, options))
    for report in done:
        if report.run is not None:
            warn(remember_run(work.fs, work.environment, report.run))
    return done


@public
def plan_reindex(path: Location, **common: Unpack[CommonArguments]) -> list[RecoveryReport]:
    """Returns what `reindex` would do now, one report per partition. Changes nothing.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as path:
    ...     with seglog.open_log(path + "/t-0", create=True) as log:
    ...         info = log.append([seglog.Record(b"value", timestamp=1000)])
    ...     (plan,) = seglog.plan_reindex(path)
    ...     plan.truncated_bytes, len(plan.recovered)
    (0, 1)
    """
    work, target, settings = _one(common, path)
    warn_of_runs(work, [target.path])
    options = RecoveryOptions(dry_run=True, lossless=True)
    return list(recover_target(work.fs, work.clock, target, settings, options))


@public
def reindex(path: Location, **common: Unpack[CommonArguments]) -> list[RecoveryReport]:
    """Rebuilds indexes, producer snapshots and leader epochs of a partition or of all in a log directory.

    No record changes. Returns one report per partition. Raises RefusedError if damage would make it lose bytes,
    LockedError, NotALogError.

    >>> import os, tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as path:
    ...     with seglog.open_log(path + "/t-0", create=True) as log:
    ...         info = log.append([seglog.Record(b"value", timestamp=1000)])
    ...     os.remove(path + "/t-0/00000000000000000000.index")
    ...     (done,) = seglog.reindex(path + "/t-0")
    ...     done.truncated_bytes, os.path.exists(path + "/t-0/00000000000000000000.index")
    (0, True)
    """
    work, target, settings = _one(common, local_path("path", path))
    return list(recover_target(work.fs, work.clock, target, settings, RecoveryOptions(lossless=True)))


@public
def plan_truncate(
    partition: Location,
    *,
    to_offset: int | None = None,
    to_time_ms: int | str | None = None,
    **common: Unpack[CommonArguments],
) -> Truncated:
    """Returns what `truncate` would do now. Changes nothing.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as path:
    ...     with seglog.open_log(path + "/t-0", create=True) as log:
    ...         for _ in range(3):
    ...             info = log.append([seglog.Record(b"value", timestamp=1000)])
    ...     plan = seglog.plan_truncate(path + "/t-0", to_offset=1)
    ...     plan.cut.end_offset, plan.cut.bytes
    (1, 146)
    """
    return _truncated(common, partition, to_offset, to_time_ms, None, dry_run=True, keep=True)


@public
def truncate(
    partition: Location,
    *,
    to_offset: int | None = None,
    to_time_ms: int | str | None = None,
    keep: bool = True,
    quarantine: Location | None = None,
    **common: Unpack[CommonArguments],
) -> Truncated:
    """Cuts off the end of a log in whole batches, from `to_offset` or `to_time_ms` on.

    `to_time_ms` (epoch milliseconds, or text as on the command line) cuts at the first record with that timestamp or
    a later one. With `keep`, the data goes to the quarantine first, and `undo(done.run)` restores it. A log that was
    not closed properly is recovered first, even if there is nothing to cut. Raises ValueError unless exactly one of
    the two is given, OffsetOutOfRangeError for an offset below the log start, LockedError, NotALogError.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as place:
    ...     import os; os.mkdir(place + "/logs")
    ...     path = place + "/logs/t-0"
    ...     with seglog.open_log(path, create=True) as log:
    ...         for i in range(3):
    ...             info = log.append([seglog.Record(b"value", timestamp=1000)])
    ...     done = seglog.truncate(path, to_offset=1)
    ...     (done.cut.end_before, done.cut.end_offset), seglog.undo(done.run).state.value
    ((3, 1), 'undone')
    """
    return _truncated(common, partition, to_offset, to_time_ms, quarantine, dry_run=False, keep=keep)


def _truncated(
    common: CommonArguments,
    partition: Location,
    to_offset: int | None,
    to_time_ms: int | str | None,
    quarantine: Location | None,
    *,
    dry_run: bool,
    keep: bool,
) -> Truncated:
    work = workspace_of(common)
    offset, moment = optional_integer("to_offset", to_offset, 0), optional_time("to_time_ms", to_time_ms, work.clock)
    if (offset is None) == (moment is None):
        raise ValueError("give to_offset or to_time_ms: it says where to cut")
    path = local_path("partition", partition)
    settings = settings_of(work, partition_path(path).parent)
    keeper = Keeper(work.fs, work.clock, settings, "truncate", optional_path("quarantine", quarantine))
    done = keeper.truncate(path, offset, moment, dry_run=dry_run, keep=flag("keep", keep))
    if done.run is not None:
        warn(remember_run(work.fs, work.environment, done.run.folder))
    return done


def _one(common: CommonArguments, path: Location) -> tuple[Workspace, Target, DirectorySettings]:
    work = workspace_of(common)
    target = resolve_path(work.fs, path_of("path", path))
    return work, target, settings_of(work, log_directory_of(target))
