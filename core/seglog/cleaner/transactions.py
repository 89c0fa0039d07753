"""Which transactional batches and markers a round may drop (Kafka: CleanedTransactionMetadata).

Batches and markers are given in log order:

1. Aborted transactions that have begun by a batch's last offset become ongoing, one a producer.
2. A data batch of an ongoing aborted transaction is discarded, and the transaction counts as observed.
3. An ABORT marker ends it: when a batch was observed the marker stays and its entry goes to the new transaction
   index, otherwise the marker may go. A COMMIT marker may go when no data batch of its transaction was seen.

"Seen" means read, as in Kafka, so that a marker outlives its batches by a round. A round that expires markers
passes `remains`, and only batches that it writes count.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from seglog.log.indexes import AbortedTransaction


class TransactionTracker:
    """The state between batches. `remains(base_offset)` tells whether a data batch counts as seen.

    `observed` and `committed` are the producers of which a batch of an aborted, or of another, transaction was seen
    and no marker yet.
    """

    def __init__(self, remains: Callable[[int], bool] | None = None) -> None:
        self._remains = remains
        self._upcoming: list[tuple[int, int, AbortedTransaction]] = []
        self._aborted: dict[int, AbortedTransaction] = {}
        self.observed: set[int] = set()
        self.committed: set[int] = set()
        self._added = 0
        self.kept_aborted: list[AbortedTransaction] = []

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Announces aborted transactions; the same one may be announced again until its marker was read."""
        for transaction in transactions:
            heapq.heappush(self._upcoming, (transaction.first_offset, self._added, transaction))
            self._added += 1

    def on_batch(self, producer_id: int, base_offset: int, last_offset: int) -> bool:
        """Whether a transactional data batch belongs to an aborted transaction."""
        self._begin(last_offset)
        seen = self._remains is None or self._remains(base_offset)
        if producer_id in self._aborted:
            if seen:
                self.observed.add(producer_id)
            return True
        if seen:
            self.committed.add(producer_id)
        return False

    def on_marker(self, producer_id: int, last_offset: int, aborted: bool) -> bool:
        """Whether a COMMIT or ABORT marker has no batch left; a kept ABORT is added to `kept_aborted`."""
        self._begin(last_offset)
        if not aborted:
            seen = producer_id in self.committed
            self.committed.discard(producer_id)
            return not seen
        transaction = self._aborted.pop(producer_id, None)
        if transaction is None or producer_id not in self.observed:
            return True
        self.observed.remove(producer_id)
        self.kept_aborted.append(transaction)
        return False

    def take_kept_aborted(self) -> list[AbortedTransaction]:
        """The aborted transactions whose markers were kept since the last call."""
        taken, self.kept_aborted = self.kept_aborted, []
        return taken

    def take_state(self, other: TransactionTracker) -> None:
        """Goes on from where `other`, which is not used any more, has come to."""
        self._upcoming, self._aborted, self._added = other._upcoming, other._aborted, other._added
        self.observed, self.committed = other.observed, other.committed

    def _begin(self, last_offset: int) -> None:
        while self._upcoming and self._upcoming[0][0] <= last_offset:
            transaction = heapq.heappop(self._upcoming)[2]
            if transaction.producer_id not in self._aborted:
                self._aborted[transaction.producer_id] = transaction
