"""Transactions as the log itself tells them: where they began and ended, and which hang (Kafka: KIP-664).

1. The good batches of a partition are walked in order; of transactional ones a row of counts a producer is kept.
2. A marker ends its producer's transaction. What is left at the end of the log is open.
3. The newest snapshot may hold a transaction open whose records are gone: a broker holds it open too.
4. An open transaction hangs when its coordinator does not know it as ongoing. That is asked of the
   `__transaction_state` partitions beside the log; where those do not tell, its age against
   `transaction.max.timeout.ms` does.

Memory goes with the producers that have a transaction open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from seglog import layout
from seglog.errors import CorruptSnapshotError, InvalidRecordError
from seglog.format.coordinator import TRANSACTIONS, decode_coordinator_record
from seglog.format.producer_snapshot import decode_snapshot
from seglog.format.wire import WireError
from seglog.log.markers import read_markers
from seglog.scan.listing import PartitionListing, SegmentFiles, list_log_directory
from seglog.scan.log_walk import Gap, LogWalk, WalkedEntries, walk_view
from seglog.scan.view import PartitionView
from seglog.storage.filesystem import FileSystem

DEFAULT_MAX_TIMEOUT_MS = 900_000  # transaction.max.timeout.ms
TRANSACTION_TOPIC = "__transaction_state"

# The coordinator works on a transaction in these states, and will end it.
_UNDER_WAY = {1, 2, 3}
_ONGOING, _PREPARE_COMMIT, _PREPARE_ABORT, _COMPLETE_COMMIT, _COMPLETE_ABORT = range(1, 6)
_NO_MARKER = (-1, -1)
_STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "Fenced")


class TransactionState(Enum):
    """How a transaction ended, if it did."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction of one partition.

    `first_offset` is that of its first record here, `last_offset` its marker's (None while open); timestamps are
    those of its first batch and of its marker, or of its last batch while open. `bytes` counts whole batches.
    `source` is "log", or "snapshot" where only the newest producer snapshot knows it. `hanging` is None where
    nothing tells, and for ended ones; `coordinator` is what the coordinator's log says of its producer. `is_decided`
    says that it had decided to commit: the producer was told so, and only the marker is missing. `previous_end` is the
    timestamp of the marker that this producer had here before, -1 for none.
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

    @property
    def duration_ms(self) -> int:
        """From its first batch to its marker, or to its last batch."""
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
        }


@dataclass(frozen=True, slots=True)
class Decision:
    """How a coordinator had decided a transaction to end, before it had the markers written."""

    commit: bool
    producer_epoch: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Coordinated:
    """What the coordinator last wrote about a producer: its transactional id and the transaction's state.

    `decisions` holds the last one of each partition, as far as compaction has left them.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: int
    partitions: frozenset[tuple[str, int]]
    decisions: dict[tuple[str, int], Decision] = field(default_factory=dict)
    changed_ms: int = -1

    @classmethod
    def read(cls, name: str, value: Mapping[str, Any], before: Coordinated | None) -> Coordinated:
        """What a record of `__transaction_state` says, after `before`."""
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
        return cls(name, identity, epoch, state, named, decisions, changed_ms)

    def describe(self) -> str:
        """Such as `billing-1 CompleteAbort`."""
        name = _STATES[self.state] if 0 <= self.state < len(_STATES) else str(self.state)
        return f"{self.transactional_id} {name}"

    def had_committed(self, one: Transaction, place: tuple[str, int]) -> bool:
        """Whether it had decided to commit a transaction that is open in a partition: only the marker is missing.

        A broker that is killed and starts again may leave a marker out for good, and the producer goes on. So an older
        decision counts, too, unless a marker was written since, or a transaction is under way there: then the log does
        not tell the records of both apart, and the later one ends them. In version 2 of transactions the decision has
        the next epoch.
        """
        if self.state in (_ONGOING, _PREPARE_ABORT) and place in self.partitions:
            return False
        decision = self.decisions.get(place)
        if decision is None and self.state in (_COMPLETE_COMMIT, _COMPLETE_ABORT):
            decision = Decision(self.state == _COMPLETE_COMMIT, self.producer_epoch, self.changed_ms)
        return (
            decision is not None
            and decision.commit
            and decision.producer_epoch in (one.producer_epoch, one.producer_epoch + 1)
            and (decision.at_ms > one.previous_end or (self.state == _PREPARE_COMMIT and place in self.partitions))
        )


def transactions(
    fs: FileSystem,
    listing: PartitionListing,
    now_ms: int,
    *,
    coordinators: Callable[[], Mapping[int, Coordinated] | None] = lambda: None,
) -> Iterator[Transaction]:
    """All transactions of a partition: ended ones in the order of their markers, then the open ones by offset.

    `coordinators` gives what `read_coordinators` finds, None where there is nothing to ask; it is asked after the log
    was read, and only when a transaction is open. Damaged batches are passed over. Raises OSError.
    """
    walk = TransactionWalk(fs, listing)
    yield from walk.ended(_steps(fs, listing))
    found = walk.left_open()
    known = coordinators() if found else None
    for one in found:
        yield _judged(one, listing, now_ms, DEFAULT_MAX_TIMEOUT_MS, known)


def view_transactions(
    view: PartitionView,
    now_ms: int,
    *,
    max_timeout_ms: int,
    coordinators: Callable[[], Mapping[int, Coordinated] | None],
) -> Iterator[Transaction]:
    """The same of a partition beside which a broker may be at work.

    A transaction that its coordinator had ended when it was asked hangs only if it is still open in a later look at
    the log: else its marker was on its way.
    """
    walk = TransactionWalk(view.fs, view.listing)
    yield from walk.ended(walk_view(view))
    found = walk.left_open()
    known = coordinators() if found else None
    judged = [_judged(one, view.listing, now_ms, max_timeout_ms, known) for one in found]
    if view.live and any(one.hanging for one in judged):
        view.look()
        later = TransactionWalk(view.fs, view.listing)
        deque(later.ended(walk_view(view)), maxlen=0)
        still = {(one.producer_id, one.first_offset) for one in later.left_open()}
        ended = [one for one in judged if (one.producer_id, one.first_offset) not in still]
        judged = [replace(one, hanging=False) if one in ended else one for one in judged]
    yield from judged


def _steps(fs: FileSystem, listing: PartitionListing) -> Iterator[tuple[SegmentFiles, WalkedEntries | Gap]]:
    for segment in listing.segments:
        for step in LogWalk(fs, segment.log):
            yield segment, step


def read_coordinators(fs: FileSystem, log_directory: Path) -> dict[int, Coordinated] | None:
    """The last word of each transactional id in the `__transaction_state` partitions of a log directory.

    None when there are none. What cannot be decoded is passed over. Raises OSError.
    """
    found: dict[str, Coordinated] = {}
    live = [p for p in list_log_directory(fs, log_directory).live if p.topic_partition.topic == TRANSACTION_TOPIC]
    for partition in live:
        with PartitionView(fs, partition.path) as view:
            for _, step in walk_view(view):
                if isinstance(step, WalkedEntries):
                    _take_coordinated(step, found)
    return {one.producer_id: one for one in found.values()} if live else None


def _take_coordinated(piece: WalkedEntries, found: dict[str, Coordinated]) -> None:
    data = piece.batches[piece.valid & ((piece.batches["attributes"] & layout.CONTROL_MASK) == 0)]
    for records in piece.records(data):
        for i in range(len(records)):
            try:
                record = decode_coordinator_record(TRANSACTIONS, records.key(i), records.value(i))
            except WireError:
                continue
            name = str(record.key.get("transactionalId"))
            if record.value is None:
                found.pop(name, None)
                continue
            found[name] = Coordinated.read(name, record.value, found.get(name))


def _judged(
    one: Transaction,
    listing: PartitionListing,
    now_ms: int,
    max_timeout_ms: int,
    coordinators: Mapping[int, Coordinated] | None,
) -> Transaction:
    if coordinators is not None and (known := coordinators.get(one.producer_id)) is not None:
        here = listing.topic_partition
        place = ("", -1) if here is None else (here.topic, here.partition)
        under_way = (
            known.state in _UNDER_WAY and place in known.partitions and known.producer_epoch <= one.producer_epoch + 1
        )
        committed = not under_way and known.had_committed(one, place)
        said = known.describe() + (", which had decided to commit it" if committed else "")
        return replace(one, hanging=not under_way, coordinator=said, is_decided=committed)
    age_ms = now_ms - one.last_timestamp
    return replace(one, hanging=True if one.source == "snapshot" or age_ms > max_timeout_ms else None)


class TransactionWalk:
    """A walk over one partition, whose pieces somebody else gives: `ended`, and then `left_open`."""

    def __init__(self, fs: FileSystem, listing: PartitionListing) -> None:
        self._fs, self._listing = fs, listing
        self._open: dict[int, Transaction] = {}
        self._last_marker: dict[int, tuple[int, int]] = {}  # offset and timestamp

    def ended(self, steps: Iterable[tuple[SegmentFiles, WalkedEntries | Gap]]) -> Iterator[Transaction]:
        """Walks the log, whose pieces and gaps are `steps`."""
        for segment, step in steps:
            if not isinstance(step, Gap):
                yield from self._piece(step, segment.log)

    def left_open(self) -> list[Transaction]:
        """What is open at the end, after `ended`."""
        for one in self._of_snapshot():
            if one.producer_id not in self._open:
                self._open[one.producer_id] = one
        return sorted(self._open.values(), key=lambda one: one.first_offset)

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
        """Transactions that the newest readable snapshot holds open and of which the log has nothing."""
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


def abort_command(one: Transaction, listing: PartitionListing, bootstrap_server: str) -> str:
    """The `kafka-transactions.sh` call that writes the ABORT marker (Kafka: TransactionsCommand, KIP-664)."""
    here = listing.topic_partition
    topic = listing.directory.name if here is None else here.topic
    number = 0 if here is None else here.partition
    return (
        f"kafka-transactions.sh --bootstrap-server {bootstrap_server} abort"
        f" --topic {topic} --partition {number} --start-offset {one.first_offset}"
    )
