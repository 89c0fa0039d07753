"""Retention before recovery: a broker died because its disk was full, and recovery lacks room.

A log that was not closed properly is recovered before anything else, and recovery writes: indexes, snapshots, epochs.
On a disk without room for that, segments that retention deletes anyway are deleted first:

1. Recover each log in memory (`LogDirectory.try_log`), and plan retention for the result: the same plan as after a real
   recovery. Leave alone a log whose recovery would cut off data, or whose files cannot be read: opening it reports why.
2. Settle the leftovers of a crash, as any opening does: that takes no room, and removing `.deleted` files gives some.
3. If that is not enough, delete the plan's closed segments, the oldest first, each durably before the next. A `.log` is
   removed before its indexes: a crash in between leaves indexes without a log, which a starting broker removes. The
   active segment stays, because its successor would need room.
4. Then open and recover every log, and apply the rest of the plan as usual.

A log whose active segment ends within a batch, as a full disk leaves it, is not recovered in passing: that cuts the
end. `FreeSpace` takes its closed segments all the same, in the way of step 3, and leaves the end to a broker.

This needs no checkpoint: a log starts at its first segment, even if a checkpoint's entry is lower. The recovery of the
remaining segments needs only one thing from the deleted ones, the producers' state at the new log start: a snapshot,
which a broker takes at every roll. A missing one is written first; removing the offset and time indexes of the segments
to delete, which any opening rebuilds, gives the room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from seglog.errors import SeglogError
from seglog.log.checkpoints import room_to_close
from seglog.log.directory import LogDirectory
from seglog.log.loader import RecoveryReport, refuse_losses
from seglog.log.log import Log
from seglog.log.opening import has_ample_room
from seglog.log.producer_state import ProducerStateManager
from seglog.log.retention import RetentionPlan
from seglog.log.segment import LogSegment
from seglog.log.segments import rebuild_producer_state
from seglog.log.swap import settle_leftovers
from seglog.remote_path import RemotePath
from seglog.storage.filesystem import write_atomically
from seglog.storage.lock import holder_of
from seglog.storage.overlay import OverlayFileSystem, TrialFileSystem

RetentionPlanner = Callable[[Sequence[Log], int, int], Sequence[RetentionPlan]]


@contextmanager
def try_torn(directory: LogDirectory, partition: Path) -> Iterator[Log | None]:
    """Opens a log as its recovery would leave it, in memory; None unless that cuts only the active segment's end."""
    with ExitStack() as stack:
        try:
            log = stack.enter_context(directory.try_log(partition))
        except (SeglogError, OSError):
            log = None  # opening the log reports why
        yield log if log is not None and is_torn(log.recovery) else None


@contextmanager
def opened_as_retain(directory: LogDirectory, partition: Path) -> Iterator[tuple[Log, Log]]:
    """Opens a log twice at most: to look at, and as `retain` would plan for it, with the indexes that opening it for
    writing rebuilds. Both are the same log where that loses nothing, or where nobody but a running broker opens it.
    Changes nothing. Raises NotALogError and OSError.
    """
    with ExitStack() as stack:
        tried = None
        if not isinstance(partition, RemotePath) and holder_of(directory.path) is None:
            with suppress(SeglogError, OSError):  # `retain` refuses it
                tried = stack.enter_context(directory.try_log(partition))
        if tried is not None and not tried.recovery.truncated_bytes:
            yield tried, tried
            return
        log = directory.log_in(partition)
        bases = [segment.base_offset for segment in log.segments]
        is_same = tried is not None and [segment.base_offset for segment in tried.segments] == bases
        yield log, tried if tried is not None and is_same else log


def let_go(tried: Log) -> None:
    """Forgets the contents that a trial made, such as rebuilt indexes: of a whole directory they may be more than fits
    memory. The log still has the offsets, sizes and times of its segments."""
    trial = tried.fs
    assert isinstance(trial, TrialFileSystem)
    for segment in tried.segments:
        segment.largest_timestamp()  # read from the index once, and known from then on
        segment.close_files()
    trial.overlay.let_go()


def is_torn(report: RecoveryReport) -> bool:
    """True if a recovery cuts the end of the active segment, and nothing else."""
    return bool(report.truncated_bytes) and not report.deleted_segments and not report.replaced


def retain_ahead(
    directory: LogDirectory, partitions: Sequence[Path], planner: RetentionPlanner, *, torn: bool = False
) -> Mapping[Path, RetentionPlan]:
    """Makes room to recover the logs in `partitions`; returns the applied part of the plan of each that lost segments.

    `planner` gets the logs as recovery would leave them, the bytes missing to recover them, and those that recovery
    itself frees at most. Does nothing if there is room. With `torn`, logs that `is_torn` give room too.
    """
    unclean = _unclean(directory, partitions)
    if not unclean or has_ample_room(directory, unclean):
        return {}
    with ExitStack() as stack:
        tried = [log for path in unclean if (log := _tried(directory, path, stack, torn)) is not None]
        recovered = [log.recovery for log in tried if not log.recovery.truncated_bytes]
        rooms = [recovery.room for recovery in recovered if recovery.room is not None]
        needed = sum(room.written for room in rooms) + room_to_close(directory.fs, directory.path)
        if _missing(directory, needed) <= 0:
            return {}
        for log in tried:
            settle_leftovers(directory.log_files, log.directory)  # `_tried` let none pass that replaces data
        missing = _missing(directory, needed)
        if missing <= 0:
            return {}
        plans = planner(tried, missing, sum(room.released for room in rooms))
        went = {log.directory: take_closed(directory, log, plan) for log, plan in zip(tried, plans, strict=True)}
    return {path: plan for path, plan in went.items() if plan.segments}


def lacks_room(directory: LogDirectory, partitions: Sequence[Path]) -> bool:
    """True unless the disk certainly has room to recover the logs in `partitions` that were not closed properly."""
    unclean = _unclean(directory, partitions)
    try:
        return bool(unclean) and not has_ample_room(directory, unclean)
    except (SeglogError, OSError):
        return True  # a log that vanished, or cannot be read: a dry run tells


def _unclean(directory: LogDirectory, partitions: Sequence[Path]) -> list[Path]:
    unclean = []
    for path in partitions:
        with suppress(SeglogError, OSError):  # opening the log reports why
            if not directory.load_options(path).clean_shutdown:
                unclean.append(path)
    return unclean


def _missing(directory: LogDirectory, needed: int) -> int:
    return needed - directory.fs.free_bytes(directory.path)


def _tried(directory: LogDirectory, path: Path, stack: ExitStack, torn: bool) -> Log | None:
    """Returns the log as recovery would leave it, in memory; None if it would lose data, or cannot be opened."""
    try:
        log = stack.enter_context(directory.try_log(path))
        if not (torn and is_torn(log.recovery)):
            refuse_losses(log.recovery)
    except (SeglogError, OSError):
        return None  # opening the log reports why
    return log


def take_closed(directory: LogDirectory, tried: Log, plan: RetentionPlan) -> RetentionPlan:
    """Deletes the plan's closed segments of a log that stays unrecovered, the oldest first; returns the plan for only
    these.
    """
    fs, partition = directory.log_files, tried.directory
    going: list[LogSegment] = []
    for verdict in plan.removed:
        segment = LogSegment(fs, partition, verdict.base_offset)
        status = fs.status(segment.path)
        if verdict.active or status is None or status.size != verdict.size:
            break  # the active segment, or one that recovery would make from others
        going.append(segment)
    start = plan.segments[len(going)].base_offset if going else plan.log_start_offset
    if going:
        _keep_producers(directory, tried, going, start)
    for segment in going:
        log, *others = segment.files
        fs.remove(log)
        fs.sync_directory(partition)
        for path in others:
            fs.remove(path)
    return replace(plan, new_log_start_offset=start, rolls=False, segments=plan.segments[: len(going)])


def _keep_producers(directory: LogDirectory, tried: Log, going: Sequence[LogSegment], start: int) -> None:
    """Writes a snapshot at the new log start, if it is missing and any producer is known there."""
    overlay = OverlayFileSystem(directory.log_files)
    producers = ProducerStateManager(overlay, tried.directory, expiration_ms=tried.producers.expiration_ms, strict=True)
    first = tried.segments.first.base_offset
    rebuild_producer_state(
        producers, tried.segments, first, start, directory.clock.now_ms(), reload_from_clean_shutdown=False
    )
    path = producers.snapshot_path(start)
    if producers.is_empty or path not in overlay.changed:
        return
    for segment in going:
        for index in (segment.offset_index, segment.time_index):
            if index.exists():
                directory.log_files.remove(index.path)
    write_atomically(directory.log_files, path, overlay.read_bytes(path))


def joined(plan: RetentionPlan, early: RetentionPlan | None) -> tuple[RetentionPlan, int]:
    """Returns the whole plan, and the number of segments in `early`, the part that was applied before recovery."""
    if early is None:
        return plan, 0
    segments = (*early.segments, *plan.segments)
    return replace(plan, log_start_offset=early.log_start_offset, segments=segments), len(early.segments)
