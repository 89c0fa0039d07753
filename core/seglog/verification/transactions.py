"""Transactions in a log: where they begin and end, which hang (Kafka: KIP-664), and which batches are unsettled.

1. The good batches of a partition are walked in order; counts are kept per producer for transactional ones.
2. A marker ends its producer's transaction. A transaction without a marker at the end of the log is open.
3. The newest snapshot may hold a transaction open whose records are gone; a broker also holds it open.
4. An open transaction hangs if its coordinator does not know it as ongoing. The `__transaction_state` partitions in the
   same log directory tell; without them, its age is compared with `transaction.max.timeout.ms`.

Memory grows with the number of producers that have an open transaction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seglog import layout
from seglog.errors import CorruptSnapshotError, InvalidRecordError
from seglog.format.coordinator import TRANSACTIONS, decode_coordinator_record
from seglog.format.producer_snapshot import decode_snapshot
from seglog.format.wire import WireError
from seglog.log.producer_state import read_markers
from seglog.scan.listing import PartitionListing, SegmentFiles, list_log_directory
from seglog.scan.log_walk import Gap, LogWalk, WalkedEntries, walk_view
from seglog.scan.view import PartitionView
from seglog.storage.filesystem import FileSystem
from seglog.units import format_time

DEFAULT_MAX_TIMEOUT_MS = 900_000  # transaction.max.timeout.ms
TRANSACTION_TOPIC = "__transaction_state"

# The coordinator works on a transaction in these states and will end it.
_UNDER_WAY = {1, 2, 3}
_ONGOING, _PREPARE_COMMIT, _PREPARE_ABORT, _COMPLETE_COMMIT, _COMPLETE_ABORT = range(1, 6)
_NO_MARKER = (-1, -1)
_STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "Fenced")


class TransactionState(Enum):
    """How a transaction ended, or that it is open."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction in one partition.

    `first_offset` is that of its first record here, `last_offset` its marker's (None while open). The timestamps are
    those of its first batch and of its marker, or of its last batch while open. `bytes` counts whole batches. `source`
    is "log", or "snapshot" if only the newest producer snapshot knows it. `hanging` is None if unknown or if the
    transaction ended. `coordinator` is what the coordinator's log says of its producer. `is_decided` is True if the
    coordinator had decided to commit: the producer got the confirmation, and only the marker is missing.
    `previous_end` is the timestamp of the producer's previous marker here, -1 if none. While it is open, `open_ms` is
    the time since its first batch; `ends` says what will end it, and `ends_at_ms` when at the latest (None if unknown).
    """

    producer_id: int
    producer_epoch: int
    state: TransactionState
    first_offset: int
    last_offset: int | None
    first_timestamp: int
    last_timestamp: int
    batches: int
    records: int
    bytes: int
    file: str
    position: int
    coordinator_epoch: int = -1
    source: str = "log"
    hanging: bool | None = None
    coordinator: str = ""
    is_decided: bool = False
    previous_end: int = -1
    open_ms: int | None = None
    ends: str = ""
    ends_at_ms: int | None = None

    @property
    def duration_ms(self) -> int:
        """The time from its first batch to its marker, or to its last batch."""
        return max(0, self.last_timestamp - self.first_timestamp)

    def as_dict(self, partition: str) -> dict[str, Any]:
        """The JSON line's fields, `type` first."""
        return {
            "type": "transaction",
            "partition": partition,
            "state": self.state.value,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "coordinator_epoch": self.coordinator_epoch,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "first_timestamp": self.first_timestamp,
            "last_timestamp": self.last_timestamp,
            "duration_ms": self.duration_ms,
            "batches": self.batches,
            "records": self.records,
            "bytes": self.bytes,
            "file": self.file,
            "position": self.position,
            "source": self.source,
            "hanging": self.hanging,
            "coordinator": self.coordinator or None,
            "open_ms": self.open_ms,
            "ends": self.ends or None,
            "ends_at": self.ends_at_ms,
        }


@dataclass(frozen=True, slots=True)
class Decision:
    """A coordinator's decision on how to end a transaction, made before the markers are written."""

    commit: bool
    producer_epoch: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Coordinated:
    """The coordinator's last record about a producer: its transactional id and the transaction's state.

    `decisions` holds the last decision for each partition, as far as compaction has kept them. The coordinator aborts a
    transaction that is still ongoing `timeout_ms` after `started_ms`.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: int
    partitions: frozenset[tuple[str, int]]
    decisions: dict[tuple[str, int], Decision] = field(default_factory=dict)
    changed_ms: int = -1
    timeout_ms: int = -1
    started_ms: int = -1

    @classmethod
    def read(cls, name: str, value: Mapping[str, Any], before: Coordinated | None) -> Coordinated:
        """Returns the state after a record of `__transaction_state` that follows `before`."""
        named = frozenset(
            (str(topic["topic"]), int(number))
            for topic in value.get("transactionPartitions") or ()
            for number in topic["partitionIds"]
        )
        identity, epoch, state = (int(value[key]) for key in ("producerId", "producerEpoch", "transactionStatus"))
        changed_ms = int(value["transactionLastUpdateTimestampMs"])
        decisions = before.decisions if before is not None and before.producer_id == identity else {}
        if state in (_PREPARE_COMMIT, _PREPARE_ABORT):
            decisions.update(dict.fromkeys(named, Decision(state == _PREPARE_COMMIT, epoch, changed_ms)))
        timeout_ms, started_ms = int(value["transactionTimeoutMs"]), int(value["transactionStartTimestampMs"])
        return cls(name, identity, epoch, state, named, decisions, changed_ms, timeout_ms, started_ms)

    def describe(self) -> str:
        """Returns a text such as `billing-1 CompleteAbort`."""
        name = _STATES[self.state] if 0 <= self.state < len(_STATES) else str(self.state)
        return f"{self.transactional_id} {name}"

    def had_committed(self, transaction: Transaction, place: tuple[str, int]) -> bool:
        """True if it had decided to commit a transaction that is open in a partition: only the marker is missing.

        A broker that is killed and restarted may never write a marker, and the producer continues. So an older decision
        also counts, unless a marker was written since, or another transaction is under way there: then the log cannot
        tell the records of both apart, and the later transaction ends them. In version 2 of transactions the decision
        has the next epoch.
        """
        if self.state in (_ONGOING, _PREPARE_ABORT) and place in self.partitions:
            return False
        decision = self.decisions.get(place)
        if decision is None and self.state in (_COMPLETE_COMMIT, _COMPLETE_ABORT):
            decision = Decision(self.state == _COMPLETE_COMMIT, self.producer_epoch, self.changed_ms)
        return (
            decision is not None
            and decision.commit
            and decision.producer_epoch in (transaction.producer_epoch, transaction.producer_epoch + 1)
            and (
                decision.at_ms > transaction.previous_end
                or (self.state == _PREPARE_COMMIT and place in self.partitions)
            )
        )


def transactions(
    fs: FileSystem,
    listing: PartitionListing,
    now_ms: int,
    *,
    coordinators: Callable[[], Mapping[int, Coordinated] | None] = lambda: None,
    has_producers: bool = True,
) -> Iterator[Transaction]:
    """Yields all transactions of a partition: ended ones in the order of their markers, then open ones by offset.

    `coordinators` returns what `read_coordinators` finds, or None. It is called after the log is read, and only if a
    transaction is open. `has_producers` false says that no batch of the log has a producer: then it is not read, and
    only a snapshot can hold a transaction. Damaged batches are skipped. Raises OSError.
    """
    walk, segments = TransactionWalk(fs, listing), listing.segments if has_producers else ()
    yield from walk.ended((segment, step) for segment in segments for step in LogWalk(fs, segment.log))
    left_open = walk.left_open()
    coordinated = coordinators() if left_open else None
    for transaction in left_open:
        yield _judged(transaction, listing, now_ms, DEFAULT_MAX_TIMEOUT_MS, coordinated)


def view_transactions(
    view: PartitionView,
    now_ms: int,
    *,
    max_timeout_ms: int,
    coordinators: Callable[[], Mapping[int, Coordinated] | None],
) -> Iterator[Transaction]:
    """Yields the transactions of a partition that a broker may be writing.

    A transaction that its coordinator has ended hangs only if a later look at the log still finds it open; otherwise
    its marker was about to be written.
    """
    walk = TransactionWalk(view.fs, view.listing)
    yield from walk.ended(walk_view(view))
    left_open = walk.left_open()
    coordinated = coordinators() if left_open else None
    judged = [_judged(transaction, view.listing, now_ms, max_timeout_ms, coordinated) for transaction in left_open]
    if view.live and any(transaction.hanging for transaction in judged):
        view.look()
        later = TransactionWalk(view.fs, view.listing)
        deque(later.ended(walk_view(view)), maxlen=0)
        still = {(transaction.producer_id, transaction.first_offset) for transaction in later.left_open()}
        for number, transaction in enumerate(judged):
            if (transaction.producer_id, transaction.first_offset) not in still:
                judged[number] = replace(transaction, hanging=False)
    yield from judged


def read_coordinators(fs: FileSystem, log_directory: Path) -> dict[int, Coordinated] | None:
    """Reads the last record of each transactional id in the `__transaction_state` partitions of a log directory.

    Returns None if there are no such partitions, or if this user may not read all of them. Records that cannot be
    decoded are skipped. Raises OSError.
    """
    by_id: dict[str, Coordinated] = {}
    live = [p for p in list_log_directory(fs, log_directory).live if p.topic_partition.topic == TRANSACTION_TOPIC]
    for partition in live:
        try:
            with PartitionView(fs, partition.path) as view:
                for _, step in walk_view(view):
                    if isinstance(step, WalkedEntries):
                        _take_coordinated(step, by_id)
        except PermissionError:
            return None
    return {state.producer_id: state for state in by_id.values()} if live else None


def _take_coordinated(piece: WalkedEntries, by_id: dict[str, Coordinated]) -> None:
    data = piece.batches[piece.valid & ((piece.batches["attributes"] & layout.CONTROL_MASK) == 0)]
    for records in piece.records(data):
        for i in range(len(records)):
            try:
                record = decode_coordinator_record(TRANSACTIONS, records.key(i), records.value(i))
            except WireError:
                continue
            name = str(record.key.get("transactionalId"))
            if record.value is None:
                by_id.pop(name, None)
                continue
            by_id[name] = Coordinated.read(name, record.value, by_id.get(name))


def _judged(
    transaction: Transaction,
    listing: PartitionListing,
    now_ms: int,
    max_timeout_ms: int,
    coordinators: Mapping[int, Coordinated] | None,
) -> Transaction:
    transaction = replace(
        transaction, open_ms=max(0, now_ms - transaction.first_timestamp) if transaction.first_timestamp >= 0 else None
    )
    if coordinators is not None and (producer := coordinators.get(transaction.producer_id)) is not None:
        here = listing.topic_partition
        place = ("", -1) if here is None else (here.topic, here.partition)
        under_way = (
            producer.state in _UNDER_WAY
            and place in producer.partitions
            and producer.producer_epoch <= transaction.producer_epoch + 1
        )
        committed = not under_way and producer.had_committed(transaction, place)
        coordinator = producer.describe() + (", which had decided to commit it" if committed else "")
        ends, ends_at_ms = _ending(producer, now_ms) if under_way else ("", None)
        return replace(
            transaction,
            hanging=not under_way,
            coordinator=coordinator,
            is_decided=committed,
            ends=ends,
            ends_at_ms=ends_at_ms,
        )
    if transaction.source == "snapshot" or now_ms - transaction.last_timestamp > max_timeout_ms:
        return replace(transaction, hanging=True)
    at_ms = transaction.last_timestamp + max_timeout_ms
    ends = f"its coordinator's state is not here; if it is still open at {format_time(at_ms)}, it hangs"
    return replace(transaction, ends=ends, ends_at_ms=at_ms)


def _ending(producer: Coordinated, now_ms: int) -> tuple[str, int | None]:
    """Returns what ends a transaction that its coordinator works on, and when at the latest.

    A running coordinator looks for expired transactions every ten seconds (TransactionStateManager, KIP-98); one that
    has decided writes its markers as soon as the partition's leader takes them.
    """
    if producer.state == _PREPARE_COMMIT:
        return "its coordinator has decided to commit it and writes the marker when the brokers are up", None
    if producer.state == _PREPARE_ABORT:
        return "its coordinator has decided to abort it and writes the marker when the brokers are up", None
    if producer.started_ms < 0 or producer.timeout_ms < 0:
        return "its coordinator aborts it when its timeout is over, unless its producer ends it before", None
    at_ms = producer.started_ms + producer.timeout_ms
    if at_ms <= now_ms:
        over = f"its timeout ended at {format_time(at_ms)}"
        return f"{over}: its coordinator aborts it within seconds, as soon as the brokers run", at_ms
    return f"its coordinator aborts it at {format_time(at_ms)}, unless its producer ends it before", at_ms


class TransactionWalk:
    """Finds the transactions in the steps of a walk over one partition: `ended`, then `left_open`."""

    def __init__(self, fs: FileSystem, listing: PartitionListing) -> None:
        self._fs, self._listing = fs, listing
        self._open: dict[int, Transaction] = {}
        self._last_marker: dict[int, tuple[int, int]] = {}  # offset and timestamp

    def ended(self, steps: Iterable[tuple[SegmentFiles, WalkedEntries | Gap]]) -> Iterator[Transaction]:
        """Yields the transactions that end in `steps`, the pieces and gaps of the log."""
        for segment, step in steps:
            if not isinstance(step, Gap):
                yield from self._piece(step, segment.log)

    def left_open(self) -> list[Transaction]:
        """Returns the transactions that are open at the end of the log, after `ended`."""
        for transaction in self._of_snapshot():
            if transaction.producer_id not in self._open:
                self._open[transaction.producer_id] = transaction
        return sorted(self._open.values(), key=lambda transaction: transaction.first_offset)

    def _piece(self, piece: WalkedEntries, path: Path) -> Iterator[Transaction]:
        rows = piece.batches[piece.valid & (piece.batches["magic"] == 2)]
        rows = rows[(rows["attributes"] & layout.TRANSACTIONAL_MASK) != 0]
        control = rows[(rows["attributes"] & layout.CONTROL_MASK) != 0] if piece.complete else rows[:0]
        markers = iter(read_markers(piece.data, control, piece.position, path))
        for row in rows:
            if not int(row["attributes"]) & layout.CONTROL_MASK:
                self._data(row, path)
            elif piece.complete:
                marker = next(markers, None)
                if marker is not None and not isinstance(marker, InvalidRecordError):
                    producer_id, offset = int(row["producer_id"]), int(row["base_offset"])
                    self._last_marker[producer_id] = offset, marker.timestamp
                    begun = self._open.pop(producer_id, None)
                    if begun is not None:
                        yield replace(
                            begun,
                            state=TransactionState.ABORTED if marker.aborted else TransactionState.COMMITTED,
                            last_offset=offset,
                            last_timestamp=marker.timestamp,
                            coordinator_epoch=marker.coordinator_epoch,
                        )

    def _data(self, row: np.void, path: Path) -> None:
        producer_id, count = int(row["producer_id"]), int(row["count"])
        begun = self._open.get(producer_id)
        if begun is None:
            begun = Transaction(
                producer_id=producer_id,
                producer_epoch=int(row["producer_epoch"]),
                state=TransactionState.OPEN,
                first_offset=int(row["base_offset"]),
                last_offset=None,
                first_timestamp=int(row["max_timestamp"]) if count == 0 else int(row["base_timestamp"]),
                last_timestamp=int(row["max_timestamp"]),
                batches=0,
                records=0,
                bytes=0,
                file=path.name,
                position=int(row["position"]),
                previous_end=self._last_marker.get(producer_id, _NO_MARKER)[1],
            )
        self._open[producer_id] = replace(
            begun,
            batches=begun.batches + 1,
            records=begun.records + count,
            bytes=begun.bytes + int(row["size"]),
            last_timestamp=max(begun.last_timestamp, int(row["max_timestamp"])),
        )

    def _of_snapshot(self) -> Iterator[Transaction]:
        """Yields transactions that the newest readable snapshot holds open and whose records the log does not have."""
        for snapshot in reversed(self._listing.snapshots):
            try:
                entries = decode_snapshot(self._fs.read_bytes(snapshot.path), snapshot.path)
            except CorruptSnapshotError:
                continue
            for entry in entries:
                ended = self._last_marker.get(entry.producer_id, _NO_MARKER)[0] >= entry.current_txn_first_offset
                if entry.current_txn_first_offset >= 0 and not ended:
                    yield Transaction(
                        producer_id=entry.producer_id,
                        producer_epoch=entry.producer_epoch,
                        state=TransactionState.OPEN,
                        first_offset=entry.current_txn_first_offset,
                        last_offset=None,
                        first_timestamp=entry.timestamp,
                        last_timestamp=entry.timestamp,
                        batches=0,
                        records=0,
                        bytes=0,
                        file=snapshot.path.name,
                        position=0,
                        coordinator_epoch=entry.coordinator_epoch,
                        source="snapshot",
                    )
            return


def abort_command(transaction: Transaction, listing: PartitionListing, bootstrap_server: str) -> str:
    """Returns the `kafka-transactions.sh` call that writes the ABORT marker (Kafka: TransactionsCommand, KIP-664)."""
    here = listing.topic_partition
    topic = listing.directory.name if here is None else here.topic
    number = 0 if here is None else here.partition
    return (
        f"kafka-transactions.sh --bootstrap-server {bootstrap_server} abort"
        f" --topic {topic} --partition {number} --start-offset {transaction.first_offset}"
    )


class _Spans(NamedTuple):
    """First and last offsets of a producer's aborted or open transactions, ascending."""

    firsts: np.ndarray
    lasts: np.ndarray


@dataclass(frozen=True, slots=True)
class Unsettled:
    """The aborted and open transactions of a partition, which a read_committed consumer does not see.

    `end_offset` is where the first open transaction begins (the last stable offset), else the largest offset.
    """

    spans: dict[int, _Spans]
    end_offset: int

    def settled(self, batches: np.ndarray) -> np.ndarray:
        """Returns a bool per batch: True if it belongs to no aborted or open transaction."""
        flags = np.where(batches["magic"] >= 2, batches["attributes"], 0)
        transactional = (flags & (layout.TRANSACTIONAL_MASK | layout.CONTROL_MASK)) == layout.TRANSACTIONAL_MASK
        settled = np.ones(len(batches), dtype=bool)
        for producer in np.unique(batches["producer_id"][transactional]).tolist():
            spans = self.spans.get(producer)
            if spans is None:
                continue
            own = np.flatnonzero(transactional & (batches["producer_id"] == producer))
            at = np.searchsorted(spans.firsts, batches["base_offset"][own], side="right") - 1
            inside = (at >= 0) & (batches["base_offset"][own] <= spans.lasts[np.maximum(at, 0)])
            settled[own[inside]] = False
        return settled

    def committed(self, batches: np.ndarray) -> np.ndarray:
        """Returns a bool per batch: True if a read_committed consumer gets it, that is, settled and stable."""
        seen: np.ndarray = self.settled(batches) & (batches["base_offset"] < self.end_offset)
        return seen


def unsettled(fs: FileSystem, listing: PartitionListing) -> Unsettled:
    """Finds the unsettled transactions of a partition. Damaged batches are skipped. Raises OSError."""
    spans_of: dict[int, list[tuple[int, int]]] = {}
    end = layout.INT64_MAX
    for transaction in transactions(fs, listing, now_ms=0):
        if transaction.state is TransactionState.COMMITTED:
            continue
        if transaction.last_offset is None:
            end = min(end, transaction.first_offset)
        if transaction.source == "log":
            last = layout.INT64_MAX if transaction.last_offset is None else transaction.last_offset
            spans_of.setdefault(transaction.producer_id, []).append((transaction.first_offset, last))
    tables = {producer: np.array(sorted(spans), dtype=np.int64) for producer, spans in spans_of.items()}
    return Unsettled({producer: _Spans(table[:, 0], table[:, 1]) for producer, table in tables.items()}, end)
