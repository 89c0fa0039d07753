"""Which batches belong to transactions that were aborted or are open: what readers of committed data do not see.

The walk of `transactions` tells where each began and ended; a batch is unsettled where its producer's transaction that
covers it was not committed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from seglog import layout
from seglog.evidence.transactions import TransactionState, transactions
from seglog.scan.listing import PartitionListing
from seglog.storage.filesystem import FileSystem


class _Spans(NamedTuple):
    """First and last offsets, ascending, of a producer's transactions that are aborted or open."""

    firsts: np.ndarray
    lasts: np.ndarray


@dataclass(frozen=True, slots=True)
class Unsettled:
    """`end_offset` is where the first open transaction begins (the last stable offset), else the largest offset."""

    spans: dict[int, _Spans]
    end_offset: int

    def settled(self, batches: np.ndarray) -> np.ndarray:
        """Of each batch, whether no transaction that was aborted or is open holds it."""
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
        """Of each batch, whether a consumer with read_committed gets it: settled, and before the last stable offset."""
        seen: np.ndarray = self.settled(batches) & (batches["base_offset"] < self.end_offset)
        return seen


def unsettled(fs: FileSystem, listing: PartitionListing) -> Unsettled:
    """Those of a partition. Damaged batches are passed over. Raises OSError."""
    found: dict[int, list[tuple[int, int]]] = {}
    end = layout.INT64_MAX
    for one in transactions(fs, listing, now_ms=0):
        if one.state is TransactionState.COMMITTED:
            continue
        if one.last_offset is None:
            end = min(end, one.first_offset)
        if one.source == "log":
            last = layout.INT64_MAX if one.last_offset is None else one.last_offset
            found.setdefault(one.producer_id, []).append((one.first_offset, last))
    tables = {producer: np.array(sorted(spans), dtype=np.int64) for producer, spans in found.items()}
    return Unsettled({producer: _Spans(table[:, 0], table[:, 1]) for producer, table in tables.items()}, end)
