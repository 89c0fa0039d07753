"""Retention ahead of recovery: a broker died because its disk was full, and recovery needs room that is not there.

A log that was not closed properly is recovered before anything else is done to it, and recovery writes: indexes,
snapshots, epochs. On a disk without room for that, the segments that go anyway go first:

1. Each log is recovered in memory (`LogDirectory.try_log`), and the plan is made for what comes of it: the very plan
   that retention would carry out after a real recovery. A log whose recovery would cut off anything is left alone, as
   is one whose files cannot be read: opening it says why.
2. What a crash left over is settled, as by any opening: it takes no room, and `.deleted` files give some.
3. If that is not enough, the plan's closed segments go, the oldest first, each durably before the next. A `.log` goes
   before its indexes: a crash in between leaves indexes that belong to nothing, and a starting broker removes them. The
   active segment stays: what takes its place would need room.
4. Then every log is opened, recovered, and the rest of the plan carried out as ever.

No checkpoint need be written for that: a log starts at its first segment, whatever a lower entry says. What only the
segments that go can tell a recovery of the others are the producers: their state at the new log start is a snapshot,
which a broker takes whenever it rolls. Where it is missing it is written first; the offset and time indexes of what
goes, which any opening makes anew, give the room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from seglog.errors import SeglogError
from seglog.log.directory import LogDirectory, room_to_close
from seglog.log.loader import refuse_losses, stop_at_loss
from seglog.log.log import Log
from seglog.log.opening import has_ample_room
from seglog.log.producer_state import ProducerStateManager
from seglog.log.retention import RetentionPlan
from seglog.log.segment import LogSegment
from seglog.log.segments import rebuild_producer_state
from seglog.log.swap import settle_leftovers
from seglog.storage.files import write_atomically
from seglog.storage.overlay import OverlayFileSystem

Planner = Callable[[Sequence[Log], int, int], Sequence[RetentionPlan]]


def retain_ahead(directory: LogDirectory, partitions: Sequence[Path], planner: Planner) -> Mapping[Path, RetentionPlan]:
    """Makes room to recover the logs in `partitions`; for each that lost segments the part of its plan that is done.

    `planner` gets the logs as recovery would leave them, the bytes that are missing to recover them, and those that
    recovery itself gives back at most. Nothing happens where there is room.
    """
    unclean = [path for path in partitions if _is_unclean(directory, path)]
    if not unclean or has_ample_room(directory, unclean):
        return {}
    with ExitStack() as stack:
        tried = [log for path in unclean if (log := _tried(directory, path, stack)) is not None]
        rooms = [log.recovery.room for log in tried if log.recovery.room is not None]
        needed = sum(room.written for room in rooms) + room_to_close(directory)
        if _missing(directory, needed) <= 0:
            return {}
        for log in tried:
            settle_leftovers(directory.log_files, log.directory, stop_at_loss)
        missing = _missing(directory, needed)
        if missing <= 0:
            return {}
        plans = planner(tried, missing, sum(room.released for room in rooms))
        went = {log.directory: _carry_out(directory, log, plan) for log, plan in zip(tried, plans, strict=True)}
    return {path: plan for path, plan in went.items() if plan.segments}


def _missing(directory: LogDirectory, needed: int) -> int:
    return needed - directory.fs.free_bytes(directory.path)


def _is_unclean(directory: LogDirectory, path: Path) -> bool:
    try:
        return not directory.load_options(path).clean_shutdown
    except (SeglogError, OSError):
        return False  # opening it says why


def _tried(directory: LogDirectory, path: Path, stack: ExitStack) -> Log | None:
    """The log as recovery would leave it, in memory; None where it would lose anything, or cannot be opened."""
    try:
        log = stack.enter_context(directory.try_log(path))
        refuse_losses(log.recovery)
    except (SeglogError, OSError):
        return None  # opening it says why
    return log


def _carry_out(directory: LogDirectory, tried: Log, plan: RetentionPlan) -> RetentionPlan:
    """Removes the closed segments that `plan` removes, the oldest first; returns the plan of these alone."""
    fs, partition = directory.log_files, tried.directory
    going: list[LogSegment] = []
    for verdict in plan.removed:
        segment = LogSegment(fs, partition, verdict.base_offset)
        status = fs.status(segment.path)
        if verdict.active or status is None or status.size != verdict.size:
            break  # the last one; or recovery would make this segment out of others
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
    """Makes sure of a snapshot at the new log start, if any producer is known there."""
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
