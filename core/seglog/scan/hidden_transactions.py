"""Which batches a read_committed consumer does not get, by the transactions that were aborted or are open.

Kafka: Fetcher's aborted transactions of a fetch (specification §9.2). A consumer works out step by step what a table
tells at once: a batch belongs to such a transaction if it is transactional, of the same producer, and between the
transaction's first offset and its marker.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from seglog import layout


class HiddenTransactions:
    """Transactions whose records are not shown, as (producer id, first offset, offset of the marker); without a marker
    the last is INT64_MAX.

    They come from an index without a checksum. So a marker that lies in a log within a transaction ends it there: what
    its producer writes after it is another transaction.
    """

    def __init__(self, transactions: Iterable[tuple[int, int, int]]) -> None:
        by_producer: dict[int, list[tuple[int, int]]] = {}
        for producer, first, last in transactions:
            by_producer.setdefault(producer, []).append((first, last))
        self._spans: dict[int, np.ndarray] = {}  # ascending first offsets, and the last offset reached until then
        for producer, spans in by_producer.items():
            table = np.array(sorted(spans), dtype=np.int64)
            np.maximum.accumulate(table[:, 1], out=table[:, 1])
            self._spans[producer] = table

    def mask(self, batches: np.ndarray) -> np.ndarray:
        """Returns which batches (rows of layout.BATCH) belong to one of them (bool)."""
        hidden = np.zeros(len(batches), dtype=np.bool_)
        if not self._spans:
            return hidden
        marker = layout.TRANSACTIONAL_MASK | layout.CONTROL_MASK
        flags = batches["attributes"] & marker
        self._end_at(batches[(batches["magic"] >= 2) & (flags == marker)])
        transactional = (batches["magic"] >= 2) & (flags == layout.TRANSACTIONAL_MASK)
        for producer in np.unique(batches["producer_id"][transactional]).tolist():
            table = self._spans.get(producer)
            if table is not None:
                own = np.flatnonzero(transactional & (batches["producer_id"] == producer))
                offsets = batches["base_offset"][own]
                at = np.searchsorted(table[:, 0], offsets, side="right") - 1
                hidden[own[(at >= 0) & (offsets <= table[np.maximum(at, 0), 1])]] = True
        return hidden

    def _end_at(self, markers: np.ndarray) -> None:
        for producer in np.unique(markers["producer_id"]).tolist():
            table = self._spans.get(producer)
            if table is not None:
                offsets = markers["base_offset"][markers["producer_id"] == producer]
                within = np.searchsorted(table[:, 1], offsets, side="right")
                until = np.searchsorted(table[:, 0], offsets, side="right")
                for at in np.flatnonzero(within < until).tolist():  # none, if the index is right
                    later = table[within[at] : until[at], 1]
                    np.minimum(later, offsets[at], out=later)
