"""Makes the new files of a partition in a run's folder, from a source that is only read.

1. Write its batches, rewritten (`rewriting`), segment by segment, and the markers after the last one.
2. Recover the new log like a broker that finds only batches: indexes, the index of aborted transactions, producers. The
   result must match the plan.
3. Write the one entry of `leader-epoch-checkpoint`, and give every file the owner and mode of a broker's file here. The
   `.log` files keep their times, by which messages of magic 0 and 1 are cleaned and deleted.

The bytes depend only on source and plan, so a target that holds them already is recognised (`is_there`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.clock import Clock
from seglog.configuration.keys import LogConfig
from seglog.errors import RefusedError
from seglog.format import checksum, filenames
from seglog.format.checkpoint import EpochEntry, format_leader_epochs
from seglog.format.filenames import FileKind, parse_file_name, segment_file_name
from seglog.format.record_batch import RecordBatchHeader, encode_batch
from seglog.log.append import ProducerIdentity, encode_end_txn_marker
from seglog.log.loader import LoadOptions
from seglog.log.log import Log
from seglog.progress import BytesRead
from seglog.repairs.undo.journal import NEW, Change, group_of
from seglog.repairs.undo.quarantine import facts_of
from seglog.scan.listing import SEGMENT_KINDS, list_partition
from seglog.scan.log_walk import Gap, LogWalk, WalkedEntries
from seglog.storage.files import pieces
from seglog.storage.filesystem import Access, FileSystem
from seglog_rescue.groups.coordinator_replay import OFFSETS_TOPIC
from seglog_rescue.transplant.plan import Ending, PartitionPlan
from seglog_rescue.transplant.rewriting import (
    LEADER_EPOCH,
    foreign_id,
    forget_epochs,
    rewrite,
    seal,
    set_checksums,
    with_forgotten_epochs,
)
from seglog_rescue.transplant.source import SourceLog, SourceSegment, require_unchanged


def stage_partition(
    fs: FileSystem, clock: Clock, plan: PartitionPlan, config: LogConfig, folder: Path, progress: BytesRead
) -> list[Change]:
    """Makes the files in the run's folder, durably; returns the changes to the target, in order."""
    place = folder / NEW / str(plan.partition)
    fs.make_directory(place, parents=True)
    for segment in plan.source.segments:
        _write_log(fs, plan, segment, place / segment_file_name(segment.base_offset), progress)
    require_unchanged(fs, plan.source)
    _recover(fs, clock, plan, config, place)
    epochs = place / filenames.LEADER_EPOCH_CHECKPOINT
    with fs.open(epochs, "create") as file:
        file.write_at(0, format_leader_epochs([EpochEntry(LEADER_EPOCH, plan.source.log_start)]))
    _finish_files(fs, plan, place)
    for directory in (place, place.parent, folder):
        fs.sync_directory(directory)
    return _changes(fs, plan, place)


def is_there(fs: FileSystem, plan: PartitionPlan) -> bool:
    """True if the target's log begins with the very bytes that would be put there."""
    theirs = chain.from_iterable(
        _read(fs, segment.log) for segment in list_partition(fs, plan.target.directory).segments
    )
    waiting = memoryview(b"")
    rewritten = (piece for segment in plan.source.segments for piece in _rewritten(plan.source, segment))
    for piece in chain(rewritten, map(marker_of, plan.endings)):
        ours = memoryview(piece)
        while ours:
            if not waiting:
                waiting = memoryview(next(theirs, b""))
                if not waiting:
                    return False
            size = min(len(ours), len(waiting))
            if ours[:size] != waiting[:size]:
                return False
            ours, waiting = ours[size:], waiting[size:]
    return True


def marker_of(ending: Ending) -> bytes:
    """Returns the control batch that ends an open transaction, with the time of the transaction's last batch."""
    one = ending.transaction
    producer = ProducerIdentity(foreign_id(one.producer_id), one.producer_epoch, transactional=True)
    data = encode_end_txn_marker(producer, ending.commit, ending.coordinator_epoch, max(0, one.last_timestamp))
    header = RecordBatchHeader.read(data)
    placed = replace(header, base_offset=ending.offset, leader_epoch=LEADER_EPOCH)
    return encode_batch(placed, data[layout.RECORD_BATCH_OVERHEAD :])


# --- bytes ------------------------------------------------------------------------------------------------


def _write_log(fs: FileSystem, plan: PartitionPlan, segment: SourceSegment, path: Path, progress: BytesRead) -> None:
    is_last = segment is plan.source.segments[-1]
    position = 0
    with fs.open(path, "create_new") as file:
        for data in chain(_rewritten(plan.source, segment), map(marker_of, plan.endings if is_last else ())):
            file.write_at(position, data)
            position += len(data)
            progress(len(data))
        file.sync()


def _rewritten(source: SourceLog, segment: SourceSegment) -> Iterator[bytes]:
    """Yields the new bytes of a segment. Raises RefusedError if it changed since it was read."""
    position, path = 0, source.directory / segment.name
    for step in LogWalk(source.fs, path, end=segment.valid_bytes):
        if isinstance(step, Gap) or not step.valid.all():
            break
        yield from _piece(step, source.partition.topic == OFFSETS_TOPIC)
        position = int(step.batches["position"][-1]) + int(step.batches["size"][-1])
    if position != segment.valid_bytes:
        raise RefusedError(f"{path} changed while it was read: it ends or is damaged at position {position}")


def _piece(step: WalkedEntries, has_commits: bool) -> Iterator[bytes]:
    if not step.complete:
        yield from _large(step)
        return
    data, rows, position = step.data, step.batches, step.position
    if not data.flags.writeable:  # a store lends what it has fetched
        data = data.copy()
    seal(data, rewrite(data, rows, position), position)
    if not has_commits:
        yield data.tobytes()
        return
    commits = (rows["magic"] >= 2) & ((rows["attributes"] & layout.CONTROL_MASK) == 0)
    packed = (rows["attributes"] & layout.CODEC_MASK) != 0
    seal(data, forget_epochs(data, rows[commits & ~packed], position), position)
    front = 0
    for row in rows[commits & packed]:
        start = int(row["position"]) - position
        end = start + int(row["size"])
        yield data[front:start].tobytes()
        yield with_forgotten_epochs(data[start:end].tobytes())
        front = end
    yield data[front:].tobytes()


def _large(step: WalkedEntries) -> Iterator[bytes]:
    """Yields a batch that is too large for memory: its bytes are read twice, first for the checksum in its header."""
    row = step.batches
    start, size = int(row["position"][0]), int(row["size"][0])
    with step.source() as file:
        header = np.frombuffer(file.read_at(start, layout.RECORD_BATCH_OVERHEAD), dtype=np.uint8).copy()
        body = start + len(header)
        if len(rewrite(header, row, start)):
            value = checksum.crc32c(header[layout.ATTRIBUTES_OFFSET :])
            for piece in pieces(file, body, start + size):
                value = checksum.crc32c(piece, value)
            set_checksums(header, row, start, np.array([value]))
        yield header.tobytes()
        for piece in pieces(file, body, start + size):
            yield bytes(piece)


def _read(fs: FileSystem, path: Path) -> Iterator[bytes]:
    with fs.open(path, "r") as file:
        yield from pieces(file, 0, file.size())


# --- files ------------------------------------------------------------------------------------------------


def _recover(fs: FileSystem, clock: Clock, plan: PartitionPlan, config: LogConfig, place: Path) -> None:
    """Does step 2. Raises RefusedError if the new log differs from the plan: the defect is ours; nothing is changed."""
    options = LoadOptions(clean_shutdown=False, log_start_offset=plan.source.log_start)
    log = Log.open(place, config, fs=fs, clock=clock, options=options)
    found = log.log_start_offset, log.log_end_offset, len(log.producers.open_transactions), log.recovery.truncated_bytes
    wanted = plan.source.log_start, plan.log_end, 0, 0
    log.close()
    if found != wanted:
        raise RefusedError(
            f"{plan.source.directory}: the new log has (start, end, open transactions, bytes lost) {found} and not"
            f" {wanted}; nothing was changed"
        )


def _finish_files(fs: FileSystem, plan: PartitionPlan, place: Path) -> None:
    """Does step 3, but for the epochs."""
    directory = fs.status(plan.target.directory)
    assert directory is not None
    times = {segment.base_offset: segment.modified_ms for segment in plan.source.segments}
    for name in fs.list(place):
        with fs.open(place / name, "r+") as file:
            file.give(Access.within(directory))
            file.sync()
        parsed = parse_file_name(name)
        if parsed is not None and parsed.offset in times and parsed.kind in SEGMENT_KINDS:
            fs.set_modified(place / name, times[parsed.offset])


def _changes(fs: FileSystem, plan: PartitionPlan, place: Path) -> list[Change]:
    """Returns the removals, then the new segments' files by offset, then the files about the whole log."""
    target, name = plan.target.directory, place.name
    staged, old = fs.list(place), [each for each, found in fs.entries(target) if not found.is_directory]
    gone = [each for each in old if each not in staged and each != filenames.PARTITION_METADATA]
    removed = [
        Change.of("remove", f"{name}/{each}", facts_of(fs, target / each), None, group=group_of(each)) for each in gone
    ]
    placed = [
        Change.of(
            "replace", f"{name}/{each}", facts_of(fs, target / each), facts_of(fs, place / each), group=group_of(each)
        )
        for each in staged
    ]
    return sorted(removed, key=_order) + sorted(placed, key=_order)


def _order(change: Change) -> tuple[bool, int, bool, str]:
    return change.group < 0, change.group, not change.path.endswith(FileKind.LOG.value), change.path
