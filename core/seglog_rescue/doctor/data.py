"""What a partition's data means to a broker: findings, transactions, and hazards to the cleaner.

How a broker reacts to a finding depends on the start. The planned recovery reports what it cuts off; this module
reports the damage that survives it and is served, trusted, or given a valid checksum by the cleaner.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from seglog.cleaner.hazards import DROPS, FAILS, HazardReason, cleaner_hazards
from seglog.escaping import command_line
from seglog.format.filenames import parse_file_name, segment_file_name
from seglog.log.segment import LogSegment
from seglog.log.stateful_topics import state_deleted
from seglog.remote_path import RemotePath
from seglog.scan.listing import PartitionListing
from seglog.storage.filesystem import FileSystem
from seglog.verification.batches import Level
from seglog.verification.codes import UNREADABLE, Severity, Trait
from seglog.verification.finding_codes import CODES
from seglog.verification.findings import Finding
from seglog.verification.losses import LogExtent, SegmentExtent, losses_of
from seglog.verification.partition_look import LookOptions, PartitionLook
from seglog.verification.transaction_coordinators import transactions
from seglog.verification.transactions import TransactionState
from seglog_rescue.doctor.cases import Diagnosis
from seglog_rescue.doctor.partition_facts import PartitionFacts

_REBUILT = {"INDEX_TRUSTED", "ABORTED_EXPOSED"}
_FROM_TIER = {  # where no start rebuilds it
    "INDEX_TRUSTED": "Serves the segment from the tier, and begins a fetch where this index leads.",
    "ABORTED_EXPOSED": "Serves the segment from the tier by this index: aborted records as committed ones, or no"
    " committed ones.",
}


def of_findings(facts: PartitionFacts) -> Iterator[Diagnosis]:
    """Yields what `verify` finds and a start leaves in the log: one counted diagnosis per code and file."""
    options = LookOptions(Level.SEMANTIC)
    rows: dict[tuple[str, str], Diagnosis] = {}
    look = PartitionLook(facts.view, facts.around, options)
    for found in look:
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
        if code in _REBUILT and (source := _tier_of(facts, found.file)) is not None:
            copied = command_line("seglog", "fetch", source, "-o", "restored") if code == "ABORTED_EXPOSED" else ""
            fields |= {"broker": _FROM_TIER[code], "command": copied}
        if Trait.LOSS in found.kind.traits and found.severity is Severity.INFO:
            fields["gravity"] = Severity.NOTE
        rows[found.code, found.file] = facts.diagnosis(code, found.file, found.message, **fields)
    facts.has_producers = look.has_producers
    damaged = {Path(row.file).stem for row in rows.values() if row.code == "DAMAGE_SERVED"}
    for row in rows.values():
        # an index that leads to a damaged batch may be right
        if row.code != "INDEX_TRUSTED" or Path(row.file).stem not in damaged:
            yield row


def _code_of(facts: PartitionFacts, found: Finding) -> str | None:
    name = parse_file_name(found.file)
    base = -1 if name is None else name.offset
    if found.kind.leaves_the_log or found.kind.doctor == "DAMAGE_SERVED":
        position = found.position or 0
        end = facts.ends.get(base)
        reported_as_end = end is not None and position >= end.position
        return "DAMAGE_SERVED" if facts.survives(base, position) and not reported_as_end else None
    if found.code == UNREADABLE and isinstance(facts.log_directory, RemotePath):
        return "NOT_EXAMINED"
    code = found.kind.doctor
    if code in _REBUILT and facts.recovered(base) and _tier_of(facts, found.file) is None:
        return None
    if code == "SNAPSHOT_TRUSTED" and not _is_newest_snapshot(facts, found.file):
        return None
    return code or None


def _tier_of(facts: PartitionFacts, file: str) -> Path | None:
    """Returns the partition's directory in tiered storage if the segment of `file` lies there, else None."""
    from seglog_stores.tiers.view import TierFileSystem  # imports everything that reads a tier

    files, name, directory = facts.around.fs, parse_file_name(file), facts.listing.directory
    if name is None or not isinstance(files, TierFileSystem):
        return None
    if files.stored(directory / segment_file_name(name.offset)) is None:
        return None
    place = files.place_at(directory)
    return None if place is None else place.directory


def of_losses(facts: PartitionFacts) -> Iterator[Diagnosis]:
    """Yields the lost offsets that names, indexes and the ends of files reveal."""
    extent = _quick_extent(facts.fs, facts.listing)
    for loss in losses_of(facts.fs, facts.listing, extent, facts.around):
        gravity = Severity.NOTE if loss.severity is Severity.INFO else Severity.DANGER
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
    all_of_log = transactions(
        facts.fs,
        facts.listing,
        facts.clock.now_ms(),
        coordinators=facts.coordinators,
        has_producers=facts.has_producers,
    )
    for transaction in all_of_log:
        seen = True
        if transaction.state is not TransactionState.OPEN:
            continue
        stated = f" (its coordinator says: {transaction.coordinator})" if transaction.coordinator else ""
        producer = f"producer {transaction.producer_id} epoch {transaction.producer_epoch}"
        message = f"{producer} has an open transaction{stated}"
        if transaction.source == "snapshot":
            message += "; only the producer snapshot names it, the log has no record of it"
        # age alone proves nothing: a coordinator whose log is not here may still end the transaction
        hanging = transaction.hanging is True and (transaction.coordinator != "" or transaction.source == "snapshot")
        if not transaction.coordinator and facts.coordinators.know_all(facts.metadata, facts.around.node_id):
            hanging = True
            message += "; no coordinator knows the producer, so nothing ends it"
        code = "TRANSACTION_HANGING" if hanging else "TRANSACTION_OPEN"
        yield facts.diagnosis(
            code, transaction.file, message, position=transaction.position, first_offset=transaction.first_offset
        )
    if facts.clean and not facts.listing.snapshots and (seen or facts.has_producers):
        yield facts.diagnosis("SNAPSHOT_LOST", "", "there is no producer snapshot, but the log has producers")


# --- the policy -------------------------------------------------------------------------------------------


def of_policy(facts: PartitionFacts) -> Iterator[Diagnosis]:
    """Yields that a broker deletes what another program keeps in the topic."""
    key = facts.listing.topic_partition
    said = "" if key is None or not facts.policy_known else state_deleted(key.topic, facts.config)
    if said:
        yield facts.diagnosis("STATE_DELETED", "", said)


# --- the cleaner ------------------------------------------------------------------------------------------


def of_cleaner(facts: PartitionFacts) -> Iterator[Diagnosis]:
    """Yields what makes Kafka's cleaner fail on this partition, or hide damage."""
    for found in cleaner_hazards(facts.fs, facts.listing.segments, facts.survives, facts.largest_decompressed):
        if found.code == DROPS and not facts.config.compact:
            continue  # only the cleaner's checkpoint says that it was compacted once
        fields = {name: getattr(found, name) for name in ("position", "length", "first_offset", "count")}
        if found.code == FAILS and found.reason is not HazardReason.DAMAGE:  # seglog's cleaner does the round
            fields["command"] = command_line("seglog", "clean", facts.listing.directory)
        yield facts.diagnosis(found.code, found.segment.log, found.message, **fields)


def _quick_extent(fs: FileSystem, listing: PartitionListing) -> LogExtent:
    """Returns the extent by names, indexes and the ends of files alone, without reading the inside of segments."""
    extent = LogExtent(thinned_at=None)
    for files in listing.segments:
        segment = LogSegment(fs, listing.directory, files.base_offset)
        segment.size = files.size
        if extent.first_timestamp < 0:
            extent.first_timestamp = segment.first_batch_timestamp()
        end, valid = segment.read_next_offset()
        extent.segments.append(SegmentExtent(files.log.name, files.base_offset, end, files.size, valid < files.size))
    return extent
