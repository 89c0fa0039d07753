"""Functions that repair a log or cut it: repair, recovery, truncation, and `undo`.

Each but `undo` has a `plan_` function, which reports what would be done, takes no lock and changes nothing. The
function itself takes the log directory's lock, raises LockedError while a broker runs, and first finishes or undoes an
interrupted run, as the command line does.
"""

from __future__ import annotations

from typing import Unpack

from seglog.api.calling import public, public_verb
from seglog.log.loader import RecoveryReport
from seglog.operations import repair as repairing
from seglog.operations.recover import Recovery, RecoveryArguments, RecoveryKeywords, RecoveryRequest
from seglog.operations.repair import PlannedRepair, RepairArguments, Repaired, RepairKeywords, RepairRequest
from seglog.operations.truncate import Truncated, TruncationArguments, TruncationKeywords, TruncationRequest
from seglog.operations.truncate import truncate as cut_off
from seglog.operations.undo import named_run, remember_run
from seglog.operations.undo import undo as undo_run
from seglog.operations.workspace import (
    CommonArguments,
    Location,
    local_path,
    local_paths_of,
    optional_path,
    path_of,
    paths_of,
    request_of,
    warn,
    workspace_of,
)
from seglog.repairs.undo.journal import RunRecord

# --- repair


@public_verb(RepairRequest)
def plan_repair(*paths: Location, **given: Unpack[RepairArguments]) -> list[PlannedRepair]:
    """Returns what `repair` would do now, one plan per log directory. Takes the same arguments.

    The example of `repair` shows it.
    """
    named = tuple(paths_of(paths))
    work, keywords = request_of(given, RepairKeywords, named)
    request = RepairRequest(named, **keywords)
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
    named = tuple(local_paths_of(paths))
    work, keywords = request_of(given, RepairKeywords, named)
    done = []
    for job in repairing.repair_jobs(work, RepairRequest(named, **keywords)):
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


@public_verb(RecoveryRequest)
def plan_recover(path: Location, **given: Unpack[RecoveryArguments]) -> list[RecoveryReport]:
    """Returns what `recover` would do now. Takes the same arguments and changes nothing.

    The example of `recover` shows it.
    """
    named = path_of("path", path)
    work, keywords = request_of(given, RecoveryKeywords, [named])
    return list(Recovery.of(work, RecoveryRequest(named, **keywords), dry_run=True).run())


@public_verb(RecoveryRequest)
def recover(path: Location, **given: Unpack[RecoveryArguments]) -> list[RecoveryReport]:
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
    named = local_path("path", path)
    work, keywords = request_of(given, RecoveryKeywords, [named])
    done = list(Recovery.of(work, RecoveryRequest(named, **keywords)).run())
    for report in done:
        if report.run is not None:
            warn(remember_run(work.fs, work.environment, report.run))
    return done


@public
def plan_reindex(path: Location, **common: Unpack[CommonArguments]) -> list[RecoveryReport]:
    """Returns what `reindex` would do now, one report per partition. Changes nothing.

    The example of `reindex` shows it.
    """
    named = path_of("path", path)
    return list(Recovery.of(workspace_of(common, [named]), RecoveryRequest(named, lossless=True), dry_run=True).run())


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
    ...     (plan,) = seglog.plan_reindex(path + "/t-0")
    ...     (done,) = seglog.reindex(path + "/t-0")
    ...     len(plan.recovered), done.truncated_bytes, os.path.exists(path + "/t-0/00000000000000000000.index")
    (1, 0, True)
    """
    named = local_path("path", path)
    return list(Recovery.of(workspace_of(common, [named]), RecoveryRequest(named, lossless=True)).run())


@public_verb(TruncationRequest)
def plan_truncate(partition: Location, **given: Unpack[TruncationArguments]) -> Truncated:
    """Returns what `truncate` would do now. Takes the same arguments and changes nothing.

    The example of `truncate` shows it.
    """
    named = local_path("partition", partition)
    work, keywords = request_of(given, TruncationKeywords, [named])
    return cut_off(work, TruncationRequest(named, **keywords), dry_run=True)


@public_verb(TruncationRequest)
def truncate(partition: Location, **given: Unpack[TruncationArguments]) -> Truncated:
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
    ...     plan = seglog.plan_truncate(path, to_offset=1)
    ...     done = seglog.truncate(path, to_offset=1)
    ...     (plan.cut.end_offset, done.cut.end_before, done.cut.end_offset), seglog.undo(done.run).state.value
    ((1, 3, 1), 'undone')
    """
    named = local_path("partition", partition)
    work, keywords = request_of(given, TruncationKeywords, [named])
    done = cut_off(work, TruncationRequest(named, **keywords))
    if done.run is not None:
        warn(remember_run(work.fs, work.environment, done.run.folder))
    return done
