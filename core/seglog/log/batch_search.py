"""Which batch holds an offset, or is the next one (Kafka: FileRecords.searchForOffsetFromPosition).

The rule decides also where offsets do not ascend (a block of batches written twice, a batch from elsewhere): readers,
truncation and the replay of producers then begin at the batch at which a broker's do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from seglog.scan.segment_scan import Chunk


@dataclass(frozen=True, slots=True)
class BatchPosition:
    """Where a batch lies: its base and last offset, byte position and size in bytes."""

    base_offset: int
    last_offset: int
    position: int
    size: int


def find_batch(chunks: Iterable[Chunk], offset: int) -> BatchPosition | None:
    """The batch that holds `offset`, or the next one, as Kafka looks for it (FileRecords.searchForOffsetFromPosition).

    The first batch that begins at `offset` or above it ends the search; the one before it is the answer when it
    reaches `offset`. Where offsets do not ascend this says which of several batches it is.
    """
    before: np.ndarray | None = None
    for chunk in chunks:
        rows = chunk.batches
        reached = rows["base_offset"] >= offset
        if reached.any():
            at = int(np.argmax(reached))
            previous = before if at == 0 else rows[at - 1 : at]
            if rows["base_offset"][at] > offset and previous is not None and previous["last_offset"][0] >= offset:
                return _place(previous[0])
            return _place(rows[at])
        before = rows[-1:].copy()
    return _place(before[0]) if before is not None and before["last_offset"][0] >= offset else None


def _place(row: np.void) -> BatchPosition:
    return BatchPosition(int(row["base_offset"]), int(row["last_offset"]), int(row["position"]), int(row["size"]))
