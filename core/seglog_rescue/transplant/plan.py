"""The plan of a transplant as data: `--dry-run` prints it, `apply` carries it out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seglog.model import TopicPartition
from seglog.storage.room import room_for_indexes
from seglog.units import count_text
from seglog.verification.transactions import Transaction
from seglog_rescue.transplant.source import SourceLog
from seglog_rescue.transplant.target import TargetPartition

_MARKER_BYTES = 78


@dataclass(frozen=True, slots=True)
class Ending:
    """An open transaction of the source, and the marker that ends it at `offset`: COMMIT with `commit`, else ABORT.

    `why` gives the reason for the choice; `certain` is false if the coordinator's log was not there to decide it.
    """

    transaction: Transaction
    offset: int
    commit: bool
    coordinator_epoch: int
    why: str
    certain: bool

    @property
    def marker(self) -> str:
        """COMMIT or ABORT."""
        return "COMMIT" if self.commit else "ABORT"

    def described(self) -> str:
        """Returns a sentence for the operator."""
        one = self.transaction
        return (
            f"end the open transaction of producer {one.producer_id} ({count_text(one.records, 'record')} from offset"
            f" {one.first_offset} on) by {self.marker} at offset {self.offset}: {self.why}"
        )


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """One partition. `done` is set if the target holds the data already, and there is nothing to do."""

    source: SourceLog
    target: TargetPartition
    endings: tuple[Ending, ...] = ()
    done: bool = False
    notes: tuple[str, ...] = ()

    @property
    def partition(self) -> TopicPartition:
        """Its name in the new cluster."""
        return self.target.partition

    @property
    def log_end(self) -> int:
        """The offset after the last record or marker."""
        return self.source.log_end + len(self.endings)

    @property
    def bytes_needed(self) -> int:
        """Disk space for the new files."""
        if self.done:
            return 0
        indexes = sum(room_for_indexes(segment.valid_bytes) for segment in self.source.segments)
        return self.source.size + _MARKER_BYTES * len(self.endings) + indexes

    def steps(self) -> Iterator[str]:
        """What will be done, as sentences for an operator."""
        source, changes = self.source, self.source.changes
        if self.done:
            yield "the target holds this data already: nothing to do"
            return
        yield (
            f"copy {count_text(source.batches, 'batch')} in {count_text(len(source.segments), 'segment')}"
            f" ({count_text(source.size, 'byte')}), offsets {source.log_start} to {source.log_end - 1}"
            if source.batches
            else f"make an empty log that begins at offset {source.log_end}"
        )
        if source.torn_bytes:
            yield (
                f"leave out {count_text(source.torn_bytes, 'byte')} at the end that are not a whole"
                f" batch: {source.torn}"
            )
        if source.left_behind:
            yield f"leave out {count_text(len(source.left_behind), 'file')} that a broker would delete"
        yield f"keep partition.metadata with the topic id {self.target.topic_id}"
        if changes.epochs:
            yield f"set the leader epoch of {count_text(changes.epochs, 'batch')} to 0"
        if changes.forgotten:
            batches = count_text(changes.forgotten, "batch")
            yield f"take the producer ids out of {batches}: the new cluster gives them out again"
        if changes.moved:
            yield f"move the producer ids of {count_text(changes.moved, 'batch')} of transactions to 2^62 and above"
        for ending in self.endings:
            yield ending.described()
        yield "rebuild indexes, leader epochs and producer snapshots"
        yield f"set the checkpoints: log start {source.log_start}, log end {self.log_end}"


@dataclass(frozen=True, slots=True)
class TransplantPlan:
    """All partitions, by their new names. `left_out` lists (path, reason) of directories not taken; `notes` are
    sentences for the operator, `releases` say which Kafka wrote the log directories.
    """

    log_directory: Path
    partitions: tuple[PartitionPlan, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    quarantine: Path | None = None
    releases: tuple[str, ...] = ()

    @property
    def pending(self) -> tuple[PartitionPlan, ...]:
        """The partitions with something to do."""
        return tuple(one for one in self.partitions if not one.done)

    @property
    def bytes_needed(self) -> int:
        """The disk space for all new files."""
        return sum(one.bytes_needed for one in self.pending)

    @property
    def endings(self) -> Sequence[Ending]:
        """The transactions that get a marker."""
        return [ending for one in self.pending for ending in one.endings]
