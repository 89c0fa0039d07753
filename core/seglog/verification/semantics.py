"""Checking what a log means: control records, transactions, producers, leader epochs, against the files about them.

The log's good batches are replayed as a broker replays them; the transaction indexes, producer snapshots and the
epoch checkpoint are compared with what that gives. What compaction, retention and expiry lawfully remove from a
log is no contradiction: a file may know more of the past than the log, but never less, and nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.errors import CorruptCheckpointError, CorruptIndexError, CorruptSnapshotError, InvalidRecordError
from seglog.evidence.damage import batch_finding
from seglog.evidence.findings import Finding, finding
from seglog.format.checkpoint import EpochEntry, parse_leader_epochs
from seglog.format.control import ControlRecordError, parse_control_record
from seglog.format.producer_snapshot import ProducerEntry, decode_snapshot
from seglog.log.indexes import AbortedTransaction, TransactionIndex
from seglog.log.producer_state import CompletedTransaction, ProducerState, ProducerStateManager
from seglog.model import ControlType
from seglog.scan.listing import NamedFile, PartitionListing, SegmentFiles
from seglog.scan.log_walk import WalkedEntries
from seglog.storage.filesystem import FileSystem
from seglog.storage.links import name_of

_BELOW_ALL = -1


@dataclass(slots=True)
class _Segment:
    """What a segment's batches led to."""

    aborted: list[AbortedTransaction] = field(default_factory=list)
    abort_markers: set[tuple[int, int]] = field(default_factory=set)  # (producer id, offset)


class SemanticObserver:
    """Replays a whole partition; `begin` and `finish` go round each segment, `finish_partition` ends it.

    `log_start_offset` is the checkpointed one, None where nothing says it. With `live` a broker is at work: the epoch
    file may be a moment younger than the log.
    """

    def __init__(self, fs: FileSystem, listing: PartitionListing, log_start_offset: int | None, *, live: bool) -> None:
        self._fs, self._listing, self._log_start, self._live = fs, listing, log_start_offset, live
        self._producers = ProducerStateManager(fs, listing.directory, strict=False)
        self._partition = name_of(listing.directory)
        self._snapshots = deque(listing.snapshots)  # those that are still to be compared
        self._epochs: list[EpochEntry] = []
        self._legacy_end = 0  # an append of magic 0 or 1 makes the broker forget the epochs below it
        self._current: SegmentFiles | None = None
        self._found = _Segment()
        self._dense = not listing.segments or listing.segments[0].base_offset == 0
        self._next_offset = 0
        self._begun_before: dict[int, int] = {}  # producer id → first offset of a transaction that was forgotten

    # --- segment by segment

    def begin(self, segment: SegmentFiles) -> Iterator[Finding]:
        """Before a segment's batches: the snapshots up to its base."""
        self._current, self._found = segment, _Segment()
        if self._log_start is not None and 0 < segment.base_offset <= self._log_start:
            self._forget()
        yield from self._snapshots_up_to(segment.base_offset)

    def take(self, piece: WalkedEntries) -> Iterator[Finding]:
        """Replays the good batches of `piece`, stopping at each snapshot's offset to compare."""
        is_modern = piece.batches["magic"] == 2
        good, legacy = piece.batches[piece.valid & is_modern], piece.batches[piece.valid & ~is_modern]
        if len(legacy):
            self._legacy_end = int(legacy["last_offset"][-1]) + 1
        if len(good) == 0:
            self._note_offsets(piece.batches[piece.valid])
            return
        self._note_offsets(piece.batches[piece.valid])
        self._note_epochs(good)
        yield from self._control_records(piece, good)
        first, last = int(good["base_offset"][0]), int(good["last_offset"][-1])
        for offset in [each.offset for each in self._snapshots_to_compare(last) if each.offset > first]:
            before = good[good["last_offset"] < offset]
            yield from self._replay(piece, before)
            yield from self._snapshots_up_to(offset)
            good = good[len(before) :]
        yield from self._replay(piece, good)

    def finish(self) -> Iterator[Finding]:
        """After a segment's batches: its transaction index."""
        if self._current is not None:
            yield from self._transaction_index(self._current)

    def finish_partition(self, log_end_offset: int) -> Iterator[Finding]:
        """After the last segment: the snapshot at the end, open transactions, leader epochs."""
        yield from self._snapshots_up_to(log_end_offset)
        for snapshot in self._snapshots if self._current is not None else ():
            message = f"the snapshot is of offset {snapshot.offset}, the log ends at {log_end_offset}"
            yield finding("SNAPSHOT_DIFFERS", self._partition, snapshot.path.name, message)
        begun = {producer: first for first, producer in self._producers.open_transactions.items()}
        begun |= self._begun_before
        for first, producer in sorted((first, producer) for producer, first in begun.items()):
            message = f"producer {producer} began a transaction at offset {first} that has no end in the log"
            name = "" if self._current is None else self._current.log.name
            yield finding("TRANSACTION_OPEN", self._partition, name, message, first_offset=first)
        yield from self._leader_epochs(log_end_offset)

    def _forget(self) -> None:
        """A recovery has no snapshot at or below the log start, and begins each segment there without producers:
        what it cannot know of transactions that began in earlier ones, indexes and snapshots need not hold."""
        for first, producer in self._producers.open_transactions.items():
            self._begun_before.setdefault(producer, first)
        self._producers.forget()
        self._dense = False

    # --- replaying

    def _replay(self, piece: WalkedEntries, batches: np.ndarray) -> Iterator[Finding]:
        """One call as a rule; after a batch that cannot be replayed it goes on with the next."""
        if self._current is None:
            return
        yield from self._outside_transactions(batches)
        while len(batches):
            try:
                self._producers.replay(piece.data, batches, piece.position, self._current.log, self._completed)
                return
            except InvalidRecordError:
                # Reported with the control records; the replay stopped in front of that batch.
                unseen = batches["base_offset"] > self._producers.end_offset
                batches = batches[unseen]

    def _outside_transactions(self, batches: np.ndarray) -> Iterator[Finding]:
        """Non-transactional batches of producers that have a transaction open by then."""
        if self._current is None:
            return
        begun = {producer: first for first, producer in self._producers.open_transactions.items()}
        flags = batches["attributes"] & (layout.TRANSACTIONAL_MASK | layout.CONTROL_MASK)
        transactional = (flags == layout.TRANSACTIONAL_MASK) & (batches["producer_id"] >= 0)
        concerned = [*begun, *set(batches["producer_id"][transactional].tolist())]
        plain = (flags == 0) & np.isin(batches["producer_id"], concerned)
        for row in batches[np.isin(batches["producer_id"], batches["producer_id"][plain])]:
            producer, flag = int(row["producer_id"]), int(row["attributes"])
            if flag & layout.CONTROL_MASK:
                begun.pop(producer, None)
            elif flag & layout.TRANSACTIONAL_MASK:
                begun.setdefault(producer, int(row["base_offset"]))
            elif producer in begun:
                message = f"producer {producer} wrote outside the transaction it began at offset {begun[producer]}"
                yield batch_finding(
                    "TRANSACTION_STATE_INVALID", (self._partition, self._current.log.name), message, row
                )

    def _completed(self, transaction: CompletedTransaction, last_stable_offset: int) -> None:
        if transaction.aborted:
            self._found.aborted.append(
                AbortedTransaction(
                    transaction.producer_id,
                    transaction.first_offset,
                    transaction.last_offset,
                    last_stable_offset,
                )
            )

    def _control_records(self, piece: WalkedEntries, good: np.ndarray) -> Iterator[Finding]:
        control = good[(good["attributes"] & layout.CONTROL_MASK) != 0]
        if len(control) == 0 or self._current is None:
            return
        for records in piece.records(control):
            for i in range(len(records)):
                batch = records.batches[int(records.rows[i]["batch"])]
                try:
                    record = parse_control_record(records.key(i), records.value(i))
                except ControlRecordError as error:
                    yield batch_finding("CONTROL_INVALID", (self._partition, self._current.log.name), str(error), batch)
                    continue
                if record.type in (ControlType.ABORT, ControlType.COMMIT):
                    self._begun_before.pop(int(batch["producer_id"]), None)
                if record.type is ControlType.ABORT:
                    self._found.abort_markers.add((int(batch["producer_id"]), int(batch["base_offset"])))

    def _note_epochs(self, good: np.ndarray) -> None:
        epochs = good["leader_epoch"]
        latest = self._epochs[-1].epoch if self._epochs else _BELOW_ALL
        if int(epochs.max()) <= latest:
            return
        before = np.maximum.accumulate(np.concatenate(([latest], epochs[:-1])))
        for i in np.flatnonzero(epochs > before).tolist():
            self._epochs.append(EpochEntry(int(epochs[i]), int(good["base_offset"][i])))

    def _note_offsets(self, batches: np.ndarray) -> None:
        """Whether every offset since 0 is there: only then the log tells the whole story."""
        if not self._dense or len(batches) == 0:
            return
        expected = np.concatenate(([self._next_offset], batches["last_offset"][:-1] + 1))
        counts = np.where(batches["magic"] < 2, batches["last_offset"] - batches["base_offset"] + 1, batches["count"])
        full = counts == batches["last_offset"] - batches["base_offset"] + 1
        self._dense = bool((batches["base_offset"] == expected).all() and full.all())
        self._next_offset = int(batches["last_offset"][-1]) + 1

    # --- comparing

    def _transaction_index(self, segment: SegmentFiles) -> Iterator[Finding]:
        path = segment.transaction_index or segment.log.with_suffix(".txnindex")
        try:
            listed = TransactionIndex(self._fs, path, segment.base_offset).entries
        except CorruptIndexError as error:
            yield finding(
                "TRANSACTION_INDEX_DIFFERS", self._partition, path.name, error.reason, position=error.position
            )
            return
        by_marker = {(entry.producer_id, entry.last_offset): entry for entry in listed}
        for derived in self._found.aborted:
            problem = self._entry_problem(derived, by_marker.get((derived.producer_id, derived.last_offset)))
            if problem:
                yield self._index_finding(path, derived, problem)
        for entry in listed:
            if (entry.producer_id, entry.last_offset) not in self._found.abort_markers:
                yield self._index_finding(path, entry, "is listed, but the log has no ABORT marker there")
        yield from self._index_order(path, listed)

    def _entry_problem(self, derived: AbortedTransaction, entry: AbortedTransaction | None) -> str:
        if entry is None:
            below = self._log_start is not None and derived.last_offset < self._log_start
            return "" if below else "is not listed"  # a cleaner leaves out what no reader meets
        if entry.first_offset > derived.first_offset or (self._dense and entry.first_offset < derived.first_offset):
            return f"is listed from offset {entry.first_offset}"
        if self._dense and not self._is_stable_offset(entry, derived):
            return f"is listed with last stable offset {entry.last_stable_offset}, not {derived.last_stable_offset}"
        return ""

    def _is_stable_offset(self, entry: AbortedTransaction, derived: AbortedTransaction) -> bool:
        """Whether an entry's last stable offset is right, or what Kafka writes where one append brings more than the
        marker, as to a follower: transactions that begin after it, in the same append and so in this segment, count
        as open. A broker forgets those of the same producer: a reader that stops there does not learn that they were
        aborted, and that is reported.
        """
        stable = entry.last_stable_offset
        if stable == derived.last_stable_offset:
            return True
        if not derived.last_offset + 1 == derived.last_stable_offset < stable < self._next_offset:
            return False
        return all(each.first_offset >= stable for each in self._found.aborted if each.last_offset > entry.last_offset)

    def _index_order(self, path: Path, listed: list[AbortedTransaction]) -> Iterator[Finding]:
        for before, entry in pairwise(listed):
            if entry.last_offset <= before.last_offset:
                yield self._index_finding(path, entry, f"follows one that ends at offset {before.last_offset}")
                return

    def _index_finding(self, path: Path, entry: AbortedTransaction, problem: str) -> Finding:
        message = f"the transaction of producer {entry.producer_id} that aborted at {entry.last_offset} {problem}"
        offsets = {"first_offset": entry.first_offset, "last_offset": entry.last_offset}
        return finding("TRANSACTION_INDEX_DIFFERS", self._partition, path.name, message, **offsets)

    def _snapshots_up_to(self, offset: int) -> Iterator[Finding]:
        """Compares and forgets the snapshots at or below `offset`; older than the log they can only be read."""
        for _ in list(self._snapshots_to_compare(offset)):
            snapshot = self._snapshots.popleft()
            path = snapshot.path
            try:
                entries = decode_snapshot(self._fs.read_bytes(path), path)
            except CorruptSnapshotError as error:
                yield finding("SNAPSHOT_CORRUPT", self._partition, path.name, error.reason, position=error.position)
                continue
            if snapshot.offset == offset:
                yield from self._compare_snapshot(path, entries)

    def _snapshots_to_compare(self, offset: int) -> Iterator[NamedFile]:
        """Those at or below `offset`."""
        return takewhile(lambda snapshot: snapshot.offset <= offset, self._snapshots)

    def _compare_snapshot(self, path: Path, entries: tuple[ProducerEntry, ...]) -> Iterator[Finding]:
        for entry in entries:
            producer = self._producers.producers.get(entry.producer_id)
            if producer is None or self._may_be_forgotten(producer):
                continue
            problem = self._producer_problem(producer, entry)
            if problem:
                message = f"producer {entry.producer_id}: {problem}"
                yield finding("SNAPSHOT_DIFFERS", self._partition, path.name, message)
        listed = {entry.producer_id for entry in entries}
        for producer in self._producers.producers.values():
            missing = producer.in_transaction and producer.producer_id not in listed
            if missing and not self._may_be_forgotten(producer):
                message = (
                    f"producer {producer.producer_id} with a transaction open since offset"
                    f" {producer.transaction_first_offset} is missing"
                )
                yield finding("SNAPSHOT_DIFFERS", self._partition, path.name, message)

    def _may_be_forgotten(self, producer: ProducerState) -> bool:
        """A broker that starts replays from the log start on: of what began before it, it knows no more."""
        since = producer.transaction_first_offset if producer.in_transaction else producer.last_data_offset
        return self._log_start is not None and 0 <= since < self._log_start

    def _producer_problem(self, producer: ProducerState, entry: ProducerEntry) -> str:
        if entry.producer_epoch < producer.epoch:
            return f"epoch {entry.producer_epoch}, the log has {producer.epoch}"
        if entry.producer_epoch == producer.epoch and entry.last_offset < producer.last_data_offset:
            return f"last offset {entry.last_offset}, the log has {producer.last_data_offset}"
        same_batch = entry.last_offset == producer.last_data_offset >= 0
        if same_batch and entry.last_sequence != producer.last_sequence:
            return f"last sequence {entry.last_sequence}, the log has {producer.last_sequence}"
        if producer.in_transaction and not 0 <= entry.current_txn_first_offset <= producer.transaction_first_offset:
            first = producer.transaction_first_offset
            return f"transaction from {entry.current_txn_first_offset}, the log has one open since {first}"
        if self._dense and entry.current_txn_first_offset != producer.transaction_first_offset:
            return f"transaction from {entry.current_txn_first_offset}, the log has none open"
        return ""

    def _leader_epochs(self, log_end_offset: int) -> Iterator[Finding]:
        path = self._listing.leader_epoch_checkpoint
        if path is None:
            return
        try:
            listed = parse_leader_epochs(self._fs.read_bytes(path), path)
        except CorruptCheckpointError as error:
            yield finding("CHECKPOINT_CORRUPT", self._partition, path.name, error.reason, repair="recover")
            return
        for before, entry in pairwise(listed):
            if entry.epoch <= before.epoch or entry.start_offset <= before.start_offset:
                message = f"epoch {entry.epoch} at {entry.start_offset} follows {before.epoch} at {before.start_offset}"
                yield finding("LEADER_EPOCHS_DIFFER", self._partition, path.name, message)
        for derived in self._epochs:
            covering = [entry for entry in listed if entry.start_offset <= derived.start_offset]
            is_forgotten = derived.start_offset < self._legacy_end
            if not covering and (is_forgotten or self._is_below(listed, log_end_offset)):
                continue
            if derived.epoch >= 0 and (not covering or covering[-1].epoch != derived.epoch):
                said = f"epoch {covering[-1].epoch}" if covering else "no epoch"
                message = f"the log has epoch {derived.epoch} at offset {derived.start_offset}, the checkpoint {said}"
                where = {"first_offset": derived.start_offset}
                yield finding("LEADER_EPOCHS_DIFFER", self._partition, path.name, message, **where)
        if listed and listed[-1].start_offset > log_end_offset and not self._live:
            message = f"epoch {listed[-1].epoch} starts at {listed[-1].start_offset}, the log ends at {log_end_offset}"
            yield finding("LEADER_EPOCHS_DIFFER", self._partition, path.name, message)

    def _is_below(self, listed: tuple[EpochEntry, ...], log_end_offset: int) -> bool:
        """Whether the first entry of the checkpoint was moved up to the log start: records below it were deleted, the
        segment that holds it is still there (Kafka: LeaderEpochFileCache.truncateFromStart).

        The checkpointed log start tells it; when a crash came before that was written, the place does: in the first
        segment, or where the log has no epoch begin. The epoch is that of the log there.
        """
        if not listed:  # all that was at or above the log start was truncated
            return self._log_start is not None and self._log_start >= log_end_offset
        first = listed[0]
        there = [derived.epoch for derived in self._epochs if derived.start_offset <= first.start_offset]
        if there and there[-1] != first.epoch and first.start_offset < log_end_offset:
            return False
        bases = [segment.base_offset for segment in self._listing.segments]
        moved = all(derived.start_offset != first.start_offset for derived in self._epochs)
        known = self._log_start is not None and first.start_offset <= self._log_start
        return known or moved or len(bases) < 2 or first.start_offset <= bases[1]
