"""Checks the meaning of a log: control records, transactions, producers and leader epochs, and the files about them.

The log's good batches are replayed as in a broker, and the transaction indexes, producer snapshots and the epoch
checkpoint are compared with the result. What compaction, retention and expiry lawfully remove from a log is not a
contradiction: a file may know more of the past than the log, but never less, and nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.errors import CorruptCheckpointError, CorruptIndexError, CorruptSnapshotError, InvalidRecordError
from seglog.format.checkpoint import EpochEntry, parse_leader_epochs
from seglog.format.control import ControlRecordError, parse_control_record
from seglog.format.producer_snapshot import ProducerEntry, decode_snapshot
from seglog.log.indexes import AbortedTransaction, TransactionIndex
from seglog.log.producer_state import NOT_A_MARKER, CompletedTransaction, ProducerState, ProducerStateManager
from seglog.model import ControlType
from seglog.scan.listing import NamedFile, PartitionListing, SegmentFiles
from seglog.scan.log_walk import WalkedEntries
from seglog.storage.filesystem import FileSystem
from seglog.storage.links import name_of
from seglog.verification.damage import batch_finding
from seglog.verification.findings import Finding, finding

_BELOW_ALL = -1


@dataclass(slots=True)
class _Segment:
    """The aborted transactions and ABORT markers of a segment, by its batches."""

    aborted: list[AbortedTransaction] = field(default_factory=list)
    abort_markers: set[tuple[int, int]] = field(default_factory=set)  # (producer id, offset)


class SemanticObserver:
    """Replays a whole partition. `begin` and `finish` enclose each segment; `finish_partition` comes last.

    `log_start_offset` is the checkpointed one, None if unknown. With `live` a broker is running, and the epoch file may
    be a moment newer than the log.
    """

    def __init__(self, fs: FileSystem, listing: PartitionListing, log_start_offset: int | None, *, live: bool) -> None:
        self._fs, self._listing, self._log_start, self._live = fs, listing, log_start_offset, live
        self._producers = ProducerStateManager(fs, listing.directory, strict=False)
        self._partition = name_of(listing.directory)
        self._snapshots = deque(listing.snapshots)  # those not compared yet
        self._epochs: list[EpochEntry] = []
        self._last_before: list[int] = []  # for each of them, the last offset before
        self._last_offset = -1
        self._legacy_end = 0  # an append of magic 0 or 1 makes a broker forget the epochs below it
        self._current: SegmentFiles | None = None
        self._found = _Segment()
        self._dense = not listing.segments or listing.segments[0].base_offset == 0
        self._next_offset = 0
        self._begun_before: dict[int, int] = {}  # producer id → first offset of a forgotten transaction
        self.has_producers = False  # in a good batch of what was taken

    @property
    def aborted(self) -> Sequence[AbortedTransaction]:
        """The aborted transactions that the batches of the present segment show, in the order of their markers."""
        return self._found.aborted

    @property
    def abort_markers(self) -> Collection[tuple[int, int]]:
        """The ABORT markers in the present segment: producer ids and offsets."""
        return self._found.abort_markers

    @property
    def shows_all(self) -> bool:
        """True if no offset since 0 is missing, so that no transaction began before what was replayed."""
        return self._dense

    # --- segment by segment

    def begin(self, segment: SegmentFiles) -> Iterator[Finding]:
        """Starts a segment: compares the snapshots up to its base offset."""
        self._current, self._found = segment, _Segment()
        if self._log_start is not None and 0 < segment.base_offset <= self._log_start:
            # A recovery has no snapshot at or below the log start and begins each segment there without producers, so
            # indexes and snapshots need not hold transactions that began in earlier segments.
            for first, producer in self._producers.open_transactions.items():
                self._begun_before.setdefault(producer, first)
            self._producers.forget()
            self._dense = False
        yield from self._snapshots_up_to(segment.base_offset)

    def take(self, piece: WalkedEntries) -> Iterator[Finding]:
        """Replays the good batches of `piece`, and stops at each snapshot's offset to compare."""
        is_modern = piece.batches["magic"] == 2
        good, legacy = piece.batches[piece.valid & is_modern], piece.batches[piece.valid & ~is_modern]
        if len(legacy):
            self._legacy_end = int(legacy["last_offset"][-1]) + 1
        self._note_offsets(piece.batches[piece.valid])
        if len(good) == 0:
            return
        produced = (good["producer_id"] >= 0) | ((good["attributes"] & layout.TRANSACTIONAL_MASK) != 0)
        self.has_producers = self.has_producers or bool(produced.any())
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
        """Ends a segment: compares its transaction index."""
        if self._current is not None:
            yield from self._transaction_index(self._current)

    def finish_partition(self, log_end_offset: int) -> Iterator[Finding]:
        """Ends the partition: compares the snapshot at the end, and reports open transactions and leader epochs."""
        yield from self._snapshots_up_to(log_end_offset)
        for snapshot in self._snapshots if self._current is not None else ():
            message = f"the snapshot is for offset {snapshot.offset}, but the log ends at {log_end_offset}"
            yield finding("SNAPSHOT_DIFFERS", self._partition, snapshot.path.name, message)
        begun = {producer: first for first, producer in self._producers.open_transactions.items()}
        begun |= self._begun_before
        for first, producer in sorted((first, producer) for producer, first in begun.items()):
            message = f"the transaction of producer {producer} from offset {first} has no end marker in the log"
            name = "" if self._current is None else self._current.log.name
            yield finding("TRANSACTION_OPEN", self._partition, name, message, first_offset=first)
        yield from self._leader_epochs(log_end_offset)

    # --- replaying

    def _replay(self, piece: WalkedEntries, batches: np.ndarray) -> Iterator[Finding]:
        """Replays batches; after one that cannot be replayed, continues with the next."""
        if self._current is None:
            return
        yield from self._outside_transactions(batches)
        while len(batches):
            try:
                self._producers.replay(piece.data, batches, piece.position, self._current.log, self._completed)
                return
            except InvalidRecordError:
                # That batch is reported with the control records; the replay stopped before it.
                unseen = batches["base_offset"] > self._producers.end_offset
                batches = batches[unseen]

    def _outside_transactions(self, batches: np.ndarray) -> Iterator[Finding]:
        """Yields findings on non-transactional batches of producers that have an open transaction at that offset."""
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
                message = f"producer {producer} wrote outside its open transaction from offset {begun[producer]}"
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
                is_marker = record.type in (ControlType.ABORT, ControlType.COMMIT)
                is_first = i == 0 or records.rows[i]["batch"] != records.rows[i - 1]["batch"]
                if not is_marker and is_first and batch["producer_id"] >= 0:
                    message = f"{NOT_A_MARKER}: its type is {record.type_id}"
                    yield batch_finding("CONTROL_INVALID", (self._partition, self._current.log.name), message, batch)
                if is_marker:
                    self._begun_before.pop(int(batch["producer_id"]), None)
                if record.type is ControlType.ABORT:
                    self._found.abort_markers.add((int(batch["producer_id"]), int(batch["base_offset"])))

    def _note_epochs(self, good: np.ndarray) -> None:
        epochs = good["leader_epoch"]
        latest = self._epochs[-1].epoch if self._epochs else _BELOW_ALL
        last_before, self._last_offset = self._last_offset, int(good["last_offset"][-1])
        if int(epochs.max()) <= latest:
            return
        before = np.maximum.accumulate(np.concatenate(([latest], epochs[:-1])))
        for i in np.flatnonzero(epochs > before).tolist():
            self._epochs.append(EpochEntry(int(epochs[i]), int(good["base_offset"][i])))
            self._last_before.append(int(good["last_offset"][i - 1]) if i else last_before)

    def _note_offsets(self, batches: np.ndarray) -> None:
        """Updates `_dense`: True while no offset since 0 is missing, so that the log shows the whole history."""
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
                yield self._index_finding(path, entry, "is in the index, but the log has no ABORT marker there")
        for before, entry in pairwise(listed):
            if entry.last_offset <= before.last_offset:
                yield self._index_finding(path, entry, f"follows one that ended at offset {before.last_offset}")
                return

    def _entry_problem(self, derived: AbortedTransaction, entry: AbortedTransaction | None) -> str:
        if entry is None:
            below = self._log_start is not None and derived.last_offset < self._log_start
            return "" if below else "is not in the index"  # a cleaner omits what no reader can reach
        if entry.first_offset > derived.first_offset or (self._dense and entry.first_offset < derived.first_offset):
            return f"begins at offset {derived.first_offset}, but at {entry.first_offset} in the index"
        if self._dense and not self._is_stable_offset(entry, derived):
            right, indexed = derived.last_stable_offset, entry.last_stable_offset
            return f"has the last stable offset {right}, but {indexed} in the index"
        return ""

    def _is_stable_offset(self, entry: AbortedTransaction, derived: AbortedTransaction) -> bool:
        """True if an entry's last stable offset is right, or is what Kafka writes for an append with more than the
        marker.

        In such an append, as on a follower, transactions that begin after the marker, and so in this segment, count as
        open. A broker forgets those of the same producer: a reader that stops there does not learn that they were
        aborted, and that is reported.
        """
        stable = entry.last_stable_offset
        if stable == derived.last_stable_offset:
            return True
        if not derived.last_offset + 1 == derived.last_stable_offset < stable < self._next_offset:
            return False
        return all(each.first_offset >= stable for each in self._found.aborted if each.last_offset > entry.last_offset)

    def _index_finding(self, path: Path, entry: AbortedTransaction, problem: str) -> Finding:
        message = f"the transaction of producer {entry.producer_id} that aborted at {entry.last_offset} {problem}"
        offsets = {"first_offset": entry.first_offset, "last_offset": entry.last_offset}
        return finding("TRANSACTION_INDEX_DIFFERS", self._partition, path.name, message, **offsets)

    def _snapshots_up_to(self, offset: int) -> Iterator[Finding]:
        """Compares the snapshot at `offset`, and drops all up to there. Those older than the log are only decoded."""
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
        """Yields the snapshots at or below `offset`."""
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
                    f"producer {producer.producer_id} is missing, although it has a transaction open since offset"
                    f" {producer.transaction_first_offset}"
                )
                yield finding("SNAPSHOT_DIFFERS", self._partition, path.name, message)

    def _may_be_forgotten(self, producer: ProducerState) -> bool:
        """True if the producer's state began before the log start, from which a starting broker replays."""
        since = producer.transaction_first_offset if producer.in_transaction else producer.last_data_offset
        return self._log_start is not None and 0 <= since < self._log_start

    def _producer_problem(self, producer: ProducerState, entry: ProducerEntry) -> str:
        if entry.producer_epoch < producer.epoch:
            return f"epoch {entry.producer_epoch}, but {producer.epoch} in the log"
        if entry.producer_epoch == producer.epoch and entry.last_offset < producer.last_data_offset:
            return f"last offset {entry.last_offset}, but {producer.last_data_offset} in the log"
        same_batch = entry.last_offset == producer.last_data_offset >= 0
        if same_batch and entry.last_sequence != producer.last_sequence:
            return f"last sequence {entry.last_sequence}, but {producer.last_sequence} in the log"
        started, first = entry.current_txn_first_offset, producer.transaction_first_offset
        in_snapshot = "no open transaction" if started < 0 else f"an open transaction from offset {started}"
        if producer.in_transaction and not 0 <= started <= first:
            return f"{in_snapshot}, but one from offset {first} in the log"
        if self._dense and started != first:
            in_log = "none" if first < 0 else f"one from offset {first}"
            return f"{in_snapshot}, but {in_log} in the log"
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
        contradictions = list(self._contradictions(listed, path, log_end_offset))
        yield from contradictions or self._early_epochs(listed, path.name)

    def _contradictions(self, listed: tuple[EpochEntry, ...], path: Path, log_end_offset: int) -> Iterator[Finding]:
        for before, entry in pairwise(listed):
            if entry.epoch <= before.epoch or entry.start_offset <= before.start_offset:
                message = f"epoch {entry.epoch} at offset {entry.start_offset} follows epoch {before.epoch}"
                message += f" at offset {before.start_offset}"
                yield finding("LEADER_EPOCHS_DIFFER", self._partition, path.name, message)
        for derived in self._epochs:
            covering = [entry for entry in listed if entry.start_offset <= derived.start_offset]
            is_forgotten = derived.start_offset < self._legacy_end
            if not covering and (is_forgotten or self._is_below(listed, log_end_offset)):
                continue
            if derived.epoch >= 0 and (not covering or covering[-1].epoch != derived.epoch):
                listed_epoch = f"epoch {covering[-1].epoch}" if covering else "no epoch"
                message = f"the log has epoch {derived.epoch} at offset {derived.start_offset}, but the checkpoint has"
                message += f" {listed_epoch}"
                where = {"first_offset": derived.start_offset}
                yield finding("LEADER_EPOCHS_DIFFER", self._partition, path.name, message, **where)
        if listed and listed[-1].start_offset > log_end_offset and not self._live:
            message = f"epoch {listed[-1].epoch} starts at offset {listed[-1].start_offset}, but the log ends at"
            message += f" {log_end_offset}"
            yield finding("LEADER_EPOCHS_DIFFER", self._partition, path.name, message)

    def _early_epochs(self, listed: tuple[EpochEntry, ...], name: str) -> Iterator[Finding]:
        """Yields the entries that begin before the last batch of an earlier epoch, whose end a broker then finds too
        early (LeaderEpochFileCache.endOffsetFor). One that begins late does no harm.
        """
        for entry in listed:
            following = sum(derived.epoch < entry.epoch for derived in self._epochs)
            if following == 0 or self._epochs[following - 1].epoch < 0:
                continue
            last = self._last_offset if following == len(self._epochs) else self._last_before[following]
            if entry.start_offset <= last:
                message = (
                    f"epoch {entry.epoch} begins at offset {entry.start_offset}, but the log has batches of earlier"
                )
                message += f" epochs up to offset {last}"
                where = {"first_offset": entry.start_offset, "last_offset": last}
                yield finding("LEADER_EPOCHS_DIFFER", self._partition, name, message, **where)

    def _is_below(self, listed: tuple[EpochEntry, ...], log_end_offset: int) -> bool:
        """True if the first entry of the checkpoint was moved up to the log start
        (LeaderEpochFileCache.truncateFromStart).

        The records below it were deleted, but their segment still exists. The checkpointed log start shows it. If a
        crash came before that was written, the position shows it: the entry lies in the first segment, or where no
        epoch begins in the log. Its epoch is that of the log there.
        """
        if not listed:  # everything from the log start on was truncated
            return self._log_start is not None and self._log_start >= log_end_offset
        first = listed[0]
        epochs = [derived.epoch for derived in self._epochs if derived.start_offset <= first.start_offset]
        if epochs and epochs[-1] != first.epoch and first.start_offset < log_end_offset:
            return False
        bases = [segment.base_offset for segment in self._listing.segments]
        moved = all(derived.start_offset != first.start_offset for derived in self._epochs)
        known = self._log_start is not None and first.start_offset <= self._log_start
        return known or moved or len(bases) < 2 or first.start_offset <= bases[1]
