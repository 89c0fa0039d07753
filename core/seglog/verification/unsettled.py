"""The batches of aborted and open transactions, which a read_committed consumer does not get.

Kafka: Isolation, LogReadInfo, the aborted transactions of a fetch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from seglog import layout
from seglog.scan.listing import PartitionListing
from seglog.storage.filesystem import FileSystem


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
    from seglog.verification.transactions import TransactionState, transactions  # most reads take every record

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
