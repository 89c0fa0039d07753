"""What a partition's data means to a broker: findings, transactions and the cleaner's stumbling blocks.

A finding is damage; what a broker makes of it depends on the start. What recovery cuts off is reported by the recovery;
here is what survives it: served as it is, trusted, laundered by the cleaner.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.evidence.findings import CODES, Finding, Severity
from seglog.evidence.losses import LOSSES, losses_of, quick_extent
from seglog.evidence.transactions import TransactionState, transactions
from seglog.format.columns import STATUS_REASONS, Records
from seglog.format.filenames import parse_file_name
from seglog.model import NO_TIMESTAMP
from seglog.prognosis.cases import Diagnosis, Gravity
from seglog.prognosis.partition_facts import Patient
from seglog.scan.listing import SegmentFiles
from seglog.scan.log_walk import Gap, LogWalk, WalkedEntries
from seglog.verification.batches import Level
from seglog.verification.partition import LookOptions, PartitionLook

_DAMAGE = {
    "CRC_MISMATCH",
    "UNREADABLE_BYTES",
    "ZERO_BYTES",
    "TORN_TAIL",
    "OFFSETS_NOT_ASCENDING",
    "OFFSET_OUT_OF_SEGMENT",
    "MAGIC_UNKNOWN",
    "CODEC_UNKNOWN",
    "OFFSET_DELTA_INVALID",
    "COUNT_INVALID",
    "CONTROL_INVALID",
    "RECORDS_INVALID",
    "RECORD_OFFSETS_INVALID",
    "TRANSACTION_STATE_INVALID",
}
_OTHERS = {
    "OFFSET_INDEX_INVALID": "INDEX_TRUSTED",
    "TIME_INDEX_INVALID": "INDEX_TRUSTED",
    "INDEX_SIZE_INVALID": "INDEX_TRUSTED",
    "TIME_INDEX_SHORT": "INDEX_TRUSTED",
    "TRANSACTION_INDEX_DIFFERS": "ABORTED_EXPOSED",
    "SNAPSHOT_CORRUPT": "SNAPSHOT_IGNORED",
    "SNAPSHOT_DIFFERS": "SNAPSHOT_TRUSTED",
    "LEADER_EPOCHS_DIFFER": "EPOCHS_WRONG",
    "LEADER_EPOCH_DECREASING": "EPOCHS_WRONG",
    "TIMESTAMP_NEGATIVE": "HEADER_ODD",
    "RECORD_TIMESTAMP_ABOVE_MAX": "HEADER_ODD",
    "PRODUCER_INVALID": "HEADER_ODD",
    "UNREADABLE_FILE": "DIRECTORY_UNREADABLE",
}
_REBUILT = {"INDEX_TRUSTED", "ABORTED_EXPOSED"}


def of_findings(patient: Patient) -> Iterator[Diagnosis]:
    """Everything that `verify` finds and that survives the start; one row a code and file, with a count."""
    options = LookOptions(Level.SEMANTIC)
    rows: dict[tuple[str, str], Diagnosis] = {}
    for found in PartitionLook(patient.view, patient.around, options):
        code = _code_of(patient, found)
        if code is None:
            continue
        known = rows.get((found.code, found.file))
        if known is not None:
            rows[found.code, found.file] = replace(known, count=known.count + 1)
            continue
        fields = {name: getattr(found, name) for name in ("position", "length", "first_offset", "last_offset")}
        if code in ("DAMAGE_SERVED", "HEADER_ODD"):
            fields["broker"] = CODES[found.code].broker
        if code in LOSSES and found.severity is Severity.INFO:
            fields["gravity"] = Gravity.NOTE
        rows[found.code, found.file] = patient.say(code, found.file, found.message, **fields)
    damaged = {Path(file).stem for (code, file) in rows if code in _DAMAGE}
    for row in rows.values():
        # an index that leads to a damaged batch is not the one to blame
        if row.code != "INDEX_TRUSTED" or Path(row.file).stem not in damaged:
            yield row


def _code_of(patient: Patient, found: Finding) -> str | None:
    name = parse_file_name(found.file)
    base = -1 if name is None else name.offset
    if found.code in _DAMAGE:
        position = found.position or 0
        end = patient.ends.get(base)
        told = end is not None and position >= end.position
        return "DAMAGE_SERVED" if patient.survives(base, position) and not told else None
    code = found.code if found.code in LOSSES else _OTHERS.get(found.code)
    if code in _REBUILT and patient.recovered(base):
        return None
    if code == "SNAPSHOT_TRUSTED" and not _is_newest_snapshot(patient, found.file):
        return None
    return code


def of_losses(patient: Patient) -> Iterator[Diagnosis]:
    """What is gone, as far as names, indexes and the ends of files tell."""
    extent = quick_extent(patient.fs, patient.listing)
    for loss in losses_of(patient.fs, patient.listing, extent, patient.around):
        gravity = Gravity.NOTE if loss.severity is Severity.INFO else Gravity.DANGER
        where = {"first_offset": loss.first_offset, "last_offset": loss.last_offset}
        yield patient.say(loss.code, loss.file, loss.message, gravity=gravity, **where)


def _is_newest_snapshot(patient: Patient, file: str) -> bool:
    """Whether a start would load that snapshot: older ones are never looked at."""
    snapshots = patient.listing.snapshots
    end = None if patient.plan is None else patient.plan.log_end_offset
    usable = [one for one in snapshots if end is None or one.offset <= end]
    return patient.clean and bool(usable) and usable[-1].path.name == file


def of_transactions(patient: Patient) -> Iterator[Diagnosis]:
    """Open transactions, and producers that a clean start forgets."""
    seen = False
    found = transactions(patient.fs, patient.listing, patient.clock.now_ms(), coordinators=patient.coordinators)
    for one in found:
        seen = True
        if one.state is not TransactionState.OPEN:
            continue
        known = f" (its coordinator says: {one.coordinator})" if one.coordinator else ""
        message = f"producer {one.producer_id} epoch {one.producer_epoch} has a transaction open{known}"
        if one.source == "snapshot":
            message += "; only the producer snapshot names it, and the log has no record of it"
        # without the coordinator's word, age alone does not tell: it may still end it
        hanging = one.hanging is True and (one.coordinator != "" or one.source == "snapshot")
        code = "TRANSACTION_HANGING" if hanging else "TRANSACTION_OPEN"
        yield patient.say(code, one.file, message, position=one.position, first_offset=one.first_offset)
    if patient.clean and not patient.listing.snapshots and (seen or _has_producers(patient)):
        yield patient.say("SNAPSHOT_LOST", "", "there is no producer snapshot, and the log has producers")


def _has_producers(patient: Patient) -> bool:
    for segment in reversed(patient.listing.segments):
        for step in LogWalk(patient.fs, segment.log, check=False):
            if (
                isinstance(step, WalkedEntries)
                and ((step.batches["magic"] == 2) & (step.batches["producer_id"] >= 0)).any()
            ):
                return True
    return False


# --- the cleaner ------------------------------------------------------------------------------------------


def cleaner_hazards(patient: Patient) -> Iterator[Diagnosis]:
    """What makes Kafka's cleaner fail on this partition, or hide damage (specification §15, gaps 1 to 4)."""
    for segment in patient.listing.segments:
        hazards = _Hazards(patient, segment, closed=segment is not patient.listing.segments[-1])
        yield from hazards.rows()


class _Hazards:
    """One segment: the first place of each kind, and how many there are."""

    def __init__(self, patient: Patient, segment: SegmentFiles, closed: bool) -> None:
        self._patient, self._segment, self._closed = patient, segment, closed
        self._found: dict[str, Diagnosis] = {}
        self._keyless_end: np.void | None = None

    def rows(self) -> Iterator[Diagnosis]:
        for step in LogWalk(self._patient.fs, self._segment.log):
            if isinstance(step, Gap):
                if not step.at_end or self._closed:
                    self._note("CLEANER_FAILS", step.position, step.length, "bytes that are not a batch")
                continue
            for row in step.batches[~step.valid]:
                message = "the batch's checksum is wrong, which the cleaner does not look at"
                self._batch("CLEANER_LAUNDERS", row, message)
            self._headers(step)
            self._records(step)
        if self._closed and self._keyless_end is not None:
            message = "the segment ends with messages without key of magic 0 or 1: Kafka's cleaner fails on them"
            self._batch("CLEANER_FAILS", self._keyless_end, message)
        yield from self._found.values()

    def _headers(self, piece: WalkedEntries) -> None:
        good = piece.batches[piece.valid & (piece.batches["magic"] > 0)]
        for row in good[good["max_timestamp"] < NO_TIMESTAMP]:
            self._batch("CLEANER_FAILS", row, f"the batch's timestamp {int(row['max_timestamp'])} is negative")

    def _records(self, piece: WalkedEntries) -> None:
        for records in piece.records(piece.batches[piece.valid]):
            for i in np.flatnonzero(records.status).tolist() if not records.rows_before else ():
                self._batch("CLEANER_FAILS", records.batches[i], STATUS_REASONS[int(records.status[i])])
            stamps = records.batches["magic"][records.rows["batch"]] > 0
            for i in np.flatnonzero(stamps & (records.rows["timestamp"] < NO_TIMESTAMP)).tolist():
                row = records.batches[int(records.rows["batch"][i])]
                if row["max_timestamp"] >= NO_TIMESTAMP:
                    self._batch("CLEANER_FAILS", row, f"a record's timestamp {int(records.rows['timestamp'][i])}")
            self._note_end(records)

    def _note_end(self, records: Records) -> None:
        rows, batches = records.rows, records.batches
        if len(batches) == 0 or (records.rows_before and self._keyless_end is None):
            return  # nothing, or a part of a batch that has had a key
        last = batches[-1]
        own = rows["key_size"][rows["batch"] == len(batches) - 1]
        legacy = int(last["magic"]) < 2 and not int(last["attributes"]) & layout.CONTROL_MASK
        self._keyless_end = last if legacy and len(own) and bool((own < 0).all()) else None

    def _batch(self, code: str, row: np.void, message: str) -> None:
        self._note(code, int(row["position"]), int(row["size"]), message, int(row["base_offset"]))

    def _note(self, code: str, position: int, length: int, message: str, first_offset: int | None = None) -> None:
        if not self._patient.survives(self._segment.base_offset, position):
            return
        known = self._found.get(code)
        if known is not None:
            self._found[code] = replace(known, count=known.count + 1)
            return
        where = {"position": position, "length": length, "first_offset": first_offset}
        self._found[code] = self._patient.say(code, Path(self._segment.log.name), message, **where)
