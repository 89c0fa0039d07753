"""What a partition's data means to a broker: findings, transactions, and hazards to the cleaner.

How a broker reacts to a finding depends on the start. The planned recovery reports what it cuts off; this module
reports the damage that survives it and is served, trusted, or given a valid checksum by the cleaner.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.format.columns import STATUS_REASONS, Records
from seglog.format.filenames import parse_file_name
from seglog.model import NO_TIMESTAMP
from seglog.rescue.doctor.cases import Diagnosis, Gravity
from seglog.rescue.doctor.partition_facts import PartitionFacts
from seglog.scan.listing import SegmentFiles
from seglog.scan.log_walk import Gap, LogWalk, WalkedEntries
from seglog.verification.batches import Level
from seglog.verification.findings import CODES, Finding, Severity
from seglog.verification.losses import LOSSES, losses_of, quick_extent
from seglog.verification.partition import LookOptions, PartitionLook
from seglog.verification.transactions import TransactionState, transactions

# damage to the log itself, which a repair removes
_DAMAGE = {kind.code for kind in CODES.values() if kind.repair in ("excise", "truncate")} | {
    "TRANSACTION_STATE_INVALID"
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


def of_findings(facts: PartitionFacts) -> Iterator[Diagnosis]:
    """Yields what `verify` finds and a start leaves in the log: one counted diagnosis per code and file."""
    options = LookOptions(Level.SEMANTIC)
    rows: dict[tuple[str, str], Diagnosis] = {}
    for found in PartitionLook(facts.view, facts.around, options):
        code = _code_of(facts, found)
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
        rows[found.code, found.file] = facts.diagnosis(code, found.file, found.message, **fields)
    damaged = {Path(file).stem for (code, file) in rows if code in _DAMAGE}
    for row in rows.values():
        # an index that leads to a damaged batch may be right
        if row.code != "INDEX_TRUSTED" or Path(row.file).stem not in damaged:
            yield row


def _code_of(facts: PartitionFacts, found: Finding) -> str | None:
    name = parse_file_name(found.file)
    base = -1 if name is None else name.offset
    if found.code in _DAMAGE:
        position = found.position or 0
        end = facts.ends.get(base)
        reported_as_end = end is not None and position >= end.position
        return "DAMAGE_SERVED" if facts.survives(base, position) and not reported_as_end else None
    code = found.code if found.code in LOSSES else _OTHERS.get(found.code)
    if code in _REBUILT and facts.recovered(base):
        return None
    if code == "SNAPSHOT_TRUSTED" and not _is_newest_snapshot(facts, found.file):
        return None
    return code


def of_losses(facts: PartitionFacts) -> Iterator[Diagnosis]:
    """Yields the lost offsets that names, indexes and the ends of files reveal."""
    extent = quick_extent(facts.fs, facts.listing)
    for loss in losses_of(facts.fs, facts.listing, extent, facts.around):
        gravity = Gravity.NOTE if loss.severity is Severity.INFO else Gravity.DANGER
        where = {"first_offset": loss.first_offset, "last_offset": loss.last_offset}
        yield facts.diagnosis(loss.code, loss.file, loss.message, gravity=gravity, **where)


def _is_newest_snapshot(facts: PartitionFacts, file: str) -> bool:
    """True if a start would load that snapshot; it never reads older ones."""
    snapshots = facts.listing.snapshots
    end = None if facts.plan is None else facts.plan.log_end_offset
    usable = [one for one in snapshots if end is None or one.offset <= end]
    return facts.clean and bool(usable) and usable[-1].path.name == file


def of_transactions(facts: PartitionFacts) -> Iterator[Diagnosis]:
    """Yields open transactions, and producers that a clean start forgets."""
    seen = False
    found = transactions(facts.fs, facts.listing, facts.clock.now_ms(), coordinators=facts.coordinators)
    for one in found:
        seen = True
        if one.state is not TransactionState.OPEN:
            continue
        known = f" (its coordinator says: {one.coordinator})" if one.coordinator else ""
        message = f"producer {one.producer_id} epoch {one.producer_epoch} has an open transaction{known}"
        if one.source == "snapshot":
            message += "; only the producer snapshot names it, the log has no record of it"
        # age alone proves nothing: a coordinator whose log is not here may still end the transaction
        hanging = one.hanging is True and (one.coordinator != "" or one.source == "snapshot")
        code = "TRANSACTION_HANGING" if hanging else "TRANSACTION_OPEN"
        yield facts.diagnosis(code, one.file, message, position=one.position, first_offset=one.first_offset)
    if facts.clean and not facts.listing.snapshots and (seen or _has_producers(facts)):
        yield facts.diagnosis("SNAPSHOT_LOST", "", "there is no producer snapshot, but the log has producers")


def _has_producers(facts: PartitionFacts) -> bool:
    for segment in reversed(facts.listing.segments):
        for step in LogWalk(facts.fs, segment.log, check=False):
            if (
                isinstance(step, WalkedEntries)
                and ((step.batches["magic"] == 2) & (step.batches["producer_id"] >= 0)).any()
            ):
                return True
    return False


# --- the cleaner ------------------------------------------------------------------------------------------


def cleaner_hazards(facts: PartitionFacts) -> Iterator[Diagnosis]:
    """Yields what makes Kafka's cleaner fail on this partition, or hide damage."""
    for segment in facts.listing.segments:
        hazards = _Hazards(facts, segment, closed=segment is not facts.listing.segments[-1])
        yield from hazards.rows()


class _Hazards:
    """The hazards in one segment: the first of each kind, with a count."""

    def __init__(self, facts: PartitionFacts, segment: SegmentFiles, closed: bool) -> None:
        self._facts, self._segment, self._closed = facts, segment, closed
        self._found: dict[str, Diagnosis] = {}
        self._keyless_end: np.void | None = None

    def rows(self) -> Iterator[Diagnosis]:
        for step in LogWalk(self._facts.fs, self._segment.log):
            if isinstance(step, Gap):
                if not step.at_end or self._closed:
                    message = f"{step.length} bytes are not a batch"
                    self._note("CLEANER_FAILS", step.position, step.length, message)
                continue
            for row in step.batches[~step.valid]:
                message = "the checksum of the batch is wrong, and the cleaner does not check it"
                self._batch("CLEANER_LAUNDERS", row, message)
            good = step.batches[step.valid & (step.batches["magic"] > 0)]
            for row in good[good["max_timestamp"] < NO_TIMESTAMP]:
                self._batch("CLEANER_FAILS", row, f"the batch's max timestamp {int(row['max_timestamp'])} is negative")
            self._records(step)
        if self._closed and self._keyless_end is not None:
            message = "the segment ends with magic 0 or 1 messages without keys, on which Kafka's cleaner fails"
            self._batch("CLEANER_FAILS", self._keyless_end, message)
        yield from self._found.values()

    def _records(self, piece: WalkedEntries) -> None:
        for records in piece.records(piece.batches[piece.valid]):
            for i in np.flatnonzero(records.status).tolist() if not records.rows_before else ():
                self._batch("CLEANER_FAILS", records.batches[i], STATUS_REASONS[int(records.status[i])])
            stamps = records.batches["magic"][records.rows["batch"]] > 0
            for i in np.flatnonzero(stamps & (records.rows["timestamp"] < NO_TIMESTAMP)).tolist():
                row = records.batches[int(records.rows["batch"][i])]
                if row["max_timestamp"] >= NO_TIMESTAMP:
                    message = f"a record's timestamp {int(records.rows['timestamp'][i])} is negative"
                    self._batch("CLEANER_FAILS", row, message)
            self._note_end(records)

    def _note_end(self, records: Records) -> None:
        rows, batches = records.rows, records.batches
        if len(batches) == 0 or (records.rows_before and self._keyless_end is None):
            return  # nothing, or a later part of a batch that has a key
        last = batches[-1]
        own = rows["key_size"][rows["batch"] == len(batches) - 1]
        legacy = int(last["magic"]) < 2 and not int(last["attributes"]) & layout.CONTROL_MASK
        self._keyless_end = last if legacy and len(own) and bool((own < 0).all()) else None

    def _batch(self, code: str, row: np.void, message: str) -> None:
        self._note(code, int(row["position"]), int(row["size"]), message, int(row["base_offset"]))

    def _note(self, code: str, position: int, length: int, message: str, first_offset: int | None = None) -> None:
        if not self._facts.survives(self._segment.base_offset, position):
            return
        known = self._found.get(code)
        if known is not None:
            self._found[code] = replace(known, count=known.count + 1)
            return
        where = {"position": position, "length": length, "first_offset": first_offset}
        self._found[code] = self._facts.diagnosis(code, self._segment.log, message, **where)
