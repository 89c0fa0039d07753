"""How a starting broker reacts to one partition directory (Kafka: LogLoader, UnifiedLog, LogManager.loadLog).

1. Names, leftovers, epoch file, `partition.metadata`: what stops the load before it reads data.
2. The recovery that would run, on an overlay: what it cuts and deletes. After a clean shutdown it recovers only
   segments without an offset index.
3. The indexes that the start does not rebuild: all after a clean shutdown, else those below the recovery point. After
   a clean shutdown also where the broker sees the end of the log.
4. With `deep`: all findings of `verify`, described by how a broker reacts; transactions; the cleaner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from seglog.errors import CorruptCheckpointError, RefusedError, SeglogError
from seglog.format import filenames
from seglog.format.checkpoint import UnforeseenByKafkaError, parse_leader_epochs
from seglog.format.filenames import FileKind, FileState, parse_file_name
from seglog.log.checkpoints import NAMED_BY_OFFSET, is_offset
from seglog.log.indexes import TransactionIndex
from seglog.log.loader import LoadOptions, RecoveryReport, TransactionIndexRefusedError, plan_recovery
from seglog.log.producer_state import SnapshotRefusedError
from seglog.log.segments import OffsetIndexRefusedError
from seglog.log.swap import ReplacedLog, settle_leftovers
from seglog.scan.index_files import read_index
from seglog.scan.listing import SegmentFiles, list_partition
from seglog.scan.log_walk import Gap, LogWalk, is_whole
from seglog.storage.filesystem import FileSystem
from seglog.storage.overlay import OverlayFileSystem
from seglog.units import count_text
from seglog.verification.codes import Severity
from seglog_rescue.doctor.cases import CASES, Diagnosis
from seglog_rescue.doctor.data import of_cleaner, of_findings, of_losses, of_policy, of_transactions
from seglog_rescue.doctor.mends import UNFORESEEN, apple_double_command
from seglog_rescue.doctor.no_files import (
    examine_no_files,
    is_closed_index,
    unreadable_indexes,
    unwritable_snapshots,
    unwritable_transactions,
)
from seglog_rescue.doctor.partition_facts import PartitionFacts
from seglog_rescue.doctor.placement import placement
from seglog_rescue.doctor.segment_end import kafka_end

_FAILS = "Cannot load the partition: takes the log directory offline, and stops if it is its last one."
_LAST_BYTES = 8  # of the last entry of an offset or time index


def examine_partition(facts: PartitionFacts, deep: bool) -> Iterator[Diagnosis]:
    """Yields every diagnosis of one partition. Raises OSError."""
    for row in examine_small_files(facts):
        yield row
        if row.code == "NOT_A_FILE" and row.gravity is Severity.BLOCKER:
            return  # a broker does not come further either
    if facts.listing.format == "0.7":
        yield facts.diagnosis("KAFKA_07_LOG", "", f"{count_text(len(facts.listing.segments), 'file')} of Kafka 0.7")
        return
    yield from _leftovers(facts)
    yield from _start(facts)
    for segment in facts.listing.segments:
        yield from _indexes(facts, segment)
    yield from _copying(facts)
    yield from of_policy(facts)
    if facts.clean:
        yield from _end(facts)
    if not deep:
        yield from of_losses(facts)
        return
    yield from of_findings(facts)
    yield from of_transactions(facts)
    if facts.compacted:
        yield from of_cleaner(facts)


# --- names and small files --------------------------------------------------------------------------------


def examine_small_files(facts: PartitionFacts) -> Iterator[Diagnosis]:
    """Yields the diagnoses on names, the epoch file and `partition.metadata`; nothing after a blocker NOT_A_FILE."""
    for row in examine_no_files(facts):
        yield row
        if row.gravity is Severity.BLOCKER:
            return
    yield from _names(facts)
    yield from _small_files(facts)


def _names(facts: PartitionFacts) -> Iterator[Diagnosis]:
    for path in (*facts.listing.strangers, *facts.listing.leftovers):
        status = facts.fs.status(path)
        if status is None or not path.name.endswith(NAMED_BY_OFFSET) or status.no_file:
            continue
        number = path.name.partition(".")[0]
        if not is_offset(number):
            fields = {}
            if path.name.startswith("._"):
                fields["command"] = apple_double_command(facts.log_directory)
            yield facts.diagnosis("STRANGE_SEGMENT_NAME", path, f"{number!r} is not an offset", **fields)
        elif path in facts.listing.strangers and path.name.endswith(".log"):
            message = (
                f"Kafka never gives this name to a file ({count_text(status.size, 'byte')}); it opens"
                f" {int(number):020d}.log instead"
            )
            yield facts.diagnosis("SHORT_SEGMENT_NAME", path, message + _hidden_by(facts, int(number)))
    for orphan in facts.listing.orphans:
        yield facts.diagnosis("ORPHAN_INDEX", orphan.path, "there is no segment with that base offset")


def _hidden_by(facts: PartitionFacts, base: int) -> str:
    """Says which offsets an empty segment at `base` hides: fetches from there on do not look into the one before it."""
    bases = [segment.base_offset for segment in facts.listing.segments]
    if base in bases or all(other > base for other in bases):
        return ""
    following = min((other for other in bases if other > base), default=None)
    until = "on" if following is None else f"to {following - 1}"
    return f", and a fetch from offset {base} {until} finds nothing in the segment before it"


def _refused_names(facts: PartitionFacts) -> list[Path]:
    """Returns files whose names stop the load, and `.log` files whose names seglog refuses."""
    listing = facts.listing
    numberless = [path for path in listing.leftovers if not is_offset(path.name.partition(".")[0])]
    named = [path for path in numberless if path.name.endswith(NAMED_BY_OFFSET)]
    return [*(path for path in listing.strangers if path.name.endswith(".log")), *named]


def _small_files(facts: PartitionFacts) -> Iterator[Diagnosis]:
    listing = facts.listing
    if listing.leader_epoch_checkpoint is not None:
        path = listing.leader_epoch_checkpoint
        if error := _unreadable_epochs(facts.fs, path):
            fields = {"broker": UNFORESEEN} if isinstance(error, UnforeseenByKafkaError) else {}
            yield facts.diagnosis("LEADER_EPOCHS_UNREADABLE", path, str(error).removeprefix(f"{path}: "), **fields)
    yield from placement(facts)


def _unreadable_epochs(fs: FileSystem, path: Path) -> SeglogError | None:
    try:
        parse_leader_epochs(fs.read_bytes(path), path)
    except (CorruptCheckpointError, RefusedError) as error:
        return error
    return None


def _leftovers(facts: PartitionFacts) -> Iterator[Diagnosis]:
    refused = set(_refused_names(facts))
    leftovers = [path for path in facts.listing.leftovers if path not in refused]
    damaged = {path for path in leftovers if path.name.endswith(".log.swap") and not is_whole(facts.fs, path)}
    lost: list[ReplacedLog] = []  # live logs that the start replaces with a `.swap` file that holds less
    if any(path.name.endswith(".log.swap") for path in leftovers):
        lost = settle_leftovers(OverlayFileSystem(without_refused(facts)), facts.listing.directory).replaced
    for path in leftovers:
        if path in damaged:
            end = kafka_end(facts.fs, _of_swap(facts, path))
            if end.refusal:
                yield facts.diagnosis("LOG_END_UNREADABLE", path, end.refusal, position=end.position)
            message = "; ".join(("the file would replace live segments, but is damaged", *map(_replacement, lost)))
            yield facts.diagnosis("SWAP_DAMAGED", path, message, **_lost_offsets(lost, by_damage=True))
        else:
            yield facts.diagnosis("LEFTOVER_SETTLED", path, "left by an interrupted deletion, cleaning, swap or write")
    if not damaged:
        for each in lost:
            message = f"{_replacement(each)}: {each.reason}"
            yield facts.diagnosis("SWAP_SHORTER", each.path, message, **_lost_offsets([each], by_damage=False))


def _of_swap(facts: PartitionFacts, log: Path) -> SegmentFiles:
    """Returns a `.log.swap` file as the segment that a broker makes of it: with its offset index, if there is one."""
    name, status = parse_file_name(log.name), facts.fs.status(log)
    assert name is not None and status is not None
    index = log.with_name(filenames.segment_file_name(name.offset, FileKind.OFFSET_INDEX, FileState.SWAP))
    there = facts.fs.status(index) is not None
    return SegmentFiles(name.offset, log, status.size, status.modified_ms, offset_index=index if there else None)


def _replacement(lost: ReplacedLog) -> str:
    return f"{lost.path.name} ({count_text(lost.size, 'byte')}, up to offset {lost.end_offset - 1}) would be replaced"


def _lost_offsets(lost: list[ReplacedLog], *, by_damage: bool) -> dict[str, int]:
    """Returns the offsets and bytes that are lost. A damaged replacement may hold nothing, so all of them count."""
    if not lost:
        return {}
    bases = [int(each.path.stem) for each in lost]
    first = min(bases) if by_damage else max(min(bases), lost[0].swap_end_offset)
    last = max(each.end_offset for each in lost) - 1
    return {"first_offset": first, "last_offset": last, "length": sum(each.size for each in lost)}


# --- starting ---------------------------------------------------------------------------------------------


def _start(facts: PartitionFacts) -> Iterator[Diagnosis]:
    """Yields what the recovery of this start would do. Fills `facts.plan`."""
    unwritable = unwritable_snapshots(facts)
    options = _options(facts, unwritable)
    for segment in facts.listing.segments:
        path = segment.transaction_index if segment.offset_index is not None else None  # else recovered, and made anew
        stop = None if path is None else TransactionIndex(facts.fs, path, segment.base_offset).broker_stops_at()
        if path is not None and stop is not None:
            yield facts.diagnosis("LOAD_FAILS", path, stop.reason, position=stop.position)
            return
    try:
        plan = plan_recovery(without_refused(facts), facts.listing.directory, facts.clock, options)
    except SnapshotRefusedError as error:
        yield from _unwritable(facts, {error.offset: unwritable[error.offset]}, gravity=Severity.BLOCKER, broker=_FAILS)
        return
    except TransactionIndexRefusedError as error:
        yield facts.diagnosis("NOT_A_FILE", _transactions_at(error.base_offset), str(error))
        return
    except OffsetIndexRefusedError as error:
        name = filenames.segment_file_name(error.base_offset, FileKind.OFFSET_INDEX)
        yield facts.diagnosis("NOT_A_FILE", name, str(error))
        return
    except SeglogError as error:
        directory = f"{facts.listing.directory}/"
        position = getattr(error, "position", None) if isinstance(getattr(error, "path", None), Path) else None
        yield facts.diagnosis("LOAD_FAILS", "", str(error).replace(directory, ""), position=position)
        return
    facts.plan = plan
    dropped = facts.log_start_offset > 0 and plan.deleted_segments and plan.log_end_offset == facts.log_start_offset
    if dropped and len(plan.deleted_segments) == len(facts.listing.segments):
        message = f"the log ends below its checkpointed log start {facts.log_start_offset}"
        yield facts.diagnosis("LOG_DROPPED", "", message, length=plan.deleted_bytes)
        return
    yield from _unwritable(facts, {offset: unwritable[offset] for offset in plan.unwritten_snapshots})
    yield from _unwritten_transactions(facts, plan)
    yield from _cuts(facts, plan)
    yield from _full_indexes(facts, plan)


def _options(facts: PartitionFacts, unwritable: Mapping[int, str]) -> LoadOptions:
    """Returns how a broker loads the partition; `unwritable` are the snapshots that it cannot write."""
    return LoadOptions(
        clean_shutdown=facts.clean,
        recovery_point=facts.recovery_point,
        log_start_offset=facts.log_start_offset,
        index_interval_bytes=facts.config.index_interval_bytes,
        keeps_holes=True,
        unwritable_snapshots=frozenset(unwritable),
        unwritable_transactions=unwritable_transactions(facts),
        unreadable_indexes=unreadable_indexes(facts),
    )


def _unwritten_transactions(facts: PartitionFacts, plan: RecoveryReport) -> Iterator[Diagnosis]:
    """Yields the segments that a recovery empties, because their transaction index cannot be written."""
    fields = {"gravity": Severity.DANGER, "offline": False, "broker": CASES["SNAPSHOT_UNWRITABLE"].broker}
    message = "it is a link to nothing, and the segment has aborted transactions"
    for offset in plan.unwritten_transactions:
        yield facts.diagnosis("NOT_A_FILE", _transactions_at(offset), message, **fields)


def _transactions_at(base_offset: int) -> str:
    return filenames.segment_file_name(base_offset, FileKind.TRANSACTION_INDEX)


def _unwritable(facts: PartitionFacts, offsets: Mapping[int, str], **fields: object) -> Iterator[Diagnosis]:
    for offset, why in offsets.items():
        name = filenames.segment_file_name(offset, FileKind.PRODUCER_SNAPSHOT)
        yield facts.diagnosis("SNAPSHOT_UNWRITABLE", name, why, first_offset=offset, **fields)


def without_refused(facts: PartitionFacts) -> FileSystem:
    """Returns the files without those that are already reported and would stop the recovery, and with those that a
    broker makes on its way to the recovery.
    """
    made = [path for path in _made_ahead(facts) if facts.fs.status(path) is None]
    refused = _refused_names(facts)
    epochs = facts.listing.leader_epoch_checkpoint
    if epochs is not None and _unreadable_epochs(facts.fs, epochs):
        refused.append(epochs)
    for no_file in facts.no_files:
        if no_file.is_there and no_file.name is not None and no_file.name.kind is not FileKind.METADATA_SNAPSHOT:
            refused.append(no_file.path)
            made += [no_file.path] if is_closed_index(facts, no_file) else []  # it is not missing
    if not made and not refused:
        return facts.fs
    overlay = OverlayFileSystem(facts.fs)
    for path in dict.fromkeys(refused):
        overlay.remove(path)
    for path in made:
        overlay.open(path, "create").close()
    return overlay


def _made_ahead(facts: PartitionFacts) -> Iterator[Path]:
    """Yields the files that a broker makes before it loads segments, if they are missing.

    To see where a `.log.swap` ends, it opens its offset index, which makes the file; the finished swap has it, so that
    the segment is not recovered. A short name opens a segment.
    """
    names = [name for path in facts.listing.leftovers if (name := parse_file_name(path.name)) is not None]
    below = min((name.offset for name in names if name.state is FileState.CLEANED), default=None)
    for name in names:
        kept = below is None or name.offset < below
        if name.kind is FileKind.LOG and name.state is FileState.SWAP and kept:
            index = filenames.segment_file_name(name.offset, FileKind.OFFSET_INDEX, FileState.SWAP)
            yield facts.listing.directory / index
    passed_over = {no_file.path for no_file in facts.no_files}
    for path in facts.listing.strangers:
        number = path.name.partition(".")[0]
        if path.name.endswith(".log") and is_offset(number) and int(number) >= 0 and path not in passed_over:
            yield facts.listing.directory / filenames.segment_file_name(int(number))


def _cuts(facts: PartitionFacts, plan: RecoveryReport) -> Iterator[Diagnosis]:
    tail = facts.listing.segments[-1].base_offset if facts.live and facts.listing.segments else None
    for cut in plan.recovered:
        if cut.base_offset == tail:
            continue  # a running broker is writing that batch
        path = f"{cut.base_offset:020d}.log"
        if cut.truncated_bytes:
            code = "SEGMENT_HOLE" if facts.clean else "RECOVERY_CUTS"
            code = "RECOVERY_CUTS_ZEROS" if cut.preallocated else code
            message = (
                f"{cut.reason}; recovery cuts {count_text(cut.truncated_bytes, 'byte')} from position {cut.valid_bytes}"
            )
            where = {"position": cut.valid_bytes, "length": cut.truncated_bytes, "first_offset": cut.next_offset}
            yield facts.diagnosis(code, path, message, **where)
        elif facts.clean:
            yield facts.diagnosis("SEGMENT_RECOVERED", path, "an index is missing or contradicts the segment's base")
    if plan.deleted_segments:
        first = plan.deleted_segments[0]
        message = f"recovery deletes {count_text(len(plan.deleted_segments), 'segment')} after the damage"
        message += f", {count_text(plan.deleted_bytes, 'byte')} from offset {first}"
        fields = {"length": plan.deleted_bytes, "first_offset": first, "count": len(plan.deleted_segments)}
        yield facts.diagnosis("RECOVERY_DROPS_SEGMENTS", f"{first:020d}.log", message, **fields)


def _full_indexes(facts: PartitionFacts, plan: RecoveryReport) -> Iterator[Diagnosis]:
    """Yields the offset indexes to rebuild that exceed segment.index.bytes: the rebuilt one does not fit either."""
    rebuilt = {one.base_offset for one in plan.recovered}
    most = facts.config.segment_index_bytes // 8 * 8
    for segment in facts.listing.segments:
        if segment.base_offset in rebuilt and segment.offset_index is not None:
            status = facts.fs.status(segment.offset_index)
            if status is None or status.size <= most:
                continue
            used = 8 * len(read_index(facts.fs, segment.offset_index, segment.base_offset, past_zeros=True).rows)
            if used > most:
                message = f"its entries take {count_text(used, 'byte')}, but segment.index.bytes is {most}"
                command = f"raise segment.index.bytes of the topic to {used} or more"
                yield facts.diagnosis("INDEX_TOO_LARGE", segment.offset_index, message, command=command)


# --- what no recovery mends ----------------------------------------------------------------------------------


def _indexes(facts: PartitionFacts, segment: SegmentFiles) -> Iterator[Diagnosis]:
    if facts.recovered(segment.base_offset):
        return
    if segment.time_index is None:
        if segment.size and _newest(facts.fs, segment) >= 0:
            yield facts.diagnosis("TIME_INDEX_MISSING", segment.log.with_suffix(".timeindex"), "there is no time index")
    elif padding := _padding(facts.fs, segment.time_index, segment.base_offset):
        code = "TIME_INDEX_PADDED" if segment.size else "INDEX_PADDED"
        yield facts.diagnosis(code, segment.time_index, f"{padding} zero entries follow the written ones")
    if segment.offset_index is not None:
        padding = _padding(facts.fs, segment.offset_index, segment.base_offset)
        if padding:
            yield facts.diagnosis(
                "INDEX_PADDED", segment.offset_index, f"{padding} zero entries after the written ones"
            )


def _copying(facts: PartitionFacts) -> Iterator[Diagnosis]:
    """Yields that copies to remote storage fail: a closed segment goes with the snapshot at its end, which is needed.

    A recovery writes the snapshots at the ends of the segments that it reads. Kafka: RemoteLogManager.copyLogSegment.
    """
    if not facts.config.remote_storage_enable:
        return
    segments, there = facts.listing.segments, {snapshot.offset for snapshot in facts.listing.snapshots}
    missing = [
        following.base_offset
        for closed, following in pairwise(segments)
        if following.base_offset not in there and not facts.recovered(closed.base_offset)
    ]
    if missing:
        name = f"{missing[0]:020d}.snapshot"
        message = f"there is no producer snapshot at {count_text(len(missing), 'end')} of closed segments"
        yield facts.diagnosis("SNAPSHOT_MISSING", name, message, first_offset=missing[0], count=len(missing))


def _newest(fs: FileSystem, segment: SegmentFiles) -> int:
    """Returns the largest timestamp in the first chunk of a segment, -1 if its batches have none."""
    for step in LogWalk(fs, segment.log, check=False):
        if not isinstance(step, Gap):
            return int(step.batches["max_timestamp"].max())
    return -1


def _padding(fs: FileSystem, path: Path, base_offset: int) -> int:
    """Returns the number of zero entries after the written ones."""
    with fs.open(path, "r") as file:
        if any(file.read_at(max(0, file.size() - _LAST_BYTES), _LAST_BYTES)):
            return 0
    return read_index(fs, path, base_offset, past_zeros=True).padding


def _end(facts: PartitionFacts) -> Iterator[Diagnosis]:
    """Yields a wrong or unreadable end of the active segment, as a broker sees it."""
    segments = list_partition(facts.fs, facts.listing.directory).segments
    if not segments or facts.plan is None:
        return
    active = segments[-1]
    if facts.recovered(active.base_offset):
        return
    end = kafka_end(facts.fs, active)
    facts.ends[active.base_offset] = end
    if end.refusal:
        where = {"position": end.position, "length": active.size - end.position}
        yield facts.diagnosis("LOG_END_UNREADABLE", active.log, end.refusal, **where)
    elif end.next_offset < facts.plan.log_end_offset:
        message = f"the offset index leads a broker to log end {end.next_offset}, but the log ends at"
        yield facts.diagnosis(
            "LOG_END_WRONG",
            active.offset_index or active.log,
            f"{message} {facts.plan.log_end_offset}",
            first_offset=end.next_offset,
            last_offset=facts.plan.log_end_offset - 1,
        )
    elif end.position < active.size:
        length = active.size - end.position
        message = f"{count_text(length, 'byte')} follow the last whole batch"
        yield facts.diagnosis(
            "TAIL_STAYS", active.log, message, position=end.position, length=length, first_offset=end.next_offset
        )
