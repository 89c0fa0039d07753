"""Which batch holds an offset, or is the next one, and whether an index's entry leads to it (Kafka: FileRecords).

The rule decides also where offsets do not ascend (a block of batches written twice, a batch from elsewhere): readers,
truncation and the replay of producers then begin at the batch at which a broker's do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from seglog import layout
from seglog.format.decoder import decode_large
from seglog.scan.segment_scan import Chunk, entry_row
from seglog.storage.filesystem import File


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


def believed_batch(file: File, size: int, base_offset: int, entry: tuple[int, int]) -> np.ndarray | None:
    """The batch (layout.BATCH, shape (1,)) to which an entry (offset, position) leads; None where it leads astray.

    A search that begins at a believed entry misses nothing: a batch begins there, in the first `size` bytes of the
    segment's file, and its first offset is one of the segment's, and not above the entry's. Entries name the last
    offset of what was appended at once: before Kafka indexed each batch, of all the batches that a follower fetched
    (and before 0.10.1 the first one). The header tells, and no checksum is compared; a compressed message of magic 0
    or 1, whose header says with which offset it ends, is decoded where it must be known with which it begins.
    """
    offset, position = entry
    row = entry_row(file, position, size) if 0 < position < size else None
    if row is None:
        return None
    first = int(row["base_offset"][0])
    if first > offset and row["magic"][0] < 2 and row["attributes"][0] & layout.CODEC_MASK:
        inner = next((records for records in decode_large(file, row) if len(records)), None)
        first = first if inner is None else int(inner.rows["offset"][0])
    return row if base_offset <= first <= offset else None


def _place(row: np.void) -> BatchPosition:
    return BatchPosition(int(row["base_offset"]), int(row["last_offset"]), int(row["position"]), int(row["size"]))
