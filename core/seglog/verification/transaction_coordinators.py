"""What the transaction coordinators of a cluster last wrote about each producer, in `__transaction_state`.

`read_coordinators` reads the topic's partitions in a log directory. `Coordinated` is the last record of a transactional
id; it tells whether its coordinator works on a transaction, what will end it, and whether it had decided to commit it.
An open transaction hangs if its coordinator does not know it as ongoing (`transactions`, `view_transactions`). The
`__transaction_state` partitions in the same log directory tell; without them, its age is compared with
`transaction.max.timeout.ms`.

Kafka: TransactionLog, TransactionMetadata, TransactionStateManager, KIP-664.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from seglog import layout
from seglog.format.coordinator import TRANSACTION_TOPIC, TRANSACTIONS, decode_coordinator_record
from seglog.format.wire import WireError
from seglog.scan.listing import PartitionListing, list_log_directory
from seglog.scan.log_walk import WalkedEntries, walk_view
from seglog.scan.view import PartitionView
from seglog.storage.filesystem import FileSystem
from seglog.storage.lock import partition_path
from seglog.units import format_time
from seglog.verification.transactions import Transaction, TransactionState, TransactionWalk

DEFAULT_MAX_TIMEOUT_MS = 900_000  # transaction.max.timeout.ms

# The coordinator works on a transaction in these states and will end it.
_UNDER_WAY = {1, 2, 3}
_ONGOING, _PREPARE_COMMIT, _PREPARE_ABORT, _COMPLETE_COMMIT, _COMPLETE_ABORT = range(1, 6)
_STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "Fenced")


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

    def works_on(self, place: tuple[str, int], producer_epoch: int) -> bool:
        """True if the coordinator works on the producer's transaction in a partition, and will end it.

        A state of an earlier epoch, as a copy has it that was made before the partition's, ends nothing: the leader
        refuses a marker with an epoch below the transaction's, and in version 2 of transactions, where a marker has the
        next epoch, with the same one.

        Kafka: ProducerAppendInfo.checkProducerEpoch.
        """
        is_of_epoch = producer_epoch <= self.producer_epoch <= producer_epoch + 1
        return self.state in _UNDER_WAY and place in self.partitions and is_of_epoch

    def had_committed(self, place: tuple[str, int], producer_epoch: int, previous_end: int) -> bool:
        """True if it had decided to commit a transaction that is open in a partition: only the marker is missing.

        `previous_end` is the timestamp of the producer's previous marker there, -1 if none.

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
            and decision.producer_epoch in (producer_epoch, producer_epoch + 1)
            and (decision.at_ms > previous_end or (self.state == _PREPARE_COMMIT and place in self.partitions))
        )

    def ending(self, now_ms: int) -> tuple[str, int | None]:
        """Returns what ends a transaction that its coordinator works on, and when at the latest.

        A running coordinator looks for expired transactions every ten seconds (TransactionStateManager, KIP-98); one
        that has decided writes its markers as soon as the partition's leader takes them.
        """
        if self.state == _PREPARE_COMMIT:
            return "its coordinator has decided to commit it and writes the marker when the brokers are up", None
        if self.state == _PREPARE_ABORT:
            return "its coordinator has decided to abort it and writes the marker when the brokers are up", None
        if self.started_ms < 0 or self.timeout_ms < 0:
            return "its coordinator aborts it when its timeout is over, unless its producer ends it before", None
        at_ms = self.started_ms + self.timeout_ms
        if at_ms <= now_ms:
            over = f"its timeout ended at {format_time(at_ms)}"
            return f"{over}: its coordinator aborts it within seconds, as soon as the brokers run", at_ms
        return f"its coordinator aborts it at {format_time(at_ms)}, unless its producer ends it before", at_ms


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


# --- which transactions hang


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
    known = cache(coordinators)
    for found in TransactionWalk(fs, listing).of_logs(listing.segments if has_producers else ()):
        is_open = found.state is TransactionState.OPEN
        yield _judged(found, listing, now_ms, DEFAULT_MAX_TIMEOUT_MS, known()) if is_open else found


def view_transactions(
    fs: FileSystem, view: PartitionView, now_ms: int, max_timeout_ms: int = DEFAULT_MAX_TIMEOUT_MS
) -> Iterator[Transaction]:
    """Yields the transactions of a partition that a broker may be writing; `fs` has the coordinators' logs beside it.

    A transaction that its coordinator has ended hangs only if a later look at the log still finds it open; otherwise
    its marker was about to be written.
    """
    walk = TransactionWalk(view.fs, view.listing)
    yield from walk.ended(walk_view(view))
    left_open = walk.left_open()
    coordinated = read_coordinators(fs, partition_path(view.directory).parent) if left_open else None
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
        under_way = producer.works_on(place, transaction.producer_epoch)
        committed = not under_way and producer.had_committed(
            place, transaction.producer_epoch, transaction.previous_end
        )
        coordinator = producer.describe() + (", which had decided to commit it" if committed else "")
        ends, ends_at_ms = producer.ending(now_ms) if under_way else ("", None)
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
