"""What has the name of a file of Kafka and is none: a directory, a link to nothing, a pipe, a socket, a device.

A broker passes over all of them when it looks for segments, snapshots and leftovers (Kafka: File.isFile), and fails
when it opens one by its name. It opens an index only when it recovers the segment or appends to it, or for a fetch. A
producer snapshot that it cannot write ends the load; in a recovery it takes the error for damage, and empties the
segment that ends there (LogLoader.recoverLog catches IOException).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seglog.format import filenames
from seglog.format.filenames import FileKind
from seglog.scan.listing import INDEX_KINDS
from seglog.verification.codes import Severity
from seglog_rescue.doctor.cases import Diagnosis
from seglog_rescue.doctor.partition_facts import NoFile, PartitionFacts

_EPOCHS = (filenames.LEADER_EPOCH_CHECKPOINT, f"{filenames.LEADER_EPOCH_CHECKPOINT}.tmp")
LAZY_INDEXES = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)  # Kafka: LazyIndex
OPENED_LATER = "Starts, and takes the log directory offline when a fetch first opens it."


def examine_no_files(facts: PartitionFacts) -> Iterator[Diagnosis]:
    """Yields those that a broker opens: blockers if it does so to load the partition, dangers if it does so later."""
    bases = {segment.base_offset for segment in facts.listing.segments}
    for no_file in facts.no_files:
        if no_file.is_made and no_file.path.name != filenames.LEADER_EPOCH_CHECKPOINT:
            continue  # a broker makes it as if nothing were there; of the epochs it makes nothing, and reads the file
        is_first = no_file.live_kind is FileKind.LOG and not bases  # the broker then makes the file
        if no_file.path.name == filenames.PARTITION_METADATA and no_file.is_there:
            command = "restore the file from another replica"
            yield facts.diagnosis("NOT_A_FILE", no_file.path, no_file.what, command=command)
        elif no_file.path.name in _EPOCHS or (is_first and no_file.is_there):
            yield facts.diagnosis("NOT_A_FILE", no_file.path, no_file.what)
        elif is_closed_index(facts, no_file):
            fields = {"gravity": Severity.DANGER, "broker": OPENED_LATER, "offline": False}
            yield facts.diagnosis("NOT_A_FILE", no_file.path, no_file.what, **fields)
        elif not no_file.is_there and no_file.live_kind is FileKind.TRANSACTION_INDEX:
            continue  # a broker goes without
        elif no_file.live_kind in INDEX_KINDS and no_file.base_offset in bases:
            yield facts.diagnosis("NOT_A_FILE", no_file.path, no_file.what)


def is_closed_index(facts: PartitionFacts, no_file: NoFile) -> bool:
    """True for an offset or time index that is there, of a segment that the start neither recovers nor appends to."""
    bases = [segment.base_offset for segment in facts.listing.segments]
    if not no_file.is_there or no_file.live_kind not in LAZY_INDEXES:
        return False
    return no_file.base_offset in closed_segments(bases, facts.recovery_point, clean=facts.clean)


def closed_segments(bases: Sequence[int], recovery_point: int, *, clean: bool) -> frozenset[int]:
    """Returns the segments, by their ascending base offsets, that a start neither recovers nor appends to: it does not
    open their offset and time indexes."""
    if not bases:
        return frozenset()
    recovered = max((base for base in bases if base <= recovery_point), default=bases[0])
    return frozenset(base for base in bases[:-1] if clean or base < recovered)


def unwritable_snapshots(facts: PartitionFacts) -> dict[int, str]:
    """Returns the offsets whose producer snapshot a broker cannot write, and why.

    It removes an older file of that name, whatever the mode, before it writes; what is not a file it does not see.
    """
    snapshots = (no_file for no_file in facts.no_files if no_file.live_kind is FileKind.PRODUCER_SNAPSHOT)
    return {no_file.base_offset: no_file.what for no_file in snapshots if not no_file.is_made}


def unwritable_transactions(facts: PartitionFacts) -> frozenset[int]:
    """Returns the base offsets of the transaction indexes that a broker goes without, and cannot write."""
    indexes = (no_file for no_file in facts.no_files if no_file.live_kind is FileKind.TRANSACTION_INDEX)
    return frozenset(no_file.base_offset for no_file in indexes if not no_file.is_there and not no_file.is_made)


def unreadable_indexes(facts: PartitionFacts) -> frozenset[int]:
    """Returns the base offsets of the offset indexes that are not files, in segments that are not recovered."""
    closed = (no_file for no_file in facts.no_files if is_closed_index(facts, no_file))
    return frozenset(no_file.base_offset for no_file in closed if no_file.live_kind is FileKind.OFFSET_INDEX)
