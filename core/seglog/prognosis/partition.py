"""What a starting broker makes of one partition directory (Kafka: LogLoader, UnifiedLog, LogManager.loadLog).

1. Names, leftovers, epoch file, `partition.metadata`: what stops the load before it looks at data.
2. The recovery that would run, on an overlay: what it cuts and deletes. After a clean stop that is only segments
   without an offset index.
3. After a clean stop: indexes as they were left, and where the broker sees the end of the log.
4. With `deep`, everything `verify` finds, described by what a broker would do about it; transactions; the cleaner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from seglog.errors import CorruptCheckpointError, RefusedError, SeglogError
from seglog.format.checkpoint import UnforeseenByKafkaError, parse_leader_epochs
from seglog.format.index_entries import decode_offset_index, decode_time_index, padding_entries, used_entries
from seglog.log.loader import LoadOptions, RecoveryReport, plan_recovery
from seglog.log.obstacles import NAMED_BY_OFFSET, is_offset
from seglog.log.swap import ReplacedLog, settle_leftovers
from seglog.prognosis.cases import UNFORESEEN, Diagnosis
from seglog.prognosis.data import cleaner_hazards, of_findings, of_losses, of_transactions
from seglog.prognosis.partition_facts import Patient
from seglog.prognosis.placement import placement
from seglog.prognosis.segment_end import kafka_end
from seglog.scan.listing import SegmentFiles, list_partition
from seglog.scan.log_walk import Gap, LogWalk, is_whole
from seglog.storage.filesystem import FileSystem
from seglog.storage.overlay import OverlayFileSystem
from seglog.units import count_text

_MOST_INDEX_BYTES = 256 << 20


def examine_partition(patient: Patient, deep: bool) -> Iterator[Diagnosis]:
    """Every row on one partition. An OSError is the caller's."""
    yield from _names(patient)
    yield from _small_files(patient)
    if patient.listing.format == "0.7":
        yield patient.say("KAFKA_07_LOG", "", f"{len(patient.listing.segments)} files of Kafka 0.7")
        return
    yield from _leftovers(patient)
    yield from _start(patient)
    if patient.clean:
        for segment in patient.listing.segments:
            yield from _indexes(patient, segment)
        yield from _end(patient)
    if not deep:
        yield from of_losses(patient)
        return
    yield from of_findings(patient)
    yield from of_transactions(patient)
    if patient.compacted:
        yield from cleaner_hazards(patient)


# --- names and small files --------------------------------------------------------------------------------


def _names(patient: Patient) -> Iterator[Diagnosis]:
    for path in (*patient.listing.strangers, *patient.listing.leftovers):
        status = patient.fs.status(path)
        if status is None or status.is_directory or not path.name.endswith(NAMED_BY_OFFSET):
            continue
        number = path.name.partition(".")[0]
        if not is_offset(number):
            yield patient.say("STRANGE_SEGMENT_NAME", path, f"{number!r} is not an offset")
        elif path in patient.listing.strangers and path.name.endswith(".log"):
            message = f"{status.size} bytes under a name that Kafka never gives; it would open {int(number):020d}.log"
            yield patient.say("SHORT_SEGMENT_NAME", path, message)
    for orphan in patient.listing.orphans:
        yield patient.say("ORPHAN_INDEX", orphan.path, "there is no segment of that base offset")


def _refused_names(patient: Patient) -> list[Path]:
    """Files whose names stop the load, and `.log` files whose names seglog does not take."""
    listing = patient.listing
    numberless = [path for path in listing.leftovers if not is_offset(path.name.partition(".")[0])]
    named = [path for path in numberless if path.name.endswith(NAMED_BY_OFFSET)]
    return [*(path for path in listing.strangers if path.name.endswith(".log")), *named]


def _small_files(patient: Patient) -> Iterator[Diagnosis]:
    listing = patient.listing
    if listing.leader_epoch_checkpoint is not None:
        path = listing.leader_epoch_checkpoint
        if error := _unreadable_epochs(patient.fs, path):
            fields = {"broker": UNFORESEEN} if isinstance(error, UnforeseenByKafkaError) else {}
            yield patient.say("LEADER_EPOCHS_UNREADABLE", path, str(error).removeprefix(f"{path}: "), **fields)
    yield from placement(patient)


def _unreadable_epochs(fs: FileSystem, path: Path) -> SeglogError | None:
    try:
        parse_leader_epochs(fs.read_bytes(path), path)
    except (CorruptCheckpointError, RefusedError) as error:
        return error
    return None


def _leftovers(patient: Patient) -> Iterator[Diagnosis]:
    refused = set(_refused_names(patient))
    leftovers = [path for path in patient.listing.leftovers if path not in refused]
    damaged = {path for path in leftovers if path.name.endswith(".log.swap") and not is_whole(patient.fs, path)}
    lost = _replaced_logs(patient) if any(path.name.endswith(".log.swap") for path in leftovers) else []
    for path in leftovers:
        if path in damaged:
            message = "; ".join(("the file would replace live segments, and is not whole", *map(_replacement, lost)))
            yield patient.say("SWAP_DAMAGED", path, message, **_lost_offsets(lost, by_damage=True))
        else:
            yield patient.say("LEFTOVER_SETTLED", path, "left by an interrupted deletion, cleaning, swap or write")
    if not damaged:
        for each in lost:
            message = f"{_replacement(each)}: {each.reason}"
            yield patient.say("SWAP_SHORTER", each.path, message, **_lost_offsets([each], by_damage=False))


def _replaced_logs(patient: Patient) -> list[ReplacedLog]:
    """The live logs that the start gives up for `.swap` files which do not hold all that they hold."""
    return settle_leftovers(_without_refused(patient), patient.listing.directory).replaced


def _replacement(lost: ReplacedLog) -> str:
    return f"{lost.size} bytes of {lost.path.name} up to offset {lost.end_offset - 1} are replaced"


def _lost_offsets(lost: list[ReplacedLog], *, by_damage: bool) -> dict[str, int]:
    """Where the offsets lie that go; of a damaged replacement nobody knows what it holds, so all count."""
    if not lost:
        return {}
    bases = [int(each.path.stem) for each in lost]
    first = min(bases) if by_damage else max(min(bases), lost[0].swap_end_offset)
    last = max(each.end_offset for each in lost) - 1
    return {"first_offset": first, "last_offset": last, "length": sum(each.size for each in lost)}


# --- starting ---------------------------------------------------------------------------------------------


def _start(patient: Patient) -> Iterator[Diagnosis]:
    """What the recovery of this start would do; fills `patient.plan`."""
    options = LoadOptions(
        clean_shutdown=patient.clean,
        recovery_point=patient.recovery_point,
        log_start_offset=patient.log_start_offset,
        index_interval_bytes=patient.config.index_interval_bytes,
        keeps_holes=True,
    )
    try:
        plan = plan_recovery(_without_refused(patient), patient.listing.directory, patient.clock, options)
    except SeglogError as error:
        directory = f"{patient.listing.directory}/"
        yield patient.say("LOAD_FAILS", "", str(error).replace(directory, ""), **_place(error))
        return
    patient.plan = plan
    dropped = patient.log_start_offset > 0 and plan.deleted_segments and plan.log_end_offset == patient.log_start_offset
    if dropped and len(plan.deleted_segments) == len(patient.listing.segments):
        message = f"the log start checkpoint says {patient.log_start_offset}, which the log does not reach"
        yield patient.say("LOG_DROPPED", "", message, length=plan.deleted_bytes)
        return
    yield from _cuts(patient, plan)
    yield from _full_indexes(patient, plan)


def _without_refused(patient: Patient) -> FileSystem:
    """The files without those that were reported already and would stop the recovery."""
    overlay = OverlayFileSystem(patient.fs)
    refused = _refused_names(patient)
    epochs = patient.listing.leader_epoch_checkpoint
    if epochs is not None and _unreadable_epochs(patient.fs, epochs):
        refused.append(epochs)
    for path in refused:
        overlay.remove(path)
    return overlay


def _place(error: SeglogError) -> dict[str, Any]:
    path, position = getattr(error, "path", None), getattr(error, "position", None)
    return {"position": position} if isinstance(path, Path) and isinstance(position, int) else {}


def _cuts(patient: Patient, plan: RecoveryReport) -> Iterator[Diagnosis]:
    tail = patient.listing.segments[-1].base_offset if patient.live and patient.listing.segments else None
    for cut in plan.recovered:
        if cut.base_offset == tail:
            continue  # a running broker is about to finish that batch
        path = f"{cut.base_offset:020d}.log"
        if cut.truncated_bytes:
            code = "SEGMENT_HOLE" if patient.clean else "RECOVERY_CUTS"
            message = f"{cut.reason}: {cut.truncated_bytes} bytes from position {cut.valid_bytes} on would go"
            where = {"position": cut.valid_bytes, "length": cut.truncated_bytes, "first_offset": cut.next_offset}
            yield patient.say(code, path, message, **where)
        elif patient.clean:
            yield patient.say("SEGMENT_RECOVERED", path, "an index is missing or contradicts the segment's base")
    if plan.deleted_segments:
        first = plan.deleted_segments[0]
        message = f"{count_text(len(plan.deleted_segments), 'segment')}, {plan.deleted_bytes} bytes, after the damage"
        fields = {"length": plan.deleted_bytes, "first_offset": first, "count": len(plan.deleted_segments)}
        yield patient.say("RECOVERY_DROPS_SEGMENTS", f"{first:020d}.log", message, **fields)


def _full_indexes(patient: Patient, plan: RecoveryReport) -> Iterator[Diagnosis]:
    """Rebuilding does not fit where the index that is there does not either."""
    rebuilt = {one.base_offset for one in plan.recovered}
    most = patient.config.segment_index_bytes // 8 * 8
    for segment in patient.listing.segments:
        if segment.base_offset in rebuilt and segment.offset_index is not None:
            data = patient.fs.read_bytes(segment.offset_index, _MOST_INDEX_BYTES)
            used = 8 * used_entries(decode_offset_index(data, segment.base_offset), segment.base_offset)
            if used > most:
                message = f"{used} bytes of entries, segment.index.bytes is {most}"
                command = f"raise segment.index.bytes of the topic to {used} or more"
                yield patient.say("INDEX_TOO_LARGE", segment.offset_index, message, command=command)


# --- after a clean stop -----------------------------------------------------------------------------------


def _indexes(patient: Patient, segment: SegmentFiles) -> Iterator[Diagnosis]:
    if patient.recovered(segment.base_offset):
        return
    if segment.time_index is None:
        if segment.size and _newest(patient.fs, segment) >= 0:
            yield patient.say("TIME_INDEX_MISSING", segment.log.with_suffix(".timeindex"), "there is no time index")
    elif padding := _padding(patient.fs, segment.time_index, segment.base_offset, decode_time_index):
        code = "TIME_INDEX_PADDED" if segment.size else "INDEX_PADDED"
        yield patient.say(code, segment.time_index, f"{padding} zero entries after the written ones")
    if segment.offset_index is not None:
        padding = _padding(patient.fs, segment.offset_index, segment.base_offset, decode_offset_index)
        if padding:
            yield patient.say("INDEX_PADDED", segment.offset_index, f"{padding} zero entries after the written ones")


def _newest(fs: FileSystem, segment: SegmentFiles) -> int:
    """The largest timestamp of the first batches of a segment: -1 where its batches have none."""
    for step in LogWalk(fs, segment.log, 0, None, check=False):
        if not isinstance(step, Gap):
            return int(step.batches["max_timestamp"].max())
    return -1


def _padding(fs: FileSystem, path: Path, base_offset: int, decode: Callable[[bytes, int], np.ndarray]) -> int:
    """Zero entries after the written ones."""
    return padding_entries(decode(fs.read_bytes(path, _MOST_INDEX_BYTES), base_offset), base_offset)


def _end(patient: Patient) -> Iterator[Diagnosis]:
    """Where the broker sees the end of the active segment."""
    segments = list_partition(patient.fs, patient.listing.directory).segments
    if not segments or patient.plan is None:
        return
    active = segments[-1]
    if patient.recovered(active.base_offset):
        return
    end = kafka_end(patient.fs, active)
    patient.ends[active.base_offset] = end
    if end.refusal:
        where = {"position": end.position, "length": active.size - end.position}
        yield patient.say("LOG_END_UNREADABLE", active.log, end.refusal, **where)
    elif end.next_offset < patient.plan.log_end_offset:
        message = f"the offset index leads a broker to log end {end.next_offset}; the log ends at"
        yield patient.say(
            "LOG_END_WRONG",
            active.offset_index or active.log,
            f"{message} {patient.plan.log_end_offset}",
            first_offset=end.next_offset,
            last_offset=patient.plan.log_end_offset - 1,
        )
    elif end.position < active.size:
        length = active.size - end.position
        message = f"{length} bytes after the last whole batch"
        yield patient.say(
            "TAIL_STAYS", active.log, message, position=end.position, length=length, first_offset=end.next_offset
        )
