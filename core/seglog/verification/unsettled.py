"""The batches of aborted and open transactions, which a read_committed consumer does not get.

Kafka: Isolation, LogReadInfo, the aborted transactions of a fetch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seglog import layout
from seglog.scan.hidden_transactions import HiddenTransactions
from seglog.scan.listing import PartitionListing
from seglog.storage.filesystem import FileSystem


@dataclass(frozen=True, slots=True)
class Unsettled:
    """The aborted and open transactions of a partition, which a read_committed consumer does not see.

    `end_offset` is where the first open transaction begins (the last stable offset), else the largest offset.
    """

    transactions: HiddenTransactions
    end_offset: int

    def committed(self, batches: np.ndarray) -> np.ndarray:
        """Returns a bool per batch: True if a read_committed consumer gets it: of no such transaction, and stable."""
        seen: np.ndarray = ~self.transactions.mask(batches) & (batches["base_offset"] < self.end_offset)
        return seen


def unsettled(fs: FileSystem, listing: PartitionListing) -> Unsettled:
    """Finds the unsettled transactions of a partition. Damaged batches are skipped. Raises OSError."""
    from seglog.verification.transactions import TransactionState, TransactionWalk  # most reads take every record

    spans: list[tuple[int, int, int]] = []
    end = layout.INT64_MAX
    for transaction in TransactionWalk(fs, listing).of_logs(listing.segments):
        if transaction.state is TransactionState.COMMITTED:
            continue
        if transaction.last_offset is None:
            end = min(end, transaction.first_offset)
        if transaction.source == "log":
            last = layout.INT64_MAX if transaction.last_offset is None else transaction.last_offset
            spans.append((transaction.producer_id, transaction.first_offset, last))
    return Unsettled(HiddenTransactions(spans), end)
